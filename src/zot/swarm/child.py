"""A `zot rpc` child process of the supervisor, for its event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zot.lines import LineSplitter, LineTooLong
from zot.observe.facts import fields_of
from zot.rpc_process import ClientTimeoutError, RpcProcess, ServerGoneError
from zot.swarm.task import SwarmError

ANSWER_SECONDS = 60.0
STOP_SECONDS = 10.0
STDERR_LENGTH = 8 * 1024
"""Characters of stderr that are shown: the last ones."""
MAX_FRAME = 64 * 1024 * 1024
"""Maximum length of a frame, in bytes; longer ones are dropped."""
MAX_UNREAD = 1000
"""Frames that may wait for the event loop; then the child is not read until it catches up."""


class ChildGone(SwarmError):
    code = "server_gone"


class AgentDoor(Protocol):
    """A running agent that accepts requests, local or remote."""

    async def request(self, type: str, **fields: Any) -> dict[str, Any]: ...


class AgentChild:
    """A running local agent. `on_frame` gets each frame that is no response to a request; an
    OSError that it raises kills the child and is raised by `stop` and `ended`."""

    def __init__(self, on_frame: Callable[[bytes, dict[str, Any]], None]) -> None:
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        self._unread = threading.Semaphore(MAX_UNREAD)
        self._failure: OSError | None = None
        self.gone = asyncio.Event()

    def start(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        try:
            self._server: RpcProcess[dict[str, Any]] = RpcProcess(
                command,
                cwd=cwd,
                env=env,
                lines=LineSplitter(MAX_FRAME),
                on_line=self._take,
                on_end=self._end,
            )
        except ServerGoneError as error:
            raise SwarmError(f"{error} (in {cwd!r})") from error

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def stderr(self) -> str:
        return self._server.stderr.strip()[-STDERR_LENGTH:]

    async def request(self, type: str, **fields: Any) -> dict[str, Any]:
        """Send a command; return the data of its response.

        Raises:
            SwarmError: it was refused. ChildGone: the process has ended.
        """
        try:
            id, answer = self._server.expect()
            await asyncio.to_thread(self._server.send, id, type, fields, ANSWER_SECONDS)
            response = await asyncio.wait_for(asyncio.wrap_future(answer), ANSWER_SECONDS)
        except ServerGoneError as error:
            raise ChildGone("the agent's process has ended") from error
        except (ClientTimeoutError, TimeoutError) as error:
            raise SwarmError(f"no answer to {type!r} within {ANSWER_SECONDS:.0f} s") from error
        if response.get("success") is not True:
            raise SwarmError(str(response.get("error") or f"{type!r} was refused"))
        data = response.get("data")
        return data if isinstance(data, dict) else {}

    async def stop(self) -> int:
        """Close stdin and wait; kill the process if it does not exit. Return the exit code."""
        self._server.close_input()
        try:
            await asyncio.wait_for(self.gone.wait(), STOP_SECONDS)
        except TimeoutError:
            self.kill()
        return await self.ended()

    def kill(self) -> None:
        self._server.signal(signal.SIGKILL)

    async def ended(self) -> int:
        """Wait until all its output is read; return the exit code."""
        await self.gone.wait()
        if self._failure is not None:
            raise self._failure
        return self._server.end(0)

    # --- the reading thread ------------------------------------------------------------------

    def _take(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            return
        fields = fields_of(line)
        if "command" in fields and self._server.answer(fields.get("id"), fields):
            return
        if fields:
            self._unread.acquire()
            self._loop.call_soon_threadsafe(self._pass_on, line, fields)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self.gone.set)

    def _pass_on(self, line: bytes, fields: dict[str, Any]) -> None:
        self._unread.release()
        if self._failure is None:
            try:
                self._on_frame(line, fields)
            except OSError as error:
                self._failure = error
                self.kill()
