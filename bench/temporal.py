"""A real Temporal server, workers, many tasks, and a worker that is killed with all its agents.

    .venv/bin/python bench/temporal.py [--tasks 100] [--workers 3] [--slots 8] [--kills 1] [--write]

Every task has to end, and every step of its work may have happened at most once, whatever was
killed. Exit code 1 if something does not hold. `--write` puts the figures into bench/temporal.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from swarm.cluster import Cluster, below  # noqa: E402
from swarm.support import bash, says  # noqa: E402

from zot.testing.fakeserver import FakeServer  # noqa: E402

STEPS = 5
ENDED = ("done", "failed", "cancelled", "lost")
LEASE = 6.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, FakeServer() as server:
        database = str(Path(folder) / "temporal.db")
        cluster = Cluster(Path(folder), server, lease=LEASE, database=database)
        try:
            bench = Bench(cluster, arguments)
            code = bench.run()
            bench.alone()
        finally:
            cluster.close()
    text = "\n".join(bench.said)
    print(text)
    if arguments.write:
        (ROOT / "bench" / "temporal.md").write_text(HEAD + text + "\n")
    return code


HEAD = """# The swarm on Temporal

Written by `bench/temporal.py --write`: a real server (its database a file), workers and agents as
processes of one machine, a scripted model. Each task is five `bash` steps of 0.3 s and an answer.
The killed worker dies by SIGKILL together with everything below it. Other work ran on the machine:
trust counts and CPU seconds more than wall times.

