"""Turns the events of one runtime into spans, figures and log records.

    invoke_agent                     a prompt or a compaction, from its first event to its end
      chat MODEL                     one model call
      execute_tool NAME              one tool call, without the wait for its approval
        invoke_agent                 a sub-agent, or another process that got the traceparent

The runtime sends one event at a time, so no lock is needed; tools ask for their traceparent from
their own threads and only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from zot.core import events
from zot.core.events import Event
from zot.core.hook import Hook
from zot.core.tool import (
    Reconciled,
    Tool,
    ToolContext,
    ToolOutput,
    WrappedTool,
    can_reconcile,
    is_side_by_side,
    replay_of,
)
from zot.provider.types import Json, Message, Text, ToolCall, Usage
from zot.telemetry.setup import Telemetry

MAX_CONTENT = 32_768
"""Characters of one exported text, if content is exported at all."""
SYSTEMS = {"google": "gcp.gemini", "azure": "azure.ai.openai", "xai": "x_ai"}
"""Provider names of the conventions where they differ from zot's."""
DELTAS = (events.TextDelta, events.ReasoningDelta, events.ToolCallStart)
_W3C = TraceContextTextMapPropagator()
Attributes = dict[str, AttributeValue]


class _Call(Struct):
    """An open model call."""

    span: Span
    began: float
    attributes: Attributes
    first: float = 0.0
    """Seconds to the first piece of the answer; 0: none came yet."""


