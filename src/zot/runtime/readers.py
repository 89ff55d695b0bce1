"""Decides which commands only read files of the project: they run without a question.

Git reads by the settings of the repository, which may name programs (file system monitors, filters,
diff drivers, pagers). It counts as reading only in a repository whose settings are all known to be
harmless, without a hook that reading starts and, where git looks into them, without submodules.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from zot.core.hook import nothing_hidden
from zot.git import Git, GitError
from zot.runtime import programs
from zot.runtime.grammar import Simple
from zot.runtime.inside import Place, is_inside
from zot.text import compiled

GLOB_SIGNS = "*?["
SED_ADDRESS = r"(\d+|\$|/[^/\\\[\]]*/)"
SED_SCRIPT = rf"({SED_ADDRESS}(,({SED_ADDRESS}|\+\d+))?)?[pdq=](;|$)"
JQ_ASKED = r"\b(env|ENV|import|include|input_filename|get_search_list)\b"
CONTENT_OF_FOLDERS = ("egrep", "fgrep", "grep", "rg")
HOOK = "post-index-change"
"""The only hook that git runs when it reads."""


def only_reads(command: Simple, place: Place, *, names: bool = True) -> bool:
    """Whether a command reads files of the project, prints something, and does nothing else.

    `names`: a pattern counts as the names that it stands for now; otherwise no pattern may stand
    at a place where a name could become an option.
    """
    words = _texts(command, place, names=names)
    if words is None or not assigns_harmless(command):
        return False
    program = words[0]
    if program in programs.BUILT_INS or _is_installed(program, place):
        return _reads(program, words[1:], place)
    return False


def stays_inside(command: Simple, place: Place) -> bool:
    """Whether a program with a rule for any words gets only harmless options, and paths of the
    project."""
    words = _texts(command, place, names=False)
    if words is None:
        return False
    if words[0] == "git":
        return _git_stays_inside(words[1:], place)
    flags = programs.READERS.get(words[0], "")
    return _has_harmless_options(words[1:], flags) and _holds_all(words[0], words[1:], place)


def assigns_harmless(command: Simple) -> bool:
    names = (word.text.partition("=")[0] for word in command.assigned)
    return all(name in programs.HARMLESS_VARIABLES for name in names)


def may_become_option(text: str, glob: str) -> bool:
    """Whether names of files that bash puts in place of this word could begin with `-`.

    They begin as the word does: `src/*.py` becomes no option, `*.py` and `--[o]*` might.
    """
    return bool(glob) and text[0] in f"-{GLOB_SIGNS}"


def _texts(command: Simple, place: Place, *, names: bool) -> list[str] | None:
    """Return the words of a command with the names of files for patterns; None: unknown."""
    found: list[str] = []
    for word in command.words:
        if not names and may_become_option(word.text, word.glob):
            return None
        texts = place.texts(word)
        if texts is None:
            return None
        found += texts
    return None if command.words[0].glob else found


def _is_installed(program: str, place: Place) -> bool:
    """Whether the program is on PATH, outside the project."""
    search = place.project.environ.get("PATH", os.defpath)
    if "/" in program or not all(map(os.path.isabs, search.split(os.pathsep))):
        return False
    path = shutil.which(program, path=search) or ""
    folders = (os.path.dirname(path), os.path.dirname(os.path.realpath(path)))
    outside = place.root == os.sep or not any(is_inside(one, place.root) for one in folders)
    return bool(path) and outside


def _reads(program: str, words: Sequence[str], place: Place) -> bool:
    if program in programs.VERSIONED and list(words) == ["--version"]:
        return True
    match program:
        case "git":
            return _git_reads(words, place)
        case "find":
            return _find_reads(words, place)
        case "sed":
            return _sed_reads(words, place)
        case "command":
            return words[:1] in (["-v"], ["-V"])
        case "test" | "[":
            return programs.TEST_ASKED.isdisjoint(words)
        case "uniq" if sum(not word.startswith("-") for word in words) > 1:
            return False  # the second one is written
        case "diff" if any(place.is_folder(word) for word in words):
            return False  # follows the links in them
        case "jq" if any(compiled(JQ_ASKED).search(word) for word in words):
            return False
        case _ if program in CONTENT_OF_FOLDERS and place.project.hidden is not nothing_hidden:
            return False  # would read hidden files, too
    flags = programs.READERS.get(program)
    if flags is None:
        return False
    return _has_harmless_options(words, flags) and _holds_all(program, words, place)


def _has_harmless_options(words: Sequence[str], asked: str) -> bool:
    return not any(_is_asked(word, asked.split()) for word in words)


def _is_asked(word: str, asked: Sequence[str]) -> bool:
    """Whether this is one of the options, perhaps abbreviated or among other letters."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(word) > 2 and any(flag.startswith(name) for flag in asked)
    letters = {flag[1] for flag in asked if len(flag) == 2}
    return word.startswith("-") and not letters.isdisjoint(word[1:])


