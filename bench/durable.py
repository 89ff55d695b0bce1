"""Kills durable runs with SIGKILL at random moments, again and again, and looks whether anything
is lost or done twice: python bench/durable.py --kills 1000.

Each run has steps with every replay policy: bash, and four tools of an extension that append a
line to a file. A driver starts `zot rpc --durable`, kills it after a random time, starts it again,
and lets it finish at last. Then the file, the transcript, the journal, the event log and what the
driver heard are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from zot.core.session import Session
from zot.provider.types import ToolResult
from zot.sessions.files import load
from zot.testing.fakeserver import FakeServer
from zot.wire.eventlog import read_events

EXTENSION = """
import json, random, time
from pathlib import Path
from zot.ext import Call, Extension

ext = Extension("storm", "1.0")
FILE = Path(__file__).parent.parent / "work" / "effects"

def done(key):
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return any(json.loads(line)["key"] == key for line in lines)

def effect(name, n, call):
    time.sleep(random.random() * 0.05)
    with FILE.open("a") as file:
        file.write(json.dumps({"tool": name, "n": n, "key": call.key}) + "\\n")
    time.sleep(random.random() * 0.05)
    return f"{name} {n} happened"

@ext.tool
def never(n: int, call: Call) -> str:
    "Does it, whatever was before."
    return effect("never", n, call)

@ext.tool(replay="safe")
def safe(n: int, call: Call) -> str:
    "May be done as often as one likes."
    return effect("safe", n, call)

@ext.tool(replay="idempotent")
def idempotent(n: int, call: Call) -> str:
    "Does it once for each key."
    return "already there" if done(call.key) else effect("idempotent", n, call)

@ext.tool(reconcile=lambda args, key: "it happened" if done(key) else False)
def reconcile(n: int, call: Call) -> str:
    "Can say what became of it."
    return effect("reconcile", n, call)

