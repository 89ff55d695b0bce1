"""Examples for models too small to follow instructions, which copy the nearest one instead.

No benchmark request is among them. A larger model gets the fixed examples of prompt.py.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import msgspec

Example = tuple[str, str, str]
"""Request, tool (empty: none), and correct answer."""

SHOWN = 8
ROWS = Path(__file__).with_suffix(".json").read_bytes()


def _example(request: str, answer: str | dict[str, str]) -> Example:
    if isinstance(answer, str):
        return request, "", answer
    return request, answer["tool"], msgspec.json.encode(answer).decode()


BANK: tuple[Example, ...] = tuple(_example(*row) for row in msgspec.json.decode(ROWS))


def nearest(request: str, count: int = SHOWN) -> tuple[Example, ...]:
    """Return the most similar examples, the best one last: next to the answer."""
    wanted = _words(request)
    ranked = sorted(BANK, key=lambda example: _likeness(wanted, _words(example[0])))
    return tuple(ranked[-count:])


def _likeness(wanted: Counter[str], words: Counter[str]) -> float:
    shared = sum(_rarity(word) for word in wanted if word in words)
    return shared / math.sqrt(1 + len(words))


def _rarity(word: str) -> float:
    return math.log(1 + len(BANK) / (1 + _SEEN[word]))


# Matches a file name from its start only: trying every position would take quadratic time.
_FILE = re.compile(r"(?<![\w/-])[\w/-]++(?=\.\w)")


def _words(text: str) -> Counter[str]:
    """Count words without their endings; a file name is replaced by "file", its suffix counts."""
    words = re.findall(r"\.\w+\b|[a-z]+|[0-9]+", _FILE.sub("file", text.lower()))
    return Counter("9" if word.isdigit() else word[:5] for word in words)


_SEEN: Counter[str] = Counter(word for request, _, _ in BANK for word in _words(request))
