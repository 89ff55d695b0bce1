"""Anthropic Messages: requests to JSON, stream events to blocks. No I/O."""

from typing import assert_never

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from zot.errors import BadResponse, Refused
from zot.provider import failure, turns, types
from zot.provider.assemble import (
    UNREADABLE,
    AnswerReader,
    Part,
    StopWord,
    Wire,
    counted,
    decode,
    parse_args,
)
from zot.provider.providers import Quirks, word_for_level
from zot.text import encode_json

API = "anthropic"
VERSION = "2023-06-01"
BUDGETS: dict[types.Level, int] = {
    "minimum": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
ANSWER_ROOM = 1_024
"""Tokens left for the answer when the thinking budget uses up the limit."""
# Effort words differ from other APIs: there is no "minimal".
EFFORTS: dict[str, str | None] = {"minimum": None, "max": "max"}
STOPS: dict[str, StopWord] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
MARK = {"type": "ephemeral"}
LONG_MARK = {**MARK, "ttl": "1h"}
INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
BINDING_BETA = "thinking-binding-controls-2026-08-01"


# --- requests --------------------------------------------------------------------------------


def headers(request: types.Request, quirks: Quirks) -> dict[str, str]:
    headers = {"anthropic-version": VERSION}
    if not thinks(request, quirks):
        return headers
    if quirks.binding:
        headers["anthropic-beta"] = BINDING_BETA
    elif quirks.interleaved and not quirks.adaptive and request.tools:
        headers["anthropic-beta"] = INTERLEAVED_BETA
    return headers


def body(
    request: types.Request, quirks: Quirks, encoded: turns.EncodedTurns
) -> dict[str, types.Json]:
    head = encode_head(request, quirks, encoded, MARK)
    start = b""
    if quirks.adaptive:  # others refuse a tool turn whose thoughts are not there
        # No JSON has a zero byte.
        start = b"\0".join((request.model.id.encode(), *map(bytes, head.values())))
    last = encoded.update(request, quirks, ENCODER, start)
    mark = mark_for(request, quirks)
    if mark is not MARK:  # thoughts are bound to the head with the usual mark
        head = encode_head(request, quirks, encoded, mark)
    again = b""
    if mark is not None:
        last[0]["content"][-1]["cache_control"] = mark
        # A second mark at the end of the last request: entries are found only 20 blocks before a
        # mark, and an answer with many calls is longer with its results.
        again = b',"cache_control":' + encode_json(mark)
    body: dict[str, types.Json] = {
        "model": request.model.id,
        # Thinking counts, too: less than all that the model can would cut its answers.
        "max_tokens": turns.output_limit(request, encoded.size, request.model.max_output),
        "stream": True,
        # Tool results stay in separate messages, so that a prefix once sent never changes.
        "messages": [*encoded.earlier(again), *last],
        **head,
    }
    if request.tools and request.tool_choice == "none":
        body["tool_choice"] = {"type": "none"}
    elif request.tools and request.tool_choice == "required" and not thinks(request, quirks):
        body["tool_choice"] = {"type": "any"}  # refused together with thinking
    if request.model.reasoning:
        body.update(thinking(request, quirks, body["max_tokens"]))
    if request.schema is not None and quirks.strict_tools and quirks.adaptive:
        form = {"type": "json_schema", "schema": turns.closed_schema(request.schema)}
        body["output_config"] = {**body.get("output_config", {}), "format": form}
    if request.is_warmup:
        body["max_tokens"] = 1
    return body


def mark_for(request: types.Request, quirks: Quirks) -> dict[str, str] | None:
    if request.cache == "off":
        return None
    return LONG_MARK if request.cache == "long" and quirks.long_cache else MARK


def encode_head(
    request: types.Request,
    quirks: Quirks,
    encoded: turns.EncodedTurns,
    mark: dict[str, str] | None,
) -> dict[str, Raw]:
    """The system prompt and the tools, which are before all messages."""
    head: dict[str, Raw] = {}
    kind = "" if mark is MARK else f" {request.cache}"
    if request.system.strip():
        head["system"] = encoded.part(
            f"system{kind}", request.system, lambda: encode_system(request, mark)
        )
    if request.tools:
        source = request.tools, quirks.cache_tools
        head["tools"] = encoded.part(
            f"tools{kind}", source, lambda: encode_tools(request, quirks, mark)
        )
    return head


def thinks(request: types.Request, quirks: Quirks) -> bool:
    return request.model.reasoning and not is_off(request, quirks)


def is_off(request: types.Request, quirks: Quirks) -> bool:
    """Return whether thinking is turned off: some models always think, at least a little."""
    return request.reasoning == "off" and (quirks.levels or {}).get("off", "") is not None


def thinking(request: types.Request, quirks: Quirks, max_tokens: int) -> dict[str, types.Json]:
    if request.reasoning == "off" and is_off(request, quirks):
        return {"thinking": {"type": "disabled"}}
    level: types.Level = "minimum" if request.reasoning == "off" else request.reasoning
    if quirks.adaptive:
        word = word_for_level(level, {**EFFORTS, **(quirks.levels or {})})
        mode: dict[str, types.Json] = {"type": "adaptive", "display": "summarized"}
        if quirks.binding:
            mode["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
        return {"thinking": mode, **({"output_config": {"effort": word}} if word else {})}
    budget = BUDGETS[level]
    limit = max(max_tokens, min(budget + ANSWER_ROOM, request.model.max_output))
    budget = max(min(budget, limit - ANSWER_ROOM), 1_024)
    return {
        "max_tokens": max(limit, budget + 1),
        "thinking": {"type": "enabled", "budget_tokens": budget},
    }


def encode_system(
    request: types.Request, mark: dict[str, str] | None
) -> list[dict[str, types.Json]]:
    block: dict[str, types.Json] = {"type": "text", "text": request.system}
    return [{**block, "cache_control": mark} if mark else block]


def encode_tools(
    request: types.Request, quirks: Quirks, mark: dict[str, str] | None
) -> list[dict[str, types.Json]]:
    tools = [encode_tool(tool, quirks) for tool in request.tools]
    if mark and quirks.cache_tools:
        tools[-1]["cache_control"] = mark
    return tools


def encode_tool(tool: types.ToolSpec, quirks: Quirks) -> dict[str, types.Json]:
    head = {"name": tool.name, "description": tool.description}
    schema = turns.object_schema(tool.schema)
    # Models that think adaptively are those that sample by a schema.
    wanted = tool.strict and quirks.strict_tools and quirks.adaptive
    strict = turns.strict_schema(schema, nullable=False) if wanted else None
    if strict is None:
        return {**head, "input_schema": schema}
    return {**head, "strict": True, "input_schema": strict}


def encode_said(block: types.Text | types.Image) -> dict[str, types.Json]:
    if isinstance(block, types.Text):
        return {"type": "text", "text": block.text}
    source = {"type": "base64", "media_type": block.mime_type, "data": turns.base64_of(block)}
    return {"type": "image", "source": source}


def encode_result(result: types.ToolResult) -> dict[str, types.Json]:
    said = [b for b in result.content if isinstance(b, types.Image) or b.text.strip()]
    out: dict[str, types.Json] = {
        "type": "tool_result",
        "tool_use_id": turns.wire_id(result.call_id),
    }
    if all(isinstance(block, types.Text) for block in said):
        text = "\n".join(types.texts_in(said))
        out["content"] = text or "(no output)"
    else:
        out["content"] = [encode_said(block) for block in said]
    if result.is_error:
        out["is_error"] = True
    return out


def encode_user(blocks: tuple[types.Text | types.Image, ...]) -> list[types.Json]:
    return [{"role": "user", "content": list(map(encode_said, blocks))}]


def encode_results(results: tuple[types.ToolResult, ...], quirks: Quirks) -> list[types.Json]:
    return [{"role": "user", "content": list(map(encode_result, results))}]


def encode_model(turn: turns.ModelTurn, quirks: Quirks) -> list[types.Json]:
    content: list[dict[str, types.Json]] = []
    for block in turn.blocks:
        match block:
            case types.Text():
                content.append(encode_answer(block, turn.same_provider))
            case types.ToolCall():
                call = {"type": "tool_use", "id": turns.wire_id(block.id), "name": block.name}
                content.append({**call, "input": turns.args_of(block)})
            case types.Reasoning():
                content += encode_thought(block, turn, quirks)
            case _:
                assert_never(block)
    return [{"role": "assistant", "content": content}]


def encode_answer(block: types.Text, same: bool) -> dict[str, types.Json]:
    """Encode a text of the model with its citations of searches, which the server reads again."""
    said: dict[str, types.Json] = {"type": "text", "text": block.text}
    cited = (block.opaque or {}).get("citations", ()) if same else ()
    known = [each for each in cited if "search_result" in str(each.get("type"))]
    return {**said, "citations": known} if known else said


ENCODER = turns.Encoder(encode_user, encode_model, encode_results)


def encode_thought(
    block: types.Reasoning, turn: turns.ModelTurn, quirks: Quirks
) -> list[dict[str, types.Json]]:
    """Encode a thought only for the provider that signed it; others would reject it as forged. A
    bound thought is sent only to the same model."""
    opaque = block.opaque or {}
    same = turn.same_model if turns.PREFIX in opaque else turn.same_provider
    if not same or block.api != API:
        return []
    if "block" in opaque:  # of a tool that the server runs; a copy, as it may get a cache mark
        return [dict(opaque["block"])]
    if "redacted" in opaque:
        return [{"type": "redacted_thinking", "data": opaque["redacted"]}]
    signature = opaque.get("signature", "")
    if signature or (quirks.empty_signature and block.text):
        return [{"type": "thinking", "thinking": block.text, "signature": signature}]
    return []


# --- responses -------------------------------------------------------------------------------


class AnthropicUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: dict[str, types.Json] | None = None
    """Tokens written to the cache by their lifetime."""
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None
    cost: float | None = None
    """Dollars, from gateways only."""


class AnthropicDelta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    citation: dict[str, types.Json] | None = None
    stop_reason: str | None = None
    stop_details: dict[str, types.Json] | None = None


class AnthropicBlock(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: dict[str, types.Json] | None = None


class AnthropicMessage(Struct):
    id: str | None = None
    content: list[AnthropicBlock] | str | None = None
    stop_reason: str | None = None
    stop_details: dict[str, types.Json] | None = None
    usage: AnthropicUsage | None = None


class AnthropicError(Struct):
    type: str = ""
    message: str = ""


class AnthropicEvent(Struct):
    type: str = ""
    index: int = 0
    delta: AnthropicDelta | None = None
    content_block: AnthropicBlock | None = None
    message: AnthropicMessage | None = None
    usage: AnthropicUsage | None = None
    error: AnthropicError | None = None


_EVENT = msgspec.json.Decoder(AnthropicEvent)
_OBJECT = msgspec.json.Decoder(dict[str, types.Json])


class MessagesReader(AnswerReader):
    """Reads one answer."""

    api = API

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._begun: AnthropicMessage | None = None
        self._open: set[int] = set()
        """Indexes of started blocks of any kind that have not ended."""
        self._calls: dict[int, Part] = {}
        self._kept: dict[int, tuple[dict[str, types.Json], list[str]]] = {}
        """Blocks of server-side tools, as they came, with the pieces of their input."""
        self._stop = ""
        self._why: dict[str, types.Json] = {}

    def read(self, data: bytes) -> None:
        try:
            event = _EVENT.decode(data)
        except UNREADABLE:
            event = decode(_EVENT, data, self.out.provider)
        if event.type == "content_block_delta":
            self._delta(event)
            return
        if (event.type == "message_start") == (self._begun is not None):
            self._check_order(event)
        match event.type:
            case "content_block_start":
                self._start(event, data)
            case "content_block_stop":
                self._stop_block(event.index)
            case "message_start":
                self._begin(event.message or AnthropicMessage())
            case "message_delta":
                if event.delta is not None and event.delta.stop_reason:
                    self._stop = event.delta.stop_reason
                    self._why = event.delta.stop_details or {}
                self._usage(event.usage)
            case "message_stop":
                self.done = True
            case "error":
                error = event.error or AnthropicError()
                kind = failure.class_for_kind(error.type, error.message)
                text = failure.one_line(f"{error.type}: {error.message}", 2_000)
                raise kind(f"{self.out.provider}: {text}")
            case _:
                pass  # ping, and event types that did not exist when this was written

    def finish(self) -> types.Finished:
        if not self.done or not (self._stop or self.out.has_content()):
            raise self.out.cut()
        if self._stop == "refusal":
            words = [str(self._why.get(key) or "") for key in ("category", "explanation")]
            why = failure.one_line(": ".join(filter(None, words)), 500)
            raise Refused(f"{self.out.provider}: the model refused to answer{why and f': {why}'}")
        finished = self.out.finished(STOPS.get(self._stop, "end"))
        paused = self._stop == "pause_turn" and finished.stop == "end"
        return replace(finished, paused=True) if paused else finished

    def _check_order(self, event: AnthropicEvent) -> None:
        """Raise BadResponse for events out of order: two mixed answers, or lost parts. Some
        gateways begin the same answer twice, which is allowed."""
        begun, again = self._begun, event.message
        if not event.type.startswith(("message_", "content_block_")):
            return
        if begun and again and begun.id and begun.id == again.id and not self.out.has_content():
            return
        when = "twice in one answer" if begun else "before message_start"
        raise BadResponse(f"{self.out.provider}: {event.type} came {when}")

    def _begin(self, message: AnthropicMessage) -> None:
        self._begun = message
        self._usage(message.usage)
        self._stop = message.stop_reason or ""
        self._why = message.stop_details or {}
        # Calls made by a server-side program arrive complete.
        for index, block in enumerate(message.content if isinstance(message.content, list) else ()):
            self._start(AnthropicEvent(index=index, content_block=block))
            self._stop_block(index)

    def _delta(self, event: AnthropicEvent) -> None:
        delta = event.delta
        if delta is None:
            raise BadResponse(f"{self.out.provider}: a delta without content")
        if event.index not in self._open:
            raise BadResponse(
                f"{self.out.provider}: {delta.type} for block {event.index}, which is not open"
            )
        match delta.type:
            case "text_delta":
                self.out.text(delta.text)
            case "thinking_delta":
                self.out.reasoning(delta.thinking)
            case "input_json_delta":
                part = self._calls.get(event.index)
                if part is not None:
                    self.out.args(part, delta.partial_json)
                elif event.index in self._kept:
                    self.out.charge(len(delta.partial_json))
                    self._kept[event.index][1].append(delta.partial_json)
            case "citations_delta" if delta.citation:
                self.out.add_to_text("citations", delta.citation)
            case "signature_delta":
                self.out.keep_with_reasoning({"signature": delta.signature})
            case _:
                pass  # what did not exist when this was written

    def _start(self, event: AnthropicEvent, data: bytes = b"") -> None:
        block = event.content_block
        if block is None:
            raise BadResponse(f"{self.out.provider}: a block without content")
        self.out.end_block()
        self._open.add(event.index)
        match block.type:
            case "text":
                self.out.text(block.text or "")
            case "thinking":
                self.out.reasoning(block.thinking or "")
                if block.signature:
                    self.out.keep_with_reasoning({"signature": block.signature})
            case "redacted_thinking":
                self.out.keep_with_reasoning({"redacted": block.data or ""}, fresh=True)
            case "tool_use":
                part = self.out.open_call(block.id or "", block.name or "")
                self._calls[event.index] = part
                if block.input:  # a server that does not stream arguments
                    self.out.args(part, msgspec.json.encode(block.input).decode())
            case _ if data:  # a tool that the server runs, or its result: sent back as it came
                kept = decode(_OBJECT, data, self.out.provider)["content_block"]
                self.out.keep_with_reasoning({"block": kept}, fresh=True)
                self._kept[event.index] = kept, []
            case _:
                pass

    def _stop_block(self, index: int) -> None:
        self._open.discard(index)
        part = self._calls.pop(index, None)
        if part is not None:
            self.out.close_call(part)
        kept, pieces = self._kept.pop(index, ({}, []))
        if pieces:
            kept["input"] = parse_args("".join(pieces)) or {}
        self.out.end_block()

    def _usage(self, seen: AnthropicUsage | None) -> None:
        """Update the counts: later events repeat some of them; missing ones keep their value."""
        if seen is None:
            return
        old = self.out.usage
        long = counted(seen.cache_creation, "ephemeral_1h_input_tokens")
        served = (seen.service_tier, seen.speed, seen.inference_geo)
        self.out.set_usage(
            types.Usage(
                input=seen.input_tokens or old.input,
                output=seen.output_tokens or old.output,
                cache_read=seen.cache_read_input_tokens or old.cache_read,
                cache_write=seen.cache_creation_input_tokens or old.cache_write,
                cache_write_long=long or old.cache_write_long,
                service=" ".join(filter(None, served)) or old.service,
                billed=old.billed if seen.cost is None else seen.cost,
            )
        )


WIRE = Wire("/v1/messages", body, ENCODER, MessagesReader, headers)
