"""pi's session format (version 3; 1 and 2 are read) as another encoding of a session.

Converts entries to rows and back; opens no file. pi has a row per tool result where zot has one
message per turn, and starts a new root where zot records that the conversation was cleared: that is
why the encoder is stateful.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import assert_never

import msgspec
from msgspec import UNSET

from zot.core import session as entries
from zot.core.session import Body, Compaction, Entry, Session
from zot.lines import encode_line
from zot.pi.messages import (
    WORD_LEVELS,
    PiMessage,
    from_pi,
    level_word,
    result_to_pi,
    to_pi,
    usage_from_pi,
    usage_to_pi,
)
from zot.provider.types import Json, Message, ToolResult
from zot.sessions.format import Format, SessionReader, decode_object
from zot.sessions.rows import Meta, rfc3339, unix

VERSION = 3

_HEAD = b'{"type":"session","version":3,'
_ANY_HEAD = re.compile(rb'\{\s*"type"\s*:\s*"session"')
_OWN_ROWS = (
    "message",
    "branch_summary",
    "custom",
    "custom_message",
    "usage",
    "context_edit",
    "thinking_level_change",
)
"""pi's rows without an equivalent in zot; stored verbatim."""


# --- writing ---------------------------------------------------------------------------------


class PiWriter:
    """A Writer that encodes the entries of one session, in order."""

    def __init__(self, meta: Meta, last: str | None = None) -> None:
        self._meta = meta
        self.last = last
        self._root: str | None = None
        """Parent of the first entries: the last of the rows for data that zot has in its header."""
        self._first: dict[str, str] = {}
        """Id of the first row of each message."""
        self._last: dict[str, str | None] = {}
        """Parent row for the children of an entry."""
        self._noted: dict[str, str] = {}
        """Row ids of results that are already written, by call."""

    def head(self) -> bytes:
        meta, self._root = self._meta, None
        row = {
            "type": "session",
            "version": VERSION,
            "id": meta.id,
            "timestamp": _milliseconds(meta.started),
            "cwd": meta.cwd,
        }
        lines = [encode_line({**row, "parentSession": meta.parent} if meta.parent else row)]
        bodies: list[Body] = [entries.ModelChange(meta.provider, meta.model)] if meta.model else []
        if meta.title:
            bodies.append(entries.Title(meta.title))
        for body in bodies:
            entry = Entry(_derived(meta.id, len(lines)), self._root, unix(meta.started), body)
            lines.append(self.entry(entry, Session()))
            self._root = entry.id
        return b"".join(lines)

    def entry(self, entry: Entry, session: Session) -> bytes:
        return b"".join(map(encode_line, self.rows(entry, session)))

    def rows(self, entry: Entry, session: Session) -> list[dict[str, Json]]:
        """Return the rows of an entry; may be empty."""
        values = self._values(entry, session)
        ids = [_derived(entry.id, position) for position in range(len(values))][:-1]
        ids += [entry.id] if values else []
        self._name_messages(entry, ids, session)
        at = self._root if entry.parent is None else self._last.get(entry.parent, entry.parent)
        if isinstance(entry.body, entries.Cleared | entries.Replaced):
            at = None
        stamp = _milliseconds(rfc3339(entry.time))
        rows = []
        for value, id in zip(values, ids, strict=True):
            rows.append({**value, "id": id, "parentId": at, "timestamp": stamp})
            at = id
        self._last[entry.id] = at
        return rows

    def _name_messages(self, entry: Entry, ids: list[str], session: Session) -> None:
        """Record the first row of each message of an entry: a compaction may refer to it."""
        match entry.body:
            case Message("tool", (ToolResult(call), *_)) if self._is_noted(call, session):
                self._first[entry.id] = self._noted[call]
            case entries.Replaced(messages):  # each message has its own id
                counts = [len(to_pi(message)) for message in messages]
                at = len(ids) - sum(counts)
                for number, count in enumerate(counts):
                    if count:
                        self._first[f"{entry.id}.{number}"] = ids[at]
                    at += count
            case _ if ids:
                self._first[entry.id] = ids[0]

    def _is_noted(self, call: str, session: Session) -> bool:
        """Whether the result is in the session; a note that could not be written is not."""
        return self._noted.get(call) in session.entries

    def row_of(self, entry_id: str) -> str | None:
        """Return the row that stands for an encoded entry."""
        return self._last.get(entry_id, entry_id)

    def _values(self, entry: Entry, session: Session) -> list[dict[str, Json]]:
        match entry.body:
            case Message():
                shown = self._messages(entry.body, session)
                return [{"type": "message", "message": shown_message} for shown_message in shown]
            case entries.ResultNote(result):
                self._noted[result.call_id] = entry.id
                value = result_to_pi(result, round(entry.time * 1000))
                return [{"type": "message", "message": value}]
            case entries.Replaced(messages):
                shown = [shown_message for message in messages for shown_message in to_pi(message)]
                settings = self._settings_rows(entry, session)
                return settings + [
                    {"type": "message", "message": shown_message} for shown_message in shown
                ]
            case entries.Cleared():
                return self._settings_rows(entry, session)
            case Compaction():
                kept = session.context_at(entry.parent).kept(entry.body)
                # Nothing kept: pi wants the row's own id here, which matches no earlier row.
                return [self._compaction(entry.body, kept[0][0] if kept else entry.id)]
            case entries.ModelChange(provider, model):
                return [{"type": "model_change", "provider": provider, "modelId": model}]
            case entries.LevelChange(level):
                return [{"type": "thinking_level_change", "thinkingLevel": level_word(level)}]
            case entries.Title(title):
                return [{"type": "session_info", "name": title}]
            case entries.Label(target, label):
                at = self._last.get(target, target)
                return [{"type": "label", "targetId": at, **({"label": label} if label else {})}]
            case entries.Custom(kind, data):
                return [_custom(kind, data)]
            case entries.UsageNote():
                return []
            case _:
                assert_never(entry.body)

    def _settings_rows(self, entry: Entry, session: Session) -> list[dict[str, Json]]:
        """Return rows for the model and level, which a new root does not inherit."""
        path = session.path(entry.parent) if entry.parent in session.entries else []
        last: dict[type, Body] = {type(earlier.body): earlier.body for earlier in path}
        if self._meta.model:
            last.setdefault(
                entries.ModelChange, entries.ModelChange(self._meta.provider, self._meta.model)
            )
        wanted = [last[kind] for kind in (entries.ModelChange, entries.LevelChange) if kind in last]
        return [
            value
            for body in wanted
            for value in self._values(msgspec.structs.replace(entry, body=body), session)
        ]

    def _messages(self, message: Message, session: Session) -> list[PiMessage]:
        if message.role != "tool":
            self._noted.clear()
            return to_pi(message)
        fresh = [
            block
            for block in message.content
            if isinstance(block, ToolResult) and not self._is_noted(block.call_id, session)
        ]
        return to_pi(msgspec.structs.replace(message, content=tuple(fresh)))

    def _compaction(self, body: Compaction, kept: str) -> dict[str, Json]:
        row: dict[str, Json] = {
            "type": "compaction",
            "summary": body.summary,
            "firstKeptEntryId": self._first.get(kept, kept),
            "tokensBefore": body.tokens_before,
        }
        if body.details is not None:
            row["details"] = body.details
        if body.usage is not None:
            row["usage"] = usage_to_pi(body.usage)
        return row


