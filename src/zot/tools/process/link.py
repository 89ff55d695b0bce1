"""A keeper from zot's side: start its process, hand it a program, hear how the program ends."""

from __future__ import annotations

import array
import errno
import marshal
import os
import select
import signal
import socket
import sys
import threading
import time

from zot import trees
from zot.tools.process import keeper

Launch = tuple[list[str], str, dict[str, str], float | None, int, bytes]
"""A program to start, as keeper.Keeper.run takes it: argv, directory, variables, timeout, limit of
processes, and the plan of its jail."""


def start_process(role: str) -> tuple[int, socket.socket]:
    """Start keeper.HELPER or keeper.KEEPER; return its pid and our end of its socket.

    Raises:
        OSError: no process can be started.
    """
    if not sys.executable:
        raise FileNotFoundError(errno.ENOENT, "there is no Python interpreter to supervise them")
    ours, theirs = socket.socketpair()
    try:
        pid = os.posix_spawn(
            sys.executable,
            trees.launch("tools.process.keeper", role),
            {},  # a command can read the environment of its parents
            setsigmask=[],
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), keeper.CONTROL),
            ],
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    trees.own.add(pid)
    return pid, ours


def end_process(pid: int, seconds: float) -> None:
    """Reap a helper or keeper that is about to end; kill it if it takes longer."""
    trees.send([pid], signal.SIGCONT)  # its program may have stopped it
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while not _is_reaped(pid):
        if time.monotonic() > deadline:
            trees.send([pid], signal.SIGKILL)
            deadline += seconds
        time.sleep(pause)
        pause = min(0.02, pause * 2)
    trees.own.discard(pid)


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True  # other code has reaped it


def packed(launch: Launch) -> bytes:
    body = marshal.dumps(launch)
    return len(body).to_bytes(4, "big") + body


def send_packed(to: socket.socket, message: bytes, *fds: int, flags: int = 0) -> int:
    """Send a packed launch with the descriptors of its program; return the number of bytes sent."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    return to.sendmsg([message], rights, flags)


def send_all(to: socket.socket, message: bytes, *fds: int) -> None:
    """Send a packed launch as a whole."""
    sent = send_packed(to, message, *fds)
    to.sendall(memoryview(message)[sent:])


def is_alive(connection: socket.socket, seconds: float = 0.0) -> bool:
    """Return whether the peer lives, after waiting for its end so long. It sends nothing while
    idle, so readable means it is gone."""
    poll = select.poll()  # not select(): it cannot wait for descriptors above 1023
    poll.register(connection, select.POLLIN)
    return not poll.poll(seconds * 1000)


class KeeperLink:
    """Our end of a keeper's socket while it runs a program. Safe to use from several threads."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.is_accepted = False
        """Whether the keeper took the program; otherwise nothing has run."""
        self.pid = 0
        """Pid of the program; 0 before it runs."""
        self.report: keeper.Report | None = None
        self.is_gone = False
        """Whether the keeper has ended."""
        self._lock = threading.Lock()
        self._unread = b""

    def listen(self) -> bool:
        """Read what the keeper has sent, without waiting; return False after its report, or when it
        is gone."""
        with self._lock:
            try:
                while piece := self.control.recv(4096, socket.MSG_DONTWAIT):
                    self._unread += piece
                self.is_gone = True
            except BlockingIOError:
                pass  # nothing new
            except OSError:
                self.is_gone = True  # closed, or the keeper ended without having read the program
            while len(self._unread) >= 4:
                end = 4 + int.from_bytes(self._unread[:4], "big")
                if len(self._unread) < end:
                    break
                message, self._unread = marshal.loads(self._unread[4:end]), self._unread[end:]
                self._take(message)
        return not self.is_gone and self.report is None

    def _take(self, message: int | keeper.Report) -> None:
        if isinstance(message, int):
            self.is_accepted, self.pid = True, message
        else:  # perhaps of the helper, on a keeper that was killed before it took the program
            self.report = message

    def ask(self, request: bytes) -> None:
        """Send keeper.TERMINATE or keeper.KILL."""
        try:
            self.control.send(request, socket.MSG_DONTWAIT)
        except OSError:
            pass  # it has ended

    def end(self) -> None:
        """Close our side, whereupon the keeper ends the program and reports."""
        try:
            self.control.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended
