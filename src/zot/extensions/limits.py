"""The numbers that keep one extension from harming zot or another extension."""

from __future__ import annotations

from zot.children.limits import LineLimits


class ExtensionLimits(LineLimits):
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
    shutdown: float = 2.0
    notes_dropped: int = 10_000
    """Notifications over the rate; one more and the extension is stopped."""
    draws_per_second: float = 60
    restarts: int = 3
    restart_delays: tuple[float, ...] = (0.5, 2.0, 8.0)
