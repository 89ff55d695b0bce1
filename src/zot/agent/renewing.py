"""A provider whose credential ends while the program runs: it is renewed before a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from zot.cancel import Cancel
from zot.provider.types import Provider, Request, StreamEvent


class RenewingProvider:
    """Connects again when the token has changed. `token` gives one that is good for a while."""

    def __init__(
        self, token: Callable[[], str], connect: Callable[[str], Provider], first: str
    ) -> None:
        self._token = token
        self._connect = connect
        self._lock = threading.Lock()
        self._key = first
        self._inner = connect(first)

    @property
    def name(self) -> str:
        return self._inner.name

    def stream(self, request: Request, cancel: Cancel) -> Iterator[StreamEvent]:
        yield from self._current().stream(request, cancel)

    def close(self) -> None:
        self._inner.close()

    def _current(self) -> Provider:
        with self._lock:
            key = self._token()
            if key != self._key:
                self._inner.close()
                self._inner = self._connect(key)
                self._key = key
            return self._inner
