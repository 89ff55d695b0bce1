"""What a pi client can ask, in the words of its wire. Shapes only; `dialect.py` reads them.

The three commands of the oldest generation are a part of the newer ones, so there is one table.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zot.provider.types import Json

QueueMode = Literal["all", "one-at-a-time"]


class PiCommand(Struct, frozen=True, tag_field="type"):
    """Base of all commands; unknown fields are ignored, as pi does."""


class ImageContent(Struct, frozen=True):
    mimeType: str
    data: bytes
    """Base64 on the wire."""


class Attachment(Struct, frozen=True):
    """A file that came with a prompt of generation A; the raw object is echoed beside it."""

    type: Literal["image", "document"]
    fileName: str = ""
    mimeType: str = ""
    content: str = ""
    extractedText: str | None = None


class Spoken(PiCommand, frozen=True):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None


class Prompt(Spoken, frozen=True, tag="prompt"):
    attachments: tuple[dict[str, Json], ...] | None = None
    streamingBehavior: Literal["steer", "followUp"] | None = None


class Steer(Spoken, frozen=True, tag="steer"): ...


class FollowUp(Spoken, frozen=True, tag="follow_up"): ...


class Abort(PiCommand, frozen=True, tag="abort"): ...


class ClearQueue(PiCommand, frozen=True, tag="clear_queue"): ...


class NewSession(PiCommand, frozen=True, tag="new_session"):
    parentSession: str | None = None


class GetState(PiCommand, frozen=True, tag="get_state"): ...


class GetMessages(PiCommand, frozen=True, tag="get_messages"): ...


class SetModel(PiCommand, frozen=True, tag="set_model"):
    provider: str
    modelId: str


class CycleModel(PiCommand, frozen=True, tag="cycle_model"): ...


class GetAvailableModels(PiCommand, frozen=True, tag="get_available_models"): ...


class SetThinkingLevel(PiCommand, frozen=True, tag="set_thinking_level"):
    level: str


class CycleThinkingLevel(PiCommand, frozen=True, tag="cycle_thinking_level"): ...


class GetAvailableThinkingLevels(PiCommand, frozen=True, tag="get_available_thinking_levels"): ...


class SetSteeringMode(PiCommand, frozen=True, tag="set_steering_mode"):
    mode: QueueMode


class SetFollowUpMode(PiCommand, frozen=True, tag="set_follow_up_mode"):
    mode: QueueMode


class Compact(PiCommand, frozen=True, tag="compact"):
    customInstructions: str | None = None


class SetAutoCompaction(PiCommand, frozen=True, tag="set_auto_compaction"):
    enabled: bool


class SetAutoRetry(PiCommand, frozen=True, tag="set_auto_retry"):
    enabled: bool


class AbortRetry(PiCommand, frozen=True, tag="abort_retry"): ...


class Bash(PiCommand, frozen=True, tag="bash"):
    command: str
    excludeFromContext: bool = False


class AbortBash(PiCommand, frozen=True, tag="abort_bash"): ...


class GetSessionStats(PiCommand, frozen=True, tag="get_session_stats"): ...


class ExportHtml(PiCommand, frozen=True, tag="export_html"):
    outputPath: str | None = None


class SwitchSession(PiCommand, frozen=True, tag="switch_session"):
    sessionPath: str


class Fork(PiCommand, frozen=True, tag="fork"):
    entryId: str


class Clone(PiCommand, frozen=True, tag="clone"): ...


class GetForkMessages(PiCommand, frozen=True, tag="get_fork_messages"): ...


class GetEntries(PiCommand, frozen=True, tag="get_entries"):
    since: str | None = None


class GetTree(PiCommand, frozen=True, tag="get_tree"): ...


class GetLastAssistantText(PiCommand, frozen=True, tag="get_last_assistant_text"): ...


class SetSessionName(PiCommand, frozen=True, tag="set_session_name"):
    name: str


class GetCommands(PiCommand, frozen=True, tag="get_commands"): ...


class GetProtocol(PiCommand, frozen=True, tag="get_protocol"):
    """Ours, not pi's: what is spoken here. With `generation`, the client says what it speaks."""

    generation: Literal["a", "b", "c"] | None = None


class ExtensionUiResponse(PiCommand, frozen=True, tag="extension_ui_response"):
    """The answer to a dialog; it gets no response of its own."""

    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool = False


Work = Prompt | Steer | FollowUp | Abort | AbortRetry | ClearQueue | Compact
"""What starts, steers or stops a run."""
Setting = SetSteeringMode | SetFollowUpMode | SetAutoCompaction | SetAutoRetry | SetSessionName
Choice = SetModel | CycleModel | SetThinkingLevel | CycleThinkingLevel
Switch = NewSession | SwitchSession | Fork | Clone
Look = (
    GetState
    | GetMessages
    | GetAvailableModels
    | GetAvailableThinkingLevels
    | GetSessionStats
    | GetForkMessages
    | GetEntries
    | GetTree
    | GetLastAssistantText
)
Slow = Bash | ExportHtml | GetCommands
"""What has a thread of its own."""
Aside = AbortBash | GetProtocol | ExtensionUiResponse
AnyPiCommand = Work | Setting | Choice | Switch | Look | Slow | Aside

SPEC_COMMANDS = (Prompt, Abort, Compact)
"""All that generation A knows."""
NEWEST_COMMANDS = (ClearQueue, GetAvailableThinkingLevels)
"""What only clients of generation C send."""
