"""The system calls that are refused in the jail, as a filter for bubblewrap or for landlock.py.

They reach past namespaces (keyrings, sockets of a virtual machine's host), leave a file behind that
gives its owner's rights to others (set-user-ID), or are large and often vulnerable parts of the
kernel that no build or test needs. Network sockets stay: a server on loopback works in the jail.
"""

from __future__ import annotations

import struct
import sys

from zot.text import Frozen

LOAD, EQUAL, AT_LEAST, HAS_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, NO_SUCH_CALL, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
NUMBER, ARCH = 0, 4  # offsets in struct seccomp_data
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
FAMILIES = (UNIX, INET, INET6, NETLINK)
SET_USER_ID, SET_GROUP_ID, GROUP_RUNS = 0o4000, 0o2000, 0o010
CREATES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE: without them the mode means nothing
X32 = 0x40000000


class Machine(Frozen):
    arch: int
    refused: tuple[int, ...]
    """ptrace, process_vm_*, io_uring_*, keys, bpf, userfaultfd, perf_event_open."""
    sockets: tuple[int, ...]
    """socket, socketpair; filtered by family, their first argument."""
    modes: tuple[tuple[int, int], ...]
    """chmod, mknod and similar calls, with the position of the mode argument."""
    opens: tuple[tuple[int, int], ...]
    """open, openat, with the position of the flags argument; the mode follows."""
    clone: int
    shared: tuple[int, ...]
    """unshare, setns, shmget, semget, msgget, mq_open: namespaces, and memory and queues of the
    user's other programs."""


CLONE3 = 435  # its flags lie in memory; the C library then uses clone
NEW_NAMESPACES = 0x7E020000 | 0x80  # CLONE_NEWNS, ..., CLONE_NEWNET, CLONE_NEWTIME
OPENAT2 = 437  # its mode lies in memory, which a filter cannot read; programs do without it
MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        (101, 310, 311, 425, 426, 427, 248, 249, 250, 321, 323, 298),
        (41, 53),
        ((90, 1), (91, 1), (268, 2), (452, 2), (85, 1), (133, 1), (259, 2)),
        ((2, 1), (257, 2)),
        56,
        (272, 308, 29, 64, 68, 240),
    ),
    "aarch64": Machine(
        0xC00000B7,
        (117, 270, 271, 425, 426, 427, 217, 218, 219, 280, 282, 241),
        (198, 199),
        ((52, 1), (53, 2), (452, 2), (33, 2)),
        ((56, 2),),
        220,
        (97, 268, 194, 190, 186, 180),
    ),
}


def filter_for(machine: str, *, root: bool) -> bytes:
    """Return the compiled filter; empty for a machine whose call numbers are not known here.

    For root it also refuses set-group-ID where the group may run the file. For other users it does
    not: a filter cannot tell files from directories, which have that bit in shared projects.
    """
    known = _known(machine)
    return _compiled(machine, known, [], FAMILIES, root=root) if known else b""


def filter_without_namespaces(machine: str, *, root: bool, network: bool) -> bytes:
    """Like filter_for(), for a program that shares the machine's namespaces: without `network` it
    makes no sockets but pairs, so it reaches no service by any address or path."""
    known = _known(machine)
    if known is None:
        return b""
    code = [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, NO_SUCH_CALL)]
    for number in known.shared:
        code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    spaces = [_argument(0), (HAS_BITS, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, REFUSE)]
    code += _for_call(known.clone, spaces)
    families = (INET, INET6, NETLINK) if network else ()
    return _compiled(machine, known, code, families, root=root)


def _known(machine: str) -> Machine | None:
    return MACHINES.get(machine) if sys.byteorder == "little" else None


def _compiled(
    machine: str, known: Machine, more: list[Instruction], families: tuple[int, ...], *, root: bool
) -> bytes:
    """Compile the filter; `more` are instructions for further calls, `families` those of socket."""
    code = [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, known.arch), (RETURN, 0, 0, KILL)]
    code += [(LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        code += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, REFUSE)]
    for number in known.refused:
        code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    code += [(EQUAL, 0, 1, OPENAT2), (RETURN, 0, 0, NO_SUCH_CALL), *more]
    for number, allowed in zip(known.sockets, (families, FAMILIES), strict=True):
        tests = [(EQUAL, len(allowed) - at, 0, family) for at, family in enumerate(allowed)]
        code += _for_call(number, [_argument(0), *tests, (RETURN, 0, 0, REFUSE)])
    lending = [*_REFUSE_SET_USER_ID, *(_REFUSE_SET_GROUP_ID if root else ())]
    for number, position in known.modes:
        code += _for_call(number, [_argument(position), *lending])
    for number, position in known.opens:
        creating = [_argument(position), (HAS_BITS, 1, 0, CREATES), (RETURN, 0, 0, ALLOW)]
        code += _for_call(number, [*creating, _argument(position + 1), *lending])
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


Instruction = tuple[int, int, int, int]
_REFUSE_SET_USER_ID = [(HAS_BITS, 0, 1, SET_USER_ID), (RETURN, 0, 0, REFUSE)]
_REFUSE_SET_GROUP_ID = [
    (HAS_BITS, 0, 2, SET_GROUP_ID),
    (HAS_BITS, 0, 1, GROUP_RUNS),
    (RETURN, 0, 0, REFUSE),
]


def _argument(position: int) -> Instruction:
    return LOAD, 0, 0, 16 + 8 * position  # its lower half: all checked arguments fit into it


def _for_call(number: int, body: list[Instruction]) -> list[Instruction]:
    """Return code that runs the body for one system call, ending there; other calls skip it."""
    body = [*body, (RETURN, 0, 0, ALLOW)]
    return [(EQUAL, 0, len(body), number), *body]
