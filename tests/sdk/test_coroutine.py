import asyncio
import threading

import pytest

from zot import AsyncRuntime, Config, Runtime, events, tool
from zot.errors import ToolError
from zot.testing import ScriptedProvider

CALL = {"tools": [{"name": "look", "args": {"word": "there"}}]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))


def result_of(seen):
    (result,) = [event for event in seen if isinstance(event, events.ToolResult)]
    return result.is_error, result.content[0].text


def test_a_coroutine_is_a_tool_of_a_plain_runtime():
    @tool
    async def look(word: str) -> str:
        """Look."""
        await asyncio.sleep(0)
        return f"looked {word}"

    with Runtime(provider=ScriptedProvider([CALL, "ok"]), tools=[look]) as runtime:
        assert result_of(runtime.prompt("go")) == (False, "looked there")


def waiting_tool(started, cancelled):
    """A tool that waits to be cancelled; it sets these two."""

    @tool
    async def look(word: str) -> str:
        """Look."""
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return word

    return look


def test_cancelling_a_plain_runtime_cancels_the_coroutine():
    started, cancelled = threading.Event(), threading.Event()
    look = waiting_tool(started, cancelled)
    with Runtime(provider=ScriptedProvider([CALL]), tools=[look]) as runtime:
        stream = runtime.prompt("go")
        assert started.wait(20)
        stream.close()
        assert cancelled.wait(20)


def test_in_an_async_runtime_it_runs_in_the_loop_of_the_prompt():
    loops = []

    async def look(word: str) -> str:
        """Look."""
        loops.append(asyncio.get_running_loop())
        if len(loops) > 1:
            raise ToolError("only once")
        return f"looked {word}"

    async def main():
        provider = ScriptedProvider([CALL, "ok", CALL, "ok"])
        async with AsyncRuntime(Config(provider=provider, tools=[look])) as runtime:
            first = [event async for event in runtime.prompt("go")]
            second = [event async for event in runtime.prompt("again")]
        assert result_of(first) == (False, "looked there")
        assert result_of(second) == (True, "only once")
        assert loops == [asyncio.get_running_loop()] * 2

    asyncio.run(main())


def test_cancelling_the_task_cancels_the_coroutine():
    async def main():
        inside, cancelled = asyncio.Event(), asyncio.Event()
        look = waiting_tool(inside, cancelled)

        async def read(runtime):
            async for _ in runtime.prompt("go"):
                pass

        async with AsyncRuntime(provider=ScriptedProvider([CALL]), tools=[look]) as runtime:
            task = asyncio.create_task(read(runtime))
            await asyncio.wait_for(inside.wait(), 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(cancelled.wait(), 20)
            assert not runtime.state().busy

    asyncio.run(main())


def test_plain_tools_and_names_stay_as_they_are():
    async def main():
        with pytest.raises(TypeError, match="not both"):
            AsyncRuntime(Config(), cwd="/")
        runtime = AsyncRuntime(provider=ScriptedProvider([]), tools=["read"])
        assert [spec.name for spec in runtime._runtime._inner.agent.toolbox.specs] == ["read"]
        await runtime.close()

    asyncio.run(main())
