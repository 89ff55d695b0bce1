import pytest
from support.provider import BY_API, KEY, model_of

from zot.provider.providers import PROVIDERS, connect
from zot.provider.scripted import MODEL, ScriptedProvider
from zot.provider.types import (
    Finished,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from zot.testing.provider_suite import ABORTS, ANSWERS, FAILURES, run_suite, stream_problems


@pytest.mark.parametrize("api", sorted(BY_API))
def test_every_api_passes_the_suite(api):
    provider = BY_API[api]

    def make(url):
        return connect(PROVIDERS[provider], model_of(provider), KEY, url)

    assert run_suite(make, model_of(provider)) == []


def test_a_provider_that_breaks_every_promise_is_found_out():
    def make(url):
        return ScriptedProvider([{"text": "always this", "stop": "tool_use", "repeat": True}])

    wrong = run_suite(make, MODEL)
    assert len(wrong) >= len(ANSWERS) + len(FAILURES) + len(ABORTS)


def test_events_that_do_not_fit_together_are_found():
    usage = Usage()
    call = ToolCall("a", "bash", {})
    assert stream_problems([]) == ["the last event is not Finished"]
    assert stream_problems([Started(), TextDelta("x"), Finished((Text("x"),), "end", usage)]) == []
    wrong = stream_problems(
        [
            TextDelta("x"),
            ToolCallStart("a", "bash"),
            ToolCallStart("a", "bash"),
            ToolCallArgs("a", "{}"),
            Finished((), "end", usage),
            Finished((call, Text("y")), "end", usage),
        ]
    )
    assert len(wrong) == 6
