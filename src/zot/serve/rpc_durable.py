"""What `zot rpc --durable` does more with its frames: keeps them, and sends them again."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from msgspec import UNSET, Raw

from zot.core import events
from zot.core.events import Event
from zot.errors import SessionError
from zot.runtime.runtime import Runtime
from zot.serve import rpc_sessions
from zot.wire import frames, zot, zot_replies
from zot.wire.commands import FEATURES
from zot.wire.eventlog import EventLog, read_events
from zot.wire.frames import EventFrame
from zot.wire.zot_events import frame

ALL = frozenset(FEATURES)
FEATURE_OF = {
    "thinking_delta": "thinking",
    "tool_start": "tools",
    "retry": "retries",
    "queue_update": "queue",
    "approval_request": "approvals",
    "approval_resolved": "approvals",
    "ext_ask": "dialogs",
}
"""Frames that only a client hears that asked for the feature; the log has them all."""


class KeptFrames:
    """The event log of one server. The caller's lock keeps log and wire in one order."""

    def __init__(self, session: str) -> None:
        """Raises SessionError."""
        self._session = session
        try:
            self._log = EventLog(session)
        except OSError as error:
            raise SessionError(
                f"cannot write the event log of {session!r}: {error.strerror}"
            ) from error

    def number(self) -> int:
        return self._log.number()

    def keep(
        self, event: Event, shown: EventFrame | None, features: Set[str], tag: Any
    ) -> bytes | None:
        """Keep what happened, with everything that any client may hear of it; the line for this
        client, of which `shown` is what it asked for."""
        full = frame(event, ALL)
        if full is None:
            return None
        line = self._log.append(zot.encode(full), tag)
        if shown is None:
            return None
        if "seq" not in features:
            return zot.encode(shown)
        return line if shown == full else zot.stamped(zot.encode(shown), self._log.seq, tag)

    def read(
        self, runtime: Runtime, features: Set[str], after: int, limit: int
    ) -> frames.EventsRead:
        page = read_events(self._session, after, limit)
        wanted = [Raw(line[:-1]) for line in page.lines if _is_for(line, features)]
        snapshot: frames.Snapshot | Any = UNSET
        if page.expired:
            state = zot_replies.state(runtime.state())
            state = rpc_sessions.with_features(state, runtime, features)
            running = runtime.running
            snapshot = frames.Snapshot(state, "" if running is None else running.id)
        return frames.EventsRead(tuple(wanted), page.last, page.more, page.expired, snapshot)

    def untold_end(self, runtime: Runtime) -> events.Done | None:
        """The end of the last run, if the process was killed before it could tell of it."""
        ended = None if runtime.durable is None else runtime.durable.last_ended()
        if ended is None or not self._log.has_frames:
            return None
        told = self._log.last_done()
        if told is not None and told.get("run") == ended.run:
            return None
        return events.Done(ended.stop, ended.run)


def _is_for(line: bytes, features: Set[str]) -> bool:
    """Whether a client with these features hears of it."""
    kind = line[9 : line.index(b'"', 9)].decode()  # behind {"type":"
    feature = FEATURE_OF.get(kind)
    return kind != "event_log" and (feature is None or feature in features)
