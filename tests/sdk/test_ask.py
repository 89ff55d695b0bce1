"""`ask`: the whole answer as a value, and failures as exceptions."""

import asyncio
import threading

import pytest

from zot import Runtime
from zot.sdk import AsyncRuntime, CommandError, Limits, ProviderError
from zot.testing.fakeserver import FakeServer


@pytest.fixture
def options(tmp_path):
    with FakeServer() as server:
        yield {
            "provider": "anthropic",
            "api_key": "k",
            "base_url": server.url,
            "cwd": tmp_path,
            "max_tries": 1,
        }


def test_the_answer_has_text_usage_and_all_messages(options, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with Runtime(**options) as runtime:
        answer = runtime.ask("read:a.txt\nthen\nsay:it says one")
        assert (answer.text, answer.stop) == ("it says one", "end")
        assert len(answer.messages) == 2
        alone = runtime.ask("say:hi").usage
        assert 0 < alone.output < answer.usage.output
        assert answer.usage.cost_usd > 0


def test_a_failed_run_raises_its_cause_and_the_next_one_answers(options):
    with Runtime(**options) as runtime:
        with pytest.raises(ProviderError, match="http 400"):
            runtime.ask("status:400")
        stream = runtime.prompt("status:400")
        assert list(stream)
        with pytest.raises(ProviderError):
            stream.raise_for_error()
        assert runtime.ask("say:still here").text == "still here"


def test_a_limit_and_an_abort_raise(options):
    with Runtime(**options) as runtime:
        with pytest.raises(Exception, match="max"):
            runtime.ask("rounds:9 tool:bash:true", limits=Limits(max_steps=1))
        threading.Timer(0.3, runtime.cancel).start()
        with pytest.raises(CommandError) as caught:
            runtime.ask("hang")
        assert caught.value.code == "aborted"


def test_the_same_in_a_loop(options):
    async def main():
        async with AsyncRuntime(**options) as runtime:
            assert (await runtime.ask("say:hello")).text == "hello"
            with pytest.raises(ProviderError):
                await runtime.ask("status:400")

    asyncio.run(main())
