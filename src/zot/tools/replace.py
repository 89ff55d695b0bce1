"""What an edit means: find each old text once in the original, replace all, or say what is wrong.

Pure functions on bytes; no file is touched here.
"""

from __future__ import annotations

import difflib
import time

import msgspec

from zot.errors import ToolError
from zot.provider.types import Json
from zot.text import whole_characters
from zot.tools.endings import Normalized

NEAREST_SECONDS = 0.4
NEAREST_LINES = 15
SHOWN_MATCHES = 10

Edits = list[tuple[bytes, bytes]]


def parse(args: dict[str, Json]) -> Edits:
    """The edits of a call: a list, that list as JSON text, or one oldText and newText."""
    given = args.get("edits")
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            raise ToolError(f"edits must be a list of oldText and newText: {error}") from error
    if given is None and "oldText" in args:
        given = [{"oldText": args["oldText"], "newText": args.get("newText")}]
    if isinstance(given, dict):
        given = [given]
    if not isinstance(given, list) or not given:
        raise ToolError("at least one edit is required")
    return [_pair(each, number) for number, each in enumerate(given, 1)]


def _pair(edit: Json, number: int) -> tuple[bytes, bytes]:
    if not isinstance(edit, dict):
        raise ToolError(f"edit {number}: must be an object with oldText and newText")
    old, new = edit.get("oldText"), edit.get("newText")
    if not isinstance(old, str) or not isinstance(new, str):
        raise ToolError(f"edit {number}: oldText and newText must be strings")
    pair = _bytes(old), _bytes(new)
    if not pair[0]:
        raise ToolError(f"edit {number}: oldText must not be empty")
    if pair[0] == pair[1]:
        raise ToolError(f"edit {number}: oldText equals newText")
    return pair


def _bytes(value: str) -> bytes:
    return whole_characters(value.removeprefix("\ufeff").replace("\r\n", "\n")).encode()


def text(data: bytes) -> str:
    """Content for showing: one kind of line ending, no byte-order mark."""
    shown = data.replace(b"\r\n", b"\n").decode("utf-8", "replace")
    return shown.removeprefix("\ufeff")


def apply(before: bytes, edits: Edits, name: str) -> bytes:
    """The content after all edits, each matched against `before`.

    Raises:
        ToolError: no match, several matches, or edits that overlap.
    """
    content = Normalized(before)
    found: list[tuple[int, int, bytes, int]] = []
    for number, (old, new) in enumerate(edits, 1):
        start = _find(content.text, old, number, name)
        found.append((start, start + len(old), new, number))
    found.sort()
    for (_, end, _, first), (start, _, _, second) in zip(found, found[1:], strict=False):
        if start < end:
            raise ToolError(f"edits {first} and {second} overlap; merge them into one edit")
    return content.replace([(start, end, new) for start, end, new, _ in found])


def _find(content: bytes, old: bytes, number: int, name: str) -> int:
    positions: list[int] = []
    position = content.find(old)
    count = 0
    while position >= 0:
        count += 1
        if len(positions) < SHOWN_MATCHES:
            positions.append(position)
        if count >= 10_000:
            break
        position = content.find(old, position + 1)
    if count == 1:
        return positions[0]
    if count == 0:
        raise ToolError(f"edit {number}: oldText not found in {name}{_nearest(content, old)}")
    lines = ", ".join(str(content.count(b"\n", 0, at) + 1) for at in positions)
    more = ", ..." if count > len(positions) else ""
    raise ToolError(
        f"edit {number}: oldText matches {count} times (must be unique) in {name}:"
        f" at lines {lines}{more}; include more of the text around it"
    )


def _nearest(content: bytes, old: bytes) -> str:
    """Where the file comes closest to the text that was not found, for the error."""
    lines = content.decode("utf-8", "replace").split("\n")
    wanted = old.decode("utf-8", "replace").strip("\n").split("\n")
    deadline = time.monotonic() + NEAREST_SECONDS
    why = "the same words, but other spaces or tabs,"
    at = _same_words(lines, wanted, deadline)
    if at is None:
        why = "the nearest text"
        at = _similar(lines, wanted, deadline + NEAREST_SECONDS)
    if at is None:
        return "; nothing in it is similar: read the file first"
    count = min(len(wanted), NEAREST_LINES)
    shown = "\n".join(line[:300] for line in lines[at : at + count])
    return f"; {why} is at line {at + 1}:\n{shown}"


def _same_words(lines: list[str], wanted: list[str], deadline: float) -> int | None:
    words = [line.split() for line in wanted]
    if not any(words):
        return None
    first = next(index for index, each in enumerate(words) if each)
    for at, line in enumerate(lines):
        if at % 64 == 0 and time.monotonic() > deadline:
            return None
        start = at - first
        if line.split() == words[first] and start >= 0:
            window = lines[start : start + len(words)]
            if [each.split() for each in window] == words:
                return start
    return None


def _similar(lines: list[str], wanted: list[str], deadline: float) -> int | None:
    """The line where a block like `wanted` begins, judged by its longest line."""
    longest = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    probe = wanted[longest].strip()[:300]
    if not probe:
        return None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(probe)
    best, best_at = 0.55, None
    for at, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:300])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, best_at = ratio, at
        if time.monotonic() > deadline:  # asked every time: one ratio can take milliseconds
            break
    return None if best_at is None else max(0, best_at - longest)
