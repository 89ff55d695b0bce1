"""The helper process that runs commands for zot and leaves no process behind. It imports only the
small modules trees and walls from zot.

Three kinds of process live in this file:

    zot --socket--> helper --fork--> keeper --fork--> shell --> whatever the command starts
                                       \\--socket--> zot

Each runtime has one helper, started with the first command. It forks a keeper for a command; if
that command leaves no process, zot gives the keeper the next one, which saves a fork. Both are
subreapers: a process that leaves its parent (setsid, double fork, nohup) becomes a child of its
keeper, or of the helper when a command kills its keeper. The keeper ends the command when the shell
exits, when zot requests it, on timeout, and when zot is gone, which shows as the end of its socket;
then it stops and kills its children until it has none, and reports. Only then does it close the
command's pipe: the end of the pipe wakes zot, once.

The helper runs as `python -I -S` with an empty environment and few imports, because a command can
read `/proc/$PPID/environ`, and because its start delays the first result.
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
from zot.tools.jail import walls

NATURAL_END = 0.1
"""Seconds that processes left by a shell may take to finish by themselves: `cmd > >(tee log)`."""
TERM_GRACE = 0.2
"""Seconds between SIGTERM and SIGKILL."""
TASKS_CHECK = 0.25
HANG_UP = select.POLLRDHUP if trees.TREES else select.POLLIN
"""Poll event on a keeper's socket by which the helper sees that zot closed it; the data on that
socket is for the keeper."""

# Reasons for the end of a command; zot's side uses the same numbers.
EXITED, TIMED_OUT, ABORTED, KEEPER_KILLED, NOT_STARTED, TOO_MANY = range(6)


# --- the keeper: one command -----------------------------------------------------------------


class CommandKeeper:
    def __init__(self, control: socket.socket, watched: list[int]) -> None:
        """`watched`: descriptors that become readable when zot or the helper is gone."""
        self.control = control
        self.wake = trees.Wake()
        self.asked = polling(control.fileno(), *watched)
        self.running = polling(control.fileno(), self.wake.fd, *watched)
        self.orphaned = polling(*watched)
        self.statuses: dict[int, int] = {}
        self.shell = 0

    def serve(self, output: int, body: bytes) -> None:
        """Run the command, and those that follow as long as each of them ends cleanly."""
        while self.run(output, *marshal.loads(body)):
            if self.asked.poll() != [(self.control.fileno(), select.POLLIN)]:
                return  # zot or the helper is gone
            message = received(self.control, 1)
            if message is None or self.orphaned.poll(0):
                return  # no "+" was sent, so zot gives the command to another keeper
            (output,), body = message

    def run(
        self,
        output: int,
        program: str,
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        timeout: float | None,
        max_processes: int,
        plan: bytes,
    ) -> bool:
        """Run one command; return whether this keeper can take another."""
        self.statuses.clear()
        for fd in (1, 2):
            os.dup2(output, fd)
        os.close(output)
        self.control.send(b"+")  # from here on the command may have run
        gate = None
        try:
            os.chdir(cwd)
            gate = walls.JailGate(plan) if plan else None
            self.shell = trees.spawn(program, argv, env)
        except OSError as error:
            if gate is not None:
                gate.close()
            said = f"{error.filename or program!r}: {error.strerror}"
            report(self.control, NOT_STARTED, 0, [], [], said)
            return False
        if gate is not None and (said := gate.build()):
            trees.kill_all((), self.statuses)
            gate.open()
            gate.leave(recover=False)
            report(self.control, NOT_STARTED, 0, [], [], said)
            return False
        if gate is not None:
            gate.open()
        why = self.wait(timeout, max_processes)
        leftovers, survivors = self.finish(why)
        status = self.statuses.get(self.shell, -1)
        is_heard = report(self.control, why, status, leftovers, survivors)
        if gate is not None:
            gate.leave(recover=not is_heard)
        for fd in (1, 2):  # the end of the pipe wakes zot, which then finds the report
            os.dup2(0, fd)
        return clean(why, leftovers, survivors)

    def wait(self, timeout: float | None, max_processes: int) -> int:
        """Wait until the shell has ended or must be ended; return the reason."""
        deadline = None if timeout is None else time.monotonic() + timeout
        many = tasks() + max_processes
        while True:
            left = TASKS_CHECK
            if deadline is not None:
                left = max(0.0, min(left, deadline - time.monotonic()))
            ready = {fd for fd, _ in self.running.poll(left * 1000)}
            if self.wake.fd in ready:
                self.wake.drain()
                trees.reap(self.statuses)
                if self.shell in self.statuses:
                    return EXITED
            if self.control.fileno() in ready:
                return ABORTED  # zot closed its side, on request or because it died
            if ready - {self.wake.fd}:
                return KEEPER_KILLED  # the helper died: nobody would inherit orphans
            if deadline is not None and time.monotonic() >= deadline:
                return TIMED_OUT
            if tasks() > many and len(trees.descendants()) > max_processes:
                return TOO_MANY

    def finish(self, why: int) -> tuple[list[str], list[str]]:
        """End all processes; return the names of those the shell left running, and of survivors."""
        if trees.TREES and not trees.reap(self.statuses):
            return [], []
        if why == EXITED:
            trees.settle(self.wake, self.statuses, NATURAL_END)
        if not trees.TREES:
            some = trees.end_group(self.shell, self.wake, self.statuses, TERM_GRACE)
            return ["the rest of its process group"] if some and why == EXITED else [], []
        if not trees.reap(self.statuses):
            return [], []
        left = trees.descendants()
        unnamed = max(0, len(left) - trees.NAMED)
        leftovers = trees.names(left) + [""] * unnamed if why == EXITED else []
        if why != TOO_MANY:
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


def report(
    control: socket.socket,
    why: int,
    status: int,
    leftovers: list[str],
    survivors: list[str],
    error: str = "",
) -> bool:
    """Send the report to zot; return False if zot is gone."""
    body = marshal.dumps((why, status, leftovers, survivors, error))
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
            control.send(b"+")
            report(control, NOT_STARTED, 0, [], [], f"cannot start a process: {error.strerror}")
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
            CommandKeeper(control, self.watched + me).serve(output, body)
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
                    report(control, KEEPER_KILLED, self.statuses[pid], [], survivors)
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


def close_others(kept: int) -> None:
    """Close inherited descriptors, which commands must not get."""
    try:
        inherited = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        inherited = list(range(256))
    for fd in inherited:
        if fd > 2 and fd != kept:
            try:
                os.close(fd)
            except OSError:
                pass  # the descriptor of the listing itself


def main() -> None:
    fd = int(sys.argv[1])
    os.setsid()
    os.chdir("/")
    close_others(fd)
    os.set_inheritable(fd, False)
    trees.ignore_polite_signals()
    gc.disable()  # nothing here makes cycles, and a collection would unshare memory after a fork
    Helper(socket.socket(fileno=fd)).serve()
