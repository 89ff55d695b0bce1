"""Time limit of a run: interrupts any wait of the run, for a stream or a tool."""

from __future__ import annotations

import threading
from types import TracebackType

from zot.cancel import Cancel
from zot.errors import Cancelled, LimitError, ProviderError


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
