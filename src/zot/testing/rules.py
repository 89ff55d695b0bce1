"""Rules of each API for a request, as far as known: what a real server would refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from zot.testing.replies import Dialect

ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
MAX_MARKS = 4


def anthropic_problems(body: dict[str, Any]) -> list[str]:
    wrong = []
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        wrong.append("must start with the user")
    if messages and messages[-1]["role"] != "user":
        wrong.append("must end with the user")
    waiting: set[str] = set()
    ids: set[str] = set()
    for message in messages:
        blocks = message["content"]
        if not blocks:
            wrong.append("empty content")
        results = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        if waiting != results:
            wrong.append(f"calls {waiting} answered by {results}")
        calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        wrong += [f"bad id {call!r}" for call in calls if not ID.match(call) or call in ids]
        ids |= set(calls)
        waiting = set(calls)
        wrong += ["blank text" for b in blocks if b["type"] == "text" and not b["text"].strip()]
    if waiting:
        wrong.append(f"unanswered calls {waiting}")
    if str(body).count("cache_control") > MAX_MARKS:
        wrong.append("too many cache marks")
    if not body["max_tokens"] > 0:
        wrong.append("no room for output")
    if "thinking" in body and body["thinking"].get("budget_tokens", 0) >= body["max_tokens"]:
        wrong.append("the thinking budget takes all of the output")
    tools = body.get("tools", [])
    wrong += loose([tool["input_schema"] for tool in tools if tool.get("strict")])
    return wrong


def loose(schemas: list[dict[str, Any]], *, all_required: bool = False) -> list[str]:
    """Return the objects of strict schemas that allow more than they say."""
    wrong = []
    for schema in schemas:
        fields = schema.get("properties", {})
        if "properties" in schema and schema.get("additionalProperties") is not False:
            wrong.append(f"a strict object takes more than {list(fields)}")
        if all_required and set(schema.get("required", fields)) != set(fields):
            wrong.append(f"a strict object must require all of {list(fields)}")
        inner = [*fields.values(), *([schema["items"]] if "items" in schema else [])]
        wrong += loose(inner, all_required=all_required)
    return wrong


def chat_problems(body: dict[str, Any]) -> list[str]:
    wrong = []
    waiting: list[str] = []
    said = [message for message in body["messages"] if message["role"] != "system"]
    for message in said:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                wrong.append(f"a result for no call: {message['tool_call_id']!r}")
            else:
                waiting.remove(message["tool_call_id"])
            if not message["content"]:
                wrong.append("an empty result")
            continue
        if waiting:
            wrong.append(f"unanswered calls {waiting}")
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        wrong += [f"bad id {call!r}" for call in waiting if not ID.match(call)]
        if not message["content"] and not waiting:
            wrong.append(f"an empty {message['role']} message")
    if waiting:
        wrong.append(f"unanswered calls {waiting}")
    if not said or said[-1]["role"] == "assistant":
        wrong.append("must end with the user or a tool")
    return wrong


def responses_problems(body: dict[str, Any]) -> list[str]:
    wrong = []
    items = body["input"]
    for kind in ("function_call", "custom_tool_call"):
        calls = [item["call_id"] for item in items if item["type"] == kind]
        results = [item["call_id"] for item in items if item["type"] == f"{kind}_output"]
        if sorted(calls) != sorted(results) or len(set(calls)) != len(calls):
            wrong.append(f"calls {calls} answered by {results}")
        wrong += [f"bad id {call!r}" for call in calls if not ID.match(call)]
    strict = [tool["parameters"] for tool in body.get("tools", []) if tool.get("strict")]
    wrong += loose(strict, all_required=True)
    if not items:
        wrong.append("no input")
    if body.get("store") is not False:
        wrong.append("must not be stored")
    thinks = False
    for item in items:
        if thinks and item["type"] == "message" and item["role"] == "user":
            wrong.append("a thought without what followed it")
        thinks = item["type"] == "reasoning"
    return wrong


def google_problems(body: dict[str, Any]) -> list[str]:
    wrong = []
    contents = body["contents"]
    roles = [content["role"] for content in contents]
    if not roles or roles[0] != "user" or roles[-1] != "user":
        wrong.append("must start and end with the user")
    if any(first == second for first, second in zip(roles, roles[1:], strict=False)):
        wrong.append("roles must alternate")
    waiting: list[str] = []
    for content in contents:
        parts = content["parts"]
        if not parts:
            wrong.append("no parts")
        results = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if results != waiting:
            wrong.append(f"calls {waiting} answered by {results}")
        waiting = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    return wrong


_PROBLEMS: dict[Dialect, Callable[[dict[str, Any]], list[str]]] = {
    "anthropic": anthropic_problems,
    "chat": chat_problems,
    "responses": responses_problems,
    "google": google_problems,
}


def problems(dialect: Dialect, body: dict[str, Any]) -> list[str]:
    """Return what is wrong with a request; empty: a server would accept it."""
    return _PROBLEMS[dialect](body)
