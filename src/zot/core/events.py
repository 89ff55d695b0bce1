"""What happens in a run: the superset that every dialect projects from. No wire shape here.

Order of a run, as every listener sees it (a star: any number, brackets: perhaps):

    UserMessage turn* [ErrorRaised] Done
    turn  = void* TurnStart [AssistantStart delta*] [UsageReport] [AssistantMessage] ToolCalled*
            TurnEnd (ToolStarted [ToolAllowed ToolProgress*] ToolReturned)*
    void  = TurnStart AssistantStart delta* [UsageReport] (Retrying | FellBack) TurnEnd{again}
    delta = TextDelta | ReasoningDelta | ToolCallStart | ToolCallArgs | ToolCallEnd

A void turn is a model call that was cut in its answer and is made again: forget what it said. A
call that failed before it said anything is made again inside its turn, after a Retrying.
Deltas, retries and a change of the model are the provider's own events, handed on as they are.
"""

from __future__ import annotations

from typing import Literal

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
    """It came while the run was at work, and waited."""


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
    """The model asked for a tool; all calls of a turn are announced before the first one runs."""


class TurnEnd(Frozen):
    """One model call is over; its tools run after this."""

    stop: Stop
    error: str | None = None
    code: str | None = None
    """The error's class (`ZotError.code`), for clients that asked for codes."""
    again: bool = False
    """The answer was cut and is void: the next turn makes the same call again. `stop` is `length`
    then: `error` is the end of the run for many clients, and a word of its own none would know."""


class ToolStarted(OfCall):
    """Its turn has come: guards are asked about it."""


class ToolAllowed(OfCall):
    """Every guard let the call pass: the tool begins. `call` has the arguments it runs with."""


class ToolProgress(Frozen):
    id: str
    text: str


Replay = Literal["never", "reconcile", "idempotent", "safe"]
"""What may be done with a tool call that a crash cut off: tell the model that it may have taken
effect; ask the tool what became of it; run it again with the same key; run it again."""
ToolStatus = Literal["completed", "failed", "blocked", "cancelled", "timed_out"]


class ToolReturned(OfCall):
    result: ToolResult
    seconds: float = 0.0
    status: ToolStatus = "completed"
    executed: bool = True
    """The tool itself was entered, whatever it did then."""
    args: dict[str, Json] | None = None
    """What it ran with after the guards, or would have; None: as in the call."""


class ErrorRaised(Frozen):
    message: str
    code: str = "error"


class Done(Frozen):
    """The run is over: exactly one for every prompt and every compact, whatever happened."""

    stop: Stop = "end"
    run: str = ""
    """The name of a durable run."""


class OpenCall(Frozen):
    """A call that a crash cut off, and what is done about it."""

    id: str
    name: str
    started: bool
    """It had begun: it may have taken effect."""
    replay: Replay


class RunResumed(Frozen):
    """A run that another process began goes on here. A turn that was open is void."""

    run: str
    attempt: int
    away: float
    """Seconds since something was last heard of it."""
    open: tuple[OpenCall, ...] = ()


class RunHeld(Frozen):
    """A run that was cut off waits for somebody to say how it goes on."""

    run: str
    attempt: int
    reason: str


class RunSuspended(Frozen):
    """In the place of Done: the process ends, and the run goes on when the next one starts."""

    run: str


class CompactStart(Frozen):
    reason: Literal["manual", "threshold", "overflow"]
    messages: int = 0
    """How many there are in the context."""
    tokens: int = 0


class CompactDone(Frozen):
    summary: str
    reason: Literal["manual", "threshold", "overflow"]
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()
    first_kept: str = ""
    """Id of the first session entry that was kept verbatim."""
    messages: int = 0
    """How many there are in the context now."""


class CompactFailed(Frozen):
    reason: Literal["manual", "threshold", "overflow"]
    error: str
    aborted: bool = False
    messages: int = 0
    tokens: int = 0


class QueueUpdate(Frozen):
    """Texts that wait: for the next tool's end, and for the end of the run."""

    steering: tuple[str, ...]
    follow_up: tuple[str, ...]
    taken: bool = False
    """Some were taken: the user messages they became follow."""


class ApprovalRequest(Frozen):
    id: str
    call: ToolCall
    preview: str
    timeout: float
    pattern: str = ""
    """What `allow_project` would allow from now on, unless another pattern is given."""
    diff: str = ""
    """What the call would change in its file; empty: it changes none, or would fail."""
    line: int = 0
    """The first line that changes."""


class ApprovalResolved(Frozen):
    id: str
    call_id: str
    decision: Literal["allow", "deny"]
    source: Literal["client", "remembered", "timeout", "abort"]


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
    """What a person reads who is asked something."""

    title: str
    message: str = ""
    options: tuple[str, ...] = ()
    """What `select` offers."""
    placeholder: str = ""
    prefill: str = ""

    def texts(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in DialogText.__struct_fields__}


class ExtensionAsk(DialogText, kw_only=True):
    """An extension asks the person in front of zot something, and waits."""

    id: str
    extension: str
    method: Literal["confirm", "select", "input", "editor"]
    timeout: float = 300.0
    """Seconds."""


class ServerChanged(Frozen):
    """An MCP server is in another state than before."""

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
    | QueueUpdate
    | ApprovalRequest
    | ApprovalResolved
    | ExtensionNotify
    | ExtensionDisplay
    | ExtensionPanel
    | ExtensionAsk
    | ServerChanged
)
