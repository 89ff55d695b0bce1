"""OpenAI Responses: requests to JSON, stream events to blocks. No I/O.

Nothing is stored at the server (`store: false`), so reasoning is part of the conversation in
encrypted form and is sent back in its place among the items.
"""

from typing import assert_never

import msgspec
from msgspec import Struct

from zot.errors import BadResponse, ProviderError, Refused
from zot.provider import assemble, turns, types
from zot.provider.failure import one_line
from zot.provider.providers import Quirks, word_for_level
from zot.text import encode_json

API = "openai-responses"
CUSTOM = "custom-"
"""Prefix of the ids of custom tool calls."""
MIN_OUTPUT = 16
"""Smallest output limit that the server accepts."""


# --- requests --------------------------------------------------------------------------------


def body(
    request: types.Request, quirks: Quirks, encoded: turns.EncodedTurns
) -> dict[str, types.Json]:
    system: list[types.Json] = []
    if request.system.strip():
        # Not as `instructions`: xAI refuses that field.
        content: list[types.Json] = [{"type": "input_text", "text": request.system}]
        if quirks.cache_options and request.cache != "off":
            # Other conversations begin with the same words.
            content[0]["prompt_cache_breakpoint"] = {"mode": "explicit"}
        system.append({"type": "message", "role": "system", "content": content})
    last = encoded.update(request, quirks, ENCODER)
    body: dict[str, types.Json] = {
        "model": request.model.id,
        "input": [*system, *encoded.earlier(), *last],
        "stream": True,
        "store": False,
    }
    if request.tools:
        body["tools"] = encoded.part("tools", request.tools, lambda: encode_tools(request, quirks))
        body["tool_choice"] = request.tool_choice
        body["parallel_tool_calls"] = True
    if request.max_output:
        wanted = min(request.max_output, request.model.max_output)
        body["max_output_tokens"] = max(wanted, MIN_OUTPUT)
    if request.cache_key and request.cache != "off":
        body["prompt_cache_key"] = request.cache_key[:64]
    if quirks.cache_options and (options := cache_options(request)):
        body["prompt_cache_options"] = options
    if request.schema is not None and quirks.strict_tools:
        schema = turns.closed_schema(request.schema)
        form = {"type": "json_schema", "name": "answer", "strict": False, "schema": schema}
        body["text"] = {"format": form}
    if request.model.reasoning:
        body.update(thinking(request, quirks))
    return body


def cache_options(request: types.Request) -> dict[str, types.Json]:
    options: dict[str, types.Json] = {}
    if request.cache == "off":
        options["mode"] = "explicit"  # without a breakpoint nothing is kept
    elif request.cache == "long":
        options["ttl"] = "12h"
    if request.is_warmup:
        options["prewarm"] = True
    return options


def thinking(request: types.Request, quirks: Quirks) -> dict[str, types.Json]:
    # Requested in every mode: a model that reasons anyway must get its thoughts back.
    wanted: dict[str, types.Json] = {"include": ["reasoning.encrypted_content"]}
    if request.reasoning == "off":
        off = (quirks.levels or {}).get("off")
        if off:
            wanted["reasoning"] = {"effort": off}
        return wanted
    word = word_for_level(request.reasoning, quirks.levels) if quirks.effort else None
    if word:
        wanted["reasoning"] = {"effort": word, "summary": "auto"}
    return wanted


def encode_tools(request: types.Request, quirks: Quirks) -> list[dict[str, types.Json]]:
    return [encode_tool(tool, quirks) for tool in request.tools]


def encode_tool(tool: types.ToolSpec, quirks: Quirks) -> dict[str, types.Json]:
    if tool.grammar:
        form = {"type": "grammar", "syntax": "lark", "definition": tool.grammar}
        custom = {"type": "custom", "name": tool.name, "description": tool.description}
        return {**custom, "format": form}
    schema = turns.object_schema(tool.schema)
    wanted = quirks.strict_tools and tool.strict
    strict = turns.strict_schema(schema, nullable=True) if wanted else None
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": strict or schema,
        "strict": strict is not None,
    }


def encode_user(blocks: tuple[types.Text | types.Image, ...]) -> list[types.Json]:
    return [{"type": "message", "role": "user", "content": list(map(encode_said, blocks))}]


def encode_said(block: types.Text | types.Image) -> dict[str, types.Json]:
    if isinstance(block, types.Text):
        return {"type": "input_text", "text": block.text}
    url = turns.data_url(block)
    return {"type": "input_image", "detail": "auto", "image_url": url}


def encode_model(turn: turns.ModelTurn, quirks: Quirks) -> list[types.Json]:
    items: list[types.Json] = []
    for block in turn.blocks:
        match block:
            case types.Text():
                items.append(encode_answer(block, turn.same_model))
            case types.ToolCall():
                items.append(encode_call(block))
            case types.Reasoning():
                items += encode_thought(block, turn.same_model)
            case _:
                assert_never(block)
    return items


