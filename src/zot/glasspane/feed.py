"""Events for the browser: facts of one agent from a position in its log on. Small consecutive
pieces of text are joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from zot.observe.facts import Fact, TextAdded, ThoughtAdded, ToolArgsAdded, ToolSaid, UsedTokens
from zot.observe.tables import facts_of
from zot.swarm.log import read_log
from zot.swarm.rows import LogRow

BATCH_BYTES = 512 * 1024
"""Bytes of log per event."""


class FeedItem(Struct, frozen=True):
    """A fact, or a row of the swarm itself."""

    kind: str
    at: float
    data: Any


class FeedBatch(Struct, frozen=True):
    position: int
    """Position to resume from; the id of the event."""
    items: tuple[FeedItem, ...]
    more: bool
    """Whether the log already holds more."""


def next_batch(log: Path, start: int) -> FeedBatch:
    """Return the facts from this position on."""
    items: list[FeedItem] = []
    position = start
    for after, row in read_log(log, start):
        position = after
        for item in _items(row):
            _join(items, item)
        if position - start >= BATCH_BYTES:
            break
    return FeedBatch(position, tuple(items), more=position < _size(log) and position > start)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _items(row: LogRow) -> list[FeedItem]:
    kind = str(row.frame.get("type", ""))
    if kind.startswith("swarm_") or kind in ("run_resumed", "run_held", "run_suspended"):
        return [FeedItem(kind, row.at, row.frame)]
    return [
        FeedItem(type(fact).__name__, row.at, fact)
        for fact in facts_of(row.frame)
        if not isinstance(fact, UsedTokens)  # the board shows the sums
    ]


def _join(items: list[FeedItem], item: FeedItem) -> None:
    """Append the item, or join it with the last one if both are pieces of one text."""
    if items:
        joined = _joined(items[-1].data, item.data)
        if joined is not None:
            items[-1] = FeedItem(item.kind, items[-1].at, joined)
            return
    items.append(item)


def _joined(last: Any, fact: Any) -> Fact | None:
    match last, fact:
        case TextAdded(), TextAdded():
            return TextAdded(last.text + fact.text)
        case ThoughtAdded(), ThoughtAdded():
            return ThoughtAdded(last.text + fact.text)
        case ToolArgsAdded(), ToolArgsAdded() if last.id == fact.id:
            return ToolArgsAdded(fact.id, last.text + fact.text)
        case ToolSaid(), ToolSaid() if last.id == fact.id:
            if fact.whole:
                return fact
            return ToolSaid(fact.id, last.text + fact.text, last.whole)
    return None


def encode_event(name: str, data: Any, id: str = "") -> bytes:
    """Encode a server-sent event. JSON contains no line breaks, so one `data:` line is enough."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
