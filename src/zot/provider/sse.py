"""Server-sent events: bytes in, the data of each event out. Independent of HTTP and of the data's
meaning; event names are dropped, since every API repeats them in the data.
"""

from __future__ import annotations

from zot.errors import BadResponse

MAX_EVENT = 32 * 1024 * 1024
"""Maximum bytes of one event; a server that sends more without an end is not answering."""
BOM = b"\xef\xbb\xbf"


class Splitter:
    """Splits a body, received in pieces cut anywhere, into complete events.

    Lines may end with LF, CRLF or CR. Comments, ids and retry hints are dropped, since calls are
    never resumed. So is blank data, which some servers send to keep a connection open. Data stays
    bytes; the parser checks the encoding.
    """

    def __init__(self, name: str, max_event: int = MAX_EVENT) -> None:
        self._name = name
        self._max = max_event
        self._parts: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._after_lf = False
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that end within this piece. Raises as `complete`."""
        if self._parts or self._first or self._after_cr or chunk[-2:] != b"\n\n" or b"\r" in chunk:
            whole = self.complete(chunk)
        else:  # whole events, as in most consecutive pieces
            whole, self._after_lf = chunk, True
        return parse_blocks(whole.split(b"\n\n")) if whole else []

    def complete(self, chunk: bytes) -> bytes:
        """Return the raw events that end within this piece; empty if none does.

        Raises:
            BadResponse: an event is larger than the limit.
        """
        if self._after_cr or b"\r" in chunk:
            chunk = self._plain(chunk)
        if not chunk:
            return b""
        ends = b"\n\n" in chunk or (self._after_lf and chunk[0] == 10)
        self._after_lf = chunk[-1] == 10
        self._parts.append(chunk)
        self._size += len(chunk)
        if not ends:
            if self._size > self._max:
                raise BadResponse(f"{self._name}: an event of more than {self._max} bytes")
            return b""
        # Joined only when an event ends: a large one would otherwise be copied with every piece.
        joined = b"".join(self._parts) if len(self._parts) > 1 else chunk
        if self._first:
            self._first = False
            joined = joined.removeprefix(BOM)
        end = joined.rfind(b"\n\n") + 2
        rest = joined[end:]
        self._parts = [rest] if rest else []
        self._size = len(rest)
        return joined[:end]

    def finish(self) -> list[bytes]:
        """Return the last event if its closing blank line is missing: some servers omit it."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return parse_blocks([rest.removeprefix(BOM) if self._first else rest])

    def _plain(self, chunk: bytes) -> bytes:
        """Convert every line end to LF; a CRLF may be cut between two pieces."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def parse_blocks(blocks: list[bytes]) -> list[bytes]:
    """Return the data of events, as the format defines it; events without data are skipped. Uses no
    regular expression: loading `re` takes as long as ten thousand events."""
    events = []
    for block in blocks:
        head, _, rest = block.partition(b"\n")
        if rest.startswith(b"data: {") and head.startswith(b"event: ") and b"\n" not in rest:
            events.append(rest[6:])  # nearly every event
            continue
        if not rest and head.startswith(b"data: {"):
            events.append(head[6:])  # or this form
            continue
        data = []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
        joined = b"\n".join(data)
        if joined.strip():
            events.append(joined)
    return events
