"""The parts of the file system that a jail with `jail_read=project` shows: the system and the
programs on PATH. Home directories and other projects are absent."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping

from zot.beneath import is_below
from zot.tools.jail.fit import homes

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys"),
    *("/nix", "/gnu", "/snap"),
)
PRIVATE = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private")
"""Files that only root could read; a jail of root hides them."""
PROGRAMS = ("bin", "sbin", "shims")
"""Names of directories with programs whose libraries lie beside them."""
TOOLCHAINS = (".rustup",)
"""Directories in a home that programs on PATH need."""


def shown(root: str, environ: Mapping[str, str], closed: Collection[str]) -> list[str]:
    """Return the directories to show, without symlinks, none of them inside another."""
    owners = {os.path.realpath(home) for home in homes(environ)}
    wanted = {os.path.realpath(path) for path in SYSTEM if os.path.isdir(path)}
    for folder in _program_folders(root, environ):
        base = os.path.dirname(folder) if os.path.basename(folder) in PROGRAMS else folder
        too_wide = {*owners, "/", *(f"{home}/.local" for home in owners)}
        wanted.add(folder if base in too_wide else base)
    for home in owners:
        wanted |= {f"{home}/{name}" for name in TOOLCHAINS}
    usable = [
        path
        for path in sorted(wanted)
        if os.path.isdir(path)
        and not any(is_below(home, path) for home in owners if home != "/")
        and not any(is_below(path, folder) for folder in (root, "/proc", "/dev", *closed))
    ]
    return [path for path in usable if not any(is_inside(path, other) for other in usable)]


def is_inside(path: str, other: str) -> bool:
    return path != other and is_below(path, other)


def links() -> Iterator[tuple[str, str]]:
    """Yield the system's directories that are symlinks, with their targets: /bin to usr/bin."""
    for path in SYSTEM:
        if os.path.islink(path):
            yield path, os.readlink(path)


def _program_folders(root: str, environ: Mapping[str, str]) -> set[str]:
    named = [path for path in environ.get("PATH", "").split(":") if os.path.isabs(path)]
    named += [os.path.dirname(sys.executable), f"{sys.base_prefix}/bin"]
    own = f"{root}/.venv/bin/python"
    named.append(os.path.dirname(os.path.realpath(own)))
    return {os.path.realpath(path) for path in named if path and os.path.isdir(path)}
