"""Scenarios of a process's lifetime: auth, queueing, compaction, end of input, signals."""

from __future__ import annotations

import signal

from zot.conformance.basics import TEXT_TURN
from zot.conformance.kit import Kit, last_of, of_type, one_server, prompt
from zot.conformance.peer import DrivenServer, Frame, count_of

TOKEN = "conformance-token"


def auth(kit: Kit) -> None:
    with kit.peer(TOKEN) as peer:
        peer.send({"id": "h", "type": "hello", "token": TOKEN}, {"id": "p", "type": "ping"})
        kit.check("right", "the right token is accepted", peer.response("h")["success"])
        kit.check("then", "and commands are answered", peer.response("p")["success"])
        peer.send(prompt("tool:bash:echo token=$ZOTCORE_RPC_TOKEN.\nthen\nsay:ok"))
        text = str(last_of(peer.events_until_done(), "tool_result").get("content"))
        kit.check("hidden", "tools do not see the token", TOKEN not in text, text, "should")


def wrong_token(kit: Kit) -> None:
    with kit.peer(TOKEN) as peer:
        peer.send({"id": "h", "type": "hello", "token": "wrong"})
        kit.equal("refused", "a wrong token is refused", peer.response("h")["success"], False)
        code = peer.exit_code()
        kit.check("exit", "and ends the process with a failure", code != 0, f"exit code {code}")


def no_hello(kit: Kit) -> None:
    with kit.peer(TOKEN) as peer:
        peer.send({"id": "p", "type": "ping"})
        kit.equal("refused", "without hello nothing works", peer.response("p")["success"], False)
        code = peer.exit_code()
        kit.check("exit", "and the process ends with a failure", code != 0, f"exit code {code}")


def queue(kit: Kit, peer: DrivenServer) -> None:
    peer.send(prompt("text:5 delay:50"), prompt("say:second", "2"))
    peer.wait("the first delta", lambda frames: count_of(frames, "text_delta") > 0)
    acked = any(frame.get("id") == "2" for frame in peer.frames)
    text = "a queued prompt is acknowledged at once"
    kit.check("ack", text, acked, "no response while the first one runs", "should")
    frames = peer.events_until_done(2)
    turn = f"user_message {TEXT_TURN} done"
    kit.order("order", frames, f"{turn} {turn}")
    peer.response("2")
    kit.one_done(peer, 2)


def busy(kit: Kit, peer: DrivenServer) -> None:
    peer.send(prompt("text:2 hang:2"))
    peer.wait("two deltas", lambda frames: count_of(frames, "text_delta") >= 2)
    peer.send({"id": "s", "type": "get_state"}, {"id": "c", "type": "clear"})
    state = peer.data("s")
    kit.equal("state", "get_state says busy", state.get("busy"), True)
    text = "clear is refused while a prompt runs"
    kit.equal("clear", text, peer.response("c")["success"], False, "should")
    peer.send({"id": "a", "type": "abort"})
    peer.events_until_done()
    peer.send({"id": "t", "type": "get_state"})
    state = peer.data("t")
    kit.equal("idle", "and not any more after done", state.get("busy"), False)


def compact(kit: Kit, peer: DrivenServer) -> None:
    for number in range(1, 5):
        peer.send(prompt(f"say:answer {number}", str(number)))
        peer.events_until_done(number)
    before = len(peer.frames)
    peer.send({"id": "c", "type": "compact"})
    started = peer.data("c").get("started")
    kit.equal("started", "compact is acknowledged like a prompt", started, True)
    peer.wait("compact_done", lambda frames: count_of(frames, "compact_done") > 0)
    summary = last_of(peer.frames, "compact_done").get("summary")
    kit.check("summary", "compact_done holds the summary", bool(summary), summary)
    frames = peer.events_until_done(5)[before:]
    kinds = [frame["type"] for frame in frames if frame["type"] in ("compact_done", "done")]
    kit.equal("end", "done comes last", kinds, ["compact_done", "done"])
    peer.send({"id": "m", "type": "get_messages"})
    messages = peer.data("m").get("messages") or []
    fewer = 0 < len(messages) < 8
    kit.check("shorter", "the transcript is shorter", fewer, f"{len(messages)} messages")


def compact_nothing(kit: Kit, peer: DrivenServer) -> None:
    peer.send({"id": "c", "type": "compact"})
    peer.response("c")
    peer.wait("an error", lambda frames: count_of(frames, "error") > 0)
    kit.check("error", "there is nothing to compact, and it says so", True)
    peer.comes(lambda frames: count_of(frames, "done") > 0)  # a pong may come before `done`
    kit.equal("done", "it ends with done", count_of(peer.frames, "done"), 1, "should")


