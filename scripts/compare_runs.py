"""Run the same conversations through two builds of `zot rpc` and compare their frames.

    python scripts/compare_runs.py OLD NEW [--runs 200] [--seed 1]

OLD and NEW are commands that speak the wire (`.venv/bin/zot rpc`, say). Each run is a scenario made
from its number: prompts with tools, aborts, cut streams, slow readers, approvals, several agents, a
kill in the middle of a durable run. A fake model server answers both. Times, ids, ports and folders
are masked; every other byte has to be equal. The exit code is 1 if a run differs.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from zot.conformance.peer import DrivenServer, Frame, Unfinished, count_of
from zot.testing.fakeserver import FakeServer

SECONDS = 60.0
PROVIDERS = ("anthropic", "openai", "google", "deepseek")
CONTENT = (
    *("text:1", "text:7", "text:200", "think:3\ntext:2", "unicode", "surrogate", "big:50000"),
    *("empty", "refuse", "chop:3 text:5", "nousage text:2", "stop:length text:3", "pings text:4"),
    *(
        "read:a.txt",
        "tool:bash:printf hello",
        "tools:3",
        "badargs",
        "tool:nothing:x",
        "crlf text:2",
    ),
    *(
        "tool:bash:exit 3",
        "read:missing.txt\nthen\nread:a.txt\nthen\nsay:well",
        "rounds:3 read:a.txt",
    ),
)
FAULTS = ("status:500:1 text:2", "status:429:1 retry-after:0 text:2", "cut:0", "reset:0")
FATAL = ("status:400", "status:401", "html", "junk", "blank", "redirect:http://127.0.0.1:9/")
QUESTIONS = ("get_state", "get_messages", "get_models", "get_commands", "clear", "compact", "nope")
MASKS = (
    (re.compile(rb'"(time|created|updated|modified)":"[^"]*"'), rb'"\1":"TIME"'),
    (re.compile(rb'"(delay_ms|duration_ms|elapsed_ms|away_ms|seconds|pid)":[0-9.e-]+'), rb'"\1":0'),
    (re.compile(rb"127\.0\.0\.1:\d+"), rb"127.0.0.1:PORT"),
    (re.compile(rb"\d+(\.\d+)? ?(m?s|seconds)\b"), rb"SOME s"),
)
ID = re.compile(rb'"(?:id|session|run|call_id|request_id|parent)":"([^"]+)"')


class Scenario:
    """One conversation with one build; what it wrote, masked."""

    def __init__(self, command: str, number: int, seed: int) -> None:
        self.command = shlex.split(command)
        self.random = random.Random(f"{seed} {number}")
        self.lines: list[bytes] = []
        self.sent = 0

    def run(self) -> None:
        name, play = KINDS[self.random.randrange(len(KINDS))]
        self.name = name
        with tempfile.TemporaryDirectory() as folder, FakeServer() as server:
            self.folder, self.server = Path(folder), server
            self.cwd = self.folder / "work"
            self.cwd.mkdir()
            (self.cwd / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
            play(self)

    def start(self, *flags: str, provider: str = "") -> DrivenServer:
        provider = provider or self.random.choice(PROVIDERS)
        home = str(self.folder / "home")
        env = {"PATH": os.environ["PATH"], "HOME": home, "ZOT_HOME": home}
        words = (
            "--provider",
            provider,
            "--api-key",
            "key-of-a-test",
            "--base-url",
            self.server.url,
        )
        return DrivenServer([*self.command, *words, *flags], str(self.cwd), env, SECONDS)

    def send(self, peer: DrivenServer, type: str, **fields: object) -> str:
        self.sent += 1
        peer.send({"id": f"c{self.sent}", "type": type, **fields})
        return f"c{self.sent}"

    def prompt(self, peer: DrivenServer, text: str, **fields: object) -> None:
        done = count_of(peer.frames, "done")
        self.send(peer, "prompt", message=text, **fields)
        peer.wait("done", lambda frames: count_of(frames, "done") > done)

    def end(self, peer: DrivenServer) -> None:
        """Close its input, and keep what it wrote."""
        peer.end_input()
        peer.drained()
        self.lines += [*peer.lines, b"exit code %d" % peer.exit_code()]
        peer.close()

    def masked(self) -> list[str]:
        ids: dict[bytes, bytes] = {}
        found = []
        for line in sorted(self.lines, key=stream_of):
            line = line.replace(os.fsencode(self.folder), b"FOLDER")
            for mask, text in MASKS:
                line = mask.sub(text, line)
            for id in ID.findall(line):
                if not re.fullmatch(rb"c\d+", id):
                    ids.setdefault(id, b"ID-%d" % len(ids))
            for id, text in ids.items():
                line = line.replace(b'"%s"' % id, b'"%s"' % text)
            found.append(line.decode("utf-8", "replace").rstrip("\n"))
        return found


def stream_of(line: bytes) -> tuple[str, bool]:
    """The order is fixed within these: the events of an agent, and the answers to its commands."""
    frame = json.loads(line) if line.startswith(b"{") else {}
    return str(frame.get("agent", "")), frame.get("type") == "response"


# --- kinds of scenarios ----------------------------------------------------------------------


def is_in(kind: str, **fields: object) -> Callable[[list[Frame]], bool]:
    def holds(frames: list[Frame]) -> bool:
        wanted = {"type": kind, **fields}.items()
        return any(wanted <= frame.items() for frame in frames if frame.get("type") == kind)

    return holds


def talk(scenario: Scenario) -> None:
    peer = scenario.start()
    if scenario.random.random() < 0.5:
        features = scenario.random.sample(("codes", "queue", "seq", "thinking", "tools"), 2)
        peer.response(scenario.send(peer, "hello", features=features))
    ends = 0
    for _ in range(scenario.random.randint(1, 4)):
        scenario.prompt(peer, scenario.random.choice(CONTENT))
        question = scenario.random.choice(QUESTIONS)
        answer = peer.response(scenario.send(peer, question))
        ends += 2 if question == "compact" and answer["success"] else 1
        peer.events_until_done(ends)
    scenario.end(peer)


def fault(scenario: Scenario) -> None:
    peer = scenario.start()
    scenario.prompt(peer, scenario.random.choice(FAULTS + FATAL))
    scenario.prompt(peer, "say:still here")
    scenario.end(peer)


def abort(scenario: Scenario) -> None:
    peer = scenario.start()
    peer.response(scenario.send(peer, "hello", features=["tools"]))
    shape = scenario.random.choice(("before", "stream", "tool"))
    if shape == "stream":
        scenario.send(peer, "prompt", message="text:5 hang:3")
        peer.wait("deltas", lambda frames: count_of(frames, "text_delta") == 3)
    elif shape == "tool":
        scenario.send(peer, "prompt", message="tool:bash:sleep 30")
        peer.wait("tool_start", is_in("tool_start"))
    else:
        scenario.send(peer, "prompt", message="hang")
        peer.wait("turn_start", is_in("turn_start"))
    peer.response(scenario.send(peer, "abort"))
    peer.wait("done", is_in("done"))
    scenario.prompt(peer, "say:go on")
    scenario.end(peer)


def slow_reader(scenario: Scenario) -> None:
    peer = scenario.start()
    with peer.not_reading():
        scenario.send(peer, "prompt", message=f"text:{scenario.random.randint(2000, 20000)}")
        scenario.send(peer, "ping")
        time.sleep(0.3)
    peer.wait("done", is_in("done"))
    scenario.end(peer)


def approval(scenario: Scenario) -> None:
    peer = scenario.start()
    peer.response(scenario.send(peer, "hello", features=["approvals", "codes"]))
    scenario.send(peer, "prompt", message="tool:bash:printf asked\nthen\nsay:end")
    frames = peer.wait("a question", is_in("approval_request"))
    asked = next(frame for frame in frames if frame["type"] == "approval_request")
    decision = scenario.random.choice(("allow", "deny", "allow_session"))
    answer = scenario.send(peer, "approve", request_id=asked["request_id"], decision=decision)
    peer.response(answer)
    peer.wait("done", is_in("done"))
    scenario.end(peer)


def agents(scenario: Scenario) -> None:
    peer = scenario.start()
    peer.response(scenario.send(peer, "hello", features=["agents"]))
    names = [f"agent{number}" for number in range(scenario.random.randint(2, 4))]
    for name in names:
        peer.response(scenario.send(peer, "open_agent", agent=name))
    for name in names:
        scenario.send(peer, "prompt", agent=name, message=scenario.random.choice(CONTENT))
    peer.wait("all done", lambda frames: count_of(frames, "done") == len(names))
    scenario.end(peer)


def killed(scenario: Scenario) -> None:
    flags = ("--durable", "--session", str(scenario.folder / "s.jsonl"))
    peer = scenario.start(*flags, provider="anthropic")
    peer.response(scenario.send(peer, "hello", features=["tools", "durable"]))
    command = "printf x >> done.txt; sleep 30"
    scenario.send(peer, "prompt", message=f"tool:bash:{command}\nthen\nsay:end", run="r1")
    peer.wait("tool_start", is_in("tool_start"))
    peer.signal(signal.SIGKILL)
    peer.drained()
    scenario.lines += peer.lines
    peer.close()
    peer = scenario.start(*flags, provider="anthropic")
    peer.response(scenario.send(peer, "hello", features=["tools", "durable"]))
    peer.wait("done", lambda frames: is_in("done")(frames) or is_in("run_held")(frames))
    scenario.end(peer)


KINDS = (
    *(("talk", talk), ("talk", talk), ("fault", fault), ("abort", abort), ("approval", approval)),
    *(("slow reader", slow_reader), ("agents", agents), ("killed", killed)),
)


def played(command: str, number: int, seed: int) -> tuple[str, list[str]]:
    scenario = Scenario(command, number, seed)
    try:
        scenario.run()
    except Unfinished as error:
        scenario.lines.append(f"unfinished: {error}".encode())
    return scenario.name, scenario.masked()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    different = lines = 0
    for number in range(options.runs):
        name, old = played(options.old, number, options.seed)
        _, new = played(options.new, number, options.seed)
        lines += len(old)
        if old != new or not old:
            different += 1
            print(f"run {number} ({name}) differs:")
            for line in list(difflib.unified_diff(old, new, "old", "new", lineterm="", n=1))[:30]:
                print(f"  {line[:400]}")
    print(f"{options.runs} runs, {lines} lines, {different} runs differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
