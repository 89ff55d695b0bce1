"""Exports and imports sessions: portable files, JSON, Markdown, one HTML page."""

from __future__ import annotations

import os
import re
import time
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from zot.core.session import Session, SessionInfo
from zot.errors import SessionError
from zot.files import write_atomic
from zot.formats import format_named
from zot.provider.types import Block, Image, Message, Reasoning, Text, ToolCall, ToolResult
from zot.sessions import rows
from zot.sessions.files import Loaded, load
from zot.sessions.format import lines
from zot.sessions.library import describe, new_meta, write_session
from zot.sessions.open import automatic_path, sessions_dir
from zot.sessions.rows import Meta

ExportFormat = Literal["zotsession", "json", "markdown", "html", "pi"]
SUFFIXES: dict[ExportFormat, str] = {
    "zotsession": ".zotsession",
    "json": ".json",
    "markdown": ".md",
    "html": ".html",
    "pi": ".jsonl",
}
SLUG = 40
"""Maximum characters of the title in a file name."""


def format_of(path: str) -> ExportFormat:
    """Return the format for a file name, by its suffix."""
    endings = {suffix: format for format, suffix in SUFFIXES.items()} | {".htm": "html"}
    named = next((format for suffix, format in endings.items() if path.endswith(suffix)), None)
    return named or "zotsession"


def render(path: str, format: ExportFormat, loaded: Loaded | None = None) -> bytes:
    """Render a session in a format. `loaded`: its content, if already read. Raises SessionError: it
    cannot be read.
    """
    loaded = loaded or load(path)
    match format:
        case "zotsession":
            return _rows(replace(loaded.meta, cwd=""), loaded, "zot")  # for another machine
        case "json":
            return as_json(path, loaded)
        case "markdown":
            return to_markdown(loaded, describe(path, loaded)).encode()
        case "html":
            from zot.sessions import export_html

            return export_html.to_html(loaded, describe(path, loaded)).encode()
        case "pi":
            return _rows(loaded.meta, loaded, "pi")
        case _:
            assert_never(format)


def export(path: str, target: str, format: ExportFormat, loaded: Loaded | None = None) -> str:
    """Write a session to a file (or into a directory, under a generated name); return the path.
    `loaded`: its content, if already read. Raises SessionError: it cannot be read or written.
    """
    loaded = loaded or load(path)
    data = render(path, format, loaded)
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
    """Return `<started>-<id8>-<title>` with the format's suffix."""
    summary = describe(path, loaded)
    started = time.strftime("%Y%m%d-%H%M%S", time.gmtime(rows.unix(summary.started)))
    words = re.sub(r"[^a-z0-9]+", "-", (summary.title or summary.first_text).lower()).strip("-")
    parts = [started, summary.id[-8:], words[:SLUG].strip("-")]
    return "-".join(part for part in parts if part) + SUFFIXES[format]


def _rows(meta: Meta, loaded: Loaded, format: str) -> bytes:
    return b"".join(lines(format_named(format), meta, [*loaded.entries.values()]))


def as_json(path: str, loaded: Loaded) -> bytes:
    """Return one object: the session's summary and the messages of its current branch."""
    session = Session(entries=loaded.entries.values())
    messages = [
        {"id": id, **msgspec.to_builtins(rows.message_row(message))}
        for id, message in session.context()
    ]
    value = {"session": describe(path, loaded), "messages": messages}
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def import_file(path: str, cwd: str, home: str) -> str:
    """Import a session file of any known format into the library of a directory; return its new
    path. Raises SessionError: it is no session, or cannot be written.
    """
    if os.path.exists(path) and not os.path.getsize(path):
        raise SessionError(f"import: session file is empty ({path!r})")
    loaded = load(path)
    if not loaded.entries:
        raise SessionError(f"import: there is nothing in {path!r}")
    meta = new_meta(cwd, loaded.meta)
    target = automatic_path(sessions_dir(cwd, home), meta.id, time.time())
    write_session(target, meta, [*loaded.entries.values()])
    return target


# --- Markdown, which also reads well as plain text --------------------------------------------

_HEADS = {"user": "User", "assistant": "Assistant", "tool": "Tool results"}


def to_markdown(loaded: Loaded, summary: SessionInfo) -> str:
    """Render the current branch of a session."""
    session = Session(entries=loaded.entries.values())
    title = summary.title or summary.first_text or "Session"
    parts = [f"# {' '.join(title.split())}", _facts(summary)]
    parts += [_message(message) for message in session.messages()]
    return "\n\n".join(parts) + "\n"


def _facts(summary: SessionInfo) -> str:
    model = f"{summary.provider}/{summary.model}".strip("/")
    facts = [
        ("Started", summary.started),
        ("Model", model),
        ("Messages", str(summary.messages)),
        ("Cost", f"${summary.cost:.4f}" if summary.cost else ""),
    ]
    return "\n".join(f"- {name}: {value}" for name, value in facts if value)


def _message(message: Message) -> str:
    parts = [f"## {_HEADS[message.role]}", *(_block(block) for block in message.content)]
    if message.origin and message.origin.error:
        parts.append(f"> Failed: {message.origin.error}")
    return "\n\n".join(part for part in parts if part)


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case Image(mime_type, data):
            return f"*[image, {mime_type}, {len(data)} bytes]*"
        case ToolCall(_, name, args, raw):
            shown = raw if args is None else msgspec.json.format(msgspec.json.encode(args)).decode()
            return f"**{name}**\n\n{fenced(shown, 'json')}"
        case ToolResult():
            inner = "\n".join(
                part.text if isinstance(part, Text) else _block(part) for part in block.content
            )
            head = f"**{block.name or block.call_id}**" + (" (failed)" if block.is_error else "")
            return f"{head}\n\n{fenced(inner)}"
        case Reasoning(text):
            return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
        case _:
            assert_never(block)


def fenced(text: str, language: str = "") -> str:
    """Return a code block with a fence longer than any inside it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
