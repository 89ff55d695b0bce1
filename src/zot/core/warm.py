"""Keeps a conversation's prompt in the provider's cache while its tools run.

A cache forgets a prompt minutes after its last use, and without it the prompt costs ten times as
much. So the last request is sent once more before that, for the shortest answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from types import TracebackType
from typing import Literal

from msgspec.structs import replace

from zot.bugs import warn_once
from zot.cancel import Cancel
from zot.core.cost import priced, rates_for, usable
from zot.errors import Cancelled, ProviderError
from zot.provider.model import can_be_warmed
from zot.provider.types import Model, Provider, Request, Usage, UsageSeen

LEAST_SAVING = 0.05
"""US dollars that a miss must cost more than a hit."""
MARGIN = 0.9
"""Share of the lifetime after which the prompt is sent again."""
MAX_SECONDS = 3_600.0
USUAL_SECONDS = 300
"""Lifetime of a prompt in a cache whose provider does not name another one."""
CacheWish = Literal["auto", "short", "long", "off"]
"""How long providers keep prompts. auto: short, kept warm while tools run; long in a conversation
that had a longer pause."""


def is_worth(model: Model, tokens: int) -> bool:
    """Return whether a prompt of so many tokens should be kept in the cache."""
    price = usable(model.price)
    if price is None or model.cache_seconds is None:
        return False
    rates = rates_for(price, tokens)
    saving = max(rates.cache_write, rates.input) - 2 * rates.cache_read
    return tokens * saving / 1_000_000 >= LEAST_SAVING


class Warmer(AbstractContextManager[None]):
    """Sends the request again and again while its block runs, from a thread of its own."""

    def __init__(
        self, provider: Provider, request: Request, tokens: int, pay: Callable[[Usage], None]
    ) -> None:
        assert request.model.cache_seconds is not None
        self._provider = provider
        self._tokens = tokens
        self._request = replace(request, is_warmup=True)
        self._pay = pay
        self._cancel = Cancel()
        self.pause = MARGIN * request.model.cache_seconds[request.cache == "long"]
        self._thread = threading.Thread(target=self._run, name="zot-cache", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cancel.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for _ in range(max(1, int(MAX_SECONDS / self.pause))):
                self._cancel.sleep(self.pause)
                self._send()
        except Cancelled:
            pass  # the tools are done
        except ProviderError as error:
            warn_once(f"the prompt cache is not kept warm: {error}")

    def _send(self) -> None:
        # Counts for a call that is cut off before the provider names its own.
        used = Usage(cache_read=self._tokens, cost_known=False)
        try:
            with closing(self._provider.stream(self._request, self._cancel)) as stream:  # type: ignore[type-var]
                for event in stream:
                    if isinstance(event, UsageSeen):
                        used = event.usage
        finally:
            counted = priced(used, self._request.model.price)
            self._pay(replace(counted, cost_known=used.cost_known))


class Caching:
    """How the prompts of one conversation are cached."""

    def __init__(self) -> None:
        self.last_request: Request | None = None
        self._last_called = 0.0
        """Monotonic time of the last model call."""
        self._is_slow = False
        """Whether there was a pause longer than caches usually live."""
        self._is_automatic = False

    def lifetime(self, wish: CacheWish, model: Model) -> Literal["off", "short", "long"]:
        """Return how long the prompt of a model call that begins now should be cached."""
        now = time.monotonic()
        pause, self._last_called = now - (self._last_called or now), now
        self._is_automatic = wish == "auto"
        if wish != "auto":
            return wish
        usual = model.cache_seconds[0] if model.cache_seconds else USUAL_SECONDS
        self._is_slow = self._is_slow or pause > usual
        return "long" if self._is_slow else "short"

    def kept_warm(
        self, provider: Provider, tokens: int, pay: Callable[[Usage], None]
    ) -> AbstractContextManager[None]:
        """Keep the last prompt in the cache while the block runs, where that pays."""
        request = self.last_request
        if request is None or not self._is_automatic or not is_worth(request.model, tokens):
            return nullcontext()
        if not can_be_warmed(request.model, request.reasoning):
            return nullcontext()
        return Warmer(provider, request, tokens, pay)
