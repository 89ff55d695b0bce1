"""What a client can ask of a runtime. The field names are those of the zot wire, so that its
dialect decodes straight into these types; other dialects build them by hand.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from zot.provider.types import Level

FEATURES = ("approvals", "codes", "queue", "retries", "seq", "thinking")
"""What a client may ask for in `hello`; without asking it sees only documented frames."""


Count = Annotated[int, Meta(ge=0)]


class Command(Struct, frozen=True, tag_field="type"):
    """Base of all commands; unknown fields are ignored, so old servers survive new clients."""


class ImageData(Struct, frozen=True):
    mime_type: str
    data: bytes
    """Base64 on the wire."""


class Hello(Command, frozen=True, tag="hello"):
    token: str = ""
    features: tuple[str, ...] | None = None


class Prompt(Command, frozen=True, tag="prompt"):
    message: str = ""
    images: tuple[ImageData, ...] | None = None


class Steer(Command, frozen=True, tag="steer"):
    """Put a message into the running turn, after the current tool."""

    message: str = ""
    images: tuple[ImageData, ...] | None = None


class FollowUp(Command, frozen=True, tag="follow_up"):
    """Put a message into the running prompt, for when the model would stop."""

    message: str = ""
    images: tuple[ImageData, ...] | None = None


class Abort(Command, frozen=True, tag="abort"):
    target: str | int | float | None = None
    """The id of a prompt or compact that runs or waits; by default the running one."""


class Compact(Command, frozen=True, tag="compact"):
    instructions: str = ""


class GetState(Command, frozen=True, tag="get_state"):
    pass


class GetMessages(Command, frozen=True, tag="get_messages"):
    offset: Count = 0
    limit: Count | None = None


class Clear(Command, frozen=True, tag="clear"):
    pass


class SetModel(Command, frozen=True, tag="set_model"):
    model: str


class SetReasoning(Command, frozen=True, tag="set_reasoning"):
    reasoning: Level


class GetModels(Command, frozen=True, tag="get_models"):
    pass


class GetCommands(Command, frozen=True, tag="get_commands"):
    """The commands that extensions bring."""


class RunCommand(Command, frozen=True, tag="run_command"):
    """Run a command of an extension, as if the user had typed `/name args`."""

    name: str
    args: str = ""
    submit: bool = True
    """Run the prompt that the command gives, if it gives one."""


class ReloadExt(Command, frozen=True, tag="reload_ext"):
    """Stop all extensions and start those that are there now; the conversation goes on."""


class PanelKey(Command, frozen=True, tag="panel_key"):
    """A key for a panel of an extension, told by `ext_panel`."""

    extension: str
    panel_id: str
    key: str
    text: str = ""


class PanelClose(Command, frozen=True, tag="panel_close"):
    extension: str
    panel_id: str


class Ping(Command, frozen=True, tag="ping"):
    pass


class Approve(Command, frozen=True, tag="approve"):
    """Answer an `approval_request`."""

    request_id: str
    decision: Literal["allow", "deny", "allow_session"]
    reason: str = ""


AnyCommand = (
    Hello
    | Prompt
    | Steer
    | FollowUp
    | Abort
    | Compact
    | GetState
    | GetMessages
    | Clear
    | SetModel
    | SetReasoning
    | GetModels
    | GetCommands
    | RunCommand
    | ReloadExt
    | PanelKey
    | PanelClose
    | Ping
    | Approve
)