def _custom(kind: str, data: dict[str, Json]) -> dict[str, Json]:
    if kind in _OWN_ROWS:
        return {"type": kind, **data}
    return {"type": "custom", "customType": kind, "data": data}


def _derived(id: str, position: int) -> str:
    return f"{binascii.crc32(f'{id}/{position}'.encode()):08x}"


def _milliseconds(time: str) -> str:
    """Format a time for pi: RFC 3339 with milliseconds."""
    head, dot, rest = time.rstrip("Z").partition(".")
    return f"{head}.{(rest if dot else '').ljust(3, '0')[:3]}Z"


# --- reading ---------------------------------------------------------------------------------


class PiTranscript(SessionReader):
    """Reader of a pi session file."""

    def __init__(self) -> None:
        super().__init__()
        self.version = VERSION
        self._lines: dict[int, str] = {}
        """Ids by line number, for version 1, which refers to lines."""

    def _take(self, line: bytes, number: int) -> None:
        row = decode_object(line)
        if row["type"] == "session":
            self._header(row, number)
        else:
            self._row(row, number)

    def entries(self) -> Mapping[str, Entry]:
        """Return all entries; results of one turn, which pi has in separate rows, are merged."""
        return _merged(self._entries)

    def sealed(self) -> str:
        if self.version <= VERSION:
            return ""
        return f"it has pi's format {self.version}, which is newer than {VERSION}"

    def _header(self, row: dict[str, Json], number: int) -> None:
        self.version = row.get("version", 1) if isinstance(row.get("version", 1), int) else 1
        self.meta = Meta(
            id=_text(row, "id"),
            cwd=_text(row, "cwd"),
            model=_text(row, "modelId"),
            provider=_text(row, "provider"),
            started=_text(row, "timestamp"),
            parent=_text(row, "parentSession") or UNSET,
        )
        if "thinkingLevel" in row:  # only in version 1
            self._row({**row, "type": "thinking_level_change", "id": ""}, number)

    def _row(self, row: dict[str, Json], number: int) -> None:
        stamp, parent = _text(row, "timestamp"), row.get("parentId", UNSET)
        if parent is not None and not isinstance(parent, str):
            parent = UNSET
        id = self._add(_text(row, "id"), parent, unix(stamp), self._body(row), number)
        self._lines[number] = id

    def _body(self, row: dict[str, Json]) -> Body:
        match row["type"]:
            case "message":
                return from_pi(row.get("message")) or entries.Custom("message", _rest(row))
            case "model_change":
                return entries.ModelChange(_text(row, "provider"), _text(row, "modelId"))
            case "thinking_level_change":
                level = WORD_LEVELS.get(_text(row, "thinkingLevel"))
                return (
                    entries.LevelChange(level) if level else entries.Custom(row["type"], _rest(row))
                )
            case "compaction":
                return self._compaction(row)
            case "session_info":
                return entries.Title(_text(row, "name"))
            case "label":
                return entries.Label(_text(row, "targetId"), _text(row, "label") or None)
            case "branch_summary" | "custom_message":
                return _for_the_model(row)
            case kind:
                return entries.Custom(kind, _rest(row))

    def _compaction(self, row: dict[str, Json]) -> Compaction:
        kept = row.get("firstKeptEntryId")
        index = row.get("firstKeptEntryIndex")
        if isinstance(index, int):
            # Zero-based line index that includes the header; our line numbers start at 1.
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
    """Convert a row that the model reads as a user message."""
    role = "branchSummary" if row["type"] == "branch_summary" else "custom"
    return from_pi({**_rest(row), "role": role}) or entries.Custom(row["type"], _rest(row))


