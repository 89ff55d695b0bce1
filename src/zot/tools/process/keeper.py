"""The processes between zot and the programs that it starts: they leave no process behind.

    zot --socket--> helper --fork--> keeper --spawn--> a command's shell --> whatever it starts
                                       \\--socket--> zot

    zot --socket--> keeper --spawn--> a program that zot talks to --> whatever it starts
      \\--pipes---------------------/

Each runtime has one helper, started with the first command. It forks a keeper for a command; if
that command leaves no process, zot gives the keeper the next one, which saves a fork. A program
that zot talks to by lines (an extension, an MCP server) has a keeper of its own, without a helper.

Helper and keepers are subreapers: a process that leaves its parent (setsid, double fork, nohup)
becomes a child of its keeper, or of the helper when a command kills its keeper. The keeper ends the
program when its first process exits, when zot requests it, on timeout, and when zot is gone, which
shows as the end of its socket; then it stops and kills its children until it has none, and reports.
Only then does it close a command's pipe: the end of the pipe wakes zot, once.

They run as `python -I -S` with an empty environment and few imports, because a command can read
`/proc/$PPID/environ`, and because their start delays the first result.
"""

from __future__ import annotations

import gc
import marshal
import os
import select
import signal
import socket
import sys
import time

from zot import trees
from zot.tools.jail import landlock, walls

HELPER, KEEPER = "helper", "keeper"
CONTROL = 3
"""Descriptor of the socket to zot, in a process that zot started."""
NATURAL_END = 0.1
"""Seconds that processes left by a program may take to finish by themselves: `cmd > >(tee log)`."""
LEAVE = 0.3
"""Seconds that a program has to end by itself when zot is gone and its stdin has ended."""
TERM_GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""
TASKS_CHECK = 0.25
"""Seconds between two looks at the number of processes."""
HANG_UP = select.POLLRDHUP if trees.TREES else select.POLLIN
"""Poll event on a keeper's socket by which the helper sees that zot closed it; the data on that
socket is for the keeper."""

# Reasons for the end of a program; zot's side uses the same numbers.
EXITED, TIMED_OUT, ABORTED, KEEPER_KILLED, NOT_STARTED, TOO_MANY, KILLED = range(7)
Report = tuple[int, int, list[str], list[str], str]
"""Reason of the end, wait status of the program, names of the processes that it left, names of
those that could not be killed, and why it did not start (or "")."""
TERMINATE, KILL = b"T", b"K"
"""Requests of zot while a program runs: send SIGTERM to all of it, or end it without SIGTERM."""


# --- the keeper: one program at a time -------------------------------------------------------


