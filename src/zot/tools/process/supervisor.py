"""Running commands from zot's side: start the helper, hand it a command, read its output.

keeper.py has the helper and the keepers, which handle the processes themselves.
"""

from __future__ import annotations

import array
import fcntl
import marshal
import os
import pathlib
import select
import signal
import signal as signals
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from zot import trees
from zot.cancel import Cancel
from zot.errors import NotStarted, ToolError
from zot.tools.process import keeper

READ = 1 << 16
PIPE = 1 << 20
PATIENCE = 6.0
"""Seconds that the helper may take to end a command before the helper itself is ended."""
FIRST_LOOK, LAST_LOOK = 0.05, 1.0
"""Shortest and longest pause, in seconds, between looks for a report while the pipe is open."""
ATTEMPTS = 3
MAX_PROCESSES = 2000
"""Limit of simultaneous processes of a command; beyond it the command is ended as a fork bomb."""
DRAIN = 4 << 20
"""Maximum bytes read from a pipe after the command's end: more than a pipe holds."""
MARK = "ZOT_COMMAND"
"""Variable that every process of a command has, unless it empties its environment."""
SWEEP_SECONDS = 1.0
BARE_SECONDS = 0.5
"""Seconds to wait for a process without an environment, which may be in the middle of exec."""

End = Literal["exited", "timed_out", "aborted", "supervisor_killed", "too_many_processes"]
Report = tuple[int, int, list[str], list[str], str]
ENDS: dict[int, End] = {
    keeper.EXITED: "exited",
    keeper.TIMED_OUT: "timed_out",
    keeper.ABORTED: "aborted",
    keeper.KEEPER_KILLED: "supervisor_killed",
    keeper.TOO_MANY: "too_many_processes",
}


