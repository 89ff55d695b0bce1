"""Limits that keep one extension from harming zot or another extension."""

from __future__ import annotations

from zot.children.lineprocess import LineLimits


class ExtensionLimits(LineLimits):
    """Times in seconds, sizes in bytes. The defaults are documented."""

    grace: float = 3.0
    """From the start of the process to `ready`; then zot continues without it."""
    late: float = 60.0
    """Deadline for a `hello` that comes after the grace."""
    quiet: float = 0.25
    """Silence after `hello` that counts as `ready`, for extensions that never send it."""
    guard: float = 30.0
    """Time that a guarded action waits for its guard to start; then it is blocked."""
    undecided: float = 10.0
    """Time after the start during which actions that a guard could block wait for an extension that
    has not said yet what it guards."""
    intercept: float = 5.0
    command: float = 60.0
    shutdown: float = 2.0
    notes_dropped: int = 10_000
    """Maximum number of notifications over the rate; one more stops the extension."""
    draws_per_second: float = 60
    restarts: int = 3
    restart_delays: tuple[float, ...] = (0.5, 2.0, 8.0)
