"""Several keys of one provider."""

from support.provider import ask, client, model_of

from zot.cancel import Cancel
from zot.errors import RateLimited
from zot.provider.keys import Keys, split_keys
from zot.provider.retry import RetryPolicy, stream_with_retry
from zot.provider.types import Finished, Retrying
from zot.runtime.redact import Redactor
from zot.testing import replies
from zot.testing.fakeserver import FakeServer

FIRST, SECOND = "sk-first-0123456789", "sk-second-0123456789"


class LimitedServer(FakeServer):
    """Has a usage limit for the first key only."""

    def _reply(self, connection, seen):
        if seen.headers["x-api-key"] == FIRST:
            body = replies.error_body("anthropic", 429, "limit reached")
            connection.send_json(429, body, {"retry-after": "7200"})
            return "error", True
        return super()._reply(connection, seen)


def call(made):
    request, policy = ask(model_of("anthropic"), "text:1"), RetryPolicy(first_delay=0.001)
    return list(stream_with_retry(made, request, Cancel(), policy))


def test_another_key_goes_on_when_the_limit_of_one_is_reached():
    with LimitedServer() as server, client("anthropic", server.url, f"{FIRST}, {SECOND}") as made:
        events = call(made)
        (again,) = [event for event in events if isinstance(event, Retrying)]
        assert "another key goes on" in again.reason
        assert isinstance(events[-1], Finished)
        call(made)
        used = [seen.headers["x-api-key"] for seen in server.requests]
    assert used == [FIRST, SECOND, SECOND]


def test_when_all_keys_rest_the_first_reset_is_waited_for():
    keys, text = Keys(), "a,b"
    for used, seconds in (("a", 500.0), ("b", 100.0)):
        error = RateLimited("limit", retry_after=seconds)
        keys.rest(text, used, error)
    assert 99 < error.retry_after <= 100
    assert keys.choose(text) == "b"


def test_one_key_is_left_alone():
    error = RateLimited("limit", retry_after=9.0)
    Keys().rest("a", "a", error)
    assert (error.retry_after, str(error)) == (9.0, "limit")
    assert split_keys("") == [""]
    assert split_keys(" a , ,b ") == ["a", "b"]


def test_each_of_several_keys_is_a_secret(tmp_path):
    redactor = Redactor([f"{FIRST},{SECOND}"], str(tmp_path))
    assert redactor.text(f"x {SECOND} y {FIRST}").count("sk-") == 0
