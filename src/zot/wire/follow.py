"""The event log of a durable session for a second reader: typed events, from any process, without
the agent that writes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from zot.text import Frozen
from zot.wire.eventlog import follow_lines, seq_of, tick
from zot.wire.frames import EventFrame
from zot.wire.parse import Response, Unknown, parse_frame


class KeptEvent(Frozen):
    """An event of the log."""

    seq: int
    """Its number: what comes behind it is asked for with this."""
    event: EventFrame | Unknown
    """`Unknown` of the type `cursor_expired`: what was asked for is not kept any more."""


def follow(
    session: str | os.PathLike[str],
    after: int = 0,
    *,
    once: bool = False,
    wait: Callable[[], bool] | None = None,
) -> Iterator[KeptEvent]:
    """The events of a durable session behind a number, and those that come: read-only, from any
    process of this machine, while it runs and afterwards. `once` ends with the last one there is;
    `wait` is called when there are none for now, and ends it by False.
    """
    pause = wait or ((lambda: False) if once else tick)
    for line in follow_lines(os.fspath(session), after, pause):
        event = parse_frame(line)
        if seq := seq_of(line):
            after = seq
        if not isinstance(event, Response):
            yield KeptEvent(after, event)
