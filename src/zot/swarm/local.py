"""The swarm of this machine: a client of its supervisor, which is started when it is needed.

swarm = LocalSwarm(home, os.environ)
id = swarm.submit("fix the flaky test", directory=".")
for position, row in swarm.events(id, follow=True):
    ...
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from zot.files import ensure_dir
from zot.home import own_command, own_environ
from zot.ledger import Ledger, Spending
from zot.lines import encode_line
from zot.swarm import commands
from zot.swarm.agent import AgentSummary, SwarmAgent
from zot.swarm.log import LEDGER, AgentFolder, Roster, agent_folders, read_log
from zot.swarm.rows import LogRow
from zot.swarm.task import BadTask, SwarmError, SwarmTask, new_id, pick

TEMPORARY = Path("/tmp")
"""Parent of short socket paths. Not TMPDIR: programs of one user may have different ones."""
START_SECONDS = 20.0
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 600.0
"""Timeout of an answer: a merge or a diff of a large repository takes a while."""
POLL_SECONDS = 0.1
LOOK_SECONDS = 5.0
"""Seconds between two checks, while following an agent, whether a supervisor runs."""
MAX_SOCKET_PATH = 100
"""Maximum length of a socket path in bytes; Linux allows 108, macOS 104."""
T = TypeVar("T")


def socket_path(swarm: Path) -> Path:
    """Return the socket's path: in the swarm's folder, unless that is too long for a socket.

    Raises:
        SwarmError: the folder belongs to another user, who would receive what is sent.
    """
    path = swarm / "socket"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    return short_path("swarm", swarm, "set ZOT_HOME to a shorter path")


def short_path(kind: str, long: Path, otherwise: str) -> Path:
    """Return a short, stable path for sockets of a folder. Raises SwarmError: it is not safe."""
    name = hashlib.sha256(os.fsencode(long)).hexdigest()[:16]
    folder = ensure_dir(TEMPORARY / f"zot-{os.getuid()}")
    status = folder.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise SwarmError(f"{str(folder)!r} is not yours alone: {otherwise}")
    return folder / f"{kind}-{name}"


class LocalSwarm:
    """Client of the swarm. Queries read the files; changes go to the supervisor."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._swarm = home / "swarm"
        self._environment = own_environ(environment)
        self._ledger = Ledger(str(self._swarm / LEDGER))
        self._roster = Roster(self._swarm)
        self._reading = threading.Lock()
        """Held while a thread reads the logs."""

    # --- reading -----------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder with all files of the swarm."""
        return self._swarm

    def agents(self) -> list[AgentSummary]:
        """Return all agents. Starts a supervisor if none runs and an agent has work left."""
        if not self.is_supervised():
            with self._reading:
                self._roster.refresh()
                agents = [followed.agent for followed in self._roster.agents.values()]
                if not any(agent.is_unfinished for agent in agents):
                    return [agent.summary() for agent in agents]
        return self._ask(commands.ListAgents(), list[AgentSummary])

    def keep_going(self, roster: Roster) -> None:
        """Start a supervisor if none runs and one of these agents has work left."""
        if roster.is_busy() and not self.is_supervised():
            self.agents()

    def unreadable(self) -> list[str]:
        """Return the errors of agents that cannot be listed."""
        problems = []
        for folder in agent_folders(self._swarm):
            try:
                folder.task()
            except SwarmError as error:
                problems.append(str(error))
        return problems

    def show(self, beginning: str) -> AgentSummary:
        id = self.pick(beginning)
        return next(summary for summary in self.agents() if summary.id == id)

    def pick(self, beginning: str) -> str:
        """Return the one id with this prefix."""
        return pick([folder.id for folder in agent_folders(self._swarm)], beginning)

    def task(self, beginning: str) -> SwarmTask:
        task = self._folder(beginning).task()
        if task is None:
            raise SwarmError(f"{beginning!r} was never finished being made: remove it")
        return task

    def events(
        self, beginning: str, start: int = 0, *, follow: bool = False
    ) -> Iterator[tuple[int, LogRow]]:
        """Yield the rows of its log from a position on, each with the position after it: a reader
        that resumes from its last position gets every row exactly once. With `follow`, wait for new
        rows until the agent has nothing left to do."""
        folder = self._folder(beginning)
        if not follow:
            yield from read_log(folder.log, start)
            return
        agent = SwarmAgent(self.task(beginning))
        read = 0
        look_at = 0.0
        while True:
            for position, row in read_log(folder.log, read):
                read = position
                agent.take(row)
                if position > start:
                    yield position, row
            if not agent.is_unfinished:
                return
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_SECONDS
                self.agents()  # starts the supervisor if needed
            time.sleep(POLL_SECONDS)

    def _folder(self, beginning: str) -> AgentFolder:
        return AgentFolder(self._swarm / "agents" / self.pick(beginning))

    def spending(self) -> Spending:
        """Return the spending of all agents together, and its limits."""
        return self._ledger.read()

    def budget(
        self,
        max_usd: float | None = None,
        max_tokens: int | None = None,
        max_minutes: float | None = None,
    ) -> None:
        """Limit what all agents together may spend; None: no limit."""
        ensure_dir(self._swarm)
        self._ledger.limit(max_usd, max_tokens, max_minutes)

    # --- changing ----------------------------------------------------------------------------

    def submit(self, prompt: str, directory: str = ".", **options: Any) -> str:
        """Start a new agent for a task; return its id. The task is stored when this returns.
        Options are the fields of SwarmTask."""
        fields = {"id": "", "prompt": prompt, "directory": directory, "created": 0, **options}
        try:
            task = msgspec.convert(fields, SwarmTask)
        except msgspec.ValidationError as error:
            raise BadTask(f"not a task: {error}") from error
        if unknown := fields.keys() - set(SwarmTask.__struct_fields__):
            raise BadTask(f"not a task: there is no option {sorted(unknown)[0]!r}")
        if not Path(task.directory).is_dir():
            raise BadTask(f"{task.directory!r} is not a directory")
        task = replace(
            task,
            id=task.id or new_id(task.prompt),
            directory=os.path.realpath(task.directory),
            created=time.time(),
        )
        return self._ask(commands.Submit(task, self._environment), str)

    def send(self, agent: str, text: str) -> str:
        """Queue a message for the agent's next run; return the name of that run."""
        return self._ask(commands.Send(agent, text), str)

    def steer(self, agent: str, text: str) -> None:
        """Send a message that the agent gets after the current tool."""
        self._do(commands.TellAgent(agent, "steer", {"message": text}))

    def approve(
        self,
        agent: str,
        request_id: str,
        decision: Literal["allow", "deny", "allow_session"],
        reason: str = "",
    ) -> None:
        """Allow or deny a tool call."""
        fields = {"request_id": request_id, "decision": decision, "reason": reason}
        self._do(commands.TellAgent(agent, "approve", fields))

    def answer(
        self,
        agent: str,
        request_id: str,
        *,
        value: str | None = None,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> None:
        """Answer an extension's question."""
        fields = {"value": value, "confirmed": confirmed, "cancelled": cancelled}
        self._do(commands.TellAgent(agent, "answer", {"request_id": request_id, **fields}))

    def cancel(self, agent: str) -> None:
        """Stop the agent; its work is kept."""
        self._do(commands.CancelAgent(agent))

    def retry(self, agent: str) -> None:
        self._do(commands.RetryAgent(agent))

    def diff(self, agent: str) -> str:
        return self._ask(commands.DiffAgent(agent), str)

    def merge(self, agent: str, *, squash: bool = False) -> str:
        """Merge its work into the checkout; return the resulting commit."""
        return self._ask(commands.MergeAgent(agent, squash), str)

    def collected(self, agent: str, run: str) -> None:
        """Record that the conversation that started the agent got the result of this run."""
        self._do(commands.CollectAnswer(agent, run))

    def remove(self, agent: str) -> None:
        self._do(commands.RemoveAgent(agent))

    def gc(self, *, try_only: bool = False) -> Sequence[commands.FreedAgent]:
        """Remove agents without unsaved work; return them with the bytes freed."""
        return self._ask(commands.CollectGarbage(try_only), list[commands.FreedAgent])

    def stop(self) -> None:
        """End the supervisor, if one runs."""
        if self.is_supervised():
            self._do(commands.StopSupervisor())

    # --- the supervisor ----------------------------------------------------------------------

    def _do(self, command: commands.AnySwarmCommand) -> None:
        self._ask(command, object)

    def _ask(self, command: commands.AnySwarmCommand, type: type[T]) -> T:
        deadline = time.monotonic() + START_SECONDS
        while True:
            reply = self._reply_to(command)
            if reply is not None or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if reply is None:
            raise SwarmError("the supervisor is ending, and does not end; try again")
        if not reply.ok:
            error = SwarmError(reply.error)
            error.code = reply.code
            raise error
        return msgspec.convert(reply.data, type)

    def _reply_to(self, command: commands.AnySwarmCommand) -> commands.SwarmReply | None:
        """Ask the supervisor; None: it is ending and did not begin, so ask the next one."""
        try:
            line = self._answer_to(command)
        except ConnectionError:
            return None
        if not line:
            raise SwarmError(f"the supervisor ended; its log is {self._swarm / 'supervisor.log'}")
        reply = msgspec.json.decode(line, type=commands.SwarmReply)
        return None if reply.code == commands.STOPPING else reply

    def _answer_to(self, command: commands.AnySwarmCommand) -> bytes:
        """Return the answer line; empty: the supervisor ended. Raises ConnectionError: it had not
        read the command either."""
        connection = self._connect() or self._start()
        with connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(encode_line(command))
            with connection.makefile("rb") as answers:
                return answers.readline()

    def is_supervised(self) -> bool:
        """Whether a supervisor runs. Starts none, and does not wait for one that hangs."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            tried = connection.connect_ex(str(socket_path(self._swarm)))
        return tried in (0, errno.EAGAIN)  # EAGAIN: it listens, but its queue is full

    def _connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect(str(socket_path(self._swarm)))
        except OSError:
            connection.close()
            return None
        return connection

    def _start(self) -> socket.socket:
        """Start a supervisor that outlives this process; return a connection to it."""
        log = ensure_dir(self._swarm) / "supervisor.log"
        log.touch(0o600)
        command = own_command("swarm", "supervise")
        # The shell exits at once, so the supervisor is not our child and needs no wait().
        detached = ["/bin/sh", "-c", 'exec >>"$0" 2>&1 </dev/null; "$@" &', str(log), *command]
        subprocess.run(detached, env=self._environment, start_new_session=True, check=False)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            connection = self._connect()
            if connection is not None:
                return connection
            time.sleep(0.02)
        last = "".join(log.read_text(errors="replace").splitlines()[-1:])
        raise SwarmError(f"the supervisor does not start ({last}); its log is {str(log)!r}")
