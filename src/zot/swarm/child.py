"""A `zot rpc` child process of the supervisor: requests with responses, and all other frames."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zot.lines import LineSplitter, LineTooLong, encode_line
from zot.observe.facts import fields_of
from zot.swarm.task import SwarmError

ANSWER_SECONDS = 60.0
STOP_SECONDS = 10.0
STDERR_KEPT = 8 * 1024
MAX_FRAME = 64 * 1024 * 1024


class ChildGone(SwarmError):
    code = "server_gone"


class AgentDoor(Protocol):
    """A running agent that accepts requests, local or remote."""

    async def request(self, type: str, **fields: Any) -> dict[str, Any]: ...


class AgentChild:
    """A running local agent. `on_frame` gets each line that is no response to a request."""

    def __init__(self, on_frame: Callable[[bytes, dict[str, Any]], None]) -> None:
        self._on_frame = on_frame
        self._ids = itertools.count(1)
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._stderr = bytearray()
        self._tasks: list[asyncio.Task[None]] = []
        self.gone = asyncio.Event()

    async def start(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=cwd, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            raise SwarmError(f"cannot start {command[0]!r} in {cwd!r}: {error.strerror}") from error
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_stderr())]

    @property
    def pid(self) -> int:
        return self._process.pid

    async def request(self, type: str, **fields: Any) -> dict[str, Any]:
        """Send a command; return the data of its response.

        Raises:
            SwarmError: it was refused. ChildGone: the process has ended.
        """
        id = f"swarm-{next(self._ids)}"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[id] = answer
        try:
            self._send({"id": id, "type": type, **fields})
            response = await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError as error:
            raise SwarmError(f"no answer to {type!r} within {ANSWER_SECONDS:.0f} s") from error
        finally:
            self._answers.pop(id, None)
        if response.get("success") is not True:
            raise SwarmError(str(response.get("error") or f"{type!r} was refused"))
        data = response.get("data")
        return data if isinstance(data, dict) else {}

    async def stop(self) -> int:
        """Close stdin and wait; kill the process if it does not exit. Return the exit code."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self.kill()
        return await self.ended()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    async def ended(self) -> int:
        code = await self._process.wait()
        await asyncio.gather(*self._tasks)
        return code

    def said(self) -> str:
        return self._stderr.decode(errors="replace").strip()

    def _send(self, fields: dict[str, Any]) -> None:
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing() or self.gone.is_set():
            raise ChildGone("the agent's process has ended")
        stdin.write(encode_line(fields))

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        splitter = LineSplitter(MAX_FRAME)
        try:
            while data := await stdout.read(65536):
                for line in splitter.feed(data):
                    if not isinstance(line, LineTooLong):
                        self._take(line)
        finally:
            self.gone.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ChildGone("the agent's process has ended"))

    def _take(self, line: bytes) -> None:
        fields = fields_of(line)
        if not fields:
            return
        answer = self._answers.get(str(fields.get("id"))) if "command" in fields else None
        if answer is not None and not answer.done():
            answer.set_result(fields)
        else:
            self._on_frame(line, fields)

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while data := await stderr.read(65536):
            self._stderr = (self._stderr + data)[-STDERR_KEPT:]
