"""Many agents in one `zot rpc`: python bench/agents.py [--write]

What one agent costs, how evenly 100 of them stream, and whether 300 that come and go leave
anything. Each round is measured beside a bare one in the same minute: as many threads that sleep
and write as many lines into the same kind of pipe, which is the best that this machine can do then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

AGENTS = 100
DELTAS = 100
PAUSE_MS = 20
IDEAL = DELTAS * PAUSE_MS / 1000
COME_AND_GO = 300
BARE = f"""
import os, sys, threading, time
def work(name):
    for _ in range({DELTAS}):
        time.sleep({PAUSE_MS / 1000})
        os.write(1, b'{{"type":"text_delta","delta":"word ","agent":"%d"}}\\n' % name)
    os.write(1, b'{{"type":"done","agent":"%d"}}\\n' % name)
sys.stdin.readline()
for name in range({AGENTS}):
    threading.Thread(target=work, args=(name,)).start()
"""


class Process:
    """A child that is written lines, and whose lines are read with the time they came."""

    def __init__(self, *command: str) -> None:
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._rest = b""
        self._lines: list[tuple[float, bytes]] = []

    def send(self, *commands: dict[str, Any]) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(b"".join(json.dumps(c).encode() + b"\n" for c in commands))
        self.child.stdin.flush()

    def lines(self) -> Iterator[tuple[float, bytes]]:
        assert self.child.stdout is not None
        while True:
            if not self._lines:
                data = os.read(self.child.stdout.fileno(), 1 << 20)
                now = time.monotonic()
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._lines = [(now, line) for line in reversed(whole)]
                if not data:
                    return
            else:
                yield self._lines.pop()

    def until(self, wanted: bytes, count: int) -> list[tuple[float, bytes]]:
        """All lines up to the one that holds this for the so-many-th time."""
        seen: list[tuple[float, bytes]] = []
        for at, line in self.lines():
            seen.append((at, line))
            count -= wanted in line
            if count <= 0:
                break
        return seen

    @property
    def private(self) -> int:
        """Bytes of memory that it shares with nobody."""
        text = Path(f"/proc/{self.child.pid}/smaps_rollup").read_text()
        rows = [line.split() for line in text.splitlines() if line.startswith("Private_")]
        return sum(int(row[1]) * 1024 for row in rows)

    def counts(self) -> tuple[int, int]:
        """Threads and descriptors."""
        folder = Path(f"/proc/{self.child.pid}")
        return len(list((folder / "task").iterdir())), len(list((folder / "fd").iterdir()))

    @property
    def cpu(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(60)


def zot(folder: Path, turn: dict[str, Any]) -> Process:
    script = folder / "script.json"
    script.write_text(json.dumps({"turns": [{**turn, "repeat": True}]}))
    words = ("-m", "zot", "rpc", "--provider", "scripted", "--script", str(script))
    process = Process(sys.executable, *words, "--no-ext", "--cwd", str(folder))
    process.send({"type": "hello", "features": ["agents"], "id": "h"})
    process.until(b'"id":"h"', 1)
    return process


def open_agents(process: Process, count: int, **fields: Any) -> None:
    process.send(
        *({"type": "open_agent", "agent": str(n), "id": f"o{n}", **fields} for n in range(count))
    )
    process.until(b'"command":"open_agent"', count)


# --- how evenly they stream ------------------------------------------------------------------


def streamed(process: Process, begin: Callable[[], None]) -> dict[str, float]:
    """Wall time, and the pauses between two deltas of one agent."""
    before, started = process.cpu, time.monotonic()
    begin()
    last: dict[bytes, float] = {}
    gaps: list[float] = []
    for at, line in process.until(b'"type":"done"', AGENTS):
        if b'"text_delta"' not in line:
            continue
        agent = line.rpartition(b'"agent":"')[2]
        if agent in last:
            gaps.append(at - last[agent])
        last[agent] = at
    wall, cpu = time.monotonic() - started, process.cpu - before
    gaps.sort()
    return {
        "wall": wall,
        "p50": gaps[len(gaps) // 2] * 1000,
        "p99": gaps[int(len(gaps) * 0.99)] * 1000,
        "cpu": cpu / (AGENTS * DELTAS) * 1e6,
    }


def stream_zot(folder: Path) -> dict[str, float]:
    process = zot(folder, {"text": ["word "] * DELTAS, "delay_ms": PAUSE_MS})
    open_agents(process, AGENTS)
    prompts = [{"type": "prompt", "message": "go", "agent": str(n)} for n in range(AGENTS)]
    seen = streamed(process, lambda: process.send(*prompts))
    process.end()
    return seen


def stream_bare() -> dict[str, float]:
    process = Process(sys.executable, "-c", BARE)
    seen = streamed(process, lambda: process.send({}))
    process.end()
    return seen


# --- what they cost and leave ------------------------------------------------------------------


def cost(folder: Path) -> dict[str, float]:
    process = zot(folder, {"text": "word"})
    open_agents(process, 10)  # what the first ones load is not theirs
    process.send(*({"type": "prompt", "message": "go", "agent": str(n)} for n in range(10)))
    process.until(b'"type":"done"', 10)
    start, began = process.private, process.cpu
    names = [f"more {n}" for n in range(AGENTS)]
    process.send(*({"type": "open_agent", "agent": name} for name in names))
    process.until(b'"command":"open_agent"', AGENTS)
    opened, built = process.private, process.cpu
    process.send(*({"type": "prompt", "message": "go", "agent": name} for name in names))
    process.until(b'"type":"done"', AGENTS)
    used = process.private
    process.end()
    return {
        "open_kb": (opened - start) / AGENTS / 1024,
        "used_kb": (used - start) / AGENTS / 1024,
        "open_ms": (built - began) / AGENTS * 1000,
    }


def come_and_go(folder: Path) -> list[tuple[int, int, float]]:
    """Threads, descriptors and megabytes after each round of 300."""
    process = zot(folder, {"text": "word"})
    seen = []
    for _ in range(4):
        names = [str(n) for n in range(COME_AND_GO)]
        for name in names:
            process.send(
                {"type": "open_agent", "agent": name, "session": str(folder / f"{name}.jsonl")},
                {"type": "prompt", "message": "go", "agent": name},
            )
        process.until(b'"type":"done"', COME_AND_GO)
        for at in range(0, COME_AND_GO, 50):
            process.send(*({"type": "close_agent", "agent": n} for n in names[at : at + 50]))
            process.until(b'"command":"close_agent"', 50)
        process.send({"type": "list_agents"})
        (_, listed), *_ = process.until(b'"list_agents"', 1)[-1:]
        assert json.loads(listed)["data"]["agents"] == []
        time.sleep(0.5)  # the last threads are ending
        seen.append((*process.counts(), process.private / 1e6))
        for name in names:
            (folder / f"{name}.jsonl").unlink()
    process.end()
    return seen


def middle(rows: list[dict[str, float]], name: str) -> float:
    return sorted(row[name] for row in rows)[len(rows) // 2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="bench/agents.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, bare = [], []
        for _ in range(options.rounds):
            bare.append(stream_bare())
            ours.append(stream_zot(folder))
        one, rounds = cost(folder), come_and_go(folder)
    text = report(ours, bare, one, rounds)
    print(text)
    if options.write:
        Path(__file__).with_suffix(".md").write_text(text)


def report(
    ours: list[dict[str, float]],
    bare: list[dict[str, float]],
    one: dict[str, float],
    rounds: list[tuple[int, int, float]],
) -> str:
    load = os.getloadavg()[0]
    rows = [
        f"| {what} | {middle(ours, key):.{digits}f} {unit} | {middle(bare, key):.{digits}f} {unit}"
        f" | {best(ours):.{digits}f} {unit} | {goal} |"
        for what, key, unit, digits, goal in (
            (f"wall (ideal {IDEAL:g} s)", "wall", "s", 2, f"{IDEAL * 1.15:.2f} s"),
            ("pause between two deltas, p50", "p50", "ms", 1, ""),
            ("pause, p99", "p99", "ms", 1, "30 ms"),
            ("CPU of a delta", "cpu", "µs", 0, ""),
        )
        for best in (lambda rows, key=key: min(row[key] for row in rows),)
    ]
    threads, descriptors, memory = rounds[-1]
    return "\n".join(
        [
            "# Many agents in one process",
            "",
            "Written by `python bench/agents.py --write`. Bare Python: as many threads that sleep"
            " and write into a pipe, in turn",
            f"with ours; {os.cpu_count()} cores, load {load:.0f} (most of it other work), both run"
            f" with `nice {os.nice(0)}`.",
            "",
            f"{AGENTS} agents, {DELTAS} deltas each, {PAUSE_MS} ms apart, all at once"
            f" ({len(ours)} rounds):",
            "",
            "| | zot, median | bare Python, median | zot, best | goal |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            f"One more agent: {one['open_kb']:.0f} KB and {one['open_ms']:.2f} ms of CPU; after a"
            f" prompt {one['used_kb']:.0f} KB (goal: 100).",
            "",
            f"{COME_AND_GO} agents opened with a session file, prompted and closed, four times:"
            " threads, descriptors, private memory",
            "after each round: "
            + "; ".join(f"{a}, {b}, {c:.1f} MB" for a, b, c in rounds)
            + ". The first round is what the program grows to; after it nothing is left.",
            "",
        ]
    ).replace("  ", " ")


if __name__ == "__main__":
    main()
