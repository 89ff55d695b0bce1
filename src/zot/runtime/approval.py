"""Asks before a tool runs: one guard for every provider, tool and client.

The question goes to the client (an event, answered by `approve`) or to the person at the
terminal. No answer within the limit is a denial, and an abort ends the wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Literal

import msgspec
from msgspec import Struct

from zot.cancel import Cancel
from zot.core.events import ApprovalRequest, ApprovalResolved
from zot.core.hook import ALLOW, Allow, Block, Decider, Hook, HookContext
from zot.errors import Cancelled, CommandError
from zot.provider.types import Model, ToolCall
from zot.runtime.client import RuntimeClient

DEFAULT_TOOLS = ("write", "edit", "bash")
"""What can change something; asked for when nobody says which tools to ask for."""
EVERY_TOOL = "all"
LIMIT_SECONDS = 300.0
MAX_PREVIEW = 2_000

Decision = Literal["allow", "deny", "allow_session"]
Source = Literal["client", "remembered", "timeout", "abort"]


class Verdict(Struct, frozen=True):
    decision: Decision
    reason: str = ""


Subject = Callable[[ToolCall], str | None]
"""The tool that a person is asked about for a call, when it is of a kind that can change something;
empty: nobody needs to be asked; None: this one does not know the call."""
GONE = Verdict("deny", "the client is gone")

AskTerminal = Callable[[ToolCall, str, float, Cancel], Verdict | None]
"""Put the call and its preview to a person for at most so many seconds; None: no answer."""


class Approval(Hook):
    """The policy and the open question. The client may answer from any thread."""

    def __init__(
        self,
        tools: Collection[str] | None = None,
        *,
        client: RuntimeClient | None = None,
        terminal: AskTerminal | None = None,
        seconds: float = LIMIT_SECONDS,
    ) -> None:
        """`tools` None: ask for the default ones where the client or the model wants it."""
        self._tools = tools
        self._client = client or RuntimeClient()
        self._terminal = terminal
        self._seconds = seconds
        self._model_asks: Literal["", "person", "always"] = ""
        self._gone = False
        self._remembered: set[str] = set()
        self._subjects: list[Subject] = []
        self._lock = threading.Lock()
        self._count = 0
        self._open: tuple[str, threading.Event] | None = None
        self._verdict: Verdict | None = None

    # --- for the runtime ---------------------------------------------------------------------

    def use_model(self, model: Model) -> None:
        """Whose calls these are, from now on."""
        self._model_asks = model.ask

    def also_ask(self, subject: Subject) -> None:
        """Calls of other tools than the built-in ones that can change something."""
        self._subjects.append(subject)

    def answer(self, request_id: str, decision: Decision, reason: str = "") -> None:
        """Answer the open question.

        Raises:
            CommandError: no such question is open.
        """
        with self._lock:
            if self._open is None or self._open[0] != request_id or self._verdict is not None:
                raise CommandError(
                    f"no approval {request_id!r} is waiting: it was answered, timed out or aborted",
                    code="not_found",
                )
            self._verdict = Verdict(decision, reason)
            self._open[1].set()

    def client_gone(self) -> None:
        """Nobody will answer any more: what is open is denied, and so is what comes."""
        with self._lock:
            self._gone = True
            if self._open is not None and self._verdict is None:
                self._verdict = GONE
                self._open[1].set()

    # --- the guard ---------------------------------------------------------------------------

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block:
        subject = self._subject(call)
        if not self._must_ask(call.name, subject):
            return ALLOW
        id = self._next_id()
        if (subject or call.name) in self._remembered:
            context.emit(ApprovalResolved(id, call.id, "allow", "remembered"))
            return Allow("remembered")
        if self._client.can_answer("approval"):
            return self._ask_client(id, call, context)
        if self._terminal is not None:
            shown = preview(call)
            context.emit(ApprovalRequest(id, call, shown, self._seconds))
            verdict = self._terminal(call, shown, self._seconds, context.cancel)
            context.cancel.check()
            return self._settle(id, call, verdict, context)
        return Block(
            f"{call.name} needs an approval and nobody can give it: use the feature `approvals` "
            "of hello, run zot at a terminal, or pass --yolo"
        )

    def _subject(self, call: ToolCall) -> str:
        """What the call changes things by; empty: nothing is changed."""
        if call.name in DEFAULT_TOOLS:
            return call.name
        return next((name for ask in self._subjects if (name := ask(call)) is not None), "")

    def _must_ask(self, name: str, subject: str) -> bool:
        if self._model_asks == "always" and subject:
            return True
        if self._tools is not None:
            return not {name, subject, EVERY_TOOL}.isdisjoint(self._tools)
        wanted = self._client.can_answer("approval")
        wanted = wanted or (self._terminal is not None and self._model_asks == "person")
        return wanted and bool(subject)

    def _next_id(self) -> str:
        with self._lock:
            self._count += 1
            return f"approval-{self._count}"

    def _ask_client(self, id: str, call: ToolCall, context: HookContext) -> Allow | Block:
        answered = threading.Event()
        with self._lock:
            self._open, self._verdict = (id, answered), None
            if self._gone:
                self._verdict = GONE
                answered.set()
        try:
            context.emit(ApprovalRequest(id, call, preview(call), self._seconds))
            with context.cancel.calling(answered.set):
                answered.wait(self._seconds)
        finally:
            with self._lock:
                verdict, self._open = self._verdict, None
        if context.cancel.is_set():
            context.emit(ApprovalResolved(id, call.id, "deny", "abort"))
            raise Cancelled
        return self._settle(id, call, verdict, context)

    def _settle(
        self, id: str, call: ToolCall, verdict: Verdict | None, context: HookContext
    ) -> Allow | Block:
        if verdict is None:
            context.emit(ApprovalResolved(id, call.id, "deny", "timeout"))
            return Block(f"not allowed: nobody answered within {self._seconds:g} s", "policy")
        decision: Literal["allow", "deny"] = "deny" if verdict.decision == "deny" else "allow"
        context.emit(ApprovalResolved(id, call.id, decision, "client"))
        if decision == "deny":
            because = verdict.reason or "no reason given"
            source: Decider = "policy" if verdict is GONE else "user"
            return Block(f"the user did not allow this: {because}", source)
        if verdict.decision == "allow_session":
            self._remembered.add(self._subject(call) or call.name)
        return Allow("user")


def preview(call: ToolCall) -> str:
    """The call as a person wants to read it before allowing it."""
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            text = command
        case "write", {"path": str(path), "content": str(content)}:
            text = f"{path} ({len(content.encode('utf-8', 'replace'))} bytes)\n{content}"
        case "edit", {"path": str(path), "edits": list(edits)}:
            changes = [each for each in edits if isinstance(each, dict)]
            text = "\n".join([path, *(_change(each) for each in changes)])
        case _:
            text = msgspec.json.encode(args).decode()
    return text if len(text) <= MAX_PREVIEW else f"{text[:MAX_PREVIEW]}\n[and more]"


def _change(edit: dict[str, object]) -> str:
    removed = (f"- {line}" for line in str(edit.get("oldText", "")).split("\n"))
    added = (f"+ {line}" for line in str(edit.get("newText", "")).split("\n"))
    return "\n".join([*removed, *added])
