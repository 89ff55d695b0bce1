"""Server-sent events: bytes in, events out. Knows nothing of HTTP or of what the data means."""

from __future__ import annotations

from zot.errors import BadResponse

MAX_EVENT = 32 * 1024 * 1024
"""Bytes of one event; a server that sends more without an end is not answering."""
BOM = b"\xef\xbb\xbf"

Event = tuple[str, bytes]
"""The event's name (`message` when it has none) and its data."""


class Splitter:
    """Takes the body in pieces cut anywhere, and gives the events that are complete.

    Lines may end with LF, CRLF or CR. Comments, ids and retry hints are dropped: a call is never
    resumed, so nobody needs them. Data stays bytes; whoever parses it judges the encoding.
    """

    def __init__(self, name: str, max_event: int = MAX_EVENT) -> None:
        self._name = name
        self._max = max_event
        self._parts: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._after_lf = False
        self._first = True

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that end within this piece.

        Raises:
            BadResponse: an event is larger than the limit.
        """
        if self._after_cr or b"\r" in chunk:
            chunk = self._plain(chunk)
        if not chunk:
            return []
        ends = b"\n\n" in chunk or (self._after_lf and chunk[0] == 10)
        self._after_lf = chunk[-1] == 10
        self._parts.append(chunk)
        self._size += len(chunk)
        if not ends:
            if self._size > self._max:
                raise BadResponse(f"{self._name}: an event of more than {self._max} bytes")
            return []
        # Joined only when an event ends: a large one would otherwise be copied with every piece.
        *blocks, rest = b"".join(self._parts).split(b"\n\n")
        self._parts = [rest] if rest else []
        self._size = len(rest)
        if self._first and blocks:
            self._first = False
            blocks[0] = blocks[0].removeprefix(BOM)
        return parse_blocks(blocks)

    def finish(self) -> list[Event]:
        """The last event when its closing blank line is missing: some servers leave it out."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return parse_blocks([rest.removeprefix(BOM) if self._first else rest])

    def _plain(self, chunk: bytes) -> bytes:
        """The piece with every line end as LF; a CRLF may be cut between two pieces."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def parse_blocks(blocks: list[bytes]) -> list[Event]:
    events: list[Event] = []
    for block in blocks:
        # What nearly every event looks like: one data line, or a name line and a data line.
        if block.startswith(b"data: ") and b"\n" not in block and len(block) > 6:
            events.append(("message", block[6:]))
            continue
        if block.startswith(b"event: "):
            head, _, tail = block.partition(b"\n")
            if tail.startswith(b"data: ") and b"\n" not in tail and len(tail) > 6:
                name = head[7:].decode("utf-8", "replace") or "message"
                events.append((name, tail[6:]))
                continue
        event = parse_lines(block)
        if event is not None:
            events.append(event)
    return events


def parse_lines(block: bytes) -> Event | None:
    """Any event, by the letter of the format; None when it carries no data."""
    name = "message"
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace") or "message"
    joined = b"\n".join(data)
    return (name, joined) if joined else None
