"""Session file formats: what a format is, and zot's own, one JSON row a line. Opens no file.

Store and library know only the interface; `zot.formats` lists the formats.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, assert_never

import msgspec
from msgspec import UNSET, MsgspecError, Raw

from zot.core import session as entries
from zot.core.session import Body, Entry, Session
from zot.provider.types import Json, Message, ToolResult
from zot.sessions import rows
from zot.sessions.rows import BlockRow, MessageRow, Meta, SessionRow
from zot.text import Frozen, encode_json, whole_escapes


class BadRow(Exception):
    """A line that is no row; the text gives the reason."""


class SessionReader:
    """Collects the entries of a file. Feed the lines in order, then call `entries()`."""

    def __init__(self) -> None:
        self.meta: Meta | None = None
        self.bad: list[tuple[int, str]] = []
        """Line numbers and reasons of skipped lines."""
        self.bad_after: list[str] = []
        """Id of the entry before each of them; empty: there was none."""
        self._entries: dict[str, Entry] = {}
        self._last: str | None = None

    def feed(self, line: bytes, number: int) -> bool:
        """Process one line, without its line feed; return False if it is no row."""
        try:
            self._take(line, number)
        except (BadRow, MsgspecError) as error:
            self.bad.append((number, str(error)))
            self.bad_after.append(next(reversed(self._entries), ""))
            return False
        return True

    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def sealed(self) -> str:
        """Return why nothing may be appended to the file; empty: it may."""
        return ""

    def _take(self, line: bytes, number: int) -> None:
        """Parse one line. Raises BadRow, MsgspecError: it is no row."""
        raise NotImplementedError

    def _add(self, id: str, parent: Json, time: float, body: Body, number: int) -> str:
        """Add an entry and return its id. Empty `id`, or `parent` no text: the row has none."""
        if not id or id in self._entries:
            # The line number is the same at every reading.
            id = f"{number:08x}"
            while id in self._entries:
                id = f"{int(id, 16) + 0x1000_0000:08x}"
        # If the parent's row was lost, the conversation continues from the previous row. If the
        # parent is the previous row, its string object is shared.
        if parent is not None and (parent == self._last or parent not in self._entries):
            parent = self._last
        time = time or (body.time if isinstance(body, Message) else 0.0)
        self._entries[id] = Entry(id, parent, time, body)
        self._last = id
        return id


class Writer(Protocol):
    """Encodes the lines of one session. Has state: use one instance per file."""

    last: str | None
    """Id of the last entry in the file; set by the caller after each write."""

    def head(self) -> bytes: ...

    def entry(self, entry: Entry, session: Session) -> bytes:
        """Return the entry's lines, maybe none. The session has the entries that came before."""


class Format(Frozen):
    name: str
    owns: Callable[[bytes], bool]
    """Whether a file of this format may begin with this line, or with a cut-off part of it."""
    reader: Callable[[], SessionReader]
    writer: Callable[[Meta, str | None], Writer]
    """Creates a writer for a new file, or for a file that was read and ends with this entry."""
    parent_is_path: bool = False
    """Whether a fork names its parent by path; otherwise by session id."""


def lines(format: Format, meta: Meta, entries: Sequence[Entry]) -> Iterator[bytes]:
    """Yield the lines of a whole file. The entries are one branch, or a tree in creation order."""
    session = Session(entries=entries)
    writer = format.writer(meta, None)
    yield writer.head()
    for entry in entries:
        yield writer.entry(entry, session)
        writer.last = entry.id


# --- zot's own format ---------------------------------------------------------------------------

_HEAD = b'{"type":"meta","meta":{'
_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')
_CRC_LENGTH = len(b',"crc":"00000000"}')

_rows = msgspec.json.Decoder(SessionRow)
_messages = msgspec.json.Decoder(tuple[MessageRow, ...])


# --- writing ---------------------------------------------------------------------------------


