"""The helper process that runs commands for zot and leaves nothing behind. Imports nothing of zot.

Three kinds of process live in this file:

    zot --socket--> helper --fork--> keeper --fork--> shell --> whatever the command starts
                                       \\--socket--> zot

One helper a runtime, started with the first command; it forks a keeper for each command. Both are
subreapers: a process that leaves its parent (setsid, double fork, nohup) becomes a child of its
keeper, or of the helper when a command kills its keeper. The keeper ends the command when the
shell exits, when zot asks, when the time is over, and when zot is gone, which it sees by the end
of its socket; then it stops and kills its children until it has none, and reports.

It runs as `python -I -S` with an empty environment and few imports, because a command can read
`/proc/$PPID/environ`, and because its start is on the way to the first result.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without enum: starts faster
import _socket as socket
import gc
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would double the time to start
    from collections.abc import Callable

TREES = sys.platform == "linux" and os.path.exists("/proc/self/stat")
"""Whether process trees can be followed here; if not, process groups must do."""
NATURAL_END = 0.1
"""Seconds that what a shell left behind may take to finish by itself: `cmd > >(tee log)`."""
TERM_GRACE = 0.2
"""Seconds between SIGTERM and SIGKILL."""
GIVE_UP = 3.0
"""Seconds after which a process that cannot be killed is reported instead of waited for."""
TASKS_CHECK = 0.25
NAMED = 5

# How a command ended; zot's side reads the same words.
EXITED, TIMED_OUT, ABORTED, KEEPER_KILLED, NOT_STARTED, TOO_MANY = range(6)


def subreaper() -> Callable[[], object]:
    """A function that makes its caller the one who inherits orphans; looked up once, because
    every keeper calls it."""
    if not TREES:
        return lambda: None
    import ctypes  # only in the helper: zot itself imports this file too

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


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


# --- the process tree ------------------------------------------------------------------------


def parents() -> dict[int, tuple[int, str]]:
    """pid to (parent, state) of every process; nothing where there is no /proc."""
    found: dict[int, tuple[int, str]] = {}
    if not TREES:
        return found
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in brackets may hold anything; what follows the last one is fixed.
                    fields = file.read().rpartition(b")")[2].split()
                found[int(name)] = int(fields[1]), fields[0].decode()
            except (OSError, IndexError, ValueError):
                continue  # it ended while we looked
    return found


def descendants(spared: set[int]) -> list[int]:
    """Live processes below this one, without those (and theirs) that are spared."""
    table = parents()
    below: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        below.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        for pid in below.get(waiting.pop(), ()):
            if pid not in spared:
                waiting.append(pid)
                if table[pid][1] not in "ZX":
                    found.append(pid)
    return found


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_group(group: int, number: int) -> bool:
    """Signal a process group; False if nobody is in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def names(pids: list[int]) -> list[str]:
    """Command lines, shortened, for the report."""
    found = []
    for pid in pids[:NAMED]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            line = ""
        found.append(line[:80] or f"process {pid}")
    return found


