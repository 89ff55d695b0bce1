"""The events of a run as pi's frames. Pure but stateful, because pi orders a turn differently.

One prompt is one `agent_start` ... `agent_end`, whatever retries and compactions lie between:

    run       = agent_start (void* turn)* agent_end [auto_retry_end] [compaction*] [agent_settled]
    turn      = turn_start user* assistant tools turn_end
    void      = turn_start assistant{error} turn_end auto_retry_start
    user      = message_start message_end
    assistant = message_start message_update* message_end
    tools (a) = (tool_execution_start tool_execution_end message_start message_end)*
    tools (b) = tool_execution_start* (tool_execution_update | tool_execution_end)*
                (message_start message_end)*

`Traits` (commands.py) say how the generations differ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from zot.core import events
from zot.core.events import Event
from zot.pi import frames, messages
from zot.pi.commands import PiPeer, Traits
from zot.pi.frames import CompactionResult, PiFrame, PiToolOutput, UiRequest
from zot.pi.stream import Budget, PiStream
from zot.provider.types import Json, Message, Origin, Stop, Text, ToolCall, ToolResult, Usage
from zot.wire.encode import timestamp

RunKind = Literal["prompt", "compact"]

CallDelta = events.ToolCallStart | events.ToolCallArgs | events.ToolCallEnd
Delta = events.TextDelta | events.ReasoningDelta | CallDelta
Said = events.UserMessage | events.AssistantStart | events.AssistantMessage | events.UsageReport
TurnEvent = Said | events.TurnStart | events.TurnEnd | events.ErrorRaised | events.Done
ToolEvent = events.ToolCalled | events.ToolStarted | events.ToolProgress | events.ToolReturned
Compacting = events.CompactStart | events.CompactDone | events.CompactFailed
Upkeep = Compacting | events.Retrying | events.QueueUpdate

NEWER = frames.CompactionStart | frames.AutoRetryStart | frames.AutoRetryEnd | frames.QueueChanged
"""Frames that generation A does not have."""
PROGRESS_CHARS = 51_200
"""Maximum characters of a running tool's output that each update repeats."""
PROGRESS_OVERHEAD = 200
ABORTED = "the run was aborted"
NO_RESULT = "the run was aborted before the tool returned"
_LEVEL_TO_NOTIFY = {"error": "error", "warn": "warning", "warning": "warning"}


class PiTurn:
    """A model call and its tools, as far as frames were sent for them."""

    def __init__(self) -> None:
        self.message: messages.PiAssistant | None = None
        """The last assistant message that ended."""
        self.calls: list[ToolCall] = []
        self.started: set[str] = set()
        self.results: dict[str, messages.PiResult] = {}


class PiProgress:
    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.text = ""
        self.held = False


