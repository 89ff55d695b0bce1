"""What a run takes from the process around it: variables, directories, where zot keeps its files.

Only the composition roots (cli, sdk, build) ask the process; the rest is handed a Surroundings, or
the part of it that it needs, so that agents side by side may differ (tests/test_layers.py). Plain
string paths: `zot rpc` loads this before its first answer, and pathlib would cost it several
milliseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

RPC_TOKEN = "ZOTCORE_RPC_TOKEN"
"""The variable with the token that a client must say first; it is kept from every child."""
SWARM_TOKEN = "ZOT_SWARM_TOKEN"
"""The variable with the token of the hub, on a machine that only works for it."""


class Surroundings(Struct, frozen=True):
    """Made once at the root of a program, and handed down."""

    environ: Mapping[str, str]
    home: str
    """zot's own directory."""
    user: str
    """The user's: what `~` means."""
    cwd: str = ""
    """What relative paths of the user's start from; empty: it is gone."""

    def absolute(self, path: str) -> str:
        """The path as the user means it, without a `..` in it; empty when there is nothing that a
        relative one could start from."""
        if not self.cwd and not os.path.isabs(path):
            return ""
        return os.path.normpath(os.path.join(self.cwd, path))


def of_process() -> Surroundings:
    """Those of this process. Its variables are looked up when they are needed, not copied."""
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    return Surroundings(os.environ, home_dir(os.environ), user_dir(os.environ), cwd)


def user_dir(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def expand_user(path: str, environ: Mapping[str, str]) -> str:
    """The path with `~` filled in, as these variables have it, or `~NAME` of a user there is."""
    if path == "~" or path.startswith("~/"):
        return user_dir(environ) + path[1:]
    return os.path.expanduser(path)


def home_dir(environ: Mapping[str, str]) -> str:
    """`$ZOT_HOME`, else the platform's place for state. Nothing is created by asking."""
    user = user_dir(environ)
    if explicit := environ.get("ZOT_HOME"):
        return expand_user(explicit, environ)
    if state := environ.get("XDG_STATE_HOME"):
        return os.path.join(state, "zot")
    if sys.platform == "darwin":
        return os.path.join(user, "Library", "Application Support", "zot")
    if sys.platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return os.path.join(local, "zot")
    return os.path.join(user, ".local", "state", "zot")


def own_command(*words: str) -> list[str]:
    """What starts another zot. `-P`: the working directory may be a stranger's, and hold a file
    with the name of a module."""
    return [sys.executable, "-P", "-m", "zot", *words]


def own_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for another zot, which may work in a stranger's directory: a part of PYTHONPATH
    that is empty or relative would make Python run files of that directory."""
    parts = environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(part for part in parts if os.path.isabs(part))
    others = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    return {**others, "PYTHONPATH": path} if path else others


def may_have_extensions(named: Sequence[str], cwd: str, home: str, *, search: bool) -> bool:
    """Whether there can be an extension to start: one was named, or the project or the user has
    a folder for them."""
    folders = (f"{cwd}/.zot/extensions", f"{home}/extensions")
    return bool(named) or (search and any(map(os.path.isdir, folders)))
