"""The row types of a zot session file, and their conversion. Opens no file.

The documented keys are those of the Go zot, which skips keys and rows it does not know; the tree
(id, parent, time) and everything the Go program lacks are stored as extra keys. Content blocks have
no type tag: their keys tell the type.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from zot.core.session import Compaction
from zot.provider import types
from zot.sessions import signatures
from zot.text import Frozen


class Meta(Frozen):
    """Head of a session file; a later one (a model switch) replaces it."""

    id: str = ""
    cwd: str = ""
    model: str = ""
    provider: str = ""
    started: str = ""
    version: str = ""
    title: str | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    """Id of the session this one was forked from."""
    fork_point: int | UnsetType = UNSET
    """Number of messages copied from it."""
    hide_from_sessions: bool | UnsetType = UNSET


class ReasoningRow(Frozen, omit_defaults=True):
    text: str = ""
    api: str = ""
    opaque: dict[str, types.Json] | None = None


class BlockRow(Frozen, omit_defaults=True):
    text: str | None = None
    mime_type: str | None = None
    data: bytes | None = None
    id: str | None = None
    name: str | None = None
    arguments: types.Json = None
    invalid: bool = False
    """The model's arguments were no object; `raw` is the text it wrote."""
    raw: str = ""
    thought_signature: str | None = None
    opaque: dict[str, types.Json] | None = None
    call_id: str | None = None
    content: tuple[BlockRow, ...] | None = None
    is_error: bool | None = None
    details: dict[str, types.Json] | None = None
    reasoning_id: str | None = None
    encrypted_content: str | None = None
    summary: str | None = None
    reasoning: ReasoningRow | None = None


class MessageRow(Frozen, omit_defaults=True):
    role: types.Role
    content: tuple[BlockRow, ...] | None
    time: str = ""
    meta: dict[str, str] | None = None
    """Texts only: the Go reader drops a message whose meta holds anything else."""
    origin: types.Origin | None = None
    extra: dict[str, types.Json] | None = None
    """Values of the message's extra that are not texts."""


