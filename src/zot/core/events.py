"""Events of a run: the superset from which every dialect takes its own. No wire format here.

Order of a run's events, equal for every listener (star: any number, brackets: optional):

    UserMessage turn* [ErrorRaised] Done
    turn  = void* TurnStart [AssistantStart delta*] [CacheMissed] [UsageReport] [AssistantMessage]
            ToolCalled* TurnEnd (ToolStarted [ToolAllowed ToolProgress*] ToolReturned)*
    void  = TurnStart AssistantStart delta* [UsageReport] (Retrying | FellBack) TurnEnd{again}
    delta = TextDelta | ReasoningDelta | ToolCallStart | ToolCallArgs | ToolCallEnd

A void turn is a model call that was cut off in its answer and is repeated: discard its output. A
call that failed before any output is repeated inside its turn, after a Retrying. Deltas, retries
and model changes are the provider's own events, passed on unchanged.
"""

from __future__ import annotations

from typing import Literal

from zot.provider.types import CacheMissed as CacheMissed
from zot.provider.types import FellBack as FellBack
from zot.provider.types import Json, Message, Stop, ToolCall, ToolResult, Usage
from zot.provider.types import ReasoningDelta as ReasoningDelta
from zot.provider.types import Retrying as Retrying
from zot.provider.types import TextDelta as TextDelta
from zot.provider.types import ToolCallArgs as ToolCallArgs
from zot.provider.types import ToolCallEnd as ToolCallEnd
from zot.provider.types import ToolCallStart as ToolCallStart
from zot.text import Frozen


class UserMessage(Frozen):
    message: Message
    queued: bool = False
    """The message arrived during the run and was queued."""


class TurnStart(Frozen):
    step: int
    """1 for the first model call of a prompt."""


class AssistantStart(Frozen):
    provider: str
    model: str
    api: str


class UsageReport(Frozen):
    usage: Usage
    cumulative: Usage


class AssistantMessage(Frozen):
    message: Message


class OfCall(Frozen):
    call: ToolCall


class ToolCalled(OfCall):
    """The model called a tool; all calls of a turn are announced before the first one runs."""


class TurnEnd(Frozen):
    """End of one model call; its tools run after this."""

    stop: Stop
    error: str | None = None
    code: str | None = None
    """Error code (`ZotError.code`), for clients that requested codes."""
    again: bool = False
    """The answer was cut off and is void: the next turn repeats the call. `stop` is `length` then,
    because many clients end the run on `error` and none would know a new value."""


class ToolStarted(OfCall):
    """A call is next in line: the guards are consulted now."""


class ToolAllowed(OfCall):
    """Every guard allowed the call and the tool starts. `call` has the final arguments."""


class ToolProgress(Frozen):
    id: str
    text: str


Replay = Literal["never", "reconcile", "idempotent", "safe"]
"""Treatment of a tool call that a crash cut off: tell the model that it may have taken effect; ask
the tool for its outcome; run it again with the same key; run it again."""
ToolStatus = Literal["completed", "failed", "blocked", "cancelled", "timed_out"]


class ToolReturned(OfCall):
    result: ToolResult
    seconds: float = 0.0
    status: ToolStatus = "completed"
    executed: bool = True
    """Whether the tool's code was entered, whatever its outcome."""
    args: dict[str, Json] | None = None
    """Arguments after the guards' changes; None: those of the call."""


class ErrorRaised(Frozen):
    message: str
    code: str = "error"


class Done(Frozen):
    """End of a run: exactly one for every prompt and every compact, in all cases."""

    stop: Stop = "end"
    run: str = ""
    """Id of a durable run."""


class OpenCall(Frozen):
    """A call that a crash cut off, and how it is treated."""

    id: str
    name: str
    started: bool
    """The tool had started, so it may have taken effect."""
    replay: Replay


class RunResumed(Frozen):
    """A run started by another process continues here. A turn that was open is void."""

    run: str
    attempt: int
    away: float
    """Seconds since the run's last recorded activity."""
    open: tuple[OpenCall, ...] = ()


class RunHeld(Frozen):
    """A run that was cut off waits for a client's decision."""

    run: str
    attempt: int
    reason: str


class RunSuspended(Frozen):
    """Sent instead of Done: the process ends, and the next one continues the run."""

    run: str


Reason = Literal["manual", "threshold", "overflow"]
"""Why a conversation is compacted: on request, near the limit of the window, or past it."""


class CompactStart(Frozen):
    reason: Reason
    messages: int = 0
    """Messages in the context."""
    tokens: int = 0


class CompactDone(Frozen):
    summary: str
    reason: Reason
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()
    first_kept: str = ""
    """Id of the first session entry that was kept verbatim."""
    messages: int = 0
    """Messages in the context afterwards."""


class CompactFailed(Frozen):
    reason: Reason
    error: str
    aborted: bool = False
    messages: int = 0
    tokens: int = 0


class QueueUpdate(Frozen):
    """Queued texts: for the end of the current tool, and for the end of the run."""

    steering: tuple[str, ...]
    follow_up: tuple[str, ...]
    taken: bool = False
    """Messages left the queue; their UserMessage events follow."""


class ApprovalRequest(Frozen):
    id: str
    call: ToolCall
    preview: str
    timeout: float
    pattern: str = ""
    """Default pattern for `allow_project` and `deny_project`."""
    diff: str = ""
    """Diff of the file that the call would change; empty: none, or the call would fail."""
    line: int = 0
    """Number of the first changed line."""
    review: str = ""
    """Why the reviewer (`--approve auto`) leaves the decision to a person."""


class ApprovalResolved(Frozen):
    id: str
    call_id: str
    decision: Literal["allow", "deny"]
    source: Literal["client", "remembered", "timeout", "abort", "reviewer"]
    reason: str = ""
    """The reviewer's reason."""


class ExtensionNotify(Frozen):
    extension: str
    level: str
    message: str


class ExtensionDisplay(Frozen):
    extension: str
    text: str


class ExtensionPanel(Frozen):
    """An extension opened, drew or closed a panel."""

    extension: str
    action: Literal["open", "render", "close"]
    panel: dict[str, Json]


class DialogText(Frozen):
    """Texts of a question to a person."""

    title: str
    message: str = ""
    options: tuple[str, ...] = ()
    """Choices for `select`."""
    placeholder: str = ""
    prefill: str = ""

    def texts(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in DialogText.__struct_fields__}


class ExtensionAsk(DialogText, kw_only=True):
    """An extension asks the user a question and waits for the answer."""

    id: str
    extension: str
    method: Literal["confirm", "select", "input", "editor"]
    timeout: float = 300.0
    """Seconds."""


class ServerChanged(Frozen):
    """The state of an MCP server changed."""

    name: str
    state: str
    tools: int = 0
    error: str = ""


Event = (
    UserMessage
    | TurnStart
    | AssistantStart
    | TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallArgs
    | ToolCallEnd
    | UsageReport
    | AssistantMessage
    | ToolCalled
    | TurnEnd
    | ToolStarted
    | ToolAllowed
    | ToolProgress
    | ToolReturned
    | ErrorRaised
    | Done
    | RunResumed
    | RunHeld
    | RunSuspended
    | CompactStart
    | CompactDone
    | CompactFailed
    | Retrying
    | FellBack
    | CacheMissed
    | QueueUpdate
    | ApprovalRequest
    | ApprovalResolved
    | ExtensionNotify
    | ExtensionDisplay
    | ExtensionPanel
    | ExtensionAsk
    | ServerChanged
)
