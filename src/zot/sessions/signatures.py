"""Converts the opaque data that providers require back with a thought or call between zot's fields
and the single text that pi and the Go program store. No I/O.
"""

from __future__ import annotations

import msgspec

from zot.provider.types import Json, Reasoning, Text, ToolCall

RESPONSES = "openai-responses"


def of_call(call: ToolCall) -> str:
    """Return Google's signature of a call; empty if it has none."""
    return _text((call.opaque or {}).get("thoughtSignature"))


def for_call(signature: Json) -> dict[str, Json] | None:
    return {"thoughtSignature": signature} if isinstance(signature, str) and signature else None


def of_text(block: Text) -> str:
    """Return the phase of a Responses answer in pi's format; empty if it has none."""
    phase = _text((block.opaque or {}).get("phase"))
    return msgspec.json.encode({"v": 1, "id": "", "phase": phase}).decode() if phase else ""


def for_text(signature: Json) -> dict[str, Json] | None:
    value = _object(signature) if isinstance(signature, str) else None
    phase = _text((value or {}).get("phase"))
    return {"phase": phase} if phase else None


def of_thought(block: Reasoning) -> tuple[str, bool]:
    """Return the signature of a thought, and whether the thought is redacted."""
    opaque = block.opaque or {}
    if redacted := _text(opaque.get("redacted")):
        return redacted, True
    if isinstance(item := opaque.get("item"), dict):
        return msgspec.json.encode(item).decode(), False
    return _text(opaque.get("signature")) or _text(opaque.get("thoughtSignature")), False


def for_thought(api: str, signature: Json, redacted: bool) -> dict[str, Json] | None:
    """Return the opaque data that the provider of this API requires back."""
    if not isinstance(signature, str) or not signature:
        return None
    if redacted:
        return {"redacted": signature}
    if api == "google":
        return {"thoughtSignature": signature}
    if api == RESPONSES:
        item = _object(signature)
        return None if item is None else {"item": item}
    return {"signature": signature}


def item_of(block: Reasoning) -> tuple[str, str]:
    """Return id and encrypted content of a Responses thought; empty for any other."""
    item = (block.opaque or {}).get("item")
    if not isinstance(item, dict):
        return "", ""
    return _text(item.get("id")), _text(item.get("encrypted_content"))


def for_item(id: str, encrypted: str, summary: str) -> dict[str, Json]:
    """Build the opaque data of a Responses thought; the inverse of `item_of`."""
    told = [{"type": "summary_text", "text": summary}] if summary else []
    item: dict[str, Json] = {"type": "reasoning", "id": id, "summary": told}
    return {"item": {**item, "encrypted_content": encrypted} if encrypted else item}


def _object(text: str) -> dict[str, Json] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
