"""Guards: hooks that see each step of a turn before it happens, and allow, block or change it; and
the permanent approval rules of a project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

from zot.bugs import report_bug
from zot.cancel import Cancel
from zot.core.events import Event, Reason
from zot.provider.types import Json, Message, ToolCall, ToolResult, Usage
from zot.text import Frozen

Decider = Literal["user", "remembered", "policy", "yolo"]
"""Source of a decision: a person now, a person earlier, a rule or guard, or nobody."""
Wish = Literal["", "allow", "ask"]
"""Wish of a guard for the approval behind it: skip the question, or ask in any case."""


ApprovalMode = Literal["ask", "ask_all", "edits", "plan", "yolo"]
"""ask: as configured; ask_all: before every tool; edits: like ask, but files of the project are
changed unasked; plan: tools that read run, all others are refused; yolo: never."""


class Allow(Frozen):
    """Let the call run."""

    source: Decider | None = None
    """Source of the permission; None: nobody was asked."""
    wish: Wish = ""
    note: str = ""
    """Note for the model, added to the result."""


class Block(Frozen):
    """Refuse the call; the model gets the reason."""

    reason: str
    source: Decider = "policy"


class ReplaceArgs(Frozen):
    """Run the call with other arguments."""

    args: dict[str, Json]
    note: str = ""
    """Note for the model, added to the result, about arguments it did not choose."""
    source: Decider | None = None
    """Source of the permission; None: nobody was asked."""
    wish: Wish = ""


class ReplaceText(Frozen):
    """Send another text in place of the answer."""

    text: str


class AddText(Frozen):
    """Go on, and give the model this text too."""

    text: str


ALLOW = Allow()
Verdict = TypeVar("Verdict")


class HookContext(Frozen):
    """Cancel and event stream of the run that a hook works in."""

    cancel: Cancel
    emit: Callable[[Event], None]
    """Send an event to the client (an approval request), in order with all other events."""
    wish: Wish = ""
    """Wish of an earlier guard about this tool call."""
    spend: Callable[[Usage], None] = lambda usage: None
    """Add to the run's cost, for a guard that calls a model."""


class Permission(Frozen):
    """Decision about one tool call."""

    decision: Literal["approved", "denied", "cancelled"]
    source: Decider
    stage: Literal["pre_execution", "tool_execution"] = "pre_execution"
    """`tool_execution`: the tool itself refused, after the call was allowed."""
    reason: str = ""


SubagentStatus = Literal["running", "completed", "failed", "cancelled", "timed_out"]


class Subagent(Frozen):
    """A sub-agent that a tool opened or closed."""

    id: str
    """Name of the agent, unique in the process."""
    run: str
    """Session id of the agent."""
    status: SubagentStatus


class Hook:
    """A guard that allows everything. Override what you care about.

    Hooks run in the given order; each sees the replacements of those before it; the first block
    wins. A hook that raises blocks: a broken guard must not let calls through.
    """

    idle = False
    """True: the hook currently allows everything and is skipped."""

    def before_start(self, system: str, context: HookContext) -> Allow | Block | ReplaceText:
        """Check the first model call of a conversation; may replace the system prompt."""
        return ALLOW

    def before_prompt(self, text: str, context: HookContext) -> Allow | Block | AddText:
        """Check a user message before it is stored; may add a text for the model."""
        return ALLOW

    def before_turn(self, step: int, context: HookContext) -> Allow | Block:
        """Check a model call before it is made; `step` counts those of the run."""
        return ALLOW

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        """Check a tool call before it runs; may replace its arguments."""
        return ALLOW

    def after_tool(
        self, call: ToolCall, result: ToolResult, context: HookContext
    ) -> Allow | AddText:
        """See the result of a tool that succeeded; may add a text for the model. May be called
        from several threads at once."""
        return ALLOW

    def before_reply(self, message: Message, context: HookContext) -> Allow | Block | ReplaceText:
        """Check an assistant message before it is stored. Its deltas were already sent."""
        return ALLOW

    def before_stop(self, context: HookContext) -> Allow | AddText:
        """Check the end of a run; AddText sends the model another message instead."""
        return ALLOW

    def before_compact(
        self, reason: Reason, instructions: str, context: HookContext
    ) -> Allow | Block:
        """Check a compaction before it begins."""
        return ALLOW

    def closed(self) -> None:
        """Release resources; the runtime is closing and starts no more runs."""

    def tool_decided(self, call: ToolCall, permission: Permission) -> None:
        """Receive the final decision about a call; too late to change it."""

    def subagent_changed(self, subagent: Subagent) -> None:
        """Receive the start (`running`) or end of a sub-agent."""


def asked_for(moment: str, hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return the hooks that override the method `moment`."""
    usual = getattr(Hook, moment)
    asks = ((hook, getattr(hook, moment)) for hook in hooks)
    return tuple(hook for hook, ask in asks if getattr(ask, "__func__", None) is not usual)


def asked(ask: Callable[[], Verdict]) -> Verdict | Block:
    """Return a guard's verdict; Block if the guard raises."""
    try:
        return ask()
    except Exception as error:
        # A bug in a guard: the blocked side gets the reason, stderr the traceback.
        report_bug(error)
        return Block(f"a guard failed: {type(error).__name__}: {error}")


# --- approval rules ----------------------------------------------------------------------------


ANY = "*"
"""Pattern for all calls of a tool."""


class Rule(Frozen, omit_defaults=True):
    """Calls of a tool that run without approval, or never."""

    tool: str
    """`write` covers `edit` too."""
    pattern: str
    """Pattern of a command or path; see runtime/rules.py."""
    deny: bool = False
    """The calls never run; wins over all rules that allow."""


def nothing_hidden(path: str) -> bool:
    return False


class Project(Frozen):
    """Where rules apply."""

    cwd: str
    environ: Mapping[str, str]
    hidden: Callable[[str], bool] = nothing_hidden
    """Whether the model must not see a file, by its absolute path."""


class Rules(Protocol):
    """The rules of one project."""

    def all(self) -> Sequence[Rule]:
        """Return all rules. Raises ConfigError when they cannot be read."""

    def add(self, rule: Rule) -> None:
        """Add a rule. Raises ConfigError when it cannot be written."""

    def remove(self, rule: Rule) -> bool:
        """Remove a rule; False: it does not exist. Raises ConfigError when it cannot be written."""
