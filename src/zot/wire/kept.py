"""Event log of a durable runtime, for RPC server and SDK: stores its frames and reads them back."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from msgspec import UNSET

from zot.core import events
from zot.core.events import Event
from zot.errors import SessionError
from zot.runtime.runtime import Runtime
from zot.sessions.files import FileStore
from zot.wire import frames, shapes, zot
from zot.wire.eventlog import EventLog, EventPage, read_events
from zot.wire.frames import EventFrame
from zot.wire.zot import FEATURES
from zot.wire.zot_events import frame

ALL = frozenset(FEATURES)
FEATURE_OF = {frame.__struct_config__.tag: feature for frame, feature in frames.FEATURES.items()}


class KeptFrames:
    """Event log of one runtime. The caller's lock keeps log and wire in the same order."""

    def __init__(self, runtime: Runtime) -> None:
        """Open the event log. Raises SessionError: it cannot be written."""
        store = runtime.session.store
        assert isinstance(store, FileStore)  # a durable runtime has one
        self._session = store.path
        try:
            self._log = EventLog(store.path)
        except OSError as error:
            raise SessionError(
                f"cannot write the event log of {store.path!r}: {error.strerror}"
            ) from error

    @property
    def seq(self) -> int:
        """Number of the last frame."""
        return self._log.seq

    def number(self) -> int:
        return self._log.number()

    def keep(
        self, event: Event, shown: EventFrame | None, features: Set[str], tag: Any
    ) -> bytes | None:
        """Store the event as a frame with all features. Return the line for this client, whose
        frame is `shown`; None: it gets none."""
        full = frame(event, ALL)
        if full is None:
            return None
        line = self._log.append(zot.encode(full), tag)
        if shown is None:
            return None
        if "seq" not in features:
            return zot.encode(shown)
        return line if shown == full else zot.stamped(zot.encode(shown), self._log.seq, tag)

    def read(self, features: Set[str], after: int, limit: int) -> EventPage:
        """Return the frames after a number that a client with these features receives."""
        page = read_events(self._session, after, limit)
        wanted = [line for line in page.lines if _is_for(line, features)]
        return EventPage(wanted, page.last, page.more, page.expired)

    def untold_end(self, runtime: Runtime) -> events.Done | None:
        """Return the end of the last run if the process was killed before it could report it."""
        ended = None if runtime.runs.durable is None else runtime.runs.durable.last_ended()
        if ended is None or not self._log.has_frames:
            return None
        told = self._log.last_done()
        if told is not None and told.get("run") == ended.run:
            return None
        return events.Done(ended.stop, ended.run)

    def close(self) -> None:
        self._log.close()


def events_read(
    page: EventPage, runtime: Runtime, state: Callable[[], shapes.State], make: Callable[..., Any]
) -> shapes.EventsRead:
    """Return the response to `events`, each line converted by `make`. Where frames were lost, add
    a snapshot from which the client can continue."""
    snapshot: Any = UNSET
    if page.expired:
        running = runtime.runs.running
        snapshot = shapes.Snapshot(state(), "" if running is None else running.id)
    lines = tuple(make(line[:-1]) for line in page.lines)
    return shapes.EventsRead(lines, page.last, page.more, page.expired, snapshot)


def _is_for(line: bytes, features: Set[str]) -> bool:
    """Return whether a client with these features receives this line."""
    kind = line[9 : line.index(b'"', 9)].decode()  # after {"type":"
    feature = FEATURE_OF.get(kind)
    return kind != "event_log" and (feature is None or feature in features)
