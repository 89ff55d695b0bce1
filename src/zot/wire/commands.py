"""Commands that a client can send to a runtime. The fields are named as on the zot wire, so that
its dialect decodes straight into these types; other dialects build them by hand.
"""

from typing import Annotated, Literal, final, get_args

from msgspec import Meta, field

from zot.core.confinement import JailWords
from zot.core.hook import ApprovalMode as ApprovalMode
from zot.provider.types import Json, Level
from zot.text import Frozen
from zot.wire.zot import Command, Hello, Ping

Count = Annotated[int, Meta(ge=0)]
Whole = Annotated[int, Meta(gt=0)]
Amount = Annotated[float, Meta(gt=0)]


class ImageData(Frozen):
    mime_type: str
    data: bytes
    """Base64 on the wire."""


class LimitsData(Frozen):
    """Default limits of each prompt."""

    max_steps: Whole | None = None
    max_cost: Amount | None = None
    """US dollars."""
    max_tokens: Whole | None = None
    max_seconds: Amount | None = None


@final
class Prompt(Command, LimitsData, tag="prompt"):
    message: str = ""
    images: tuple[ImageData, ...] | None = None
    run: str = ""
    """With --durable: the client's name for the run. A name that is known is not run again."""
    schema: dict[str, Json] | None = None
    """JSON Schema that the last text of the run must fit; else it fails with `invalid_output`."""


class ResumeRun(Command, tag="resume_run"):
    """Continue a run that is held after a crash, or end it as failed."""

    run: str
    decision: Literal["continue", "fail"] = "continue"


class RetryPrompt(Command, tag="retry_prompt"):
    """Retry the last prompt, which failed or was aborted; its message is not added again."""


class Events(Command, tag="events"):
    """With --durable: read the events after a sequence number, also those of earlier processes."""

    after: Count = field(default=0, name="from")
    """The `seq` of the last frame that the client has."""
    limit: Whole = 1000


class AddedMessage(Command):
    message: str = ""
    images: tuple[ImageData, ...] | None = None


class Steer(AddedMessage, tag="steer"):
    """Add a message to the running turn, after the current tool."""


class FollowUp(AddedMessage, tag="follow_up"):
    """Add a message to the running prompt, delivered when the model would stop."""


class Abort(Command, tag="abort"):
    target: str | int | float | None = None
    """Id of a running or queued prompt or compact; default: the running one."""


class Compact(Command, tag="compact"):
    instructions: str = ""


class GetState(Command, tag="get_state"): ...


class GetMessages(Command, tag="get_messages"):
    offset: Count = 0
    limit: Count | None = None


class Clear(Command, tag="clear"): ...


class SetModel(Command, tag="set_model"):
    model: str
    """An id, or PROVIDER/ID."""
    provider: str = ""
    """Provider of the model; empty: the current one."""


class SetReasoning(Command, tag="set_reasoning"):
    reasoning: Level


class SetJail(Command, tag="set_jail"):
    """Confine the tools to the working directory, or lift that."""

    jail: JailWords
    """A switch, or words such as `read-only` or `best`."""


class SetMode(Command, tag="set_mode"):
    """Choose what runs without approval."""

    mode: ApprovalMode


class GetModels(Command, tag="get_models"):
    all: bool = False
    """List the models of every provider with a credential; default: the current provider."""


class GetCommands(Command, tag="get_commands"):
    """List the slash commands: those of extensions, skills and prompt files."""


class RunCommand(Command, tag="run_command"):
    """Run a command of an extension, a skill or a prompt file, as if `/name args` was typed."""

    name: str
    args: str = ""
    submit: bool = True
    """Run the prompt that the command returns, if any."""


class ReloadExt(Command, tag="reload_ext"):
    """Stop all extensions and start those installed now; the conversation continues."""


class OfPanel(Command):
    extension: str
    panel_id: str


class PanelKey(OfPanel, tag="panel_key"):
    """Send a key to a panel of an extension, which `ext_panel` announced."""

    key: str
    text: str = ""


class PanelResize(OfPanel, tag="panel_resize"):
    """Report the new size of an extension's panel, in columns and rows."""

    width: Whole
    height: Whole


class PanelClose(OfPanel, tag="panel_close"): ...


class RunShell(Command, tag="run_shell"):
    """Run a shell command of the user; add it and its output to the transcript."""

    command: str
    hidden: bool = False
    """Hide the command and its output from the model."""


class AbortShell(Command, tag="abort_shell"):
    """Kill the running shell commands."""


class NewSession(Command, tag="new_session"):
    """Start a new session; the previous one is kept."""


class ListSessions(Command, tag="list_sessions"):
    """List the stored sessions of this directory, latest first."""

    all: bool = False
    """List the sessions of all directories."""
    limit: Count = 100


class LoadSession(Command, tag="load_session"):
    """Continue a stored session."""

    session: str
    """A path, the beginning or end of an id, or `latest`."""