class ZotWriter:
    """Writes the rows of one session so that they can be read without following the tree: a row
    that continues an older entry is preceded by the conversation of its branch.
    """

    def __init__(self, meta: Meta, last: str | None = None) -> None:
        self._meta = meta
        self.last = last

    def head(self) -> bytes:
        return _line(SessionRow("meta", meta=self._meta))

    def entry(self, entry: Entry, session: Session) -> bytes:
        before, kept = b"", list[Message]()
        if entry.parent != self.last:
            before = encode_branch(session.context_at(entry.parent).messages())
        if isinstance(entry.body, entries.Compaction) and entry.body.first_kept is not None:
            context = session.context_at(entry.parent).kept(entry.body)
            kept = [message for _, message in context]
        return before + encode_entry(entry, self._meta, kept)


def encode_entry(entry: Entry, meta: Meta, kept: Sequence[Message] = ()) -> bytes:
    """Encode an entry as one line, with its line feed.

    `kept` are the messages that stay verbatim after a compaction's summary, so that readers that do
    not follow the tree find the whole remaining conversation in the row.
    """
    match entry.body:
        case entries.ModelChange(provider, model):
            row = SessionRow(
                "meta", meta=msgspec.structs.replace(meta, provider=provider, model=model)
            )
        case Message():
            row = SessionRow("message", message=rows.message_row(entry.body))
        case entries.Compaction():
            summary = rows.message_row(entries.summary_message(entry.body, entry.time))
            about = {"compaction": "true", "tokens_before": str(entry.body.tokens_before)}
            summary = msgspec.structs.replace(summary, meta=about)
            row = SessionRow(
                "compaction",
                messages=_raw([summary, *map(rows.message_row, kept)]),
                compaction=entry.body,
            )
        case entries.Cleared():
            row = SessionRow("compaction", messages=Raw(b"[]"), cleared=True)
        case entries.Replaced(messages):
            row = SessionRow(
                "compaction", messages=_raw([rows.message_row(kept) for kept in messages])
            )
        case entries.UsageNote(usage, cumulative):
            row = SessionRow(
                "usage", usage=rows.usage_row(usage), cumulative=rows.usage_row(cumulative)
            )
        case entries.Title(title):
            row = SessionRow("rename", title=title)
        case entries.LevelChange(level):
            row = SessionRow("level", level=level)
        case entries.Label(target, label):
            row = SessionRow("label", target=target, label=label)
        case entries.ResultNote(result):
            row = SessionRow("result", result=rows.block_row(result))
        case entries.Custom(kind, data):
            row = SessionRow("custom", kind=kind, data=data)
        case _:
            assert_never(entry.body)
    return _line(msgspec.structs.replace(row, id=entry.id, parent=entry.parent, time=entry.time))


def encode_title(title: str) -> bytes:
    """Encode a title set by a process that does not hold the session: it has no place in the tree,
    as in the Go program.
    """
    return _line(SessionRow("rename", title=title))


def encode_branch(messages: Sequence[Message]) -> bytes:
    """Encode the conversation so far, for a next row that continues an older entry.

    Only readers that do not follow the tree need it; zot's skips it.
    """
    return _line(
        SessionRow("compaction", messages=_raw(list(map(rows.message_row, messages))), branch=True)
    )


def _raw(items: Sequence[MessageRow]) -> Raw:
    return Raw(encode_json(items))


def _line(row: SessionRow) -> bytes:
    body = encode_json(row)
    return b'%b,"crc":"%08x"}\n' % (body[:-1], binascii.crc32(body))


# --- reading ---------------------------------------------------------------------------------


def decode_row(line: bytes) -> SessionRow | dict[str, Json]:
    """Decode a row of a known type, or the object of an unknown one. Raises BadRow: not a JSON
    object with a `type`, a wrong checksum, or wrong fields.
    """
    tail = _CRC.match(line, max(0, len(line) - _CRC_LENGTH))
    if tail:
        body = binascii.crc32(memoryview(line)[: tail.start()])
        if int(tail[1], 16) != binascii.crc32(b"}", body):
            raise BadRow("its checksum does not match")
    try:
        row = _rows.decode(line)
        if row.type in rows.KNOWN:
            return row
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _decode_odd(line, error)
    return decode_object(line)