class Keeper:
    """Runs a program for zot and tells its state on the control socket: 0 when it takes the
    program (from then on it may have run), the pid when it runs, and the report at its end."""

    def __init__(self, control: socket.socket, watched: list[int]) -> None:
        """`watched`: descriptors that become readable when zot or the helper is gone."""
        self.control = control
        self.wake = trees.Wake()
        self.idle = polling(control.fileno(), *watched)
        self.running = polling(control.fileno(), self.wake.fd, *watched)
        self.orphaned = polling(*watched)
        self.null = os.dup(0)
        self.statuses: dict[int, int] = {}
        self.pid = 0
        self.has_stdin = False

    def serve(self, fds: list[int], body: bytes) -> None:
        """Run the program, and those that follow as long as each of them ends cleanly."""
        while self.run(fds, *marshal.loads(body)):
            if self.idle.poll() != [(self.control.fileno(), select.POLLIN)]:
                return  # zot or the helper is gone
            message = received(self.control, 1)
            if message is None or self.orphaned.poll(0):
                return  # zot was told nothing, so it gives the command to another keeper
            fds, body = message

    def run(
        self,
        fds: list[int],
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        timeout: float | None,
        max_processes: int,
        plan: bytes,
    ) -> bool:
        """Run one program; return whether this keeper can take another. `fds`: the output of a
        command, or stdin, stdout and stderr of a program that zot talks to. 0 `max_processes`: no
        limit. `plan`: see walls.py."""
        self.statuses.clear()
        self.has_stdin = len(fds) == 3
        self.connect(*(fds if self.has_stdin else (self.null, *fds, *fds)))
        for fd in fds:
            os.close(fd)
        if not tell(self.control, 0):
            return False
        gate, error = self.start(argv, cwd, env, plan)
        if error:
            tell(self.control, (NOT_STARTED, 0, [], [], error))
            return False
        tell(self.control, self.pid)
        if self.has_stdin:  # its pipes must end when it ends
            self.connect(self.null, self.null, self.null)
        why = self.wait(timeout, max_processes)
        leftovers, survivors = self.finish(why)
        status = self.statuses.get(self.pid, -1)
        is_heard = tell(self.control, (why, status, leftovers, survivors, ""))
        if gate is not None:
            gate.leave(recover=not is_heard)
        self.connect(self.null, self.null, self.null)  # wakes zot, which then finds the report
        return clean(why, leftovers, survivors)

    def connect(self, *fds: int) -> None:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)

    def start(
        self, argv: list[str], cwd: str, env: dict[str, str], plan: bytes
    ) -> tuple[walls.JailGate | landlock.RulesGate | None, str]:
        """Start the program, in its jail if there is a plan; return the jail's gate, and why the
        program did not start (or "")."""
        gate: walls.JailGate | landlock.RulesGate | None = None
        try:
            os.chdir(cwd)
            if plan:
                gate = landlock.gate(plan) or walls.JailGate(plan)
            self.pid = gate.spawn(argv, env) if gate else trees.spawn(argv[0], argv, env)
        except (OSError, ValueError) as error:  # ValueError: a NUL character in a word
            if gate is not None:
                gate.close()
            name = getattr(error, "filename", None) or argv[0]
            return None, f"{name!r}: {getattr(error, 'strerror', error)}"
        if gate is None:
            return None, ""
        error_text = gate.build()
        if error_text:
            trees.kill_all((), self.statuses)
        gate.open()
        if error_text:
            gate.leave(recover=False)
        return gate, error_text

    def wait(self, timeout: float | None, max_processes: int) -> int:
        """Wait until the program has ended or must be ended; return the reason."""
        deadline = None if timeout is None else time.monotonic() + timeout
        many = tasks() + max_processes
        while True:
            pauses = [TASKS_CHECK] if max_processes else []
            if deadline is not None:
                pauses.append(max(0.0, deadline - time.monotonic()))
            ready = {fd for fd, _ in self.running.poll(min(pauses) * 1000 if pauses else None)}
            if self.wake.fd in ready:
                self.wake.drain()
                trees.reap(self.statuses)
                if self.pid in self.statuses:
                    return EXITED
            if self.control.fileno() in ready:
                request = self.request()
                if request != TERMINATE:
                    return KILLED if request else self.leave()
                trees.send(trees.descendants() or [-self.pid], signal.SIGTERM)
            if ready - {self.wake.fd, self.control.fileno()}:
                return KEEPER_KILLED  # the helper died: nobody would inherit orphans
            if deadline is not None and time.monotonic() >= deadline:
                return TIMED_OUT
            if max_processes and tasks() > many and len(trees.descendants()) > max_processes:
                return TOO_MANY

    def request(self) -> bytes:
        """Return TERMINATE or KILL; b"" if zot closed its side, on request or because it died."""
        try:
            return self.control.recv(1)
        except OSError:
            return b""

    def leave(self) -> int:
        """Give a program whose stdin has ended too the time to end by itself."""
        if self.has_stdin:
            trees.settle(self.wake, self.statuses, LEAVE)
        return ABORTED

    def finish(self, why: int) -> tuple[list[str], list[str]]:
        """End all processes; return the names of those that the program left running, and of
        survivors."""
        if trees.TREES and not trees.reap(self.statuses):
            return [], []
        if why == EXITED:
            trees.settle(self.wake, self.statuses, NATURAL_END)
        if not trees.TREES:
            some = trees.end_group(self.pid, self.wake, self.statuses, TERM_GRACE)
            return ["the rest of its process group"] if some and why == EXITED else [], []
        if not trees.reap(self.statuses):
            return [], []
        left = trees.descendants()
        unnamed = max(0, len(left) - trees.NAMED)
        leftovers = trees.names(left) + [""] * unnamed if why == EXITED else []
        if why not in (TOO_MANY, KILLED):
            trees.send(left, signal.SIGTERM)
            trees.send(left, signal.SIGCONT)  # a stopped process gets SIGTERM only when continued
            trees.settle(self.wake, self.statuses, TERM_GRACE)
        return leftovers, trees.kill_all((), self.statuses)


def polling(*fds: int) -> select.poll:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll


def tasks() -> int:
    """Return the number of tasks on the machine: one cheap read that reveals a fork bomb."""
    try:
        fd = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(fd, 100).split()[3].partition(b"/")[2])
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        os.close(fd)


def clean(why: int, leftovers: list[str], survivors: list[str]) -> bool:
    """Return whether the keeper that reported this waits for another command. zot calls it too."""
    return trees.TREES and why == EXITED and not leftovers and not survivors


def tell(control: socket.socket, message: int | Report) -> bool:
    """Send a message to zot; return False if zot is gone."""
    body = marshal.dumps(message)
    try:
        control.sendall(len(body).to_bytes(4, "big") + body)
    except OSError:
        return False
    return True


# --- the helper: one runtime -----------------------------------------------------------------


