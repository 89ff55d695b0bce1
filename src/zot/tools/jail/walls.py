"""The walls of a jail inside the working directory, mounted by descriptor. Standard library only.

bubblewrap makes the namespaces and mounts everything whose path no jailed process can change. The
working directory is different: another jailed process may swap its directories and links between
the moment a path is looked up and the moment it is mounted on, and a mount that lands elsewhere
leaves `.git` writable, or uncovers a secret. No order of arguments prevents that.

So bubblewrap mounts nothing there. Its last argument copies a file from a pipe (`--file`), which
makes it wait. A child of the keeper notices that the pipe is read, enters the new namespaces, opens
the working directory and each cover a part at a time without following a link (beneath.py),
compares device and inode with what zot saw, and mounts descriptor on descriptor (open_tree,
mount_setattr, move_mount: Linux 5.12). No path is resolved twice, so there is nothing to race
with. Then the pipe ends and bubblewrap starts the program. If anything is not as zot saw it, all
of bubblewrap is killed and the program never runs.

The child enters the namespaces instead of making them before bubblewrap does: some systems let
only bubblewrap make a user namespace, but its owner may enter it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import marshal
import os
import signal
import sys

from zot import trees
from zot.beneath import FOLDER, LOOK, NO_LINK, identity, open_plain, parts_of

Cover = tuple[str, int, int, bool]
"""A path below the working directory, its device and inode, and whether to mount something empty
(True) or the path itself read-only (False)."""

FILTER, GATE, INFO = 253, 252, 251
"""Descriptors passed to bubblewrap: the system call filter, the pipe it waits for, and the pipe it
reports its child's pid to."""
WAITING = "/dev/.zot-gate"
"""The file that bubblewrap copies the pipe to; it is removed before the program starts."""
ARGUMENTS = ("--info-fd", str(INFO), "--file", str(GATE), WAITING)
SECONDS = 20
"""Timeout in seconds for bubblewrap to reach the gate and for the walls to be built."""
PAGE = 4096
LOOKS = 200
"""Attempts to open a path that another process keeps moving."""
MOVED = "has just been moved or replaced"
"""Text in the error of an attempt that may succeed when repeated."""

# System call numbers and flags that are the same on every architecture.
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
EMPTY_PATH, RECURSIVE, CLONE, CLOEXEC = 0x1000, 0x8000, 1, 0o2000000
FROM_DESCRIPTOR, TO_DESCRIPTOR = 0x04, 0x40
READ_ONLY, NO_SETUID, NO_DEVICES = 1, 2, 4
CREATE = 6


def packed(
    code: bytes,
    root: str,
    status: os.stat_result,
    covers: list[Cover],
    record: str = "",
    *,
    read_only: bool = False,
) -> bytes:
    """Pack the plan that a keeper needs for a jailed program. `code`: the system call filter, may
    be empty; `record`: see record.py; `read_only`: the working directory cannot be written."""
    return marshal.dumps((code, root, identity(status), covers, record, read_only))


