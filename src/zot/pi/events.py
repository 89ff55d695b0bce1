"""What happens in a run, as pi's events. Pure, and with memory: pi tells a turn in another order.

One prompt is one `agent_start` ... `agent_end`, whatever retries and compactions lie between:

    run       = agent_start turn* agent_end [auto_retry_end] [compaction*] [agent_settled]
    turn      = turn_start user* assistant tools turn_end
    user      = message_start message_end
    assistant = message_start message_update* message_end
    tools (a) = (tool_execution_start tool_execution_end message_start message_end)*
    tools (b) = tool_execution_start* (tool_execution_update | tool_execution_end)*
                (message_start message_end)*
"""

from __future__ import annotations

import time
from typing import Literal, assert_never

from zot.core import events
from zot.core.events import Event
from zot.pi.dialect import Generation, Peer, SpecError
from zot.pi.messages import result_to_pi, text_of, to_pi
from zot.pi.stream import Budget, MessageUpdate, Stream
from zot.provider.types import Json, Message, Origin, Stop, Text, ToolCall, ToolResult, Usage
from zot.wire.zot_events import timestamp

Frame = dict[str, Json] | MessageUpdate | SpecError
RunKind = Literal["prompt", "compact"]

Delta = (
    events.TextDelta
    | events.ReasoningDelta
    | events.ToolCallStart
    | events.ToolCallArgs
    | events.ToolCallEnd
)

PROGRESS_CHARS = 51_200
"""How much of a running tool's output an update repeats."""
PROGRESS_OVERHEAD = 200
ABORTED = "the run was aborted"
NO_RESULT = "the run was aborted before the tool returned"
_LEVEL_TO_NOTIFY = {"error": "error", "warn": "warning", "warning": "warning"}


class Turn:
    """One model call and its tools, as far as they were told."""

    def __init__(self) -> None:
        self.message: dict[str, Json] | None = None
        """The assistant message that ended last."""
        self.calls: list[ToolCall] = []
        self.started: set[str] = set()
        self.results: dict[str, tuple[ToolResult, float]] = {}


class Progress:
    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.text = ""
        self.held = False


