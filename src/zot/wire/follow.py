"""Reader of a durable session's event log: typed events, in any process, without the agent that
writes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from zot.text import Frozen
from zot.wire.eventlog import follow_lines, seq_of, tick
from zot.wire.frames import EventFrame
from zot.wire.parse import Response, Unknown, parse_frame


class KeptEvent(Frozen):
    """An event of the event log."""

    seq: int
    """Number of the event; pass it as `after` to read the events that follow."""
    event: EventFrame | Unknown
    """`Unknown` of type `cursor_expired` when some requested events are no longer stored."""


def follow(
    session: str | os.PathLike[str],
    after: int = 0,
    *,
    once: bool = False,
    wait: Callable[[], bool] | None = None,
) -> Iterator[KeptEvent]:
    """Yield the events of a durable session after a number, and new ones as they come. Read-only;
    works in any process of this machine, while the session runs and afterwards. `once`: stop after
    the last stored event. `wait` is called when there are no events; False ends the iteration.
    """
    pause = wait or ((lambda: False) if once else tick)
    for line in follow_lines(os.fspath(session), after, pause):
        event = parse_frame(line)
        if seq := seq_of(line):
            after = seq
        if not isinstance(event, Response):
            yield KeptEvent(after, event)
