"""What an extension sees of zot's environment: the user's variables without zot's secrets."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from zot.home import RPC_TOKEN, own_environ

SDK = Path(__file__).parent / "sdk"
"""Holds `zot_ext.py` and nothing else: `import zot_ext` works in any Python."""


def environment(
    base: Mapping[str, str], secrets: Collection[str], wanted: Collection[str] = ()
) -> dict[str, str]:
    """A copy without the variables named in `secrets`, nor others that hold the same values.

    `wanted` are names the manifest asks for; they are passed on, except for the RPC token.
    """
    withheld = {*secrets, RPC_TOKEN}
    # A short value ("1", "on") is no secret, and would hide variables that merely look alike.
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
