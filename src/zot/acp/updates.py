"""Events, and stored sessions, as ACP's `session/update`. No I/O.

Independent of the request that a client waits for: the end of a run is `outcome`, which the session
turns into an answer (in version 2 of the protocol, another update).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import assert_never

from msgspec import Struct

from zot.acp import calls, shapes
from zot.acp.commands import SessionAbilities
from zot.acp.shapes import AgentChunk, SessionUpdate, TextContent, fault_of
from zot.core import events
from zot.core.changes import ShownChange
from zot.core.events import Event
from zot.core.session import Cleared, Entry, Replaced, ResultNote
from zot.core.tool import shortened, title_of
from zot.errors import LimitError, ZotError
from zot.jsonrpc import RpcFault
from zot.provider.types import (
    Image,
    Message,
    Reasoning,
    Stop,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    texts_in,
)
from zot.sessions.rows import rfc3339
from zot.text import Frozen

UnsentEvent = (
    events.TurnStart
    | events.ToolStarted  # a guard may still ask; see ToolAllowed
    | events.RunSuspended
    | events.ToolCallArgs
    | events.ToolCallEnd
    | events.AssistantMessage
    | events.QueueUpdate
    | events.ApprovalRequest
    | events.ApprovalResolved
    | events.ExtensionPanel
    | events.ExtensionAsk
    | events.ServerChanged
    | events.CacheMissed
)
"""Events that are not sent; questions are sent separately."""

PROGRESS_PAUSE = 0.1
"""Seconds between two updates about a running tool."""
MAX_TITLE = 80


class _OpenCall(Struct):
    """A call without a result so far."""

    id: str
    """Unique in the session; a model may reuse its own ids."""
    name: str
    called: bool = False
    """The model has finished the call."""
    change: ShownChange | None = None
    output: calls.RunningOutput | None = None
    held_back: bool = False
    shown_at: float = 0.0


class UpdateEncoder:
    """Converts the events of one session; stateful."""

    def __init__(
        self,
        cwd: str,
        abilities: SessionAbilities,
        title: str = "",
        shown: Iterable[str] = (),
    ) -> None:
        """`shown`: ids of calls that were already sent."""
        self._cwd = cwd
        self._abilities = abilities
        self._title = title
        self.window = 0
        """Context window of the model in use; set by the session."""
        self.cut = False
        """Whether the model's last answer was cut at its limit."""
        self._message = new_id()
        self._thought = new_id()
        self._open: dict[str, _OpenCall] = {}
        self._used = set(shown)
        self._prompted = False
        self._compaction = ""
        self._cumulative = Usage()
        self._error: events.ErrorRaised | None = None
        """Sent as a notice if the run continues after it."""

    # --- events ------------------------------------------------------------------------------

    def encode(self, event: Event, now: float) -> list[SessionUpdate]:
        """Return the updates for an event; `now` is monotonic time in seconds."""
        if self._error is not None:
            error, self._error = self._error, None
            if not isinstance(event, events.Done):
                return [*self._notice("warning", error.message), *self._encode(event, now)]
        return self._encode(event, now)

    def _encode(self, event: Event, now: float) -> list[SessionUpdate]:
        if isinstance(event, UnsentEvent):
            return []
        match event:
            case events.TextDelta(text):
                return [AgentChunk(TextContent(text), self._message)] if text else []
            case events.ReasoningDelta(text):
                return [shapes.ThoughtChunk(TextContent(text), self._thought)] if text else []
            case events.ToolProgress(id, text):
                return self._progress(id, text, now)
            case events.ToolCallStart(id, name):
                return self._seen(id, name)
            case events.ToolCalled(call):
                return self._called(call)
            case events.ToolAllowed(call):
                return self._changed(call.id, status="in_progress")
            case events.ToolReturned():
                return self._returned(event)
            case events.UserMessage(message):
                return self._user(message)
            case events.AssistantStart():
                self._message, self._thought = new_id(), new_id()
            case events.TurnEnd(stop):
                self.cut = stop == "length"
                return self._failed("not run: the answer was cut", called=False)
            case events.UsageReport(usage, cumulative):
                return self._usage(usage, cumulative)
            case events.ErrorRaised():
                self._error = event
            case events.Done():
                return self._done()
            case events.CompactStart():
                self._compaction = new_id()
                return self._compacting("in_progress")
            case events.CompactDone():
                return self._compacted(event)
            case events.CompactFailed(_, error, aborted):
                shown = self._compacting("cancelled" if aborted else "failed", error=error)
                self._compaction = ""
                return shown
            case events.Retrying():
                return self._retrying(event)
            case events.FellBack(failed, _, model, reason):
                return self._notice("warning", f"Going on with {model.id}: {failed} failed", reason)
            case events.RunResumed():
                return self._notice("info", "A prompt that was cut off goes on")
            case events.RunHeld(_, _, reason):
                return self._notice("warning", "A prompt that was cut off is held back", reason)
            case events.ExtensionNotify(extension, level, message):
                return self._notify(extension, level, message)
            case events.ExtensionDisplay(_, text):
                return [AgentChunk(TextContent(text), new_id())] if text else []
            case _:
                assert_never(event)
        return []

    def _retrying(self, event: events.Retrying) -> list[SessionUpdate]:
        title = f"Trying again in {event.delay:.0f} s ({event.attempt} of {event.max_attempts})"
        shown = self._notice("warning", title, event.reason)
        if event.dropped:  # text cannot be withdrawn: mark it as void
            text = f"\n\n[{event.reason}; the answer begins anew]\n\n"
            shown.append(AgentChunk(TextContent(text), self._message))
        return shown

    # --- calls -------------------------------------------------------------------------------

    def call_id(self, id: str) -> str:
        """Return the id under which the client knows a call."""
        call = self._open.get(id)
        return id if call is None else call.id

    def will_change(self, id: str, change: ShownChange | None) -> None:
        """Set the file change that the call will make; sent with its result."""
        if id in self._open:
            self._open[id].change = change

    def _seen(self, id: str, name: str) -> list[SessionUpdate]:
        if id in self._open:
            return []
        wire_id, number = id, 1
        while wire_id in self._used:
            number += 1
            wire_id = f"{id}#{number}"
        self._used.add(wire_id)
        self._open[id] = _OpenCall(wire_id, name)
        return [shapes.CallShown(wire_id, name, name, calls.kind_of(name), "pending")]

    def _called(self, call: ToolCall) -> list[SessionUpdate]:
        shown = self._seen(call.id, call.name)
        self._open[call.id].called = True
        shown += self._changed(
            call.id,
            title=title_of(call),
            locations=calls.locations_of(call, self._cwd) or None,
            raw_input=calls.input_of(call),
        )
        if entries := calls.plan_of(call):
            shown.append(shapes.PlanShown(entries))
        return shown

    def _changed(self, id: str, **fields: object) -> list[SessionUpdate]:
        return [shapes.CallChanged(self.call_id(id), **fields)]  # type: ignore[arg-type]  # by name

    def _progress(self, id: str, text: str, now: float) -> list[SessionUpdate]:
        call = self._open.get(id)
        if call is None:
            return []
        call.output = call.output or calls.RunningOutput()
        call.output.add(text)
        call.held_back = now - call.shown_at < PROGRESS_PAUSE
        return [] if call.held_back else self._output(call, now)

    @property
    def holds_back(self) -> bool:
        return any(call.held_back for call in self._open.values())

    def tick(self, now: float) -> list[SessionUpdate]:
        """Return the updates that were held back by the rate limit."""
        held = [call for call in self._open.values() if call.held_back]
        return [update for call in held for update in self._output(call, now)]

    def _output(self, call: _OpenCall, now: float) -> list[SessionUpdate]:
        assert call.output is not None
        call.held_back, call.shown_at = False, now
        content = calls.text_content(calls.fenced(call.output.shown()))
        return [shapes.CallChanged(call.id, content=content)]

    def _returned(self, event: events.ToolReturned) -> list[SessionUpdate]:
        call, result = event.call, event.result
        opened = self._open.pop(call.id, None)
        wire_id = call.id if opened is None else opened.id
        details = result.details or {}
        line = details.get("first_changed_line")
        change = None if opened is None or result.is_error else opened.change
        if change is not None:
            content = calls.diff_content(change)
        else:
            content = calls.result_content(call.name, result.content)
        text = "\n".join(part.text for part in result.content if isinstance(part, Text))
        update = shapes.CallChanged(
            wire_id,
            status="failed" if result.is_error else "completed",
            content=content,
            locations=calls.locations_of(call, self._cwd, line) or None if line else None,
            raw_output=details or text,
        )
        return [update]

    def _failed(self, reason: str, *, called: bool) -> list[SessionUpdate]:
        """End the calls that will have no result: all if `called`, else only unfinished ones."""
        lost = [id for id, call in self._open.items() if called or not call.called]
        content = calls.text_content(reason)
        return [
            shapes.CallChanged(self._open.pop(id).id, status="failed", content=content)
            for id in lost
        ]

    # --- the rest ----------------------------------------------------------------------------

    def _user(self, message: Message) -> list[SessionUpdate]:
        texts = texts_in(message.content)
        if self._prompted:  # the client has shown the prompt itself
            id = new_id()
            return [shapes.UserChunk(TextContent(text), id) for text in texts]
        self._prompted = True
        if self._title or not texts:
            return []
        self._title = shortened(texts[0], MAX_TITLE)
        return [shapes.InfoChanged(title=self._title)]

    def _done(self) -> list[SessionUpdate]:
        self._prompted = False
        self._compaction = ""
        shown = self._failed("aborted", called=True)
        return [*shown, shapes.InfoChanged(updated_at=rfc3339(time.time()))]

    def _usage(self, usage: Usage, cumulative: Usage) -> list[SessionUpdate]:
        self._cumulative = cumulative
        if self._compaction:
            return []  # tokens of the summary, not of the window
        return self.usage(usage.total, cumulative)

    def usage(self, used: int, cumulative: Usage) -> list[SessionUpdate]:
        """Return the use of the window and the cost; nothing if they are unknown."""
        if not used or not self.window:
            return []
        cost = None
        if cumulative.cost_known:
            cost = shapes.AcpCost(cumulative.cost.total, "USD")
        return [shapes.UsageShown(used, self.window, cost)]

    def _compacting(self, status: str, **fields: object) -> list[SessionUpdate]:
        if self._abilities.compaction is None:
            return []
        return [shapes.CompactionShown(self._compaction, status, **fields)]  # type: ignore[arg-type]  # by name

    def _compacted(self, event: events.CompactDone) -> list[SessionUpdate]:
        shown = self._compacting("completed", summary=(TextContent(event.summary),))
        if not shown and event.reason == "manual":
            text = f"Compacted: {event.tokens_before} tokens became {event.tokens_after}."
            shown.append(AgentChunk(TextContent(text), new_id()))
        self._compaction = ""
        return [*shown, *self.usage(event.tokens_after, self._cumulative)]

    def _notice(self, severity: str, title: str, text: str = "") -> list[SessionUpdate]:
        if self._abilities.notices is None:
            return []
        return [shapes.NoticeShown(severity, title, text or None)]  # type: ignore[arg-type]  # one of three

    def _notify(self, extension: str, level: str, message: str) -> list[SessionUpdate]:
        severity = {"warn": "warning", "warning": "warning", "error": "error"}.get(level, "info")
        if self._abilities.notices is None:
            return [AgentChunk(TextContent(f"{extension}: {message}"), new_id())]
        return self._notice(severity, message, extension)

    def notice(self, text: str) -> list[SessionUpdate]:
        """Return a warning about the session; nothing for a client without notices."""
        return self._notice("warning", text)


