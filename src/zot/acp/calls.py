"""A tool call as an editor shows it: title, kind, files, output, plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

from zot.acp import shapes
from zot.core.changes import ShownChange
from zot.provider.types import Image, Text, ToolCall

KINDS: dict[str, shapes.ToolKind] = {
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "bash": "execute",
    "glob": "search",
    "grep": "search",
}
HEAD, TAIL = 4_000, 12_000
"""Characters to show of a running tool's output: the beginning and the end of a long one."""
PLAN_LISTS = ("entries", "todos", "plan", "items", "tasks", "steps")
PLAN_TEXTS = ("content", "text", "title", "step", "task", "description")
MAX_PLAN = 200


def kind_of(name: str) -> shapes.ToolKind:
    return KINDS.get(name, "other")


def input_of(call: ToolCall) -> Any:
    return call.raw if call.args is None else call.args


def locations_of(call: ToolCall, cwd: str, line: int | None = None) -> tuple[shapes.Location, ...]:
    """Return the file that a call works on, as an absolute path."""
    path = (call.args or {}).get("path")
    if call.name not in KINDS or not isinstance(path, str) or not path:
        return ()
    if line is None and call.name == "read":
        offset = (call.args or {}).get("offset")
        line = offset if isinstance(offset, int) and offset > 0 else None
    full = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    return (shapes.Location(full, line),)


# --- content ---------------------------------------------------------------------------------


def fenced(text: str) -> str:
    """Return the text in a Markdown code fence, so that it is shown unchanged."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def text_content(text: str) -> tuple[shapes.CallContent, ...]:
    return (shapes.PlainContent(shapes.TextContent(text)),)


def diff_content(change: ShownChange) -> tuple[shapes.CallContent, ...]:
    return (shapes.DiffContent(change.path, change.before, change.after),)


def result_content(name: str, content: Sequence[Text | Image]) -> tuple[shapes.CallContent, ...]:
    """Convert the result of a tool. Clients render text as Markdown, but the built-in tools write
    plain text."""
    shown: list[shapes.CallContent] = []
    for part in content:
        if isinstance(part, Image):
            shown.append(shapes.PlainContent(shapes.ImageContent(part.data, part.mime_type)))
        else:
            text = fenced(part.text) if name in KINDS else part.text
            shown.append(shapes.PlainContent(shapes.TextContent(text)))
    return tuple(shown)


class RunningOutput:
    """Output of a running tool so far, without its middle: each update replaces the last one."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._left_out = 0

    def add(self, text: str) -> None:
        room = HEAD - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:] if room > 0 else self._tail + text
        self._left_out += max(0, len(tail) - TAIL)
        self._tail = tail[-TAIL:]

    def shown(self) -> str:
        if not self._left_out:
            return self._head + self._tail
        return f"{self._head}\n[{self._left_out} characters]\n{self._tail}"


# --- plans -----------------------------------------------------------------------------------


def plan_of(call: ToolCall) -> tuple[shapes.PlanEntry, ...]:
    """Return the steps in a call of a plan or to-do tool; empty: not such a tool."""
    name = call.name.casefold()
    if "plan" not in name and "todo" not in name:
        return ()
    lists = ((call.args or {}).get(key) for key in PLAN_LISTS)
    steps = next((value for value in lists if isinstance(value, list) and value), [])
    entries = [entry for step in steps[:MAX_PLAN] if (entry := _entry(step)) is not None]
    return tuple(entries)


def _entry(step: object) -> shapes.PlanEntry | None:
    if isinstance(step, str):
        step = {"content": step}
    if not isinstance(step, dict):
        return None
    texts = (step.get(key) for key in PLAN_TEXTS)
    text = next((value for value in texts if isinstance(value, str) and value), None)
    if text is None:
        return None
    return shapes.PlanEntry(text, _priority(step.get("priority")), _status(step))


def _priority(value: object) -> Literal["high", "medium", "low"]:
    match value:
        case "high" | "low":
            return value
        case _:
            return "medium"


def _status(step: dict[str, object]) -> Literal["pending", "in_progress", "completed"]:
    if step.get("done") is True or step.get("completed") is True:
        return "completed"
    match step.get("status"):
        case "completed" | "complete" | "done":
            return "completed"
        case "in_progress" | "active" | "doing":
            return "in_progress"
        case _:
            return "pending"
