"""Environment of an extension: the user's variables without zot's secrets."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from zot.home import RPC_TOKEN, own_environ

SDK = Path(__file__).parent / "sdk"
"""Holds only `zot_ext.py`, so that `import zot_ext` works in any Python."""


def environment(
    base: Mapping[str, str], secrets: Collection[str], wanted: Collection[str] = ()
) -> dict[str, str]:
    """Return a copy without the variables in `secrets`, and without others of equal value.

    `wanted` are names that the manifest requests; they are passed on, except the RPC token.
    """
    withheld = {*secrets, RPC_TOKEN}
    # A short value ("1", "on") is no secret, and would remove unrelated variables.
    values = {base[name] for name in withheld if len(base.get(name, "")) >= 8}
    kept = {
        name: value for name, value in base.items() if name not in withheld and value not in values
    }
    kept |= {
        name: base[name] for name in wanted if name in base and base[name] != base.get(RPC_TOKEN)
    }
    kept = own_environ(kept)
    path = kept.get("PYTHONPATH")
    kept["PYTHONPATH"] = f"{path}{os.pathsep}{SDK}" if path else str(SDK)
    return kept
