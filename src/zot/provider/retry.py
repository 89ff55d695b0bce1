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

    def final(self, error: ProviderError, attempt: int) -> ProviderError | None:
        """What to raise after the attempt of this number; None: asking again may help."""
        if not error.retryable or attempt >= self.max_attempts:
            return error
        too_long = (error.retry_after or 0.0) > self.max_retry_after
        return _too_long(error, self) if too_long else None


def stream_with_retry(
    provider: types.Provider,
    request: types.Request,
    cancel: Cancel,
    policy: RetryPolicy = RetryPolicy(),
    fallbacks: Sequence[tuple[types.Provider, types.Model]] = (),
) -> Generator[types.StreamEvent, None, None]:
    """One model call with its retries, then the same with each fallback model. What broke after
    content is not repeated, neither by a retry nor by another model.

    Raises:
        ProviderError: of the last attempt; a fallback that fails too names the first failure.
    """
    first_error: ProviderError | None = None
    for number, (client, model) in enumerate([(provider, request.model), *fallbacks]):
        asked, attempt, delay = request, 0, 0.0
        if number:
            yield types.FellBack(request.model.id, client.name, model, str(first_error))
            asked = replace(request, model=model, repaired=False)
        while True:
            attempt += 1
            content, stream = False, None
            try:
                stream = client.stream(asked, cancel)
                for event in stream:
                    content = type(event) not in BEFORE_CONTENT
                    yield event
                    if content:
                        yield from stream
                return
            except ProviderError as error:
                if content:
                    raise
                final = policy.final(error, attempt)
                if final is not None:
                    first_error = first_error or final
                    if number < len(fallbacks):
                        break
                    if final is error:
                        raise
                    raise final from error
                delay, reason = policy.delay(attempt, error.retry_after), str(error)
            finally:
                if stream is not None:
                    stream.close()  # type: ignore[attr-defined]  # a generator: it frees the connection
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