def _holds_all(program: str, words: Sequence[str], place: Place) -> bool:
    """Whether all paths among the words lead inside the project. Values of options count."""
    texts = programs.TEXT_OPERANDS.get(program, 0)
    named = programs.NAMED_TEXT.get(program, ())
    if any(_is_asked(word, named) for word in words):
        texts = 0
    for word in words:
        if not word.startswith("-") and texts:
            texts -= 1
        elif not place.holds(word) or not place.holds(_value(word)):
            return False
    return True


def _value(word: str) -> str:
    """Return the value in an option, `--name=value` or `-nvalue`; else the word."""
    if word.startswith("--"):
        return word.partition("=")[2]
    return word[2:] if word.startswith("-") else word


def _find_reads(words: Sequence[str], place: Place) -> bool:
    for word in words:
        is_number = compiled(r"[+-]\d+[A-Za-z]?").fullmatch(word)
        if word.startswith("-") and word not in programs.FIND_WORDS and not is_number:
            return False
        if not place.holds(word):
            return False
    return True


def _sed_reads(words: Sequence[str], place: Place) -> bool:
    """Whether `sed` only prints lines: `sed -n '1,80p' FILE`."""
    flags = [word for word in words if word.startswith("-")]
    script, *files = [word for word in words if not word.startswith("-")] or [""]
    plain = set(flags) <= {"-n", "-E", "-r", "-nE", "-En"} and bool(script)
    return plain and _is_sed_script(script) and all(place.holds(file) for file in files)


def _is_sed_script(script: str) -> bool:
    return bool(compiled(rf"({SED_SCRIPT})+").fullmatch(script.replace(" ", "")))


# --- git -------------------------------------------------------------------------------------


def _git_reads(words: Sequence[str], place: Place) -> bool:
    placed = _git_place(words, place)
    if placed is None:
        return False
    place, (name, *rest) = placed
    content = name in ("blame", "cat-file", "diff", "grep", "log", "show", "stash")
    if content and place.project.hidden is not nothing_hidden:
        return False
    lists = programs.GIT_LISTS.get(name)
    if lists is not None:
        reads = _git_lists(name, rest, lists)
    else:
        reads = name in programs.GIT_READS and _git_stays_inside((name, *rest), place)
    looks_into = name in ("status", "diff")
    return reads and all(_is_harmless(folder, place, looks_into) for folder in place.here)


def _git_place(words: Sequence[str], place: Place) -> tuple[Place, list[str]] | None:
    """Return where git runs, and its words from the command on; None: other options stand
    before."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-C" and rest:
            folders = tuple(os.path.join(folder, rest[0]) for folder in place.here)
            if not place.holds(rest.pop(0)):
                return None
            place = place.at(folders)
        elif option not in ("--no-pager", "-P", "--no-optional-locks"):
            return None
    return (place, rest) if rest else None


def _git_lists(name: str, words: Sequence[str], lists: frozenset[str]) -> bool:
    if name in ("branch", "tag") and words[:1] in (["--list"], ["-l"]):
        return all(word in lists or not word.startswith("-") for word in words)
    if name == "stash" and not words:
        return False  # stashes
    return all(word in lists for word in words)


def _git_stays_inside(words: Sequence[str], place: Place) -> bool:
    """Whether a command of git writes no other file, runs no other program, names no other
    place."""
    if not words or words[0].startswith("-"):
        return False
    flags = f"{programs.GIT_ASKED} {programs.GIT_READS.get(words[0], '')}"
    signed = any("%G" in word or "(signature" in word for word in words)
    plain = not signed and _has_harmless_options(words, flags)
    texts = words[0] == "grep" and not any(_is_asked(word, ("-e",)) for word in words)
    paths = [word for word in words[1:] if not word.startswith(("--format=", "--pretty="))]
    pattern = next((word for word in paths if not word.startswith("-")), "") if texts else ""
    messages = _messages(words) if words[0] == "commit" else set[str]()
    judged = (word for word in paths if word not in messages and word != pattern)
    return plain and all(place.holds(word) and place.holds(_value(word)) for word in judged)


def _messages(words: Sequence[str]) -> set[str]:
    """Return the messages of a commit."""
    return {text for flag, text in zip(words, words[1:], strict=False) if flag in ("-m", "-am")}


def _is_harmless(folder: str, place: Place, looks_into: bool) -> bool:
    """Whether a repository names no programs, neither itself nor, if git looks into them, by
    submodules."""
    environ = place.project.environ
    if any(name in environ for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR")):
        return False  # another repository
    git = Git(folder, environ)
    try:
        own = (one.name for one in git.settings() if one.scope in ("local", "worktree"))
        known = compiled("|".join(programs.GIT_HARMLESS_SETTINGS))
        if not all(known.fullmatch(name) for name in own):
            return False
        hooks = git.common_dir / "hooks"
        if os.path.lexists(hooks / HOOK) or not _is_plain_folder(hooks):
            return False
        return not looks_into or not git.has_submodules()
    except GitError:
        return False


def _is_plain_folder(hooks: Path) -> bool:
    return not os.path.lexists(hooks) or (hooks.is_dir() and not hooks.is_symlink())
