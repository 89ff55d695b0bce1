"""A model server that binds thoughts to what came before them, as Anthropic documents it: a
thinking block that comes back is refused with 400 when the system prompt, the tools or any earlier
message is another one than in the request that it answered. It is told to drop such blocks in vain.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from zot.testing import replies
from zot.testing.fakeserver import FakeConnection, FakeServer, Seen
from zot.testing.script import FakeTurn


class BindingServer(FakeServer):
    def _reply(self, connection: FakeConnection, seen: Seen) -> tuple[str, bool]:
        wrong = unbound(seen.body) if seen.path.endswith("/messages") else ""
        if wrong:
            seen.dialect = "anthropic"
            connection.send_json(400, replies.error_body("anthropic", 400, wrong))
            return "error", True
        return super()._reply(connection, seen)

    def _build(self, call: replies.FakeCall, turn: FakeTurn, seen: Seen) -> replies.FakeReply:
        reply = super()._build(call, turn, seen)
        said: list[dict[str, Any]] = []
        for block in reply.blocks:
            if block.kind == "think":
                block.signature = signature(seen.body, len(seen.body["messages"]), said)
            said.append(as_content(block))
        return reply


def as_content(block: replies.FakeBlock) -> dict[str, Any]:
    text = "".join(block.texts)
    match block.kind:
        case "text":
            return {"type": "text", "text": text}
        case "think":
            return {"type": "thinking", "thinking": text, "signature": block.signature}
        case "tool":
            call = {"type": "tool_use", "id": block.id, "name": block.name}
            return {**call, "input": json.loads(block.args)}


def unbound(body: dict[str, Any]) -> str:
    """What is wrong with the first thought that does not fit; empty: all do."""
    for at, message in enumerate(body["messages"]):
        for number, block in enumerate(message["content"]):
            if block["type"] == "thinking":
                expected = signature(body, at, message["content"][:number])
                if block["signature"] != expected:
                    return (
                        f"messages.{at}.content.{number}: `thinking` was made with another prefix"
                    )
    return ""


def signature(body: dict[str, Any], at: int, said: list[dict[str, Any]]) -> str:
    """Signs a thought of the message at that place, which has said so much before it."""
    parts = body["model"], body.get("system"), body.get("tools"), body["messages"][:at], said
    text = json.dumps(unmarked(parts), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def unmarked(value: Any) -> Any:
    """Marks for the cache are not part of what is bound."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    if isinstance(value, list | tuple):
        return [unmarked(item) for item in value]
    return value


def thoughts(body: dict[str, Any]) -> list[int]:
    """How many thoughts each message of the model has."""
    return [
        sum(block["type"] == "thinking" for block in message["content"])
        for message in body["messages"]
        if message["role"] == "assistant"
    ]
