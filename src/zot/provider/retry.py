"""Asks again when asking again can help: never after content was streamed, never for long."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.errors import ProviderError
from zot.provider import types
from zot.text import Frozen

BEFORE_CONTENT = (types.Started, types.UsageSeen)


class RetryPolicy(Frozen):
    max_attempts: int = 4
    first_delay: float = 0.5
    """Seconds before the second attempt; doubled for each one after."""
    max_delay: float = 20.0
    max_retry_after: float = 60.0
    """A server that asks for a longer pause is not waited for: the error says how long."""

    def delay(self, attempt: int, retry_after: float | None) -> float:
        """Seconds to wait after the attempt of this number failed."""
        backoff: float = min(self.max_delay, self.first_delay * 2.0 ** (attempt - 1))
        import random  # deferred: most calls are never retried

        jitter = backoff * random.uniform(0.0, 0.25)
        return max(backoff, retry_after or 0.0) + jitter


def stream_with_retry(
    provider: types.Provider,
    request: types.Request,
    cancel: Cancel,
    policy: RetryPolicy = RetryPolicy(),
    fallbacks: Sequence[tuple[types.Provider, types.Model]] = (),
) -> Generator[types.StreamEvent, None, None]:
    """One model call with its retries, then the same with each fallback model.

    Raises:
        ProviderError: of the last attempt; a fallback that fails too names the first failure.
    """
    first_error: ProviderError | None = None
    for number, (client, model) in enumerate([(provider, request.model), *fallbacks]):
        if number:
            yield types.FellBack(request.model.id, client.name, model, str(first_error))
        try:
            asked = replace(request, model=model, repaired=False) if number else request
            yield from _attempts(client, asked, cancel, policy)
            return
        except _AfterContent as failure:
            raise failure.error from failure.error.__cause__
        except ProviderError as error:
            first_error = first_error or error
            if number == len(fallbacks):
                raise
    raise AssertionError("unreachable: the last candidate returns or raises")


class _AfterContent(Exception):
    """The stream broke after content: neither a retry nor another model may repeat it."""

    def __init__(self, error: ProviderError) -> None:
        self.error = error


def _attempts(
    provider: types.Provider, request: types.Request, cancel: Cancel, policy: RetryPolicy
) -> Generator[types.StreamEvent, None, None]:
    attempt = 0
    while True:
        attempt += 1
        content = False
        try:
            stream = provider.stream(request, cancel)
            try:
                for event in stream:
                    if not content and type(event) not in BEFORE_CONTENT:
                        content = True
                    yield event
            finally:
                stream.close()  # type: ignore[attr-defined]  # a generator: it frees the connection
            return
        except ProviderError as error:
            if content:
                raise _AfterContent(error) from error
            if not error.retryable or attempt >= policy.max_attempts:
                raise
            if (error.retry_after or 0.0) > policy.max_retry_after:
                raise _too_long(error, policy) from error
            delay = policy.delay(attempt, error.retry_after)
            reason = str(error)
        yield types.Retrying(attempt, policy.max_attempts, delay, reason)
        cancel.sleep(delay)


def _too_long(error: ProviderError, policy: RetryPolicy) -> ProviderError:
    """The same failure, saying why it was not tried again."""
    text = f"{error} (the server asks to wait {error.retry_after:g} s"
    return type(error)(
        f"{text}, longer than the {policy.max_retry_after:g} s that zot waits)",
        status=error.status,
        retry_after=error.retry_after,
        request_id=error.request_id,
    )
