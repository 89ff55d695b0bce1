"""Runs commands from zot's side: start the helper, hand it a command, read its output.

keeper.py has the helper and the keepers, which handle the processes themselves.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import select
import signal
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
from zot.tools.process import keeper, link

READ = 1 << 16
PIPE = 1 << 20
PATIENCE = 6.0
"""Seconds that the helper may take to end a command before the helper itself is ended."""
DYING_SECONDS = 2.0
"""Seconds that a killed helper may take to end: more than a busy machine needs."""
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
    ) -> ProcessResult:
        """Run a program to its end. `on_output` gets stdout and stderr as they come; `plan` is the
        data for the keeper of a jailed program (walls.py).

        The run is over when the first process exits; remaining processes are stopped. An abort
        raises no exception: the result reports it, and nothing is left running.

        Raises:
            NotStarted: there is no such program.
            ToolError: no command can be started.
        """
        started = time.monotonic()
        mark = os.urandom(8).hex()
        launch = list(argv), str(cwd), {**env, MARK: mark}, timeout, self._max_processes, plan
        message = link.packed(launch)
        for _ in range(ATTEMPTS):
            try:
                helper, control, output = self._start(message)
            except (ConnectionError, TimeoutError):
                continue  # the helper was killed or hangs: retry with a new one
            except OSError as error:
                raise ToolError(f"cannot run commands: {error.strerror or error}") from error
            command = RunningCommand(control, output, on_output, cancel)
            try:
                command.wait(timeout, self._force)
                report = command.link.report
                if report is not None and keeper.clean(report[0], report[2], report[3]):
                    self._keep(control)
            finally:
                # After an error, closing this end also ends the command.
                control.close()
                os.close(output)
            # A helper that is killed may lose a command it received; then nothing has run.
            if command.link.is_accepted or cancel.is_set():
                if report is None:
                    if command.link.is_gone:  # the helper holds its socket, too
                        self._bury(helper)
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

    def _start(self, message: bytes) -> tuple[int, socket.socket, int]:
        """Send a command; return the helper's pid, and our ends of the command's control socket
        and output pipe."""
        output, output_end = os.pipe()
        try:
            return *self._hand_over(message, output_end), output
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(output_end)

    def _hand_over(self, message: bytes, output: int) -> tuple[int, socket.socket]:
        """Send a command to the free keeper, or else to the helper, which forks one."""
        with self._lock:
            helper = self._started()
            trees.send([self._pid], signal.SIGCONT)  # an earlier command may have stopped it
            free, self._free = self._free, None
            if free is not None and _takes(free, message, output):
                return self._pid, free
            control, theirs = socket.socketpair()
            try:
                link.send_all(helper, message, output, theirs.fileno())
            except OSError:
                control.close()
                self._stop()
                raise
            finally:
                theirs.close()
            return self._pid, control

    def _keep(self, control: socket.socket) -> None:
        """Keep the socket of a reusable keeper. It is detached, so that a late abort of the old
        command does not end the next one."""
        with self._lock:
            if self._free is None and not self._closed:
                fd = control.detach()
                self._free = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=fd)

    def _started(self) -> socket.socket:
        if self._closed:
            raise ToolError("cannot run commands: the runtime is closed")
        if self._socket is None or not link.is_alive(self._socket):
            self._stop()
            self._pid, self._socket = link.start_process(keeper.HELPER)
            self._socket.settimeout(PATIENCE)
        return self._socket

    def _stop(self) -> None:
        if self._free is not None:
            self._free.close()
            self._free = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid:
            link.end_process(self._pid, PATIENCE)
            self._pid = 0

    def _bury(self, helper: int) -> None:
        """Wait for the end of a dying helper: until then its orphans are still below it and would
        be spared as its own. A process that was killed closes its descriptors in any order, so its
        own socket may end after that of the command."""
        with self._lock:
            if self._pid != helper or self._socket is None:
                return  # another thread has done it
            if not link.is_alive(self._socket, DYING_SECONDS):
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
        self.link = link.KeeperLink(control)
        self._output = output
        self._on_output = on_output
        self._cancel = cancel

    def wait(self, timeout: float | None, force: Callable[[], None]) -> None:
        """Read until the keeper has reported, or helper and keeper are gone."""
        os.set_blocking(self._output, False)
        _widen(self._output)
        with self._cancel.calling(self.link.end):
            self._read(timeout, force)
        for _ in range(DRAIN // READ):  # not until the pipe's end: others may hold it open
            if not self._take():
                return

    def _read(self, timeout: float | None, force: Callable[[], None]) -> None:
        # Data on the control socket does not wake this loop, only its hang-up: the pipe ends after
        # the report, and one wake-up is enough. If a process outside the tree holds the pipe open,
        # a periodic look at the socket finds the report.
        control = self.link.control
        poll = select.poll()
        poll.register(control, 0)
        poll.register(self._output, select.POLLIN)
        now, pause = time.monotonic(), FIRST_LOOK
        look = now + pause
        # The keeper enforces the timeout; this is the fallback if it was frozen.
        late = None if timeout is None else now + timeout + PATIENCE
        is_ending = is_forced = False
        while True:
            ready = {fd for fd, _ in poll.poll(pause * 1000)}
            now = time.monotonic()
            if self._output in ready and self._take() == b"":
                poll.unregister(self._output)
                poll.modify(control, select.POLLIN)
            if control.fileno() in ready or now >= look:
                if not self.link.listen():
                    return
                pause = min(2 * pause, LAST_LOOK)
                look = now + pause
            if self._cancel.is_set() and not is_ending:
                is_ending, late = True, now
            if late is not None and now > late and not is_ending:
                is_ending = True
                self.link.end()
            if late is not None and now > late + PATIENCE and not is_forced:
                is_forced = True
                force()

    def _take(self) -> bytes | None:
        """Pass on data from the pipe and return it: b"" at its end, None if there is none now."""
        try:
            data = os.read(self._output, READ)
        except BlockingIOError:
            return None
        if data:
            self._on_output(data)
        return data


def _takes(free: socket.socket, message: bytes, output: int) -> bool:
    """Send a command to a keeper; return False if it is gone or slow, and has not begun."""
    try:
        if link.is_alive(free):
            sent = link.send_packed(free, message, output, flags=socket.MSG_DONTWAIT)
            if sent == len(message):
                return True
    except OSError:
        pass
    free.close()  # a keeper ignores an incomplete command
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


def _result(report: keeper.Report | None, seconds: float) -> ProcessResult:
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
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal has no name
