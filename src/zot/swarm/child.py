"""Local agents: a `zot rpc` child process, and its drive through all messages of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from zot.errors import ConfigError
from zot.home import own_command, own_environ
from zot.lines import LineSplitter, LineTooLong
from zot.observe.facts import fields_of
from zot.provider import catalog
from zot.rpc_process import ClientTimeoutError, RpcProcess, ServerGoneError
from zot.swarm import rows
from zot.swarm.log import LEDGER, AgentFolder
from zot.swarm.task import SwarmError, SwarmTask
from zot.swarm.worktrees import Worktree

if TYPE_CHECKING:
    from zot.swarm.runner import AgentRunner, Supervised

FEATURES = ("codes", "dialogs", "queue", "retries", "seq", "thinking", "tools")
ANSWER_SECONDS = 60.0
STOP_SECONDS = 10.0
STDERR_LENGTH = 8 * 1024
"""Characters of stderr that are shown: the last ones."""
MAX_FRAME = 64 * 1024 * 1024
"""Maximum length of a frame, in bytes; longer ones are dropped."""
WRITERS = ThreadPoolExecutor(8, "rpc-write")
"""Threads that send requests: not the default ones, which may all be waiting for git."""
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
            send = partial(self._server.send, id, type, fields, ANSWER_SECONDS)
            await self._loop.run_in_executor(WRITERS, send)
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
        code = self._server.end(0)
        if self._failure is not None:
            raise self._failure
        return code

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


class AgentDrive:
    """One process of a local agent: starts it, logs the frames that were missed, runs the waiting
    messages, commits the work, and logs the exit."""

    def __init__(self, runner: AgentRunner, supervised: Supervised) -> None:
        self._runner = runner
        self._supervised = supervised
        self._agent = supervised.agent
        self._child = AgentChild(self._on_frame)
        self._early: list[tuple[bytes, dict[str, Any]]] | None = []
        """Live frames, until the frames missed without a supervisor are in the log."""
        self._run_over = asyncio.Event()
        self._hold_reason = ""
        """Why the run waits for a person's permission to continue."""
        self._requests: set[asyncio.Task[None]] = set()

    async def run(self, tree: Worktree) -> None:
        """Raises SwarmError, OSError: the agent cannot go on; its work is not committed."""
        supervised, agent, child = self._supervised, self._agent, self._child
        environment = own_environ({**self._runner.environment, **supervised.environment})
        child.start(_command(agent.task, supervised.folder), tree.cwd, environment)
        supervised.child = child
        supervised.note(rows.AgentStarted(agent.attempt + 1, child.pid))
        try:
            approvals = ("approvals",) if agent.task.approve else ()
            hello = await child.request("hello", features=(*FEATURES, *approvals))
            self._note_model(str(hello.get("provider")), str(hello.get("model")))
            await self._log_missed()
            while agent.waiting and await self._run_message(next(iter(agent.waiting))):
                pass
            code = await child.stop()
        except ChildGone:
            code = await child.ended()
        except asyncio.CancelledError:
            child.kill()
            await child.ended()
            raise
        except SwarmError:
            await child.stop()
            raise
        self._runner.ledger.release(self._runner.local_pids() - {str(child.pid)})
        if not agent.waiting:
            await self._runner.commit_work(supervised, tree)
        supervised.note(rows.Exited(code, child.stderr if agent.waiting else ""))

    def _note_model(self, provider: str, model: str) -> None:
        window = 0
        with contextlib.suppress(ConfigError, KeyError):  # a provider or model the user defined
            listed = catalog.find(provider, model)
            window = listed.context_window if listed.source == "catalog" else 0
        runs_on = rows.RunsOn(model, window)
        if runs_on != self._agent.runs_on:
            self._supervised.note(runs_on)

    async def _log_missed(self) -> None:
        """Log the frames that were sent while no supervisor was running, then the live ones."""
        more = self._agent.attempt > 1
        while more:
            data = await self._child.request("events", **{"from": self._agent.last_seq})
            for event in data.get("events", ()):
                self._take(msgspec.json.encode(event), event)
            more = data.get("more") is True
        early, self._early = self._early, None
        for line, fields in early or ():
            self._take(line, fields)

    async def _run_message(self, run: str) -> bool:
        """Run one message to its end; False: the run is held, and a person must decide."""
        self._run_over.clear()
        self._hold_reason = ""
        limits, used_up = self._agent.left()  # a resumed run keeps its first limits
        text = self._agent.waiting[run]
        data = await self._child.request("prompt", message=text, run=run, **limits)
        if data.get("already_done"):
            self._supervised.note(_stored_end(run, data.get("end")), sync=True)
            return True
        over = asyncio.create_task(self._run_over.wait())
        gone = asyncio.create_task(self._child.gone.wait())
        try:
            await asyncio.wait((over, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            gone.cancel()
        if not self._run_over.is_set():
            raise ChildGone("the agent's process has ended")
        if self._hold_reason:
            self._supervised.note(rows.Lost(self._hold_reason), sync=True)
            return False
        outcome, error = self._agent.outcome()
        if outcome == "limit" and used_up:
            error = used_up
        self._supervised.note(rows.RunOver(run, outcome, error), sync=True)
        return True

    def _on_frame(self, line: bytes, fields: dict[str, Any]) -> None:
        if self._early is not None:
            self._early.append((line, fields))
        else:
            self._take(line, fields)

    def _take(self, line: bytes, fields: dict[str, Any]) -> None:
        supervised = self._supervised
        if not supervised.take_frame(line, fields):
            return
        match fields.get("type"):
            case "usage":
                self._book()
            case "done":
                self._book()
                self._run_over.set()
            case "run_held" if supervised.resume_held:
                supervised.resume_held = False
                self._request_later("resume_run", run=fields.get("run"))
            case "run_held":
                self._hold_reason = str(fields.get("reason") or "it crashed too often")
                self._run_over.set()
            case "run_resumed" if fields.get("run") not in self._agent.waiting:
                # The run was cancelled, but the process died before it got the abort.
                self._request_later("abort")

    def _book(self) -> None:
        pid, id = str(self._child.pid), self._supervised.folder.id
        self._runner.ledger.book(pid, id, self._agent.spent())

    def _request_later(self, command: str, **fields: Any) -> None:
        """Send a command from synchronous code; nobody needs its response."""

        async def request() -> None:
            with contextlib.suppress(SwarmError):
                await self._child.request(command, **fields)

        task = asyncio.create_task(request())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)


def _stored_end(run: str, end: Any) -> rows.RunOver:
    """Return the end of a run that finished while no supervisor listened."""
    fields = end if isinstance(end, dict) else {}
    error = str(fields.get("error") or "")
    if fields.get("stop") == "aborted":
        return rows.RunOver(run, "aborted")
    if error:
        return rows.RunOver(run, "limit" if fields.get("code") == "limit" else "failed", error)
    return rows.RunOver(run, "answered")


def _jail(words: bool | str) -> list[str]:
    if not words:
        return []
    return [f"--jail={words}" if isinstance(words, str) else "--jail"]


def _command(task: SwarmTask, folder: AgentFolder) -> list[str]:
    words = own_command("rpc", "--session", str(folder.session), "--durable")
    words += ["--no-swarm"]  # nobody would see agents started by agents
    words += ["--spend-file", str(folder.path.parent.parent / LEDGER)]
    for flag, value in (
        ("--provider", task.provider),
        ("--model", task.model),
        ("--approve", ",".join(task.approve)),
        ("--approval-timeout", "none" if task.approve else ""),  # wait for the user
        ("--max-steps", task.max_steps),
    ):
        if value:
            words += [flag, str(value)]
    return [*words, *_jail(task.jail), *task.words]
