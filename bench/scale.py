"""How many agents one machine carries, and which part gives way first.

    .venv/bin/python bench/scale.py [--light 1000] [--processes 200] [--write]

Scripted models. Light agents are named agents of one `zot rpc`; processes are agents of the local
swarm, each with a worktree, a log and a process. Then each part alone: logs, git, the list, the
page, the hub. `--write` puts the figures into bench/scale.md; docs/scale.md reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from agents import Process, zot  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from swarm.cluster import below, free_port  # noqa: E402
from swarm.support import Place  # noqa: E402
from temporal import cpu, resident  # noqa: E402

from zot.glasspane.board import Board  # noqa: E402
from zot.swarm.log import AgentFolder, LogWriter, read_log  # noqa: E402
from zot.swarm.runner import AgentRunner  # noqa: E402
from zot.swarm.task import SwarmTask  # noqa: E402
from zot.swarm.temporal.config import TemporalConfig, WorkerPlace  # noqa: E402
from zot.swarm.temporal.hub import (  # noqa: E402
    Hub,
    HubAddress,
    HubClient,
)
from zot.swarm.temporal.remote import RemoteAgent  # noqa: E402
from zot.swarm.temporal.work import CarriedWork  # noqa: E402
from zot.swarm.worktrees import Worktrees  # noqa: E402
from zot.testing.fakeserver import FakeServer  # noqa: E402

DELTAS = 50
PAUSE_MS = 200
START_SECONDS = 420.0
LOOK_SECONDS = 15.0
"""Five deltas a second: what a person can read along, and what providers send on average."""
FRAME = b'{"type":"text_delta","delta":"some words of an answer ","seq":%d}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--light", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in sorted({arguments.light // 10, arguments.light // 3, arguments.light}):
            for part in light(folder, count):
                say(part)
        for part in parts(folder):
            say(part)
        for part in processes(folder, arguments.processes):
            say(part)
    if arguments.write:
        load = os.getloadavg()[0]
        head = (
            "# Many agents on one machine\n\nWritten by `bench/scale.py --write`; "
            f"{os.cpu_count()} cores, load {load:.0f} (most of it other work): trust CPU, counts "
            "and memory more than wall times. What they mean: [docs/scale.md](../docs/scale.md)."
            "\n\n"
        )
        Path(__file__).with_suffix(".md").write_text(
            head + "\n".join(f"- {t}" for t in lines) + "\n"
        )
    return 0


# --- light agents -----------------------------------------------------------------------------


def light(folder: Path, count: int) -> Iterator[str]:
    """Named agents of one process, each with a session file, all streaming at once."""
    process = zot(folder, {"text": ["word "] * DELTAS, "delay_ms": PAUSE_MS})
    before = process.private
    began = process.cpu
    for at in range(0, count, 100):
        names = range(at, min(at + 100, count))
        process.send(
            *(
                {
                    "type": "open_agent",
                    "agent": str(n),
                    "session": str(folder / f"{count}-{n}.jsonl"),
                }
                for n in names
            )
        )
        process.until(b'"command":"open_agent"', len(names))
    opened = process.cpu - began
    gaps, wall, spent, most = stream(process, count)
    yield (
        f"{count} light agents in one process: {opened / count * 1000:.1f} ms of CPU to open one, "
        f"{(most[2] - before) / count / 1024:.0f} KB each while they stream, {most[0]} threads, "
        f"{most[1]} descriptors; {DELTAS} deltas each, {PAUSE_MS} ms apart: {wall:.1f} s (ideal "
        f"{DELTAS * PAUSE_MS / 1000:.0f}), {spent / count / DELTAS * 1e6:.0f} µs of CPU a delta, "
        f"pause p50 {percentile(gaps, 50):.0f} ms, p99 {percentile(gaps, 99):.0f} ms"
    )
    process.end()


def stream(process: Process, count: int) -> tuple[list[float], float, float, tuple[int, int, int]]:
    began, used = time.monotonic(), process.cpu
    for at in range(0, count, 50):  # a client that sends them in one go would only measure itself
        names = range(at, min(at + 50, count))
        process.send(*({"type": "prompt", "message": "go", "agent": str(n)} for n in names))
    last: dict[bytes, float] = {}
    gaps: list[float] = []
    most = (0, 0, 0)
    left = count
    for at_time, line in process.lines():
        if b'"text_delta"' in line:
            agent = line.rpartition(b'"agent":"')[2]
            if agent in last:
                gaps.append((at_time - last[agent]) * 1000)
            last[agent] = at_time
            if len(gaps) % (count * DELTAS // 8 + 1) == 0:
                most = max(most, (*process.counts(), process.private))
        elif b'"type":"done"' in line:
            left -= 1
            if not left:
                break
    return gaps, time.monotonic() - began, process.cpu - used, most


def percentile(values: list[float], part: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * part // 100)]


# --- processes --------------------------------------------------------------------------------


def processes(folder: Path, count: int) -> Iterator[str]:
    """Agents of the local swarm, as many at once as there are slots."""
    home = folder / "swarm"
    home.mkdir()
    with FakeServer() as server:
        place = Place(home, server, ZOT_SWARM_SLOTS=str(count))
        script = home / "script.json"
        turn = {"text": ["word "] * 3000, "delay_ms": PAUSE_MS}
        script.write_text(json.dumps({"turns": [turn]}))
        words = ("--script", str(script), "--no-ext")
        began = time.monotonic()
        ids = [
            place.submit(f"task {number}", provider="scripted", words=words)
            for number in range(count)
        ]
        taken = time.monotonic() - began
        supervisor = place.supervisor()
        working = 0
        while working < count and time.monotonic() - began < START_SECONDS:
            time.sleep(2.0)
            working = sum(s.stage == "working" and s.turns > 0 for s in place.swarm.agents())
        started = time.monotonic() - began
        top = measured(supervisor)
        before, used = kept(home), cpu(supervisor)
        time.sleep(LOOK_SECONDS)
        frames, spent = kept(home) - before, cpu(supervisor) - used
        lost = sum(s.stage not in ("working", "done") for s in place.swarm.agents())
        place.swarm.stop()
    yield (
        f"{count} agents as processes, {count} slots: {len(ids)} taken in {taken:.1f} s, {working} "
        f"stream at once after {started:.0f} s, {lost} failed or lost"
    )
    yield (
        f"with {working} at work: {top['each']:.1f} MB private for an agent's process, "
        f"{top['children']:.0f} processes below the supervisor, which has "
        f"{top['resident']:.0f} MB and {top['descriptors']:.0f} descriptors; "
        f"{frames / LOOK_SECONDS:.0f} frames a second kept with "
        f"{spent / max(frames, 1) * 1e6:.0f} µs of its CPU each"
    )


def kept(home: Path) -> int:
    """Frames in all logs."""
    logs = (home / "h" / "swarm" / "agents").glob("*/events.jsonl")
    return sum(log.read_bytes().count(b"\n") for log in logs)


def measured(supervisor: int) -> dict[str, float]:
    children = below(supervisor)
    private = [bytes_private(pid) for pid in children]
    return {
        "each": statistics.median([size for size in private if size] or [0]) / 1e6,
        "children": len(children),
        "resident": resident(supervisor) / 1e6,
        "descriptors": descriptors(supervisor),
    }


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def bytes_private(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    rows = [line.split() for line in text.splitlines() if line.startswith("Private_")]
    return sum(int(row[1]) * 1024 for row in rows)


# --- each part alone --------------------------------------------------------------------------


def parts(folder: Path) -> Iterator[str]:
    yield logs(folder)
    yield from listing(folder)
    yield git(folder)
    yield asyncio.run(hub(folder))


def logs(folder: Path) -> str:
    count = 50_000
    path = folder / "log.jsonl"
    writer = LogWriter(path)
    began = time.process_time()
    for number in range(count):
        writer.frame(FRAME % number)
    written = time.process_time() - began
    writer.close()
    began = time.process_time()
    rows = sum(1 for _ in read_log(path))
    read = time.process_time() - began
    return (
        f"event log: {written / count * 1e6:.1f} µs of CPU to keep a frame, "
        f"{read / rows * 1e6:.1f} µs to read one, {path.stat().st_size / rows:.0f} bytes on disk"
    )


def listing(folder: Path) -> Iterator[str]:
    """A swarm of ended agents with logs of a usual length: what looking at them costs."""
    home = folder / "list"
    for count in (100, 1000):
        for number in range(count):
            fill(home / "swarm" / "agents" / f"agent-{number:04}", 500)
        began = time.process_time()
        runner = AgentRunner(home / "swarm", os.environ, 1)
        folded = time.process_time() - began
        board = Board(home, os.environ, ())
        began = time.process_time()
        board.refresh()
        first = time.process_time() - began
        began = time.process_time()
        for _ in range(10):
            board.refresh()
        again = (time.process_time() - began) / 10
        held = descriptors(os.getpid())
        asyncio.run(runner.stop())
        yield (
            f"{count} agents with 500 rows each: a supervisor that starts reads them in "
            f"{folded:.1f} s of CPU; the page in {first:.1f} s, then {again * 1000:.1f} ms each "
            f"time it looks (5 times a second); the supervisor holds {held} descriptors"
        )


def fill(path: Path, rows: int) -> None:
    folder = AgentFolder(path)
    if folder.log.exists():
        return
    path.mkdir(parents=True)
    task = SwarmTask(path.name, "Do it", "/", 1.0)
    (path / "task.json").write_bytes(
        json.dumps(
            {"id": path.name, "prompt": task.prompt, "directory": "/", "created": 1.0}
        ).encode()
    )
    lines = [b'{"seq":%d,"at":%d.0,"frame":%b}\n' % (n, n, FRAME % n) for n in range(1, rows)]
    end = f'{{"type":"swarm_run_over","run":"{path.name}-1","outcome":"answered"}}'.encode()
    lines.append(b'{"seq":%d,"at":9.0,"frame":%b}\n' % (rows, end))
    folder.log.write_bytes(b"".join(lines))


def git(folder: Path) -> str:
    """Trees of one repository with 500 files: the first ones, and when there are 100."""
    repository = folder / "repository"
    for number in range(500):
        path = repository / f"d{number % 50}" / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 50)
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(repository)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*run, *words], check=True)
    trees = Worktrees(os.environ)
    took = []
    for number in range(100):
        began = children_cpu()
        trees.make(str(repository), f"t{number}", folder / "trees" / str(number))
        took.append(children_cpu() - began)
    size = sum(
        f.stat().st_size for f in (folder / "trees" / "7" / "tree").rglob("*") if f.is_file()
    )
    return (
        f"git, a repository of 500 files: {statistics.median(took[:20]) * 1000:.0f} ms of CPU "
        f"for one of the first trees, {statistics.median(took[-20:]) * 1000:.0f} ms for one of the "
        f"last of 100; {size / 1e6:.1f} MB and 500 files each"
    )


def children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


async def checkpoints(folder: Path, client: HubClient, runner: AgentRunner) -> tuple[float, float]:
    """CPU of one, at the worker and at the hub: a file more each time."""
    tree = runner.agents["a"].agent.tree
    assert tree is not None
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(folder / "repository"), str(clone)], check=True)
    work = CarriedWork(replace(tree, path=str(clone)), tree.base, os.environ)
    there, here = [], []
    for number in range(10):
        (clone / f"new-{number}.txt").write_text("new\n")
        began = children_cpu()
        bundle = folder / "checkpoint.bundle"
        commit = work.checkpoint(bundle)
        packed = children_cpu()
        await client.post("tip", bundle, commit=commit, final=0)
        work.arrived(commit)
        there.append(packed - began)
        here.append(children_cpu() - packed)
    return statistics.median(there), statistics.median(here)


async def hub(folder: Path) -> str:
    """Workers' rows over HTTP: by batches of one agent that streams, and large ones."""
    home = folder / "hub"
    repository = str(folder / "repository")
    task = SwarmTask("a", "Do it", repository, 1.0, engine="temporal")
    AgentFolder(home / "agents" / "a").create(task)
    runner = AgentRunner(home, os.environ, 1)
    remote = RemoteAgent(runner, runner.agents["a"])
    config = TemporalConfig(hub_port=free_port())
    server = Hub(config, "token", lambda id: remote)
    await server.start()
    client = HubClient(HubAddress(WorkerPlace(folder, config.hub_url, "token")), "a", 1, "w")
    await client.post("claim")
    number, costs = 0, []
    for batch, requests in ((1, 2000), (100, 200)):
        began = time.process_time()
        for _ in range(requests):
            rows = []
            for _ in range(batch):
                number += 1
                rows.append(b'{"seq":%d,"at":1.0,"frame":%b}' % (number, FRAME % number))
            await client.post("rows", b"\n".join(rows))
        costs.append((time.process_time() - began) / requests)
    there, here = await checkpoints(folder, client, runner)
    client.close()
    await server.stop()
    await runner.stop()
    return (
        f"the hub (client and server in one process): {costs[0] * 1000:.2f} ms of CPU for a "
        f"request with one row, {costs[1] / 100 * 1e6:.0f} µs a row in requests of 100; "
        f"work that is brought over before a tool runs: "
        f"{there * 1000:.0f} ms of CPU of git at the worker, {here * 1000:.0f} ms at the hub"
    )


if __name__ == "__main__":
    sys.exit(main())
