"""Decides whether a directory can be a jail, and which names in it zot itself runs from."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path

from zot.beneath import is_below
from zot.errors import ConfigError
from zot.home import user_dir
from zot.tools import paths
from zot.tools.jail.obeyed import is_repository, obeyed_above
from zot.tools.jail.targets import led_to, links_above

SYSTEM = {
    *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/run"),
    *("/sbin", "/sys", "/usr", "/var"),
}


def homes(environ: Mapping[str, str]) -> set[str]:
    """Return the user's home directories: from the variable and from the password database."""
    user = user_dir(environ)
    named = {user} if os.path.isabs(user) else set()
    try:
        named.add(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass  # a user without an entry, as in a container
    return named


def check(root: str, zot_home: str, environ: Mapping[str, str]) -> None:
    """Raise ConfigError if the directory cannot be a jail."""
    if root in SYSTEM:
        raise ConfigError(
            f"--jail needs a project's directory: {root!r} belongs to the system, and a command"
            " could write all of it; start zot in a directory of your own"
        )
    if any(is_below(os.path.realpath(user), root) for user in homes(environ) if user != "/"):
        raise ConfigError(
            f"--jail needs a project's directory: {root!r} holds your home directory, with all"
            " that your shell runs; start zot in a directory below it"
        )
    if is_below(root, zot_home) or is_below(zot_home, root):
        raise ConfigError(
            f"--jail needs a project's directory: {root!r} and zot's own, {zot_home!r}, must not"
            " lie in each other; set ZOT_HOME to another place"
        )
    if os.path.isdir(root) and is_repository(os.listdir(root)):
        raise ConfigError(
            f"--jail needs a project's directory: {root!r} is a bare repository, whose"
            " configuration git obeys; start zot in a clone of it"
        )
    check_above(root)


def check_above(root: str, top: str = "") -> None:
    """Raise ConfigError if the directory lies in one that other programs obey; see obeyed_above."""
    above = obeyed_above(root, top)
    if above:
        what = "" if above == root else f" lies in {above!r}, which"
        raise ConfigError(
            f"jailed: {root!r}{what} is protected: other programs run or obey what is written"
            " there, outside of the jail; choose the project's directory, or one with its code"
        )
    for link, target in links_above(root):
        if is_below(root, target):
            raise ConfigError(
                f"jailed: {root!r} is protected: other programs obey {link!r}, which leads there;"
                " choose the directory above, or another one"
            )


def check_led_to(root: str, top: str, environ: Mapping[str, str]) -> None:
    """Raise ConfigError if something that other programs obey, anywhere below `top`, leads into
    the directory, and a jail of the directory alone would not know of it."""
    try:
        unknown = led_to(top, environ) - led_to(root, environ)
    except OSError as error:
        raise ConfigError(f"jailed: cannot look into {root!r}: {paths.reason(error)}") from error
    for path in unknown:
        if not (is_below(path, root) or is_below(root, path)):
            continue
        raise ConfigError(
            f"jailed: {path!r} is protected: a symlink or a setting that other programs obey leads"
            f" there, from outside of {root!r}; choose the directory {top!r}"
        )


def check_writable(path: str, root: str, zot_home: str, environ: Mapping[str, str]) -> str:
    """Return a directory of `--allow-write` without symlinks. Raises ConfigError: commands must
    not write it."""
    real = os.path.realpath(path)
    reason = ""
    if not os.path.isdir(real):
        reason = "there is no such directory; make it first"
    elif real in SYSTEM or any(is_below(os.path.realpath(user), real) for user in homes(environ)):
        reason = "it belongs to the system, or holds your home directory"
    elif is_below(real, root) or is_below(root, real):
        reason = f"it overlaps the working directory, {root!r}"
    elif is_below(real, zot_home) or is_below(zot_home, real):
        reason = f"it overlaps zot's own directory, {zot_home!r}"
    elif obeyed_above(real):
        reason = "other programs run or obey what is written there, outside of the jail"
    if reason:
        raise ConfigError(f"--allow-write cannot be {path!r}: {reason}")
    return real


def own_names(*roots: str) -> tuple[str, ...]:
    """Return the names in the roots from which zot itself runs, such as `.venv`: zot would execute
    a change there outside the jail. Only outermost names, since what is below can be renamed."""
    package = str(Path(__file__).parents[2])
    names = set()
    for path in (sys.prefix, sys.executable, package):
        for place in (os.path.abspath(path), os.path.realpath(path)):
            for root in roots:
                if is_below(place, root) and place != root:
                    names.add(os.path.relpath(place, root).split("/")[0])
    return tuple(sorted(names))