class UsageRow(Frozen, omit_defaults=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    reasoning_tokens: int = 0
    reasoning_tokens_known: bool = False
    cost: types.Cost | None = None
    cost_known: bool = True


class SessionRow(Frozen, omit_defaults=True):
    type: str
    meta: Meta | None = None
    message: MessageRow | None = None
    messages: Raw | UnsetType = UNSET
    """Parsed only when needed."""
    usage: UsageRow | None = None
    cumulative: UsageRow | None = None
    title: str | None = None
    compaction: Compaction | None = None
    cleared: bool = False
    branch: bool = False
    level: types.Level | None = None
    result: BlockRow | None = None
    target: str | None = None
    label: str | None = None
    kind: str | None = None
    data: dict[str, types.Json] | None = None
    id: str = ""
    parent: str | None | UnsetType = UNSET
    """Absent in rows of the Go program: the parent is then the previous row."""
    time: float = 0.0


KNOWN = ("meta", "message", "compaction", "usage", "rename", "level", "label", "result", "custom")


# --- times -----------------------------------------------------------------------------------


def rfc3339(seconds: float) -> str:
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat().replace("+00:00", "Z")


def unix(text: str) -> float:
    """Return Unix seconds, or 0 for an unreadable time: a strange clock must not cost a message."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        return 0.0


# --- content ---------------------------------------------------------------------------------


def block_row(block: types.Block) -> BlockRow:
    match block:
        case types.Text(text, opaque):
            return BlockRow(text=text, opaque=opaque)
        case types.Image(mime_type, data):
            return BlockRow(mime_type=mime_type, data=data)
        case types.ToolCall():
            return _call_row(block)
        case types.ToolResult():
            return BlockRow(
                call_id=block.call_id,
                content=tuple(block_row(part) for part in block.content),
                is_error=block.is_error,
                name=block.name or None,
                details=block.details,
            )
        case types.Reasoning():
            return _reasoning_row(block)


def _call_row(call: types.ToolCall) -> BlockRow:
    return BlockRow(
        id=call.id,
        name=call.name,
        # Always present: the Go program forwards the value unchanged.
        arguments={} if call.args is None else call.args,
        invalid=call.args is None,
        raw=call.raw,
        thought_signature=signatures.of_call(call) or None,
        opaque=call.opaque,
    )


def _reasoning_row(block: types.Reasoning) -> BlockRow:
    """Use the Go program's fields where it has them (Responses); else it sees an empty text."""
    id, encrypted = signatures.item_of(block)
    row = ReasoningRow(block.text, block.api, block.opaque)
    if id or encrypted:
        return BlockRow(reasoning_id=id, encrypted_content=encrypted, reasoning=row)
    return BlockRow(text="", reasoning=row)


def block(row: BlockRow) -> types.Block:
    if row.reasoning is not None:
        return types.Reasoning(row.reasoning.text, row.reasoning.api, row.reasoning.opaque)
    if row.reasoning_id or row.encrypted_content or row.summary:
        told = row.summary or ""
        opaque = signatures.for_item(row.reasoning_id or "", row.encrypted_content or "", told)
        return types.Reasoning(told, signatures.RESPONSES, opaque)
    if row.call_id is not None:
        return _result(row)
    if row.id is not None and row.name is not None:
        return _call(row)
    if row.mime_type is not None:
        return types.Image(row.mime_type, row.data or b"")
    return types.Text(row.text or "", row.opaque)


def _call(row: BlockRow) -> types.ToolCall:
    opaque = row.opaque
    if opaque is None:
        opaque = signatures.for_call(row.thought_signature)
    is_object = isinstance(row.arguments, dict)
    valid, raw = is_object and not row.invalid, row.raw
    if not is_object and row.arguments is not None:
        raw = msgspec.json.encode(row.arguments).decode()
    return types.ToolCall(
        row.id or "", row.name or "", row.arguments if valid else None, raw, opaque
    )


def _result(row: BlockRow) -> types.ToolResult:
    content = []
    for part in row.content or ():
        inner = (
            types.Image(part.mime_type, part.data or b"") if part.mime_type is not None else None
        )
        content.append(inner or types.Text(part.text or ""))
    return types.ToolResult(
        row.call_id or "", tuple(content), bool(row.is_error), row.name or "", row.details
    )


# --- messages --------------------------------------------------------------------------------


def message_row(message: types.Message) -> MessageRow:
    texts: dict[str, str] = {}
    others: dict[str, Any] = {}
    for key, value in (message.extra or {}).items():
        if isinstance(value, str):
            texts[key] = value
        else:
            others[key] = value
    return MessageRow(
        role=message.role,
        content=tuple(map(block_row, message.content)),
        time=rfc3339(message.time),
        meta=texts or None,
        origin=message.origin,
        extra=others or None,
    )


def message(row: MessageRow) -> types.Message:
    extra = None
    if row.meta or row.extra:
        extra = {**(row.meta or {}), **(row.extra or {})}
    content = tuple([block(part) for part in row.content or ()])
    return types.Message(row.role, content, unix(row.time), row.origin, extra)


# --- usage -----------------------------------------------------------------------------------


def usage_row(usage: types.Usage) -> UsageRow:
    return UsageRow(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        cost_usd=usage.cost.total,
        reasoning_tokens=usage.reasoning or 0,
        reasoning_tokens_known=usage.reasoning is not None,
        cost=usage.cost,
        cost_known=usage.cost_known,
    )


def usage(row: UsageRow) -> types.Usage:
    return types.Usage(
        row.input_tokens,
        row.output_tokens,
        row.cache_read_tokens,
        row.cache_write_tokens,
        row.reasoning_tokens if row.reasoning_tokens_known else None,
        # The Go program stores only the sum; which part holds it does not change the total.
        types.Cost(input=row.cost_usd) if row.cost is None else row.cost,
        row.cost_known,
    )
