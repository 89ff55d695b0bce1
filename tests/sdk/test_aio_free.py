"""A loop that uses AsyncRuntime goes on turning, whatever a call has to wait for."""

import asyncio
import gc
import threading
import time
import warnings

import pytest

from zot import AsyncRuntime, BusyError, events, tool
from zot.provider.scripted import ScriptedProvider

STUBBORN_SECONDS = 3.0
TICK = 0.01
ENOUGH = 15
"""Ticks a free loop makes many times over while an aborted run is given up; a blocked one makes
none or one."""
CALL = {"tools": [{"name": "stubborn", "args": {}}]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))


class Ticker:
    """Counts the turns of the loop."""

    def __init__(self):
        self.count = 0

    async def __aenter__(self):
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()

    async def _tick(self):
        while True:
            self.count += 1
            await asyncio.sleep(TICK)


class Stubborn:
    """A runtime whose run was cancelled in a tool that takes no notice."""

    def __init__(self, *turns, **settings):
        self._running = threading.Event()

        @tool
        def stubborn() -> str:
            """Ignore the cancel."""
            self._running.set()
            time.sleep(STUBBORN_SECONDS)
            return "late"

        provider = ScriptedProvider([CALL, *(turns or ("second",))])
        self.runtime = AsyncRuntime(provider=provider, tools=[stubborn], **settings)

    async def __aenter__(self):
        self.stream = self.runtime.prompt("go")
        await asyncio.to_thread(self._running.wait, 20)
        assert self.runtime.cancel()
        assert self.runtime.state().busy
        return self.runtime

    async def __aexit__(self, *_):
        await self.runtime.close()


def run(main):
    asyncio.run(asyncio.wait_for(main(), 60))


