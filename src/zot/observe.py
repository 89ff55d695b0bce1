"""Watch many agents of different makes alike: frames of zot or pi in, one small set of lifecycle
events and states out. Pure: it reads no stream and depends on nothing else of zot.

    observer = Observer()
    for line in stream:
        observer.feed(line)
        print(observer.status())
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

Lifecycle = Literal[
    "agent_start",
    "turn_start",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "turn_end",
    "error",
    "agent_end",
]
AgentState = Literal["idle", "thinking", "tool", "waiting", "failed"]

ZOT: dict[str, Lifecycle] = {
    "user_message": "message_update",
    "turn_start": "turn_start",
    "assistant_start": "message_start",
    "text_delta": "message_update",
    "tool_use_start": "tool_execution_start",
    "tool_use_args": "tool_execution_update",
    "tool_use_end": "tool_execution_update",
    "tool_progress": "tool_execution_update",
    "tool_result": "tool_execution_end",
    "assistant_message": "message_end",
    "turn_end": "turn_end",
    "error": "error",
    "done": "agent_end",
    # `response`, `usage` and the standalone `tool_call` change nothing: a call was already
    # announced by `tool_use_start`, and no tool may start twice.
}
PI: dict[str, Lifecycle] = {name: name for name in get_args(Lifecycle)}
_TABLE: dict[str, Lifecycle] = {**PI, **ZOT}


def normalize(frame: dict[str, Any] | bytes | str) -> Lifecycle | None:
    """The lifecycle event that a frame stands for; None: it changes nothing, or is no frame."""
    fields = _fields(frame)
    kind = fields.get("type")
    return _TABLE.get(kind) if isinstance(kind, str) else None


class Status(Struct, frozen=True):
    """What an operator wants to know of one agent."""

    state: AgentState
    seconds: float
    """How long it has been in this state; for a tool, how long that has been running."""
    tool: str = ""
    """The tool that runs."""
    waiting_for: str = ""
    error: str = ""
    """What failed, in the state `failed`."""
    turns: int = 0
    """Model calls so far."""
    tool_calls: int = 0
    cost_usd: float = 0.0
    cost_known: bool = True
    """False: a price is not known, and the cost is at least `cost_usd`."""


class Observer:
    """The state of one agent, from its frames in order."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: AgentState = "idle"
        self._since = clock()
        self._tools: dict[str, tuple[str, float]] = {}
        """Open calls by id: name, and since when."""
        self._waiting_for = ""
        self._error = ""
        self._turns = 0
        self._tool_calls = 0
        self._cost = 0.0
        self._cost_known = True

    def feed(self, frame: dict[str, Any] | bytes | str) -> Lifecycle | None:
        """Take in one frame; what it was, as `normalize` says."""
        fields = _fields(frame)
        event = normalize(fields)
        if event is not None:
            self._lifecycle(event, fields)
        else:
            self._other(fields)
        return event

    def status(self) -> Status:
        now = self._clock()
        tool, since = next(iter(self._tools.values()), ("", self._since))
        running = self._state == "tool"
        return Status(
            state=self._state,
            seconds=max(0.0, now - (since if running else self._since)),
            tool=tool if running else "",
            waiting_for=self._waiting_for if self._state == "waiting" else "",
            error=self._error if self._state == "failed" else "",
            turns=self._turns,
            tool_calls=self._tool_calls,
            cost_usd=self._cost,
            cost_known=self._cost_known,
        )

    # --- what happened -----------------------------------------------------------------------

    def _lifecycle(self, event: Lifecycle, fields: dict[str, Any]) -> None:
        match event:
            case "agent_start":
                self._go("thinking")
            case "turn_start":
                self._turns += 1
                self._error = ""  # what went wrong before, the run got over
                self._go("thinking")
            case "message_start" | "message_update":
                if not self._tools:
                    self._go("thinking")
            case "message_end":
                self._count_pi_cost(fields)
            case "tool_execution_start":
                self._tool_started(fields)
            case "tool_execution_update":
                self._go("tool" if self._tools else self._state)
            case "tool_execution_end":
                self._tool_ended(fields)
            case "turn_end":
                self._turn_ended(fields)
            case "error":
                self._error = _text(fields, "message", "error") or "unknown error"
                self._go("failed")
            case "agent_end":
                self._tools.clear()
                self._go("failed" if self._error else "idle")

    def _turn_ended(self, fields: dict[str, Any]) -> None:
        stop = fields.get("stop")
        if stop == "error":
            self._error = _text(fields, "error") or "unknown error"
            self._go("failed")
        elif stop == "tool_use" and self._tools:
            self._go("tool")
        elif stop == "tool_use":
            self._wait("a tool")

    def _tool_started(self, fields: dict[str, Any]) -> None:
        id = _text(fields, "id", "toolCallId")
        if id not in self._tools:
            self._tool_calls += 1
            self._tools[id] = (_text(fields, "name", "toolName"), self._clock())
        self._go("tool")

    def _tool_ended(self, fields: dict[str, Any]) -> None:
        self._tools.pop(_text(fields, "id", "toolCallId"), None)
        self._go("tool" if self._tools else "thinking")

    def _other(self, fields: dict[str, Any]) -> None:
        """Frames without a lifecycle event that still say something about the state."""
        match fields.get("type"):
            case "usage":
                self._count_zot_cost(fields)
            case "approval_request":
                self._wait(f"approval of {_text(fields, 'name') or 'a tool'}")
            case "approval_resolved":
                self._go("tool" if self._tools else "thinking")
            case "retry" | "auto_retry_start":
                self._wait("a retry: " + (_text(fields, "reason", "errorMessage") or "it failed"))
            case "extension_ui_request":
                self._wait("an answer of the user")

    def _count_zot_cost(self, fields: dict[str, Any]) -> None:
        cumulative = fields.get("cumulative")
        if isinstance(cumulative, dict):
            self._cost = _number(cumulative.get("cost_usd"))
            self._cost_known = cumulative.get("cost_known") is not False

    def _count_pi_cost(self, fields: dict[str, Any]) -> None:
        at: Any = fields
        for key in ("message", "usage", "cost", "total"):
            at = at.get(key) if isinstance(at, dict) else None
        self._cost += _number(at)

    def _wait(self, what: str) -> None:
        self._waiting_for = what
        self._go("waiting")

    def _go(self, state: AgentState) -> None:
        if state != self._state:
            self._state = state
            self._since = self._clock()


def _fields(frame: dict[str, Any] | bytes | str) -> dict[str, Any]:
    """The frame as an object; an empty one for what is none, which then changes nothing."""
    if not isinstance(frame, dict):
        try:
            frame = msgspec.json.decode(frame)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return {}
    return frame if isinstance(frame, dict) else {}


def _text(fields: dict[str, Any], *names: str) -> str:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
