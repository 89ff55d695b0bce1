"""Where zot keeps its files (`zot.files` writes them), and a variable that no child may see.

Plain string paths inside: `zot rpc` loads this before its first answer, and pathlib would cost
it several milliseconds. `home()` hands out a Path to those who have pathlib loaded anyway.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RPC_TOKEN = "ZOTCORE_RPC_TOKEN"
"""The variable with the token that a client must say first; it is kept from every child."""


def home_dir() -> str:
    """`$ZOT_HOME`, else the platform's place for state. Nothing is created by asking."""
    if explicit := os.environ.get("ZOT_HOME"):
        return os.path.expanduser(explicit)
    if state := os.environ.get("XDG_STATE_HOME"):
        return os.path.join(state, "zot")
    user = os.path.expanduser("~")
    if sys.platform == "darwin":
        return os.path.join(user, "Library", "Application Support", "zot")
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return os.path.join(local, "zot")
    return os.path.join(user, ".local", "state", "zot")


def home() -> Path:
    """The same as a Path."""
    from pathlib import Path  # start-up budget: see the top of the file

    return Path(home_dir())