ext.run()
"""
POLICIES = ("bash", "never", "safe", "idempotent", "reconcile")
STEPS = 2
"""Of each policy, in one run."""
PATIENCE = 120.0


class Broken(Exception):
    """Something that was promised is not so."""


class StormRun:
    """One run of the agent, from its prompt to its end, through several processes."""

    def __init__(self, folder: Path, server: FakeServer, kills: int, seed: int) -> None:
        self.folder = folder
        self.kills = kills
        self.random = random.Random(seed)
        self.session = folder / "s.jsonl"
        self.work = folder / "work"
        self.work.mkdir()
        (folder / "ext").mkdir()
        (folder / "ext" / "extension.json").write_text(
            json.dumps(
                {"name": "storm", "version": "1.0", "exec": sys.executable, "args": ["e.py"]}
            )
        )
        (folder / "ext" / "e.py").write_text(EXTENSION)
        self.command = [sys.executable, "-m", "zot", "rpc", "--provider", "anthropic"]
        self.command += ["--base-url", server.url, "--session", str(self.session), "--durable"]
        self.command += ["--ext", str(folder / "ext"), "--yolo"]
        self.steps = [(policy, n) for n in range(STEPS) for policy in POLICIES]
        self.random.shuffle(self.steps)
        self.heard: list[dict[str, Any]] = []
        self.starts = self.held = 0

    def prompt(self) -> str:
        lines = []
        for policy, n in self.steps:
            args: dict[str, Any] = {"n": n}
            if policy == "bash":
                line = json.dumps({"tool": "bash", "n": n, "key": ""})
                pause = self.random.random() * 0.1
                args = {
                    "command": f"sleep {pause:.3f}; echo '{line}' >> effects; sleep {pause:.3f}"
                }
            lines.append(f"tool:{policy}:{json.dumps(args)}")
        return "\nthen\n".join([*lines, "say:finished"])

    def drive(self) -> None:
        """Kill it as often as was wanted, then let it come to its end."""
        text = self.prompt()
        for _ in range(self.kills):
            if self._live(text, self.random.random() * 0.6):
                break
        else:
            if not self._live(text, None):
                raise Broken("it did not come to its end")

    def _live(self, text: str, seconds: float | None) -> bool:
        """One process; whether the run has ended in it, or before."""
        self.starts += 1
        environ = {**os.environ, "ZOT_HOME": str(self.folder / "home"), "ANTHROPIC_API_KEY": "k"}
        errors = (self.folder / "stderr").open("ab")
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=self.work,
            env=environ,
        )
        errors.close()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(PATIENCE if seconds is None else seconds, process.kill)
        try:
            self._say(process, type="hello", features=["seq", "codes"])
            if self.random.random() < 0.8:  # the others may be killed while they start
                process.stdout.readline()
            timer.start()
            self._say(process, type="prompt", id="p", message=text, run="storm")
            for line in process.stdout:
                if not line.endswith(b"\n"):
                    break
                if self._hear(process, json.loads(line)):
                    return True
            return False
        except BrokenPipeError:
            return False
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass

    def _say(self, process: subprocess.Popen[bytes], **command: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(command).encode() + b"\n")
        process.stdin.flush()

    def _hear(self, process: subprocess.Popen[bytes], frame: dict[str, Any]) -> bool:
        if frame["type"] != "response":
            self.heard.append(frame)
        if frame["type"] == "run_held":
            self.held += 1
            self._say(process, type="resume_run", run="storm")
        if frame["type"] == "response" and not frame["success"] and frame.get("code") != "held":
            raise Broken(f"refused: {frame}")
        already = (frame.get("data") or {}).get("already_done", False)
        return bool(already) or frame["type"] == "done"

    # --- what must be true -------------------------------------------------------------------

    def check(self) -> Counter[str]:
        loaded = load(str(self.session))
        session = Session(entries=loaded.entries.values())
        self._check_ends()
        self._check_heard()
        results = {
            block.call_id: block
            for message in session.messages()
            for block in message.content
            if isinstance(block, ToolResult)
        }
        said = [result.content[0].text for result in results.values()]  # type: ignore[union-attr]
        if len(said) != len(self.steps):
            raise Broken(f"{len(said)} results for {len(self.steps)} calls")
        return self._check_effects(said)

    def _check_ends(self) -> None:
        lines = [json.loads(line) for line in self.session.read_text().splitlines()]
        rows = [line["data"] for line in lines if line.get("kind") == "journal"]
        ends = [row for row in rows if row["type"] == "run_ended"]
        if len(ends) != 1 or ends[0]["stop"] != "end":
            raise Broken(f"it ended {len(ends)} times: {ends}")

    def _check_heard(self) -> None:
        kept = {}
        after, more = 0, True
        while more:
            page = read_events(str(self.session), after)
            after, more = page.last, page.more
            kept.update({frame["seq"]: frame for frame in map(json.loads, page.lines)})
        for frame in self.heard:
            if kept.get(frame["seq"], {}).get("type") != frame["type"]:
                raise Broken(f"heard and not kept: {frame}")
        ends = [frame for frame in kept.values() if frame["type"] == "done"]
        if len(ends) != 1:
            raise Broken(f"{len(ends)} frames say that it is done")

    def _check_effects(self, said: list[str]) -> Counter[str]:
        file = self.work / "effects"
        lines = (
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        )
        happened = Counter((line["tool"], line["n"]) for line in lines)
        counts: Counter[str] = Counter()
        for (policy, n), text in zip(self.steps, said, strict=True):
            times, told = happened[policy, n], "may have taken effect" in text
            counts[f"{policy}: {'told' if told else 'once' if times == 1 else times}"] += 1
            most = 99 if policy == "safe" else 1
            if times > most:
                raise Broken(f"{policy} {n} happened {times} times")
            if times == 0 and not told:
                raise Broken(f"{policy} {n} did not happen, and the model was not told: {text!r}")
            if told and policy not in ("bash", "never"):
                raise Broken(f"{policy} {n} is uncertain: {text!r}")
        return counts


def storm(folder: Path, kills: int, workers: int, seed: int, each: int = 8) -> Counter[str]:
    """So many kills over as many runs as that takes; raises Broken."""
    totals: Counter[str] = Counter()
    lock = threading.Lock()
    with FakeServer() as server, ThreadPoolExecutor(workers) as pool:

        def one_run(number: int) -> None:
            with lock:
                if totals["starts"] - totals["runs"] >= kills:
                    return
            place = folder / f"run-{number}"
            place.mkdir()
            run = StormRun(place, server, each, seed * 1_000_003 + number)
            try:
                run.drive()
                counts = run.check()
            except Broken as error:
                raise Broken(f"{error}; see {place}") from error
            with lock:
                totals.update(counts)
                totals.update(runs=1, starts=run.starts, held=run.held, frames=len(run.heard))
                done = totals["starts"] - totals["runs"]
                print(f"{done} kills in {totals['runs']} runs: all held", file=sys.stderr)

        list(pool.map(one_run, range(kills)))
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="zot-storm-"))
    totals = storm(folder, options.kills, options.workers, options.seed)
    print(f"{totals.pop('runs')} runs, {totals.pop('starts')} processes,", end=" ")
    print(f"{totals.pop('frames')} frames heard, held {totals.pop('held', 0)} times,", end=" ")
    print(f"{time.monotonic() - started:.0f} s; nothing lost, nothing twice")
    for name, count in sorted(totals.items()):
        print(f"  {name} {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
