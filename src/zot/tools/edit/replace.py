"""Applies edits: find each old text once in the original, replace all, or report the error. An
exact match always wins; otherwise the one place that can be meant is used (lenient.py).

Pure functions on bytes; no file is touched here.
"""

from __future__ import annotations

import difflib
import itertools
import time
from typing import NamedTuple

from zot.errors import ToolError
from zot.provider.types import Json
from zot.text import Frozen, whole_characters
from zot.tools.edit import lenient, rewrite
from zot.tools.edit.lenient import SearchedText, Spot
from zot.tools.edit.text import BOM, Normalized

NEAREST_SECONDS = 0.4
NEAREST_LINES = 15
SHOWN_MATCHES = 10
SHOWN_SPOTS = 3


class Replacement(NamedTuple):
    old: bytes
    new: bytes
    every: bool = False
    """Replace every occurrence instead of the only one."""


Edits = list[Replacement]


def parse(args: dict[str, Json]) -> Edits:
    """Return the edits of a call of the `edit` tool."""
    edits = args.get("edits")
    if not isinstance(edits, list) or not edits:
        raise ToolError("at least one edit is required")
    return [_parse_one(edit, number) for number, edit in enumerate(edits, 1)]


def _parse_one(edit: Json, number: int) -> Replacement:
    if not isinstance(edit, dict):
        raise ToolError(f"edit {number}: must be an object with oldText and newText")
    old, new = edit.get("oldText"), edit.get("newText")
    if not isinstance(old, str) or not isinstance(new, str):
        raise ToolError(f"edit {number}: oldText and newText must be strings")
    parsed = Replacement(_bytes(old), _bytes(new), edit.get("replaceAll") is True)
    if not parsed.old:
        raise ToolError(f"edit {number}: oldText must not be empty")
    if parsed.old == parsed.new:
        raise ToolError(f"edit {number}: oldText equals newText")
    return parsed


def _bytes(value: str) -> bytes:
    return whole_characters(value.removeprefix("\ufeff").replace("\r\n", "\n")).encode()


class Applied(Frozen):
    """The content after all edits, and notes on differences that were overlooked."""

    content: bytes
    notes: tuple[str, ...] = ()


class Match(Frozen):
    """The place of an edit: positions in the content with `\n` line ends."""

    start: int
    end: int
    changes: list[tuple[int, int, bytes]]
    note: str = ""


def apply(before: bytes, edits: Edits, name: str) -> Applied:
    """Return the content after all edits, each matched against `before`.

    Raises:
        ToolError: no match, several matches, or edits that overlap.
    """
    content = Normalized(before)
    page: list[SearchedText] = []  # made for the first text without an exact match
    matches: list[tuple[int, int, int, Match]] = []
    for number, (old, new, every) in enumerate(edits, 1):
        what = f"edit {number}: oldText"
        if every and (found := _every(content.text, old, new)):
            matches += [(match.start, match.end, number, match) for match in found]
            continue
        match = _exact(content.text, old, new, what, name)
        if match is None:
            page = page or [_page(content.text)]
            match = _lenient(page[0], old, new, what, name)
        matches.append((match.start, match.end, number, match))
    matches.sort(key=lambda row: row[:3])
    for (_, end, first, _), (start, _, second, _) in itertools.pairwise(matches):
        if start < end:
            first, second = sorted((first, second))
            raise ToolError(f"edits {first} and {second} overlap; merge them into one edit")
    after = content.replace([change for *_, match in matches for change in match.changes])
    notes = tuple(f"edit {number}: {match.note}" for *_, number, match in matches if match.note)
    if notes and after == before:
        raise ToolError(f"{name} has all of newText already; nothing was changed")
    return Applied(after, notes)


