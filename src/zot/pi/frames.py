"""Frames of pi's protocol, with pi's own names. Types only; the encoders fill them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, UnsetType

from zot.pi.messages import Part, PiAssistant, PiMessage, PiPrice, PiResult, PiTokens, PiUsage
from zot.provider.types import Json
from zot.text import Frozen

Reason = Literal["manual", "threshold", "overflow"]


class PiFrame(Frozen, tag_field="type"):
    """Base of all frames; UNSET fields are not sent."""


class SpecError(PiFrame, tag="error"):
    """Generation A's answer to invalid input."""

    error: str


# --- a run -----------------------------------------------------------------------------------


class AgentStart(PiFrame, tag="agent_start"): ...


class AgentEnd(PiFrame, tag="agent_end"):
    messages: list[PiMessage]
    willRetry: bool | UnsetType = UNSET


class AgentSettled(PiFrame, tag="agent_settled"):
    aborted: bool


class TurnStarted(PiFrame, tag="turn_start"): ...


class TurnEnded(PiFrame, tag="turn_end"):
    message: PiAssistant
    toolResults: list[PiResult]


class MessageStart(PiFrame, tag="message_start"):
    message: PiMessage


class Piece(Frozen, kw_only=True):
    """pi's `assistantMessageEvent`."""

    type: str
    contentIndex: int
    delta: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    toolCall: Part | UnsetType = UNSET
    id: str | UnsetType = UNSET
    toolName: str | UnsetType = UNSET
    partial: Raw | UnsetType = UNSET


class MessageUpdate(PiFrame, tag="message_update"):
    assistantMessageEvent: Piece
    usage: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET


class MessageEnd(PiFrame, tag="message_end"):
    message: PiMessage


# --- tools -----------------------------------------------------------------------------------


class PiToolOutput(Frozen):
    content: list[Part]
    details: dict[str, Json] | UnsetType = UNSET


class OfTool(PiFrame):
    toolCallId: str
    toolName: str


class ToolExecution(OfTool, tag="tool_execution_start"):
    args: dict[str, Json]


class ToolExecutionUpdate(ToolExecution, tag="tool_execution_update"):
    partialResult: PiToolOutput


class ToolExecutionEnd(OfTool, tag="tool_execution_end"):
    result: PiToolOutput | str
    isError: bool
    durationMs: int | UnsetType = UNSET


class BashUpdate(PiFrame, tag="bash_execution_update"):
    delta: str
    id: Raw | UnsetType = UNSET


# --- upkeep ----------------------------------------------------------------------------------


class TouchedFiles(Frozen):
    readFiles: list[str]
    modifiedFiles: list[str]


class CompactionResult(Frozen):
    summary: str
    firstKeptEntryId: str
    tokensBefore: int
    estimatedTokensAfter: int
    usage: PiUsage
    details: TouchedFiles


class SpecCompaction(PiFrame, tag="compaction"):
    """Generation A's only frame for a finished compaction."""

    summary: str
    tokensBefore: int
    timestamp: str
    auto: bool | UnsetType = UNSET


class OfCompaction(PiFrame):
    reason: Reason


class CompactionStart(OfCompaction, tag="compaction_start"): ...


class CompactionEnd(OfCompaction, tag="compaction_end"):
    aborted: bool
    willRetry: bool
    result: CompactionResult | UnsetType = UNSET
    errorMessage: str | UnsetType = UNSET


class AutoRetryStart(PiFrame, tag="auto_retry_start"):
    attempt: int
    maxAttempts: int
    delayMs: int
    errorMessage: str


class AutoRetryEnd(PiFrame, tag="auto_retry_end"):
    success: bool
    attempt: int
    finalError: str | UnsetType = UNSET


class QueueChanged(PiFrame, tag="queue_update"):
    steering: tuple[str, ...]
    followUp: tuple[str, ...]


class SessionInfoChanged(PiFrame, tag="session_info_changed"):
    name: str


class ThinkingLevelChanged(PiFrame, tag="thinking_level_changed"):
    level: str


# --- the user's interface --------------------------------------------------------------------


class UiRequest(PiFrame, kw_only=True, tag="extension_ui_request"):
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


class PiModel(Frozen):
    id: str
    name: str
    api: str
    provider: str
    baseUrl: str
    reasoning: bool
    input: list[str]
    cost: PiPrice
    """Dollars per million tokens."""
    contextWindow: int
    maxTokens: int
    headers: dict[str, str] | UnsetType = UNSET


class TokenCounts(PiTokens):
    total: int


class ContextUsage(Frozen):
    tokens: int | None
    contextWindow: int
    percent: float | None


class SessionStats(Frozen):
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


class ForkPoint(Frozen):
    entryId: str
    text: str
