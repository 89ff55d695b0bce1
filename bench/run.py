"""Measures zot beside a bare Python and any other program that speaks its wire; writes RESULTS.md.

    python3 dev.py bench
    python3 dev.py bench --against /path/to/other-zot --called "other zot 1.2"

Every row is a ratio within one interleaved run; times are only shown to make the ratios readable.
A fresh virtual environment holds zot and its dependencies alone. The curves are growth.py's.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

from measure import Program, Samples, Server, in_turn

ROOT = Path(__file__).parent.parent
ZOT = "zot"
PYTHON = "bare Python"
PADDING = "\n".join("A line that makes the prompt about one kilobyte of text." for _ in range(18))

GOALS = {
    "`--version`": "1.2",
    "exec to first reply": "2.2",
    "exec to first delta": "3.5",
    "prompt to first delta, warm": "1.0",
    "one-delta prompt, warm": "1.0",
    "one-delta prompt without a pause before it": "",
    "a delta of 2,000 at once": "0.77",
    "a delta of 10,000 at once": "0.77",
    "a delta of 20,000 at once": "0.77",
    "CPU of a delta at once": "0.8",
    "CPU of a delta that comes alone": "0.8",
    "bash `true`, round trip": "1.3",
    "bash `true`, CPU": "1.0",
    "bash `true`, the first one of a process": "",
    "read, round trip": "1.0",
    "read, the first one of a process": "",
    "50 commands of 20 ms in one turn": "1.05",
    "first delta after 200 turns of 2 KB": "1.0",
    "`get_messages` after 200 turns": "1.0",
    "`ping` after 200 turns": "1.6",
    "memory, idle": "1.0",
    "memory after 20,000 deltas": "1.0",
    "memory after 200 turns": "1.0",
}
"""What each row may be at most, as a part of the other program's figure; of some nobody said."""
MEGABYTES = "memory"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--against", metavar="COMMAND", help="another program of the wire")
    parser.add_argument("--called", metavar="NAME", help="what it is called, with its version")
    parser.add_argument("--installed", action="store_true", help="measure the zot of this .venv")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = sys.executable if options.installed else fresh_environment(folder)
        with FakeServer(python) as url:
            programs = [Program(ZOT, [str(Path(python).with_name("zot"))], url, folder)]
            other = options.called or options.against or ""
            if options.against:
                programs.append(Program(other, shlex.split(options.against), url, folder))
            bench = Bench(programs, python, Provider(url), options.runs)
            bench.measure()
        page = report(bench.samples, other, options.runs) + session_rows(python)
    options.out.write_text(page, encoding="utf-8")
    print(page)


def fresh_environment(folder: Path) -> str:
    # With a pip of today: the program that an old one makes of a console script loads `re` first.
    make = [sys.executable, "-m", "venv", "--upgrade-deps", str(folder / "venv")]
    subprocess.run(make, check=True)
    python = str(folder / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(ROOT)]
    subprocess.run(install, check=True)
    # Zot and its dependencies alone: newer Pythons put no setuptools into an environment.
    pip = [python, "-m", "pip", "uninstall", "-q", "-y", "setuptools"]
    subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
    return python


