"""Server side of the four APIs: parses requests and encodes turns as events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal

from msgspec import Struct

from zot.testing.script import FakeTurn

Dialect = Literal["anthropic", "chat", "responses", "google"]
Piece = tuple[Literal["open", "delta", "close"], bytes]
"""Part of an answer: faults and delays count the deltas; `close` parts end the answer."""

ARGS_PIECE = 8
PARAMETERS = {"bash": "command", "read": "path", "write": "path", "edit": "path"}
_numbers = count(1)


def new_id(prefix: str) -> str:
    return f"{prefix}_{next(_numbers):012d}"


def dumps(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
        return text
    except UnicodeEncodeError:  # half a surrogate pair: only an escape can carry it
        return json.dumps(value, separators=(",", ":"))


def sse(value: Any, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {dumps(value)}\n\n".encode()


class FakeCall(Struct):
    """A request, reduced to what is needed to choose the answer."""

    dialect: Dialect
    model: str
    prompt: str
    turn: int
    tools: dict[str, Any]
    size: int
    want_usage: bool = True


def dialect_of(path: str) -> Dialect | None:
    path = path.partition("?")[0]
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/responses"):
        return "responses"
    return "google" if path.endswith(":streamGenerateContent") else None


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in content or [] if isinstance(block, dict)]
    return "\n".join(text for text in texts if text)


Said = tuple[str, str]
"""Role (user, assistant, tool) and text of a message; only the user's text matters."""


def responses_history(body: dict[str, Any]) -> Iterator[Said]:
    for item in body.get("input") or []:
        kind = item.get("type", "message")
        if kind != "message":
            yield ("tool" if kind.endswith("_output") else "assistant"), ""
        elif item["role"] not in ("system", "developer"):
            yield item["role"], text_of(item.get("content"))


def google_history(body: dict[str, Any]) -> Iterator[Said]:
    for content in body.get("contents") or []:
        parts = content.get("parts") or []
        if content.get("role") == "model":
            yield "assistant", ""
            continue
        if any("functionResponse" in part for part in parts):
            yield "tool", ""
        # Consecutive user messages come as one, with a part for each.
        for part in parts:
            if text := part.get("text"):
                yield "user", text


def messages_history(body: dict[str, Any]) -> Iterator[Said]:
    before = ""
    for message in body.get("messages") or []:
        content, role = message.get("content"), message.get("role")
        kinds = {block.get("type") for block in content} if isinstance(content, list) else set()
        if "tool_result" in kinds or (before == "tool" and "image_url" in kinds):
            role = "tool"  # on the chat wire, images of results follow as if the user sent them
        if role != "system":
            yield role, text_of(content)
        before = role


HISTORIES: dict[Dialect, Callable[[dict[str, Any]], Iterator[Said]]] = {
    "anthropic": messages_history,
    "chat": messages_history,
    "responses": responses_history,
    "google": google_history,
}
"""Function per API that yields the messages of a request."""


def read_call(dialect: Dialect, path: str, body: dict[str, Any], size: int) -> FakeCall:
    said = list(HISTORIES[dialect](body))
    last = max((index for index, (role, _) in enumerate(said) if role == "user"), default=-1)
    turn, before = 0, ""
    for role, _ in said[last + 1 :]:
        if role == "assistant" and before != "assistant":  # one turn may be several items
            turn += 1
        before = role
    model = body.get("model") or path.rpartition("/")[2].partition(":")[0]
    return FakeCall(
        dialect=dialect,
        model=str(model),
        prompt=said[last][1] if last >= 0 else "",
        turn=turn,
        tools=offered(dialect, body),
        size=size,
        want_usage=dialect != "chat" or bool(body.get("stream_options")),
    )


def offered(dialect: Dialect, body: dict[str, Any]) -> dict[str, Any]:
    """Return the tools of a request: name to schema."""
    tools = body.get("tools") or []
    if dialect == "google":
        tools = [tool for group in tools for tool in group.get("functionDeclarations", [])]
    out = {}
    for tool in tools:
        inner = tool.get("function", tool)
        schema = inner.get("parameters") or inner.get("input_schema") or {}
        out[inner["name"]] = {"custom": True} if tool.get("type") == "custom" else schema
    return out


class FakeBlock(Struct):
    kind: Literal["text", "think", "tool"]
    texts: tuple[str, ...] = ()
    id: str = ""
    name: str = ""
    args: str = ""
    signature: str = "c2lnbmVk"
    """Signature of a thought, where the API signs it."""
    custom: bool = False
    """A call of a tool that takes plain text."""


class FakeReply(Struct):
    call: FakeCall
    blocks: list[FakeBlock]
    usage: tuple[int, int, int, int]
    """Input, output, cache read, cache write."""
    stop: str
    options: dict[str, str]
    billing: dict[str, Any] = {}
    """More fields of the usage; `service_tier` also stands where the API has it."""

    @property
    def has_tools(self) -> bool:
        return any(block.kind == "tool" for block in self.blocks)


def build_reply(call: FakeCall, turn: FakeTurn) -> FakeReply:
    blocks = []
    size = 0
    for item in turn.content:
        if item[0] == "tool":
            args = tool_args(call, item[1], item[2])
            name = tool_name(call, item[1])
            custom = call.tools.get(name, {}).get("custom", False)
            block = FakeBlock("tool", id=tool_id(call, turn), name=name, args=args, custom=custom)
            blocks.append(block)
            size += len(args)
        else:
            blocks.append(FakeBlock(item[0], item[1]))
            size += sum(map(len, item[1]))
    usage = [call.size // 4, size // 4 + 1, 0, 0]
    if "usage" in turn.options:
        said = [int(part) for part in turn.options["usage"].split(",")]
        usage[: len(said)] = said
    stop = "refusal" if "refuse" in turn.options else turn.options.get("stop", "")
    counts = (usage[0], usage[1], usage[2], usage[3])
    return FakeReply(call, blocks, counts, stop, turn.options)


def tool_id(call: FakeCall, turn: FakeTurn) -> str:
    odd = {"empty": "", "long": "x" * 10_000, "lf": "a\nb", "same": "twice"}
    if "toolid" in turn.options:
        return odd[turn.options["toolid"]]
    return new_id("toolu" if call.dialect == "anthropic" else "call")


def tool_name(call: FakeCall, name: str) -> str:
    return next((tool for tool in call.tools if tool.lower() == name.lower()), name)


def tool_args(call: FakeCall, name: str, arg: str | None) -> str:
    if arg is None:
        return '{"command": "tru'
    if arg.startswith("{"):
        return arg
    known = call.tools.get(tool_name(call, name), {}).get("properties") or {}
    wanted = PARAMETERS.get(name.lower(), "input")
    parameter = wanted if wanted in known else next(iter(known), wanted)
    return dumps({parameter: arg})


def pieces_of(args: str, options: dict[str, str]) -> list[str]:
    if "whole" in options:
        return [args]
    return [args[at : at + ARGS_PIECE] for at in range(0, len(args), ARGS_PIECE)]


def deltas(texts: tuple[str, ...], encode: Any) -> Iterator[Piece]:
    """Encode each text, equal ones only once: benchmarks send 20,000."""
    known: dict[str, bytes] = {}
    for text in texts:
        data = known.get(text)
        if data is None:
            data = known[text] = encode(text)
        yield "delta", data


# --- the four APIs -------------------------------------------------------------------------


def anthropic_pieces(reply: FakeReply) -> Iterator[Piece]:
    fresh, output, read, write = reply.usage
    usage = {
        "input_tokens": fresh,
        "output_tokens": 1,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        **reply.billing,
    }
    show = "nousage" not in reply.options
    message: dict[str, Any] = {"id": new_id("msg"), "role": "assistant", "content": []}
    message |= {"model": reply.call.model, **({"usage": usage} if show else {})}
    yield "open", sse({"type": "message_start", "message": message}, "message_start")
    for index, block in enumerate(reply.blocks):
        yield from anthropic_block(index, block, reply.options)
    stop = reply.stop or ("tool_use" if reply.has_tools else "end_turn")
    end: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": stop}}
    if show:
        end["usage"] = {**usage, "output_tokens": output}
    yield "close", sse(end, "message_delta")
    yield "close", sse({"type": "message_stop"}, "message_stop")


def anthropic_block(index: int, block: FakeBlock, options: dict[str, str]) -> Iterator[Piece]:
    def event(kind: str, **fields: Any) -> bytes:
        name = f"content_block_{kind}"
        return sse({"type": name, "index": index, **fields}, name)

    def delta(kind: str, field: str, value: str) -> bytes:
        return event("delta", delta={"type": kind, field: value})

    match block.kind:
        case "text":
            yield "open", event("start", content_block={"type": "text", "text": ""})
            yield from deltas(block.texts, lambda text: delta("text_delta", "text", text))
        case "think":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            yield "open", event("start", content_block=start)
            yield from deltas(block.texts, lambda text: delta("thinking_delta", "thinking", text))
            yield "open", delta("signature_delta", "signature", block.signature)
        case "tool":
            call = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
            yield "open", event("start", content_block=call)
            for piece in pieces_of(block.args, options):
                yield "delta", delta("input_json_delta", "partial_json", piece)
    yield "open", event("stop")


def chat_pieces(reply: FakeReply) -> Iterator[Piece]:
    base = {"id": new_id("chatcmpl"), "object": "chat.completion.chunk", "model": reply.call.model}
    options = reply.options

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return sse({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield "open", chunk({"role": "assistant", "content": ""})
    if reply.stop == "refusal":
        yield "open", chunk({"refusal": "I will not."})
    number = 0
    for block in reply.blocks:
        if block.kind == "text":
            yield from deltas(block.texts, lambda text: chunk({"content": text}))
        elif block.kind == "think":
            yield from deltas(block.texts, lambda text: chunk({"reasoning_content": text}))
        else:
            for kind, call in chat_call(block, number, options):
                yield kind, chunk({"tool_calls": [call]})
            number += 1
    words = {"max_tokens": "length", "refusal": "stop"}
    stop = words.get(reply.stop, reply.stop) or ("tool_calls" if reply.has_tools else "stop")
    yield "close", chunk({}, stop)
    if reply.call.want_usage and "nousage" not in options:
        usage = {**chat_usage(reply.usage), **reply.billing}
        tier = reply.billing.get("service_tier")
        yield "close", sse({**base, "choices": [], "usage": usage, "service_tier": tier})
    if "nodone" not in options:
        yield "close", b"data: [DONE]\n\n"


def chat_call(
    block: FakeBlock, number: int, options: dict[str, str]
) -> Iterator[tuple[Literal["open", "delta"], dict[str, Any]]]:
    place: dict[str, Any] = {} if "noindex" in options else {"index": number}
    names: dict[str, Any] = {} if "noid" in options else {"id": block.id}
    head = {**place, **names, "type": "function"}
    if "whole" in options:
        yield "delta", {**head, "function": {"name": block.name, "arguments": block.args}}
        return
    yield "open", {**head, "function": {"name": block.name, "arguments": ""}}
    for piece in pieces_of(block.args, options):
        yield "delta", {**place, "function": {"arguments": piece}}


def chat_usage(usage: tuple[int, int, int, int]) -> dict[str, Any]:
    fresh, output, read, write = usage
    return {
        "prompt_tokens": fresh + read + write,
        "completion_tokens": output,
        "total_tokens": fresh + read + write + output,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def responses_pieces(reply: FakeReply) -> Iterator[Piece]:
    def event(kind: str, **fields: Any) -> bytes:
        name = f"response.{kind}"
        return sse({"type": name, **fields}, name)

    shell: dict[str, Any] = {"id": new_id("resp"), "object": "response", "model": reply.call.model}
    yield "open", event("created", response={**shell, "status": "in_progress"})
    output: list[dict[str, Any]] = []
    for index, block in enumerate(reply.blocks):
        yield from responses_block(index, block, event, output, reply.options)
    if reply.stop == "refusal":
        yield "open", event("refusal.delta", output_index=len(output), delta="I will not.")
    cut_short = reply.stop in ("max_tokens", "length")
    final = {**shell, "status": "incomplete" if cut_short else "completed", "output": output}
    if cut_short:
        final["incomplete_details"] = {"reason": "max_output_tokens"}
    if "nousage" not in reply.options:
        fresh, made, read, write = reply.usage
        more = dict(reply.billing)
        details = {"cached_tokens": read, "cache_write_tokens": write, **more.pop("details", {})}
        final["service_tier"] = more.get("service_tier")
        final["usage"] = {
            "input_tokens": fresh + read + write,
            "input_tokens_details": details,
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            **more,
        }
    yield "close", event("incomplete" if cut_short else "completed", response=final)


def responses_block(
    index: int, block: FakeBlock, event: Any, output: list[dict[str, Any]], options: dict[str, str]
) -> Iterator[Piece]:
    text = "".join(block.texts)
    at = {"output_index": index}
    item: dict[str, Any]
    match block.kind:
        case "text":
            item = {"id": new_id("msg"), "type": "message", "role": "assistant"}
            yield "open", event("output_item.added", **at, item={**item, "content": []})
            yield from deltas(
                block.texts, lambda piece: event("output_text.delta", **at, delta=piece)
            )
            item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
            item |= {"phase": options["phase"]} if "phase" in options else {}
        case "think":
            item = {"id": new_id("rs"), "type": "reasoning", "summary": []}
            yield "open", event("output_item.added", **at, item=item)
            yield "open", event("reasoning_summary_part.added", **at)
            yield from deltas(
                block.texts, lambda piece: event("reasoning_summary_text.delta", **at, delta=piece)
            )
            item["summary"] = [{"type": "summary_text", "text": text}]
            item["encrypted_content"] = "c2VjcmV0"
        case "tool" if block.custom:
            item = {"id": new_id("ctc"), "type": "custom_tool_call", "call_id": block.id}
            item |= {"name": block.name, "input": ""}
            yield "open", event("output_item.added", **at, item=item)
            item = {**item, "input": json.loads(block.args)["input"]}
            yield "delta", event("custom_tool_call_input.delta", **at, delta=item["input"])
        case "tool":
            item = {"id": new_id("fc"), "type": "function_call", "call_id": block.id}
            item |= {"name": block.name, "arguments": ""}
            if "whole" not in options:
                yield "open", event("output_item.added", **at, item=item)
                for piece in pieces_of(block.args, options):
                    yield "delta", event("function_call_arguments.delta", **at, delta=piece)
            item = {**item, "arguments": block.args}
    yield "open", event("output_item.done", **at, item=item)
    output.append(item)


def google_pieces(reply: FakeReply) -> Iterator[Piece]:
    def event(parts: list[dict[str, Any]], **fields: Any) -> bytes:
        content = {"role": "model", "parts": parts}
        candidate = {"index": 0, "content": content, **fields}
        return sse({"candidates": [candidate], "modelVersion": reply.call.model})

    for block in reply.blocks:
        if block.kind == "text":
            yield from deltas(block.texts, lambda text: event([{"text": text}]))
        elif block.kind == "think":
            yield from deltas(block.texts, lambda text: event([{"text": text, "thought": True}]))
        else:
            yield "delta", google_call(block, event)
    words = {"max_tokens": "MAX_TOKENS", "length": "MAX_TOKENS", "refusal": "SAFETY"}
    stop = words.get(reply.stop, reply.stop) or "STOP"
    last = json.loads(event([{"text": ""}], finishReason=stop)[6:])
    if "nousage" not in reply.options:
        fresh, output, read, write = reply.usage
        last["usageMetadata"] = {
            "promptTokenCount": fresh + read + write,
            "candidatesTokenCount": output,
            "cachedContentTokenCount": read,
            **reply.billing,
        }
    yield "close", sse(last)


def google_call(block: FakeBlock, event: Any) -> bytes:
    try:
        args = json.loads(block.args)
    except ValueError:  # this API sends arguments parsed: bad ones arrive as a broken event
        return b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"args":{"co\n\n'
    call = {"functionCall": {"name": block.name, "args": args}, "thoughtSignature": "c2lnbmVk"}
    data: bytes = event([call])
    return data


PIECES: dict[Dialect, Callable[[FakeReply], Iterator[Piece]]] = {
    "anthropic": anthropic_pieces,
    "chat": chat_pieces,
    "responses": responses_pieces,
    "google": google_pieces,
}
"""Function per API that encodes an answer as events."""


KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def error_body(dialect: Dialect, status: int, message: str) -> dict[str, Any]:
    kind = KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}}
    if dialect == "google":
        return {"error": {"code": status, "message": message, "status": kind.upper()}}
    return {"error": {"message": message, "type": kind, "code": kind, "param": None}}


def stream_error(dialect: Dialect, kind: str) -> bytes:
    """Return an error event for inside the stream, after the 200."""
    message = f"scripted {kind}"
    match dialect:
        case "anthropic":
            return sse({"type": "error", "error": {"type": kind, "message": message}}, "error")
        case "chat":
            return sse({"error": {"message": message, "type": kind, "code": kind}})
        case "responses":
            return sse({"type": "error", "code": kind, "message": message}, "error")
        case "google":
            return sse({"error": {"status": kind.upper(), "message": message}})