class Helper:
    def __init__(self, main: socket.socket) -> None:
        self.main = main
        self.wake = trees.Wake()
        self.keepers: dict[int, socket.socket] = {}
        """Keeper pid to our copy of its socket, to report in its place if it is killed."""
        self.ending: dict[int, float] = {}
        """Keeper pid to the monotonic time at which it was requested to end."""
        self.statuses: dict[int, int] = {}
        self.watched = watch(os.getppid())
        self.become_subreaper = trees.subreaper()
        self.become_subreaper()

    def serve(self) -> None:
        while True:
            ready = self.poll()
            if self.wake.fd in ready:
                self.wake.drain()
            self.collect()
            self.hurry(ready)
            if ready & set(self.watched) or (self.main.fileno() in ready and not self.receive()):
                return self.close()

    def poll(self) -> set[int]:
        poll = polling(self.main.fileno(), self.wake.fd, *self.watched)
        for pid, control in self.keepers.items():
            if pid not in self.ending:
                poll.register(control.fileno(), HANG_UP)
        return {fd for fd, _ in poll.poll(100 if self.ending else None)}

    def receive(self) -> bool:
        """Take one command from zot and fork its keeper; False when zot is gone."""
        message = received(self.main, 2)
        if message is None:
            return False
        (output, control_fd), body = message
        control = socket.socket(fileno=control_fd)
        me = watch(os.getpid())
        try:
            pid = os.fork()
        except OSError as error:  # the user may have no more processes
            tell(control, 0)
            reason = f"cannot start a process: {error.strerror}"
            tell(control, (NOT_STARTED, 0, [], [], reason))
            control.close()
            pid = -1
        if pid == 0:
            self.become_keeper(output, control, me, body)
        for fd in (output, *me):
            os.close(fd)
        if pid > 0:
            self.keepers[pid] = control
        return True

    def become_keeper(
        self, output: int, control: socket.socket, me: list[int], body: bytes
    ) -> None:
        try:
            self.wake.close()
            self.main.close()
            for other in self.keepers.values():
                other.close()
            self.become_subreaper()
            Keeper(control, self.watched + me).serve([output], body)
            os._exit(0)
        finally:
            os._exit(1)

    def collect(self) -> None:
        """Reap ended keepers. If a command killed its keeper, kill its tree, which is ours now."""
        trees.reap(self.statuses, os.WUNTRACED)
        self.thaw()
        while ended := self.statuses.keys() & self.keepers.keys():
            for pid in ended:
                control = self.keepers.pop(pid)
                self.ending.pop(pid, None)
                if self.statuses[pid] != 0:
                    survivors = trees.kill_all(set(self.keepers), self.statuses)
                    status = self.statuses[pid]
                    tell(control, (KEEPER_KILLED, status, [], survivors, ""))
                control.close()
        self.statuses.clear()

    def thaw(self) -> None:
        """Continue keepers that a command has stopped, so that they can end."""
        for pid in [pid for pid, status in self.statuses.items() if os.WIFSTOPPED(status)]:
            trees.send([pid], signal.SIGCONT)
            del self.statuses[pid]

    def hurry(self, ready: set[int]) -> None:
        """Kill a keeper that does not end in time because its command prevents it; its tree then
        becomes ours."""
        now = time.monotonic()
        for pid, control in self.keepers.items():
            if control.fileno() in ready:
                self.ending.setdefault(pid, now)
            if now - self.ending.get(pid, now) > TERM_GRACE + trees.GIVE_UP + 1.0:
                trees.send([pid], signal.SIGKILL)

    def close(self) -> None:
        """End the keepers when zot is gone or done, then kill all remaining processes."""
        for control in self.keepers.values():
            control.shutdown(socket.SHUT_RD)
        self.main.close()
        self.ending = dict.fromkeys(self.keepers, time.monotonic())
        poll = polling(self.wake.fd)
        while self.keepers:
            poll.poll(100)
            self.wake.drain()
            self.collect()
            self.hurry(set())
        trees.kill_all((), self.statuses)


def watch(pid: int) -> list[int]:
    """Return a descriptor that becomes readable when the process ends; [] if not supported."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


def received(source: socket.socket, count: int) -> tuple[list[int], bytes] | None:
    """Return the descriptors and the body of a message; None when the sender is gone."""
    header, ancillary, _, _ = source.recvmsg(4, socket.CMSG_SPACE(4 * count))
    if not header:
        return None
    data = ancillary[0][2]
    fds = [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, 4 * count, 4)]
    for fd in fds:
        os.set_inheritable(fd, False)
    body = exactly(source, int.from_bytes(header, "big"))
    return None if body is None else (fds, body)


def exactly(source: socket.socket, size: int) -> bytes | None:
    body = b""
    while len(body) < size:
        piece = source.recv(min(1 << 20, size - len(body)))
        if not piece:
            return None
        body += piece
    return body


def close_others(spared: int) -> None:
    """Close inherited descriptors, which commands must not get."""
    try:
        inherited = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        inherited = list(range(256))
    for fd in inherited:
        if fd > 2 and fd != spared:
            try:
                os.close(fd)
            except OSError:
                pass  # the descriptor of the listing itself


def main() -> None:
    """Be a helper, or the keeper of one program."""
    os.setsid()
    os.chdir("/")
    close_others(CONTROL)
    os.set_inheritable(CONTROL, False)
    trees.ignore_polite_signals()
    gc.disable()  # nothing here makes cycles, and a collection would unshare memory after a fork
    control = socket.socket(fileno=CONTROL)
    if sys.argv[1] == HELPER:
        Helper(control).serve()
        return
    trees.subreaper()()
    message = received(control, 3)
    if message is not None:
        fds, body = message
        Keeper(control, []).run(fds, *marshal.loads(body))
