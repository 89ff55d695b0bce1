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


class PiPrompt(PiCommand, frozen=True, tag="prompt"):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None
    attachments: tuple[dict[str, Json], ...] | None = None
    streamingBehavior: Literal["steer", "followUp"] | None = None


class PiSteer(PiCommand, frozen=True, tag="steer"):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None


class PiFollowUp(PiCommand, frozen=True, tag="follow_up"):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None


class PiAbort(PiCommand, frozen=True, tag="abort"):
    pass


class PiClearQueue(PiCommand, frozen=True, tag="clear_queue"):
    pass


class PiNewSession(PiCommand, frozen=True, tag="new_session"):
    parentSession: str | None = None


class PiGetState(PiCommand, frozen=True, tag="get_state"):
    pass


class PiGetMessages(PiCommand, frozen=True, tag="get_messages"):
    pass


class PiSetModel(PiCommand, frozen=True, tag="set_model"):
    provider: str
    modelId: str


class PiCycleModel(PiCommand, frozen=True, tag="cycle_model"):
    pass


class PiGetAvailableModels(PiCommand, frozen=True, tag="get_available_models"):
    pass


class PiSetThinkingLevel(PiCommand, frozen=True, tag="set_thinking_level"):
    level: str


class PiCycleThinkingLevel(PiCommand, frozen=True, tag="cycle_thinking_level"):
    pass


class PiGetAvailableThinkingLevels(PiCommand, frozen=True, tag="get_available_thinking_levels"):
    pass


class PiSetSteeringMode(PiCommand, frozen=True, tag="set_steering_mode"):
    mode: QueueMode


class PiSetFollowUpMode(PiCommand, frozen=True, tag="set_follow_up_mode"):
    mode: QueueMode


class PiCompact(PiCommand, frozen=True, tag="compact"):
    customInstructions: str | None = None


class PiSetAutoCompaction(PiCommand, frozen=True, tag="set_auto_compaction"):
    enabled: bool


class PiSetAutoRetry(PiCommand, frozen=True, tag="set_auto_retry"):
    enabled: bool


class PiAbortRetry(PiCommand, frozen=True, tag="abort_retry"):
    pass


class PiBash(PiCommand, frozen=True, tag="bash"):
    command: str
    excludeFromContext: bool = False


class PiAbortBash(PiCommand, frozen=True, tag="abort_bash"):
    pass


class PiGetSessionStats(PiCommand, frozen=True, tag="get_session_stats"):
    pass


class PiExportHtml(PiCommand, frozen=True, tag="export_html"):
    outputPath: str | None = None


class PiSwitchSession(PiCommand, frozen=True, tag="switch_session"):
    sessionPath: str


class PiFork(PiCommand, frozen=True, tag="fork"):
    entryId: str


class PiClone(PiCommand, frozen=True, tag="clone"):
    pass


class PiGetForkMessages(PiCommand, frozen=True, tag="get_fork_messages"):
    pass


class PiGetEntries(PiCommand, frozen=True, tag="get_entries"):
    since: str | None = None


class PiGetTree(PiCommand, frozen=True, tag="get_tree"):
    pass


class PiGetLastAssistantText(PiCommand, frozen=True, tag="get_last_assistant_text"):
    pass


class PiSetSessionName(PiCommand, frozen=True, tag="set_session_name"):
    name: str


class PiGetCommands(PiCommand, frozen=True, tag="get_commands"):
    pass


class PiGetProtocol(PiCommand, frozen=True, tag="get_protocol"):
    """Ours, not pi's: what is spoken here. With `generation`, the client says what it speaks."""

    generation: Literal["a", "b", "c"] | None = None


class PiExtensionUiResponse(PiCommand, frozen=True, tag="extension_ui_response"):
    """The answer to a dialog; it gets no response of its own."""

    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool = False


Work = PiPrompt | PiSteer | PiFollowUp | PiAbort | PiAbortRetry | PiClearQueue | PiCompact
"""What starts, steers or stops a run."""
Setting = (
    PiSetSteeringMode | PiSetFollowUpMode | PiSetAutoCompaction | PiSetAutoRetry | PiSetSessionName
)
Choice = PiSetModel | PiCycleModel | PiSetThinkingLevel | PiCycleThinkingLevel
Switch = PiNewSession | PiSwitchSession | PiFork | PiClone
Look = (
    PiGetState
    | PiGetMessages
    | PiGetAvailableModels
    | PiGetAvailableThinkingLevels
    | PiGetSessionStats
    | PiGetForkMessages
    | PiGetEntries
    | PiGetTree
    | PiGetLastAssistantText
)
Slow = PiBash | PiExportHtml | PiGetCommands
"""What has a thread of its own."""
Aside = PiAbortBash | PiGetProtocol | PiExtensionUiResponse
AnyPiCommand = Work | Setting | Choice | Switch | Look | Slow | Aside

SPEC_COMMANDS = (PiPrompt, PiAbort, PiCompact)
"""All that generation A knows."""
NEWEST_COMMANDS = (PiClearQueue, PiGetAvailableThinkingLevels)
"""What only clients of generation C send."""