class RecordLock:
    """Marks the working directory as in use while a program runs; see record.py."""

    def __init__(self, record: str, root: str) -> None:
        """`record`: may be empty, then nothing is marked."""
        self._record, self._root = record, root
        self._lock = -1
        if record:
            self._lock = os.open(record, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def leave(self, *, recover: bool) -> None:
        """Release the record when the program has ended. `recover`: zot is gone, so also rename
        what the program left."""
        if self._lock >= 0:
            os.close(self._lock)
        if recover and self._record:
            from zot.tools.jail import record  # imported here to keep the normal start fast

            record.recover(self._record, self._root)


class JailGate:
    """Holds a jailed program back until its walls stand."""

    def __init__(self, plan: bytes) -> None:
        """Prepare bubblewrap's descriptors; the caller starts it next."""
        fields = marshal.loads(plan)
        code, self._root, self._identity, self._covers, record, self._read_only = fields
        self._lock = RecordLock(record, self._root)
        if code:
            source, sink = os.pipe()
            os.write(sink, code)  # fits into the pipe's buffer
            os.close(sink)
            _lay(source, FILTER)
        source, self._gate = os.pipe()
        fcntl.fcntl(self._gate, fcntl.F_SETPIPE_SZ, PAGE)
        os.set_blocking(self._gate, False)
        _fill(self._gate)  # the next write blocks until bubblewrap reads
        os.set_blocking(self._gate, True)
        _lay(source, GATE)
        self._info, sink = os.pipe()
        _lay(sink, INFO)
        self._laid = [GATE, INFO] + [FILTER] * bool(code)

    def spawn(self, argv: list[str], env: dict[str, str]) -> int:
        """Start bubblewrap; return its pid. Raises OSError."""
        return trees.spawn(argv[0], argv, env)

    def close(self) -> None:
        """Close all descriptors when bubblewrap was not started."""
        for fd in (*self._laid, self._gate, self._info):
            os.close(fd)
        self.leave(recover=False)

    def build(self) -> str:
        """Make the walls once bubblewrap waits. Return "" or the reason for the failure; then the
        caller must end bubblewrap's process tree before `open`."""
        for fd in self._laid:
            os.close(fd)
        self._laid = []
        source, sink = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._be_builder(sink)
        os.close(sink)
        answer = b""
        while piece := os.read(source, PAGE):
            answer += piece
        os.close(source)
        _, status = os.waitpid(pid, 0)
        if status == 0:
            return ""
        return answer.decode("utf-8", "replace") or "bubblewrap did not get ready for it in time"

    def open(self) -> None:
        """Let the program start, if bubblewrap is still there."""
        os.close(self._gate)
        os.close(self._info)

    def leave(self, *, recover: bool) -> None:
        self._lock.leave(recover=recover)

    def _be_builder(self, sink: int) -> None:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            signal.alarm(SECONDS)
            self._wait_and_build()
            status = 0
        except OSError as error:
            os.write(sink, _sentence(error).encode())
        except BaseException as error:  # no failure may let the program start
            os.write(sink, repr(error).encode())
        finally:
            os._exit(status)

    def _wait_and_build(self) -> None:
        try:
            os.write(self._gate, b" ")
        except BrokenPipeError:
            return  # bubblewrap has ended and printed the reason
        call = Kernel()
        _enter(_child(self._info), call)
        os.unlink(f"/newroot{WAITING}")
        attributes = NO_SETUID | NO_DEVICES | (READ_ONLY if self._read_only else 0)
        root = _mount_root(self._root, self._identity, attributes, call)
        for path, device, inode, hidden in self._covers:
            target = _opened(root, path, (device, inode))
            source = _nothing(target, call) if hidden else _copy(target, READ_ONLY, call)
            _mount(source, target, call)
            os.close(source)
            os.close(target)


def _lay(fd: int, number: int) -> None:
    os.dup2(fd, number, inheritable=True)
    os.close(fd)


def _fill(pipe: int) -> None:
    try:
        while True:
            os.write(pipe, bytes(PAGE))
    except BlockingIOError:
        return


def _sentence(error: OSError) -> str:
    if error.errno == errno.ENOSYS:
        return "this kernel cannot mount by descriptor; it takes Linux 5.12 or later"
    return f"{error.filename or 'bubblewrap'!r}: {error.strerror}"


class Kernel:
    """System calls that Python has no functions for."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)

    def __call__(self, number: int, *arguments: int | bytes) -> int:
        # syscall() is variadic and does not know the types: pass each as wide as a register.
        wide = [value if isinstance(value, bytes) else ctypes.c_long(value) for value in arguments]
        result: int = self._library.syscall(ctypes.c_long(number), *wide)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), f"mounting (system call {number})")
        return result

    def enter(self, space: int, kind: int) -> None:
        """Enter an open namespace."""
        if self._library.setns(space, kind):
            raise PermissionError(errno.EPERM, "its namespaces cannot be entered", "bubblewrap")


def _child(info: int) -> int:
    """Return the pid that bubblewrap reports: `{"child-pid": 123, ...}`."""
    answer = os.read(info, PAGE)
    digits = answer.partition(b'"child-pid":')[2].split(b",")[0].split(b"}")[0].strip()
    return int(digits)


def _enter(pid: int, call: Kernel) -> None:
    spaces = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind)
        for name, kind in (("user", NEW_USER), ("mnt", NEW_MOUNTS))
    ]
    for fd, kind in spaces:
        call.enter(fd, kind)
        os.close(fd)


def _opened(folder: int, path: str, expected: tuple[int, int]) -> int:
    """Open the path and check device and inode. Raises OSError: something else is there now."""
    for _ in range(LOOKS):
        try:
            fd = open_plain(folder, path, LOOK)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue
            raise OSError(error.errno, error.strerror, path) from None
        if identity(os.fstat(fd)) == expected:
            return fd
        os.close(fd)
    raise OSError(errno.ESTALE, MOVED, path or "/")


def _mount_root(root: str, expected: tuple[int, int], attributes: int, call: Kernel) -> int:
    """Mount the working directory in the jail; return the mount's descriptor."""
    old = os.open("/oldroot", LOOK | FOLDER)
    source = _copy(_opened(old, root, expected), attributes, call)
    at = os.open("/newroot", LOOK | FOLDER)
    for part in parts_of(root):
        try:
            below = os.open(part, LOOK | FOLDER | NO_LINK, dir_fd=at)
        except FileNotFoundError:  # below a directory that is empty in the jail
            os.mkdir(part, 0o755, dir_fd=at)
            below = os.open(part, LOOK | FOLDER | NO_LINK, dir_fd=at)
        os.close(at)
        at = below
    _mount(source, at, call)
    return source


def _copy(fd: int, attributes: int, call: Kernel) -> int:
    """Return a detached mount of an open file or directory, with these additional attributes."""
    tree = call(OPEN_TREE, fd, b"", EMPTY_PATH | RECURSIVE | CLONE | CLOEXEC)
    setting = b"".join(value.to_bytes(8, sys.byteorder) for value in (attributes, 0, 0, 0))
    call(MOUNT_SETATTR, tree, b"", EMPTY_PATH | RECURSIVE, setting, len(setting))
    return tree


def _nothing(target: int, call: Kernel) -> int:
    """Return a detached mount of an empty directory or file, whichever the target is."""
    if (os.fstat(target).st_mode & 0o170000) != 0o040000:
        null = os.open("/newroot/dev/null", LOOK | NO_LINK)
        return _copy(null, READ_ONLY, call)
    system = call(FSOPEN, b"tmpfs", 1)
    call(FSCONFIG, system, CREATE, 0, 0, 0)
    return call(FSMOUNT, system, 1, NO_SETUID | NO_DEVICES)


def _mount(source: int, target: int, call: Kernel) -> None:
    call(MOVE_MOUNT, source, b"", target, b"", FROM_DESCRIPTOR | TO_DESCRIPTOR)
