"""Tool calls as an editor shows them (title, kind, files, output, plan), and questions to its user.
No I/O.

A dialog of an extension becomes a form if the client supports forms; else a permission with
buttons.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from zot.acp import shapes
from zot.core import events
from zot.core.changes import ShownChange
from zot.core.source import CANCELLED, PersonAnswer
from zot.core.tool import shortened, title_of
from zot.jsonrpc import RpcAnswer
from zot.provider.types import Image, Text, ToolCall
from zot.runtime.approval import Decision
from zot.text import prepared
from zot.wire import forms

KINDS: dict[str, shapes.ToolKind] = {
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "apply_patch": "edit",
    "bash": "execute",
    "glob": "search",
    "grep": "search",
}
HEAD, TAIL = 4_000, 12_000
"""Characters to show of a running tool's output: the beginning and the end of a long one."""
PLAN_LISTS = ("entries", "todos", "plan", "items", "tasks", "steps")
PLAN_TEXTS = ("content", "text", "title", "step", "task", "description")
MAX_PLAN = 200
PERMISSION = "session/request_permission"
DECISIONS: dict[str, Decision] = {
    "allow_once": "allow",
    "allow_always": "allow_project",
    "reject_once": "deny",
    "reject_always": "deny_project",
}
MAX_BUTTONS = 20


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


# --- questions: approval -----------------------------------------------------------------------


def permission(
    session_id: str,
    request: events.ApprovalRequest,
    wire_id: str,
    change: ShownChange | None,
    cwd: str,
) -> shapes.PermissionParams:
    call = request.call
    content = text_content(fenced(request.preview))
    shown = shapes.AskedCall(
        wire_id,
        title_of(call),
        kind_of(call.name),
        call.name,
        content if change is None else diff_content(change),
        locations_of(call, cwd) or None,
        input_of(call),
    )
    options = [
        shapes.PermissionOption("allow_once", "Allow", "allow_once"),
        shapes.PermissionOption("reject_once", "Deny", "reject_once"),
    ]
    if request.pattern:  # one option of each kind: clients have one key per kind
        pattern = shortened(request.pattern, 60)
        always, never = (f"{word} {pattern!r} in this project" for word in ("Always allow", "Deny"))
        options.insert(1, shapes.PermissionOption("allow_always", always, "allow_always"))
        options.append(shapes.PermissionOption("reject_always", never, "reject_always"))
    return shapes.PermissionParams(session_id, shown, tuple(options))


def decision(answer: RpcAnswer) -> Decision:
    """Return the client's decision; anything unclear denies."""
    return DECISIONS.get(_selected(answer), "deny")


class _Outcome(Struct):
    outcome: str
    option_id: str = msgspec.field(default="", name="optionId")


class _Permission(Struct):
    outcome: _Outcome


prepared(_Permission)


def _selected(answer: RpcAnswer) -> str:
    """Return the id of the selected option; empty: none."""
    if answer.fault is not None:
        return ""
    try:
        outcome = msgspec.json.decode(answer.result, type=_Permission).outcome
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return outcome.option_id if outcome.outcome == "selected" else ""


# --- questions: dialogs ----------------------------------------------------------------------


def form(session_id: str, ask: events.ExtensionAsk) -> shapes.FormParams:
    return shapes.FormParams(session_id, *forms.form_of(ask))


def form_answer(ask: events.ExtensionAsk, answer: RpcAnswer) -> PersonAnswer:
    if answer.fault is not None:
        return CANCELLED
    try:
        return forms.answer_of(ask, msgspec.json.decode(answer.result))
    except (msgspec.MsgspecError, RecursionError):
        return CANCELLED


def buttons(session_id: str, ask: events.ExtensionAsk) -> shapes.PermissionParams | None:
    """Convert a dialog for a client without forms; None: it needs more than a click."""
    options: tuple[shapes.PermissionOption, ...]
    if ask.method == "confirm":
        yes = shapes.PermissionOption("yes", "Yes", "allow_once")
        options = (yes, shapes.PermissionOption("no", "No", "reject_once"))
    elif ask.method == "select" and 0 < len(ask.options) <= MAX_BUTTONS:
        chosen = (
            shapes.PermissionOption(str(number), text, "allow_once")
            for number, text in enumerate(ask.options)
        )
        options = (*chosen, shapes.PermissionOption("no", "Cancel", "reject_once"))
    else:
        return None
    title = shortened(ask.title or ask.message or ask.extension)
    content = text_content(ask.message) if ask.message else None
    return shapes.PermissionParams(
        session_id, shapes.AskedCall(ask.id, title, "other", content=content), options
    )


def button_answer(ask: events.ExtensionAsk, answer: RpcAnswer) -> PersonAnswer:
    chosen = _selected(answer)
    if ask.method == "confirm":
        return PersonAnswer(confirmed=chosen == "yes") if chosen else CANCELLED
    if chosen.isdecimal() and int(chosen) < len(ask.options):
        return PersonAnswer(ask.options[int(chosen)])
    return CANCELLED