class ProcessResult(Struct, frozen=True):
    end: End
    exit_code: int | None
    """None when the shell was ended by a signal, or by zot."""
    signal: str | None = None
    """The name of the signal that ended the shell."""
    leftovers: tuple[str, ...] = ()
    """Background processes that were stopped when the shell exited; only the first are named."""
    survivors: tuple[str, ...] = ()
    """Processes that could not be killed."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """Further remarks for the caller."""

    @property
    def timed_out(self) -> bool:
        return self.end == "timed_out"

    @property
    def aborted(self) -> bool:
        return self.end == "aborted"


class Supervisor:
    """Runs commands, from several threads at once if need be, and leaves no process behind.

    The helper process starts with the first command and ends with `close`, or when this process
    ends in any way. A helper that was killed is started again by the next command.
    """

    def __init__(self, max_processes: int = MAX_PROCESSES) -> None:
        self._max_processes = max_processes
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = 0
        self._free: socket.socket | None = None
        """The control socket of a keeper that waits for its next command."""
        self._closed = False

    def run(
        self,
        argv: Sequence[str],
        cwd: pathlib.Path,
        env: Mapping[str, str],
        on_output: Callable[[bytes], None],
        cancel: Cancel,
        timeout: float | None = None,
        plan: bytes = b"",
        program: str = "",
    ) -> ProcessResult:
        """Run `program` (default: argv[0]) to its end. `on_output` gets stdout and stderr as they
        come; `plan` is the data for the keeper of a jailed program (walls.py).

        The run is over when the first process exits; remaining processes are stopped. An abort
        raises no exception: the result reports it, and nothing is left running.

        Raises:
            NotStarted: there is no such program.
            ToolError: no command can be started.
        """
        started = time.monotonic()
        mark = os.urandom(8).hex()
        marked = {**env, MARK: mark}
        job = program or argv[0], list(argv), str(cwd), marked, timeout, self._max_processes, plan
        body = marshal.dumps(job)
        for _ in range(ATTEMPTS):
            try:
                control, output = self._start(body)
            except (ConnectionError, TimeoutError):
                continue  # the helper was killed or hangs: retry with a new one
            except OSError as error:
                raise ToolError(f"cannot run commands: {error.strerror or error}") from error
            try:
                command = RunningCommand(control, output, on_output, cancel)
                report = command.wait(timeout, self._force)
                if report is not None and keeper.clean(report[0], report[2], report[3]):
                    self._keep(control)
            finally:
                # After an error, closing this end also ends the command.
                control.close()
                os.close(output)
            # A helper that is killed may lose a command it received; then nothing has run.
            if command.started or cancel.is_set():
                if report is None:
                    self._bury()
                    trees.end_strays()
                    _sweep(f"{MARK}={mark}")
                return _result(report, time.monotonic() - started)
        raise ToolError(f"cannot run commands: their supervisor, {sys.executable!r}, ends at once")

    def get_ready(self) -> None:
        """Start the helper ahead of the next command, to save it the wait."""
        with self._lock:
            try:
                self._started()
            except (OSError, ToolError):
                pass  # the next command will report the error

    def close(self) -> None:
        """End the helper, and with it every command that still runs. Takes well under a second."""
        with self._lock:
            self._closed = True
            self._stop()

    # --- the helper --------------------------------------------------------------------------

    def _start(self, body: bytes) -> tuple[socket.socket, int]:
        """Send a command; return our ends of its control socket and its output pipe."""
        output, output_end = os.pipe()
        try:
            return self._hand_over(body, output_end), output
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(output_end)

    def _hand_over(self, body: bytes, output: int) -> socket.socket:
        """Send a command to the free keeper, or else to the helper, which forks one."""
        message = len(body).to_bytes(4, "big") + body
        with self._lock:
            helper = self._started()
            trees.send([self._pid], signal.SIGCONT)  # an earlier command may have stopped it
            keeper, self._free = self._free, None
            if keeper is not None and _takes(keeper, message, output):
                return keeper
            control, theirs = socket.socketpair()
            try:
                sent = helper.sendmsg([message], _rights(output, theirs.fileno()))
                helper.sendall(memoryview(message)[sent:])
            except OSError:
                control.close()
                self._stop()
                raise
            finally:
                theirs.close()
            return control

    def _keep(self, control: socket.socket) -> None:
        """Keep the socket of a reusable keeper. It is detached, so that a late abort of the old
        command does not end the next one."""
        with self._lock:
            if self._free is None and not self._closed:
                kept = control.detach()
                self._free = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=kept)

    def _started(self) -> socket.socket:
        if self._closed:
            raise ToolError("cannot run commands: the runtime is closed")
        if self._socket is not None and _alive(self._socket):
            return self._socket
        self._stop()
        if not sys.executable:
            raise ToolError("cannot run commands: there is no Python interpreter to supervise them")
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        # The environment is empty because a command can read that of its parents.
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                trees.launch("tools.process.keeper", "3"),
                {},
                setsigmask=[],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, 0, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                ],
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        trees.own.add(self._pid)
        self._socket = ours
        return ours

    def _stop(self) -> None:
        if self._free is not None:
            self._free.close()
            self._free = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid:
            trees.send([self._pid], signal.SIGCONT)  # a command may have stopped it
            _wait(self._pid, PATIENCE)
            trees.own.discard(self._pid)
            self._pid = 0

    def _bury(self) -> None:
        """Wait for the end of a dying helper: until then its orphans are still below it and would
        be spared as its own."""
        with self._lock:
            if self._socket is not None and not _alive(self._socket):
                self._stop()

    def _force(self) -> None:
        """End the helper, and with it every keeper, as the last resort against one that hangs."""
        with self._lock:
            self._stop()


class RunningCommand:
    """A running command: reads its output until its keeper reports the end."""

    def __init__(
        self,
        control: socket.socket,
        output: int,
        on_output: Callable[[bytes], None],
        cancel: Cancel,
    ) -> None:
        self._control = control
        self._output = output
        self._on_output = on_output
        self._cancel = cancel
        self._said = b""

    def wait(self, timeout: float | None, force: Callable[[], None]) -> Report | None:
        """Return the keeper's report, or None if helper and keeper are gone."""
        os.set_blocking(self._output, False)
        _widen(self._output)
        with self._cancel.calling(self._end):
            self._read(timeout, force)
        self._drain()
        body = self._said[5:]
        return marshal.loads(body) if body and len(body) == self._size() else None

    @property
    def started(self) -> bool:
        """Whether a keeper accepted the command; otherwise nothing has run."""
        return self._said.startswith(b"+")

    def _size(self) -> int:
        return int.from_bytes(self._said[1:5], "big")

    def _end(self) -> None:
        """Signal the keeper to end the command. Runs in the thread that aborts."""
        try:
            self._control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended

    def _read(self, timeout: float | None, force: Callable[[], None]) -> None:
        # Data on the control socket does not wake this loop, only its hang-up: the pipe ends after
        # the report, and one wake-up is enough. If a process outside the tree holds the pipe open,
        # a periodic look at the socket finds the report.
        poll = select.poll()
        poll.register(self._control, 0)
        poll.register(self._output, select.POLLIN)
        now, pause = time.monotonic(), FIRST_LOOK
        look = now + pause
        # The keeper enforces the timeout; this is the fallback if it was frozen.
        late = None if timeout is None else now + timeout + PATIENCE
        told = forced = False
        while True:
            ready = {fd for fd, _ in poll.poll(pause * 1000)}
            now = time.monotonic()
            if self._output in ready and not self._take():
                poll.unregister(self._output)
                poll.modify(self._control, select.POLLIN)
            if self._control.fileno() in ready or now >= look:
                if not self._listen():
                    return
                pause = min(2 * pause, LAST_LOOK)
                look = now + pause
            if self._cancel.is_set() and not told:
                told, late = True, now
            if late is not None and now > late and not told:
                told = True
                self._end()
            if late is not None and now > late + PATIENCE and not forced:
                forced = True
                force()

    def _take(self) -> bool:
        """Pass on data from the pipe; return False at its end."""
        try:
            data = os.read(self._output, READ)
        except BlockingIOError:
            return True
        if data:
            self._on_output(data)
        return bool(data)

    def _listen(self) -> bool:
        """Read from the keeper: one byte when it begins, then its length-prefixed report. Return
        False when the report is complete or the keeper is gone."""
        try:
            data = self._control.recv(READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:  # the keeper ended without having read the command
            return False
        self._said += data
        return bool(data) and (len(self._said) < 5 or len(self._said) < 5 + self._size())

    def _drain(self) -> None:
        """Read what the command wrote before it ended, without waiting for the end of the pipe: a
        process outside the tree may hold it open."""
        for _ in range(DRAIN // READ):
            try:
                data = os.read(self._output, READ)
            except BlockingIOError:
                return
            if not data:
                return
            self._on_output(data)


def _rights(*fds: int) -> list[tuple[int, int, array.array[int]]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


def _takes(keeper: socket.socket, message: bytes, output: int) -> bool:
    """Send a command to a keeper; return False if it is gone or slow, and has not begun."""
    try:
        if _alive(keeper):
            sent = keeper.sendmsg([message], _rights(output), socket.MSG_DONTWAIT)
            if sent == len(message):
                return True
    except OSError:
        pass
    keeper.close()  # a keeper ignores an incomplete command
    return False


def _widen(pipe: int) -> None:
    """Enlarge the pipe's buffer, which saves context switches; the system may refuse."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
    except (AttributeError, OSError):
        pass


def _sweep(mark: str) -> None:
    """Kill what is left of a command that killed its helper and keeper at once. Its processes were
    not inherited by zot, so only their environment identifies them."""
    started = time.monotonic()
    while (passed := time.monotonic() - started) < SWEEP_SECONDS:
        left, bare = _marked(mark.encode())
        if left:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                trees.send(left, number)
        elif bare and passed < BARE_SECONDS:
            time.sleep(0.001)
        else:
            return


def _marked(mark: bytes) -> tuple[list[int], bool]:
    """Return the processes with the mark, and whether any process has an empty environment: it may
    be in the middle of exec, and show its own in a moment."""
    pids: list[int] = []
    bare = False
    proc = pathlib.Path("/proc")
    for entry in proc.iterdir() if (proc / "self").exists() else ():
        try:
            if not entry.name.isdigit():
                continue
            environment = (entry / "environ").read_bytes()
            if mark in environment:
                pids.append(int(entry.name))
            elif not environment:
                (entry / "exe").readlink()  # raises for zombies and kernel threads
                bare = True
        except OSError:
            continue  # it ended, or belongs to another user
    return pids, bare


def _result(report: Report | None, seconds: float) -> ProcessResult:
    if report is None:
        return ProcessResult(end="supervisor_killed", exit_code=None, seconds=seconds)
    why, status, leftovers, survivors, error = report
    if error:
        raise NotStarted(f"cannot run the command: {error}")
    end = ENDS[why]
    code = os.waitstatus_to_exitcode(status) if end == "exited" else None
    return ProcessResult(
        end=end,
        exit_code=code if code is not None and code >= 0 else None,
        signal=_signal_name(-code) if code is not None and code < 0 else None,
        leftovers=tuple(leftovers),
        survivors=tuple(survivors),
        seconds=seconds,
    )


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal has no name


def _alive(connection: socket.socket) -> bool:
    """Return whether the peer lives. It sends nothing while idle, so readable means it is gone."""
    poll = select.poll()  # not select(): it cannot wait for descriptors above 1023
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)


def _wait(pid: int, seconds: float) -> None:
    """Reap the helper; kill it if it takes too long."""
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return  # other code has reaped it
        if time.monotonic() > deadline:
            trees.send([pid], signal.SIGKILL)
            deadline += seconds
        time.sleep(pause)
        pause = min(0.02, pause * 2)
