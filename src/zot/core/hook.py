"""Guards: what may look at a turn before it happens, and allow, block or change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from zot.bugs import report_bug
from zot.cancel import Cancel
from zot.core.events import Event
from zot.provider.types import Json, Message, ToolCall
from zot.text import Frozen

Decider = Literal["user", "remembered", "policy", "yolo"]
"""Who decided about a call: a person, a person before, a rule or a guard, nobody."""


class Allow(Frozen):
    source: Decider | None = None
    """Who allowed it, where somebody was asked."""


class Block(Frozen):
    reason: str
    source: Decider = "policy"


class ReplaceArgs(Frozen):
    args: dict[str, Json]
    note: str = ""
    """Told to the model with the result, for what it did not ask for."""
    source: Decider | None = None
    """Who allowed it, where somebody was asked."""


class ReplaceText(Frozen):
    text: str


ALLOW = Allow()
Verdict = TypeVar("Verdict")


class HookContext(Frozen):
    cancel: Cancel
    emit: Callable[[Event], None]
    """Tell the client something (an approval request); in order with all other events."""


class Permission(Frozen):
    """What was decided about one tool call."""

    decision: Literal["approved", "denied", "cancelled"]
    source: Decider
    stage: Literal["pre_execution", "tool_execution"] = "pre_execution"
    """The second one: the tool itself refused, after the call was allowed."""
    reason: str = ""


SubagentStatus = Literal["running", "completed", "failed", "cancelled", "timed_out"]


class Subagent(Frozen):
    """An agent that a tool of this one opened, or closed again."""

    id: str
    """Its name among the agents of the process."""
    run: str
    """The id of its conversation."""
    status: SubagentStatus


class Hook:
    """A guard that allows everything. Override what you care about.

    Hooks run in the order they were given; a replacement is what the next hook sees; the first
    block wins. A hook that raises blocks: a guard that is broken must not be an open door.
    """

    idle = False
    """True: it allows everything for now, and need not be asked."""

    def before_start(self, system: str, context: HookContext) -> Allow | Block | ReplaceText:
        """Before the first model call of a conversation: may replace the system prompt."""
        return ALLOW

    def before_turn(self, step: int, context: HookContext) -> Allow | Block:
        return ALLOW

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        return ALLOW

    def before_reply(self, message: Message, context: HookContext) -> Allow | Block | ReplaceText:
        """Before an assistant message enters the transcript. Its deltas were already streamed."""
        return ALLOW

    def tool_decided(self, call: ToolCall, permission: Permission) -> None:
        """What all guards together decided about a call; too late to change it."""

    def subagent_changed(self, subagent: Subagent) -> None:
        """An agent below this one begins (`running`) or has ended."""


def asked_for(moment: str, hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Those of the hooks that may have something to say at this moment."""
    usual = getattr(Hook, moment)
    asks = ((hook, getattr(hook, moment)) for hook in hooks)
    return tuple(hook for hook, ask in asks if getattr(ask, "__func__", None) is not usual)


def asked(ask: Callable[[], Verdict]) -> Verdict | Block:
    """What a guard answers; one that fails to answer blocks."""
    try:
        return ask()
    except Exception as error:
        # A bug in a guard: the reason for whoever is blocked, the traceback on stderr for us.
        report_bug(error)
        return Block(f"a guard failed: {type(error).__name__}: {error}")
