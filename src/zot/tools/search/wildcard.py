"""Shell patterns over paths: `*`, `?`, `[...]`, `{a,b}` and `**`. Matching takes linear time, so
no pattern can hang the program. Touches no file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_ALTERNATIVES = 1000

DEEP = None
"""Matcher for `**`: any number of directories."""
Segment = re.Pattern[str] | None
NOTHING = re.compile(r"(?!)")
Segments = tuple[Segment, ...]


class BadPattern(ValueError):
    """The pattern is invalid; the message says why."""


def braces(pattern: str) -> list[str]:
    """Expand `{a,b}`, also nested. A brace without a partner stays as it is.

    Raises:
        BadPattern: there are too many alternatives.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        glob = waiting.pop()
        parts = _first_brace(glob)
        if parts is None:
            done.append(glob)
        else:
            waiting += reversed(parts)
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise BadPattern(f"its braces stand for more than {MAX_ALTERNATIVES} patterns")
    return done


def _first_brace(pattern: str) -> list[str] | None:
    """Return the pattern with its first brace group replaced by each of its alternatives."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
        elif pattern[at] == "{" and (commas := _group(pattern, at)):
            head, tail = pattern[:at], pattern[commas[-1] + 1 :]
            edges = [at, *commas]
            inner = [pattern[a + 1 : b] for a, b in zip(edges, edges[1:], strict=False)]
            return [head + alternative + tail for alternative in inner]
        else:
            at += 1
    return None


def _group(pattern: str, start: int) -> list[int] | None:
    """Return the positions of the commas and the end of the group that opens at `start`."""
    depth, at = 0, start
    marks: list[int] = []
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "{":
            depth += 1
        elif char == "," and depth == 1:
            marks.append(at)
        elif char == "}":
            depth -= 1
            if depth == 0:
                return [*marks, at] if marks else None
        at += 1
    return None


def compile_segments(pattern: str) -> Segments:
    """Compile a pattern without braces to one matcher for each part between slashes.

    Raises:
        BadPattern: a `[` without its `]`, or an impossible range.
    """
    parts = [part for part in pattern.split("/") if part]
    segments: list[Segment] = []
    for part in parts:
        if part == "**":
            if not segments or segments[-1] is not DEEP:
                segments.append(DEEP)
        else:
            segments.append(compile_name(part))
    return tuple(segments)


def compile_name(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for one name."""
    return re.compile(name_regex(pattern), re.DOTALL)


def name_regex(pattern: str) -> str:
    """Return the regular expression for a name. Each `*` but the last takes the shortest match and
    never backtracks: for names that is enough, and it keeps the time linear."""
    chunks: list[str] = [""]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if len(chunks) == 1 or chunks[-1]:
                chunks.append("")
        elif char == "?":
            chunks[-1] += "."
        elif char == "[":
            regex, at = _class(pattern, at)
            chunks[-1] += regex
        else:
            if char == "\\" and at < len(pattern):
                char = pattern[at]
                at += 1
            chunks[-1] += re.escape(char)
    first, *rest = chunks
    if not rest:
        return first + r"\Z"
    middle = "".join(f"(?>.*?{chunk})" for chunk in rest[:-1])
    return f"{first}{middle}.*{rest[-1]}\\Z"


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Return the regular expression of `[...]` and the position after it."""
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    items: list[str] = []
    first = True
    while at < len(pattern) and (first or pattern[at] != "]"):
        first = False
        low, at = _member(pattern, at)
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(pattern, at + 1)
            if low > high:
                raise BadPattern(f"the range {low}-{high} is empty")
            items.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            items.append(re.escape(low))
    if at >= len(pattern):
        raise BadPattern("a '[' has no ']'")
    return f"[{'^' if negated else ''}{''.join(items)}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\" and at + 1 < len(pattern):
        at += 1
    return pattern[at], at + 1


def matches(segments: Segments, path: Sequence[str]) -> bool:
    """Return whether the pattern matches the whole path. A final `**` needs at least one name."""
    if segments and segments[-1] is DEEP:
        return bool(path) and _matches(segments, path[:-1])
    return _matches(segments, path)


def _matches(segments: Segments, path: Sequence[str]) -> bool:
    at = position = 0
    deep, deep_at = -1, 0
    while position < len(path):
        segment = segments[at] if at < len(segments) else NOTHING
        if segment is DEEP:
            deep, deep_at = at, position
            at += 1
        elif segment.match(path[position]):
            at += 1
            position += 1
        elif deep >= 0:  # let the last `**` take one more name
            deep_at += 1
            at, position = deep + 1, deep_at
        else:
            return False
    return all(segment is DEEP for segment in segments[at:])
