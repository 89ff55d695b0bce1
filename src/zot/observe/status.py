"""What an operator wants to know of one agent."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zot.observe.facts import PersonQuestion

AgentState = Literal["idle", "thinking", "tool", "waiting", "compacting", "failed", "gone"]
WaitingKind = Literal["", "approval", "answer", "retry", "tool"]
AgentOutcome = Literal["", "answered", "aborted", "failed", "limit"]


class OpenQuestion(PersonQuestion, frozen=True):
    asked_seconds: float = 0.0
    """How long it has been open."""
    left_seconds: float | None = None
    """Until it is denied by itself; None: it waits for ever."""


class AgentView(Struct, frozen=True, kw_only=True):
    """What is told of an agent wherever it is shown."""

    outcome: AgentOutcome = ""
    """How the last run ended; empty: none has, or one is running."""
    stalled: bool = False
    """A mark, not a state: the model has said nothing for long. A silent tool is not stalled."""
    questions: tuple[OpenQuestion, ...] = ()
    model: str = ""
    turns: int = 0
    """Model calls so far."""
    tool_calls: int = 0
    cost_usd: float = 0.0
    cost_known: bool = True
    """False: a price is not known, and the cost is at least `cost_usd`."""
    input_tokens: int = 0
    output_tokens: int = 0
    context_tokens: int = 0
    """What the last model call read and wrote: how full the context is."""


class Status(AgentView, frozen=True):
    state: AgentState
    seconds: float
    """How long it has been in this state; for a tool, how long that has been running."""
    tool: str = ""
    """The tool that runs."""
    waiting_for: str = ""
    error: str = ""
    """What failed, in the state `failed`; how it ended, in the state `gone`."""
    waiting_kind: WaitingKind = ""
    cache_read_tokens: int = 0
    compactions: int = 0
    silent_seconds: float = 0.0
    """Since the last frame."""
    tool_about: str = ""
    """What the tool that runs is about: its command, its path."""
