"""The fenced code blocks of a Markdown file, so that tests can run what the documents show.

A block that is not to be run says why, in a comment on the line above its fence:

    <!-- not run: needs a key of a real provider -->
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^(\s*)(`{3,})\s*(\S*)\s*(.*)$")
NOT_RUN = re.compile(r"^\s*<!--\s*not run:\s*(.*?)\s*-->\s*$")


class Block(NamedTuple):
    path: Path
    line: int
    """Of the opening fence, counted from 1."""
    language: str
    text: str
    not_run: str | None
    """Why the block is not run; None: it is."""

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


def blocks(path: str | Path, language: str | None = None) -> list[Block]:
    """All blocks of a file (a path below the repository's root), or those of one language."""
    path = ROOT / path
    found: list[Block] = []
    lines = path.read_text(encoding="utf-8").split("\n")
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        start, body = number, []
        indent, ticks, name, _ = opening.groups()
        while number < len(lines) and lines[number].strip() != ticks:
            body.append(lines[number].removeprefix(indent))
            number += 1
        assert number < len(lines), f"{path.name}:{start}: the fence is not closed"
        number += 1
        found.append(Block(path, start, name, "\n".join(body) + "\n", _reason(lines, start, path)))
    return [block for block in found if language in (None, block.language)]


def runnable(path: str | Path, language: str) -> list[Block]:
    """The blocks of a language that a test must run."""
    return [block for block in blocks(path, language) if block.not_run is None]


def _reason(lines: list[str], start: int, path: Path) -> str | None:
    above = NOT_RUN.match(lines[start - 2]) if start >= 2 else None
    if above is None:
        return None
    assert above[1], f"{path.name}:{start - 1}: `not run:` needs a reason"
    return above[1]
