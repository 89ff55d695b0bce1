"""The swarm on Temporal in a storm: machines that die, freeze and lose their network.

    .venv/bin/python bench/temporal_storm.py [--tasks 300] [--seconds 840] [--seed 1] [--write]

Three workers, each in a network namespace of its own (this needs root and `ip`), a hub with TLS, a
short lease. While the tasks run, workers, the hub, Temporal and agents are killed (SIGKILL), links
are taken down and workers are frozen. Every task has to end as done, with each step of its work at
most once, and its branch has to hold the work of every step that its transcript calls done. Nothing
may be left in the temporary directory. Exit code 1 if something does not hold. `--write` puts the
figures into bench/temporal_storm.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from swarm.cluster import below, free_port  # noqa: E402
from swarm.support import ZOT, Place, bash, says  # noqa: E402

from zot.errors import ZotError  # noqa: E402
from zot.swarm.temporal.config import (  # noqa: E402
    TemporalConfig,
    save_config,
    server_command,
)

MACHINES = 3
SLOTS = 5
STEPS = 3
LEASE = 12.0
LOOK_SECONDS = 5.0
"""Between two lists of all agents: they cost more than the faults otherwise."""
ENDED = ("done", "failed", "cancelled", "lost")
OPEN_TASKS = 40
"""Tasks that wait or run at once."""
MERGES = 20
"""Tasks whose work is merged and that are removed, at the end."""
WEIGHTS = {"worker": 6, "hub": 6, "temporal": 3, "agent": 3, "partition": 2, "freeze": 1}
"""How often each of them happens, against each other."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=840.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="storm-", ignore_cleanup_errors=True) as folder:
        storm = Storm(Path(folder), arguments.tasks, random.Random(arguments.seed))
        try:
            storm.begin()
            storm.run(arguments.seconds)
            good = storm.check()
        finally:
            storm.end()
        good = storm.check_leftovers() and good
    text = "\n".join(f"- {line}" for line in storm.lines)
    if arguments.write:
        (ROOT / "bench" / "temporal_storm.md").write_text(f"{HEAD}{text}\n")
    return 0 if good else 1


HEAD = """# The swarm on Temporal in a storm

Written by `bench/temporal_storm.py --write`: three workers in network namespaces of their own, a
hub with TLS, one machine of two cores that does other work, too.

"""


class Machine:
    """A worker in a namespace, with a model server beside it."""

    def __init__(self, number: int, storm: Storm) -> None:
        self.name = f"zs{os.getpid() % 10_000}n{number}"
        self.link = f"{self.name}h"
        self.address = f"10.213.{number}.1"
        self._storm = storm
        self._folder = storm.folder / f"worker-{number}"
        self.worker: subprocess.Popen[bytes] | None = None
        for words in (
            f"netns add {self.name}",
            f"link add {self.link} type veth peer name {self.name}w netns {self.name}",
            f"address add {self.address}/24 dev {self.link}",
            f"link set {self.link} up",
            f"-n {self.name} address add 10.213.{number}.2/24 dev {self.name}w",
            f"-n {self.name} link set {self.name}w up",
            f"-n {self.name} link set lo up",
        ):
            subprocess.run(["ip", *words.split()], check=True)
        model = [sys.executable, "-m", "zot.testing.fakeserver", "--port", str(storm.model_port)]
        self.model = storm.start(f"model-{number}", model, inside=self.name)

    def start(self) -> None:
        storm = self._storm
        words = ["swarm", "--address", f"{self.address}:{storm.temporal_port}", "worker"]
        words += ["--hub", f"https://{self.address}:{storm.config.hub_port}", "--slots", str(SLOTS)]
        words += ["--folder", str(self._folder), "--ca-file", storm.config.tls_cert]
        self.worker = storm.start(self._folder.name, [*ZOT, *words], inside=self.name)

    def kill(self) -> None:
        if self.worker is not None:
            kill_all(self.worker)
            self.worker = None

    def cut(self, *, off: bool) -> None:
        subprocess.run(["ip", "link", "set", self.link, "down" if off else "up"], check=True)

    def remove(self) -> None:
        self.kill()
        kill_all(self.model)
        subprocess.run(["ip", "netns", "delete", self.name], check=False)
        subprocess.run(["ip", "link", "delete", self.link], check=False, capture_output=True)