class ForkSession(Command, tag="fork_session"):
    """Copy a session into a new file and continue there."""

    session: str = ""
    """Empty: the current one."""
    at: str | Count | None = None
    """Copy up to this entry id, or this number of messages; default: all."""
    load: bool = True
    """Continue with the copy."""


class ExportSession(Command, tag="export_session"):
    session: str = ""
    """Empty: the current one."""
    format: Literal["zotsession", "json", "markdown", "html", "pi"] = "zotsession"
    path: str = ""
    """File or directory to write to; empty: the response carries the content."""


class Checkpoints(Command, tag="checkpoints"):
    """List the prompts of the conversation, which `rewind` can go back to."""


class Rewind(Command, tag="rewind"):
    """Go back to before a prompt: the conversation, the files that tools changed, or both."""

    to: str = ""
    """The id of a checkpoint; empty: the last prompt."""
    conversation: bool = True
    files: bool = True
    preview: bool = False
    """Report what would change, without changing it."""
    force: bool = False
    """Restore also files that someone else changed."""


class GetChanges(Command, tag="get_changes"):
    """List the changes that tools made to the user's files in this session."""


class TextData(Frozen, tag_field="type", tag="text"):
    text: str


class ImageBlockData(ImageData, tag_field="type", tag="image"):
    """An image with its data, where an event has only its size."""


class ToolCallData(Frozen, tag_field="type", tag="tool_call"):
    id: str
    name: str
    args: dict[str, Json] = {}


class ToolResultData(Frozen, tag_field="type", tag="tool_result"):
    call_id: str
    content: tuple[TextData | ImageBlockData, ...]
    is_error: bool = False


class MessageData(Frozen):
    role: Literal["user", "assistant", "tool"]
    content: tuple[TextData | ImageBlockData | ToolCallData | ToolResultData, ...]
    time: str = ""
    """RFC 3339; empty: now."""


class SetMessages(Command, tag="set_messages"):
    """Replace the transcript; for embedders that keep their own."""

    messages: tuple[MessageData, ...]


class Answer(Command, tag="answer"):
    """Answer an `ext_ask`."""

    request_id: str
    value: str | None = None
    confirmed: bool = False
    cancelled: bool = False


class OpenAgent(Command, tag="open_agent"):
    """Open another agent (feature `agents`); omitted fields are those the process started with."""

    agent: str = ""
    """Name of the agent, at most 64 bytes; empty: generate one."""
    cwd: str = ""
    provider: str = ""
    model: str = ""
    session: str = ""
    """Session file to continue or create; empty: keep the session in memory."""
    tools: tuple[str, ...] | None = None
    limits: LimitsData | None = None
    approve: tuple[str, ...] | None = None
    """Tools that need approval before they run, as with `--approve`."""
    jail: JailWords | None = None
    durable: bool = False
    """Continue a run cut off by a crash when the session is opened again; needs a session."""


class CloseAgent(Command, tag="close_agent"):
    """Abort and close an agent; the response is sent once it is closed."""

    agent: str


class ListAgents(Command, tag="list_agents"):
    """List the named agents."""


class Approve(Command, tag="approve"):
    """Answer an `approval_request`."""

    request_id: str
    decision: Literal["allow", "deny", "allow_session", "allow_project", "deny_project"]
    reason: str = ""
    """Reason for a denial, shown to the model."""
    pattern: str = ""
    """Pattern that `allow_project` or `deny_project` stores; empty: the one the request offered."""
    args: dict[str, Json] | None = None
    """Arguments to run the tool with, replacing the model's."""


class GetApprovals(Command, tag="get_approvals"):
    """List the rules for calls that run without approval, or never, here or in this session."""


class RemoveApproval(Command, tag="remove_approval"):
    """Require approval again."""

    tool: str
    pattern: str


Starting = RetryPrompt | Compact | Steer | FollowUp
"""Commands that, like a prompt, may start a run; answered when it is accepted."""
Slow = GetCommands | RunCommand | ReloadExt | RunShell
"""Commands that wait for an extension or a shell command."""
OfAgents = OpenAgent | CloseAgent | ListAgents
Query = GetState | GetModels | GetApprovals | Events
OfSession = NewSession | ListSessions | LoadSession | ForkSession | ExportSession | SetMessages
OfChanges = Checkpoints | Rewind | GetChanges
Switch = Clear | SetModel | SetReasoning | SetJail | SetMode | ResumeRun | Abort | AbortShell
Reply = Approve | RemoveApproval | Answer | PanelKey | PanelResize | PanelClose
Quick = Query | OfSession | OfChanges | Switch | Reply
"""Commands that the thread which reads commands executes."""
AnyCommand = Hello | Ping | Prompt | GetMessages | Starting | Slow | OfAgents | Quick

BY_NAME: dict[str, type[AnyCommand]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyCommand)
}
"""Every command by its `type`."""
