"""Retries model calls when a retry can help. A cut stream is requested again from its beginning;
its earlier content is void, as `Retrying.dropped` says.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.errors import ProviderError
from zot.provider import types
from zot.provider.failure import span
from zot.text import Frozen

MAX_LIMIT_SECONDS = 8 * 86_400.0
"""Longest wait for a limit to reset: those of a week are the longest known."""
BEFORE_CONTENT = (types.Started, types.UsageSeen)


class RetryPolicy(Frozen):
    max_attempts: int = 10
    first_delay: float = 0.5
    """Seconds before the second attempt; doubled for each further one."""
    max_delay: float = 20.0
    max_retry_after: float = 60.0
    """Maximum pause in seconds; if a server asks for more, the call fails and the error says so."""
    wait_for_limit: bool = False
    """Wait for the reset of a usage limit, however long, unless there is a fallback."""
    attempts_before_fallback: int = 4
    """Maximum attempts with a model when there is a fallback."""

    def delay(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait after this failed attempt."""
        backoff: float = min(self.max_delay, self.first_delay * 2.0 ** (attempt - 1))
        import random  # deferred: most calls are never retried

        jitter = backoff * random.uniform(0.0, 0.25)
        return max(backoff, retry_after or 0.0) + jitter

    def final(
        self, error: ProviderError, attempt: int, most: int, *, is_last: bool = True
    ) -> ProviderError | None:
        """Return the error to raise after this attempt of `most`; None: a retry may help.
        `is_last`: no other model follows."""
        if not error.retryable or attempt >= most:
            return error
        most_seconds = self.max_retry_after
        if self.wait_for_limit and is_last:
            most_seconds = MAX_LIMIT_SECONDS
        too_long = (error.retry_after or 0.0) > most_seconds
        return _too_long(error) if too_long else None


def stream_with_retry(
    provider: types.Provider,
    request: types.Request,
    cancel: Cancel,
    policy: RetryPolicy = RetryPolicy(),
    fallbacks: Sequence[tuple[types.Provider, types.Model]] = (),
) -> Generator[types.StreamEvent, None, None]:
    """Make one model call with retries, then with each fallback model. After a `Retrying` or a
    `FellBack` the answer begins again: discard what was streamed of it before.

    Raises:
        ProviderError: of the last attempt; a fallback that fails too names the first failure.
    """
    first_error: ProviderError | None = None
    for number, (client, model) in enumerate([(provider, request.model), *fallbacks]):
        asked, attempt = request, 0
        most = policy.max_attempts
        if number < len(fallbacks):
            most = min(most, policy.attempts_before_fallback)
        if number:
            yield types.FellBack(request.model.id, client.name, model, str(first_error))
            asked = replace(request, model=model, repaired=False)
        while True:
            attempt += 1
            content = False
            try:
                # A stream is a generator: closing it frees the connection.
                with closing(client.stream(asked, cancel)) as stream:  # type: ignore[type-var]
                    for event in stream:
                        content = type(event) not in BEFORE_CONTENT
                        yield event
                        if content:
                            yield from stream
                return
            except ProviderError as error:
                if content and not error.retryable:
                    raise
                final = policy.final(error, attempt, most, is_last=number == len(fallbacks))
                if final is not None:
                    first_error = first_error or final
                    if number < len(fallbacks):
                        break
                    if final is error:
                        raise
                    raise final from error
                delay = policy.delay(attempt, error.retry_after)
                again = types.Retrying(attempt, most, delay, str(error), error.code, content)
            yield again
            cancel.sleep(again.delay)


def _too_long(error: ProviderError) -> ProviderError:
    """Return the failure with the time at which a call can succeed again."""
    seconds = error.retry_after or 0.0
    # With the date, because limits of a week end on another day.
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + seconds))
    return type(error)(
        f"{error} (the limit resets at {when}, in {span(seconds)}; --wait-for-limit waits for it)",
        status=error.status,
        retry_after=error.retry_after,
        request_id=error.request_id,
    )
