"""OpenAI Chat Completions and the many servers that imitate it: requests to JSON, chunks to blocks.

No I/O. A server's deviations are in its Quirks, never derived from its name.
"""

from typing import Literal, assert_never

import msgspec
from msgspec import Struct

from zot.errors import BadResponse, ProviderError, Refused
from zot.provider import assemble, turns, types
from zot.provider.failure import one_line
from zot.provider.providers import Quirks, word_for_level
from zot.text import encode_json

API = "openai-chat"
MARK = {"type": "ephemeral"}
LONG_MARK = {**MARK, "ttl": "1h"}
LENGTHS = ("length", "max_tokens", "model_length")
REFUSALS = ("content_filter", "refusal", "sensitive", "safety")
IMAGES_FOLLOW = "Images of the tool results above:"


# --- requests --------------------------------------------------------------------------------


def body(
    request: types.Request, quirks: Quirks, encoded: turns.EncodedTurns
) -> dict[str, types.Json]:
    system = [{"role": "system", "content": request.system}] if request.system.strip() else []
    last = encoded.update(request, quirks, ENCODER)
    if quirks.cache_marks and request.cache != "off":
        kind = LONG_MARK if request.cache == "long" and quirks.long_cache else MARK
        mark(system[-1:], kind)
        mark(last[-1:], kind)
    body: dict[str, types.Json] = {
        "model": request.model.id,
        "messages": [*system, *encoded.earlier(), *last],
        "stream": True,
        quirks.max_tokens_field: turns.output_limit(request, encoded.size),
    }
    if quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = encoded.part("tools", request.tools, lambda: encode_tools(request))
        if request.tool_choice != "auto":  # the default, and unknown to some servers
            body["tool_choice"] = request.tool_choice
        if quirks.tool_stream:
            body["tool_stream"] = True
    if quirks.cache_key and request.cache_key:
        body["prompt_cache_key"] = request.cache_key[:64]
    if request.schema is not None and quirks.json_schema:
        form = {"name": "answer", "schema": turns.closed_schema(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    body.update(thinking(request, quirks))
    return body


def thinking(request: types.Request, quirks: Quirks) -> dict[str, types.Json]:
    """Return the fields that turn reasoning on or off at this server."""
    if not request.model.reasoning:
        return {}
    on = request.reasoning != "off"
    levels = quirks.levels or {}
    word = word_for_level(request.reasoning, levels) if quirks.effort else None
    off = levels.get("off", "")
    effort: dict[str, types.Json] = {"reasoning_effort": word} if word else {}
    match quirks.thinking:
        case "openai":
            if not on and off:
                return {"reasoning_effort": off}
            return effort
        case "deepseek":
            if not on and off is None:
                return {}
            return {"thinking": {"type": "enabled" if on else "disabled"}, **effort}
        case "zai":
            mode: dict[str, types.Json] = {"type": "enabled", "clear_thinking": False}
            return {"thinking": mode if on else {"type": "disabled"}, **effort}
        case "openrouter":
            if not on and off is None:
                return {}
            return {"reasoning": {"effort": (word or "medium") if on else (off or "none")}}
        case "together":
            return {"reasoning": {"enabled": on}, **effort}
        case "none":
            return {}
        case _:
            assert_never(quirks.thinking)


def encode_tools(request: types.Request) -> list[dict[str, types.Json]]:
    return [encode_tool(tool.name, tool.description, tool.schema) for tool in request.tools]


def encode_tool(
    name: str, description: str, schema: dict[str, types.Json]
) -> dict[str, types.Json]:
    function = {
        "name": name,
        "description": description,
        "parameters": turns.object_schema(schema),
    }
    return {"type": "function", "function": function}


def encode_said(blocks: tuple[types.Text | types.Image, ...]) -> types.Json:
    """Encode texts as one string, which every server accepts; a list only if there are images."""
    if all(isinstance(block, types.Text) for block in blocks):
        return "\n".join(types.texts_in(blocks))
    return [encode_part(block) for block in blocks]


def encode_part(block: types.Text | types.Image) -> dict[str, types.Json]:
    if isinstance(block, types.Text):
        return {"type": "text", "text": block.text}
    url = turns.data_url(block)
    return {"type": "image_url", "image_url": {"url": url}}


def encode_user(blocks: tuple[types.Text | types.Image, ...]) -> list[types.Json]:
    return [{"role": "user", "content": encode_said(blocks)}]


def encode_model(turn: turns.ModelTurn, quirks: Quirks) -> list[types.Json]:
    text = "".join(types.texts_in(turn.blocks))
    calls = [
        encode_call(block, quirks) for block in turn.blocks if isinstance(block, types.ToolCall)
    ]
    message: dict[str, types.Json] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = calls
    thoughts = [b for b in turn.blocks if isinstance(b, types.Reasoning) and b.api == API]
    if quirks.replay_reasoning and turn.same_provider:
        details = [item for b in thoughts for item in (b.opaque or {}).get("details", ())]
        if details:
            message["reasoning_details"] = details
        elif thoughts or quirks.replay_reasoning == "reasoning_content":
            # Servers that require it back refuse a tool turn without the field, even an empty one.
            message[quirks.replay_reasoning] = "".join(block.text for block in thoughts)
    return [message]


def encode_call(call: types.ToolCall, quirks: Quirks) -> dict[str, types.Json]:
    args = encode_json(turns.args_of(call)).decode()
    out: dict[str, types.Json] = {
        "id": tool_id(call.id, quirks),
        "type": "function",
        "function": {"name": call.name, "arguments": args},
    }
    extra = (call.opaque or {}).get("extra_content")
    if extra is not None:
        out["extra_content"] = extra
    return out


def tool_id(id: str, quirks: Quirks) -> str:
    return turns.short_id(id) if quirks.short_tool_ids else turns.wire_id(id)


def encode_results(results: tuple[types.ToolResult, ...], quirks: Quirks) -> list[types.Json]:
    """Encode one message per result; images follow in a user message: tool messages take none."""
    messages: list[types.Json] = []
    images: list[types.Image] = []
    for result in results:
        text = turns.result_text(result)
        message: dict[str, types.Json] = {
            "role": "tool",
            "tool_call_id": tool_id(result.call_id, quirks),
            "content": f"{text} [error]" if result.is_error else text,
        }
        if quirks.tool_result_name:
            message["name"] = result.name
        messages.append(message)
        images += turns.images_of(result)
    if images:
        content = [
            encode_part(types.Text(IMAGES_FOLLOW)),
            *(encode_part(image) for image in images),
        ]
        messages.append({"role": "user", "content": content})
    return messages


ENCODER = turns.Encoder(encode_user, encode_model, encode_results)


def mark(messages: list[types.Json], kind: dict[str, str]) -> None:
    """Add Anthropic's cache marks, for a gateway that forwards them."""
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            message["content"] = [{"type": "text", "text": content, "cache_control": kind}]
        elif content:
            content[-1] = {**content[-1], "cache_control": kind}


# --- responses -------------------------------------------------------------------------------


class ChatFunction(Struct):
    name: str | None = None
    arguments: types.Json = None
    """JSON text; some servers send the object itself."""


class ChatCall(Struct):
    index: int | None = None
    id: str | None = None
    function: ChatFunction | None = None
    extra_content: types.Json = None


class ChatPiece(Struct):
    """A part of `content` from a server that sends a list (Mistral's thinking models)."""

    type: str = ""
    text: str | None = None
    thinking: "list[ChatPiece] | str | None" = None


class ChatDelta(Struct):
    content: str | list[ChatPiece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, types.Json]] | None = None
    tool_calls: list[ChatCall] | None = None
    refusal: str | None = None
    annotations: list[dict[str, types.Json]] | None = None


class ChatChoice(Struct):
    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    """Whole answer of a server that does not stream."""
    finish_reason: str | None = None
    usage: assemble.Counts = None


class ChatChunk(Struct):
    choices: list[ChatChoice] | None = None
    usage: assemble.Counts = None
    service_tier: str | None = None
    x_groq: dict[str, types.Json] | None = None
    """Groq's field for token counts (for some models the only one) and for errors."""
    error: assemble.ServerError | str | None = None


DETAIL_TEXT = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""Types of details that arrive in pieces, and the field that grows."""
_CHUNK = msgspec.json.Decoder(ChatChunk)


class ThinkTags:
    """Splits thoughts in tags from a text: servers without a parser for their model send
    `<think>...</think>` at the start of the answer, and only there it is no quotation."""

    TAGS = ("<think>", "<thinking>", "<thought>")

    def __init__(self) -> None:
        self._held = ""
        self._end = ""
        """Closing tag of the thought; empty: none began yet."""
        self.over = False
        """Whether everything else is text."""

    def feed(self, text: str) -> list[tuple[Literal["thought", "text"], str]]:
        if self.over:
            return [("text", text)]
        self._held += text
        if not self._end:
            start = self._held.lstrip()
            tag = next((tag for tag in self.TAGS if start.startswith(tag)), "")
            if not tag:
                self.over = not any(tag.startswith(start) for tag in self.TAGS)
                return [("text", self._take(len(self._held)))] if self.over else []
            self._held, self._end = start.removeprefix(tag), tag.replace("<", "</")
        at = self._held.find(self._end)
        if at >= 0:
            thought = self._take(at)
            rest = self._held[len(self._end) :].lstrip()
            self._held, self.over = "", True
            return [("thought", thought), ("text", rest)]
        # A part of the closing tag may be at the end.
        size = len(self._held)
        keep = next(
            (n for n in range(len(self._end), 0, -1) if self._held.endswith(self._end[:n])), 0
        )
        return [("thought", self._take(size - keep))]

    def finish(self) -> list[tuple[Literal["thought", "text"], str]]:
        """Return the text that was held back; a thought that did not end is one all the same."""
        return [("thought" if self._end else "text", self._take(len(self._held)))]

    def _take(self, size: int) -> str:
        taken, self._held = self._held[:size], self._held[size:]
        return taken


class ChatReader(assemble.AnswerReader):
    """Reads one answer."""

    api = API

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._calls: dict[int, assemble.Part] = {}
        self._waiting: dict[int, ChatCall] = {}
        self._stop = ""
        self._last_index = -1
        self._details: list[tuple[assemble.Part, list[list[dict[str, types.Json]]]]] = []
        """Details of each thought; each detail as the pieces it arrived in."""
        self._refusal: list[str] = []
        self._tags: ThinkTags | None = ThinkTags()
        """None: the text has no thoughts any more."""

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def read(self, data: bytes) -> None:
        if len(data) < 16 and data.strip() == b"[DONE]":
            self.done = True
            return
        chunk = assemble.decode(_CHUNK, data, self.out.provider)
        if chunk.error is not None:
            raise self._failed(chunk.error)
        if chunk.choices:
            choice = chunk.choices[0]
            if choice.delta is not None:
                self._delta(choice.delta)
            elif choice.message is not None:
                self._delta(choice.message)
                self._stop = "stop"  # it arrived complete, even if a server leaves the reason empty
            if choice.finish_reason:
                if not self._stop:
                    self.out.close_calls()
                self._stop = choice.finish_reason
            self._usage(choice.usage)
        self._usage(chunk.usage)
        self.out.bill(chunk.usage, chunk.service_tier or "")
        if chunk.x_groq is not None:
            self._usage(chunk.x_groq.get("usage"))
            if error := chunk.x_groq.get("error"):
                raise self._failed(str(error))

    def finish(self) -> types.Finished:
        # Some servers never send [DONE]; a finish reason also ends the answer.
        if not self._stop and not (self.done and self.out.has_content()):
            raise self.out.cut()
        if self._stop in REFUSALS or self._refusal:
            said = one_line("".join(self._refusal), 500) or "no reason given"
            raise Refused(f"{self.out.provider}: the model or a filter refused to answer: {said}")
        if self._stop == "error":
            raise self._failed("the server stopped with an error")
        if self._tags is not None:
            for kind, piece in self._tags.finish():
                self.out.reasoning(piece) if kind == "thought" else self.out.text(piece)
        if self._waiting:
            raise BadResponse(f"{self.out.provider}: a tool call without a name")
        for part, details in self._details:
            part.opaque = {"details": [joined_detail(pieces) for pieces in details]}
        return self.out.finished("length" if self._stop in LENGTHS else "end")

    def _failed(self, error: assemble.ServerError | str) -> ProviderError:
        if isinstance(error, str):
            return self.out.failed(error)
        status = error.code if isinstance(error.code, int) and error.code >= 400 else None
        kind = str(error.type or error.code or "")
        return self.out.failed(error.message or error.type or "", kind, status)

    def _delta(self, delta: ChatDelta) -> None:
        # Reasoning first: a proxy may put both into one delta.
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self.out.reasoning(thought)
        if delta.reasoning_details:
            self._detail(delta.reasoning_details)
        content = delta.content
        if content:
            if isinstance(content, str):
                self._text(content)
            else:
                self._pieces(content)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._call(call)
        if delta.refusal:
            self._refusal.append(delta.refusal)
        for annotation in delta.annotations or ():
            self.out.add_to_text("annotations", annotation)

    def _text(self, text: str) -> None:
        if self._tags is None:
            self.out.text(text)
            return
        for kind, piece in self._tags.feed(text):
            self.out.reasoning(piece) if kind == "thought" else self.out.text(piece)
        if self._tags.over:
            self._tags = None

    def _pieces(self, pieces: list[ChatPiece]) -> None:
        for piece in pieces:
            if piece.type == "thinking":
                inner = piece.thinking
                if isinstance(inner, list):
                    inner = "".join(part.text or "" for part in inner)
                self.out.reasoning(inner or "")
            else:
                self.out.text(piece.text or "")

    def _detail(self, details: list[dict[str, types.Json]]) -> None:
        """Store structured thoughts of a gateway; pieces of one text are joined at the end."""
        part = self.out.reasoning_part()
        if not self._details or self._details[-1][0] is not part:
            self._details.append((part, []))
        kept = self._details[-1][1]
        for detail in details:
            kind = str(detail.get("type"))
            if kind in DETAIL_TEXT and kept and kept[-1][0].get("type") == kind:
                kept[-1].append(detail)
            else:
                kept.append([detail])

    def _call(self, call: ChatCall) -> None:
        """Process a piece of a call. Servers may omit the index or the id, or send a call whole."""
        index = self._index(call)
        function = call.function or ChatFunction()
        part = self._calls.get(index)
        if part is None:
            held = self._waiting.setdefault(index, call)
            if not function.name:
                return  # the name comes with a later piece
            part = self.out.open_call(call.id or held.id or "", function.name)
            self._calls[index] = part
            del self._waiting[index]
        if call.extra_content is not None:
            part.opaque = {"extra_content": call.extra_content}
        args = function.arguments
        if args is not None:
            text = args if isinstance(args, str) else msgspec.json.encode(args).decode()
            self.out.args(part, text)

    def _index(self, call: ChatCall) -> int:
        index = call.index
        if index is None:
            # Without an index, a name starts another call; anything else belongs to the last one.
            named = call.function is not None and call.function.name
            index = self._last_index + 1 if named else max(self._last_index, 0)
        self._last_index = max(self._last_index, index)
        return index

    def _usage(self, seen: assemble.Counts) -> None:
        prompt = assemble.counted(seen, "prompt_tokens")
        output = assemble.counted(seen, "completion_tokens")
        if not prompt and not output:
            return
        details = "prompt_tokens_details"
        others = "prompt_cache_hit_tokens", "cached_tokens"
        read = assemble.counted(seen, f"{details}.cached_tokens", *others)
        write = assemble.counted(seen, f"{details}.cache_write_tokens")
        reasoning = assemble.counted(seen, "completion_tokens_details.reasoning_tokens")
        self.out.count(prompt, output, read, write, reasoning)


def joined_detail(pieces: list[dict[str, types.Json]]) -> dict[str, types.Json]:
    """Join the pieces to one detail: concatenated text, otherwise the last value of each field."""
    if len(pieces) == 1:
        return pieces[0]
    key = DETAIL_TEXT[pieces[0]["type"]]
    whole = {name: value for piece in pieces for name, value in piece.items() if value is not None}
    return {**whole, key: "".join(str(piece.get(key) or "") for piece in pieces)}


WIRE = assemble.Wire("/v1/chat/completions", body, ENCODER, ChatReader)
