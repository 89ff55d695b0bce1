"""Scenarios of normal use: commands, responses, a text turn, tool turns, state."""

from __future__ import annotations

import base64
import re

import msgspec

from zot.conformance.kit import Kit, one_server
from zot.conformance.peer import DrivenServer, Frame, last_of, of_type

TEXT_TURN = "turn_start assistant_start text_delta usage assistant_message turn_end"
CALL = "tool_use_start tool_use_args tool_use_end"
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def commands(kit: Kit, peer: DrivenServer) -> None:
    pong = peer.ask("ping")
    kit.equal("ping", "ping answers pong", pong.get("data"), {"pong": True})
    kit.equal("echo", "a response names its command", pong.get("command"), "ping")
    data = peer.data("hello")
    kit.equal("protocol", "hello says protocol_version 1", data.get("protocol_version"), 1)
    for field in ("version", "provider", "model"):
        kit.check(f"hello_{field}", f"hello says {field}", isinstance(data.get(field), str))
    unknown = peer.ask("no_such_command")
    kit.equal("unknown", "an unknown command fails", unknown.get("success"), False)
    kit.equal("unknown_name", "and is named", unknown.get("command"), "no_such_command")
    kit.check("unknown_error", "and says why", isinstance(unknown.get("error"), str), unknown)
    extra = peer.ask("ping", no_such_field=[1])
    kit.check("extra_field", "unknown fields are ignored", extra["success"])
    peer.send({"type": "ping"})
    peer.ask("ping")
    nameless = any("id" not in frame for frame in of_type(peer.frames, "response"))
    kit.check("no_id", "a command without id is answered without id", nameless)
    peer.send({"id": 7, "type": "ping"})
    peer.ask("ping")
    echoed = any(frame.get("id") == 7 for frame in peer.frames)
    kit.check("number_id", "a number as id is echoed", echoed, peer.frames[-2], "should")


def text(kit: Kit, peer: DrivenServer) -> None:
    frames = peer.run("say:hello wide world", id="1")
    started = frames[0]
    kit.equal("ack_first", "the first frame answers the prompt", started.get("id"), "1")
    got = (started.get("data") or {}).get("started")
    kit.equal("started", "it says started", got, True)
    kit.order("order", frames, f"user_message {TEXT_TURN} done")
    said = "".join(str(frame.get("delta")) for frame in of_type(frames, "text_delta"))
    kit.equal("deltas", "the deltas make up the text", said, "hello wide world")
    user = last_of(frames, "user_message")
    block = [{"type": "text", "text": "say:hello wide world"}]
    kit.equal("user_content", "user_message holds the prompt", user.get("content"), block)
    message = last_of(frames, "assistant_message")
    block = [{"type": "text", "text": "hello wide world"}]
    kit.equal("content", "assistant_message holds the text", message.get("content"), block)
    for name, frame in (("user_time", user), ("time", message)):
        time = str(frame.get("time"))
        kit.check(name, "time is RFC 3339", RFC3339.match(time) is not None, time)
    step = last_of(frames, "turn_start").get("step")
    kit.equal("step", "the first step is 1", step, 1)
    kit.ends_well("stop", "stop is end (or end_turn)", frames)
    kit.one_done(peer)


def usage(kit: Kit, peer: DrivenServer) -> None:
    first = last_of(peer.run("usage:100,10,5,2 say:one"), "usage")
    second = last_of(peer.run("usage:50,5 say:two"), "usage")
    counts = {"input": 100, "output": 10, "cache_read": 5, "cache_write": 2}
    got = {name: first.get(name) for name in counts}
    kit.equal("counts", "usage holds the provider's counts", got, counts)
    total = second.get("cumulative") or {}
    kit.equal("sum", "cumulative adds up", total.get("input"), 150)
    cost = total.get("cost_usd")
    known = isinstance(cost, int | float) and cost >= (first.get("cost_usd") or 0)
    kit.check("cost", "cost_usd adds up", known, total)


