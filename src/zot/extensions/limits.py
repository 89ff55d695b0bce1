"""The numbers that keep one extension from harming zot or another extension."""

from __future__ import annotations

import time

from msgspec import Struct

MIB = 1024 * 1024


class ExtensionLimits(Struct, frozen=True):
    """Times in seconds, sizes in bytes. The defaults are the documented ones."""

    grace: float = 3.0
    """From the start of the process to `ready`; then zot goes on without it."""
    late: float = 60.0
    """A `hello` that comes after the grace is still welcome, until then."""
    quiet: float = 0.25
    """Silence after `hello` that counts as `ready`, for extensions that never say it."""
    guard: float = 30.0
    """What a guard guards waits so long for its start; then it is blocked."""
    undecided: float = 10.0
    """Seconds after its start in which nobody knows yet what an extension guards: a guard may come,
    so what one could stop waits."""
    intercept: float = 5.0
    command: float = 60.0
    tool: float = 60.0
    shutdown: float = 2.0
    terminate: float = 1.0
    line: int = 4 * MIB
    bad_lines: int = 100
    """Lines that are no frames; one more and the extension is stopped."""
    queue_frames: int = 256
    queue_bytes: int = 16 * MIB
    """What may wait to be read by the extension; beyond it, it is stopped."""
    frames_per_second: float = 5_000
    notes_per_second: float = 20
    notes_burst: float = 50
    notes_dropped: int = 10_000
    """Notifications over the rate; one more and the extension is stopped."""
    draws_per_second: float = 60
    log_bytes: int = 5 * MIB
    """A log is renamed to `.log.1` when it grows beyond this."""
    result_text: int = 256 * 1024
    """Characters of a tool's text that reach the model."""
    restarts: int = 3
    restart_delays: tuple[float, ...] = (0.5, 2.0, 8.0)
    stable: float = 60.0
    """An extension that ran this long before it crashed has its restarts back."""


class Bucket:
    """A rate limit: `burst` at once, then `rate` a second. Owned by one thread."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = time.monotonic()

    def take(self) -> float:
        """Take one; the seconds to wait first, 0 when it was free."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate
