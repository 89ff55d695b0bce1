"""Process trees: finds the descendants of this process and ends them. Standard library only.

A subreaper inherits the orphans below it, so a process that leaves its parent (setsid, double
fork, nohup) is still found. Used by the small processes that run commands and extensions, which
start as `python -I -S`: every import here delays a result.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would double the time to start
    from collections.abc import Callable, Collection, Iterable, Mapping

TREES = sys.platform == "linux" and os.path.exists("/proc/self/stat")
"""Whether process trees can be followed here; if not, process groups are used."""
GIVE_UP = 3.0
"""Seconds after which a process that cannot be killed is reported instead of waited for."""
NAMED = 5
CATCHABLE = [number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP)]
LAUNCH = "import sys; sys.path.append(sys.argv.pop(1)); from zot.{} import main; main()"

own: set[int] = set()
"""Pids of children that this process started and ends itself; see `end_strays`."""
_owned = False


def launch(module: str, *words: str) -> list[str]:
    """Return the argv that runs `main` of a module in a process that loads no user code."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-I", "-S", "-c", LAUNCH.format(module), folder, *words]


def prctl() -> Callable[..., int]:
    """Return the C function prctl; callers that need it after every fork look it up once."""
    import ctypes  # only where it is needed: zot itself imports this file too

    call: Callable[..., int] = ctypes.CDLL(None).prctl
    return call


def subreaper() -> Callable[[], object]:
    """Return a function that makes its calling process a subreaper, which inherits orphans."""
    if not TREES:
        return lambda: None
    call = prctl()
    return lambda: call(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class Wake:
    """A descriptor that becomes readable when a child ends."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def drain(self) -> None:
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write)


def ignore_polite_signals() -> None:
    """Ignore SIGHUP, SIGINT and SIGTERM: this process must outlive the ones it ends."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def spawn(program: str, argv: list[str], env: Mapping[str, str]) -> int:
    """Start a program in its own session, with default signal handling; return its pid."""
    if TREES:
        return os.posix_spawn(program, argv, env, setsid=True, setsigmask=[], setsigdef=CATCHABLE)
    return os.posix_spawn(program, argv, env, setpgroup=0, setsigmask=[], setsigdef=CATCHABLE)


def start_afresh() -> None:
    """After a fork, give the child what `spawn` gives: a session and default signal handling."""
    os.setsid()
    for number in CATCHABLE:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


# --- finding processes -----------------------------------------------------------------------


def parents() -> dict[int, tuple[int, str]]:
    """Map the pid of every process to (parent, state); empty without /proc."""
    table: dict[int, tuple[int, str]] = {}
    if not TREES:
        return table
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in brackets may hold anything, also ")"; the rest is fixed.
                    fields = file.read().rpartition(b")")[2].split()
                table[int(name)] = int(fields[1]), fields[0].decode()
            except (OSError, IndexError, ValueError):
                continue  # it ended while we looked
    return table


def descendants(spared: Collection[int] = ()) -> list[int]:
    """Return the live processes below this one, without `spared` and their descendants."""
    table = parents()
    below: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        below.setdefault(parent, []).append(pid)
    pids: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        for pid in below.get(waiting.pop(), ()):
            if pid not in spared:
                waiting.append(pid)
                if table[pid][1] not in "ZX":
                    pids.append(pid)
    return pids


def names(pids: list[int]) -> list[str]:
    """Return shortened command lines of the first few processes, for a report."""
    lines = []
    for pid in pids[:NAMED]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            line = ""
        lines.append(line[:80] or f"process {pid}")
    return lines


# --- ending processes ------------------------------------------------------------------------


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def reap(statuses: dict[int, int], stopped: int = 0) -> bool:
    """Reap ended children into `statuses`; return True while there are others."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | stopped)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        statuses[pid] = status


def settle(wake: Wake, statuses: dict[int, int], seconds: float) -> None:
    """Wait until all children are gone, at most `seconds`."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(wake.fd, select.POLLIN)
    while reap(statuses) and (left := deadline - time.monotonic()) > 0:
        poll.poll(left * 1000)
        wake.drain()


def freeze(spared: Collection[int], deadline: float) -> set[int]:
    """Stop every descendant, including those forked meanwhile, so that none can fork any more."""
    stopped: set[int] = set()
    while fresh := [pid for pid in descendants(spared) if pid not in stopped]:
        send(fresh, signal.SIGSTOP)
        stopped.update(fresh)
        if time.monotonic() > deadline:
            break
    return stopped


def kill_all(spared: Collection[int], statuses: dict[int, int]) -> list[str]:
    """Kill every descendant; return the names of survivors."""
    deadline = time.monotonic() + GIVE_UP
    while True:
        send(freeze(spared, deadline), signal.SIGKILL)
        left = wait_gone(spared, statuses, 0.05)
        if not left:
            return []
        if time.monotonic() > deadline:
            return names(left)


def wait_gone(spared: Collection[int], statuses: dict[int, int], seconds: float) -> list[int]:
    """Reap until no descendant is left, at most `seconds`; return those that are."""
    until = time.monotonic() + seconds
    left: list[int] = []
    while reap(statuses) and (left := descendants(spared)) and time.monotonic() < until:
        time.sleep(0.001)
    return left if reap(statuses) else []


def end_group(group: int, wake: Wake, statuses: dict[int, int], grace: float) -> bool:
    """End a process group, on systems without subreapers. A process with its own session escapes.
    Return False if the group was empty."""
    if not kill_group(group, signal.SIGTERM):
        return False
    settle(wake, statuses, grace)
    kill_group(group, signal.SIGKILL)
    settle(wake, statuses, grace)
    return True


def kill_group(group: int, number: int) -> bool:
    """Signal a process group; return False if it is empty."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


# --- the process at the top ------------------------------------------------------------------


def own_process() -> None:
    """Mark this process as zot's own: it inherits processes that outlive their keepers, so that
    `end_strays` finds them, and the user's other processes cannot read its memory with the keys."""
    global _owned
    if TREES and not _owned:
        prctl()(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        hide_memory()
        _owned = True


def hide_memory() -> None:
    """Keep the user's other processes from reading the memory of this one."""
    if TREES:
        prctl()(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def end_strays() -> None:
    """End what killed keepers left: the children that this process did not start itself. Does
    nothing unless zot owns the process, since an embedder may have children of its own."""
    deadline = time.monotonic() + GIVE_UP
    while _owned and (strays := freeze(own, deadline)) and time.monotonic() < deadline:
        send(strays, signal.SIGKILL)
        for pid in strays:
            try:
                os.waitpid(pid, os.WNOHANG)  # only these: others wait for their own children
            except ChildProcessError:
                pass
        time.sleep(0.001)