def tool(kit: Kit, peer: DrivenServer) -> None:
    frames = peer.run("tool:bash:echo from the tool\nthen\nsay:all done")
    first = f"turn_start assistant_start {CALL} usage assistant_message tool_call turn_end"
    shown = [frame for frame in frames if frame.get("type") != "tool_progress"]
    kit.order("order", shown, f"user_message {first} tool_result {TEXT_TURN} done")
    _check_call(kit, frames)
    result = last_of(frames, "tool_result")
    kit.equal("is_error", "tool_result says is_error", result.get("is_error"), False)
    text = str(result.get("content"))
    kit.check("output", "tool_result holds the output", "from the tool" in text, text)
    steps = [frame.get("step") for frame in of_type(frames, "turn_start")]
    kit.equal("steps", "steps count up", steps, [1, 2])
    stop = [frame.get("stop") for frame in of_type(frames, "turn_end")[:1]]
    kit.equal("stop", "the first turn ends with tool_use", stop, ["tool_use"])
    kit.one_done(peer)


def _check_call(kit: Kit, frames: list[Frame]) -> None:
    start, call = last_of(frames, "tool_use_start"), last_of(frames, "tool_call")
    ids = {start.get("id"), call.get("id"), last_of(frames, "tool_result").get("id")}
    kit.check("ids", "all events of a call have its id", len(ids) == 1, ids)
    names = (start.get("name"), call.get("name"))
    kit.equal("name", "the call is named", names, ("bash", "bash"))
    text = "".join(str(frame.get("delta")) for frame in of_type(frames, "tool_use_args"))
    try:
        streamed = msgspec.json.decode(text)
    except msgspec.DecodeError:
        streamed = text
    kit.equal("args", "tool_use_args make up the args", streamed, call.get("args"))
    inside = last_of(frames[: frames.index(call)] if call else [], "assistant_message")
    kinds = [block.get("type") for block in inside.get("content", [])]
    kit.equal("block", "assistant_message holds the call as a block", kinds, ["tool_call"])


def tools(kit: Kit, peer: DrivenServer) -> None:
    frames = peer.run("tools:3:true\nthen\nsay:ok")
    kinds = [frame["type"] for frame in frames]
    calls = [frame.get("id") for frame in of_type(frames, "tool_call")]
    results = [frame.get("id") for frame in of_type(frames, "tool_result")]
    kit.equal("calls", "every call is announced", len(calls), 3)
    before = "turn_end" in kinds and "tool_call" not in kinds[kinds.index("turn_end") :]
    kit.check("announced_first", "all of them before turn_end", before, kinds)
    kit.equal("results", "results come in call order", results, calls)
    kit.one_done(peer)


def failing_tool(kit: Kit, peer: DrivenServer) -> None:
    frames = peer.run("tool:bash:exit 3\ntool:no_such_tool:{}\nbadargs\nthen\nsay:ok")
    errors = [frame.get("is_error") for frame in of_type(frames, "tool_result")]
    kit.equal("is_error", "failed calls have is_error true", errors, [True] * 3)
    kit.ends_well("goes_on", "the model gets to answer", frames)
    kit.one_done(peer)


def state(kit: Kit, peer: DrivenServer) -> None:
    peer.run("say:hello")
    data = peer.data("get_state")
    kit.equal("busy", "idle after done", data.get("busy"), False)
    kit.equal("count", "message_count counts both messages", data.get("message_count"), 2)
    for field in ("provider", "model", "cwd", "usage"):
        kit.check(f"has_{field}", f"get_state says {field}", field in data, sorted(data))
    messages = peer.data("get_messages").get("messages") or []
    roles = [message.get("role") for message in messages]
    kit.equal("roles", "get_messages gives the transcript", roles, ["user", "assistant"])
    kit.check("clear", "clear succeeds", peer.ask("clear")["success"])
    count = peer.data("get_state").get("message_count")
    kit.equal("cleared", "clear drops the transcript", count, 0)
    models = peer.data("get_models").get("models") or [{}]
    fields = {"id", "provider", "context_window", "max_output", "reasoning"}
    kit.check("models", "get_models lists models", fields <= set(models[0]), models[0])
    wrong = peer.ask("set_model", model=7)
    kit.equal("bad_model", "set_model without a name fails", wrong["success"], False)


def image(kit: Kit, peer: DrivenServer) -> None:
    picture = {"mime_type": "image/png", "data": base64.b64encode(PNG).decode()}
    frames = peer.run("say:seen", images=[picture])
    blocks = last_of(frames, "user_message").get("content") or [{}]
    shown = {"type": "image", "mime_type": "image/png", "bytes": len(PNG)}
    kit.equal("block", "an image is shown as a count of bytes", blocks[-1], shown)
    empty = peer.ask("prompt", message="")
    kit.equal("empty", "an empty prompt is refused", empty["success"], False, "should")


BASICS = tuple(map(one_server, (commands, text, usage, tool, tools, failing_tool, state, image)))