def new_id() -> str:
    return os.urandom(8).hex()


# --- the end of a run ------------------------------------------------------------------------


class RunOutcome(Frozen):
    """The end of a run: a stop reason of the protocol, or a fault."""

    reason: shapes.StopReason = "end_turn"
    fault: RpcFault | None = None
    text: str = ""
    """Text of the agent to send first."""


def outcome(stop: Stop, error: ZotError | None, *, cut: bool) -> RunOutcome:
    if stop == "aborted":
        return RunOutcome("cancelled")
    if error is None:
        return RunOutcome("max_tokens" if cut else "end_turn")
    if isinstance(error, LimitError) and error.limit == "steps":
        return RunOutcome("max_turn_requests")
    if isinstance(error, LimitError) and error.limit == "tokens":
        return RunOutcome("max_tokens")
    if error.code == "refused":
        # The protocol's `refusal` means that the prompt is discarded, but it is not.
        return RunOutcome(text=str(error))
    return RunOutcome(fault=fault_of(error))


# --- stored sessions -------------------------------------------------------------------------


def history(entries: Iterable[Entry], cwd: str) -> Iterator[SessionUpdate]:
    """Yield the updates that a client would have received for the messages of a branch, including
    those before a compaction, but not cleared ones."""
    messages, results = _messages(entries)
    for id, message in messages:
        for number, block in enumerate(message.content):
            match block:
                case Text(text):
                    chunk = shapes.UserChunk if message.role == "user" else AgentChunk
                    if text:
                        yield chunk(TextContent(text), id)
                case Image(mime_type, data):
                    yield shapes.UserChunk(shapes.ImageContent(data, mime_type), id)
                case Reasoning(text):
                    if text:
                        yield shapes.ThoughtChunk(TextContent(text), f"{id}.{number}")
                case ToolCall():
                    yield _call(block, results.get(block.id), cwd)
                case ToolResult():
                    pass  # shown with its call
                case _:
                    assert_never(block)


