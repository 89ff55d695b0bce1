"""Confines a program by Landlock and a system call filter, where there are no namespaces.

Runs in the keeper, between fork and exec. Standard library only. The program keeps the machine's
view of files, processes and the network; what it may not use is refused, not absent. files.py
decides on the rules.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import stat
import struct

from zot import trees
from zot.beneath import LOOK, NO_LINK, identity, open_real
from zot.tools.jail.walls import MOVED, Kernel, RecordLock

# System call numbers that are the same on every architecture.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION = 1
SECCOMP_FILTER = 2
NO_NEW_PRIVS, SET_SECCOMP, DROP_BOUND, AMBIENT = 38, 22, 24, 47
CLEAR_AMBIENT = 4
CAPABILITY_VERSION = 0x20080522
LAST_CAPABILITY = 63

EXECUTE, WRITE, READ, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (
    1 << bit for bit in range(6, 13)
)
REFER, TRUNCATE, IOCTL = 1 << 13, 1 << 14, 1 << 15
SEE = EXECUTE | READ | READ_DIR
CHANGE = WRITE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
CHANGE |= REFER | TRUNCATE
USE = READ | WRITE | TRUNCATE | IOCTL
"""Rights to a device such as /dev/null."""
OF_FILES = EXECUTE | USE
"""Rights that a rule for something else than a directory may name."""
TCP = 0b11
"""Bind and connect."""
ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

KIND = b"landlock:"
"""Start of a plan for RulesGate; walls.packed() begins otherwise."""

Rule = tuple[str, int]
"""A path without symlinks, and the rights to it and all below."""


def handled(abi: int) -> tuple[int, int, int]:
    """Return the rights to files, the network rights and the scopes that a version knows."""
    files = (1 << 13) - 1
    for version, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL)):
        files |= right if abi >= version else 0
    return files, TCP if abi >= 4 else 0, ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0


def abi() -> int:
    """Return the version of Landlock that this kernel has; 0 for none."""
    try:
        return Kernel()(CREATE_RULESET, 0, 0, VERSION)
    except OSError:
        return 0


def packed(
    code: bytes,
    rules: list[Rule],
    root: Rule,
    status: os.stat_result,
    *,
    network: bool,
    record: str = "",
) -> bytes:
    """Pack the plan that a keeper needs for a program. `code`: the system call filter; `root`: the
    working directory, which must still be the one with this status; `record`: see record.py."""
    return KIND + marshal.dumps((code, rules, root, identity(status), network, record))


def gate(plan: bytes) -> RulesGate | None:
    """Return the gate for a plan; None for the plan of a jail with namespaces."""
    return RulesGate(plan) if plan.startswith(KIND) else None


class RulesGate:
    """Starts a program under rules. Has the methods of walls.JailGate."""

    def __init__(self, plan: bytes) -> None:
        fields = marshal.loads(plan.removeprefix(KIND))
        self._code, self._rules, self._root, self._identity, self._network, record = fields
        self._lock = RecordLock(record, self._root[0])

    def spawn(self, argv: list[str], env: dict[str, str]) -> int:
        """Start the program in its own session; return its pid.

        Raises:
            OSError: it cannot be confined, or does not exist.
        """
        source, sink = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(argv, env, sink)
        os.close(sink)
        with open(source, "rb") as file:
            report = file.read()  # ends with the exec, or with the child
        if report:
            os.waitpid(pid, 0)
            number, _, name = report.decode("utf-8", "replace").partition(" ")
            known = int(number)
            raise OSError(known, MOVED if known == errno.ESTALE else os.strerror(known), name)
        return pid

    def close(self) -> None:
        self.leave(recover=False)

    def build(self) -> str:
        return ""  # the rules hold from the first instruction

    def open(self) -> None:
        """Do nothing: the program has started."""

    def leave(self, *, recover: bool) -> None:
        self._lock.leave(recover=recover)

    def _become(self, argv: list[str], env: dict[str, str], sink: int) -> None:
        try:
            trees.start_afresh()
            confine(self._rules, self._root, self._identity, self._code, network=self._network)
            os.execve(argv[0], argv, env)
        except OSError as error:
            os.write(sink, f"{error.errno or errno.EIO} {error.filename or argv[0]}".encode())
        except BaseException as error:  # no failure may let the program start
            os.write(sink, f"{errno.EIO} {error!r}".encode())
        finally:
            os._exit(126)


def confine(
    rules: list[Rule],
    root: Rule,
    expected: tuple[int, int],
    code: bytes,
    *,
    network: bool = False,
) -> None:
    """Confine this process and all that it starts, for good. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    call = Kernel()
    version = call(CREATE_RULESET, 0, 0, VERSION)
    files, net, scopes = handled(version)
    attributes = struct.pack("QQQ", files, 0 if network else net, scopes)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = call(CREATE_RULESET, attributes[:size], size, 0)
    for path, rights in rules:
        _allow(call, ruleset, path, rights & files)
    _allow(call, ruleset, root[0], root[1] & files, expected)
    _drop_capabilities(library)
    _check(library.prctl(NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    _install(library, code)


def _allow(
    call: Kernel, ruleset: int, path: str, rights: int, expected: tuple[int, int] | None = None
) -> None:
    try:
        fd = os.open(path, LOOK | NO_LINK) if expected is None else open_real(path, LOOK)
    except OSError:
        if expected is None:
            return  # it went away: then there is nothing to allow
        raise OSError(errno.ESTALE, MOVED, path) from None
    try:
        status = os.fstat(fd)
        if expected is not None and identity(status) != expected:
            raise OSError(errno.ESTALE, MOVED, path)
        if stat.S_ISLNK(status.st_mode):
            return  # a rule is for a place; where the link leads has a rule of its own, or none
        if not stat.S_ISDIR(status.st_mode):
            rights &= OF_FILES
        if rights:
            call(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _drop_capabilities(library: ctypes.CDLL) -> None:
    """Drop the powers of root: Landlock does not restrict most of them."""
    for number in range(LAST_CAPABILITY + 1):
        if library.prctl(DROP_BOUND, number, 0, 0, 0):
            break  # not root, or past the last one that this kernel knows
    library.prctl(AMBIENT, CLEAR_AMBIENT, 0, 0, 0)  # fails before Linux 4.3, which has none
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _check(library.capset(header, bytes(24)), "capset")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _install(library: ctypes.CDLL, code: bytes) -> None:
    program = _Program(len(code) // 8, code)
    mode = ctypes.c_ulong(SECCOMP_FILTER)
    _check(library.prctl(SET_SECCOMP, mode, ctypes.byref(program), 0, 0), "seccomp")


def _check(result: int, name: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
