"""Several keys of one provider, used in turn: one whose usage limit is reached rests until then."""

from __future__ import annotations

import time

from zot.errors import RateLimited

REST_SECONDS = 60.0
"""Rest of a key whose limit has no known reset."""


def split_keys(text: str) -> list[str]:
    """Return the keys of a text, where commas separate them; at least one, which may be empty."""
    return [key for part in text.split(",") if (key := part.strip())] or [""]


class Keys:
    """Remembers which keys rest."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """Monotonic time until which a key rests."""

    def choose(self, text: str) -> str:
        """Return the first key that does not rest, else the one whose rest ends first."""
        if "," not in text:
            return text.strip()
        now = time.monotonic()
        return min(split_keys(text), key=lambda key: max(self._until.get(key, 0.0), now))

    def rest(self, text: str, used: str, error: RateLimited) -> None:
        """Let the used key rest; let the error say when another attempt can succeed."""
        if len(split_keys(text)) == 1:
            return
        now = time.monotonic()
        self._until[used] = now + (error.retry_after or REST_SECONDS)
        following = self.choose(text)
        error.retry_after = max(self._until.get(following, 0.0) - now, 0.0)
        if not error.retry_after:
            error.args = (f"{error} (another key goes on)",)
