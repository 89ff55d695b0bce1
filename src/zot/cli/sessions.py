"""`zot sessions`: list, show, search, rename, fork, tree, export, import,
remove, prune. Prints only."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence

from zot.bugs import complain
from zot.cli.output import A_LINE, PlainParser, Subcommands, agreed, say, say_either
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
from zot.errors import SessionError
from zot.home import home_dir
from zot.provider.types import Message, ToolCall
from zot.sessions import library
from zot.sessions.export import SUFFIXES, export, format_of, import_file, render
from zot.sessions.files import load
from zot.sessions.library import texts_of
from zot.text import printable

UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "mo": 30 * 86400, "y": 365 * 86400}
WIDTH = 70
"""Maximum characters of a text in a list."""


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("sessions", "What was said before, and what to do with it.")
    where = PlainParser(add_help=False)
    where.add_argument("--cwd", default="", help="sessions of this directory (default: here)")
    where.add_argument("--all", action="store_true", help="sessions of all directories")
    one = PlainParser(add_help=False, parents=[where])
    one.add_argument("session", help="a path, the beginning or end of an id, or `latest`")

    actions.add("list", _list, "sessions, latest first", json=A_LINE, parents=[where])
    actions.add("show", _show, "the conversation as text", json="as one object", parents=[one])
    search = actions.add(
        "search", _search, "where a text was said or printed", json=A_LINE, parents=[where]
    )
    search.add_argument("text")
    rename = actions.add("rename", _rename, "give a session a name", parents=[one])
    rename.add_argument("title", nargs="+")
    fork = actions.add("fork", _fork, "copy a session, to go another way", parents=[one])
    fork.add_argument("--at", default="", help="up to this entry (see tree), or N messages")
    actions.add(
        "tree", _tree, "the entries of a session with their ids and branches", parents=[one]
    )
    out = actions.add("export", _export, "write a session to a file", parents=[one])
    out.add_argument("target", nargs="?", default="", help="a file or directory (default: here)")
    out.add_argument("--format", choices=list(SUFFIXES), help="default: what the file's name says")
    text = "take a session file into this directory's sessions"
    actions.add("import", _import, text, parents=[where]).add_argument("file")
    text = "delete a session, and what it kept of files"
    gone = actions.add("remove", _remove, text, "rm", "delete", parents=[one])
    text = "remove empty sessions, and old ones if asked"
    prune = actions.add("prune", _prune, text, parents=[where])
    prune.add_argument("--older-than", default="", help="also those not used for 30d, 6mo, 1y ...")
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")
    for action in (gone, prune):
        action.add_argument("--yes", action="store_true", help="do not ask")
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
        complain(f"{arguments.text!r} was not said here; --all searches all directories")
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
        raise SessionError(f"--yes removes {what}{instead}")
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
