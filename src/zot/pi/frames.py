"""What pi's wire sends, as types with pi's own names. Shapes only; the encoders fill them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from zot.pi.messages import Part, PiAssistant, PiMessage, PiResult, PiUsage
from zot.provider.types import Json

Reason = Literal["manual", "threshold", "overflow"]


class PiFrame(Struct, frozen=True, tag_field="type"):
    """Base of all frames; what is UNSET is not sent."""


class SpecError(PiFrame, frozen=True, tag="error"):
    """Generation A's answer to input it cannot use."""

    error: str


# --- a run -----------------------------------------------------------------------------------


class AgentStart(PiFrame, frozen=True, tag="agent_start"): ...


class AgentEnd(PiFrame, frozen=True, tag="agent_end"):
    messages: list[PiMessage]
    willRetry: bool | UnsetType = UNSET


class AgentSettled(PiFrame, frozen=True, tag="agent_settled"):
    aborted: bool


class TurnStarted(PiFrame, frozen=True, tag="turn_start"): ...


class TurnEnded(PiFrame, frozen=True, tag="turn_end"):
    message: PiAssistant
    toolResults: list[PiResult]


class MessageStart(PiFrame, frozen=True, tag="message_start"):
    message: PiMessage


class Piece(Struct, frozen=True, kw_only=True):
    """pi's `assistantMessageEvent`."""

    type: str
    contentIndex: int
    delta: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    toolCall: Part | UnsetType = UNSET
    id: str | UnsetType = UNSET
    toolName: str | UnsetType = UNSET
    partial: Raw | UnsetType = UNSET


class MessageUpdate(PiFrame, frozen=True, tag="message_update"):
    assistantMessageEvent: Piece
    usage: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET


class MessageEnd(PiFrame, frozen=True, tag="message_end"):
    message: PiMessage


# --- tools -----------------------------------------------------------------------------------


class PiToolOutput(Struct, frozen=True):
    content: list[Part]
    details: dict[str, Json] | UnsetType = UNSET


class ToolExecution(PiFrame, frozen=True, tag="tool_execution_start"):
    toolCallId: str
    toolName: str
    args: dict[str, Json]


class ToolExecutionUpdate(ToolExecution, frozen=True, tag="tool_execution_update"):
    partialResult: PiToolOutput


class ToolExecutionEnd(PiFrame, frozen=True, tag="tool_execution_end"):
    toolCallId: str
    toolName: str
    result: PiToolOutput | str
    isError: bool
    durationMs: int | UnsetType = UNSET


class BashUpdate(PiFrame, frozen=True, tag="bash_execution_update"):
    delta: str
    id: Raw | UnsetType = UNSET


# --- upkeep ----------------------------------------------------------------------------------


class TouchedFiles(Struct, frozen=True):
    readFiles: list[str]
    modifiedFiles: list[str]


class CompactionResult(Struct, frozen=True):
    summary: str
    firstKeptEntryId: str
    tokensBefore: int
    estimatedTokensAfter: int
    usage: PiUsage
    details: TouchedFiles


class SpecCompaction(PiFrame, frozen=True, tag="compaction"):
    """Generation A's only word for a compaction that is done."""

    summary: str
    tokensBefore: int
    timestamp: str
    auto: bool | UnsetType = UNSET


class CompactionStart(PiFrame, frozen=True, tag="compaction_start"):
    reason: Reason


class CompactionEnd(PiFrame, frozen=True, tag="compaction_end"):
    reason: Reason
    aborted: bool
    willRetry: bool
    result: CompactionResult | UnsetType = UNSET
    errorMessage: str | UnsetType = UNSET


class AutoRetryStart(PiFrame, frozen=True, tag="auto_retry_start"):
    attempt: int
    maxAttempts: int
    delayMs: int
    errorMessage: str


class AutoRetryEnd(PiFrame, frozen=True, tag="auto_retry_end"):
    success: bool
    attempt: int
    finalError: str | UnsetType = UNSET


class QueueChanged(PiFrame, frozen=True, tag="queue_update"):
    steering: tuple[str, ...]
    followUp: tuple[str, ...]


class SessionInfoChanged(PiFrame, frozen=True, tag="session_info_changed"):
    name: str


class ThinkingLevelChanged(PiFrame, frozen=True, tag="thinking_level_changed"):
    level: str


# --- the user's interface --------------------------------------------------------------------


class UiRequest(PiFrame, frozen=True, kw_only=True, tag="extension_ui_request"):
    id: str
    method: str
    title: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    notifyType: str | UnsetType = UNSET
    options: tuple[str, ...] | UnsetType = UNSET
    placeholder: str | UnsetType = UNSET
    prefill: str | UnsetType = UNSET
    timeout: int | UnsetType = UNSET
    text: str | UnsetType = UNSET
    widgetKey: str | UnsetType = UNSET
    widgetLines: list[str] | UnsetType = UNSET


# --- answers ---------------------------------------------------------------------------------


class PiPrice(Struct, frozen=True):
    """Dollars per million tokens."""

    input: float
    output: float
    cacheRead: float
    cacheWrite: float


class PiModel(Struct, frozen=True):
    id: str
    name: str
    api: str
    provider: str
    baseUrl: str
    reasoning: bool
    input: list[str]
    cost: PiPrice
    contextWindow: int
    maxTokens: int
    headers: dict[str, str] | UnsetType = UNSET


class TokenCounts(Struct, frozen=True):
    input: int
    output: int
    cacheRead: int
    cacheWrite: int
    total: int


class ContextUsage(Struct, frozen=True):
    tokens: int | None
    contextWindow: int
    percent: float | None


class SessionStats(Struct, frozen=True):
    sessionFile: str | UnsetType
    sessionId: str
    userMessages: int
    assistantMessages: int
    toolCalls: int
    toolResults: int
    totalMessages: int
    tokens: TokenCounts
    cost: float
    contextUsage: ContextUsage


class ForkPoint(Struct, frozen=True):
    entryId: str
    text: str
