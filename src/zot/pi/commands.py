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


class Prompt(PiCommand, frozen=True, tag="prompt"):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None
    attachments: tuple[dict[str, Json], ...] | None = None
    streamingBehavior: Literal["steer", "followUp"] | None = None


class Steer(PiCommand, frozen=True, tag="steer"):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None


class FollowUp(PiCommand, frozen=True, tag="follow_up"):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None


class Abort(PiCommand, frozen=True, tag="abort"):
    pass


class ClearQueue(PiCommand, frozen=True, tag="clear_queue"):
    pass


class NewSession(PiCommand, frozen=True, tag="new_session"):
    parentSession: str | None = None


class GetState(PiCommand, frozen=True, tag="get_state"):
    pass


class GetMessages(PiCommand, frozen=True, tag="get_messages"):
    pass


class SetModel(PiCommand, frozen=True, tag="set_model"):
    provider: str
    modelId: str


class CycleModel(PiCommand, frozen=True, tag="cycle_model"):
    pass


class GetAvailableModels(PiCommand, frozen=True, tag="get_available_models"):
    pass


class SetThinkingLevel(PiCommand, frozen=True, tag="set_thinking_level"):
    level: str


class CycleThinkingLevel(PiCommand, frozen=True, tag="cycle_thinking_level"):
    pass


class GetAvailableThinkingLevels(PiCommand, frozen=True, tag="get_available_thinking_levels"):
    pass


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


class AbortRetry(PiCommand, frozen=True, tag="abort_retry"):
    pass


class Bash(PiCommand, frozen=True, tag="bash"):
    command: str
    excludeFromContext: bool = False


class AbortBash(PiCommand, frozen=True, tag="abort_bash"):
    pass


class GetSessionStats(PiCommand, frozen=True, tag="get_session_stats"):
    pass


class ExportHtml(PiCommand, frozen=True, tag="export_html"):
    outputPath: str | None = None


class SwitchSession(PiCommand, frozen=True, tag="switch_session"):
    sessionPath: str


class Fork(PiCommand, frozen=True, tag="fork"):
    entryId: str


class Clone(PiCommand, frozen=True, tag="clone"):
    pass


class GetForkMessages(PiCommand, frozen=True, tag="get_fork_messages"):
    pass


class GetEntries(PiCommand, frozen=True, tag="get_entries"):
    since: str | None = None


class GetTree(PiCommand, frozen=True, tag="get_tree"):
    pass


class GetLastAssistantText(PiCommand, frozen=True, tag="get_last_assistant_text"):
    pass


class SetSessionName(PiCommand, frozen=True, tag="set_session_name"):
    name: str


class GetCommands(PiCommand, frozen=True, tag="get_commands"):
    pass


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
