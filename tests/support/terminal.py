"""A program at a terminal: a pty, with xterm.js behind it as the screen that a person would see."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.npm import cache as cache  # a fixture of the one below
from support.npm import node, unpacked
from support.patience import PATIENCE, patience

XTERM = "@xterm/headless@6.0.0"
DRIVER = Path(__file__).parent.parent / "tui" / "emulator.js"
LEAVE = patience(5.0)
"""Seconds for a program to end that was asked to."""


class Shown:
    """What stands on the emulator."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.lines: list[str] = answer["lines"]
        self.history: list[str] = answer["history"]
        """What was scrolled off the screen."""
        self.cursor: tuple[int, int] = (answer["row"], answer["column"])
        self.is_alternate = answer["kind"] == "alternate"
        self.replies = answer["replies"].encode()
        self._wrapped: list[bool] = answer["wrapped"]
        self.cells: list[list[list[Any]]] = answer.get("cells", [])

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    @property
    def everything(self) -> list[str]:
        return [*self.history, *self.lines]

    @property
    def whole_lines(self) -> list[str]:
        """Everything, with lines that the terminal broke in two joined again."""
        joined: list[str] = []
        for line, wrapped in zip(self.everything, self._wrapped, strict=True):
            if wrapped and joined:
                joined[-1] += line
            else:
                joined.append(line)
        return joined


class Emulator:
    """xterm.js in a process of its own; `reset` makes another terminal of it."""

    def __init__(self, package: Path) -> None:
        self._process = subprocess.Popen(
            [node(), str(DRIVER), str(package)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, **request: Any) -> Shown:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return Shown(json.loads(self._process.stdout.readline()))

    def reset(self, columns: int, rows: int) -> Shown:
        return self.ask(make=[columns, rows])

    def write(self, data: bytes | str, *, cells: bool = False) -> Shown:
        data = data.encode() if isinstance(data, str) else data
        return self.ask(write=base64.b64encode(data).decode(), cells=cells)

    def resize(self, columns: int, rows: int) -> Shown:
        return self.ask(resize=[columns, rows])

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def emulator(cache: Path) -> Iterator[Emulator]:
    started = Emulator(unpacked(XTERM, cache) / "lib-headless" / "xterm-headless.js")
    yield started
    started.close()


class AtTerminal:
    """A program in a pty; what it writes goes to the emulator, and its answers come back."""

    def __init__(
        self,
        emulator: Emulator,
        command: Sequence[str],
        environ: dict[str, str],
        cwd: Path,
        size: tuple[int, int] = (80, 24),
    ) -> None:
        self._emulator = emulator
        self.shown = emulator.reset(*size)
        self.written = b""
        """All that the program wrote."""
        self.background = b""
        """The answer to who asks for it (OSC 11); xterm.js alone does not say."""
        self.fd, child = pty.openpty()
        self._set_size(*size)
        self.before = termios.tcgetattr(child)
        self.process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env=environ, cwd=cwd,
            start_new_session=True, preexec_fn=_own_terminal,
        )  # fmt: skip
        self._child = child
        self.cwd = cwd

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def pump(self, seconds: float = 0.05, *, cells: bool = False) -> Shown:
        """Let the emulator have what was written within that time."""
        data = b""
        deadline = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                break
            if not piece:
                break
            data += piece
        self.written += data
        if self.background and b"\x1b]11;?" in data:
            os.write(self.fd, self.background)
        self.shown = self._emulator.write(data, cells=cells)
        if self.shown.replies and self.process.poll() is None:
            os.write(self.fd, self.shown.replies)
        return self.shown

    def until(self, holds: Callable[[Shown], object] | str, seconds: float = PATIENCE) -> Shown:
        """Wait until the screen holds a text, or whatever is asked for."""
        deadline = time.monotonic() + seconds
        check = (lambda shown: holds in shown.text) if isinstance(holds, str) else holds
        while not check(self.pump()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"not seen: {holds!r}\n{self.shown.text}")
        return self.shown

    def type(self, keys: str | bytes) -> None:
        os.write(self.fd, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, columns: int, rows: int) -> None:
        self.pump()
        self._emulator.resize(columns, rows)
        self._set_size(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def end(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.pump()
        self.pump()
        return self.process.wait(PATIENCE)

    def is_restored(self) -> bool:
        """The terminal's settings are what they were before the program began."""
        return termios.tcgetattr(self._child) == self.before

    def close(self) -> None:
        """End it the friendly way first: a killed one cannot tell which of its lines ran."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.end(LEAVE)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
        os.close(self.fd)
        os.close(self._child)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def zot(*words: str) -> list[str]:
    return [sys.executable, "-m", "zot", *words]


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = ("PATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "PYTHONPATH", "LANG")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    plain = {"HOME": str(home), "ZOT_HOME": str(home / "zot"), "TERM": "xterm-256color"}
    return {**environ, **plain, **more}


def in_a_terminal(
    command: Sequence[str], says: Sequence[tuple[bytes, bytes]], environ: Mapping[str, str]
) -> tuple[int, bytes]:
    """Run it in a bare terminal, and type each text when what is before it has appeared; the exit
    code, and all that was written."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, environ)
    shown = b""
    for asked, typed in says:
        while asked not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, typed)
    with suppress(OSError):  # the terminal is closed when the program ends
        while data := os.read(terminal, 4096):
            shown += data
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown
