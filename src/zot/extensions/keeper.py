"""The small process between zot and an extension that leaves nothing behind.

It imports nothing of zot, and uses no pathlib, because it is started with every extension.

    zot --pipes--------------------------> extension --> whatever it starts
      \\--socket--> keeper --spawn--------/

The keeper is a subreaper: a process that leaves its parent (setsid, double fork) becomes a child
of the keeper. It ends the tree when the extension exits, when zot asks, and when zot is gone,
which it sees by the end of its socket. It is run as `python -I -S` and never touches the pipes.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable

TERMINATE, KILL = b"T", b"K"
STARTED, NOT_STARTED, ENDED = b"S", b"N", b"E"
"""First byte of what the keeper says; the rest is a pid, a text, or a wait status."""

LEAVE = 0.3
"""Seconds an extension has to end by itself when zot is gone: it sees the end of its stdin."""
TERM_GRACE = 0.3
GIVE_UP = 3.0


def become_subreaper() -> None:
    if sys.platform == "linux":
        import ctypes  # only Linux has this

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def descendants() -> list[int]:
    """Live processes below this one."""
    below: dict[int, list[int]] = {}
    dead = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in brackets may hold anything; what follows the last one is fixed.
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue  # it ended while we looked
            below.setdefault(int(parent), []).append(int(name))
            if state in (b"Z", b"X"):
                dead.add(int(name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        children = below.get(waiting.pop(), [])
        waiting += children
        found += [pid for pid in children if pid not in dead]
    return found


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


class Keeper:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.child = 0
        self.status: int | None = None
        self.wake, wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self, argv: list[str]) -> None:
        default = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD]
        default += [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores these two
        try:
            self.child = os.posix_spawn(
                argv[0], argv, os.environ, setpgroup=0, setsigdef=default, setsigmask=()
            )
        except OSError as error:
            self.tell(NOT_STARTED, str(error.strerror))
            return
        self.tell(STARTED, str(self.child))
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):  # the extension's pipes must end when the extension ends
            os.dup2(null, fd)
        self.end_all(ask=self.watch())
        self.tell(ENDED, str(self.status if self.status is not None else -1))

    def watch(self) -> bool:
        """Until the extension has ended, or must; whether to ask what is left before killing."""
        while self.status is None:
            ready = self.poll(None, self.control.fileno())
            self.reap()
            if self.control.fileno() not in ready:
                continue
            try:
                asked = self.control.recv(1)
            except OSError:
                asked = b""
            if asked == TERMINATE:
                send(self.tree(), signal.SIGTERM)
                continue
            if asked == b"":  # zot is gone, and the extension's stdin ended with it
                self.settle(LEAVE)
            return asked != KILL
        return True

    def end_all(self, ask: bool) -> None:
        """Leave no process: ask what is left to end, then stop and kill it until nothing is."""
        if ask and self.reap():
            send(self.tree(), signal.SIGTERM)
            self.settle(TERM_GRACE)
        deadline = time.monotonic() + GIVE_UP
        while self.reap() and time.monotonic() < deadline:
            frozen: set[int] = set()
            # First all are stopped, so that none forks away while others are killed.
            while (fresh := set(self.tree()) - frozen) and time.monotonic() < deadline:
                send(fresh, signal.SIGSTOP)
                frozen |= fresh
            send(frozen, signal.SIGKILL)
            self.settle(0.05)

    def tree(self) -> list[int]:
        """Whom to signal: all descendants, or without /proc at least the process group."""
        return descendants() if os.path.isdir("/proc/self") else [-self.child]

    def settle(self, seconds: float) -> None:
        """Wait until there are no children, at most so long."""
        deadline = time.monotonic() + seconds
        while self.reap() and (left := deadline - time.monotonic()) > 0:
            self.poll(left)

    def reap(self) -> bool:
        """Collect the children that ended; True while there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.status = status

    def poll(self, seconds: float | None, *fds: int) -> set[int]:
        poll = select.poll()
        for fd in (self.wake, *fds):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}
        try:
            while os.read(self.wake, 4096):
                pass
        except BlockingIOError:
            pass
        return ready

    def tell(self, kind: bytes, text: str) -> None:
        try:
            self.control.sendall(kind + text.encode() + b"\n")
        except OSError:
            pass  # zot is gone; nobody wants to know


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    become_subreaper()
    Keeper(control).run(sys.argv[2:])