def _page(content: bytes) -> SearchedText:
    mark = len(BOM) if content.startswith(BOM) else 0
    return SearchedText(_decoded(content[mark:]), mark)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _every(content: bytes, old: bytes, new: bytes) -> list[Match]:
    """Return all places of the old text that do not overlap, from the start."""
    matches: list[Match] = []
    at = content.find(old)
    while at >= 0:
        end = at + len(old)
        matches.append(Match(at, end, [(at, end, new)]))
        at = content.find(old, end)
    return matches


def _exact(content: bytes, old: bytes, new: bytes, what: str, name: str) -> Match | None:
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
    if count == 0:
        return None
    if count == 1:
        start, end = positions[0], positions[0] + len(old)
        return Match(start, end, [(start, end, new)])
    lines = ", ".join(str(content.count(b"\n", 0, at) + 1) for at in positions)
    more = ", ..." if count > len(positions) else ""
    raise ToolError(
        f"{what} matches {count} times (must be unique) in {name}:"
        f" at lines {lines}{more}; include more of the text around it, or set replaceAll"
    )


def _lenient(page: SearchedText, old: bytes, new: bytes, what: str, name: str) -> Match:
    """Return the only place that can be meant, if the old text's words occur in another form."""
    texts = _decoded(old), _decoded(new)
    spots = page.find(texts[0])
    escaped = False
    if not spots:
        for unescaped in lenient.unescaped(*texts):
            if spots := page.find(unescaped[0]):
                texts, escaped = unescaped, True
                break
    if not spots:
        raise ToolError(f"{what} not found in {name}{_nearest(page.lines, texts[0])}")
    spot = lenient.meant(spots)
    if spot is None:
        more = " or more" if len(spots) == lenient.MAX_SPOTS else ""
        raise ToolError(
            f"{what} is not in {name} as it was sent, and {len(spots)}{more} places can be meant;"
            f" include more of the text around it:\n{_shown(page, spots)}"
        )
    words = ", ".join(sorted(spot.overlooked | ({lenient.ESCAPES} if escaped else set())))
    try:
        changes = rewrite.changes(page, spot, *texts)
    except rewrite.Unclear as error:
        raise ToolError(
            f"{what} is not in {name} as it was sent; it is there with other {words}, but"
            f" {error}. Send it as it is:\n{_shown(page, [spot])}"
        ) from error
    first, last = spot.rows[0], spot.rows[-1]
    start, end = page.starts[first] + spot.low, page.starts[last] + spot.high
    note = f"applied at lines {first + 1}-{last + 1} in spite of: {words}"
    ends = [(start, end), *((low, high) for low, high, _ in changes)]
    return Match(
        page.offset(min(low for low, _ in ends)),
        page.offset(max(high for _, high in ends)),
        [
            (page.offset(low), page.offset(high), lenient.encoded(text))
            for low, high, text in changes
        ],
        note,
    )


def _shown(page: SearchedText, spots: list[Spot]) -> str:
    """Return the lines of the first spots, with their numbers."""
    blocks = []
    for spot in spots[:SHOWN_SPOTS]:
        rows = range(spot.rows[0], spot.rows[-1] + 1)
        lines = [f"{row + 1}: {page.lines[row][:300]}" for row in rows[:NEAREST_LINES]]
        blocks.append("\n".join(lines))
    return "\n...\n".join(blocks)


def _nearest(lines: list[str], old: str) -> str:
    """Return the passage most similar to the text that was not found, for the error message."""
    wanted = old.strip("\n").split("\n")
    at = _similar(lines, wanted, time.monotonic() + NEAREST_SECONDS)
    if at is None:
        return "; nothing in it is similar: read the file first"
    count = min(len(wanted), NEAREST_LINES)
    shown = "\n".join(line[:300] for line in lines[at : at + count])
    return f"; the nearest text is at line {at + 1}:\n{shown}"


def _similar(lines: list[str], wanted: list[str], deadline: float) -> int | None:
    """Return the line where a block similar to `wanted` begins, judged by its longest line."""
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
        if time.monotonic() > deadline:  # checked each time: one ratio can take milliseconds
            break
    return None if best_at is None else max(0, best_at - longest)
