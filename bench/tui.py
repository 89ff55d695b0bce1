"""The terminal: start to the first key, cost of a delta, key to echo, idling, memory.

    .venv/bin/python bench/tui.py [--go PROGRAM] [--pi PROGRAM] [--runs N]

Every program runs in a pty of 120 by 40 against the same model server; figures are ratios where a
machine's speed would show. A bare Python start is in the same table. With --go the Go zot, with
--pi pi stands beside it. A fresh virtual environment holds zot and its dependencies alone.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from run import fresh_environment

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from zot.testing.fakeserver import FakeServer

TICKS = os.sysconf("SC_CLK_TCK")
DELTAS = 2_000
PARAGRAPH = (
    "## Part {n}\n\nThis is **part {n}** of an answer with `code`, a [link](https://example.org) "
    "and words enough to fill some lines of the screen.\n\n- first point\n- second point\n\n"
    "| name | value |\n| --- | --- |\n| alpha | {n} |\n\n"
    "```python\ndef part_{n}(x: int) -> int:\n    return x + {n}  # {n}\n```\n\n"
)


class AtPty:
    """A program in a pty."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        self.fd, child = pty.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            argv, stdin=child, stdout=child, stderr=child, env=env, cwd=cwd, start_new_session=True
        )
        os.close(child)
        self.bytes = 0
        self.tail = b""

    def read(self, seconds: float) -> bytes:
        if not select.select([self.fd], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self.fd, 1 << 20)
        except OSError:
            return b""
        self._answer(data)
        self.bytes += len(data)
        self.tail = (self.tail + data)[-20_000:]
        return data

    def _answer(self, data: bytes) -> None:
        """What a terminal would say to those who ask."""
        if b"\x1b[c" in data:
            os.write(self.fd, b"\x1b[?62;c")
        if b"\x1b]11;?" in data:
            os.write(self.fd, b"\x1b]11;rgb:0000/0000/0000\x1b\\")

    def until(self, text: bytes, seconds: float = 60.0) -> float:
        """When the text was first seen."""
        deadline = time.perf_counter() + seconds
        while text not in self.tail:
            self.read(0.5)
            if time.perf_counter() > deadline:
                raise TimeoutError(f"not seen: {text!r} in {self.tail[-400:]!r}")
        return time.perf_counter()

    def quiet(self, seconds: float = 0.5) -> None:
        while self.read(seconds):
            pass

    def ready(self) -> None:
        """Until the model stands on the screen, and nothing more comes."""
        deadline = time.perf_counter() + 60
        while b"claude" not in self.tail and b"scripted" not in self.tail:
            self.read(0.5)
            if time.perf_counter() > deadline:
                raise TimeoutError(f"it does not start: {self.tail[-400:]!r}")
        self.quiet(1.0)

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def status(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        return 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    places = {"HOME": str(home), "ZOT_HOME": str(home / "zot"), "TERM": "xterm-256color"}
    return {**kept, **places, "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}


def is_pi(command: Sequence[str]) -> bool:
    return Path(command[0]).name == "pi"


class Bench:
    def __init__(self, folder: Path, url: str, python: str, runs: int) -> None:
        self.folder = folder
        self.python = python
        self.url = url
        self.runs = runs
        self.work = folder / "work"
        self.work.mkdir()
        self._count = 0

    def home(self) -> Path:
        """A new one, in which pi knows the model server too."""
        self._count += 1
        made = self.folder / f"home{self._count}"
        (made / ".pi" / "agent").mkdir(parents=True)
        model = {"id": "claude-bench", "contextWindow": 200_000, "maxTokens": 8_000}
        fake = {"baseUrl": self.url, "apiKey": "k", "api": "anthropic-messages", "models": [model]}
        path = made / ".pi" / "agent" / "models.json"
        path.write_text(json.dumps({"providers": {"fake": fake}}))
        return made

    def flags(self, command: Sequence[str]) -> list[str]:
        if is_pi(command):
            return ["--provider", "fake", "--model", "claude-bench"]
        return ["--provider", "anthropic", "--api-key", "k", "--base-url", self.url]

    def start(self, command: Sequence[str], *words: str, home: Path | None = None) -> AtPty:
        return AtPty(
            [*command, *self.flags(command), *words], environment(home or self.home()), self.work
        )

    # --- figures -----------------------------------------------------------------------------

    def bare(self) -> float:
        times = []
        for _ in range(self.runs * 2):
            began = time.perf_counter()
            subprocess.run([self.python, "-c", "pass"], check=True)
            times.append(time.perf_counter() - began)
        return median(times)

    def first_key(self, command: Sequence[str]) -> tuple[float, float]:
        """Seconds from the start until a key that was typed at once stands on the screen, and
        until the agent is there too."""
        keys, ready = [], []
        for _ in range(self.runs):
            program = self.start(command)
            os.write(program.fd, b"q")
            program.until(b"\x1b[?2026h")
            keys.append(program.until(b"q") - program.started)
            program.until(b"claude")
            ready.append(time.perf_counter() - program.started)
            program.close()
        return median(keys), median(ready)

    def stream(
        self, command: Sequence[str], prompt: str, *words: str
    ) -> tuple[float, float, float]:
        """Microseconds and bytes for a delta, and how long the stream took."""
        program = self.start(command, *words)
        end = b"E-N-D" if words else b"abcd END"
        program.ready()
        cpu = size = began = took = 0.0
        for _ in range(2):  # the first time it loads what it needs for an answer
            os.write(program.fd, prompt.encode())
            program.quiet(0.3)
            program.tail = b""
            cpu, size, began = program.cpu(), program.bytes, time.perf_counter()
            os.write(program.fd, b"\r")
            if is_pi(command):  # it breaks the line anywhere: the end is when nothing more comes
                program.quiet(2.0)
                took = time.perf_counter() - began - 2.0
            else:
                program.until(end, 120)
                took = time.perf_counter() - began
            program.quiet(0.3)
        figures = (program.cpu() - cpu) / DELTAS * 1e6, (program.bytes - size) / DELTAS, took
        program.close()
        return figures

    def echo(self, command: Sequence[str]) -> float:
        program = self.start(command)
        program.ready()
        times = []
        for _ in range(100):
            began = time.perf_counter()
            os.write(program.fd, b"x")
            while b"x" not in program.read(1.0):
                pass
            times.append(time.perf_counter() - began)
            time.sleep(0.02)
        program.close()
        return median(times)

    def idle(self, command: Sequence[str], seconds: float = 10.0) -> tuple[float, float]:
        """Wakes and bytes in a minute."""
        program = self.start(command)
        program.ready()
        program.quiet(2.0)
        wakes, size = program.status("voluntary_ctxt_switches"), program.bytes
        time.sleep(seconds)
        program.read(0)
        wakes = program.status("voluntary_ctxt_switches") - wakes
        figures = wakes * 60 / seconds, (program.bytes - size) * 60 / seconds
        program.close()
        return figures

    def memory(self, command: Sequence[str]) -> tuple[float, float]:
        """Megabytes after one answer: at the terminal, and as `rpc`."""
        program = self.start(command)
        program.ready()
        os.write(program.fd, b"say:one END\r")
        program.until(b"END")
        program.quiet(0.5)
        at_terminal = program.status("VmRSS") / 1024
        program.close()
        mode, end = (["--mode", "rpc"], b'"agent_end"') if is_pi(command) else (["rpc"], b'"done"')
        server = subprocess.Popen(
            [*command, *mode, *self.flags(command)], env=environment(self.home()), cwd=self.work,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert server.stdin and server.stdout
        server.stdin.write(b'{"id":"1","type":"prompt","message":"say:one END"}\n')
        server.stdin.flush()
        while end not in (line := server.stdout.readline()):
            if not line:
                raise RuntimeError(f"{command[0]} ended")
        rows = Path(f"/proc/{server.pid}/status").read_text().splitlines()
        as_rpc = next(int(row.split()[1]) for row in rows if row.startswith("VmRSS")) / 1024
        server.kill()
        server.wait()
        return at_terminal, as_rpc


def markdown_script(folder: Path) -> Path:
    text = "".join(PARAGRAPH.format(n=n) for n in range(200))[: DELTAS * 5 - 5]
    pieces = [text[start : start + 5] for start in range(0, len(text), 5)]
    path = folder / "markdown.json"
    turn = {"text": [*pieces, "\n\nE-N-D"], "delay_ms": 5, "repeat": True}
    path.write_text(json.dumps({"turns": [turn]}))
    return path


def long_session(folder: Path, turns: int) -> Path:
    """A session with so many turns, as zot keeps them."""
    from zot.core.session import Session
    from zot.provider.types import Message, Origin, Text
    from zot.sessions.open import open_session

    path = folder / f"turns{turns}.jsonl"
    session: Session = open_session(str(path), str(folder), provider="scripted", model="scripted")
    for number in range(turns):
        session.append(Message("user", (Text(f"question {number}"),), 0.0))
        origin = Origin("scripted", "scripted", "scripted", "end")
        answer = Text(PARAGRAPH.format(n=number))
        session.append(Message("assistant", (answer,), 0.0, origin))
    session.close()
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--go", default="")
    parser.add_argument("--pi", default="")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--installed", action="store_true", help="measure the zot of this .venv")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tui-") as name, FakeServer() as server:
        folder = Path(name)
        python = sys.executable if options.installed else fresh_environment(folder)
        bench = Bench(folder, server.url, python, options.runs)
        ours = [str(Path(python).with_name("zot"))]
        bare = bench.bare()
        print(f"bare Python start: {bare * 1000:.1f} ms")
        report(bench, "zot", ours, bare)
        script = str(markdown_script(folder))
        for turns in (10, 5_000):
            session = long_session(folder, turns)
            words = ("--provider", "scripted", "--script", script, "--session", str(session))
            cost, size, took = bench.stream(ours, "go", *words)
            print(
                f"  markdown, {turns} turns before: "
                f"{cost:.0f} µs, {size:.0f} bytes a delta, {took:.1f} s"
            )
        if options.go:
            report(bench, "Go zot", [options.go], bare)
        if options.pi:
            report(bench, "pi", [options.pi], bare)


def report(bench: Bench, name: str, command: Sequence[str], bare: float) -> None:
    print(name)
    key, ready = bench.first_key(command)
    print(
        f"  start to first key: {key * 1000:.1f} ms ({key / bare:.1f} x bare), "
        f"agent {ready * 1000:.0f} ms"
    )
    cost, size, took = bench.stream(command, f"text:{DELTAS} size:5 delay:5 say:END")
    print(f"  plain deltas: {cost:.0f} µs, {size:.0f} bytes a delta, {took:.1f} s")
    print(f"  key to echo: {bench.echo(command) * 1000:.2f} ms")
    wakes, size = bench.idle(command)
    print(f"  idle: {wakes:.0f} wakes, {size:.0f} bytes a minute")
    terminal, rpc = bench.memory(command)
    print(f"  memory: {terminal:.1f} MB, rpc {rpc:.1f} MB ({terminal / rpc:.2f} x)")


if __name__ == "__main__":
    main()
