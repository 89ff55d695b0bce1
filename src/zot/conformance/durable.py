"""Scenarios of durable runs, which survive the process; skipped where they are not supported."""

from __future__ import annotations

import signal

from zot.conformance.kit import Kit, last_of, of_type
from zot.conformance.peer import Unfinished, count_of

COMMAND = "tool:bash:echo begun >> log; echo begun; sleep 60\nthen\nsay:ended"


def killed(kit: Kit) -> None:
    """Check that a run whose process is killed in a tool continues on restart and ends once."""
    flags = ("--session", f"{kit.cwd}/s.jsonl", "--durable")
    hello = {"id": "h", "type": "hello", "features": ["seq"]}
    prompt = {"id": "p", "type": "prompt", "message": COMMAND, "run": "job"}
    with kit.peer(flags=flags) as peer:
        peer.send(hello, prompt)
        try:
            peer.wait("output of the tool", lambda frames: count_of(frames, "tool_progress") > 0)
        except Unfinished as error:
            kit.check("known", "durable runs are known (--durable)", False, error, "should")
            return
        before = [frame for frame in peer.frames if frame["type"] != "response"]
        peer.signal(signal.SIGKILL)
    with kit.peer(flags=flags) as peer:
        peer.send(hello)
        frames = peer.events_until_done()
        kit.equal("resumed", "the run goes on", len(of_type(frames, "run_resumed")), 1, "should")
        told = str(last_of(frames, "tool_result").get("content"))
        kit.check(
            "told", "and is told of the call", "may have taken effect" in told, told, "should"
        )
        peer.send({"id": "again", "type": "prompt", "message": "x", "run": "job"})
        data = peer.data("again")
        text = "a prompt of the same name is not run again"
        kit.equal("once", text, data.get("already_done"), True, "should")
        peer.send({"id": "e", "type": "events"})
        events = peer.data("e").get("events") or []
        text = "what was heard before is sent again"
        kit.equal("events", text, events[: len(before)], before, "should")


def held(kit: Kit) -> None:
    """Check that with `--on-crash hold` an interrupted run waits for `resume_run`."""
    flags = ("--session", f"{kit.cwd}/held.jsonl", "--durable")
    hello = {"id": "h", "type": "hello", "features": ["seq", "codes"]}
    with kit.peer(flags=flags) as peer:
        peer.send(hello, {"id": "p", "type": "prompt", "message": COMMAND, "run": "job"})
        try:
            peer.wait("output of the tool", lambda frames: count_of(frames, "tool_progress") > 0)
        except Unfinished:
            return  # reported by `killed`: durable runs are not supported
        peer.signal(signal.SIGKILL)
    with kit.peer(flags=(*flags, "--on-crash", "hold")) as peer:
        peer.send(hello)
        peer.wait("run_held", lambda frames: count_of(frames, "run_held") > 0)
        peer.send({"id": "o", "type": "prompt", "message": "say:other", "run": "other"})
        code = peer.response("o").get("code")
        kit.equal("waits", "nothing else runs meanwhile", code, "held", "should")
        peer.send({"id": "r", "type": "resume_run", "run": "job", "decision": "fail"})
        frames = peer.events_until_done()
        ends = [frame.get("run") for frame in of_type(frames, "done")]
        kit.equal("ended", "resume_run ends it", ends, ["job"], "should")
        peer.send({"id": "again", "type": "prompt", "message": "x", "run": "job"})
        end = peer.data("again").get("end") or {}
        kit.equal("code", "as interrupted", end.get("code"), "interrupted", "should")


DURABLE = (killed, held)
