"""Inputs of a run from its process: environment variables, directories, where zot keeps its files.

Only the composition roots (cli, sdk, build) read them from the process; all other code is passed a
Surroundings, or a part of it, so that agents in one process may differ (tests/test_layers.py).
Plain string paths: `zot rpc` loads this before its first answer, and pathlib would cost it several
milliseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

RPC_TOKEN = "ZOTCORE_RPC_TOKEN"
"""Variable with the token that a client must send first; hidden from every child process."""
OTEL_HEADERS = frozenset(
    ("OTEL_EXPORTER_OTLP_HEADERS",)
    + tuple(f"OTEL_EXPORTER_OTLP_{signal}_HEADERS" for signal in ("TRACES", "METRICS", "LOGS"))
)
"""Variables with the credentials of a telemetry collector."""
SWARM_TOKEN = "ZOT_SWARM_TOKEN"
"""Variable with the hub's token, on a machine that only works for the hub."""


class Surroundings(Struct, frozen=True):
    """Environment and directories; made once at the root of a program and passed down."""

    environ: Mapping[str, str]
    home: str
    """zot's own directory."""
    user: str
    """The user's home directory, for `~`."""
    cwd: str = ""
    """Base of the user's relative paths; empty if the directory no longer exists."""

    def absolute(self, path: str) -> str:
        """Return the absolute path without `..`; empty for a relative path if there is no working
        directory."""
        if not self.cwd and not os.path.isabs(path):
            return ""
        return os.path.normpath(os.path.join(self.cwd, path))


def of_process() -> Surroundings:
    """Return this process's Surroundings. Variables are looked up when needed, not copied."""
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    return Surroundings(os.environ, home_dir(os.environ), user_dir(os.environ), cwd)


def user_dir(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def expand_user(path: str, environ: Mapping[str, str]) -> str:
    """Expand `~` according to these variables, or `~NAME` of an existing user."""
    if path == "~" or path.startswith("~/"):
        return user_dir(environ) + path[1:]
    return os.path.expanduser(path)


def home_dir(environ: Mapping[str, str]) -> str:
    """Return `$ZOT_HOME`, or else the platform's directory for state. Creates nothing."""
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
    """Return the argv that starts another zot. `-P`: the working directory is untrusted and may
    contain a file with the name of a module."""
    return [sys.executable, "-P", "-m", "zot", *words]


def own_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for another zot, without empty and relative parts of PYTHONPATH, which
    would make Python run files of an untrusted working directory."""
    parts = environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(part for part in parts if os.path.isabs(part))
    others = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    return {**others, "PYTHONPATH": path} if path else others


def may_have_extensions(named: Sequence[str], cwd: str, home: str, *, search: bool) -> bool:
    """Return whether there can be an extension to start: one was named, or the project or the user
    has a folder for them."""
    folders = (f"{cwd}/.zot/extensions", f"{home}/extensions")
    return bool(named) or (search and any(map(os.path.isdir, folders)))