"""


class Bench:
    def __init__(self, cluster: Cluster, arguments: argparse.Namespace) -> None:
        self.cluster = cluster
        self.place = cluster.place
        self.arguments = arguments
        self.steps = cluster.folder / "steps"
        self.steps.touch()
        self.said: list[str] = []
        self.killed_at: list[float] = []
        self.taken_from: set[str] = set()
        self.peak: Counter[str] = Counter()
        self.ids: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(f"- {text}")
        print(text, flush=True)

    def submit(self, name: str, steps: int) -> str:
        turns = [
            bash(f"echo {name}.{step} >> {self.steps}; echo x >> work; sleep 0.3")
            for step in range(steps)
        ]
        return self.cluster.submit(f"task {name}", *turns, says("Done."))

    def run(self) -> int:
        arguments = self.arguments
        for number in range(arguments.workers):
            self.cluster.worker(f"worker-{number}", slots=arguments.slots)
        self.idle = {name: resident(self.pid(name)) for name in self.cluster.processes}
        began = time.monotonic()
        self.ids = [self.submit(str(number), STEPS) for number in range(arguments.tasks)]
        self.say(
            f"{arguments.tasks} tasks for {arguments.workers} workers of {arguments.slots} slots: "
            f"taken in {time.monotonic() - began:.1f} s"
        )
        self.watch()
        wall = time.monotonic() - began
        self.say(f"all ended after {wall:.0f} s; Python {platform.python_version()}")
        return self.check()

    def watch(self) -> None:
        while True:
            summaries = {s.id: s for s in self.place.swarm.agents() if s.id in self.ids}
            ended = sum(summary.stage in ENDED for summary in summaries.values())
            if ended == len(self.ids):
                return
            for name in self.cluster.processes:
                self.peak[name] = max(self.peak[name], resident(self.pid(name)))
            done = len(self.killed_at)
            name = f"worker-{done}"
            is_time = done < self.arguments.kills and ended >= len(self.ids) * (done + 1) / 5
            if is_time and len(below(self.pid(name))) >= self.arguments.slots:
                self.kill(name)
            time.sleep(0.5)

    def kill(self, name: str) -> None:
        folder = self.cluster.folder / name
        ids = {path.name.rpartition(".")[0] for path in folder.iterdir() if path.is_dir()}
        self.taken_from |= ids & set(self.ids)
        agents = len(below(self.pid(name)))
        self.cluster.kill(name)
        self.killed_at.append(time.time())
        self.say(
            f"{name} killed with {agents} processes below it, {len(ids & set(self.ids))} tasks"
        )

    def pid(self, name: str) -> int:
        pid: int = self.cluster.processes[name].pid
        return pid

    def check(self) -> int:
        rows = {id: [row for _, row in self.place.swarm.events(id)] for id in self.ids}
        stages = Counter(s.stage for s in self.place.swarm.agents() if s.id in rows)
        steps = Counter(self.steps.read_text().split())
        twice = [step for step, count in steps.items() if count > 1]
        told = sum(
            "may have taken effect" in json.dumps(row.frame) for r in rows.values() for row in r
        )
        ends = Counter(
            sum(row.frame["type"] == "swarm_run_over" for row in r) for r in rows.values()
        )
        claims = {
            id: [row for row in r if row.frame["type"] == "swarm_claimed"] for id, r in rows.items()
        }
        again = {id: claimed for id, claimed in claims.items() if len(claimed) > 1}
        for summary in self.place.swarm.agents():
            if summary.id in rows and summary.stage != "done":
                self.say(f"  {summary.id}: {summary.stage}: {summary.doing}")
        self.say(
            f"ended: {dict(stages)}; ends of a task: {dict(ends)}; "
            f"lost: {len(self.ids) - sum(stages.values())}"
        )
        self.say(
            f"attempts: {sum(map(len, claims.values()))}; tasks that went on elsewhere: "
            f"{len(again)}; runs that went on in the middle: "
            f"{sum(row.frame['type'] == 'run_resumed' for r in rows.values() for row in r)}"
        )
        self.say(
            f"steps: {len(steps)} of {len(self.ids) * STEPS} happened; twice: {len(twice)}; "
            f"told to the model as uncertain: {told}"
        )
        delays = sorted(
            claimed[1].at - self.killed_at[0]
            for id, claimed in again.items()
            if id in self.taken_from and self.killed_at
        )
        if delays:
            self.say(
                f"from the kill to the next attempt: {delays[0]:.1f} to {delays[-1]:.1f} s, half "
                f"of them within {statistics.median(delays):.1f} s (lease {LEASE:.0f} s)"
            )
        self.costs()
        for name in self.cluster.processes:
            for line in self.cluster.said(name).splitlines()[-20:]:
                print(f"{name}: {line}")
        good = stages == {"done": len(self.ids)} and not twice and ends == {1: len(self.ids)}
        return 0 if good else 1

    def costs(self) -> None:
        supervisor = self.place.supervisor()
        count = len(self.ids)
        server = self.pid("server")
        self.say(
            f"Temporal's server: {cpu(server) / count * 1000:.0f} ms of CPU a task, "
            f"{self.idle['server'] / 1e6:.0f} MB idle, {self.peak['server'] / 1e6:.0f} MB at most, "
            f"{(self.cluster.folder / 'temporal.db').stat().st_size / 1e6:.1f} MB on the disk"
        )
        workers = [name for name in self.cluster.processes if name != "server"]
        spent = sum(cpu(self.pid(name)) for name in workers)
        own = sum(len(self.done_by(name)) for name in workers)
        self.say(
            f"a worker: {spent / max(own, 1) * 1000:.0f} ms of CPU a task (git and agents not "
            f"counted), {max(self.idle[name] for name in workers) / 1e6:.0f} MB idle, "
            f"{max(self.peak[name] for name in workers) / 1e6:.0f} MB at most"
        )
        self.say(
            f"the supervisor with the hub: {cpu(supervisor) / count * 1000:.0f} ms of CPU a task "
            f"(git not counted), {resident(supervisor) / 1e6:.0f} MB at the end"
        )

    def done_by(self, name: str) -> set[str]:
        pid = self.pid(name)
        return {
            id
            for id in self.ids
            if f"-{pid}-" in self.place.rows(id, "swarm_claimed")[-1]["worker"]
        }

    def alone(self) -> None:
        """What the way to a worker costs, with nothing else to do: a task that only answers."""
        for engine in ("", "temporal"):
            took = []
            for number in range(7):
                began = time.monotonic()
                id = self.place.submit(f"alone {number}", says("Done."), engine=engine)
                self.place.wait(id)
                took.append(time.monotonic() - began)
            name = "Temporal" if engine else "the local engine"
            self.say(f"one task that only answers, by {name}: {statistics.median(took):.2f} s")


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def cpu(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
