import threading

import pytest
from support.provider import ask, model_of

from zot.cancel import Cancel
from zot.errors import Cancelled, Overloaded, ProviderError, RateLimited, Rejected
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.retry import RetryPolicy, stream_with_retry
from zot.provider.scripted import ScriptedProvider
from zot.provider.types import FellBack, Finished, Retrying, TextDelta

FAST = RetryPolicy(first_delay=0.001, max_delay=0.002)


def play(turns, policy=FAST, fallbacks=()):
    return list(
        stream_with_retry(ScriptedProvider(turns), ask(MODEL, "x"), Cancel(), policy, fallbacks)
    )


def failing(status, **fields):
    return {"error": {"status": status, "message": "no", **fields}}


def test_a_failure_is_tried_again_and_said_so():
    events = play([failing(529), failing(503), "fine"])
    tries = [event for event in events if isinstance(event, Retrying)]
    assert [(t.attempt, t.max_attempts) for t in tries] == [(1, 10), (2, 10)]
    assert [(t.code, t.dropped) for t in tries] == [("overloaded", False)] * 2
    assert tries[0].reason == "scripted: http 529: no"
    assert isinstance(events[-1], Finished)


def test_the_last_of_ten_tries_is_the_error():
    provider = ScriptedProvider([failing(500)] * 12)
    with pytest.raises(Overloaded):
        list(stream_with_retry(provider, ask(MODEL, "x"), Cancel(), FAST))
    assert len(provider.requests) == 10


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_asking_again_cannot_help_fails_at_once(status):
    with pytest.raises(ProviderError) as caught:
        play([failing(status), "never"])
    assert caught.value.status == status


def test_after_content_the_answer_begins_anew():
    events = play([{"text": ["a", "b"], "cut_after": 1}, "fine"])
    (again,) = [event for event in events if isinstance(event, Retrying)]
    assert (again.dropped, again.code) == (True, "network")
    after = events[events.index(again) :]
    assert [event.text for event in after if isinstance(event, TextDelta)] == ["fine"]


def test_a_failure_after_content_that_asking_again_cannot_help_is_the_error():
    with pytest.raises(Rejected):
        play([{"text": "a", "error": {"status": 400}}, "never"])


def test_a_cut_before_content_is_tried_again():
    events = play([{"text": "a", "cut_after": 0}, "fine"])
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["fine"]


def test_the_server_is_given_the_time_it_asks_for():
    events = play([failing(429, retry_after=0.05), "fine"])
    assert next(e for e in events if isinstance(e, Retrying)).delay >= 0.05


def test_a_server_that_asks_for_too_long_is_not_waited_for():
    text = r"the limit resets at 20\d\d-\d\d-\d\d \d\d:\d\d, in 60 min; --wait-for-limit waits"
    with pytest.raises(RateLimited, match=text) as caught:
        play([failing(429, retry_after=3600), "never"])
    assert (caught.value.status, caught.value.retry_after) == (429, 3600)


def test_a_limit_is_waited_for_when_that_is_wanted_and_no_other_model_follows():
    cancel, turns = Cancel(), [failing(429, retry_after=3 * 86_400), "fine"]
    policy = RetryPolicy(wait_for_limit=True)
    stream = stream_with_retry(ScriptedProvider(turns), ask(MODEL, "x"), cancel, policy)
    again = next(event for event in stream if isinstance(event, Retrying))
    assert again.delay >= 3 * 86_400
    stream.close()
    other = ScriptedProvider(["from the other"])
    events = list(
        stream_with_retry(
            ScriptedProvider(turns), ask(MODEL, "x"), cancel, policy, [(other, MODEL)]
        )
    )
    assert any(isinstance(event, FellBack) for event in events)
    with pytest.raises(RateLimited, match="in 9 d 6 h"):
        list(
            stream_with_retry(
                ScriptedProvider([failing(429, retry_after=222 * 3_600)]),
                ask(MODEL, "x"),
                cancel,
                policy,
            )
        )


def test_pauses_grow_and_stay_bounded():
    policy = RetryPolicy(first_delay=1, max_delay=4)
    pauses = [policy.delay(attempt, None) for attempt in (1, 2, 3, 4, 5)]
    assert 1 <= pauses[0] <= 1.25
    assert 4 <= pauses[-1] <= 5


def test_abort_in_a_pause():
    cancel = Cancel()
    provider = ScriptedProvider([failing(500), "never"])
    stream = stream_with_retry(provider, ask(MODEL, "x"), cancel, RetryPolicy(first_delay=60))
    assert isinstance(next(stream), Retrying)
    threading.Timer(0.05, cancel.set).start()
    with pytest.raises(Cancelled):
        next(stream)


def test_another_model_takes_over_and_the_failure_is_kept():
    other = model_of("anthropic")
    spare = ScriptedProvider(["from the spare"])
    events = play([failing(400)], fallbacks=[(spare, other)])
    fell = next(event for event in events if isinstance(event, FellBack))
    assert fell.failed == "scripted"
    assert fell.model == other
    assert "http 400" in fell.reason
    assert spare.requests[0].model == other
    assert isinstance(events[-1], Finished)


def test_when_every_model_fails_the_last_error_is_raised():
    spare = ScriptedProvider([failing(404)])
    with pytest.raises(Rejected) as caught:
        play([failing(500)] * 4, fallbacks=[(spare, MODEL)])
    assert caught.value.status == 404


def test_another_model_after_a_cut_that_does_not_pass():
    spare = ScriptedProvider(["fine"])
    cut = {"text": "a", "cut_after": 1, "repeat": True}
    events = play([cut], fallbacks=[(spare, MODEL)])
    assert sum(isinstance(event, Retrying) for event in events) == 3
    assert len(spare.requests) == 1


def test_no_other_model_after_content_for_a_failure_of_the_request():
    spare = ScriptedProvider(["never"])
    with pytest.raises(Rejected):
        play([{"text": "a", "error": {"status": 400}}], fallbacks=[(spare, MODEL)])
    assert spare.requests == []


def test_a_provider_that_fails_before_its_stream_begins_is_asked_again():
    class Eager(ScriptedProvider):
        """Checks first, and then gives a generator."""

        failures = 1

        def stream(self, request, cancel):
            if self.failures:
                self.failures -= 1
                raise Overloaded("busy")
            return super().stream(request, cancel)

    asked = stream_with_retry(Eager(["fine"]), ask(MODEL, "x"), Cancel(), FAST)
    kinds = [type(event) for event in asked]
    assert (kinds[0], kinds[-1]) == (Retrying, Finished)
