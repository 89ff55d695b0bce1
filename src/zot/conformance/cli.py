"""`zot conformance -- COMMAND...`: drive an implementation of the wire and report the results."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from zot.conformance.basics import BASICS
from zot.conformance.kit import Kit, Point, field_points
from zot.conformance.life import LIFE
from zot.conformance.trouble import TROUBLE
from zot.errors import ConfigError, UsageError
from zot.testing.fakeserver import FakeServer
from zot.text import for_terminal, positive

SCENARIOS: tuple[Callable[[Kit], None], ...] = (*BASICS, *TROUBLE, *LIFE)
DEFAULT_SECONDS = 15.0
HELP = """\
usage: zot conformance [FLAGS] -- COMMAND...

Drive any implementation of the zot wire through scripted scenarios, against a fake model server
on this machine, and report point by point what holds. Nothing leaves the machine.

The command is given --provider anthropic --base-url URL --api-key KEY, and the same in
ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY. Where that does not fit, write {url}, {key} and {cwd}
into the command: nothing is added then.

  --only NAME    one scenario; may be repeated
  --list         the scenarios
  --seconds S    how long to wait for anything (15)
  --json         one JSON line for each point
  --failures     show only what does not hold

Exit code: 0 every must holds, 1 some do not, 2 wrong usage.

`zot conformance --jail` tries a sandbox for commands instead; see its --help.

  zot conformance -- zot rpc
  zot conformance -- node my-server.js --url {url} --key {key}
"""


def main(argv: Sequence[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    words, command = list(argv[1:at]), list(argv[at + 1 :])
    if "--jail" in words:
        from zot.conformance import jail  # another kit, which needs none of this one

        words.remove("--jail")
        return jail.main(words, command)
    if "-h" in words or "--help" in words:
        sys.stdout.write(HELP)
        return 0
    if words == ["--list"]:
        sys.stdout.write("".join(f"{scenario.__name__}\n" for scenario in SCENARIOS))
        return 0
    only, seconds, flags = _flags(words)
    if not command:
        raise UsageError("zot conformance: no command: zot conformance -- zot rpc")
    show = _show_json if "--json" in flags else _show_text

    def tell(point: Point) -> None:
        if not point.holds or "--failures" not in flags:
            show(point)

    points = check_wire(command, only=only, seconds=seconds, tell=tell)
    missed = [point for point in points if not point.holds]
    if "--json" not in flags:
        sys.stdout.write(summary(points) + "\n")
    return 1 if any(point.level == "must" for point in missed) else 0


def check_wire(
    command: Sequence[str],
    *,
    only: Sequence[str] = (),
    seconds: float = DEFAULT_SECONDS,
    tell: Callable[[Point], None] = lambda point: None,
) -> list[Point]:
    """Run all scenarios, or those in `only`, against a command; call `tell` with each point.

    Raises:
        ConfigError: the command does not exist.
    """
    program = placed(command)
    with FakeServer() as server:
        kit = Kit(program, server, seconds, tell)
        for scenario in SCENARIOS:
            if not only or scenario.__name__ in only:
                kit.run(scenario)
    for point in field_points(kit.seen):
        kit.add(point)
    return kit.points


def placed(command: Sequence[str]) -> list[str]:
    """Return the command with absolute file paths, as each scenario has its own directory."""
    program = shutil.which(command[0])
    if program is None:
        raise ConfigError(f"there is no command {command[0]!r}")
    words = [program, *command[1:]]
    # Path.is_file would raise for a word too long for a file name, such as `-c PROGRAM`.
    return [str(Path(word).absolute()) if os.path.isfile(word) else word for word in words]  # noqa: PTH113


def summary(points: Sequence[Point]) -> str:
    parts = []
    for level in ("must", "should"):
        of_level = [point for point in points if point.level == level]
        held = sum(point.holds for point in of_level)
        parts.append(f"{level}: {held} of {len(of_level)} hold")
    return "; ".join(parts)


def _show_text(point: Point) -> None:
    mark = "ok  " if point.holds else ("FAIL" if point.level == "must" else "differs")
    line = f"{mark} {point.id}: {point.text}"
    text = line if point.holds else f"{line}\n       {point.detail}"
    sys.stdout.write(for_terminal(text) + "\n")
    sys.stdout.flush()


def _show_json(point: Point) -> None:
    sys.stdout.write(for_terminal(msgspec.json.encode(point).decode()) + "\n")


def _flags(words: Sequence[str]) -> tuple[list[str], float, set[str]]:
    only: list[str] = []
    seconds = DEFAULT_SECONDS
    flags: set[str] = set()
    rest = iter(words)
    for word in rest:
        if word in ("--json", "--failures"):
            flags.add(word)
        elif word == "--only":
            only.append(next(rest, ""))
        elif word == "--seconds":
            seconds = _number(next(rest, ""))
        else:
            raise UsageError(f"zot conformance: unknown flag {word!r}; see zot conformance --help")
    names = {scenario.__name__ for scenario in SCENARIOS}
    for name in only:
        if name not in names:
            raise UsageError(f"zot conformance: no scenario {name!r}; --list shows them")
    return only, seconds, flags


def _number(text: str) -> float:
    seconds = positive(text)
    if not 0 < seconds < 1e6:
        raise UsageError(f"zot conformance: --seconds needs a positive number, not {text!r}")
    return seconds
