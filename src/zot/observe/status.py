"""The status of one agent, for operators."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zot.observe.facts import PersonQuestion

AgentState = Literal["idle", "thinking", "tool", "waiting", "compacting", "failed", "gone"]
WaitingKind = Literal["", "approval", "answer", "retry", "tool"]
AgentOutcome = Literal["", "answered", "aborted", "failed", "limit"]


class OpenQuestion(PersonQuestion, frozen=True):
    asked_seconds: float = 0.0
    """Seconds since the question was asked."""
    left_seconds: float | None = None
    """Seconds until it is denied automatically; None: no timeout."""


class AgentView(Struct, frozen=True, kw_only=True):
    """Fields that every view of an agent shows."""

    outcome: AgentOutcome = ""
    """Outcome of the last run; empty: none has ended, or one is running."""
    stalled: bool = False
    """A flag, not a state: the model has been silent for long. A silent tool is not stalled."""
    questions: tuple[OpenQuestion, ...] = ()
    model: str = ""
    turns: int = 0
    """Model calls so far."""
    tool_calls: int = 0
    cost_usd: float = 0.0
    cost_known: bool = True
    """False: a price is unknown, and the cost is at least `cost_usd`."""
    input_tokens: int = 0
    """Without those that came from the provider's prompt cache."""
    cache_read_tokens: int = 0
    output_tokens: int = 0
    context_tokens: int = 0
    """Tokens read and written by the last model call: the size of the context."""


class Status(AgentView, frozen=True):
    state: AgentState
    seconds: float
    """Seconds in this state; for a tool, its running time."""
    tool: str = ""
    """The running tool."""
    waiting_for: str = ""
    error: str = ""
    """The error in state `failed`; the reason in state `gone`."""
    waiting_kind: WaitingKind = ""
    compactions: int = 0
    silent_seconds: float = 0.0
    """Seconds since the last frame."""
    tool_about: str = ""
    """Main argument of the running tool, such as its command or path."""
