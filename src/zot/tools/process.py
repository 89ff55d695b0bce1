"""Running commands from zot's side: start the helper, hand it a command, read its output.

What happens to the processes themselves is in supervisor.py.
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
from zot.tools import supervisor

READ = 1 << 16
PIPE = 1 << 20
PATIENCE = 6.0
"""Seconds that the helper may take to end a command before the helper itself is ended."""
FIRST_LOOK, LAST_LOOK = 0.05, 1.0
"""Seconds after which a report is looked for while the pipe is open: the pause grows."""
ATTEMPTS = 3
MAX_PROCESSES = 2000
"""A command that starts more at once is taken for a fork bomb and ended."""
DRAIN = 4 << 20
"""What is read of a pipe after the command's end: more than a pipe holds."""
MARK = "ZOT_COMMAND"
"""A variable that every process of a command has, unless it empties its environment."""
SWEEP_SECONDS = 1.0
BARE_SECONDS = 0.5
"""How long a process may take to become another program."""

End = Literal["exited", "timed_out", "aborted", "supervisor_killed", "too_many_processes"]
Report = tuple[int, int, list[str], list[str], str]
ENDS: dict[int, End] = {
    supervisor.EXITED: "exited",
    supervisor.TIMED_OUT: "timed_out",
    supervisor.ABORTED: "aborted",
    supervisor.KEEPER_KILLED: "supervisor_killed",
    supervisor.TOO_MANY: "too_many_processes",
}


class ProcessResult(Struct, frozen=True):
    end: End
    exit_code: int | None
    """None when the shell was ended by a signal, or by us."""
    signal: str | None = None
    """The name of the signal that ended the shell."""
    leftovers: tuple[str, ...] = ()
    """Background processes that were stopped when the shell exited; a few have names."""
    survivors: tuple[str, ...] = ()
    """Processes that could not be killed."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What else whoever asked for it should know."""

    @property
    def timed_out(self) -> bool:
        return self.end == "timed_out"

    @property
    def aborted(self) -> bool:
        return self.end == "aborted"


class Supervisor:
    """Runs commands, several at once if asked from several threads, and leaves no process behind.

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
        """Run a program to its end, argv[0] if it is not named. `on_output` gets stdout and stderr
        as they come; `plan` is what the keeper of a jailed program must know (walls.py).

        The program is over when its first process exits; what that left behind is stopped. An
        abort is not an exception here: the result says so, and nothing is left running.

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
                continue  # the helper was killed, or hangs: a new one can do it
            except OSError as error:
                raise ToolError(f"cannot run commands: {error.strerror or error}") from error
            try:
                command = RunningCommand(control, output, on_output, cancel)
                report = command.wait(timeout, self._force)
                if report is not None and supervisor.clean(report[0], report[2], report[3]):
                    self._keep(control)
            finally:
                # Closing this end also ends the command, if an error brought us here.
                control.close()
                os.close(output)
            # A helper that was just killed may take a command with it; then nothing has run.
            if command.started or cancel.is_set():
                if report is None:
                    self._bury()
                    trees.end_strays()
                    _sweep(f"{MARK}={mark}")
                return _result(report, time.monotonic() - started)
        raise ToolError(f"cannot run commands: their supervisor, {sys.executable!r}, ends at once")

    def get_ready(self) -> None:
        """Start the helper: a command that comes next need not wait for all of that."""
        with self._lock:
            try:
                self._started()
            except (OSError, ToolError):
                pass  # the command meets it too, and tells

    def close(self) -> None:
        """End the helper, and with it every command that still runs. Takes well under a second."""
        with self._lock:
            self._closed = True
            self._stop()

    # --- the helper --------------------------------------------------------------------------

    def _start(self, body: bytes) -> tuple[socket.socket, int]:
        """Hand a command over; our ends of its control socket and its output."""
        output, output_end = os.pipe()
        try:
            return self._hand_over(body, output_end), output
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(output_end)

    def _hand_over(self, body: bytes, output: int) -> socket.socket:
        """Give a command to the keeper that is free, else to the helper, which makes one."""
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
        """Its keeper can have the next command. Detached: an abort that is late must not end it."""
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
        # No secret may stand in its environment: a command can read that of its parents.
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                trees.launch("tools.supervisor", "3"),
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
        """Wait for the end of a helper that is dying: until then what it watched over is still
        below it, and is taken for its own."""
        with self._lock:
            if self._socket is not None and not _alive(self._socket):
                self._stop()

    def _force(self) -> None:
        """End the helper, which ends every keeper: the last answer to one that hangs."""
        with self._lock:
            self._stop()