def encode_call(call: types.ToolCall) -> dict[str, types.Json]:
    args = turns.args_of(call)
    head = {"call_id": sent_id(call.id), "name": call.name}
    if is_custom(call.id):
        return {"type": "custom_tool_call", **head, "input": str(args.get("input", ""))}
    return {"type": "function_call", **head, "arguments": encode_json(args).decode()}


def sent_id(id: str) -> str:
    return turns.wire_id(id.removeprefix(CUSTOM))


def is_custom(id: str) -> bool:
    """Whether a call is one of a tool with a grammar: its result has to say so, too."""
    return id.startswith(CUSTOM)


def encode_answer(block: types.Text, same: bool) -> dict[str, types.Json]:
    """Encode a model's text with its phase (commentary or answer), which newer models need."""
    cited = (block.opaque or {}).get("annotations", []) if same else []
    content = [{"type": "output_text", "text": block.text, "annotations": cited}]
    message = {"type": "message", "role": "assistant", "content": content}
    phase = (block.opaque or {}).get("phase") if same else None
    return {**message, "phase": phase} if phase else message


def encode_thought(block: types.Reasoning, same: bool) -> list[dict[str, types.Json]]:
    """Encode an encrypted thought for its own model; another could not read it."""
    item = (block.opaque or {}).get("item")
    if not same or block.api != API or not isinstance(item, dict):
        return []
    # Without its content the server would look up the item, which was never stored.
    return [item] if item.get("encrypted_content") else []


def encode_result(result: types.ToolResult) -> dict[str, types.Json]:
    text = turns.result_text(result)
    text = f"{text} [error]" if result.is_error else text
    output: types.Json = text
    if turns.images_of(result):
        seen: list[types.Text | types.Image] = [types.Text(text), *turns.images_of(result)]
        output = [encode_said(block) for block in seen]
    return {
        "type": "custom_tool_call_output" if is_custom(result.call_id) else "function_call_output",
        "call_id": sent_id(result.call_id),
        "output": output,
    }


def encode_results(results: tuple[types.ToolResult, ...], quirks: Quirks) -> list[types.Json]:
    return list(map(encode_result, results))


ENCODER = turns.Encoder(encode_user, encode_model, encode_results)


CUSTOM_CALL = "custom_tool_call"
CALLS = ("function_call", CUSTOM_CALL)

# --- responses -------------------------------------------------------------------------------


