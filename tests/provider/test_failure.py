import pytest

from zot.errors import (
    ContextTooLong,
    NetworkError,
    Overloaded,
    ProviderError,
    RateLimited,
    Rejected,
)
from zot.provider import failure
from zot.provider.failure import (
    Unauthorized,
    class_for_kind,
    class_for_status,
    cut,
    error_message,
    is_overflow,
    one_line,
    retry_after,
)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "", Rejected),
        (400, "This model's maximum context length is 8192 tokens", ContextTooLong),
        (400, "prompt is too long: 210000 tokens > 200000", ContextTooLong),
        (400, "context window, rate limit reached per minute", Rejected),
        (401, "", Unauthorized),
        (403, "", Unauthorized),
        (404, "", Rejected),
        (408, "", Overloaded),
        (409, "", Overloaded),
        (413, "", ContextTooLong),
        (422, "Input token count exceeds the maximum", ContextTooLong),
        (425, "", Overloaded),
        (429, "prompt is too long", RateLimited),
        (500, "", Overloaded),
        (500, "the request exceeds the available context size", ContextTooLong),
        (502, "", Overloaded),
        (529, "", Overloaded),
    ],
)
def test_a_status_has_its_class(status, text, kind):
    assert class_for_status(status, text) is kind


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("overloaded_error", "", Overloaded),
        ("api_error", "", Overloaded),
        ("server_error", "", Overloaded),
        ("UNAVAILABLE", "", Overloaded),
        ("", "", Overloaded),
        ("rate_limit_error", "", RateLimited),
        ("RESOURCE_EXHAUSTED", "", RateLimited),
        ("429", "", RateLimited),
        ("authentication_error", "", Unauthorized),
        ("PERMISSION_DENIED", "", Unauthorized),
        ("403", "", Unauthorized),
        ("invalid_request_error", "", Rejected),
        ("404", "", Rejected),
        ("context_length_exceeded", "", ContextTooLong),
        ("invalid_request_error", "prompt is too long", ContextTooLong),
        ("502", "", Overloaded),
        ("billing_error", "", ProviderError),
    ],
)
def test_an_error_events_word_has_its_class(kind, text, expected):
    assert class_for_kind(kind, text) is expected


def test_token_counts_are_not_statuses():
    assert not is_overflow("used 500 of 429 tokens")


def test_a_cut_is_a_network_error():
    assert isinstance(cut("x"), NetworkError)


def test_messages_are_one_line_and_short():
    assert one_line("a\n\tb\x00c", 10) == "a b c"
    assert one_line("x" * 20, 10) == "x" * 10 + "..."
    assert error_message("[]") == "[]"
    assert error_message('{"error":{"code":3}}') == '{"error":{"code":3}}'
    assert error_message('{"error":[1],"msg":"m"}') == "m"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "Thu, 99 Jan 1970 00:00:01 GMT"}, None),
    ],
)
def test_retry_after_in_all_its_forms(headers, seconds):
    assert retry_after(headers, 10.0) == seconds


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"anthropic-ratelimit-unified-reset": "1600"}, "", 600),
        ({"anthropic-ratelimit-unified-reset": "900"}, "", None),
        ({"anthropic-ratelimit-unified-reset": "soon"}, "", None),
        ({"retry-after": "7", "anthropic-ratelimit-unified-reset": "1600"}, "", 7),
        ({}, '{"error": {"type": "usage_limit_reached", "resets_in_seconds": 90}}', 90),
        ({}, '{"error": {"resets_at": 1250}}', 250),
        ({}, '{"error": {"resets_at": "never"}}', None),
        ({}, '{"error": "resets_at"}', None),
        ({}, "resets_at [[[", None),
    ],
)
def test_the_reset_of_a_usage_limit_is_known(headers, body, seconds):
    assert failure.retry_after(headers, 1_000.0, body) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s"), (600, "10 min"), (7_800, "2 h 10 min"), (273_600, "3 d 4 h")],
)
def test_time_spans_for_people(seconds, text):
    assert failure.span(seconds) == text
