from concurrent.futures import ThreadPoolExecutor

import pytest
from support.provider import KEY, model_of

from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.client import connect
from zot.provider.providers import PROVIDERS
from zot.provider.scripted import ScriptedProvider
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


def suite_of(provider: str) -> list[str]:
    def make(url):
        return connect(PROVIDERS[provider], model_of(provider), KEY, url)

    return run_suite(make, model_of(provider))


@pytest.mark.slow
def test_every_provider_of_the_table_passes_the_suite():
    rows = sorted(set(PROVIDERS) - {"scripted"})
    with ThreadPoolExecutor(8) as pool:  # most of it is waiting
        problems = dict(zip(rows, pool.map(suite_of, rows), strict=True))
    assert {provider: wrong for provider, wrong in problems.items() if wrong} == {}


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
