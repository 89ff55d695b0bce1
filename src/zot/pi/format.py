"""pi's session format (version 3; 1 and 2 are read) as another writing of the same session.

Entries to rows and back; opens no file. pi has one row for each tool result where ours has one
message for all of a turn, and starts a new root where ours notes that the conversation was
cleared: that is why the encoder has memory.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec
from msgspec import UNSET

from zot.core.session import (
    Body,
    Cleared,
    Compaction,
    Custom,
    Entry,
    Label,
    LevelChange,
    ModelChange,
    Replaced,
    ResultNote,
    Title,
    UsageNote,
)
from zot.pi.messages import (
    NotAMessage,
    from_pi,
    result_to_pi,
    to_pi,
    usage_from_pi,
    usage_to_pi,
)
from zot.provider.types import Json, Level, Message, ToolResult
from zot.sessions.jsonl import BadRow, decode_object
from zot.sessions.rows import Meta, rfc3339, unix
from zot.text import encode_json

VERSION = 3

_LEVELS: dict[Level, str] = {"minimum": "minimal", "max": "xhigh"}
_FROM_LEVELS: dict[str, Level] = {
    "off": "off",
    "minimal": "minimum",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
}
_OWN_ROWS = ("message", "branch_summary", "custom", "custom_message", "usage", "context_edit")
"""Rows of pi's that ours has no word for; kept verbatim."""


# --- writing ---------------------------------------------------------------------------------


def header(meta: Meta, parent_path: str = "") -> bytes:
    row = {
        "type": "session",
        "version": VERSION,
        "id": meta.id,
        "timestamp": _milliseconds(meta.started),
        "cwd": meta.cwd,
    }
    return _line({**row, "parentSession": parent_path} if parent_path else row)


class Encoder:
    """Rows for the entries of one session, in order."""

    def __init__(self) -> None:
        self._first: dict[str, str | None] = {}
        """The first row an entry became; None: a new root."""
        self._last: dict[str, str | None] = {}
        """The row that the children of an entry hang on."""
        self._noted: dict[str, str] = {}
        """Results that are already written, by call, with the row's id."""

    def encode(self, entry: Entry) -> bytes:
        """The rows of an entry, each with its line feed; perhaps none."""
        parent = None if entry.parent is None else self._last.get(entry.parent, entry.parent)
        values = self._values(entry)
        rows = []
        at = None if isinstance(entry.body, Cleared | Replaced) else parent
        first: str | None = None
        for position, value in enumerate(values):
            last = position == len(values) - 1
            id = entry.id if last else _derived(entry.id, position)
            stamp = _milliseconds(rfc3339(entry.time))
            rows.append(_line({**value, "id": id, "parentId": at, "timestamp": stamp}))
            at = id
            first = first or id
        self._first[entry.id] = first or at
        self._last[entry.id] = at
        return b"".join(rows)

    def row_of(self, entry_id: str) -> str | None:
        """The row that stands for an entry that was encoded."""
        return self._last.get(entry_id, entry_id)

    def _values(self, entry: Entry) -> list[dict[str, Json]]:
        match entry.body:
            case Message():
                return [{"type": "message", "message": each} for each in self._messages(entry.body)]
            case ResultNote(result):
                self._noted[result.call_id] = entry.id
                value = result_to_pi(result, round(entry.time * 1000))
                return [{"type": "message", "message": value}]
            case Replaced(messages):
                objects = [each for message in messages for each in to_pi(message)]
                return [{"type": "message", "message": each} for each in objects]
            case Compaction():
                return [self._compaction(entry.body, entry.id)]
            case ModelChange(provider, model):
                return [{"type": "model_change", "provider": provider, "modelId": model}]
            case LevelChange(level):
                word = _LEVELS.get(level, level)
                return [{"type": "thinking_level_change", "thinkingLevel": word}]
            case Title(title):
                return [{"type": "session_info", "name": title}]
            case Label(target, label):
                at = self._last.get(target, target)
                return [{"type": "label", "targetId": at, **({"label": label} if label else {})}]
            case Custom(kind, data):
                return [_custom(kind, data)]
            case UsageNote() | Cleared():
                return []
            case _:
                assert_never(entry.body)

    def _messages(self, message: Message) -> list[dict[str, Json]]:
        if message.role != "tool":
            self._noted.clear()
            return to_pi(message)
        fresh = [
            block
            for block in message.content
            if isinstance(block, ToolResult) and block.call_id not in self._noted
        ]
        return to_pi(msgspec.structs.replace(message, content=tuple(fresh)))

    def _compaction(self, body: Compaction, id: str) -> dict[str, Json]:
        # Nothing kept: pi wants the row's own id there, which no row before it has.
        kept = body.first_kept or id
        row: dict[str, Json] = {
            "type": "compaction",
            "summary": body.summary,
            "firstKeptEntryId": self._first.get(kept) or kept,
            "tokensBefore": body.tokens_before,
        }
        if body.details is not None:
            row["details"] = body.details
        if body.usage is not None:
            row["usage"] = usage_to_pi(body.usage)
        return row


