"""Finds the level of confinement that this system can provide, and how to get a better one."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from zot.core.confinement import JailLevel
from zot.text import Frozen
from zot.tools import paths
from zot.tools.jail import landlock
from zot.tools.jail.seccomp import filter_without_namespaces
from zot.tools.jail.walls import MOUNT_SETATTR, Kernel

NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
NO_NETWORK = "--unshare-net"
TRIAL_SECONDS = 10.0
INSTALL = (
    "there is no `bwrap` on PATH; install it (apt, dnf or pacman install bubblewrap; Linux only)"
)
APPARMOR = (
    "AppArmor keeps user namespaces from it here, as on Ubuntu 24.04: apt install"
    " apparmor-profiles, copy bwrap-userns-restrict from /usr/share/apparmor/extra-profiles to"
    " /etc/apparmor.d, and load it with apparmor_parser -r"
)
CONTAINER = (
    "this is a container without user namespaces: start it with --security-opt"
    " seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
KERNEL = "this kernel cannot mount by descriptor; it takes Linux 5.12 or later"


class FoundLevel(Frozen):
    level: JailLevel
    problem: str = ""
    """Why it is not `full`, and the remedy."""


def find_level(cwd: str, environ: Mapping[str, str]) -> FoundLevel:
    """Return the strongest level that works here, tried with a real program."""
    program = paths.executable("bwrap", Path(cwd), environ)
    problem = INSTALL if program is None else _trial(program)
    if not problem:
        return FoundLevel("full")
    return FoundLevel("files" if has_rules() else "none", problem)


@lru_cache
def has_rules() -> bool:
    """Return whether the level `files` works here."""
    machine = os.uname().machine
    code = filter_without_namespaces(machine, root=False, network=False)
    return bool(code) and landlock.abi() > 0


@lru_cache
def _trial(program: str) -> str:
    """Return "" if bubblewrap can make namespaces here, or the reason and the remedy."""
    argv = [program, *NAMESPACES, NO_NETWORK, "--ro-bind", "/", "/", "--proc", "/proc"]
    argv += ["--dev", "/dev", "--", "/bin/sh", "-c", "exit 0"]
    try:
        ran = subprocess.run(argv, capture_output=True, timeout=TRIAL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be started here ({error})"
    words = ran.stderr.decode("utf-8", "replace").strip() or f"it ended with {ran.returncode}"
    if ran.returncode:
        return f"bubblewrap cannot make a jail on this system ({words[:300]}); {hint(words)}"
    return "" if _mounts_by_descriptor() else KERNEL


def hint(words: str) -> str:
    """Return the remedy for what bubblewrap printed, by what this system says of itself."""
    if _number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return APPARMOR
    if _number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "user namespaces are off: sysctl kernel.unprivileged_userns_clone=1"
    if _number("/proc/sys/user/max_user_namespaces") == 0:
        return "user namespaces are off: sysctl user.max_user_namespaces=15000"
    if "setting up uid map" in words or "RTM_NEWADDR" in words:
        return APPARMOR
    if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))):
        return CONTAINER
    return (
        "it needs user namespaces (sysctl kernel.unprivileged_userns_clone=1, or a container that"
        " allows them)"
    )


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _mounts_by_descriptor() -> bool:
    try:
        Kernel()(MOUNT_SETATTR, -1, b"", 0, bytes(32), 32)
    except OSError as error:
        return error.errno != errno.ENOSYS
    return True