class ResponsesPart(Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[dict[str, types.Json]] | None = None


class ResponsesItem(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    input: types.Json = None
    """Text of a custom tool call."""
    arguments: types.Json = None
    """A string in zot's calls; an object in those of some server-side tools."""
    content: list[ResponsesPart] | None = None
    summary: list[ResponsesPart] | None = None
    encrypted_content: str | None = None
    phase: str | None = None
    """Phase of a message: `commentary` between tool calls, or `final_answer`."""


class ResponsesResponse(Struct):
    status: str | None = None
    output: list[ResponsesItem] | None = None
    usage: assemble.Counts = None
    service_tier: str | None = None
    error: assemble.ServerError | None = None
    incomplete_details: dict[str, types.Json] | None = None


class ResponsesEvent(Struct):
    type: str = ""
    delta: types.Json = None
    output_index: int = 0
    annotation: dict[str, types.Json] | None = None
    item: ResponsesItem | None = None
    response: ResponsesResponse | None = None
    error: assemble.ServerError | None = None
    code: str | int | None = None
    message: str | None = None


_EVENT = msgspec.json.Decoder(ResponsesEvent)


class ResponsesReader(assemble.AnswerReader):
    """Reads one answer."""

    api = API

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._begun = False
        self._calls: dict[int, assemble.Part] = {}
        self._thinking: dict[int, assemble.Part] = {}
        """Thoughts in progress, by index: they may end after the text."""
        self._thoughts: dict[str, assemble.Part] = {}
        self._stop: assemble.StopWord = "end"
        self._refusal: list[str] = []
        self._said: set[int] = set()
        """Indexes of messages whose text was streamed."""
        self._filtered = False

    def read(self, data: bytes) -> None:
        if data.startswith(b"[DONE]"):
            return  # added by some gateways
        event = assemble.decode(_EVENT, data, self.out.provider)
        if event.type.endswith(".delta"):
            self._delta(event)
            return
        match event.type:
            case "response.created":
                if self._begun:
                    raise BadResponse(f"{self.out.provider}: {event.type} came twice in one answer")
                self._begun = True
            case "response.output_item.added":
                self._added(event)
            case "response.output_item.done":
                self._item_done(event)
            case "response.reasoning_summary_part.added":
                part = self._thinking.get(event.output_index)
                if part is not None and part.pieces:
                    self.out.reasoning("\n\n", part)
            case "response.output_text.annotation.added" if event.annotation:
                self.out.add_to_text("annotations", event.annotation)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._ended(event)
            case "error":
                raise self._failed(
                    event.error or assemble.ServerError(event.message, code=event.code)
                )
            case _:
                pass  # progress without new content, and future event types

    def finish(self) -> types.Finished:
        if not self.done:
            raise self.out.cut()
        if self._refusal or self._filtered:
            said = one_line("".join(self._refusal), 500) or "a content filter stopped it"
            raise Refused(f"{self.out.provider}: the model refused to answer: {said}")
        return self.out.finished(self._stop)

    def _delta(self, event: ResponsesEvent) -> None:
        delta = event.delta if isinstance(event.delta, str) else ""
        match event.type:
            case "response.output_text.delta":
                self._said.add(event.output_index)
                self.out.text(delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                part = self._thinking.get(event.output_index)
                if part is None:
                    part = self._thinking[event.output_index] = self.out.reasoning_part()
                self.out.reasoning(delta, part)
            case "response.function_call_arguments.delta":
                part = self._calls.get(event.output_index)
                if part is not None:
                    self.out.args(part, delta)
            case "response.refusal.delta":
                self._refusal.append(delta)
            case _:
                pass  # server-side tools

    def _added(self, event: ResponsesEvent) -> None:
        item = event.item
        if item is None:
            return
        self.out.end_block()
        if item.type in CALLS:
            self._calls[event.output_index] = self._open_call(item)
        elif item.type == "reasoning":
            self._thinking[event.output_index] = self.out.open_reasoning()

    def _item_done(self, event: ResponsesEvent) -> None:
        item = event.item
        if item is None:
            return
        if item.type in CALLS:
            self._call_done(event.output_index, item)
        elif item.type == "reasoning":
            part = self._thinking.pop(event.output_index, None) or self.out.reasoning_part()
            if not part.pieces:
                texts = [piece.text or "" for piece in (item.summary or item.content or [])]
                self.out.reasoning("\n\n".join(texts), part)
            part.opaque = {"item": reasoning_item(item)}
            self._thoughts[item.id or ""] = part
            self.out.end_block(part)  # but not a text that began meanwhile
        elif item.type == "message":
            self._message_done(event.output_index, item.content or [])
            if item.phase:
                self.out.keep_with_text({"phase": item.phase})
            self.out.end_block()

    def _message_done(self, index: int, pieces: list[ResponsesPart]) -> None:
        if not self._refusal:
            self._refusal += [piece.refusal for piece in pieces if piece.refusal]
        if index in self._said:
            return
        for piece in pieces:  # a server that sends the message whole
            self.out.text(piece.text or "")
            for annotation in piece.annotations or []:
                self.out.add_to_text("annotations", annotation)

    def _open_call(self, item: ResponsesItem) -> assemble.Part:
        prefix = CUSTOM if item.type == CUSTOM_CALL else ""
        return self.out.open_call(f"{prefix}{item.call_id or item.id or ''}", item.name or "")

    def _call_done(self, index: int, item: ResponsesItem) -> None:
        part = self._calls.pop(index, None)
        if part is None:  # a server that sends the call whole
            part = self._open_call(item)
        if item.type == CUSTOM_CALL:
            self.out.args(part, encode_json({"input": str(item.input or "")}).decode())
        elif not part.pieces:
            args = item.arguments or ""
            self.out.args(part, args if isinstance(args, str) else encode_json(args).decode())
        self.out.close_call(part)

    def _ended(self, event: ResponsesEvent) -> None:
        response = event.response or ResponsesResponse()
        self._usage(response.usage)
        self.out.bill(response.usage, response.service_tier or "")
        if event.type == "response.failed" or response.status == "failed":
            raise self._failed(response.error or assemble.ServerError())
        reason = (response.incomplete_details or {}).get("reason")
        if event.type == "response.incomplete" or response.status == "incomplete":
            self._filtered = reason == "content_filter"
            self._stop = "length"
        # Azure sends the encrypted part only here.
        for item in response.output or []:
            part = self._thoughts.get(item.id or "")
            if part is not None and item.encrypted_content:
                part.opaque = {"item": reasoning_item(item)}
        if not (self.out.has_content() or self._refusal):  # a server that does not stream
            for index, item in enumerate(response.output or []):
                self._item_done(ResponsesEvent(output_index=index, item=item))
        self.done = True

    def _failed(self, error: assemble.ServerError) -> ProviderError:
        code = str(error.code or "")
        return self.out.failed(
            error.message or code or "the response failed", code or error.type or ""
        )

    def _usage(self, seen: assemble.Counts) -> None:
        if seen is None:
            return
        details = "input_tokens_details"
        self.out.count(
            assemble.counted(seen, "input_tokens"),
            assemble.counted(seen, "output_tokens"),
            assemble.counted(seen, f"{details}.cached_tokens"),
            assemble.counted(seen, f"{details}.cache_write_tokens"),
            assemble.counted(seen, "output_tokens_details.reasoning_tokens"),
            assemble.counted(seen, f"{details}.cache_write_tokens_details.ttl_12h_tokens"),
        )


def reasoning_item(item: ResponsesItem) -> dict[str, types.Json]:
    """The item as it has to be sent back."""
    out: dict[str, types.Json] = {
        "type": "reasoning",
        "id": item.id,
        "summary": [{"type": "summary_text", "text": p.text or ""} for p in item.summary or []],
    }
    if item.encrypted_content:
        out["encrypted_content"] = item.encrypted_content
    return out


WIRE = assemble.Wire("/v1/responses", body, ENCODER, ResponsesReader)