class AgentTrace(Hook):
    """Spans of one runtime. A `Hook` only to be closed with it."""

    def __init__(
        self,
        telemetry: Telemetry,
        redact: Callable[[str], str],
        parent: str = "",
        *,
        owns: bool = False,
    ) -> None:
        """`parent`: traceparent of the call that opened this agent. `owns`: the telemetry ends with
        this runtime."""
        self._telemetry = telemetry
        self.session: Callable[[], str] = str
        """Returns the conversation's id."""
        self._redact = redact
        self._parent = parent or telemetry.parent
        self._owns = owns
        self._run: Span | None = None
        self._call: _Call | None = None
        self._model: Attributes = {}
        self._asked: dict[str, float] = {}
        """Monotonic time at which guards began to look at a tool call."""
        self._tools: dict[str, Span] = {}

    def closed(self) -> None:
        self._end_run("closed")
        if self._owns:
            self._telemetry.close()

    def tool(self, tool: Tool) -> Tool:
        """Wrap a tool, so that it can pass its traceparent on."""
        return _TracedTool(tool, self)

    def traceparent(self, call_id: str) -> str:
        span = self._tools.get(call_id)
        return "" if span is None else _traceparent(span)

    # --- events ------------------------------------------------------------------------------

    def listen(self, event: Event, run: object) -> None:
        if isinstance(event, DELTAS):
            if self._call is not None and not self._call.first:
                self._call.first = time.monotonic() - self._call.began
            return
        if not (self._of_call(event) or self._of_tool(event)):
            self._of_run(event)

    def _of_call(self, event: Event) -> bool:
        """Handle an event of a model call; False: it is none."""
        match event:
            case events.TurnStart():
                self._begin_call()
            case events.AssistantStart(provider, model, _):
                self._name_call(provider, model)
            case events.UsageReport(usage, _):
                self._count(usage)
            case events.TurnEnd(stop, error, code):
                self._end_call(stop, error, code)
            case events.Retrying() | events.FellBack():
                self._note(type(event).__name__.lower(), {"reason": self._redact(event.reason)})
            case _:
                return False
        return True

    def _of_tool(self, event: Event) -> bool:
        """Handle an event of a tool call; False: it is none."""
        match event:
            case events.ToolStarted(call):
                self._asked[call.id] = time.monotonic()
            case events.ToolAllowed(call):
                self._begin_tool(call)
            case events.ToolReturned():
                self._end_tool(event)
            case _:
                return False
        return True

    def _of_run(self, event: Event) -> None:
        match event:
            case events.UserMessage(message):
                self._begin_run(message)
            case events.AssistantMessage(message):
                self._content("gen_ai.output.messages", message)
            case events.CompactStart(reason):
                self._begin_run(None)
                self._note("compact", {"zot.compact.reason": reason})
            case events.ErrorRaised(message, code):
                self._failed(self._redact(message), code)
            case events.Done(stop):
                self._end_run(stop)
            case events.RunSuspended():
                self._end_run("suspended")
            case _:
                pass

    def _begin_run(self, message: Message | None) -> None:
        if self._run is None:
            context = _W3C.extract({"traceparent": self._parent}) if self._parent else None
            attributes: Attributes = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "zot",
                "gen_ai.conversation.id": self.session(),
            }
            self._run = self._telemetry.tracer.start_span(
                "invoke_agent zot", context, SpanKind.INTERNAL, attributes
            )
        if message is not None:
            self._content("gen_ai.input.messages", message)

    def _begin_call(self) -> None:
        self._begin_run(None)
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": self.session(),
        }
        span = self._child("chat", SpanKind.CLIENT, attributes)
        self._call = _Call(span, time.monotonic(), attributes)

    def _name_call(self, provider: str, model: str) -> None:
        if (call := self._call) is None:
            return
        named: Attributes = {
            "gen_ai.provider.name": SYSTEMS.get(provider, provider),
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
        }
        call.attributes |= named
        call.span.set_attributes(named)
        call.span.update_name(f"chat {model}")

    def _count(self, usage: Usage) -> None:
        """Add the tokens of a call; usage of a task's own calls has spans of its own."""
        if (call := self._call) is None:
            return
        given = usage.input + usage.cache_read + usage.cache_write
        call.span.set_attributes(
            {
                "gen_ai.usage.input_tokens": given,
                "gen_ai.usage.output_tokens": usage.output,
                "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
                "zot.cost_usd": usage.cost.total,
            }
        )
        for kind, count in (("input", given), ("output", usage.output)):
            self._telemetry.tokens.record(count, {**_plain(call), "gen_ai.token.type": kind})
        self._telemetry.cost.add(usage.cost.total, _plain(call))

    def _end_call(self, stop: str, error: str | None, code: str | None) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        call.span.set_attribute("gen_ai.response.finish_reasons", [stop])
        seconds = time.monotonic() - call.began
        plain = _plain(call)
        if call.first:
            call.span.set_attribute("gen_ai.response.time_to_first_chunk", call.first)
            self._telemetry.first_token.record(call.first, plain)
        if error is not None:
            plain["error.type"] = code or "error"
            call.span.set_attribute("error.type", code or "error")
            call.span.set_status(Status(StatusCode.ERROR, self._redact(error)))
        self._telemetry.durations.record(seconds, plain)
        call.span.end()

    def _begin_tool(self, call: ToolCall) -> None:
        waited = time.monotonic() - self._asked.pop(call.id, time.monotonic())
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "zot.approval.seconds": waited,
        }
        if self._telemetry.content:
            attributes["gen_ai.tool.call.arguments"] = self._redact(str(call.args))[:MAX_CONTENT]
        name = f"execute_tool {call.name}"
        self._tools[call.id] = self._child(name, SpanKind.INTERNAL, attributes)

    def _end_tool(self, returned: events.ToolReturned) -> None:
        call = returned.call
        self._asked.pop(call.id, None)
        span = self._tools.pop(call.id, None)
        if span is None:  # refused before it ran
            refused = {"gen_ai.tool.name": call.name, "zot.tool.status": returned.status}
            self._note("tool not run", {**refused})
            return
        span.set_attribute("zot.tool.status", returned.status)
        if returned.status != "completed":
            span.set_attribute("error.type", returned.status)
            span.set_status(Status(StatusCode.ERROR))
        if self._telemetry.content:
            texts = (block.text for block in returned.result.content if isinstance(block, Text))
            result = self._redact("\n".join(texts))[:MAX_CONTENT]
            span.set_attribute("gen_ai.tool.call.result", result)
        self._telemetry.durations.record(
            returned.seconds,
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name},
        )
        span.end()

    def _failed(self, message: str, code: str) -> None:
        if self._run is not None:
            self._run.set_attribute("error.type", code)
            self._run.set_status(Status(StatusCode.ERROR, message))
        if self._telemetry.logger is not None:
            context = None if self._run is None else trace.set_span_in_context(self._run)
            self._telemetry.logger.emit(
                LogRecord(
                    timestamp=time.time_ns(),
                    context=context,
                    severity_number=SeverityNumber.ERROR,
                    severity_text="ERROR",
                    body=message,
                    attributes={"error.type": code, "gen_ai.conversation.id": self.session()},
                )
            )

    def _end_run(self, stop: str) -> None:
        self._end_call(stop, None, None)
        for span in self._tools.values():
            span.end()
        self._tools.clear()
        self._asked.clear()
        run, self._run = self._run, None
        if run is not None:
            run.set_attribute("zot.stop", stop)
            run.end()

    # --- helpers -----------------------------------------------------------------------------

    def _child(self, name: str, kind: SpanKind, attributes: Attributes) -> Span:
        context = None if self._run is None else trace.set_span_in_context(self._run)
        return self._telemetry.tracer.start_span(name, context, kind, attributes)

    def _note(self, name: str, attributes: Attributes) -> None:
        span = self._call.span if self._call is not None else self._run
        if span is not None:
            span.add_event(name, attributes)

    def _content(self, name: str, message: Message) -> None:
        if self._telemetry.content and self._run is not None:
            text = "\n".join(block.text for block in message.content if isinstance(block, Text))
            self._run.set_attribute(name, self._redact(text)[:MAX_CONTENT])


class _TracedTool(WrappedTool):
    """A tool that gets the traceparent of its own span."""

    def __init__(self, tool: Tool, agent: AgentTrace) -> None:
        super().__init__(tool)
        self.replay, self.side_by_side = replay_of(tool), is_side_by_side(tool)
        self._agent = agent

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        trace = self._agent.traceparent(context.call_id)
        return self._tool.run(args, replace(context, trace=trace))

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        if not can_reconcile(self._tool):
            return Reconciled("unknown")
        return self._tool.reconcile(args, context)


def _plain(call: _Call) -> Attributes:
    """Return the attributes of figures: few values each."""
    names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
    return {name: call.attributes[name] for name in names if name in call.attributes}


def _traceparent(span: Span) -> str:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent", "")
