"""Limits that keep one program from harming zot or another program."""

from __future__ import annotations

import time

from zot.text import Frozen

MIB = 1024 * 1024


class LineLimits(Frozen):
    """Times in seconds, sizes in bytes."""

    terminate: float = 1.0
    line: int = 4 * MIB
    queue_bytes: int = 16 * MIB
    """Maximum of unread input queued for the program; beyond it, the program is stopped."""
    frames_per_second: float = 5_000
    log_bytes: int = 5 * MIB
    """Size beyond which a log is renamed to `.log.1`."""


class Bucket:
    """A rate limit: `burst` at once, then `rate` a second. Owned by one thread."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = time.monotonic()

    def take(self) -> float:
        """Take one token and return 0, or return the seconds until one is available."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate
