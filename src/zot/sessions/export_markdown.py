"""Renders a session as Markdown that also reads well as plain text. Writes no file."""

from __future__ import annotations

import re
from typing import assert_never

import msgspec

from zot.core.session import Session, SessionInfo
from zot.provider.types import Block, Image, Message, Reasoning, Text, ToolCall, ToolResult
from zot.sessions.files import Loaded

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
