"""Delivery of a runtime's events to the embedder, and options of agents that it opens."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from msgspec import UNSET

from zot.cancel import Cancel
from zot.core.agent import Limits
from zot.core.events import Event
from zot.core.source import Question
from zot.runtime import runtime as inner
from zot.runtime.agents import AgentRequest
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run
from zot.sdk.stream import AgentEvent, Channel
from zot.wire.encode import frame
from zot.wire.eventlog import EventLog, open_log


class RunEvents(RuntimeClient):
    """Client that puts each run's events into the channel that is the run's tag."""

    def __init__(
        self, features: frozenset[str], on_agent_event: Callable[[AgentEvent], None] | None
    ) -> None:
        self.channel: Channel | None = None
        """Channel of the latest run; also gets events of no run (an extension's notice)."""
        self.features = features
        self.on_agent_event = on_agent_event
        self.log: EventLog | None = None
        """Event log of a durable runtime; None: it is not durable."""

    def agent_opened(self, runtime: inner.Runtime) -> None:
        if runtime.runs.durable is None:
            return
        self.log = open_log(runtime)
        if (end := self.log.missed_end(runtime)) is not None:
            self.listen(end, None)

    def agent_closed(self) -> None:
        if self.log is not None:
            self.log.close()

    def listen(self, event: Event, run: Run | None) -> None:
        channel = self.channel if run is None else run.tag
        shown = frame(event, self.features)
        seq = 0
        if self.log is not None:  # stored before it is delivered
            self.log.record(event, shown, self.features, UNSET)
            seq = self.log.seq
        if isinstance(channel, Channel) and shown is not None:
            channel.put(shown, seq)

    def agent_event(self, agent: str, parent: str, event: Event) -> None:
        if self.on_agent_event is not None:
            shown = frame(event, self.features)
            if shown is not None:
                self.on_agent_event(AgentEvent(agent, parent, shown))

    def wait(self, cancel: Cancel) -> None:
        if self.channel is not None:
            self.channel.wait_for_room(cancel)

    def can_answer(self, what: Question) -> bool:
        return ("approvals" if what == "approval" else "dialogs") in self.features


class AgentOptions(TypedDict, total=False):
    """Settings of an opened agent; the rest is as in the agent that opens it."""

    cwd: str | os.PathLike[str]
    provider: str
    model: str
    session: str | os.PathLike[str]
    tools: Sequence[str]
    limits: Limits
    approve: Sequence[str]
    jail: bool | str
    durable: bool


def request_of(options: AgentOptions) -> AgentRequest:
    """Convert the options to a request. Raises TypeError for an unknown option."""
    fields: dict[str, Any] = dict(options)
    for name in ("tools", "approve"):
        if name in fields:
            fields[name] = tuple(fields[name])
    for name in ("cwd", "session"):
        if name in fields:
            fields[name] = os.fspath(fields[name])
    return AgentRequest(**fields)