def call_ids(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the ids of the tool calls of a branch, as the client knows them."""
    for entry in entries:
        if isinstance(entry.body, Message):
            yield from (block.id for block in entry.body.content if isinstance(block, ToolCall))


def _messages(entries: Iterable[Entry]) -> tuple[list[tuple[str, Message]], dict[str, ToolResult]]:
    """Return the messages, each with an id for its updates, and the results by call."""
    messages: list[tuple[str, Message]] = []
    results: dict[str, ToolResult] = {}
    for entry in entries:
        match entry.body:
            case Message():
                messages.append((entry.id, entry.body))
            case Cleared():
                messages = []
            case Replaced(replacement):
                messages = [
                    (f"{entry.id}.{number}", message) for number, message in enumerate(replacement)
                ]
            case ResultNote(result):
                results[result.call_id] = result
            case _:
                pass
    for _, message in messages:
        for block in message.content:
            if isinstance(block, ToolResult):
                results[block.call_id] = block
    return messages, results


def _call(call: ToolCall, result: ToolResult | None, cwd: str) -> shapes.CallShown:
    done = result is not None and not result.is_error
    return shapes.CallShown(
        call.id,
        title_of(call),
        call.name,
        calls.kind_of(call.name),
        "completed" if done else "failed",
        content=calls.result_content(call.name, result.content if result is not None else ()),
        locations=calls.locations_of(call, cwd),
        raw_input=calls.input_of(call),
    )
