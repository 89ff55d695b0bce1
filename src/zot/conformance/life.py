"""Scenarios of a process's lifetime: auth, queueing, compaction, end of input, signals, crashes."""

from __future__ import annotations

import signal

from zot.conformance.basics import TEXT_TURN
from zot.conformance.kit import Kit, one_server
from zot.conformance.peer import DrivenServer, Frame, Unfinished, count_of, last_of, of_type, prompt

TOKEN = "conformance-token"
HELLO: Frame = {"id": "h", "type": "hello", "features": ["seq", "codes"]}
COMMAND = "tool:bash:echo begun >> log; echo begun; sleep 60\nthen\nsay:ended"


def auth(kit: Kit) -> None:
    with kit.peer(TOKEN) as peer:
        accepted = peer.ask("hello", token=TOKEN)["success"]
        kit.check("right", "the right token is accepted", accepted)
        kit.check("then", "and commands are answered", peer.ask("ping")["success"])
        frames = peer.run("tool:bash:echo token=$ZOTCORE_RPC_TOKEN.\nthen\nsay:ok")
        text = str(last_of(frames, "tool_result").get("content"))
        kit.check("hidden", "tools do not see the token", TOKEN not in text, text, "should")


def wrong_token(kit: Kit) -> None:
    with kit.peer(TOKEN) as peer:
        answer = peer.ask("hello", token="wrong")
        kit.equal("refused", "a wrong token is refused", answer["success"], False)
        code = peer.exit_code()
        kit.check("exit", "and ends the process with a failure", code != 0, f"exit code {code}")


def no_hello(kit: Kit) -> None:
    with kit.peer(TOKEN) as peer:
        answer = peer.ask("ping")
        kit.equal("refused", "without hello nothing works", answer["success"], False)
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
    state = peer.data("get_state")
    kit.equal("state", "get_state says busy", state.get("busy"), True)
    text = "clear is refused while a prompt runs"
    kit.equal("clear", text, peer.ask("clear")["success"], False, "should")
    peer.ask("abort")
    peer.events_until_done()
    state = peer.data("get_state")
    kit.equal("idle", "and not any more after done", state.get("busy"), False)


def compact(kit: Kit, peer: DrivenServer) -> None:
    for number in range(1, 5):
        peer.run(f"say:answer {number}")
    before = len(peer.frames)
    started = peer.data("compact").get("started")
    kit.equal("started", "compact is acknowledged like a prompt", started, True)
    peer.wait("compact_done", lambda frames: count_of(frames, "compact_done") > 0)
    summary = last_of(peer.frames, "compact_done").get("summary")
    kit.check("summary", "compact_done holds the summary", bool(summary), summary)
    frames = peer.events_until_done(5)[before:]
    kinds = [frame["type"] for frame in frames if frame["type"] in ("compact_done", "done")]
    kit.equal("end", "done comes last", kinds, ["compact_done", "done"])
    messages = peer.data("get_messages").get("messages") or []
    fewer = 0 < len(messages) < 8
    kit.check("shorter", "the transcript is shorter", fewer, f"{len(messages)} messages")


def compact_nothing(kit: Kit, peer: DrivenServer) -> None:
    peer.ask("compact")
    peer.wait("an error", lambda frames: count_of(frames, "error") > 0)
    kit.check("error", "there is nothing to compact, and it says so", True)
    peer.comes(lambda frames: count_of(frames, "done") > 0)  # a pong may come before `done`
    kit.equal("done", "it ends with done", count_of(peer.frames, "done"), 1, "should")


def rewind(kit: Kit, peer: DrivenServer) -> None:
    for number in (1, 2):
        peer.run(f"say:answer {number}")
    listed = peer.data("checkpoints").get("checkpoints") or []
    text = "checkpoints lists the prompts"
    counts = [moment.get("message_count") for moment in listed]
    if not kit.equal("checkpoints", text, counts, [0, 2], "should"):
        return
    back = {"to": listed[1].get("id"), "files": False}
    shown = peer.data("rewind", **back, preview=True).get("message_count")
    kit.equal("preview", "a preview says how many messages go", shown, 2, "should")
    count = peer.data("get_state").get("message_count")
    kit.equal("unchanged", "and changes nothing", count, 4, "should")
    said = peer.data("rewind", **back).get("text")
    kit.equal("text", "rewind gives the prompt back", said, "say:answer 2", "should")
    count = peer.data("get_state").get("message_count")
    kit.equal("gone", "and the conversation ends before it", count, 2, "should")