CALLS = {
    "clear": lambda runtime: runtime.clear(),
    "set_reasoning": lambda runtime: runtime.set_reasoning("low"),
    "set_messages": lambda runtime: runtime.set_messages([]),
    "set_model": lambda runtime: runtime.set_model("scripted"),
    "set_jail": lambda runtime: runtime.set_jail(False),
    "new_session": lambda runtime: runtime.new_session(),
    "rewind": lambda runtime: runtime.rewind(files=False, preview=True),
    "reload_extensions": lambda runtime: runtime.reload_extensions(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_change_behind_a_run_that_does_not_stop_leaves_the_loop_free(name, tmp_path):
    async def main():
        async with Stubborn(session=tmp_path / "s.jsonl") as runtime, Ticker() as ticker:
            await CALLS[name](runtime)
            assert ticker.count >= ENOUGH
            assert not runtime.state().busy

    run(main)


def test_a_prompt_behind_a_run_that_does_not_stop_leaves_the_loop_free():
    async def main():
        async with Stubborn("second") as runtime, Ticker() as ticker:
            stream = runtime.prompt("next")
            assert ticker.count <= 1
            seen = [event async for event in stream]
            assert ticker.count >= ENOUGH
            assert "".join(e.delta for e in seen if isinstance(e, events.TextDelta)) == "second"
            assert seen[-1] == events.Done()

    run(main)


def test_retry_and_compact_leave_the_loop_free():
    async def main():
        async with Stubborn("again") as runtime, Ticker() as ticker:
            seen = [event async for event in runtime.retry()]
            assert ticker.count >= ENOUGH
            assert seen[-1] == events.Done()
        async with Stubborn() as runtime, Ticker() as ticker:
            with pytest.raises(Exception, match="nothing to compact|too short|compact"):
                await runtime.compact()
            assert ticker.count >= ENOUGH

    run(main)


def test_closing_a_stream_and_a_runtime_leave_the_loop_free():
    async def main():
        stubborn = Stubborn()
        async with stubborn as runtime:
            async with Ticker() as ticker:
                await stubborn.stream.aclose()
                assert ticker.count >= ENOUGH
            assert not runtime.state().busy
        async with Stubborn() as runtime, Ticker() as ticker:
            await runtime.close()
            assert ticker.count >= ENOUGH

    run(main)


def test_what_is_called_behind_a_change_that_waits_comes_behind_it():
    async def main():
        async with Stubborn("second") as runtime:
            cleared = runtime.clear()
            stream = runtime.prompt("next")
            seen = [event async for event in stream]
            await cleared
            assert seen[-1] == events.Done()
            said = [message.role for message in runtime.messages()]
            assert said == ["user", "assistant"]

    run(main)


def test_a_change_that_nobody_awaits_is_made_and_warned_of():
    async def main():
        async with Stubborn() as runtime:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                runtime.clear()
                gc.collect()
            assert ["clear() was not awaited" in str(it.message) for it in caught] == [True]
            while runtime.messages() != ():
                await asyncio.sleep(TICK)

    run(main)


def test_a_change_that_waits_for_nothing_is_made_at_once():
    async def main():
        async with AsyncRuntime(provider=ScriptedProvider(["1"]), no_tools=True) as runtime:
            async for _ in runtime.prompt("go"):
                pass
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                runtime.clear()
                assert runtime.messages() == ()
                assert await runtime.set_reasoning("low") == "low"
                gc.collect()

    run(main)


def test_busy_is_said_at_once():
    async def main():
        slow = {"text": ["x"] * 2000, "delay_ms": 20}
        async with AsyncRuntime(provider=ScriptedProvider([slow]), no_tools=True) as runtime:
            stream = runtime.prompt("go")
            for call in (runtime.clear, lambda: runtime.prompt("more")):
                with pytest.raises(BusyError):
                    call()
            await stream.aclose()

    run(main)


def test_cancel_reaches_a_prompt_that_waits_to_begin():
    async def main():
        slow = {"text": ["x"] * 2000, "delay_ms": 20}
        async with Stubborn(slow) as runtime:
            stream = runtime.prompt("next")
            assert runtime.cancel()
            seen = [event async for event in stream]
            assert seen[-1] == events.Done()
            assert [e.stop for e in seen if isinstance(e, events.TurnEnd)] == ["aborted"]

    run(main)


@pytest.mark.parametrize("leave", ["drop", "aclose", "cancel the task"])
def test_a_prompt_that_is_left_before_it_begins_runs_nothing(leave):
    async def main():
        slow = {"text": ["x"] * 2000, "delay_ms": 20, "repeat": True}
        async with Stubborn(slow) as runtime:
            stream = runtime.prompt("next")
            if leave == "aclose":
                await stream.aclose()
            elif leave == "cancel the task":
                task = asyncio.create_task(anext(stream))
                await asyncio.sleep(TICK)
                task.cancel()
                await asyncio.wait([task])
            del stream
            gc.collect()
            await asyncio.sleep(0)
            await runtime.clear()
            assert not runtime.state().busy
            assert runtime.messages() == ()

    run(main)


def test_a_refused_prompt_behind_a_run_that_stops_raises_where_it_is_read():
    async def main():
        async with Stubborn() as runtime:
            stream = runtime.prompt("")
            with pytest.raises(Exception, match="the prompt is empty"):
                await anext(stream)

    run(main)


def test_a_background_command_that_ends_slowly_does_not_block_clear(monkeypatch):
    from zot.tools.process.background import Background

    ends = threading.Event()
    monkeypatch.setattr(Background, "end_all", lambda self: ends.wait(20))
    monkeypatch.setattr(Background, "used", property(lambda self: True))

    async def main():
        provider = ScriptedProvider(["1"])
        runtime = AsyncRuntime(provider=provider, tools=["bash"])
        async with runtime, Ticker() as ticker:
            cleared = runtime.clear()
            while ticker.count < ENOUGH:
                assert not runtime.state().busy  # does not wait for the change either
                await asyncio.sleep(TICK)
            ends.set()
            await cleared

    run(main)
