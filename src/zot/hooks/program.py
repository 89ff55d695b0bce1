"""Runs the command of one hook: JSON on its stdin, an exit code, and text or JSON on its stdout."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from zot.cancel import Cancel
from zot.children.process import ChildProcess
from zot.core.shell import Confine, Program
from zot.errors import ToolError
from zot.hooks.config import CommandHook
from zot.lines import ready
from zot.provider.types import Json
from zot.text import Frozen

MAX_OUTPUT = 1024 * 1024
"""Bytes of stdout, and of stderr, that are read from a hook."""
MAX_TEXT = 10_000
"""Characters of a hook's text that the model gets."""
CHUNK = 65_536
KILL_SECONDS = 5.0
BLOCKS = 2
"""Exit code with which a hook refuses; its stderr is the reason."""
NOT_RUNNABLE = (126, 127)
"""Exit codes of a shell that could not run the command."""


class HookOutput(Frozen):
    """How a command ended."""

    code: int | None
    """Exit code, negative for a signal; None: it did not run to its end."""
    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    """Why it has no verdict: not started, too slow, killed."""


class HookDetails(Frozen, rename="camel"):
    permission_decision: str | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Json] | None = None
    additional_context: str | None = None


class HookAnswer(Frozen, rename="camel"):
    """Fields of the JSON object that a hook may print; many scripts print null for some."""

    continue_: bool | None = msgspec.field(default=None, name="continue")
    stop_reason: str | None = None
    system_message: str | None = None
    decision: str | None = None
    reason: str | None = None
    hook_specific_output: HookDetails | None = None


class HookPlace(Frozen):
    """Where hooks run: directory, environment without secrets, and the jail if there is one."""

    cwd: str
    environ: Mapping[str, str]
    confine: Confine
    tell: Callable[[str], None]
    """Receives messages about the jail."""


def run_hook(
    hook: CommandHook, fields: Mapping[str, Json], place: HookPlace, cancel: Cancel
) -> HookOutput:
    """Run a hook to its end, or until its time is over. Raises Cancelled, after it was killed."""
    line = msgspec.json.encode(dict(fields)) + b"\n"
    env = {**place.environ, "CLAUDE_PROJECT_DIR": place.cwd, "ZOT_PROJECT_DIR": place.cwd}
    program = Program(["/bin/sh", "-c", hook.command], place.cwd, env)
    try:
        with place.confine(program, cancel, place.tell) as confined:
            return _Conversation(confined, line, hook.seconds, cancel).run()
    except (OSError, ToolError) as error:
        return HookOutput(None, problem=f"it cannot be started: {error}")


class _Conversation:
    """One process: writes its input and collects its output until it has ended."""

    def __init__(self, program: Program, line: bytes, seconds: float, cancel: Cancel) -> None:
        self._process = ChildProcess(program.argv, Path(program.folder), program.env, program.plan)
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._cancel = cancel
        self._input = memoryview(line)
        self._output = {self._process.stdout: bytearray(), self._process.stderr: bytearray()}
        self._open = {*self._output, self._process.stdin}

    def run(self) -> HookOutput:
        process = self._process
        try:
            with self._cancel.calling(process.kill):
                while not process.is_gone() and time.monotonic() < self._deadline:
                    self._exchange(min(1.0, self._deadline - time.monotonic()))
            return self._ended()
        finally:
            process.kill()
            process.wait(KILL_SECONDS)
            process.close()
            for fd in self._open:
                os.close(fd)

    def _exchange(self, seconds: float) -> None:
        process = self._process
        reading = [fd for fd in self._output if fd in self._open]
        writing = [process.stdin] if process.stdin in self._open else []
        usable = ready(*reading, process.control, writing=writing, timeout=max(0.0, seconds))
        for fd in reading:
            if fd in usable:
                self._read(fd)
        if process.stdin in usable and writing:
            self._write()

    def _read(self, fd: int) -> None:
        chunk = os.read(fd, CHUNK)
        if not chunk:
            self._close(fd)
        elif len(self._output[fd]) < MAX_OUTPUT:
            self._output[fd] += chunk

    def _write(self) -> None:
        try:
            self._input = self._input[os.write(self._process.stdin, self._input[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read its input, which is its right
            self._input = self._input[:0]
        if not self._input:
            self._close(self._process.stdin)

    def _close(self, fd: int) -> None:
        self._open.discard(fd)
        os.close(fd)

    def _ended(self) -> HookOutput:
        self._cancel.check()
        process = self._process
        if not process.is_gone():
            return HookOutput(None, problem=f"it took longer than {self._seconds:g} s")
        for fd in self._output:
            while fd in self._open and fd in ready(fd, timeout=0):
                self._read(fd)
        out, err = (bytes(data).decode("utf-8", "replace") for data in self._output.values())
        code = process.wait(0)
        if process.start_error is not None:
            return HookOutput(None, out, err, f"it cannot be started: {process.start_error}")
        if code is None or code < 0:
            return HookOutput(code, out, err, f"it was ended by signal {-(code or 0)}")
        if code in NOT_RUNNABLE:
            return HookOutput(code, out, err, f"its command cannot be run: {err.strip()[:200]}")
        return HookOutput(code, out, err)


def answer_of(output: HookOutput) -> HookAnswer | str:
    """Return the JSON answer of a hook that ended with 0, or its plain text.

    Raises:
        ValueError: the output begins like a JSON object and is none.
    """
    text = output.stdout.strip()
    if not text.startswith("{"):
        return text[:MAX_TEXT]
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"), type=HookAnswer)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"its output is no valid answer: {error}") from error
