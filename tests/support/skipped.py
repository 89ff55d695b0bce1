"""The table at the end of a run: what was not tested on this machine, and why."""

import re
from collections import Counter
from collections.abc import Iterable

SAME = (
    (re.compile(r"^\S+ has no word for .*"), "the door has no word for it (support/doors.py)"),
    (re.compile(r"^\(.*\) (cannot|could not) be installed.*"), "npm packages cannot be installed"),
)
"""Reasons that differ only in a name."""


def short_reason(reason: str) -> str:
    reason = reason.removeprefix("Skipped: ").splitlines()[0] if reason else "no reason was said"
    for pattern, one in SAME:
        reason = pattern.sub(one, reason)
    return reason[:100]


def table(reasons: Iterable[str]) -> list[str]:
    """A row for each reason with its count, the most frequent first."""
    counts = Counter(map(short_reason, reasons))
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return [f"{count:5}  {reason}" for reason, count in rows]