class FakeServer:
    """The package's own fake provider, in a process of its own."""

    def __init__(self, python: str) -> None:
        self._python = python

    def __enter__(self) -> str:
        self._process = subprocess.Popen(
            [self._python, "-m", "zot.testing.fakeserver", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip().split()[-1]

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Provider:
    """Knows what the fake provider itself took: nobody's merit, so it is taken out. How long it
    takes depends on the request, which is each program's own."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(url.removeprefix("http://").rstrip("/"))

    def spent(self) -> tuple[float, float]:
        """Seconds since the last call of this, up to the first delta and to the end."""
        self._connection.request("GET", "/spent")
        seconds = json.load(self._connection.getresponse())
        return seconds["first"], seconds["whole"]


class Bench:
    def __init__(self, programs: list[Program], python: str, provider: Provider, runs: int) -> None:
        self.programs = programs
        self.python = python
        self.provider = provider
        self.runs = runs
        self.samples = Samples()

    def measure(self) -> None:
        for part in (self.starts, self.warm_prompts, self.streams, self.tools, self.long):
            print(f"measuring {part.__name__}", file=sys.stderr)
            part()

    def add(self, row: str, program: Program, value: float) -> None:
        self.samples.add(row, program.name, value)

    def prompt(self, server: Server, message: str) -> tuple[float, float]:
        """Seconds to the first delta and to the end, without what the provider took."""
        self.provider.spent()
        first, end = server.prompt(message)
        spent_first, spent_whole = self.provider.spent()
        return first - spent_first, end - spent_whole

    # --- start -------------------------------------------------------------------------------

    def starts(self) -> None:
        for _ in range(self.runs):
            started = time.perf_counter()
            subprocess.run([self.python, "-c", "pass"], check=True)
            self.samples.add("start", PYTHON, time.perf_counter() - started)
        in_turn(self.programs, self.runs, self.version)
        in_turn(self.programs, self.runs, self.first_reply)
        in_turn(self.programs, self.runs, self.first_delta)

    def version(self, program: Program) -> None:
        started = time.perf_counter()
        subprocess.run(
            [*program.command, "--version"],
            check=True,
            env=program.environment(),
            stdout=subprocess.DEVNULL,
        )
        self.add("`--version`", program, time.perf_counter() - started)

    def first_reply(self, program: Program) -> None:
        with program.start() as server:
            server.send(type="ping")
            self.add("exec to first reply", program, server.until("response") - server.started)
            time.sleep(0.3)  # it may still be loading behind the answer
            self.add("memory, idle", program, server.memory())

    def first_delta(self, program: Program) -> None:
        with program.start() as server:
            self.provider.spent()
            server.send(type="prompt", message="text:1")
            first = server.until("text_delta") - server.started
            server.until("done")
            self.add("exec to first delta", program, first - self.provider.spent()[0])

    # --- prompts -----------------------------------------------------------------------------

    def warm_prompts(self) -> None:
        servers = {program.name: program.warm() for program in self.programs}

        def one(program: Program) -> None:
            first, end = self.prompt(servers[program.name], "text:1")
            self.add("prompt to first delta, warm", program, first)
            self.add("one-delta prompt, warm", program, end)
            time.sleep(0.005)  # clients pause: others use the caches meanwhile

        def at_once(program: Program) -> None:
            _, end = self.prompt(servers[program.name], "text:1")
            self.add("one-delta prompt without a pause before it", program, end)

        in_turn(self.programs, 4 * self.runs, one)
        in_turn(self.programs, 4 * self.runs, at_once)
        for server in servers.values():
            server.__exit__()

    def streams(self) -> None:
        for count in (2_000, 10_000, 20_000):
            in_turn(self.programs, 5, lambda program, count=count: self.stream(program, count))
        in_turn(self.programs, 2, self.paced)

    def stream(self, program: Program, count: int) -> None:
        with program.warm() as server:
            self.provider.spent()
            cpu = server.cpu()
            seconds = server.flood(count) - self.provider.spent()[0]
            self.add(f"a delta of {count:,} at once", program, seconds / count)
            if count == 20_000:
                self.add("CPU of a delta at once", program, (server.cpu() - cpu) / count)
                time.sleep(0.5)
                self.add("memory after 20,000 deltas", program, server.memory())

    def paced(self, program: Program) -> None:
        """Deltas that come one by one, as models send them: each wakes the whole path."""
        count = 2_000
        with program.warm() as server:
            cpu = server.cpu()
            server.run(f"delay:2 text:{count}")
            self.add("CPU of a delta that comes alone", program, (server.cpu() - cpu) / count)

    # --- tools -------------------------------------------------------------------------------

    def tools(self) -> None:
        for name, script in (("bash `true`", "tool:bash:true"), ("read", "read:small.txt")):
            in_turn(self.programs, 5, lambda program, n=name, s=script: self.tool(program, n, s))
        in_turn(self.programs, 3, self.many_commands)

    def tool(self, program: Program, name: str, script: str) -> None:
        rounds = 50
        with program.warm() as server:
            # The first one loads what runs it, and starts its helper.
            self.add(f"{name}, the first one of a process", program, self.rounds(server, 1, script))
            cpu = server.cpu()
            seconds = self.rounds(server, rounds, script)
            self.add(f"{name}, round trip", program, seconds / rounds)
            if name.startswith("bash"):
                self.add(f"{name}, CPU", program, (server.cpu() - cpu) / rounds)

    def rounds(self, server: Server, count: int, script: str) -> float:
        """Seconds of so many calls, without a prompt that has none."""
        _, plain = self.prompt(server, "text:1")
        server.tools = 0
        seconds = server.run(f"rounds:{count} {script}") - self.provider.spent()[1]
        assert server.tools == count, f"{server.tools} results of {count}"
        return seconds - plain

    def many_commands(self, program: Program) -> None:
        with program.warm() as server:
            self.provider.spent()
            seconds = server.run("tools:50:sleep 0.02") - self.provider.spent()[1]
            self.add("50 commands of 20 ms in one turn", program, seconds)

    # --- long conversations ------------------------------------------------------------------

    def long(self) -> None:
        turns, counted = 200, 20
        servers = {program.name: program.warm() for program in self.programs}
        for turn in range(turns):
            for program in self.programs:
                message = f"text:20 size:50\n{PADDING} ({turn})"
                first, _ = self.prompt(servers[program.name], message)
                if turn >= turns - counted:
                    self.add("first delta after 200 turns of 2 KB", program, first)

        def look(program: Program) -> None:
            server = servers[program.name]
            self.add("`get_messages` after 200 turns", program, server.ask(type="get_messages"))
            self.add("`ping` after 200 turns", program, server.ask(type="ping"))

        for program in self.programs:
            self.add("memory after 200 turns", program, servers[program.name].memory())
        in_turn(self.programs, self.runs, look)
        for server in servers.values():
            server.__exit__()


# --- the page ----------------------------------------------------------------------------------


def report(samples: Samples, other: str, runs: int) -> str:
    bare = samples.figure("start", PYTHON) or 1.0
    head = ["what", "zot", "parts of a bare Python start"]
    head += [other, "zot / other", "goal"] if other else []
    rows = [head, ["---"] * len(head)]
    for name, goal in GOALS.items():
        ours = samples.figure(name, ZOT)
        if ours is None:
            continue
        in_megabytes = name.startswith(MEGABYTES)
        row = [name, shown(ours, in_megabytes), "" if in_megabytes else f"{ours / bare:.3g}"]
        theirs = samples.figure(name, other) if other else None
        if theirs is not None:
            row += [
                shown(theirs, in_megabytes),
                f"**{ours / theirs:.2f}**",
                f"at most {goal}" if goal else "",
            ]
        rows.append(row)
    beside = f" beside {other}" if other else ""
    return "\n".join(
        [
            "# Results",
            "",
            f"Written by `python3 dev.py bench`: zot{beside}, interleaved in one run of {runs}",
            "rounds, lower quartile of each row. What the fake provider itself took, from a",
            "request being there to its delta being sent, is taken out: it depends on the request.",
            "Ratios travel between machines, times do not.",
            "",
            f"Python {platform.python_version()}, {platform.system()} {platform.machine()}; "
            f"`python -c pass` takes {shown(bare, False)}.",
            "",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
        ]
    )


def shown(value: float, in_megabytes: bool) -> str:
    if in_megabytes:
        return f"{value:.1f} MB"
    return f"{value * 1e3:.2f} ms" if value >= 1e-4 else f"{value * 1e6:.1f} µs"


def session_rows(python: str) -> str:
    """Opening a long session: its memory against the same messages built without a file."""
    program = [python, str(ROOT / "bench" / "session_open.py")]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    seen = json.loads(done.stdout)
    peak, built = seen["open_peak_mb"], seen["in_memory_peak_mb"]
    return (
        f"\nA session of {seen['messages']:,} messages ({seen['file_mb']:.0f} MB) opens in "
        f"{seen['open_seconds']:.2f} s with at most {peak:.0f} MB, {peak / built:.2f} times what "
        f"the messages take by themselves; one more row costs {seen['append_us']:.0f} µs.\n"
        "\nHow the costs grow with turns, runtimes, output and files: [growth.md](growth.md).\n"
        "\nMany agents in one process: [agents.md](agents.md).\n"
        "\n100 tasks on a real Temporal server with a worker that is killed: "
        "[temporal.md](temporal.md). What one\nmachine carries, part by part: "
        "[scale.md](scale.md).\n"
        "\n50 agents of the local swarm and random kills: [swarm.md](swarm.md); the page of 100 "
        "agents: [glasspane.md](glasspane.md).\n"
    )


if __name__ == "__main__":
    main()
