"""Drives programs that speak the zot wire, and reads what the system knows of them.

A measurement visits every program in turn, over and over, so that a slow minute of the machine
hits all of them; its figure is the lower quartile of the samples, because other work on the machine
only ever adds to them.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

PIPE = 1 << 20
F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)
DELTA, DONE = b'"type":"text_delta"', b'{"type":"done"'
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Program:
    """A command that is started as `COMMAND rpc FLAGS`."""

    def __init__(self, name: str, command: Sequence[str], url: str, folder: Path) -> None:
        self.name = name
        self.command = list(command)
        self.url = url
        self.home = Path(tempfile.mkdtemp(prefix="bench-", dir=folder))
        self.work = self.home / "work"
        self.work.mkdir()
        (self.work / "small.txt").write_text("".join(f"line {n}\n" for n in range(40)))

    def environment(self) -> dict[str, str]:
        names = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {**kept, "HOME": str(self.home), "ZOT_HOME": str(self.home / "zot")}

    def start(self) -> Server:
        flags = ["--provider", "anthropic", "--api-key", "bench-key", "--base-url", self.url]
        return Server([*self.command, "rpc", *flags], self.environment(), self.work)

    def warm(self) -> Server:
        """One that has loaded all it loads."""
        server = self.start()
        server.ask(type="ping")
        for _ in range(3):
            server.prompt("text:2")
        return server


class Server:
    """A running program, driven over its pipes."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.bytes_out = 0
        self.tools = 0
        self._ended = 0.0
        assert self.process.stdout is not None
        try:  # the reader is woken less often, whoever writes
            fcntl.fcntl(self.process.stdout, F_SETPIPE_SZ, PIPE)
        except OSError:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def send(self, **command: Any) -> float:
        """Send a command; when."""
        assert self.process.stdin is not None
        line = json.dumps({"id": "1", **command}).encode() + b"\n"
        sent = time.perf_counter()
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return sent

    def lines(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.bytes_out += len(line)
            yield line

    def until(self, word: str) -> float:
        """Read on to a frame of this type; when it came. A byte search costs the client little."""
        wanted = f'"type":"{word}"'.encode()
        for line in self.lines():
            ends = line[:200] + line[-200:]  # the order of keys is each program's own
            if wanted in ends:
                return time.perf_counter()
            if b'"type":"error"' in ends or b'"success":false' in line:
                raise RuntimeError(f"{self.process.args[0]}: {line[:300]!r}")  # type: ignore[index]
            self.tools += b'"type":"tool_result"' in ends
        raise RuntimeError(f"{self.process.args[0]} ended before {word!r}")  # type: ignore[index]

    def ask(self, **command: Any) -> float:
        """Seconds from a command to its response."""
        sent = self.send(**command)
        return self.until("response") - sent

    def prompt(self, message: str) -> tuple[float, float]:
        """One prompt to its end: seconds to the first delta, and to the end."""
        sent = self.send(type="prompt", message=message)
        first = self.until("text_delta") - sent
        return first, self.until("done") - sent

    def run(self, message: str) -> float:
        """Seconds of a prompt whose answer need not begin with text."""
        sent = self.send(type="prompt", message=message)
        return self.until("done") - sent

    def flood(self, count: int) -> float:
        """Seconds of an answer of so many deltas. They are counted in what comes, and not looked at
        one by one: that would measure the reader."""
        sent = self.send(type="prompt", message=f"text:{count}")
        assert self.process.stdout is not None
        fd, seen, rest = self.process.stdout.fileno(), 0, b""
        while True:
            data = rest + os.read(fd, PIPE)
            if data == rest:
                raise RuntimeError(f"{self.process.args[0]} ended")  # type: ignore[index]
            now = time.perf_counter()
            end = data.find(DONE)
            lines, _, rest = data.rpartition(b"\n")
            seen += lines.count(DELTA)
            if end >= 0:
                assert seen == count, f"{seen} deltas of {count}"
                return now - sent

    def cpu(self) -> float:
        """CPU seconds of the process, to the nanosecond but for what threads that ended took along;
        that is known in ticks."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        coarse = (int(stat[11]) + int(stat[12])) / TICKS
        fine = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                fine += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # the thread ended while we looked
        if abs(coarse - fine / 1e9 - self._ended) > 3 / TICKS:
            self._ended = coarse - fine / 1e9
        return fine / 1e9 + self._ended

    def memory(self) -> float:
        """MB of the process and all below it."""
        return sum(map(_pages, _tree(self.process.pid))) * PAGE / 1e6


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))
    except OSError:
        return


def _pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0


class Samples:
    """All that was measured: by the name of the row, then by that of the program."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: str, program: str, value: float) -> None:
        self.values[row][program].append(value)

    def figure(self, row: str, program: str) -> float | None:
        values = sorted(self.values[row].get(program, ()))
        return values[len(values) // 4] if values else None


def in_turn(programs: Sequence[Program], runs: int, measure: Callable[[Program], None]) -> None:
    """Measure every program so often, each round beginning with another one."""
    for number in range(runs):
        for position in range(len(programs)):
            measure(programs[(number + position) % len(programs)])
