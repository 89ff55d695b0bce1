"""Commands of pi clients, with pi's own names. Types only; `dialect.py` decodes them.

The three commands of the oldest generation are a subset of the newer ones, so there is one table.
"""

from __future__ import annotations

from typing import Literal

from zot.provider.types import Json
from zot.text import Frozen

QueueMode = Literal["all", "one-at-a-time"]


class PiCommand(Frozen, tag_field="type"):
    """Base of all commands; unknown fields are ignored, as pi does."""


class ImageContent(Frozen):
    mimeType: str
    data: bytes
    """Base64 on the wire."""


class Attachment(Frozen):
    """A file sent with a generation A prompt; the raw object is echoed beside it."""

    type: Literal["image", "document"]
    fileName: str = ""
    mimeType: str = ""
    content: str = ""
    extractedText: str | None = None


class Spoken(PiCommand):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None


class Prompt(Spoken, tag="prompt"):
    attachments: tuple[dict[str, Json], ...] | None = None
    streamingBehavior: Literal["steer", "followUp"] | None = None


class Steer(Spoken, tag="steer"): ...


class FollowUp(Spoken, tag="follow_up"): ...


class Abort(PiCommand, tag="abort"): ...


class ClearQueue(PiCommand, tag="clear_queue"): ...


class NewSession(PiCommand, tag="new_session"):
    parentSession: str | None = None


class GetState(PiCommand, tag="get_state"): ...


class GetMessages(PiCommand, tag="get_messages"): ...


class SetModel(PiCommand, tag="set_model"):
    provider: str
    modelId: str


class CycleModel(PiCommand, tag="cycle_model"): ...


class GetAvailableModels(PiCommand, tag="get_available_models"): ...


class SetThinkingLevel(PiCommand, tag="set_thinking_level"):
    level: str


class CycleThinkingLevel(PiCommand, tag="cycle_thinking_level"): ...


class GetAvailableThinkingLevels(PiCommand, tag="get_available_thinking_levels"): ...


class SetSteeringMode(PiCommand, tag="set_steering_mode"):
    mode: QueueMode


class SetFollowUpMode(PiCommand, tag="set_follow_up_mode"):
    mode: QueueMode


class Compact(PiCommand, tag="compact"):
    customInstructions: str | None = None


class SetAutoCompaction(PiCommand, tag="set_auto_compaction"):
    enabled: bool


class SetAutoRetry(PiCommand, tag="set_auto_retry"):
    enabled: bool


class AbortRetry(PiCommand, tag="abort_retry"): ...


class Bash(PiCommand, tag="bash"):
    command: str
    excludeFromContext: bool = False


class AbortBash(PiCommand, tag="abort_bash"): ...


class GetSessionStats(PiCommand, tag="get_session_stats"): ...


class ExportHtml(PiCommand, tag="export_html"):
    outputPath: str | None = None


class SwitchSession(PiCommand, tag="switch_session"):
    sessionPath: str


class Fork(PiCommand, tag="fork"):
    entryId: str


class Clone(PiCommand, tag="clone"): ...


class GetForkMessages(PiCommand, tag="get_fork_messages"): ...


class GetEntries(PiCommand, tag="get_entries"):
    since: str | None = None


class GetTree(PiCommand, tag="get_tree"): ...


class GetLastAssistantText(PiCommand, tag="get_last_assistant_text"): ...


class SetSessionName(PiCommand, tag="set_session_name"):
    name: str


class GetCommands(PiCommand, tag="get_commands"): ...


class GetProtocol(PiCommand, tag="get_protocol"):
    """Our own command, not pi's: return the protocol in use. With `generation`, select one."""

    generation: Literal["a", "b", "c"] | None = None


class ExtensionUiResponse(PiCommand, tag="extension_ui_response"):
    """The answer to a dialog; gets no response."""

    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool = False


Work = Prompt | Steer | FollowUp | Abort | AbortRetry | ClearQueue | Compact
"""Commands that start, steer or stop a run."""
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
"""Commands that run in their own thread."""
Aside = AbortBash | GetProtocol | ExtensionUiResponse
AnyPiCommand = Work | Setting | Choice | Switch | Look | Slow | Aside

SPEC_COMMANDS = (Prompt, Abort, Compact)
"""All commands of generation A."""
NEWEST_COMMANDS = (ClearQueue, GetAvailableThinkingLevels)
"""Commands that only clients of generation C send."""