def agents(kit: Kit, peer: DrivenServer) -> None:
    offered = peer.data("hello", features=["agents", "codes", "seq"]).get("features") or []
    if not kit.check("offered", "it has the feature agents", "agents" in offered, "", "should"):
        return
    peer.send(*({"id": name, "type": "open_agent", "agent": name} for name in "ab"))
    kit.check("open", "open_agent opens one", peer.response("a")["success"])
    code = peer.ask("open_agent", agent="a")["code"]
    kit.equal("exists", "a second of a name is refused", code, "exists")
    peer.send({**prompt("hang", "1"), "agent": "a"}, {**prompt("say:hi", "2"), "agent": "b"})
    peer.wait("done of b", lambda frames: any(_is_done(frame, "b") for frame in frames))
    peer.ask("abort")
    peer.ask("abort", agent="a")
    peer.wait("done of a", lambda frames: any(_is_done(frame, "a") for frame in frames))
    for name in "ab":
        numbers = [frame["seq"] for frame in peer.frames if frame.get("agent") == name]
        ascending = list(range(1, len(numbers) + 1))
        kit.equal(f"seq_{name}", "seq counts for each agent", numbers, ascending)
    agents = peer.data("list_agents").get("agents") or []
    states = [(shape.get("agent"), shape.get("state")) for shape in agents]
    kit.equal("list", "list_agents names them", states, [("a", "idle"), ("b", "idle")])
    closed = peer.ask("close_agent", agent="a")["success"]
    kit.check("close", "close_agent closes it", closed)
    code = peer.ask("prompt", message="say:hi", agent="a").get("code")
    kit.equal("gone", "and it is not found", code, "not_found")


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
    peer.ask("ping")
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
    peer.run("tool:bash:echo out; echo err >&2\nthen\nsay:ok")
    peer.end_input()
    peer.drained()
    wrong = [line for line in peer.lines if not line.startswith(b"{")][:1]
    kit.check("stdout", "nothing but frames on stdout", not wrong, wrong)
    whole = len(of_type(peer.frames, "tool_result")) == 1
    kit.check("once", "the tool's output is in its result", whole)


# --- durable runs, which survive the process; skipped where they are not supported ---------------


def killed(kit: Kit) -> None:
    """Check that a run whose process is killed in a tool continues on restart and ends once."""
    flags = ("--session", f"{kit.cwd}/s.jsonl", "--durable")
    with kit.peer(flags=flags) as peer:
        try:
            _begin_tool(peer)
        except Unfinished as error:
            kit.check("known", "durable runs are known (--durable)", False, error, "should")
            return
        before = [frame for frame in peer.frames if frame["type"] != "response"]
        peer.signal(signal.SIGKILL)
    with kit.peer(flags=flags) as peer:
        peer.send(HELLO)
        frames = peer.events_until_done()
        kit.equal("resumed", "the run goes on", len(of_type(frames, "run_resumed")), 1, "should")
        result = str(last_of(frames, "tool_result").get("content"))
        knows = "may have taken effect" in result
        kit.check("told", "and is told of the call", knows, result, "should")
        data = peer.data("prompt", message="x", run="job")
        text = "a prompt of the same name is not run again"
        kit.equal("once", text, data.get("already_done"), True, "should")
        events = peer.data("events").get("events") or []
        text = "earlier events are sent again"
        kit.equal("events", text, events[: len(before)], before, "should")


def held(kit: Kit) -> None:
    """Check that with `--on-crash hold` an interrupted run waits for `resume_run`."""
    flags = ("--session", f"{kit.cwd}/held.jsonl", "--durable")
    with kit.peer(flags=flags) as peer:
        try:
            _begin_tool(peer)
        except Unfinished:
            return  # reported by `killed`: durable runs are not supported
        peer.signal(signal.SIGKILL)
    with kit.peer(flags=(*flags, "--on-crash", "hold")) as peer:
        peer.send(HELLO)
        peer.wait("run_held", lambda frames: count_of(frames, "run_held") > 0)
        code = peer.ask("prompt", message="say:other", run="other").get("code")
        kit.equal("waits", "nothing else runs meanwhile", code, "held", "should")
        peer.ask("resume_run", run="job", decision="fail")
        frames = peer.events_until_done()
        ends = [frame.get("run") for frame in of_type(frames, "done")]
        kit.equal("ended", "resume_run ends it", ends, ["job"], "should")
        end = peer.data("prompt", message="x", run="job").get("end") or {}
        kit.equal("code", "as interrupted", end.get("code"), "interrupted", "should")


def _begin_tool(peer: DrivenServer) -> None:
    """Start a durable run, and wait until its tool writes something."""
    peer.send(HELLO, {"id": "p", "type": "prompt", "message": COMMAND, "run": "job"})
    peer.wait("output of the tool", lambda frames: count_of(frames, "tool_progress") > 0)


LIFE = (
    *(auth, wrong_token, no_hello),
    *map(one_server, (queue, busy, compact, compact_nothing, rewind, agents)),
    *map(one_server, (end_of_input, end_of_input_idle, terminated, only_frames)),
    *(killed, held),
)