class RunningCommand:
    """One running command: reads its output until its keeper reports the end."""

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
        """The keeper's report, or None if there is nobody left to give one."""
        os.set_blocking(self._output, False)
        _widen(self._output)
        with self._cancel.calling(self._end):
            self._read(timeout, force)
        self._drain()
        body = self._said[5:]
        return marshal.loads(body) if body and len(body) == self._size() else None

    @property
    def started(self) -> bool:
        """Whether a keeper took the command; without one nothing has run."""
        return self._said.startswith(b"+")

    def _size(self) -> int:
        return int.from_bytes(self._said[1:5], "big")

    def _end(self) -> None:
        """Tell the keeper to end the command. Runs in the thread that aborts."""
        try:
            self._control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended

    def _read(self, timeout: float | None, force: Callable[[], None]) -> None:
        # Not woken by what the keeper says, only when it is gone: the pipe ends after its report,
        # and one wake-up is enough. Should somebody outside the tree hold the pipe open, a look
        # at the socket now and then finds the report.
        poll = select.poll()
        poll.register(self._control, 0)
        poll.register(self._output, select.POLLIN)
        now, pause = time.monotonic(), FIRST_LOOK
        look = now + pause
        # The keeper keeps the time; this is for the case that it was frozen.
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
        """Hand on what is in the pipe; False at its end."""
        try:
            data = os.read(self._output, READ)
        except BlockingIOError:
            return True
        if data:
            self._on_output(data)
        return bool(data)

    def _listen(self) -> bool:
        """Read what the keeper says: a byte when it begins, then its report with its length in
        front. False when that is complete, or when the keeper is gone."""
        try:
            data = self._control.recv(READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:  # it went without having read the command
            return False
        self._said += data
        return bool(data) and (len(self._said) < 5 or len(self._said) < 5 + self._size())

    def _drain(self) -> None:
        """What the command had written before it ended. Not until the end of the pipe: a process
        outside the tree may hold it open."""
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
    """Offer a command to a keeper; False: it is gone, or slow, and has not begun."""
    try:
        if _alive(keeper):
            sent = keeper.sendmsg([message], _rights(output), socket.MSG_DONTWAIT)
            if sent == len(message):
                return True
    except OSError:
        pass
    keeper.close()  # with a part of a command it does nothing
    return False


def _widen(pipe: int) -> None:
    """A larger pipe saves switches between the writer and us; the system may refuse."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
    except (AttributeError, OSError):
        pass


def _sweep(mark: str) -> None:
    """Kill what is left of a command that killed all its supervisors at once. Nobody inherited
    its processes, so they are known only by their environment."""
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
    """The processes with the mark, and whether any has no environment at all: it may just be
    becoming another program, and show its own in a moment."""
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
                (entry / "exe").readlink()  # one that has ended, or is the kernel's, has none
                bare = True
        except OSError:
            continue  # it ended, or belongs to someone else
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
    """Nobody writes on this socket while we do not wait: readable means that they are gone."""
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
            return  # somebody else collected it
        if time.monotonic() > deadline:
            trees.send([pid], signal.SIGKILL)
            deadline += seconds
        time.sleep(pause)
        pause = min(0.02, pause * 2)