def encode_all(meta: Meta, entries: Iterable[Entry]) -> Iterable[bytes]:
    """The lines of a whole file."""
    encoder = Encoder()
    yield header(meta, meta.parent or "")
    for entry in entries:
        if rows := encoder.encode(entry):
            yield rows


def _custom(kind: str, data: dict[str, Json]) -> dict[str, Json]:
    if kind in _OWN_ROWS:
        return {"type": kind, **data}
    return {"type": "custom", "customType": kind, "data": data}


def _derived(id: str, position: int) -> str:
    return f"{binascii.crc32(f'{id}/{position}'.encode()):08x}"


def _line(value: Json) -> bytes:
    return encode_json(value) + b"\n"


def _milliseconds(time: str) -> str:
    """pi's clock: RFC 3339 with three digits."""
    head, dot, rest = time.rstrip("Z").partition(".")
    return f"{head}.{(rest if dot else '').ljust(3, '0')[:3]}Z"


# --- reading ---------------------------------------------------------------------------------


class PiTranscript:
    """What the lines of a pi file add up to. Feed them in order, then ask for `entries()`."""

    def __init__(self) -> None:
        self.meta: Meta | None = None
        self.version = VERSION
        self.bad: list[tuple[int, str]] = []
        self._entries: dict[str, Entry] = {}
        self._lines: dict[int, str] = {}
        """Line numbers to ids, for the first version, which counts lines."""
        self._last: str | None = None

    def feed(self, line: bytes, number: int) -> bool:
        """Take one line; False if it is no row."""
        try:
            row = decode_object(line)
            if row["type"] == "session":
                self._header(row)
            else:
                self._take(row, number)
        except (BadRow, NotAMessage) as error:
            self.bad.append((number, str(error)))
            return False
        return True

    def entries(self) -> Mapping[str, Entry]:
        """All entries; results of one turn that pi has in rows of their own are put together."""
        return _merged(self._entries)

    def _header(self, row: dict[str, Json]) -> None:
        self.version = row.get("version", 1) if isinstance(row.get("version", 1), int) else 1
        self.meta = Meta(
            id=_text(row, "id"),
            cwd=_text(row, "cwd"),
            model=_text(row, "modelId"),
            provider=_text(row, "provider"),
            started=_text(row, "timestamp"),
            parent=_text(row, "parentSession") or UNSET,
        )

    def _take(self, row: dict[str, Json], number: int) -> None:
        id = _text(row, "id") or f"{number:08x}"
        while id in self._entries:
            id = f"{(int(id, 16) if _is_hex(id) else 0) + 0x1000_0000:08x}"
        parent = row.get("parentId", self._last)
        if parent is not None and (not isinstance(parent, str) or parent not in self._entries):
            parent = self._last  # its row was lost; the conversation goes on
        body = self._body(row)
        stamp = row.get("timestamp")
        time = unix(stamp) if isinstance(stamp, str) else 0.0
        if not time and isinstance(body, Message):
            time = body.time
        self._entries[id] = Entry(id, parent, time, body)
        self._lines[number] = id
        self._last = id

    def _body(self, row: dict[str, Json]) -> Body:
        match row["type"]:
            case "message":
                return from_pi(row.get("message")) or Custom("message", _rest(row))
            case "model_change":
                return ModelChange(_text(row, "provider"), _text(row, "modelId"))
            case "thinking_level_change":
                return LevelChange(_FROM_LEVELS.get(_text(row, "thinkingLevel"), "off"))
            case "compaction":
                return self._compaction(row)
            case "session_info":
                return Title(_text(row, "name"))
            case "label":
                return Label(_text(row, "targetId"), _text(row, "label") or None)
            case "branch_summary" | "custom_message":
                return _for_the_model(row)
            case kind:
                return Custom(kind, _rest(row))

    def _compaction(self, row: dict[str, Json]) -> Compaction:
        kept = row.get("firstKeptEntryId")
        index = row.get("firstKeptEntryIndex")
        if isinstance(index, int):
            # Counts lines from 0, the header among them; ours are counted from 1.
            later = [id for number, id in self._lines.items() if number >= index + 1]
            kept = later[0] if later else None
        details, usage, tokens = row.get("details"), row.get("usage"), row.get("tokensBefore")
        return Compaction(
            summary=_text(row, "summary"),
            first_kept=kept if isinstance(kept, str) and kept != row.get("id") else None,
            tokens_before=int(tokens) if isinstance(tokens, int | float) else 0,
            usage=usage_from_pi(usage) if isinstance(usage, dict) else None,
            details=details if isinstance(details, dict) else None,
        )


