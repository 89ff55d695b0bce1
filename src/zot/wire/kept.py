"""What a durable runtime does more with its frames, whoever serves it: keeps them in the event log,
and reads them again.
"""

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
    """The event log of one runtime. The caller's lock keeps log and wire in one order."""

    def __init__(self, runtime: Runtime) -> None:
        """Raises SessionError."""
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
        """The number of the last frame."""
        return self._log.seq

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

    def read(self, features: Set[str], after: int, limit: int) -> EventPage:
        """What a client with these features hears of what is behind a number."""
        page = read_events(self._session, after, limit)
        wanted = [line for line in page.lines if _is_for(line, features)]
        return EventPage(wanted, page.last, page.more, page.expired)

    def untold_end(self, runtime: Runtime) -> events.Done | None:
        """The end of the last run, if the process was killed before it could tell of it."""
        ended = None if runtime.durable is None else runtime.durable.last_ended()
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
    """The answer to `events`, its lines made into what the door hands out; where some are gone,
    with what a client needs to go on without them."""
    snapshot: Any = UNSET
    if page.expired:
        running = runtime.running
        snapshot = shapes.Snapshot(state(), "" if running is None else running.id)
    lines = tuple(make(line[:-1]) for line in page.lines)
    return shapes.EventsRead(lines, page.last, page.more, page.expired, snapshot)


def _is_for(line: bytes, features: Set[str]) -> bool:
    """Whether a client with these features hears of it."""
    kind = line[9 : line.index(b'"', 9)].decode()  # behind {"type":"
    feature = FEATURE_OF.get(kind)
    return kind != "event_log" and (feature is None or feature in features)
