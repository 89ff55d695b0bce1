import asyncio
import sys
import threading
from pathlib import Path

import pytest
from support.patience import PATIENCE

from zot import AsyncClient, Limits, events
from zot.client import Client, ClientTimeoutError, ServerGoneError
from zot.errors import ClosedError, CommandError
from zot.testing.fakeserver import FakeServer

ZOT = str(Path(sys.executable).parent / "zot")


@pytest.fixture(scope="module")
def server():
    with FakeServer() as server:
        yield server


@pytest.fixture
def command(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    flags = ["--provider", "anthropic", "--base-url", server.url, "--api-key", "k"]
    return [ZOT, "rpc", *flags, "--no-ext", "--cwd", str(tmp_path)]


def run(work):
    async def bounded():
        async with asyncio.timeout(PATIENCE):
            return await work()

    return asyncio.run(bounded())


async def text_of(stream):
    return "".join([event.delta async for event in stream if isinstance(event, events.TextDelta)])


def test_prompts_made_at_once_are_answered_in_order_and_in_the_loop(command):
    threads = set()

    async def main():
        async with AsyncClient(command) as client:
            streams = [client.prompt(f"say:answer {number}") for number in range(3)]
            texts = [await text_of(stream) for stream in streams]
            threads.add(threading.current_thread().name)
            return texts, (await client.state()).busy, [(await s.started()).queued for s in streams]

    texts, busy, queued = run(main)
    assert (texts, busy) == (["answer 0", "answer 1", "answer 2"], False)
    # A quick run may be over before the next prompt is accepted.
    assert all(ahead <= at for at, ahead in enumerate(queued))
    assert threads == {"MainThread"}


def test_the_loop_is_free_while_a_call_waits(command):
    async def main():
        async with AsyncClient(command) as client:
            waiting = asyncio.ensure_future(client.run_shell("read line < /dev/tty; sleep 30"))
            slow = asyncio.ensure_future(client.run_shell("sleep 30"))
            state = await client.state()
            while not (waiting.done() or slow.done()):
                await client.abort_shell()
                await asyncio.sleep(0.01)
            return state.busy

    assert run(main) is False


def test_cancelling_the_reader_aborts_the_run(command):
    async def main():
        async with AsyncClient(command) as client:
            begun = asyncio.Event()

            async def read():
                async for _ in client.prompt("hang:headers"):
                    begun.set()

            reader = asyncio.create_task(read())
            await begun.wait()
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert not (await client.state()).busy
            return await text_of(client.prompt("say:after"))

    assert run(main) == "after"


def test_a_refused_prompt_raises_where_it_is_read(command):
    async def main():
        async with AsyncClient(command) as client:
            refused = client.prompt("")
            with pytest.raises(CommandError):
                await refused.started()
            await refused.aclose()
            with pytest.raises(CommandError):
                await text_of(client.prompt(""))

    run(main)


def test_limits_of_one_prompt(command):
    async def main():
        async with AsyncClient(command) as client:
            stream = client.prompt("loop tool:bash:true", limits=Limits(max_steps=2))
            return [event async for event in stream]

    seen = run(main)
    assert [event.step for event in seen if isinstance(event, events.TurnStart)] == [1, 2]
    assert any(isinstance(event, events.Error) for event in seen)


def test_the_blocking_client_takes_limits_too(command):
    with Client(command) as client:
        seen = list(client.prompt("loop tool:bash:true", limits=Limits(max_steps=1)))
    assert [event.step for event in seen if isinstance(event, events.TurnStart)] == [1]


def test_agents_run_side_by_side(command):
    async def main():
        async with AsyncClient(command, features=["agents"]) as client:
            agents = [await client.open_agent(tools=[]) for _ in range(3)]
            streams = [agent.prompt(f"say:{agent.name}") for agent in agents]
            texts = await asyncio.gather(*map(text_of, streams))
            async with agents[0]:
                pass
            left = [info.agent for info in await client.list_agents()]
            return texts, [agent.name for agent in agents], left

    texts, names, left = run(main)
    assert texts == names
    assert left == names[1:]


def test_events_of_no_run_come_in_the_loop(command, tmp_path):
    heard = []

    async def main():
        async with AsyncClient(command, on_event=heard.append) as client:
            await client.request("ping")

    run(main)
    assert heard == []


def test_a_child_that_dies_is_told_to_the_reader():
    code = "import sys; sys.stdin.readline(); sys.exit('no luck')"

    async def main():
        async with AsyncClient([sys.executable, "-c", code]) as client:
            with pytest.raises(ServerGoneError, match="no luck"):
                await text_of(client.prompt("hi"))

    run(main)


def test_silence_is_told_and_the_run_can_be_read_on(command):
    async def main():
        async with AsyncClient(command) as client:
            stream = client.prompt("delay:300 text:1", timeout=0.05)
            with pytest.raises(ClientTimeoutError):
                while True:
                    await anext(stream)
            await stream.aclose()
            return (await client.state()).busy

    assert run(main) is False


def test_a_client_that_was_not_started_says_so():
    with pytest.raises(ClosedError, match="async with"):
        _ = AsyncClient().pid
