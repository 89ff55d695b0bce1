"""Scenarios of failures: provider errors, aborts at every moment, lines that are not commands."""

from __future__ import annotations

import os

from zot.conformance.basics import TEXT_TURN
from zot.conformance.kit import Kit, one_server
from zot.conformance.peer import DrivenServer, Frame, count_of, last_of, of_type, prompt

TOO_LONG = 17 * 1024 * 1024


def refused(kit: Kit, peer: DrivenServer) -> None:
    frames = peer.run("status:400")
    kit.order("order", frames, "user_message turn_start turn_end error done")
    end = last_of(frames, "turn_end")
    kit.equal("stop", "turn_end says stop error", end.get("stop"), "error")
    kit.check("reason", "turn_end says what failed", bool(end.get("error")), end)
    same = last_of(frames, "error").get("message") == end.get("error")
    kit.check("message", "error repeats it", same, last_of(frames, "error"))
    _next_prompt_works(kit, peer)


def cut_stream(kit: Kit, peer: DrivenServer) -> None:
    """Check that half an answer is an error or is retried: it must not count as success."""
    frames = peer.run("text:6 cut:3 tries:1")
    text = "an answer that breaks off is an error, or comes whole in a message of its own"
    stop, said = last_of(frames, "turn_end").get("stop"), _last_message(frames)
    fine = stop == "error" or (stop == "end" and said == "abcd " * 6)
    kit.check("stop", text, fine, [stop, said])
    _next_prompt_works(kit, peer)


def _last_message(frames: list[Frame]) -> str:
    """Return the text streamed since the last assistant_start."""
    text = ""
    for frame in frames:
        if frame["type"] == "assistant_start":
            text = ""
        elif frame["type"] == "text_delta":
            text += frame["delta"]
    return text


def stream_error(kit: Kit, peer: DrivenServer) -> None:
    frames = peer.run("text:4 error:invalid_request_error")
    stop = last_of(frames, "turn_end").get("stop")
    kit.equal("stop", "an error event in the stream ends with error", stop, "error")
    kinds = [frame["type"] for frame in frames]
    kit.equal("end", "error then done are last", kinds[-2:], ["error", "done"])
    _next_prompt_works(kit, peer)


def abort_idle(kit: Kit, peer: DrivenServer) -> None:
    kit.check("success", "abort succeeds when nothing runs", peer.ask("abort")["success"])
    kit.ends_well("next", "and does not harm the next prompt", peer.run("say:ok"))


def abort_before_headers(kit: Kit, peer: DrivenServer) -> None:
    requests = len(kit.server.requests)
    peer.send(prompt("hang"))
    kit.server.wait_for(requests + 1, kit.seconds)
    _abort(kit, peer)


def abort_in_stream(kit: Kit, peer: DrivenServer) -> None:
    requests = len(kit.server.requests)
    peer.send(prompt("text:3 hang:3"))
    peer.wait("three deltas", lambda frames: count_of(frames, "text_delta") >= 3)
    _abort(kit, peer)
    text = "the connection to the provider is closed"
    gone = kit.server.wait_outcome("gone", kit.seconds, requests)
    kit.check("connection", text, gone, "it stays open", "should")


def abort_in_tool(kit: Kit, peer: DrivenServer) -> None:
    mark = os.path.join(kit.cwd, "ran-after-abort")  # noqa: PTH118  a plain string for a child
    script = f"tool:bash:sleep 60\ntool:bash:touch {mark}\nthen\nsay:never"
    peer.send(prompt(script))
    peer.wait("the tool to run", lambda frames: count_of(frames, "turn_end") >= 1)
    _abort(kit, peer)
    frames = list(peer.frames)
    results = len(of_type(frames, "tool_result"))
    kit.equal("results", "every call has a result", results, 2, "should")
    ran = os.path.exists(mark)  # noqa: PTH110
    kit.check("nothing_after", "no tool runs after the abort", not ran, "the second call ran")


def abort_at_once(kit: Kit, peer: DrivenServer) -> None:
    peer.send(prompt("text:50 delay:20"), {"id": "a", "type": "abort"})
    peer.events_until_done()
    _next_prompt_works(kit, peer)


def hostile_lines(kit: Kit, peer: DrivenServer) -> None:
    lines = {
        "not_json": b"hello\n",
        "half": b'{"type":"ping"\n',
        "array": b"[]\n",
        "null": b"null\n",
        "string": b'"ping"\n',
        "no_type": b"{}\n",
        "number_type": b'{"type":7}\n',
        "bad_utf8": b'{"type":"ping","x":"\xff"}\n',
        "nested": b"[" * 100_000 + b"\n",
        "wrong_field": b'{"type":"prompt","message":7}\n',
    }
    for name, line in lines.items():
        before = len(of_type(peer.frames, "response"))
        peer.send_raw(line)
        peer.ask("ping", id=name)
        answers = of_type(peer.frames, "response")[before:]
        is_refused = any(answer.get("success") is False for answer in answers)
        if name == "bad_utf8":
            is_refused = is_refused or any("id" not in answer for answer in answers)
        kit.check(name, f"{line[:24]!r} gets a failed response", is_refused, answers)


def odd_lines(kit: Kit, peer: DrivenServer) -> None:
    peer.send_raw(b'\n  \n\r\n  {"id":"crlf","type":"ping"} \r\n')
    kit.check("crlf", "blank lines and CRLF do no harm", peer.response("crlf")["success"])
    peer.send_raw(b'{"id":"half","type":"prompt","message":"say:\\ud83d"}\n')
    peer.events_until_done()
    kit.check("surrogate", "half a character does no harm", True)
    frames = peer.run("unicode")
    said = "".join(str(frame.get("delta")) for frame in of_type(frames, "text_delta"))
    kit.check("unicode", "text arrives unharmed", "日本語" in said and "🙂" in said, said)
    one_line = all(len(line.decode("utf-8").splitlines()) == 1 for line in peer.lines)
    text = "no reader can split a frame (U+2028, U+2029, U+0085 are escaped)"
    kit.check("escaped", text, one_line, level="should")


def too_long_line(kit: Kit, peer: DrivenServer) -> None:
    peer.send_raw(b'{"type":"prompt","message":"' + b"x" * TOO_LONG + b'"}\n')
    alive = peer.ask("ping")["success"]
    text = "a line past the limit gets a failed response, and the process goes on"
    failed = any(frame.get("success") is False for frame in peer.frames)
    kit.check("survives", text, alive and failed, peer.frames, "should")


def _abort(kit: Kit, peer: DrivenServer) -> None:
    kit.check("success", "abort succeeds", peer.ask("abort")["success"])
    frames = peer.events_until_done()
    end = last_of(frames, "turn_end")
    kit.equal("stop", "turn_end says aborted", end.get("stop"), "aborted")
    kinds = [frame["type"] for frame in frames if frame["type"] != "response"]
    kit.equal("end", "turn_end then done are last", kinds[-2:], ["turn_end", "done"])
    kit.check("no_error", "an abort is no error", "error" not in kinds, kinds)
    _next_prompt_works(kit, peer)


def _next_prompt_works(kit: Kit, peer: DrivenServer) -> None:
    peer.events_until_done()
    frames = peer.run("say:after that")
    kit.order("next", frames, f"user_message {TEXT_TURN} done")
    kit.one_done(peer, 2)


TROUBLE = (
    *map(one_server, (refused, cut_stream, stream_error, abort_idle, abort_before_headers)),
    *map(one_server, (abort_in_stream, abort_in_tool, abort_at_once)),
    *map(one_server, (hostile_lines, odd_lines, too_long_line)),
)