def _for_the_model(row: dict[str, Json]) -> Body:
    """Rows that the model reads as a message of the user."""
    role = "branchSummary" if row["type"] == "branch_summary" else "custom"
    return from_pi({**_rest(row), "role": role}) or Custom(row["type"], _rest(row))


def _merged(entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
    children: dict[str | None, int] = {}
    for entry in entries.values():
        children[entry.parent] = children.get(entry.parent, 0) + 1
    merged: dict[str, Entry] = {}
    moved: dict[str, str] = {}
    for entry in entries.values():
        before = merged.get(entry.parent) if entry.parent else None
        if before and _are_results(before, entry) and children[entry.parent] == 1:
            del merged[before.id]
            moved[before.id] = entry.id
            entry = _joined(before, entry)
        merged[entry.id] = _pointing(entry, moved) if moved else entry
    return merged


def _joined(before: Entry, entry: Entry) -> Entry:
    assert isinstance(before.body, Message)
    assert isinstance(entry.body, Message)
    content = (*before.body.content, *entry.body.content)
    body = msgspec.structs.replace(entry.body, content=content)
    return msgspec.structs.replace(entry, parent=before.parent, body=body)


def _pointing(entry: Entry, moved: Mapping[str, str]) -> Entry:
    """The entry, with what it points to under its new id."""
    body = entry.body
    if isinstance(body, Compaction) and body.first_kept is not None:
        body = msgspec.structs.replace(body, first_kept=_end(body.first_kept, moved))
    elif isinstance(body, Label):
        body = msgspec.structs.replace(body, target=_end(body.target, moved))
    return msgspec.structs.replace(entry, body=body)


def _end(id: str, moved: Mapping[str, str]) -> str:
    while id in moved:
        id = moved[id]
    return id


def _are_results(before: Entry, entry: Entry) -> bool:
    return all(
        isinstance(each.body, Message) and each.body.role == "tool" for each in (before, entry)
    )


def _rest(row: dict[str, Json]) -> dict[str, Json]:
    outside = ("type", "id", "parentId", "timestamp")
    return {key: value for key, value in row.items() if key not in outside}


def _text(row: dict[str, Json], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _is_hex(text: str) -> bool:
    return len(text) <= 8 and all(letter in "0123456789abcdef" for letter in text)