def reap(statuses: dict[int, int], stopped: int = 0) -> bool:
    """Collect the children that ended, with their statuses; True while there are others."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | stopped)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        statuses[pid] = status


def kill_all(spared: set[int], statuses: dict[int, int]) -> list[str]:
    """Kill every descendant: stop them all first, so that none forks away; names of survivors."""
    deadline = time.monotonic() + GIVE_UP
    while True:
        stopped: set[int] = set()
        while fresh := [pid for pid in descendants(spared) if pid not in stopped]:
            send(fresh, signal.SIGSTOP)
            stopped.update(fresh)
            if time.monotonic() > deadline:
                break
        send(list(stopped), signal.SIGKILL)
        left = wait_gone(spared, statuses, 0.05)
        if not left:
            return []
        if time.monotonic() > deadline:
            return names(left)


def wait_gone(spared: set[int], statuses: dict[int, int], seconds: float) -> list[int]:
    """Reap until no descendant is left, at most so long; those that are."""
    until = time.monotonic() + seconds
    left: list[int] = []
    while reap(statuses) and (left := descendants(spared)) and time.monotonic() < until:
        time.sleep(0.001)
    return left if reap(statuses) else []


# --- the keeper: one command -----------------------------------------------------------------


class Keeper:
    def __init__(self, control: socket.socket, watched: list[int]) -> None:
        self.control = control
        self.watched = watched
        """Descriptors that become readable when zot or the helper is gone."""
        self.wake = Wake()
        self.statuses: dict[int, int] = {}
        self.shell = 0

    def run(
        self,
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        timeout: float | None,
        max_processes: int,
    ) -> None:
        self.control.send(b"+")  # from here on it may have run
        try:
            os.chdir(cwd)
            self.shell = spawn(argv, env)
        except OSError as error:
            said = f"{error.filename or argv[0]!r}: {error.strerror}"
            report(self.control, NOT_STARTED, 0, [], [], said)
            return
        for fd in (1, 2):  # the command's pipe must end when the command ends
            os.dup2(0, fd)
        why = self.wait(timeout, max_processes)
        leftovers, survivors = self.finish(why)
        report(self.control, why, self.statuses.get(self.shell, -1), leftovers, survivors)

    def wait(self, timeout: float | None, max_processes: int) -> int:
        """Until the shell has ended, or must: why."""
        poll = select.poll()
        for fd in (self.control.fileno(), self.wake.fd, *self.watched):
            poll.register(fd, select.POLLIN)
        deadline = None if timeout is None else time.monotonic() + timeout
        many = tasks() + max_processes
        while True:
            left = TASKS_CHECK
            if deadline is not None:
                left = max(0.0, min(left, deadline - time.monotonic()))
            ready = {fd for fd, _ in poll.poll(left * 1000)}
            if self.wake.fd in ready:
                self.wake.drain()
                reap(self.statuses)
                if self.shell in self.statuses:
                    return EXITED
            if ready - {self.wake.fd}:
                return ABORTED  # zot asks by closing its side; a zot that died does the same
            if deadline is not None and time.monotonic() >= deadline:
                return TIMED_OUT
            if tasks() > many and len(descendants(set())) > max_processes:
                return TOO_MANY

    def finish(self, why: int) -> tuple[list[str], list[str]]:
        """Leave no process; the names of those the shell had left running, and of survivors."""
        if why == EXITED:
            self.settle(NATURAL_END)
        if not TREES:
            return self.finish_group(why), []
        if not reap(self.statuses):
            return [], []
        left = descendants(set())
        leftovers = names(left) + [""] * max(0, len(left) - NAMED) if why == EXITED else []
        if why != TOO_MANY:
            send(left, signal.SIGTERM)
            send(left, signal.SIGCONT)  # a stopped process gets the signal only when it goes on
            self.settle(TERM_GRACE)
        return leftovers, kill_all(set(), self.statuses)

    def finish_group(self, why: int) -> list[str]:
        """Where nobody inherits orphans, the best there is: the process group. A process that
        made a session of its own gets away."""
        left = kill_group(self.shell, signal.SIGTERM)
        if left:
            self.settle(TERM_GRACE)
            kill_group(self.shell, signal.SIGKILL)
            self.settle(TERM_GRACE)
        return ["the rest of its process group"] if left and why == EXITED else []

    def settle(self, seconds: float) -> None:
        """Wait until all children are gone, at most so long."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.wake.fd, select.POLLIN)
        while reap(self.statuses) and (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1000)
            self.wake.drain()


def spawn(argv: list[str], env: dict[str, str]) -> int:
    """Start a program in a session of its own, with signals as a login shell has them."""
    default = [each for each in range(1, 32) if each not in (signal.SIGKILL, signal.SIGSTOP)]
    if TREES:
        return os.posix_spawn(argv[0], argv, env, setsid=True, setsigmask=[], setsigdef=default)
    return os.posix_spawn(argv[0], argv, env, setpgroup=0, setsigmask=[], setsigdef=default)


