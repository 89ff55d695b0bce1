"""Questions of zot to an ACP client, and the parsing of its answers. No I/O.

A dialog of an extension becomes a form if the client supports forms; else a permission with
buttons.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from zot.acp import calls
from zot.acp.shapes import AskedCall, FormParams, PermissionOption, PermissionParams
from zot.core.changes import ShownChange
from zot.core.events import ApprovalRequest, ExtensionAsk
from zot.core.source import CANCELLED, PersonAnswer
from zot.core.tool import shortened, title_of
from zot.jsonrpc import RpcAnswer
from zot.runtime.approval import Decision
from zot.text import prepared
from zot.wire import forms

PERMISSION = "session/request_permission"
DECISIONS: dict[str, Decision] = {
    "allow_once": "allow",
    "allow_always": "allow_session",
    "allow_project": "allow_project",
    "reject_once": "deny",
}
MAX_BUTTONS = 20


# --- approval --------------------------------------------------------------------------------


def permission(
    session_id: str, asked: ApprovalRequest, wire_id: str, change: ShownChange | None, cwd: str
) -> PermissionParams:
    call = asked.call
    content = calls.text_content(calls.fenced(asked.preview))
    shown = AskedCall(
        wire_id,
        title_of(call),
        calls.kind_of(call.name),
        call.name,
        content if change is None else calls.diff_content(change),
        calls.locations_of(call, cwd) or None,
        calls.input_of(call),
    )
    options = [
        PermissionOption("allow_once", "Allow", "allow_once"),
        PermissionOption("allow_always", f"Allow {call.name} in this session", "allow_always"),
        PermissionOption("reject_once", "Deny", "reject_once"),
    ]
    if asked.pattern:
        # Before the one for the session: clients with one key per kind choose the last option of a
        # kind, which must not be the permanent one.
        pattern = shortened(asked.pattern, 60)
        always = f"Always allow {pattern!r} in this project"
        options.insert(1, PermissionOption("allow_project", always, "allow_always"))
    return PermissionParams(session_id, shown, tuple(options))


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


# --- dialogs ---------------------------------------------------------------------------------


def form(session_id: str, ask: ExtensionAsk) -> FormParams:
    return FormParams(session_id, *forms.form_of(ask))


def form_answer(ask: ExtensionAsk, answer: RpcAnswer) -> PersonAnswer:
    if answer.fault is not None:
        return CANCELLED
    try:
        return forms.answer_of(ask, msgspec.json.decode(answer.result))
    except (msgspec.MsgspecError, RecursionError):
        return CANCELLED


def buttons(session_id: str, ask: ExtensionAsk) -> PermissionParams | None:
    """Convert a dialog for a client without forms; None: it needs more than a click."""
    options: tuple[PermissionOption, ...]
    if ask.method == "confirm":
        yes, no = PermissionOption("yes", "Yes", "allow_once"), ("no", "No")
        options = (yes, PermissionOption(*no, kind="reject_once"))
    elif ask.method == "select" and 0 < len(ask.options) <= MAX_BUTTONS:
        chosen = (
            PermissionOption(str(number), text, "allow_once")
            for number, text in enumerate(ask.options)
        )
        options = (*chosen, PermissionOption("no", "Cancel", "reject_once"))
    else:
        return None
    title = shortened(ask.title or ask.message or ask.extension)
    content = calls.text_content(ask.message) if ask.message else None
    return PermissionParams(session_id, AskedCall(ask.id, title, "other", content=content), options)


def button_answer(ask: ExtensionAsk, answer: RpcAnswer) -> PersonAnswer:
    chosen = _selected(answer)
    if ask.method == "confirm":
        return PersonAnswer(confirmed=chosen == "yes") if chosen else CANCELLED
    if chosen.isdecimal() and int(chosen) < len(ask.options):
        return PersonAnswer(ask.options[int(chosen)])
    return CANCELLED
