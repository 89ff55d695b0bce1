"""Limits of a run: the check before each model call, and a deadline that interrupts any wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from msgspec import Struct

from zot.cancel import Cancel
from zot.core.cost import usable, worst_cost
from zot.errors import Cancelled, LimitError, ProviderError
from zot.provider.types import Model


class Limits(Struct, frozen=True):
    """Limits of a run; None: no limit. Checked before each model call, the time at any moment."""

    max_steps: int | None = None
    max_cost: float | None = None
    """US dollars."""
    max_tokens: int | None = None
    max_seconds: float | None = None


NO_LIMITS = Limits()
LOOK_SECONDS = 0.05
"""Pause between looks at the calls of others that hold a part of the limit."""


class Spent(Struct, frozen=True):
    """Usage of a run so far, and the estimated tokens of its next request."""

    seconds: float
    tokens: int
    cost: float
    next_tokens: int


def check_limits(limits: Limits, step: int, spent: Spent, model: Model) -> None:
    """Raise LimitError if the next model call would exceed a limit."""
    if limits.max_steps is not None and step > limits.max_steps:
        raise LimitError(f"max steps ({limits.max_steps}) exceeded", limit="steps")
    if limits.max_seconds is not None and spent.seconds >= limits.max_seconds:
        raise LimitError(f"max seconds ({limits.max_seconds:g}) exceeded", limit="seconds")
    if limits.max_tokens is not None and spent.tokens + spent.next_tokens > limits.max_tokens:
        raise LimitError(
            f"max tokens ({limits.max_tokens}) would be exceeded: {spent.tokens} used, and the "
            f"next request needs about {spent.next_tokens}",
            limit="tokens",
        )
    if limits.max_cost is not None:
        _check_cost(limits.max_cost, spent, model)


def _check_cost(max_cost: float, spent: Spent, model: Model) -> None:
    price = usable(model.price)
    if price is None:
        raise LimitError(
            f"max cost ({max_cost:g} USD) cannot be kept: the price of {model.id!r} is "
            "not known; add it to models.json or leave out the limit",
            limit="cost",
        )
    reserve = worst_cost(price, spent.next_tokens)
    if spent.cost + reserve > max_cost:
        raise LimitError(
            f"max cost ({max_cost:g} USD) would be exceeded: {spent.cost:.4f} spent, and the next "
            f"request needs about {reserve:.4f}",
            limit="cost",
        )


class Reservations:
    """Worst cost of the model calls that an agent and its sub-agents are making now. A call starts
    only if its request fits beside all that these may still cost: so the cost limit is exceeded by
    the answer of one call at most, however many agents work at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[object, float] = {}

    def hold(
        self, who: object, max_cost: float, spent: Callable[[], Spent], model: Model, cancel: Cancel
    ) -> None:
        """Reserve the worst cost of a call, until `release`. Waits for calls of others.

        Raises:
            LimitError: the limit would be exceeded.
            Cancelled: the turn was aborted.
        """
        while True:
            with self._lock:
                now = spent()
                others = sum(held for name, held in self._held.items() if name is not who)
                try:
                    _check_cost(max_cost - others, now, model)
                except LimitError:
                    if not others:
                        raise
                else:
                    price = usable(model.price)
                    assert price is not None  # else the check raised
                    self._held[who] = worst_cost(price, now.next_tokens, model.max_output)
                    return
            cancel.sleep(LOOK_SECONDS)

    def release(self, who: object) -> None:
        with self._lock:
            self._held.pop(who, None)


class Deadline:
    """Cancels its block, as an abort would, after the time limit; the block raises LimitError."""

    def __init__(self, seconds: float | None, cancel: Cancel) -> None:
        self._seconds = seconds
        self._cancel = cancel
        self._passed = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        if self._seconds is not None:
            self._timer = threading.Timer(min(self._seconds, threading.TIMEOUT_MAX), self._pass)
            self._timer.name = "zot-deadline"
            self._timer.daemon = True
            self._timer.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # ProviderError: the connection broke because the time limit closed it.
        if self._passed and isinstance(error, Cancelled | ProviderError):
            text = f"max seconds ({self._seconds:g}) exceeded"
            raise LimitError(text, limit="seconds") from error

    def _pass(self) -> None:
        if not self._cancel.is_set():  # otherwise the user aborted first
            self._passed = True
            self._cancel.set()
