"""Limits of a run: the check before each model call, and a deadline that interrupts any wait."""

from __future__ import annotations

import threading
from types import TracebackType

from msgspec import Struct

from zot.cancel import Cancel
from zot.core.cost import usable
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
    reserve = spent.next_tokens * price.input / 1_000_000
    if spent.cost + reserve > max_cost:
        raise LimitError(
            f"max cost ({max_cost:g} USD) would be exceeded: {spent.cost:.4f} spent, and the next "
            f"request needs about {reserve:.4f}",
            limit="cost",
        )


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
