import asyncio
import gc
import threading

import pytest

from zot import AsyncRuntime, BusyError, ClosedError, events
from zot.errors import CommandError
from zot.provider.scripted import ScriptedProvider

SLOW = {"text": ["x"] * 2000, "delay_ms": 20, "repeat": True}
SECONDS = 20


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))


def run(main):
    """Run to the end; nothing of ours may be left behind."""
    before = set(threading.enumerate())
    asyncio.run(asyncio.wait_for(main(), SECONDS))
    gc.collect()
    assert [thread.name for thread in set(threading.enumerate()) - before] == []


def open_runtime(*turns, **settings):
    return AsyncRuntime(provider=ScriptedProvider(list(turns)), no_tools=True, **settings)


async def text_of(stream):
    return "".join([e.delta async for e in stream if isinstance(e, events.TextDelta)])


def test_a_prompt_is_an_async_iterator():
    async def main():
        async with open_runtime({"text": ["hel", "lo"]}) as runtime:
            seen = [event async for event in runtime.prompt("hi")]
        assert isinstance(seen[0], events.UserMessage)
        assert seen[-1] == events.Done()

    run(main)


def test_many_run_at_once_while_the_loop_stays_free():
    async def main():
        runtimes = [open_runtime({"text": [f"{n} "] * 30, "delay_ms": 2}) for n in range(6)]
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        said = await asyncio.gather(*(text_of(runtime.prompt("go")) for runtime in runtimes))
        ticking.cancel()
        assert said == [f"{n} " * 30 for n in range(6)]
        assert ticks > 5
        for runtime in runtimes:
            await runtime.close()

    run(main)


def test_cancelling_the_task_aborts_and_leaves_nothing_behind():
    async def main():
        async with open_runtime(SLOW) as runtime:
            started = asyncio.Event()

            async def read():
                async for event in runtime.prompt("go"):
                    if isinstance(event, events.TextDelta):
                        started.set()

            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not runtime.state().busy
            assert runtime.messages()[-1].role == "assistant"

    run(main)


def test_cancelling_a_task_that_does_something_else_between_two_events_aborts_too():
    async def main():
        async with open_runtime({"match": "next", "text": "after"}, SLOW) as runtime:
            inside = asyncio.Event()

            async def read():
                async for event in runtime.prompt("go"):
                    if isinstance(event, events.TextDelta):
                        inside.set()
                        await asyncio.sleep(3600)

            task = asyncio.create_task(read())
            await inside.wait()
            task.cancel()
            await asyncio.wait([task])
            while runtime.state().busy:
                await asyncio.sleep(0.01)
            assert await text_of(runtime.prompt("next")) == "after"

    run(main)


def test_a_timeout_aborts():
    async def main():
        async with open_runtime(SLOW) as runtime:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await text_of(runtime.prompt("go"))
            assert not runtime.state().busy

    run(main)


def test_closing_and_leaving_the_stream_abort():
    async def main():
        async with open_runtime({"match": "third", "text": "ok"}, SLOW) as rt:
            async with rt.prompt("go") as stream:
                await anext(stream)
            assert not rt.state().busy
            assert [event async for event in stream] == []
            await stream.aclose()
            async for _ in rt.prompt("again"):
                break
            gc.collect()
            assert await text_of(rt.prompt("third")) == "ok"

    run(main)


def test_errors_are_those_of_runtime():
    async def main():
        runtime = open_runtime(SLOW)
        stream = runtime.prompt("go")
        with pytest.raises(BusyError):
            runtime.prompt("more")
        assert runtime.cancel()
        async for _ in stream:
            pass
        with pytest.raises(CommandError):
            runtime.prompt("")
        await runtime.close()
        with pytest.raises(ClosedError):
            runtime.prompt("go")

    run(main)


def test_the_rest_means_the_same():
    async def main():
        async with open_runtime("1", "2", "3", "4", "the summary") as runtime:
            for number in range(4):
                await text_of(runtime.prompt(f"prompt {number}"))
            result = await runtime.compact()
            assert result.summary == "the summary"
            runtime.set_messages(runtime.full_messages())
            assert runtime.messages() == result.messages
            assert runtime.cost().input == 0
            runtime.set_reasoning("low")
            await runtime.set_model("other")
            assert runtime.state().model == "other"
            assert [model.id for model in await runtime.list_models()] == ["scripted"]
            assert (runtime.steer("x"), runtime.follow_up("x")) == (False, False)
            runtime.clear()
            assert runtime.messages() == ()

    run(main)


def test_cancelling_a_compact_stops_it():
    async def main():
        async with open_runtime("1", "2", "3", "4", SLOW) as runtime:
            for number in range(4):
                await text_of(runtime.prompt(f"prompt {number}"))
            task = asyncio.create_task(runtime.compact())
            while not runtime.state().busy:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not runtime.state().busy

    run(main)


def test_a_loop_that_is_closed_while_a_run_goes_on_does_no_harm():
    runtime = open_runtime(SLOW)
    kept = []

    async def main():
        kept.append(runtime.prompt("go"))
        await anext(kept[0])

    asyncio.run(main())
    assert runtime.cancel() in (True, False)
    asyncio.run(runtime.close())
    kept.clear()
