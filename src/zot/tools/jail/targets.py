"""Finds ordinary files of a jail's directory that obeyed things lead to: the target of a symlink,
and the hooks, included settings and programs that a repository's configuration names.

A command could write there what `.git` or `.claude` protects under another name. So these paths
count as obeyed, too (obeyed.py: Survey). Reads only; git runs no program for it (zot.git).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from zot.beneath import FOLDER, LOOK, is_below, open_real
from zot.errors import ToolError
from zot.git import Git, GitError, Setting
from zot.home import expand_user
from zot.tools.jail.obeyed import OBEYED, Look, Survey, Thing

MAX_LOOKED_AT = 10_000
"""Entries of one obeyed directory that are searched for symlinks."""
ROUNDS = 3
"""Times that what was found is searched in turn."""
IN_GIT = ("hooks", "config", "config.worktree")
"""Parts of a git directory that git obeys; the rest is data."""
NAMES_A_PATH = re.compile(rb"(?i)path|filter|command|fsmonitor|driver|textconv|program|helper|dir")
"""Words without which the configuration of a nested repository is not read."""
_FOLDERS = ("core.hookspath", "init.templatedir")
_INCLUDES = re.compile(r"include(if\..*)?\.path", re.DOTALL)
_PROGRAMS = re.compile(
    r"core\.(fsmonitor|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand)"
    r"|sequence\.editor|filter\..*\.(clean|smudge|process)|diff\.external"
    r"|diff\..*\.(command|textconv)|merge\..*\.driver|gpg\.(.*\.)?(program|defaultkeycommand)"
    r"|credential\.(.*\.)?helper",
    re.DOTALL,
)

Stamp = tuple[tuple[str, int, int], ...]
"""Paths, inodes and times of the files that settings came from."""


class Targets:
    """The paths in one jail's root that count as obeyed beside those with an obeyed name."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self._root = root
        self._environ = environ
        self._settings: dict[str, tuple[Stamp, list[Setting]]] = {}

    def look(self, survey: Survey) -> Look:
        """Search the tree with all that is obeyed there now. Raises ToolError: something that is
        obeyed holds the root, or leads to it."""
        above = [*self._above(), *self._named_by_git(_top_of(self._root))]
        look = survey.look()
        for _ in range(ROUNDS):
            found = {*above, *self._behind(look.things.values())}
            if not survey.obey({self._below(path) for path in found} - {""}):
                break
            look = survey.look()
        return look

    def _below(self, target: str) -> str:
        """Return the path below the root; "" if it lies outside. Raises ToolError."""
        if is_below(self._root, target):
            raise ToolError(
                f"jailed: git or another program runs or obeys what is in {target!r}, because a"
                f" setting or a symlink leads there, and it holds {self._root!r}; nothing runs or"
                " is written. Change that setting, or run zot without --jail"
            )
        return os.path.relpath(target, self._root) if is_below(target, self._root) else ""

    # --- symlinks ----------------------------------------------------------------------------

    def _above(self) -> Iterator[str]:
        """Yield what obeyed names in the directories above lead to; within the work tree also by
        symlinks in such directories."""
        yield from (target for _, target in links_above(self._root))
        top, folder = _top_of(self._root), os.path.dirname(self._root)
        while top and is_below(folder, top):
            for name in OBEYED:
                path = os.path.join(folder, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    yield from self._targets_in(path)
            folder = os.path.dirname(folder)

    def _behind(self, things: Iterable[Thing]) -> Iterator[str]:
        """Yield what obeyed things and the symlinks in them lead to, and the settings of nested
        repositories."""
        for thing in things:
            path = os.path.join(self._root, thing.path)
            folder, name = os.path.split(path)
            if name == "HEAD":
                yield from self._targets_in(folder)
            elif thing.is_link:
                yield from self._behind_link(path)
            elif os.path.isdir(path):
                yield from self._targets_in(path)
            if name == ".git" and folder != self._root and _names_a_path(path):
                yield from self._named_by_git(folder)

    def _behind_link(self, link: str) -> Iterator[str]:
        target = os.path.realpath(link)
        if not is_below(target, self._root):
            return  # a command cannot write there
        if is_below(link, target):
            raise ToolError(
                f"jailed: {link!r} is a symlink that other programs obey, and {target!r} cannot be"
                " protected: it holds the link; nothing runs or is written. Remove the link, or"
                " run zot without --jail"
            )
        yield target

    def _targets_in(self, folder: str) -> Iterator[str]:
        is_git = os.path.basename(folder) == ".git" or os.path.exists(os.path.join(folder, "HEAD"))
        places = [os.path.join(folder, name) for name in IN_GIT] if is_git else [folder]
        links = (link for place in places for link in _links(place))
        for link in links:
            target = os.path.realpath(link)
            # One that leads to the whole project cannot be covered.
            if not is_below(target, folder) and not is_below(folder, target):
                yield target

    # --- git ---------------------------------------------------------------------------------

    def _named_by_git(self, folder: str) -> Iterator[str]:
        """Yield the paths that the settings of a work tree name, as far as git obeys them."""
        if not folder:
            return
        for setting in self._read(folder):
            for path in _paths_of(setting, folder, self._environ):
                yield os.path.realpath(path)

    def _read(self, folder: str) -> list[Setting]:
        stamp, settings = self._settings.get(folder, ((), []))
        if not stamp or stamp != _stamp(path for path, *_ in stamp):
            try:
                settings = Git(folder, self._environ).settings()
            except GitError:
                settings = []  # without git nothing obeys its settings
            files = {_file_of(setting, folder) for setting in settings}
            usual = (".git/config", ".git/config.worktree", "~/.gitconfig", "~/.config/git/config")
            files |= {_absolute(name, folder, self._environ) for name in usual}
            self._settings[folder] = _stamp(sorted(files)), settings
        return settings


def led_to(root: str, environ: Mapping[str, str]) -> set[str]:
    """Return the paths to which obeyed things in a tree lead. Raises OSError, ToolError."""
    folder = open_real(root, LOOK | FOLDER)
    try:
        look = Targets(root, environ).look(Survey(root, folder))
    finally:
        os.close(folder)
    return {os.path.join(root, path) for path in look.obeyed}


def links_above(root: str) -> Iterator[tuple[str, str]]:
    """Yield each obeyed name in a directory above that is a symlink, and where it leads."""
    folder = root
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        for name in OBEYED:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                yield path, os.path.realpath(path)


def _links(place: str) -> Iterator[str]:
    """Yield the symlinks at a place or below it."""
    if os.path.islink(place):
        yield place
        return
    waiting, seen = [place], 0
    while waiting and seen < MAX_LOOKED_AT:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_symlink():
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue  # no directory, or it cannot be listed and is covered as it is


def _top_of(folder: str) -> str:
    """Return the nearest directory, from this one upwards, with a `.git`; "" if there is none."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
    return folder


def _names_a_path(git_dir: str) -> bool:
    try:
        with open(os.path.join(git_dir, "config"), "rb") as file:
            return bool(NAMES_A_PATH.search(file.read(1 << 20)))
    except OSError:
        return os.path.isfile(git_dir)  # of a linked work tree: its settings lie elsewhere


def _paths_of(setting: Setting, folder: str, environ: Mapping[str, str]) -> Iterator[str]:
    if setting.name in _FOLDERS and setting.value:
        yield _absolute(setting.value, folder, environ)
    elif _INCLUDES.fullmatch(setting.name):
        beside = os.path.dirname(_file_of(setting, folder))
        yield _absolute(setting.value, beside, environ)
    elif _PROGRAMS.fullmatch(setting.name):
        for number, word in enumerate(_words(setting.value)):
            path = _absolute(word, folder, environ)
            if ("/" in word or number) and os.path.isfile(path):
                yield path


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command.removeprefix("!"))
    except ValueError:
        return command.split()


def _file_of(setting: Setting, folder: str) -> str:
    return os.path.join(folder, setting.origin.removeprefix("file:"))


def _absolute(path: str, folder: str, environ: Mapping[str, str]) -> str:
    return os.path.join(folder, expand_user(path, environ))


def _stamp(files: Iterable[str]) -> Stamp:
    return tuple((path, *_status(path)) for path in files)


def _status(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_ino, status.st_ctime_ns
