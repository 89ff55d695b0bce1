"""The small process between zot and an external program; it leaves no process behind.

    zot --pipes--------------------------> program --> whatever it starts
      \\--socket--> keeper --spawn--------/

The keeper is a subreaper (see trees.py). It ends the tree when the program exits, when zot requests
it, and when zot is gone, which shows as the end of its socket. It never touches the pipes.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

from zot import trees
from zot.tools.jail import walls

TERMINATE, KILL = b"T", b"K"
STARTED, NOT_STARTED, ENDED = b"S", b"N", b"E"
"""First byte of a keeper's message; the rest is a pid, an error text, or a wait status."""

LEAVE = 0.3
"""Seconds that a program has to end by itself when zot is gone and its stdin has ended."""
TERM_GRACE = 0.3


class ChildKeeper:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.child = 0
        self.statuses: dict[int, int] = {}
        self.wake = trees.Wake()

    def run(self, argv: list[str], handed: bytes) -> None:
        gate = None
        try:
            gate = walls.JailGate(handed) if handed else None
            self.child = trees.spawn(argv[0], argv, os.environ)
        except OSError as error:
            self.tell(NOT_STARTED, str(error.strerror))
            return
        if gate is not None:
            said = gate.build()
            if said:
                trees.kill_all((), self.statuses)
                self.tell(NOT_STARTED, said)
                return
            gate.open()
        self.tell(STARTED, str(self.child))
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):  # the program's pipes must end when the program ends
            os.dup2(null, fd)
        self.end_all(ask=self.watch())
        is_heard = self.tell(ENDED, str(self.statuses.get(self.child, -1)))
        if gate is not None:
            gate.leave(recover=not is_heard)

    def watch(self) -> bool:
        """Wait until the program has ended or must be ended; return whether to send SIGTERM before
        killing what is left."""
        poll = select.poll()
        for fd in (self.wake.fd, self.control.fileno()):
            poll.register(fd, select.POLLIN)
        while self.child not in self.statuses:
            ready = {fd for fd, _ in poll.poll()}
            self.wake.drain()
            trees.reap(self.statuses)
            if self.control.fileno() not in ready:
                continue
            try:
                asked = self.control.recv(1)
            except OSError:
                asked = b""
            if asked == TERMINATE:
                trees.send(self.tree(), signal.SIGTERM)
                continue
            if asked == b"":  # zot is gone, and the program's stdin ended with it
                trees.settle(self.wake, self.statuses, LEAVE)
            return asked != KILL
        return True

    def end_all(self, ask: bool) -> None:
        """End all processes: SIGTERM first if `ask`, then stop and kill until none is left."""
        if not trees.TREES:
            trees.end_group(self.child, self.wake, self.statuses, TERM_GRACE)
            return
        if ask and trees.reap(self.statuses):
            trees.send(self.tree(), signal.SIGTERM)
            trees.settle(self.wake, self.statuses, TERM_GRACE)
        trees.kill_all((), self.statuses)

    def tree(self) -> list[int]:
        """Return the pids to signal: all descendants, or without /proc the process group."""
        return trees.descendants() if trees.TREES else [-self.child]

    def tell(self, kind: bytes, text: str) -> bool:
        """Send a message to zot; return False if zot is gone."""
        try:
            self.control.sendall(kind + text.encode() + b"\n")
        except OSError:
            return False
        return True


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    trees.ignore_polite_signals()
    trees.subreaper()()
    ChildKeeper(control).run(sys.argv[3:], bytes.fromhex(sys.argv[2]))
