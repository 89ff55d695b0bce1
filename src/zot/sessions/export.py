"""Sessions out of the library and into it: portable files, JSON, Markdown, one HTML page."""

from __future__ import annotations

import os
import re
import time
from typing import Literal, assert_never

import msgspec

from zot.core.session import Entry, Session, Title
from zot.errors import SessionError
from zot.files import write_atomic
from zot.pi import format as pi
from zot.sessions import rows
from zot.sessions.export_markdown import to_markdown
from zot.sessions.files import Loaded, load
from zot.sessions.library import describe, lines_of, new_meta, write_session
from zot.sessions.open import automatic_path

ExportFormat = Literal["zotsession", "json", "markdown", "html", "pi"]
SUFFIXES: dict[ExportFormat, str] = {
    "zotsession": ".zotsession",
    "json": ".json",
    "markdown": ".md",
    "html": ".html",
    "pi": ".jsonl",
}
SLUG = 40
"""Characters of the title in a file's name."""


def format_of(path: str) -> ExportFormat:
    """What a file's name asks for."""
    endings = {suffix: format for format, suffix in SUFFIXES.items()} | {".htm": "html"}
    found = next((format for suffix, format in endings.items() if path.endswith(suffix)), None)
    return found or "zotsession"


def render(path: str, format: ExportFormat) -> bytes:
    """A session in a format.

    Raises:
        SessionError: it cannot be read.
    """
    return render_loaded(path, load(path), format)


def render_loaded(path: str, loaded: Loaded, format: ExportFormat) -> bytes:
    """The same, of a session that was read already."""
    match format:
        case "zotsession":
            return portable(loaded)
        case "json":
            return as_json(path, loaded)
        case "markdown":
            return to_markdown(loaded, describe(path, loaded)).encode()
        case "html":
            from zot.sessions.export_html import to_html  # its libraries are large

            return to_html(loaded, describe(path, loaded)).encode()
        case "pi":
            return b"".join(pi.encode_all(loaded.meta, [*loaded.entries.values()]))
        case _:
            assert_never(format)


def export(path: str, target: str, format: ExportFormat) -> str:
    """Write a session to a file (or into a directory, under a name of its own); its path.

    Raises:
        SessionError: it cannot be read or written.
    """
    return export_loaded(path, load(path), target, format)


def export_loaded(path: str, loaded: Loaded, target: str, format: ExportFormat) -> str:
    """The same, of a session that was read already."""
    data = render_loaded(path, loaded, format)
    if os.path.isdir(target):
        target = os.path.join(target, file_name(path, loaded, format))
    elif format == "zotsession" and not target.endswith(SUFFIXES[format]):
        target += SUFFIXES[format]
    try:
        write_atomic(target, data)
    except OSError as error:
        raise SessionError(f"cannot write {target!r}: {error.strerror or error}") from error
    return target


def file_name(path: str, loaded: Loaded, format: ExportFormat) -> str:
    """`<started>-<id8>-<what it is about>` with the format's ending."""
    summary = describe(path, loaded)
    started = time.strftime("%Y%m%d-%H%M%S", time.gmtime(rows.unix(summary.started)))
    words = re.sub(r"[^a-z0-9]+", "-", (summary.title or summary.first_text).lower()).strip("-")
    parts = [started, summary.id[-8:], words[:SLUG].strip("-")]
    return "-".join(part for part in parts if part) + SUFFIXES[format]


def portable(loaded: Loaded) -> bytes:
    """The session without the place it was made in: for another machine or another person."""
    meta = msgspec.structs.replace(loaded.meta, cwd="")
    return b"".join(lines_of(meta, [*loaded.entries.values()]))


def as_json(path: str, loaded: Loaded) -> bytes:
    """One object: what a list shows of it, and the messages of its current branch."""
    session = Session(entries=loaded.entries.values())
    messages = [
        {"id": id, **msgspec.to_builtins(rows.message_row(message))}
        for id, message in session.context()
    ]
    value = {"session": describe(path, loaded), "messages": messages}
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def import_file(path: str, cwd: str) -> str:
    """Take a session file of any known format into the library of a directory; its new path.

    Raises:
        SessionError: it is no session, or cannot be written.
    """
    if os.path.exists(path) and not os.path.getsize(path):
        raise SessionError(f"import: session file is empty ({path!r})")
    loaded = load(path)
    if not loaded.entries:
        raise SessionError(f"import: there is nothing in {path!r}")
    meta = new_meta(cwd, loaded.meta)
    target = automatic_path(cwd, meta.id, time.time())
    # A name belongs to the session it was given to.
    entries = [entry for entry in loaded.entries.values() if not isinstance(entry.body, Title)]
    write_session(target, meta, relinked(entries, loaded), "zot")
    return target


def relinked(entries: list[Entry], loaded: Loaded) -> list[Entry]:
    """The entries, where those that were left out are no longer anybody's parent."""
    left = {entry.id for entry in entries}
    linked = []
    for entry in entries:
        parent = entry.parent
        while parent is not None and parent not in left:
            parent = loaded.entries[parent].parent
        linked.append(msgspec.structs.replace(entry, parent=parent))
    return linked
