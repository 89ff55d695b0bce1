"""What a client can ask of a runtime. The field names are those of the zot wire, so that its
dialect decodes straight into these types; other dialects build them by hand.
"""

from typing import Annotated, Literal, final, get_args

from msgspec import Meta, field

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
    """What each prompt may use up, where it does not say itself."""

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
    """With --durable: the client's own name for the run. The same one again is not run twice."""


class ResumeRun(Command, tag="resume_run"):
    """Say how a run goes on that is held after a crash."""

    run: str
    decision: Literal["continue", "fail"] = "continue"


class RetryPrompt(Command, tag="retry_prompt"):
    """Answer the last prompt once more, which failed or was aborted; it is not said again."""


class Events(Command, tag="events"):
    """With --durable: the events that were sent behind a number, also by processes before."""

    after: Count = field(default=0, name="from")
    """The `seq` of the last frame that is known."""
    limit: Whole = 1000


class AddedMessage(Command):
    message: str = ""
    images: tuple[ImageData, ...] | None = None


class Steer(AddedMessage, tag="steer"):
    """Put a message into the running turn, after the current tool."""


class FollowUp(AddedMessage, tag="follow_up"):
    """Put a message into the running prompt, for when the model would stop."""


class Abort(Command, tag="abort"):
    target: str | int | float | None = None
    """The id of a prompt or compact that runs or waits; by default the running one."""


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
    """Whose model it is; empty: the present one's."""


class SetReasoning(Command, tag="set_reasoning"):
    reasoning: Level


class SetJail(Command, tag="set_jail"):
    """Keep the tools inside the working directory, or let them out."""

    jail: bool


class GetModels(Command, tag="get_models"):
    all: bool = False
    """Of every provider with a credential; by default of the present one."""


class GetCommands(Command, tag="get_commands"):
    """What a person can type after a slash: commands of extensions, skills, prompt files."""


class RunCommand(Command, tag="run_command"):
    """Run a command of an extension, a skill or a prompt file, as if `/name args` was typed."""

    name: str
    args: str = ""
    submit: bool = True
    """Run the prompt that the command gives, if it gives one."""


class ReloadExt(Command, tag="reload_ext"):
    """Stop all extensions and start those that are there now; the conversation goes on."""


class OfPanel(Command):
    extension: str
    panel_id: str


class PanelKey(OfPanel, tag="panel_key"):
    """A key for a panel of an extension, told by `ext_panel`."""

    key: str
    text: str = ""


class PanelResize(OfPanel, tag="panel_resize"):
    """How many columns and rows a panel of an extension has now."""

    width: Whole
    height: Whole


class PanelClose(OfPanel, tag="panel_close"): ...


class RunShell(Command, tag="run_shell"):
    """Run a shell command of the user's; it and its output go into the transcript."""

    command: str
    hidden: bool = False
    """The model does not see it."""


class AbortShell(Command, tag="abort_shell"):
    """End the shell commands that run."""


class NewSession(Command, tag="new_session"):
    """Begin anew; the session before it stays."""


class ListSessions(Command, tag="list_sessions"):
    """What is kept of this directory, latest first."""

    all: bool = False
    """Of all directories."""
    limit: Count = 100


class LoadSession(Command, tag="load_session"):
    """Go on with a kept session."""

    session: str
    """A path, the beginning or end of an id, or `latest`."""


class ForkSession(Command, tag="fork_session"):
    """Copy a session into a new file, and go on there."""

    session: str = ""
    """Empty: the current one."""
    at: str | Count | None = None
    """Up to this entry, or so many messages; by default all."""
    load: bool = True
    """Go on with the copy."""


class ExportSession(Command, tag="export_session"):
    session: str = ""
    """Empty: the current one."""
    format: Literal["zotsession", "json", "markdown", "html", "pi"] = "zotsession"
    path: str = ""
    """A file or directory to write to; empty: the answer carries the content."""


class Checkpoints(Command, tag="checkpoints"):
    """The prompts of the conversation: where `rewind` can go back to."""


class Rewind(Command, tag="rewind"):
    """Go back to before a prompt: the conversation, the files that tools changed, or both."""

    to: str = ""
    """The id of a checkpoint; empty: the last prompt."""
    conversation: bool = True
    files: bool = True
    preview: bool = False
    """Only say what would be done."""
    force: bool = False
    """Also files that someone else changed."""


class GetChanges(Command, tag="get_changes"):
    """What tools changed in the files of the user's in this session."""


class TextData(Frozen, tag_field="type", tag="text"):
    text: str


class ImageBlockData(ImageData, tag_field="type", tag="image"):
    """Here the picture itself is needed, not its size."""


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
    """Replace the transcript, by an embedder that keeps its own."""

    messages: tuple[MessageData, ...]


class Answer(Command, tag="answer"):
    """Answer an `ext_ask`."""

    request_id: str
    value: str | None = None
    confirmed: bool = False
    cancelled: bool = False


class OpenAgent(Command, tag="open_agent"):
    """One more agent in this process (feature `agents`); what is left out is as at its start."""

    agent: str = ""
    """Its name, at most 64 bytes; empty: one is made up."""
    cwd: str = ""
    provider: str = ""
    model: str = ""
    session: str = ""
    """A session file to go on with, or to begin; empty: it is kept in memory."""
    tools: tuple[str, ...] | None = None
    limits: LimitsData | None = None
    approve: tuple[str, ...] | None = None
    """Tools to ask about before they run, as `--approve`."""
    jail: bool | None = None
    durable: bool = False
    """A run that a crash cuts off goes on when the session is opened again; needs a session."""


class CloseAgent(Command, tag="close_agent"):
    """Abort what an agent does and let go of it; answered when it is gone."""

    agent: str


class ListAgents(Command, tag="list_agents"):
    """The named agents."""


class Approve(Command, tag="approve"):
    """Answer an `approval_request`."""

    request_id: str
    decision: Literal["allow", "deny", "allow_session", "allow_project"]
    reason: str = ""
    """Of a denial; the model reads it."""
    pattern: str = ""
    """What `allow_project` allows from now on; empty: what the request offered."""
    args: dict[str, Json] | None = None
    """Arguments to run the tool with, in the place of the model's."""


class GetApprovals(Command, tag="get_approvals"):
    """What runs without a question, because it was allowed for the project or this session."""


class RemoveApproval(Command, tag="remove_approval"):
    """Ask again from now on."""

    tool: str
    pattern: str


OtherCommand = (
    RetryPrompt
    | ResumeRun
    | Events
    | Steer
    | FollowUp
    | Abort
    | Compact
    | GetState
    | GetMessages
    | Clear
    | SetModel
    | SetReasoning
    | SetJail
    | GetModels
    | GetCommands
    | RunCommand
    | ReloadExt
    | PanelKey
    | PanelResize
    | PanelClose
    | RunShell
    | AbortShell
    | NewSession
    | ListSessions
    | LoadSession
    | ForkSession
    | ExportSession
    | Checkpoints
    | Rewind
    | GetChanges
    | SetMessages
    | Answer
    | OpenAgent
    | CloseAgent
    | ListAgents
    | Approve
    | GetApprovals
    | RemoveApproval
)
AnyCommand = Hello | Ping | Prompt | OtherCommand

BY_NAME: dict[str, type[AnyCommand]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyCommand)
}
"""Every command by its word."""

Change = (
    Clear
    | SetModel
    | SetReasoning
    | SetJail
    | Approve
    | RemoveApproval
    | Answer
    | PanelKey
    | PanelResize
    | PanelClose
    | AbortShell
    | ResumeRun
)
"""Commands that are done when they are answered."""