def rewind(kit: Kit, peer: DrivenServer) -> None:
    for number in (1, 2):
        peer.send(prompt(f"say:answer {number}", str(number)))
        peer.events_until_done(number)
    peer.send({"id": "c", "type": "checkpoints"})
    listed = peer.data("c").get("checkpoints") or []
    text = "checkpoints lists the prompts"
    counts = [moment.get("message_count") for moment in listed]
    if not kit.equal("checkpoints", text, counts, [0, 2], "should"):
        return
    back = {"type": "rewind", "to": listed[1].get("id"), "files": False}
    peer.send({"id": "p", **back, "preview": True}, {"id": "s", "type": "get_state"})
    shown = peer.data("p").get("message_count")
    kit.equal("preview", "a preview says how many messages go", shown, 2, "should")
    count = peer.data("s").get("message_count")
    kit.equal("unchanged", "and changes nothing", count, 4, "should")
    peer.send({"id": "r", **back}, {"id": "t", "type": "get_state"})
    said = peer.data("r").get("text")
    kit.equal("text", "rewind gives the prompt back", said, "say:answer 2", "should")
    count = peer.data("t").get("message_count")
    kit.equal("gone", "and the conversation ends before it", count, 2, "should")


def agents(kit: Kit, peer: DrivenServer) -> None:
    peer.send({"id": "h", "type": "hello", "features": ["agents", "codes", "seq"]})
    offered = peer.data("h").get("features") or []
    if not kit.check("offered", "it has the feature agents", "agents" in offered, "", "should"):
        return
    peer.send(*({"id": name, "type": "open_agent", "agent": name} for name in "ab"))
    kit.check("open", "open_agent opens one", peer.response("a")["success"])
    peer.send({"id": "x", "type": "open_agent", "agent": "a"})
    kit.equal("exists", "a second of a name is refused", peer.response("x")["code"], "exists")
    peer.send({**prompt("hang", "1"), "agent": "a"}, {**prompt("say:hi", "2"), "agent": "b"})
    peer.wait("done of b", lambda frames: any(_is_done(frame, "b") for frame in frames))
    peer.send({"id": "n", "type": "abort"}, {"id": "m", "type": "abort", "agent": "a"})
    peer.wait("done of a", lambda frames: any(_is_done(frame, "a") for frame in frames))
    for name in "ab":
        numbers = [frame["seq"] for frame in peer.frames if frame.get("agent") == name]
        ascending = list(range(1, len(numbers) + 1))
        kit.equal(f"seq_{name}", "seq counts for each agent", numbers, ascending)
    peer.send({"id": "s", "type": "list_agents"})
    agents = peer.data("s").get("agents") or []
    states = [(shape.get("agent"), shape.get("state")) for shape in agents]
    kit.equal("list", "list_agents names them", states, [("a", "idle"), ("b", "idle")])
    peer.send({"id": "c", "type": "close_agent", "agent": "a"}, {"id": "l", "type": "ping"})
    kit.check("close", "close_agent closes it", peer.response("c")["success"])
    peer.send({**prompt("say:hi", "3"), "agent": "a"})
    kit.equal("gone", "and it is not found", peer.response("3").get("code"), "not_found")


def _is_done(frame: Frame, agent: str) -> bool:
    return frame["type"] == "done" and frame.get("agent") == agent


def end_of_input(kit: Kit, peer: DrivenServer) -> None:
    peer.send(prompt("text:5 delay:50"), prompt("say:queued", "2"))
    peer.end_input()
    code = peer.exit_code()
    frames = peer.drained()
    kit.equal("finishes", "accepted prompts finish", count_of(frames, "done"), 2)
    last = [frame.get("type") for frame in frames[-1:]]
    kit.equal("last", "done is the last frame", last, ["done"])
    kit.equal("exit", "then it exits with 0", code, 0)


def end_of_input_idle(kit: Kit, peer: DrivenServer) -> None:
    peer.send({"id": "p", "type": "ping"})
    peer.response("p")
    peer.end_input()
    kit.equal("exit", "it exits with 0 when its input ends", peer.exit_code(), 0)


def terminated(kit: Kit, peer: DrivenServer) -> None:
    peer.send(prompt("text:2 hang:2"))
    peer.wait("two deltas", lambda frames: count_of(frames, "text_delta") >= 2)
    peer.signal(signal.SIGTERM)
    peer.exit_code()
    frames = peer.drained()
    got = [frame["type"] for frame in frames][-2:]
    text = "SIGTERM ends the run with turn_end and done"
    kit.equal("says_done", text, got, ["turn_end", "done"], "should")


def only_frames(kit: Kit, peer: DrivenServer) -> None:
    peer.send(prompt("tool:bash:echo out; echo err >&2\nthen\nsay:ok"))
    peer.events_until_done()
    peer.end_input()
    peer.drained()
    wrong = [line for line in peer.lines if not line.startswith(b"{")][:1]
    kit.check("stdout", "nothing but frames on stdout", not wrong, wrong)
    whole = len(of_type(peer.frames, "tool_result")) == 1
    kit.check("once", "the tool's output is in its result", whole)


LIFE = (
    *(auth, wrong_token, no_hello),
    *map(one_server, (queue, busy, compact, compact_nothing, rewind, agents)),
    *map(one_server, (end_of_input, end_of_input_idle, terminated, only_frames)),
)
