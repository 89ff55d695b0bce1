"""`zot sessions`: list, show, search, rename, fork, export, import and remove sessions. `--resume`:
choose one. Prints only.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from zot.bugs import complain
from zot.cli.output import YES, Subcommands, agreed, arg, asked, flag, json_flag, say, say_either
from zot.core.session import (
    Compaction,
    Entry,
    Label,
    ModelChange,
    Session,
    SessionInfo,
    Title,
    UsageNote,
)
from zot.errors import SessionError, UsageError
from zot.home import home_dir, of_process
from zot.provider.types import Message, ToolCall
from zot.sessions import library
from zot.sessions.export import SUFFIXES, export, format_of, import_file, render
from zot.sessions.files import load
from zot.sessions.library import texts_of
from zot.settings.options import Options
from zot.settings.resolve import working_directory
from zot.text import printable

UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "mo": 30 * 86400, "y": 365 * 86400}
SHOWN = 20
"""Maximum sessions to choose from."""
WIDTH = 70
"""Maximum characters of a text in a list."""


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("sessions", "Stored conversations.")
    where = (
        arg("--cwd", default="", help="sessions of this directory (default: here)"),
        flag("--all", help="sessions of all directories"),
    )
    one = (*where, arg("session", help="a path, the beginning or end of an id, or `latest`"))
    add = actions.add
    # fmt: off
    add("list", _list, "list sessions, latest first", *where, json_flag())
    add("show", _show, "print a conversation", *one, json_flag("print one JSON object"))
    add("search", _search, "find a text in messages and tool output", *where, arg("text"),
        json_flag())
    add("rename", _rename, "set a session's title", *one, arg("title", nargs="+"))
    add("fork", _fork, "copy a session, to continue it differently", *one,
        arg("--at", default="", help="up to this entry (see tree), or N messages"))
    add("tree", _tree, "list a session's entries with ids and branches", *one)
    add("export", _export, "write a session to a file", *one,
        arg("target", nargs="?", default="", help="a file or directory (default: here)"),
        arg("--format", choices=list(SUFFIXES), help="default: by the suffix of the file"))
    add("import", _import, "add a session file to this directory's sessions", *where, arg("file"))
    add("remove", _remove, "delete a session and its stored file contents", *one, YES,
        aliases=("rm", "delete"))
    add("prune", _prune, "delete empty sessions, and old ones if asked", *where, YES,
        arg("--older-than", default="", help="also sessions unused for 30d, 6mo, 1y ..."),
        flag("--dry-run", help="only list them"))
    # fmt: on
    return actions.run(argv[1:])


def _here(arguments: argparse.Namespace) -> str:
    return os.path.abspath(arguments.cwd or os.curdir)


def _scope(arguments: argparse.Namespace) -> str | None:
    return None if arguments.all else _here(arguments)


def _path(arguments: argparse.Namespace) -> str:
    return library.find(arguments.session, _scope(arguments), home_dir(os.environ))


# --- looking ---------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> None:
    empty = True
    for summary in library.summaries(_scope(arguments), home_dir(os.environ)):
        empty = False
        say_either(arguments, summary, printable(_line(summary, with_cwd=arguments.all)))
    if empty and not arguments.json:
        complain("no sessions here; --all shows those of all directories")


def _line(summary: SessionInfo, *, with_cwd: bool) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.modified))
    text = summary.title or summary.first_text
    cost = f"${summary.cost:.2f}" if summary.cost else ""
    line = f"{summary.id[-8:]}  {when}  {summary.messages:4} msgs  {cost:>7}  {_short(text)}"
    return f"{line}  [{summary.cwd}]" if with_cwd else line


def _short(text: str, width: int = WIDTH) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def _show(arguments: argparse.Namespace) -> None:
    text = render(_path(arguments), "json" if arguments.json else "markdown").decode()
    say((text if arguments.json else printable(text)).removesuffix("\n"))


def _search(arguments: argparse.Namespace) -> int:
    code = 1
    for hit in library.search(arguments.text, _scope(arguments), home_dir(os.environ)):
        code = 0
        text = f"{hit.summary.id[-8:]}  {hit.entry}  {hit.role:9}  {_short(hit.text, 140)}"
        say_either(arguments, hit, printable(text))
    if code and not arguments.json:
        complain(f"{arguments.text!r} was not found here; --all searches all directories")
    return code


def _tree(arguments: argparse.Namespace) -> None:
    loaded = load(_path(arguments))
    session = Session(entries=loaded.entries.values())
    current = {entry.id for entry in session.path()} if loaded.entries else set()
    children: dict[str | None, list[Entry]] = {}
    for entry in loaded.entries.values():
        children.setdefault(entry.parent, []).append(entry)
    # An explicit stack: a session may be deeper than Python's recursion limit.
    waiting = [(entry, 0) for entry in reversed(children.get(None, []))]
    while waiting:
        entry, depth = waiting.pop()
        mark = "*" if entry.id in current else " "
        say(printable(f"{entry.id} {mark} {'  ' * depth}{_about(entry)}"))
        below = children.get(entry.id, [])
        deeper = depth + (len(below) > 1)
        waiting += [(child, deeper) for child in reversed(below)]


def _about(entry: Entry) -> str:
    match entry.body:
        case Message() as message:
            calls = [block.name for block in message.content if isinstance(block, ToolCall)]
            text = next(iter(texts_of(message)), "")
            return f"{message.role}: {_short(text, 60)}" + (
                f" [{', '.join(calls)}]" if calls else ""
            )
        case Compaction(summary):
            return f"compaction: {_short(summary, 60)}"
        case ModelChange(provider, model):
            return f"model: {provider}/{model}"
        case Title(title):
            return f"title: {_short(title)}"
        case Label(target, label):
            return f"label of {target}: {label or '(removed)'}"
        case UsageNote(usage):
            return f"usage: {usage.input} in, {usage.output} out"
        case other:
            return type(other).__name__.lower()


# --- changing --------------------------------------------------------------------------------


def _rename(arguments: argparse.Namespace) -> None:
    library.rename(_path(arguments), " ".join(arguments.title))


def _fork(arguments: argparse.Namespace) -> None:
    at: str | int | None = arguments.at or None
    if isinstance(at, str) and at.isdigit() and len(at) < 8:
        at = int(at)
    say(library.fork(_path(arguments), at))


def _export(arguments: argparse.Namespace) -> None:
    path = _path(arguments)
    form = arguments.format or format_of(arguments.target)
    if arguments.target == "-":
        say(render(path, form).decode().removesuffix("\n"))
        return
    say(export(path, arguments.target or os.curdir, form))


def _import(arguments: argparse.Namespace) -> None:
    say(import_file(arguments.file, _here(arguments), home_dir(os.environ)))


def _prune(arguments: argparse.Namespace) -> int:
    age = seconds(arguments.older_than) if arguments.older_than else None
    doomed = library.prunable(_scope(arguments), home_dir(os.environ), age)
    for path in doomed:
        say(path)
    if not doomed:
        complain("nothing to remove")
    if not doomed or arguments.dry_run:
        return 0
    what = f"these {len(doomed)} sessions"
    if not (arguments.yes or _agreed(what, "; --dry-run only lists them")):
        return 1
    for path in doomed:
        library.remove(path)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    path = _path(arguments)
    if not (arguments.yes or _agreed(path)):
        return 1
    library.remove(path)
    return 0


def _agreed(what: str, instead: str = "") -> bool:
    if not sys.stdin.isatty():
        raise SessionError(f"there is no terminal to ask at: --yes removes {what}{instead}")
    return agreed(f"remove {what}?")


def seconds(text: str) -> float:
    """Parse a duration such as 30d into seconds.

    Raises:
        SessionError: the text is not a duration.
    """
    length = re.fullmatch(r"(\d{1,6})(m|h|d|w|mo|y)", text)
    if not length:
        raise SessionError(f"--older-than {text!r}: use a number with one of {', '.join(UNITS)}")
    return float(int(length[1]) * UNITS[length[2]])


# --- zot --resume ----------------------------------------------------------------------------


def choose_session(options: Options) -> Options:
    """Return the options with the chosen session.

    Raises:
        SessionError: there is no session, or no terminal to choose at.
        UsageError: the choice is not in the list.
    """
    around = of_process()
    cwd = working_directory(options.cwd, around)
    sessions = list(islice(library.summaries(cwd, around.home), SHOWN))
    if not sessions:
        raise SessionError(f"there is no session of {cwd}; leave out --resume to start one")
    for number, summary in enumerate(sessions, 1):
        sys.stderr.write(f"{number:3}  {_choice_line(summary)}\n")
    if not (os.isatty(0) and os.isatty(2)):
        raise SessionError("choose one of them: --session PATH, or --continue for the first")
    number_text = asked("number (Enter: 1): ") or "1"
    if not number_text.isdigit() or not 1 <= int(number_text) <= len(sessions):
        raise UsageError(f"{number_text!r} is not one of the {len(sessions)} numbers")
    return replace(options, session=sessions[int(number_text) - 1].path)


def _choice_line(summary: SessionInfo) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.modified))
    text = _short(summary.title or summary.first_text, 60)
    return printable(f"{when}  {summary.messages:4} messages  {text}  {summary.path}")
