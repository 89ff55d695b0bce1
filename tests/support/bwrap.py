"""Whether commands can be jailed on this machine."""

import shutil
import subprocess

import pytest

from zot.tools.jail.levels import NAMESPACES, NO_NETWORK


def trouble() -> str:
    """Why not; empty if they can."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    argv = [program, *NAMESPACES, NO_NETWORK, "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    return f"bubblewrap cannot work here: {said.stderr.strip()}" if said.returncode else ""


WHY = trouble()
needs_bwrap = pytest.mark.skipif(bool(WHY), reason=WHY)
