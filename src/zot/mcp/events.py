"""Server-sent events of MCP: data, with the id and the pause that a reconnect needs."""

from __future__ import annotations

from zot.errors import BadResponse, McpError
from zot.provider.sse import Splitter
from zot.text import Frozen

MAX_EVENT = 16 * 1024 * 1024


class ServerEvent(Frozen):
    data: bytes
    id: str | None = None
    retry: float | None = None
    """Seconds to wait before a reconnect."""


class EventReader:
    """Parses a body that arrives in pieces cut anywhere, and returns complete events."""

    def __init__(self) -> None:
        self._splitter = Splitter("it", MAX_EVENT)

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Return the events that end within this piece. Raises McpError for one that is too
        long."""
        try:
            blocks = self._splitter.complete(piece).split(b"\n\n")
        except BadResponse as error:
            raise McpError(str(error)) from error
        return [event for block in blocks if (event := _event(block)) is not None]


def _event(block: bytes) -> ServerEvent | None:
    data: list[bytes] = []
    id: str | None = None
    retry: float | None = None
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                data.append(value)
            case b"id" if b"\0" not in value:
                id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                retry = int(value) / 1000
    if not data and id is None and retry is None:
        return None
    return ServerEvent(b"\n".join(data), id, retry)
