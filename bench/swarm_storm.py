"""Many agents, few slots, and somebody who kills: agents and the supervisor, at random moments.

    .venv/bin/python bench/swarm_storm.py [--agents 50] [--slots 8] [--kills 40] [--seed 1]
    .venv/bin/python bench/swarm_storm.py --budget 100  # money for so many calls

Every agent has to end, every step of its work may have happened at most once, and no tree may be
gone. With a budget, the model server may have answered one call more than that is enough for, and
agents that had no money left fail. Exit code 1 if something does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from swarm.support import Place, bash, says  # noqa: E402

from zot.testing.fakeserver import FakeServer  # noqa: E402

STEPS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=int, default=0, metavar="CALLS")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, FakeServer() as server:
        place = Place(Path(folder), server, ZOT_SWARM_SLOTS=str(arguments.slots))
        storm = Storm(place, server, arguments.agents, random.Random(arguments.seed))
        if arguments.budget:
            storm.limit(arguments.budget)
        storm.begin()
        try:
            return storm.run(arguments.kills)
        finally:
            place.swarm.stop()


class Storm:
    def __init__(self, place: Place, server: FakeServer, agents: int, dice: random.Random) -> None:
        self.place = place
        self.server = server
        self.agents = agents
        self.dice = dice
        self.steps = place.scripts / "steps"
        self.steps.touch()
        self.killed: Counter[str] = Counter()
        self.ids: list[str] = []
        self.calls = 0
        """That the budget is enough for; 0: there is none."""

    def limit(self, calls: int) -> None:
        """Set a budget that is enough for so many calls, after one that shows what a call costs."""
        first = self.place.submit("price", says("Done."))
        price = self.place.wait(first).cost_usd
        self.calls = calls + len(self.server.requests)
        self.place.swarm.budget(max_usd=price * self.calls)
        print(f"a call costs ${price:.6f}; the budget is ${price * self.calls:.6f}")

    def begin(self) -> None:
        began = time.monotonic()
        self.ids = [self.submit(number) for number in range(self.agents)]
        print(f"{self.agents} tasks taken in {time.monotonic() - began:.1f} s")

    def submit(self, number: int) -> str:
        turns = [
            bash(f"echo {number}.{step} >> {self.steps}; echo x >> work; sleep 0.3")
            for step in range(STEPS)
        ]
        return self.place.submit(f"task {number}", *turns, says("Done."))

    def run(self, kills: int) -> int:
        began = time.monotonic()
        while True:
            summaries = self.place.swarm.agents()
            left = [s for s in summaries if s.stage not in ("done", "failed", "cancelled", "lost")]
            if not left:
                break
            if sum(self.killed.values()) < kills:
                self.kill([s.id for s in summaries if s.stage == "working"])
            time.sleep(self.dice.uniform(0.3, 1.8))
        print(f"over after {time.monotonic() - began:.1f} s; killed {dict(self.killed)}")
        return self.check()

    def kill(self, working: list[str]) -> None:
        if self.dice.random() < 0.2:
            pid = self.place.supervisor()
            what = "supervisors"
        elif working:
            started = self.place.rows(self.dice.choice(working), "swarm_started")
            pid, what = (started[-1]["pid"] if started else None), "agents"
        else:
            return
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed[what] += 1

    def check(self) -> int:
        summaries = {summary.id: summary for summary in self.place.swarm.agents()}
        stages = Counter(summaries[id].stage for id in self.ids)
        steps = Counter(self.steps.read_text().split())
        twice = sum(count > 1 for count in steps.values())
        ends = Counter(len(self.place.rows(id, "swarm_run_over")) for id in self.ids)
        resumed = sum(len(self.place.rows(id, "run_resumed")) for id in self.ids)
        trees = sum((self.place.home / "swarm/agents" / id / "tree").is_dir() for id in self.ids)
        told = sum(
            "may have taken effect" in json.dumps(row)
            for id in self.ids
            for row in self.place.rows(id)
        )
        for id in self.ids:
            if summaries[id].stage != "done":
                print(f"  {id}: {summaries[id].stage}: {summaries[id].doing}")
        print(f"stages {dict(stages)}; ends of a task {dict(ends)}; runs that went on {resumed}")
        print(f"steps {len(steps)} of {len(self.ids) * STEPS}; twice {twice}; uncertain {told}")
        print(f"trees there {trees} of {len(self.ids)}")
        calls = len(self.server.requests)
        print(f"model calls {calls}" + (f", {self.calls} paid for" if self.calls else ""))
        if self.calls:
            spent = self.place.swarm.spending()
            print(f"booked {spent.said()}")
            good = calls <= self.calls + 1 and set(stages) <= {"done", "failed"}
        else:
            good = stages == {"done": len(self.ids)} and trees == len(self.ids)
        return 0 if good and not twice and ends == {1: len(self.ids)} else 1


if __name__ == "__main__":
    sys.exit(main())
