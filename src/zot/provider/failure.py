"""What a failed model call is called: HTTP status and error text to the error tree. No I/O."""

from __future__ import annotations

from zot.errors import (
    ContextTooLong,
    NetworkError,
    Overloaded,
    ProviderError,
    RateLimited,
    Rejected,
)

# What servers say when the prompt does not fit, in lower case. There is no common error code, so
# this is the one place where text is matched; everyone above looks at the class.
OVERFLOW_TEXTS = (
    "prompt is too long",
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "exceeds the maximum number of tokens",
    "input token count",
    "input is too long",
    "too many tokens in the prompt",
    "exceed_context_size",
    "exceeds the available context",
    "exceeded model token limit",
    "reduce the length of the messages",
    "request_too_large",
    "maximum prompt length",
    "prompt too long",
)
# Words that make the above a rate limit and not a size: "tokens per minute" and the like.
NOT_OVERFLOW_TEXTS = ("rate limit", "per minute", "per day", "too many requests")
RETRY_STATUSES = frozenset({408, 409, 425, 529})
AUTH_STATUSES = frozenset({401, 403})


class Unauthorized(Rejected):
    """The provider refused the credential."""

    code = "auth"


def is_overflow(text: str) -> bool:
    """Whether an error text says that the prompt does not fit the model's window."""
    low = text.lower()
    if any(word in low for word in NOT_OVERFLOW_TEXTS):
        return False
    return any(word in low for word in OVERFLOW_TEXTS)


def class_for_status(status: int, text: str = "") -> type[ProviderError]:
    """The error class of an HTTP answer that is not a success."""
    if status == 413 or (status in (400, 422, 500) and is_overflow(text)):
        return ContextTooLong
    if status == 429:
        return RateLimited
    if status in RETRY_STATUSES or status >= 500:
        return Overloaded
    if status in AUTH_STATUSES:
        return Unauthorized
    return Rejected


def class_for_kind(kind: str, text: str = "") -> type[ProviderError]:
    """The error class of an error event inside a stream, by the provider's word for it."""
    low = kind.lower()
    if is_overflow(text) or is_overflow(kind):
        return ContextTooLong
    if "rate_limit" in low or "resource_exhausted" in low or low == "429":
        return RateLimited
    if any(word in low for word in ("auth", "permission")) or low in ("401", "403"):
        return Unauthorized
    if any(word in low for word in ("invalid", "not_found", "bad_request")) or low in (
        "400",
        "404",
    ):
        return Rejected
    if any(word in low for word in ("overload", "unavailable", "timeout", "server", "internal")):
        return Overloaded
    if low.isdigit():
        return class_for_status(int(low), text)
    if low in ("api_error", "error", ""):
        return Overloaded
    return ProviderError


def cut(provider: str) -> NetworkError:
    """The connection broke before the answer was complete."""
    return NetworkError(f"{provider}: the connection was closed in the middle of the answer")
