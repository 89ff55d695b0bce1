"""`zot conformance --jail -- COMMAND...`: try the kit of escapes against any sandbox."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from zot.conformance.escapes import ESCAPES, Tried, try_all, work
from zot.errors import UsageError
from zot.text import for_terminal

HELP = """\
usage: zot conformance --jail [FLAGS] -- COMMAND...

Try to leave a sandbox that runs shell commands: `/bin/sh -c SCRIPT` is appended to the command,
once for each escape, in a new project below a new home directory. Run it as root and as another
user: the results differ.

  --folder DIR   make the surroundings here (your home directory; not below /tmp)
  --list         the escapes
  --json         one JSON line for each escape

Exit code: 0 every escape was held, 1 some were not or could not be tried, 2 wrong usage. What a
sandbox with the usual policy leaves open (other projects, named sockets) does not count.

  zot conformance --jail -- zot jail run --
  zot conformance --jail -- codex sandbox linux --full-auto --
"""


def main(words: Sequence[str], command: Sequence[str]) -> int:
    """Run with the words before `--`, without `--jail`, and the command after it."""
    rest = list(words)
    if "-h" in rest or "--help" in rest:
        sys.stdout.write(HELP)
        return 0
    if rest == ["--list"]:
        for escape in ESCAPES:
            sys.stdout.write(f"{escape.kind:10} {escape.name:18} {escape.text}\n")
        return 0
    folder = str(Path.home())
    if "--folder" in rest:
        at = rest.index("--folder")
        folder = rest[at + 1] if at + 1 < len(rest) else ""
        del rest[at : at + 2]
    as_json = rest == ["--json"]
    if (rest and not as_json) or not command or not Path(folder).is_dir():
        raise UsageError(f"zot conformance --jail: wrong words\n{HELP}")
    return check(command, folder, as_json=as_json)


def check(command: Sequence[str], folder: str, *, as_json: bool = False) -> int:
    """Try all escapes, print the results, and return the exit code."""
    results = try_all(command, folder, _show_json if as_json else _show)
    held = [result for result in results if result.verdict == "held"]
    missed = [result for result in results if result.escape.must and result not in held]
    if not as_json:
        sys.stdout.write(f"{len(held)} of {len(results)} escapes were held\n")
        for name, works in work(command, folder).items():
            sys.stdout.write(f"{'works' if works else 'does not work':14}{name}\n")
    return 1 if missed else 0


def _show(result: Tried) -> None:
    escape = result.escape
    escaped = "ESCAPED" if escape.must else "left open"
    mark = {"held": "held", "escaped": escaped, "not tried": "NOT TRIED"}[result.verdict]
    line = f"{mark:10} {escape.kind:10} {escape.text}"
    if result.verdict == "not tried":
        last = (result.output.strip().splitlines() or ["it printed nothing"])[-1]
        line += f" ({last[:200]})"
    sys.stdout.write(for_terminal(line) + "\n")
    sys.stdout.flush()


def _show_json(result: Tried) -> None:
    escape = result.escape
    row = {"name": escape.name, "kind": escape.kind, "verdict": result.verdict}
    sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
    sys.stdout.flush()