def _merged(read: Mapping[str, Entry]) -> Mapping[str, Entry]:
    children: dict[str | None, int] = {}
    for entry in read.values():
        children[entry.parent] = children.get(entry.parent, 0) + 1
    merged: dict[str, Entry] = {}
    moved: dict[str, str] = {}
    for entry in read.values():
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
    """Return the entry with its references mapped to the new ids."""
    body = entry.body
    if isinstance(body, Compaction) and body.first_kept is not None:
        body = msgspec.structs.replace(body, first_kept=_end(body.first_kept, moved))
    elif isinstance(body, entries.Label):
        body = msgspec.structs.replace(body, target=_end(body.target, moved))
    return msgspec.structs.replace(entry, body=body)


def _end(id: str, moved: Mapping[str, str]) -> str:
    while id in moved:
        id = moved[id]
    return id


def _are_results(before: Entry, entry: Entry) -> bool:
    return all(isinstance(one.body, Message) and one.body.role == "tool" for one in (before, entry))


def _rest(row: dict[str, Json]) -> dict[str, Json]:
    outside = ("type", "id", "parentId", "timestamp")
    return {key: value for key, value in row.items() if key not in outside}


def _text(row: dict[str, Json], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _owns(line: bytes) -> bool:
    return _ANY_HEAD.match(line) is not None or _HEAD.startswith(line)


PI = Format("pi", _owns, PiTranscript, PiWriter, parent_is_path=True)