def tasks() -> int:
    """How many tasks the machine runs: one cheap read that shows when a command forks madly."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, IndexError, ValueError):
        return 0


def report(
    control: socket.socket,
    why: int,
    status: int,
    leftovers: list[str],
    survivors: list[str],
    error: str = "",
) -> None:
    body = marshal.dumps((why, status, leftovers, survivors, error))
    try:
        control.sendall(len(body).to_bytes(4, "big") + body)
    except OSError:
        pass  # zot is gone; nobody wants to know


# --- the helper: one runtime -----------------------------------------------------------------


class Helper:
    def __init__(self, main: socket.socket) -> None:
        self.main = main
        self.wake = Wake()
        self.keepers: dict[int, socket.socket] = {}
        """pid to our copy of the keeper's socket, to answer in its place if it is killed."""
        self.ending: dict[int, float] = {}
        """pid to when its keeper was told to end."""
        self.statuses: dict[int, int] = {}
        self.watched = watch(os.getppid())
        self.become_subreaper = subreaper()
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
        poll = select.poll()
        for fd in (self.main.fileno(), self.wake.fd, *self.watched):
            poll.register(fd, select.POLLIN)
        for pid, control in self.keepers.items():
            if pid not in self.ending:
                poll.register(control.fileno(), select.POLLIN)
        return {fd for fd, _ in poll.poll(100 if self.ending else None)}

    def receive(self) -> bool:
        """Take one command from zot and fork its keeper; False when zot is gone."""
        header, ancillary, _, _ = self.main.recvmsg(4, socket.CMSG_SPACE(8))
        if not header:
            return False
        data = ancillary[0][2]
        output, control_fd = (int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 4))
        os.set_inheritable(output, False)
        os.set_inheritable(control_fd, False)
        control = socket.socket(fileno=control_fd)
        body = exactly(self.main, int.from_bytes(header, "big"))
        if body is None:
            return False
        me = watch(os.getpid())
        pid = os.fork()
        if pid == 0:
            self.become_keeper(output, control, me, body)
        for fd in (output, *me):
            os.close(fd)
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
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            self.become_subreaper()
            Keeper(control, self.watched + me).run(*marshal.loads(body))
            os._exit(0)
        finally:
            os._exit(1)

    def collect(self) -> None:
        """Has a keeper ended? If not by itself, the command killed it: its tree is ours now."""
        reap(self.statuses, os.WUNTRACED)
        self.thaw()
        while ended := self.statuses.keys() & self.keepers.keys():
            for pid in ended:
                control = self.keepers.pop(pid)
                self.ending.pop(pid, None)
                if self.statuses[pid] != 0:
                    survivors = kill_all(set(self.keepers), self.statuses)
                    report(control, KEEPER_KILLED, self.statuses[pid], [], survivors)
                control.close()
        self.statuses.clear()

    def thaw(self) -> None:
        """A command may have stopped its keeper; that must not keep it from ending."""
        for pid in [pid for pid, status in self.statuses.items() if os.WIFSTOPPED(status)]:
            send([pid], signal.SIGCONT)
            del self.statuses[pid]

    def hurry(self, ready: set[int]) -> None:
        """A keeper that was told to end and does not is kept from it by its command: end it, so
        that its tree becomes ours."""
        now = time.monotonic()
        for pid, control in self.keepers.items():
            if control.fileno() in ready:
                self.ending.setdefault(pid, now)
            if now - self.ending.get(pid, now) > TERM_GRACE + GIVE_UP + 1.0:
                send([pid], signal.SIGKILL)

    def close(self) -> None:
        """zot is gone, or done: end the keepers, then kill whatever is left."""
        for control in self.keepers.values():
            control.shutdown(socket.SHUT_RD)
        self.main.close()
        self.ending = dict.fromkeys(self.keepers, time.monotonic())
        poll = select.poll()
        poll.register(self.wake.fd, select.POLLIN)
        while self.keepers:
            poll.poll(100)
            self.wake.drain()
            self.collect()
            self.hurry(set())
        kill_all(set(), self.statuses)


def watch(pid: int) -> list[int]:
    """A descriptor that becomes readable when the process ends, where the system has that."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


def exactly(source: socket.socket, size: int) -> bytes | None:
    body = b""
    while len(body) < size:
        piece = source.recv(min(1 << 20, size - len(body)))
        if not piece:
            return None
        body += piece
    return body


def close_others(kept: int) -> None:
    """What zot inherited is not for commands."""
    try:
        inherited = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        inherited = list(range(256))
    for fd in inherited:
        if fd > 2 and fd != kept:
            try:
                os.close(fd)
            except OSError:
                pass  # the one that listed them


def main() -> None:
    fd = int(sys.argv[1])
    os.setsid()
    os.chdir("/")
    close_others(fd)
    os.set_inheritable(fd, False)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # nothing here makes cycles, and a collection would unshare memory after a fork
    Helper(socket.socket(fileno=fd)).serve()