class Encoder:
    """Converts the events of one connection to frames; call it in the order of the events."""

    def __init__(self, peer: PiPeer) -> None:
        self.running = False
        """Whether agent_start was sent and its agent_end was not."""
        self._peer = peer
        self._traits = peer.traits
        self._turn: PiTurn | None = None
        self._stream: PiStream | None = None
        self._messages: list[messages.PiMessage] = []
        self._model = ("", "", "")
        self._usage = Usage()
        self._budget = Budget()
        self._retry: events.Retrying | None = None
        self._error_reported = False
        self._queue: list[PiFrame] = []
        self._progress: dict[str, PiProgress] = {}
        self._ui_requests = 0

    @property
    def traits(self) -> Traits:
        """Traits of the peer's generation; a run keeps its own, even if the peer changes."""
        return self._traits if self.running else self._peer.traits

    @property
    def retrying(self) -> bool:
        """Whether a model call failed and will be retried."""
        return self._retry is not None

    @property
    def holds_back(self) -> bool:
        """Whether `tick` has something to send."""
        waiting = self._stream is not None and self._stream.waiting
        return waiting or any(progress.held for progress in self._progress.values())

    def tick(self, now: float) -> list[PiFrame]:
        """Return the frames held back for the budget, as far as it allows them now."""
        out: list[PiFrame] = []
        if self._stream is not None and self._stream.waiting:
            out += self._stream.tick(now)
        for progress in self._progress.values():
            if progress.held:
                out += self._progressed(progress, now)
        return out

    def use_model(self, provider: str, model: str, api: str) -> None:
        """Set the model named in messages that no model produced."""
        self._model = (provider, model, api)

    # --- events ------------------------------------------------------------------------------

    def encode(self, event: Event, kind: RunKind | None, now: float) -> Sequence[PiFrame]:
        """Return the frames for an event of a run of this kind (None: outside of all runs)."""
        documented = self.traits.documented
        shown = self._encode(event, kind, now)
        return [frame for frame in shown if not (documented and isinstance(frame, NEWER))]

    def _encode(self, event: Event, kind: RunKind | None, now: float) -> Sequence[PiFrame]:
        if isinstance(event, Delta):
            return self._update(event, now)
        if isinstance(event, TurnEvent):
            return self._turn_event(event, kind)
        if isinstance(event, ToolEvent):
            return self._tool(event, now)
        if isinstance(event, Upkeep):
            return self._upkeep(event)
        match event:
            case events.ExtensionNotify(_, level, message):
                return self._notify(message, _LEVEL_TO_NOTIFY.get(level, "info"))
            case events.ExtensionDisplay(_, text):
                return self._notify(text, "info")
            case events.FellBack(failed, provider, model, reason):
                text = f"{failed} failed ({reason}); going on with {provider}/{model.id}"
                return self._notify(text, "warning")
            case events.ExtensionPanel(extension, action, panel):
                return self._panel(extension, action, panel)
            case events.ExtensionAsk():
                return self._ask(event)
            case events.ApprovalRequest() | events.ApprovalResolved():
                return []  # the server sends them and waits for the answer
            case (
                events.CacheMissed()
                | events.ServerChanged()
                | events.ToolAllowed()
                | events.RunResumed()
                | events.RunHeld()
                | events.RunSuspended()
            ):
                return []  # no equivalent in pi
            case _:
                assert_never(event)

    def _turn_event(self, event: TurnEvent, kind: RunKind | None) -> list[PiFrame]:
        match event:
            case events.UserMessage(message):
                out = self._open_turn()
                return out + [
                    frame for shown in messages.to_pi(message) for frame in self._pair(shown)
                ]
            case events.TurnStart():
                self._usage = Usage()
                return self._open_turn()
            case events.AssistantStart(provider, model, api):
                self.use_model(provider, model, api)
                return self._begin()
            case events.UsageReport(usage):
                if self._stream is not None:  # not for a compaction
                    self._usage = usage
                return []
            case events.AssistantMessage(message):
                return self._assistant(messages.assistant_to_pi(message))
            case events.TurnEnd(again=True):
                return self._void_turn("the answer was cut") if self._turn is not None else []
            case events.TurnEnd(stop, error):
                return self._turn_end(stop, error) if kind != "compact" else []
            case events.ErrorRaised(text):
                return self._error(text) if kind == "prompt" else []
            case events.Done(stop):
                return self._done(stop) if kind != "compact" else []
            case _:
                assert_never(event)

    def _tool(self, event: ToolEvent, now: float) -> list[PiFrame]:
        match event:
            case events.ToolCalled(call):
                if self._turn is not None:
                    self._turn.calls.append(call)
                return []
            case events.ToolStarted(call):
                self._progress[call.id] = PiProgress(call)
                return self._tool_start(call)
            case events.ToolProgress(id, text):
                return self._tool_progress(id, text, now)
            case events.ToolReturned(call, result, seconds):
                return self._tool_end(call, result, seconds)
            case _:
                assert_never(event)

    def _upkeep(self, event: Upkeep) -> list[PiFrame]:
        match event:
            case events.CompactStart(reason):
                return [frames.CompactionStart(reason)]
            case events.CompactDone():
                return []  # `compacted` reports it, with session data
            case events.CompactFailed(reason):
                if reason == "threshold":
                    self._error_reported = (
                        True  # suppress the error that follows: it repeats this one
                    )
                return [self._compaction_failed(event)]
            case events.Retrying(attempt, attempts, delay, reason):
                self._retry = event
                void = self._void_turn(reason) if event.dropped else []
                # pi does not count the first attempt.
                start = frames.AutoRetryStart(attempt, attempts - 1, round(delay * 1000), reason)
                return [*void, start]
            case events.QueueUpdate(steering, follow_up, taken):
                frame = frames.QueueChanged(steering, follow_up)
                if taken:  # send it once the turn that gets the message has begun
                    self._queue.append(frame)
                return [] if taken else [frame]
            case _:
                assert_never(event)

    def settled(self, *, aborted: bool) -> list[PiFrame]:
        """Report that the agent is idle: nothing more follows without a new command."""
        return [] if self.traits.documented else [frames.AgentSettled(aborted)]

    def compacted(self, event: events.CompactDone, result: CompactionResult) -> PiFrame:
        """Report a finished compaction; `result` is its data in pi's form."""
        if self.traits.documented:
            auto = UNSET if event.reason == "manual" else True
            now = timestamp(time.time())
            return frames.SpecCompaction(event.summary, event.tokens_before, now, auto)
        again = event.reason == "overflow"
        return frames.CompactionEnd(event.reason, aborted=False, willRetry=again, result=result)

    def _compaction_failed(self, event: events.CompactFailed) -> PiFrame:
        if self.traits.documented:
            what = "Compaction" if event.reason == "manual" else "Auto-compaction"
            return frames.SpecError(f"{what} failed: {event.error}")
        error = UNSET if event.aborted else event.error
        return frames.CompactionEnd(event.reason, event.aborted, False, errorMessage=error)

    # --- the user's interface ----------------------------------------------------------------

    def ui(self, method: str, id: str = "", **fields: Json) -> list[PiFrame]:
        """Return a request to the client's user interface; generation A has none.

        The peer's current generation decides, not the one the run began with.
        """
        if self._peer.traits.documented:
            return []
        self._ui_requests += 1
        return [UiRequest(id=id or f"ui-{self._ui_requests}", method=method, **fields)]

    def _notify(self, text: str, kind: str) -> list[PiFrame]:
        return self.ui("notify", message=text, notifyType=kind)

    def _ask(self, event: events.ExtensionAsk) -> list[PiFrame]:
        fields: dict[str, dict[str, Json]] = {
            "confirm": {"message": event.message},
            "select": {"options": event.options},
            "input": {"placeholder": event.placeholder},
            "editor": {"prefill": event.prefill},
        }
        more = fields[event.method]
        timeout = round(event.timeout * 1000)
        return self.ui(event.method, id=event.id, title=event.title, **more, timeout=timeout)

    def _panel(self, extension: str, action: str, panel: dict[str, Json]) -> list[PiFrame]:
        key = f"{extension}:{panel.get('id') or panel.get('panel_id') or ''}"
        if action == "close":
            return self.ui("setWidget", widgetKey=key)
        lines = [str(line) for line in (panel.get("title"), *panel.get("lines", ())) if line]
        return self.ui("setWidget", widgetKey=key, widgetLines=lines)

    # --- messages ----------------------------------------------------------------------------

    def system(self, shown: messages.PiSystem) -> list[PiFrame]:
        """Return the system message of a new conversation; generation C shows it."""
        return [*self._open_turn(), *self._pair(shown)]

    def _pair(self, shown: messages.PiMessage) -> list[PiFrame]:
        self._messages.append(shown)
        return [frames.MessageStart(shown), frames.MessageEnd(shown)]

    def _begin(self) -> list[PiFrame]:
        traits = self.traits
        head = replace(self._head("end"), stopReason=traits.first_stop)
        budget = self._budget if traits.snapshots else None
        self._stream = PiStream(head, budget, as_documented=traits.documented)
        return [*self._open_turn(keep=True), frames.MessageStart(head)]

    def _head(self, stop: Stop, error: str | None = None) -> messages.PiAssistant:
        """Return an assistant message without content."""
        provider, model, api = self._model
        origin = Origin(provider, model, api, stop, self._usage, error)
        return messages.assistant_to_pi(Message("assistant", (), time.time(), origin))

    def _update(self, event: Delta, now: float) -> Sequence[PiFrame]:
        began = self._begin() if self._stream is None else []
        stream = self._stream
        assert stream is not None
        match event:
            case events.TextDelta(delta):
                return [*began, *stream.say("text", delta, now)]
            case events.ReasoningDelta(delta):
                return [*began, *stream.say("thinking", delta, now)]
            case events.ToolCallStart(id, name):
                return [*began, *stream.call(id, name)]
            case events.ToolCallArgs(id, delta):
                return [*began, *stream.call_args(id, delta, now)]
            case events.ToolCallEnd(id):
                return [*began, *stream.call_end(id)]
            case _:
                assert_never(event)

    def _assistant(self, shown: messages.PiAssistant) -> list[PiFrame]:
        out: list[PiFrame] = self._open_turn(keep=True)
        cut = shown.stopReason in ("error", "aborted")
        if shown.stopReason == "aborted" and shown.errorMessage is UNSET:
            shown = replace(shown, errorMessage=ABORTED)
        if self._stream is None:
            out.append(frames.MessageStart(shown))
        else:  # interrupted blocks get no end
            out += self._stream.flush() if cut else self._stream.finish()
        self._stream = None
        if self._retry is not None and not cut:
            out.append(self._retry_over(None))
        out.append(frames.MessageEnd(shown))
        self._messages.append(shown)
        assert self._turn is not None
        self._turn.message = shown
        return out

    # --- turns -------------------------------------------------------------------------------

    def _open_turn(self, *, keep: bool = False) -> list[PiFrame]:
        """Open a turn if none is; first close one that has its answer, unless `keep`."""
        out: list[PiFrame] = []
        if not self.running:
            self._traits = self._peer.traits
            self.running, self._messages, self._error_reported = True, [], False
            out.append(frames.AgentStart())
        if self._turn is not None and self._turn.message is not None and not keep:
            out += self._close_turn()
        if self._turn is None:
            self._turn = PiTurn()
            out.append(frames.TurnStarted())
        held, self._queue = self._queue, []
        return out + held

    def _close_turn(self) -> list[PiFrame]:
        turn = self._turn
        assert turn is not None
        out: list[PiFrame] = []
        for call in turn.calls:
            if call.id not in turn.results and call.id in turn.started:
                lost = ToolResult(call.id, (Text(NO_RESULT),), is_error=True, name=call.name)
                out += self._tool_end(call, lost, 0.0)
        if self._turn is None:  # the last result closed it
            return out
        self._turn, self._usage = None, Usage()
        assert turn.message is not None
        return [*out, frames.TurnEnded(turn.message, list(turn.results.values()))]

    def _turn_end(self, stop: Stop, error: str | None) -> list[PiFrame]:
        if stop in ("error", "aborted"):
            return self._cut_short("error" if stop == "error" else "aborted", error)
        turn = self._turn
        assert turn is not None
        return self._tools_called(turn) if turn.calls else self._close_turn()

    def _void_turn(self, reason: str) -> list[PiFrame]:
        """End the turn with a failed message, which the next turn generates again."""
        out = self._cut_short("error", reason)
        self._error_reported = False  # a later error is a different one
        return out

    def _cut_short(self, stop: Literal["error", "aborted"], error: str | None) -> list[PiFrame]:
        """End the turn as failed or aborted; without output, make up the message for that."""
        self._error_reported = True
        out: list[PiFrame] = []
        if self._turn is not None and self._turn.message is not None:
            ended = self._turn.message.stopReason
            out += self._close_turn()
            if ended in ("error", "aborted"):
                return out
        head = self._head(stop, ABORTED if stop == "aborted" else error)
        if self._stream is not None:
            head = replace(head, content=self._stream.content())
        out += self._open_turn(keep=True)
        out += self._assistant(head)
        return out + self._close_turn()

    def _error(self, message: str) -> list[PiFrame]:
        """Report an error outside of a turn (a limit, a guard): in pi, as a failed message."""
        if self._error_reported:
            self._error_reported = False
            return []
        return self._cut_short("error", message)

    def _done(self, stop: Stop) -> list[PiFrame]:
        out: list[PiFrame] = []
        if not self.running:
            out += self._cut_short("aborted" if stop == "aborted" else "error", None)
        if self._turn is not None:
            out += self._close_turn() if self._turn.message else self._cut_short("error", None)
        again = UNSET if self.traits.documented else False
        out.append(frames.AgentEnd(self._messages, willRetry=again))
        if self._retry is not None:
            answers = [one for one in self._messages if isinstance(one, messages.PiAssistant)]
            errors = [one.errorMessage for one in answers if one.errorMessage is not UNSET]
            out.append(self._retry_over(errors[-1] if errors else "aborted"))
        self.running, self._stream, self._messages = False, None, []
        self._progress.clear()
        return out

    def _retry_over(self, error: str | None) -> PiFrame:
        retry, self._retry = self._retry, None
        assert retry is not None
        return frames.AutoRetryEnd(error is None, retry.attempt, UNSET if error is None else error)

    # --- tools -------------------------------------------------------------------------------

    def _tools_called(self, turn: PiTurn) -> list[PiFrame]:
        """Start all tools of a turn at once, before the first one runs."""
        if self.traits.documented:
            return []  # each is reported when it runs
        return [frame for call in turn.calls for frame in self._tool_start(call)]

    def _tool_start(self, call: ToolCall) -> list[PiFrame]:
        if self._turn is None or call.id in self._turn.started:
            return []
        self._turn.started.add(call.id)
        return [frames.ToolExecution(call.id, call.name, call.args or {})]

    def _tool_progress(self, id: str, text: str, now: float) -> list[PiFrame]:
        progress = self._progress.get(id)
        if progress is None or self.traits.documented:
            return []
        progress.text = (progress.text + text)[-PROGRESS_CHARS:]
        progress.held = True
        return self._progressed(progress, now)

    def _progressed(self, progress: PiProgress, now: float) -> list[PiFrame]:
        size = len(progress.text) + PROGRESS_OVERHEAD
        if not self._budget.allows(size, now):
            return []
        self._budget.spend(size)
        progress.held = False
        call, so_far = progress.call, PiToolOutput([messages.TextPart(progress.text)])
        return [frames.ToolExecutionUpdate(call.id, call.name, call.args or {}, so_far)]

    def _tool_end(self, call: ToolCall, result: ToolResult, seconds: float) -> list[PiFrame]:
        turn = self._turn
        if turn is None:
            return []
        self._progress.pop(call.id, None)
        out = self._tool_start(call)
        shown = turn.results[call.id] = messages.result_to_pi(result, round(time.time() * 1000))
        out += self._tool_ended(call, shown, seconds)
        if len(turn.results) == len(turn.calls):
            out += self._tools_done(turn)
        return out

    def _tool_ended(
        self, call: ToolCall, shown: messages.PiResult, seconds: float
    ) -> list[PiFrame]:
        if self.traits.documented:
            plain: PiToolOutput | str = PiToolOutput(shown.content, shown.details)
            if shown.isError:
                plain = "\n".join(
                    part.text for part in shown.content if isinstance(part, messages.TextPart)
                )
            end = frames.ToolExecutionEnd(call.id, call.name, plain, shown.isError)
            return [end, *self._pair(shown)]
        output = PiToolOutput(shown.content, shown.details or {})
        milliseconds = round(seconds * 1000)
        return [frames.ToolExecutionEnd(call.id, call.name, output, shown.isError, milliseconds)]

    def _tools_done(self, turn: PiTurn) -> list[PiFrame]:
        """Send the results as messages, after all tools have returned."""
        shown = () if self.traits.documented else (turn.results[call.id] for call in turn.calls)
        return [*(frame for message in shown for frame in self._pair(message)), *self._close_turn()]