class EventEncoder:
    """Turns the events of one connection into frames; call it in the order of the events."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._running = False
        """An agent_start was told, and its agent_end was not."""
        self._began_in = peer.generation
        self._turn: Turn | None = None
        self._stream: Stream | None = None
        self._messages: list[dict[str, Json]] = []
        self._model = ("", "", "")
        self._usage = Usage()
        self._budget = Budget()
        self._retry: events.Retrying | None = None
        self._told_error = False
        self._queue: list[Frame] = []
        self._progress: dict[str, Progress] = {}
        self._asked = 0

    @property
    def _speaks(self) -> Generation:
        """A run goes on in the words it began with, whatever the peer shows itself to be."""
        return self._began_in if self._running else self._peer.generation

    @property
    def retrying(self) -> bool:
        """A model call failed and will be made again."""
        return self._retry is not None

    @property
    def holds_back(self) -> bool:
        """There is something that `tick` would send."""
        waiting = self._stream is not None and self._stream.waiting
        return waiting or any(each.held for each in self._progress.values())

    def tick(self, now: float) -> list[Frame]:
        """What was held back to keep within the budget, as far as that has grown."""
        out: list[Frame] = []
        if self._stream is not None and self._stream.waiting:
            out += self._stream.tick(now)
        for progress in self._progress.values():
            if progress.held:
                out += self._progressed(progress, now)
        return out

    def use_model(self, provider: str, model: str, api: str) -> None:
        """What a message says that no model has answered."""
        self._model = (provider, model, api)

    # --- events ------------------------------------------------------------------------------

    def encode(self, event: Event, kind: RunKind | None, now: float) -> list[Frame]:
        """The frames for an event of a run of this kind (None: outside of all runs)."""
        match event:
            case (
                events.TextDelta()
                | events.ReasoningDelta()
                | events.ToolCallStart()
                | events.ToolCallArgs()
                | events.ToolCallEnd()
            ):
                return self._update(event, now)
            case events.UserMessage(message):
                return self._user(message)
            case events.TurnStart():
                self._usage = Usage()
                return self._open_turn()
            case events.AssistantStart(provider, model, api):
                self.use_model(provider, model, api)
                return self._begin()
            case events.UsageReport(usage):
                if self._stream is not None:  # not that of a compaction
                    self._usage = usage
                return []
            case events.AssistantMessage(message):
                return self._assistant(to_pi(message)[0])
            case events.ToolCalled(call):
                if self._turn is not None:
                    self._turn.calls.append(call)
                return []
            case events.TurnEnd(stop, error):
                return self._turn_end(stop, error) if kind != "compact" else []
            case events.ToolStarted(call):
                self._progress[call.id] = Progress(call)
                return self._tool_start(call)
            case events.ToolProgress(id, text):
                return self._tool_progress(id, text, now)
            case events.ToolReturned(call, result, seconds):
                return self._tool_end(call, result, seconds)
            case events.ErrorRaised(message):
                return self._error(message) if kind == "prompt" else []
            case events.Done(stop):
                return self._done(stop) if kind != "compact" else []
            case events.CompactStart(reason):
                if self._speaks == "a":
                    return []
                return [{"type": "compaction_start", "reason": reason}]
            case events.CompactDone():
                return []  # `compacted` tells it, with what the session knows
            case events.CompactFailed():
                return self._compact_failed(event)
            case events.Retrying():
                return self._retried(event)
            case events.QueueUpdate(steering, follow_up, taken):
                return self._queued(steering, follow_up, taken)
            case events.ExtensionNotify(extension, level, message):
                kind_word = _LEVEL_TO_NOTIFY.get(level, "info")
                return self.ui("notify", message=message, notifyType=kind_word)
            case events.ExtensionDisplay(extension, text):
                return self.ui("notify", message=text, notifyType="info")
            case events.ExtensionPanel(extension, action, panel):
                return self._panel(extension, action, panel)
            case events.ExtensionAsk():
                return self._ask(event)
            case events.FellBack(failed, provider, model, reason):
                text = f"{failed} failed ({reason}); going on with {provider}/{model.id}"
                return self.ui("notify", message=text, notifyType="warning")
            case events.ApprovalRequest() | events.ApprovalResolved():
                return []  # questions are asked by the server, which waits for the answer
            case _:
                assert_never(event)

    def settled(self, *, aborted: bool) -> list[Frame]:
        """Nothing will follow by itself."""
        if self._speaks == "a":
            return []
        return [{"type": "agent_settled", "aborted": aborted}]

    def compacted(self, event: events.CompactDone, result: dict[str, Json]) -> list[Frame]:
        """A compaction is done; `result` is what pi says of it."""
        if self._speaks == "a":
            frame: dict[str, Json] = {
                "type": "compaction",
                "summary": event.summary,
                "tokensBefore": event.tokens_before,
                "timestamp": timestamp(time.time()),
            }
            return [frame if event.reason == "manual" else {**frame, "auto": True}]
        return [
            {
                "type": "compaction_end",
                "reason": event.reason,
                "result": result,
                "aborted": False,
                "willRetry": event.reason == "overflow",
            }
        ]

    def ui(self, method: str, id: str = "", **fields: Json) -> list[Frame]:
        """A request to the user's interface; generation A has none."""
        if self._peer.generation == "a":
            return []
        self._asked += 1
        request = {"type": "extension_ui_request", "id": id or f"ui-{self._asked}"}
        return [{**request, "method": method, **fields}]

    def _ask(self, event: events.ExtensionAsk) -> list[Frame]:
        fields: dict[str, dict[str, Json]] = {
            "confirm": {"message": event.message},
            "select": {"options": list(event.options)},
            "input": {"placeholder": event.placeholder},
            "editor": {"prefill": event.prefill},
        }
        more = fields[event.method]
        timeout = round(event.timeout * 1000)
        return self.ui(event.method, id=event.id, title=event.title, **more, timeout=timeout)

    # --- messages ----------------------------------------------------------------------------

    def _user(self, message: Message) -> list[Frame]:
        out = self._open_turn()
        for shown in to_pi(message):
            out += self._pair(shown)
        return out

    def system(self, shown: dict[str, Json]) -> list[Frame]:
        """The system message of a conversation that begins; generation C shows it."""
        return [*self._open_turn(), *self._pair(shown)]

    def _pair(self, shown: dict[str, Json]) -> list[Frame]:
        self._messages.append(shown)
        return [
            {"type": "message_start", "message": shown},
            {"type": "message_end", "message": shown},
        ]

    def _begin(self) -> list[Frame]:
        head = self._head("end")
        head["stopReason"] = "pending" if self._speaks == "c" else "stop"
        self._stream = Stream(
            head,
            None if self._speaks == "c" else self._budget,
            as_documented=self._speaks == "a",
        )
        return [*self._open_turn(keep=True), {"type": "message_start", "message": head}]

    def _head(self, stop: Stop, error: str | None = None) -> dict[str, Json]:
        """An assistant message without content."""
        provider, model, api = self._model
        origin = Origin(provider, model, api, stop, self._usage, error)
        return to_pi(Message("assistant", (), time.time(), origin))[0]

    def _update(self, event: Delta, now: float) -> list[Frame]:
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

    def _assistant(self, shown: dict[str, Json]) -> list[Frame]:
        out: list[Frame] = self._open_turn(keep=True)
        cut = shown["stopReason"] in ("error", "aborted")
        if shown["stopReason"] == "aborted":
            shown.setdefault("errorMessage", ABORTED)
        if self._stream is None:
            out.append({"type": "message_start", "message": shown})
        else:  # blocks that were cut short do not end
            out += self._stream.flush() if cut else self._stream.finish()
        self._stream = None
        if self._retry is not None and not cut:
            out += self._retry_over(None)
        out.append({"type": "message_end", "message": shown})
        self._messages.append(shown)
        assert self._turn is not None
        self._turn.message = shown
        return out

    # --- turns -------------------------------------------------------------------------------

    def _open_turn(self, *, keep: bool = False) -> list[Frame]:
        """Make sure that a turn is open; one that had its answer is closed, unless kept."""
        out: list[Frame] = []
        if not self._running:
            self._running, self._began_in = True, self._peer.generation
            self._messages, self._told_error = [], False
            out.append({"type": "agent_start"})
        if self._turn is not None and self._turn.message is not None and not keep:
            out += self._close_turn()
        if self._turn is None:
            self._turn = Turn()
            out.append({"type": "turn_start"})
        held, self._queue = self._queue, []
        return out + held

    def _close_turn(self) -> list[Frame]:
        turn = self._turn
        assert turn is not None
        out: list[Frame] = []
        for call in turn.calls:
            if call.id not in turn.results and call.id in turn.started:
                lost = ToolResult(call.id, (Text(NO_RESULT),), is_error=True, name=call.name)
                out += self._tool_end(call, lost, 0.0)
        if self._turn is None:  # the last of those closed it
            return out
        shown = [result_to_pi(result, round(at * 1000)) for result, at in turn.results.values()]
        self._turn, self._usage = None, Usage()
        return [*out, {"type": "turn_end", "message": turn.message, "toolResults": shown}]

    def _turn_end(self, stop: Stop, error: str | None) -> list[Frame]:
        if stop in ("error", "aborted"):
            return self._cut_short("error" if stop == "error" else "aborted", error)
        turn = self._turn
        assert turn is not None
        if not turn.calls:
            return self._close_turn()
        if self._speaks == "a":
            return []  # each is told when it runs
        return [frame for call in turn.calls for frame in self._tool_start(call)]

    def _cut_short(self, stop: Literal["error", "aborted"], error: str | None) -> list[Frame]:
        """The turn ends here; the message that says so is made up if the model said nothing."""
        self._told_error = True
        out: list[Frame] = []
        if self._turn is not None and self._turn.message is not None:
            ended = self._turn.message["stopReason"]
            out += self._close_turn()
            if ended in ("error", "aborted"):
                return out
        head = self._head(stop, ABORTED if stop == "aborted" else error)
        if self._stream is not None:
            head["content"] = self._stream.message()["content"]
        out += self._open_turn(keep=True)
        out += self._assistant(head)
        return out + self._close_turn()

    def _error(self, message: str) -> list[Frame]:
        """An error outside of a turn (a limit, a guard): in pi's words a message that failed."""
        if self._told_error:
            self._told_error = False
            return []
        return self._cut_short("error", message)

    def _done(self, stop: Stop) -> list[Frame]:
        out: list[Frame] = []
        if not self._running:
            out += self._cut_short("aborted" if stop == "aborted" else "error", None)
        if self._turn is not None:
            out += self._close_turn() if self._turn.message else self._cut_short("error", None)
        end: dict[str, Json] = {"type": "agent_end", "messages": self._messages}
        if self._speaks != "a":
            end["willRetry"] = False
        out.append(end)
        if self._retry is not None:
            failed = [each for each in self._messages if "errorMessage" in each]
            out += self._retry_over(failed[-1]["errorMessage"] if failed else "aborted")
        self._running, self._stream, self._messages = False, None, []
        self._progress.clear()
        return out

    # --- tools -------------------------------------------------------------------------------

    def _tool_start(self, call: ToolCall) -> list[Frame]:
        if self._turn is None or call.id in self._turn.started:
            return []
        self._turn.started.add(call.id)
        frame = {"type": "tool_execution_start", "toolCallId": call.id, "toolName": call.name}
        return [{**frame, "args": call.args or {}}]

    def _tool_progress(self, id: str, text: str, now: float) -> list[Frame]:
        progress = self._progress.get(id)
        if progress is None or self._speaks == "a":
            return []
        progress.text = (progress.text + text)[-PROGRESS_CHARS:]
        progress.held = True
        return self._progressed(progress, now)

    def _progressed(self, progress: Progress, now: float) -> list[Frame]:
        size = len(progress.text) + PROGRESS_OVERHEAD
        if not self._budget.allows(size, now):
            return []
        self._budget.spend(size)
        progress.held = False
        call = progress.call
        return [
            {
                "type": "tool_execution_update",
                "toolCallId": call.id,
                "toolName": call.name,
                "args": call.args or {},
                "partialResult": {"content": [{"type": "text", "text": progress.text}]},
            }
        ]

    def _tool_end(self, call: ToolCall, result: ToolResult, seconds: float) -> list[Frame]:
        turn = self._turn
        if turn is None:
            return []
        self._progress.pop(call.id, None)
        out = self._tool_start(call)
        at = time.time()
        turn.results[call.id] = (result, at)
        shown = result_to_pi(result, round(at * 1000))
        end: dict[str, Json] = {
            "type": "tool_execution_end",
            "toolCallId": call.id,
            "toolName": call.name,
            "result": self._tool_result(result, shown),
            "isError": result.is_error,
        }
        if self._speaks != "a":
            end["durationMs"] = round(seconds * 1000)
        out.append(end)
        if self._speaks == "a":
            out += self._pair(shown)
        if len(turn.results) == len(turn.calls):
            out += self._tools_done(turn)
        return out

    def _tool_result(self, result: ToolResult, shown: dict[str, Json]) -> Json:
        if self._speaks == "a":
            if result.is_error:
                return text_of(result.content)
            details = {} if result.details is None else {"details": result.details}
            return {"content": shown["content"], **details}
        return {"content": shown["content"], "details": result.details or {}}

    def _tools_done(self, turn: Turn) -> list[Frame]:
        out: list[Frame] = []
        if self._speaks != "a":
            for call in turn.calls:
                result, at = turn.results[call.id]
                out += self._pair(result_to_pi(result, round(at * 1000)))
        return out + self._close_turn()

    # --- the rest ----------------------------------------------------------------------------

    def _compact_failed(self, event: events.CompactFailed) -> list[Frame]:
        if event.reason == "threshold":
            self._told_error = True  # the error that follows says the same once more
        if self._speaks == "a":
            what = "Compaction" if event.reason == "manual" else "Auto-compaction"
            return [SpecError(f"{what} failed: {event.error}")]
        end: dict[str, Json] = {
            "type": "compaction_end",
            "reason": event.reason,
            "aborted": event.aborted,
            "willRetry": False,
        }
        return [end if event.aborted else {**end, "errorMessage": event.error}]

    def _retried(self, event: events.Retrying) -> list[Frame]:
        self._retry = event
        if self._speaks == "a":
            return []
        return [
            {
                "type": "auto_retry_start",
                "attempt": event.attempt,
                "maxAttempts": event.max_attempts - 1,  # pi does not count the first one
                "delayMs": round(event.delay * 1000),
                "errorMessage": event.reason,
            }
        ]

    def _retry_over(self, error: str | None) -> list[Frame]:
        retry, self._retry = self._retry, None
        assert retry is not None
        if self._speaks == "a":
            return []
        end = {"type": "auto_retry_end", "success": error is None, "attempt": retry.attempt}
        return [end if error is None else {**end, "finalError": error}]

    def _queued(
        self, steering: tuple[str, ...], follow_up: tuple[str, ...], taken: bool
    ) -> list[Frame]:
        if self._speaks == "a":
            return []
        frame: Frame = {
            "type": "queue_update",
            "steering": list(steering),
            "followUp": list(follow_up),
        }
        if taken:  # told when the turn that hears the message has begun
            self._queue.append(frame)
            return []
        return [frame]

    def _panel(self, extension: str, action: str, panel: dict[str, Json]) -> list[Frame]:
        key = f"{extension}:{panel.get('id') or panel.get('panel_id') or ''}"
        if action == "close":
            return self.ui("setWidget", widgetKey=key)
        lines = [str(line) for line in (panel.get("title"), *panel.get("lines", ())) if line]
        return self.ui("setWidget", widgetKey=key, widgetLines=lines)