class Storm:
    def __init__(self, folder: Path, tasks: int, dice: random.Random) -> None:
        self.folder = folder
        self.tasks = tasks
        self.dice = dice
        self.lines: list[str] = []
        self.happened: Counter[str] = Counter()
        self.accepted: dict[int, str] = {}
        self.steps = folder / "steps"
        self.steps.touch()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.model_port, self.temporal_port = free_port(), free_port()
        server = SimpleNamespace(url=f"http://127.0.0.1:{self.model_port}")
        self.place = Place(folder, server, TMPDIR=str(self.temporary))
        self.machines: list[Machine] = []
        self.timers: list[threading.Timer] = []
        self.over = threading.Event()
        self.ended_tasks = 0

    def say(self, text: str) -> None:
        self.lines.append(text)
        print(text, flush=True)

    def start(self, name: str, command: list[str], inside: str = "") -> subprocess.Popen[bytes]:
        token = self.place.home / "swarm" / "hub.token"
        more = {"ZOT_SWARM_TOKEN": token.read_text()} if token.exists() else {}
        if inside:
            more["ZOT_HOME"] = str(self.folder / f"home-{name}")  # another machine has its own
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", inside, *command] if inside else command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.place.environment, **more},
                start_new_session=True,
            )

    # --- before ------------------------------------------------------------------------------

    def begin(self) -> None:
        addresses = ["127.0.0.1", *(f"10.213.{number}.1" for number in range(1, MACHINES + 1))]
        cert, key = (str(self.folder / name) for name in ("cert.pem", "key.pem"))
        names = ",".join(f"IP:{address}" for address in addresses)
        words = [
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=storm",
            "-keyout",
        ]
        words += [key, "-out", cert, "-addext", f"subjectAltName={names}"]
        words += ["-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(["openssl", *words], check=True, capture_output=True)
        self.config = TemporalConfig(
            address=f"127.0.0.1:{self.temporal_port}",
            lease_seconds=LEASE,
            hub_host="0.0.0.0",
            hub_port=free_port(),
            tls_cert=cert,
            tls_key=key,
        )
        save_config(self.place.home / "swarm", self.config)
        self.start_temporal()
        threading.Thread(target=self.submit_all, daemon=True).start()
        until(lambda: self.accepted, 60)
        for number in range(1, MACHINES + 1):
            self.machines.append(Machine(number, self))
            self.machines[-1].start()

    def start_temporal(self) -> None:
        command = server_command(str(self.folder / "temporal.db"), self.temporal_port)
        command[command.index("127.0.0.1")] = "0.0.0.0"
        self.temporal = self.start("temporal", [*command, "--headless"])

    def submit_all(self) -> None:
        """Give each task until it is taken. One whose answer was lost has its id already."""
        for number in range(self.tasks):
            while number - self.ended_tasks > OPEN_TASKS and not self.over.is_set():
                time.sleep(0.5)
            while not self.over.is_set():
                try:
                    self.accepted[number] = self.submit(number)
                    break
                except (ZotError, OSError) as error:
                    if "there is an agent" in str(error):
                        self.accepted[number] = f"task-{number}"
                        break
                    time.sleep(0.5)

    def submit(self, number: int) -> str:
        turns = [
            bash(
                f"echo {number}.{step} >> {self.steps}; echo {number}.{step} >> work-{number}; "
                f"sleep 0.2; echo ok-{number}.{step}"
            )
            for step in range(STEPS)
        ]
        text = "\nthen\n".join([*turns, says("Done.")])
        return self.place.swarm.submit(
            text,
            str(self.place.repository),
            id=f"task-{number}",
            provider="anthropic",
            words=self.place.words,
            engine="temporal",
        )

    # --- meanwhile ---------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        calm_after = began + seconds * 0.75
        next_fault = began + 5.0
        said = looked = began
        ended = 0
        while time.monotonic() - began < seconds:
            now = time.monotonic()
            if now - looked > LOOK_SECONDS or not self.place.swarm.is_supervised():
                ended, looked = self.ended(), now
                self.ended_tasks = ended
            if ended == self.tasks:
                break
            if ended > 0.95 * self.tasks:
                calm_after = 0.0
            if now >= next_fault and now < calm_after:
                next_fault = now + self.dice.uniform(3.0, 9.0)
                self.fault()
            self.revive()
            if now - said > 60:
                said = now
                print(f"{now - began:.0f} s: {ended} ended, {dict(self.happened)}", flush=True)
            time.sleep(0.3)
        self.over.set()
        for timer in self.timers:
            timer.join(60)
        self.say(
            f"{len(self.accepted)} tasks accepted; over after {time.monotonic() - began:.0f} s"
        )
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.happened.items()))
        self.say(f"faults: {faults}")

    def ended(self) -> int:
        try:
            return sum(s.stage in ENDED for s in self.place.swarm.agents())
        except (ZotError, OSError):
            return self.ended_tasks  # it was killed a moment ago

    def revive(self) -> None:
        """Start workers that ended because Temporal was away."""
        for machine in self.machines:
            if machine.worker is not None and machine.worker.poll() is not None:
                machine.start()

    def later(self, seconds: float, do: object, *words: object, **more: object) -> None:
        timer = threading.Timer(seconds, do, words, more)  # type: ignore[arg-type]
        self.timers.append(timer)
        timer.start()

    def fault(self) -> None:
        kind = self.dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        machine = self.dice.choice(self.machines)
        pause = self.dice.uniform(0.5, 4.0)
        if kind == "hub":
            pid = self.place.supervisor()
            if pid is None:
                return
            os.kill(pid, signal.SIGKILL)
        elif kind == "temporal":
            if self.temporal.poll() is not None:
                return
            kill_all(self.temporal)
            self.later(pause, self.start_temporal)
        elif machine.worker is None:
            return
        elif kind == "worker":
            machine.kill()
            self.later(pause, machine.start)
        elif kind == "agent":
            agents = [pid for pid in below(machine.worker.pid) if b"--durable" in words_of(pid)]
            if not agents:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.dice.choice(agents), signal.SIGKILL)
        elif kind == "partition":
            machine.cut(off=True)
            self.later(self.dice.choice([2.0, LEASE * 1.5]), machine.cut, off=False)
        else:
            os.kill(machine.worker.pid, signal.SIGSTOP)
            self.later(LEASE * 1.5, thaw, machine.worker)
        self.happened[kind] += 1

    # --- afterwards --------------------------------------------------------------------------

    def check(self) -> bool:
        summaries = {s.id: s for s in self.place.swarm.agents()}
        stages = Counter(summary.stage for summary in summaries.values())
        steps = Counter(self.steps.read_text().split())
        twice = sorted(step for step, count in steps.items() if count > 1)
        ends = Counter(len(self.place.rows(id, "swarm_run_over")) for id in summaries)
        lost = [
            f"task-{number}.{step}"
            for number, id in self.accepted.items()
            if id in summaries and summaries[id].stage in ENDED
            for step in self.missing(number, id)
        ]
        claims = sum(len(self.place.rows(id, "swarm_claimed")) for id in summaries)
        for summary in summaries.values():
            if summary.stage != "done":
                self.say(f"{summary.id} is {summary.stage}: {summary.doing}")
        self.say(f"stages {dict(stages)}; ends of a task {dict(ends)}; attempts {claims}")
        self.say(
            f"steps {len(steps)} of {self.tasks * STEPS}, {len(twice)} twice {twice[:5]}; "
            f"steps called done whose work is lost: {len(lost)} {lost[:5]}"
        )
        return (
            stages == {"done": self.tasks}
            and ends == {1: self.tasks}
            and not twice
            and not lost
            and self.merge_some(list(summaries))
        )

    def missing(self, number: int, id: str) -> list[int]:
        """Steps that the transcript calls done, and whose work is not on the branch."""
        results = {row["id"]: json.dumps(row) for row in self.place.rows(id, "tool_result")}
        done = [s for s in range(STEPS) if any(f"ok-{number}.{s}" in r for r in results.values())]
        words = ["git", "show", f"zot/{id}:work-{number}"]
        at = self.place.repository
        shown = subprocess.run(words, cwd=at, capture_output=True, text=True).stdout.split()
        return [step for step in done if f"{number}.{step}" not in shown]

    def merge_some(self, ids: list[str]) -> bool:
        chosen = self.dice.sample(ids, min(MERGES, len(ids)))
        for id in chosen:
            self.place.swarm.merge(id)
            self.place.swarm.remove(id)
        there = sum((self.place.repository / id.replace("task", "work")).exists() for id in chosen)
        self.say(f"merged and removed {len(chosen)}; {there} files in the checkout")
        refs = self.place.git("for-each-ref", "--format=%(refname)", "refs/zot", "refs/zot-final")
        if refs:
            self.say(f"refs left: {refs.split()[:5]}")
        return there == len(chosen) and not refs

    def check_leftovers(self) -> bool:
        names = Counter(path.name.rstrip("0123456789abcdef_") for path in self.temporary.iterdir())
        bad = {name: count for name, count in names.items() if name.startswith(("zot-w", "zot-b"))}
        left = [pid for pid in pids() if os.fsencode(self.folder) in words_of(pid)]
        self.say(f"left in the temporary directory: {dict(names)}; processes left: {len(left)}")
        return not bad and not left

    def end(self) -> None:
        self.over.set()
        with contextlib.suppress(ZotError, OSError):
            self.place.swarm.stop()
        for machine in self.machines:
            if machine.worker is not None:
                machine.worker.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    machine.worker.wait(30)
            machine.remove()
        kill_all(self.temporal)
        for path in self.folder.glob("*.log"):
            text = path.read_text(errors="replace")
            if "Traceback" in text:
                print(f"--- {path.name}\n{text[-3000:]}")
        supervisor = self.place.log()
        print(f"--- supervisor\n{supervisor[-2000:]}")
        shutil.rmtree(self.place.home, ignore_errors=True)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    for pid in (process.pid, *below(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def thaw(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGCONT)


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def until(condition: object, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit("the swarm does not begin")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
