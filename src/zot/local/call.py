"""Runs one call of a small local model: builds the short prompt and the grammar, and reads the
answer as text or as one tool call. Does not start or find the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core.cost import add
from zot.local.form import Form, Speech, flat_call, grammar
from zot.local.prompt import EXAMPLES, Example, nearest, system_text, turns
from zot.provider import types

MAX_OUTPUT = 1024
TINY_BYTES, TINY_OUTPUT = 300_000_000, 200
"""Size below which a model counts as tiny (bytes), and its output limit (tokens). Tiny models copy
examples instead of following instructions, and do not stop.
"""
MAX_CALLS, TINY_CALLS = 10, 1
"""Maximum tool calls per request; a small model that needs more is lost."""
LOOPED = "[stopped: the model asked for the same action again]"
Choice = Literal["auto", "none", "required"]


class _Told(Struct):
    """A tool call that is streamed to the client while the model still writes it."""

    id: str
    form: Form
    sent: int = 0
    """Characters of the arguments sent so far."""


class _Answer(Struct):
    """Result of one request to the server."""

    text: str = ""
    call: types.ToolCall | None = None
    told: _Told | None = None
    stop: Literal["end", "tool_use", "length"] = "end"
    usage: types.Usage = types.Usage()


class LocalCall:
    """A call of `stream`: one server request, or two if the first one repeated an earlier call."""

    def __init__(self, request: types.Request, forms: Mapping[str, Form], *, tiny: bool) -> None:
        self._request = request
        self._limit = TINY_OUTPUT if tiny else MAX_OUTPUT
        self._max_calls = TINY_CALLS if tiny else MAX_CALLS
        self._forms = dict(forms)
        self._earlier = [flat_call(call, self._forms) for call in calls_since_user(request)]
        self.system = system_text(request.system, forms) if forms else request.system
        shown = examples_for(request, tiny=tiny) if forms else ()
        self.messages = turns(request.messages, forms, shown)
        kept = () if tiny else turns((), forms, shown)
        self.prefix = [
            {"role": "system", "content": self.system},
            *({"role": message.role, "content": text_of(message)} for message in kept),
        ]
        """Messages that every conversation with these tools begins with."""

    def run(self, client: types.Provider, cancel: Cancel) -> Iterator[types.StreamEvent]:
        choice = self._request.tool_choice
        if len(self._earlier) >= self._max_calls:
            choice = "none"
        answer = _Answer()
        yield from self._ask(client, cancel, choice, answer)
        if answer.call and flat_call(answer.call, self._forms) in self._worn_out:
            spent = answer.usage
            answer = _Answer()
            yield from self._ask(client, cancel, "none", answer)
            answer.usage = add(spent, answer.usage)
            if not answer.text:
                answer.text = LOOPED
                yield types.TextDelta(LOOPED)
        elif answer.call is not None:
            yield from _rest_of_call(answer.call, answer.told)
        yield from self._end(answer)

    def _end(self, answer: _Answer) -> Iterator[types.StreamEvent]:
        content: tuple[types.Text | types.ToolCall, ...] = (
            (types.Text(answer.text),) if answer.text else ()
        )
        if answer.call is not None:
            content = (*content, answer.call)
            if answer.stop == "end":
                answer.stop = "tool_use"
        yield types.Finished(content, answer.stop, answer.usage)

    @property
    def _worn_out(self) -> list[str]:
        """Calls that must not be made again: the last one, and any made twice before."""
        return self._earlier[-1:] + [
            start for start in self._earlier if self._earlier.count(start) > 1
        ]

    def _ask(
        self, client: types.Provider, cancel: Cancel, choice: Choice, answer: _Answer
    ) -> Iterator[types.StreamEvent]:
        """Send one request; yield text as it arrives and store the rest in `answer`."""
        speech = Speech(self._forms)
        with closing(client.stream(self._wire_request(choice), cancel)) as stream:  # type: ignore[type-var]  # a generator; closing it frees the connection
            for event in stream:
                match event:
                    case types.TextDelta(delta):
                        if shown := speech.feed(delta):
                            answer.text += shown
                            yield types.TextDelta(shown)
                        elif choice != "none" and speech.is_call:
                            yield from self._tell_call(speech.held.lstrip(), answer)
                    case types.Finished():
                        answer.usage, answer.stop = event.usage, event.stop
                    case types.UsageSeen():
                        answer.usage = event.usage
                        yield event
                    case _:
                        yield event
        yield from self._take_rest(speech, choice, answer)

    def _tell_call(self, held: str, answer: _Answer) -> Iterator[types.StreamEvent]:
        """Emit a call as it grows, once it can no longer turn into a refused one."""
        if answer.told is None:
            form = next((f for f in self._forms.values() if held.startswith(f"{f.start},")), None)
            if form is None or any(start.startswith(held) for start in self._worn_out):
                return
            answer.told = _Told(self._call_id(form.name), form)
            yield types.ToolCallStart(answer.told.id, form.name)
        told = answer.told
        if not told.form.is_edit:  # edit's arguments are rearranged when complete
            args = _args_text(held, told.form)
            yield types.ToolCallArgs(told.id, args[told.sent :])
            told.sent = len(args)

    def _take_rest(
        self, speech: Speech, choice: Choice, answer: _Answer
    ) -> Iterator[types.StreamEvent]:
        was_call = speech.is_call
        rest, call = speech.finish()
        if call is not None:
            if choice != "none":
                answer.call = types.ToolCall(self._call_id(call.name), call.name, call.args)
        elif was_call and choice != "none" and self._forms:
            # Cut by the length limit, or invalid JSON: the agent loop reports it to the model.
            form = answer.told.form if answer.told else None
            name = form.name if form else "unknown"
            raw = _args_text(rest.lstrip(), form) if form else rest
            answer.call = types.ToolCall(self._call_id(name), name, None, raw)
        elif rest.strip():
            answer.text += rest
            yield types.TextDelta(rest)

    def _call_id(self, name: str) -> str:
        """Return an id that is unique in the conversation and reproducible from it."""
        return f"call_{len(self._request.messages)}_{name}"

    def _wire_request(self, choice: Choice) -> types.Request:
        extra: dict[str, types.Json] = {"temperature": 0, "cache_prompt": True, "id_slot": 0}
        if self._forms:
            extra["grammar"] = grammar(self._forms.values(), choice)
        model = self._request.model
        limit = min(self._request.max_output or self._limit, self._limit)
        return replace(
            self._request,
            model=replace(model, compat={**(model.compat or {}), "extra_body": extra}),
            system=self.system,
            messages=self.messages,
            tools=(),
            tool_choice="auto",
            reasoning="off",
            max_output=limit,
        )


def examples_for(request: types.Request, *, tiny: bool) -> tuple[Example, ...]:
    """Return the fixed examples (covered by the saved prefix); for a tiny model, similar ones."""
    if not tiny:
        return EXAMPLES
    asked = [message for message in request.messages if _is_from_user(message)]
    return nearest(text_of(asked[-1]) if asked else "")


def text_of(message: types.Message) -> str:
    return " ".join(types.texts_in(message.content))


def calls_since_user(request: types.Request) -> list[types.ToolCall]:
    """Return the calls made since the last user message."""
    calls: list[types.ToolCall] = []
    for message in request.messages:
        if _is_from_user(message):
            calls = []
        calls += [block for block in message.content if isinstance(block, types.ToolCall)]
    return calls


def _is_from_user(message: types.Message) -> bool:
    return message.role == "user" and any(
        isinstance(block, types.Text) for block in message.content
    )


def _args_text(held: str, form: Form) -> str:
    """Return the arguments of a flat call as JSON text."""
    return "{" + held[len(form.start) + 1 :]


def _rest_of_call(call: types.ToolCall, told: _Told | None) -> Iterator[types.StreamEvent]:
    """Emit the part of a call that was not streamed yet."""
    if told is None:
        yield types.ToolCallStart(call.id, call.name)
    if told is None or told.form.is_edit:
        raw = call.raw if call.args is None else msgspec.json.encode(call.args).decode()
        yield types.ToolCallArgs(call.id, raw)
    yield types.ToolCallEnd(call.id)
