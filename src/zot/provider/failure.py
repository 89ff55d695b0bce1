"""Maps HTTP status and error text of a failed model call to an error class. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from zot import errors

# Servers' texts for a prompt that does not fit, in lower case. There is no common error code, so
# text is matched only here; all other code checks the class.
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
    "prompt exceeds max length",
    "maximum allowed input length",
    "longer than the model's context",
    "greater than the context",
    "token limit exceeded",
)
# Texts that make the above a rate limit instead of a size: "tokens per minute" and the like.
NOT_OVERFLOW_TEXTS = ("rate limit", "per minute", "per day", "too many requests")
# Words that make an error about an image one about its size.
SIZE_WORDS = (
    *("exceed", "too large", "too big", "maximum", "max allowed", "dimension", "pixel", "size"),
)
SHOWN = 200
"""Characters shown of an unexpected body."""
MAX_MESSAGE = 2_000
RESET_HEADER = "anthropic-ratelimit-unified-reset"
"""Unix time at which the limit of a subscription resets."""
RETRY_STATUSES = frozenset({408, 409, 425, 529})
AUTH_STATUSES = frozenset({401, 403})


class LimitReset(msgspec.Struct):
    """Reset of a usage limit in an error of OpenAI's subscriptions."""

    resets_in_seconds: float | None = None
    resets_at: float | None = None
    """Unix time."""


class LimitBody(msgspec.Struct):
    error: LimitReset


class Unauthorized(errors.Rejected):
    """The provider refused the credential."""

    code = "auth"


class ImageRefused(errors.Rejected):
    """The provider refused an image for its size: the conversation can go on without it."""


def is_overflow(text: str) -> bool:
    """Return whether an error text says that the prompt does not fit the model's window."""
    low = text.lower()
    if any(word in low for word in NOT_OVERFLOW_TEXTS):
        return False
    return any(word in low for word in OVERFLOW_TEXTS)


def is_about_image_size(text: str) -> bool:
    low = text.lower()
    return "image" in low and any(word in low for word in SIZE_WORDS) and not is_overflow(low)


def is_about_model(status: int | None, text: str) -> bool:
    """Return whether a refusal says that there is no such model."""
    low = text.lower()
    words = ("not found", "not_found", "not exist", "no such", "unknown model", "invalid model")
    return "model" in low and (status == 404 or any(word in low for word in words))


def class_for_status(status: int, text: str = "") -> type[errors.ProviderError]:
    """Return the error class of an unsuccessful HTTP response."""
    if status in (400, 413, 422) and is_about_image_size(text):
        return ImageRefused
    if status == 413 or (status in (400, 422, 500) and is_overflow(text)):
        return errors.ContextTooLong
    if status == 429:
        return errors.RateLimited
    if status in RETRY_STATUSES or status >= 500:
        return errors.Overloaded
    if status in AUTH_STATUSES:
        return Unauthorized
    return errors.Rejected


def class_for_kind(kind: str, text: str = "") -> type[errors.ProviderError]:
    """Return the error class of an error event inside a stream, by the provider's name for it."""
    low = kind.lower()
    if is_overflow(text) or is_overflow(kind):
        return errors.ContextTooLong
    if "rate_limit" in low or "resource_exhausted" in low:
        return errors.RateLimited
    if any(word in low for word in ("auth", "permission")):
        return Unauthorized
    if any(word in low for word in ("invalid", "not_found", "bad_request")):
        return errors.Rejected
    if any(word in low for word in ("overload", "unavailable", "timeout", "server", "internal")):
        return errors.Overloaded
    if low.isdigit():
        return class_for_status(int(low), text)
    if low in ("api_error", "error", ""):
        return errors.Overloaded
    return errors.ProviderError


def cut(provider: str) -> errors.NetworkError:
    """Return the error for a connection that broke before the answer was complete."""
    return errors.NetworkError(f"{provider}: the connection was closed in the middle of the answer")


def error_message(body: str) -> str:
    """Return the provider's message in an error body, else the body's beginning; on one line."""
    text = body.strip()
    try:
        message = message_in(msgspec.json.decode(text)) if text[:1] in "{[" and text else ""
    except (msgspec.MsgspecError, RecursionError):
        message = ""
    limit = MAX_MESSAGE if message else (SHOWN if text[:1] == "<" else MAX_MESSAGE)
    return one_line(message or text, limit)


def message_in(value: object) -> str:
    """Return the message inside the usual shapes of an error object."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return ""
    inner = value.get("error")
    if isinstance(inner, dict | str) and (text := message_in(inner)):
        return text
    for key in ("message", "detail", "msg"):
        said = value.get(key)
        if isinstance(said, str):
            return said
    return ""


def one_line(text: str, limit: int) -> str:
    """Return the text without control characters and line breaks, cut at the limit."""
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return clean if len(clean) <= limit else clean[:limit] + "..."


def retry_after(headers: Mapping[str, str], now: float, body: str = "") -> float | None:
    """Return the seconds the server asks to wait, or until its usage limit resets; None if it does
    not say so."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = seconds_until(value, now)
        if 0 <= seconds < float("inf"):
            return seconds
    reset = headers.get(RESET_HEADER, "")
    return float(reset) - now if reset.isdigit() and float(reset) > now else _reset_in(body, now)


def _reset_in(body: str, now: float) -> float | None:
    """Return the seconds until the usage limit named in an error body resets."""
    if "resets_" not in body:
        return None
    try:
        error = msgspec.json.decode(body, type=LimitBody).error
    except (msgspec.MsgspecError, RecursionError):
        return None
    if error.resets_in_seconds is not None:
        return max(error.resets_in_seconds, 0.0)
    return None if error.resets_at is None else max(error.resets_at - now, 0.0)


def span(seconds: float) -> str:
    """Return a time span for people: 45 s, 12 min, 2 h 10 min, 3 d 4 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def seconds_until(date: str, now: float) -> float:
    """Return the seconds until an HTTP date, at least zero; NaN when it is not a date."""
    from email.utils import parsedate_to_datetime  # rare, and too slow for the start-up path

    try:
        return max(parsedate_to_datetime(date).timestamp() - now, 0.0)
    except (ValueError, TypeError, OverflowError):
        return float("nan")