def _decode_odd(line: bytes, error: Exception) -> SessionRow | dict[str, Json]:
    """Decode a line that the strict decoder refused: half an emoji, an unknown row, or garbage."""
    unknown = decode_object(line)
    if unknown["type"] not in rows.KNOWN:
        return unknown
    if (mended := whole_escapes(line)) == line:
        raise BadRow(str(error)) from error
    return decode_row(_CRC.sub(b"}", mended))


def decode_object(line: bytes) -> dict[str, Json]:
    """Decode a row of any format: a JSON object with a `type`. Half an emoji is replaced. Raises
    BadRow: it is none.
    """
    try:
        value = msgspec.json.decode(whole_escapes(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRow(str(error)) from error
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise BadRow("it is no JSON object with a type")
    return value


class Transcript(SessionReader):
    """Reads the rows of a zot file."""

    def _take(self, line: bytes, number: int) -> None:
        row = decode_row(line)
        if isinstance(row, dict):
            id = row.get("id")
            self._add(id if isinstance(id, str) else "", UNSET, 0.0, self._unknown(row), number)
        elif (body := self._body(row)) is not None:
            self._add(row.id, row.parent, row.time, body, number)

    def _unknown(self, row: dict[str, Json]) -> entries.Custom:
        data = {key: value for key, value in row.items() if key not in ("type", "id", "crc")}
        return entries.Custom(row["type"], data)

    def _body(self, row: SessionRow) -> entries.Body | None:
        # Messages first, without `match`: nearly all rows are messages, and matching costs as much
        # as decoding.
        if row.message is not None and row.type == "message":
            # Skip empty messages: no provider would accept one.
            return rows.message(row.message) if row.message.content else None
        match row:
            case SessionRow(type="meta", meta=Meta() as meta):
                return self._take_meta(meta)
            case SessionRow(type="compaction"):
                return _compaction(row)
            case SessionRow(type="usage", usage=usage, cumulative=cumulative):
                usage = usage or rows.UsageRow()
                return entries.UsageNote(rows.usage(usage), rows.usage(cumulative or usage))
            case SessionRow(type="rename", title=str(title)):
                return entries.Title(title)
            case SessionRow(type="level", level=level) if level is not None:
                return entries.LevelChange(level)
            case SessionRow(type="label", target=str(target), label=label):
                return entries.Label(target, label)
            case SessionRow(type="result", result=BlockRow() as block):
                return _result_note(block)
            case SessionRow(type="custom", kind=str(kind), data=data):
                return entries.Custom(kind, data or {})
            case _:
                return None

    def _take_meta(self, meta: Meta) -> entries.ModelChange | None:
        if self.meta is None:
            self.meta = meta
            return None
        # A branch without a model switch continues with the model that the file began with.
        began = {"provider": self.meta.provider, "model": self.meta.model}
        self.meta = msgspec.structs.replace(meta, **began)
        return entries.ModelChange(meta.provider, meta.model)


def _compaction(row: SessionRow) -> entries.Compaction | entries.Cleared | entries.Replaced | None:
    if row.branch:
        return None
    if row.cleared:
        return entries.Cleared()
    if row.compaction is not None or row.messages is UNSET:
        return row.compaction
    return entries.Replaced(tuple(map(rows.message, _messages.decode(row.messages))))


def _result_note(row: BlockRow) -> entries.ResultNote | None:
    result = rows.block(row)
    return entries.ResultNote(result) if isinstance(result, ToolResult) else None


def _owns(line: bytes) -> bool:
    return line.startswith(_HEAD) or _HEAD.startswith(line)


ZOT = Format("zot", _owns, Transcript, ZotWriter)
