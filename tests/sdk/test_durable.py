"""Durable runs in one process: a runtime that is closed, and the next one on the same session."""

import asyncio
import threading

import pytest

from zot.errors import BusyError, ConfigError
from zot.provider.types import Model, Price
from zot.sdk import AsyncRuntime, CommandError, Runtime, ToolContext, events, tool
from zot.sessions.files import FileStore
from zot.testing import ScriptedProvider

CALL = {"tools": [{"name": "step", "args": {"n": 1}, "id": "c1"}]}


class Step:
    """A tool that waits in its first call, until the runtime is closed."""

    def __init__(self, **declared: object) -> None:
        self.keys: list[str] = []
        self.entered = threading.Event()

        @tool(name="step", **declared)  # type: ignore[call-overload]
        def step(n: int, context: ToolContext) -> str:
            """Does a step."""
            self.keys.append(context.key)
            self.entered.set()
            if len(self.keys) == 1:
                context.cancel.wait(20)
                context.cancel.check()
            return f"step {n} done"

        self.tool = step


def runtime(path, turns, step, **more) -> Runtime:
    model = Model("m", "scripted", "scripted", price=Price(1, 1))
    return Runtime(
        provider=ScriptedProvider(turns),
        model=model,
        session=path,
        durable=True,
        tools=[step.tool],
        **more,
    )


def cut(path, step, **prompt: object) -> list:
    """Begin a run, and close the runtime in its tool; the events."""
    seen: list = []
    with runtime(path, [CALL], step) as first:
        stream = first.prompt("go", run="job")
        reading = threading.Thread(target=lambda: seen.extend(stream))
        reading.start()
        assert step.entered.wait(20)
        first.close()
        reading.join(20)
    return seen


def results(it: Runtime) -> list[str]:
    blocks = [block for message in it.messages() for block in message.content]
    return [b.content[0].text for b in blocks if b.__class__.__name__ == "ToolResultBlock"]


def test_a_runtime_that_is_closed_leaves_its_run_for_the_next_one(tmp_path):
    path, step = tmp_path / "s.jsonl", Step()
    seen = cut(path, step)
    assert isinstance(seen[-1], events.RunSuspended)
    with runtime(path, ["the end"], step) as second:
        with pytest.raises(BusyError, match="resume"):
            second.prompt("another")
        stream = second.resume()
        assert stream is not None
        told = list(stream)
        assert isinstance(told[0], events.RunResumed)
        assert told[-1] == events.Done("job")
        assert "may have taken effect" in results(second)[0]
        assert second.resume() is None
        again = second.prompt("go", run="job")
        assert list(again) == [events.Done()]
        assert again.end is not None
        assert (again.end.stop, again.end.text) == ("end", "the end")
    assert len(step.keys) == 1


@pytest.mark.parametrize(
    ("declared", "runs"),
    [
        ({"replay": "safe"}, 2),
        ({"replay": "idempotent"}, 2),
        ({"reconcile": lambda args, key: False}, 2),
        ({"reconcile": lambda args, key: f"it was done: {args['n']}"}, 1),
        ({"reconcile": lambda args, key: None}, 1),
    ],
)
def test_a_tool_says_what_may_be_done_with_a_call_that_was_cut_off(tmp_path, declared, runs):
    path, step = tmp_path / "s.jsonl", Step(**declared)
    cut(path, step)
    with runtime(path, ["the end"], step) as second:
        list(second.prompt("go", run="job"))  # by its name: resumed too
        (said,) = results(second)
    assert len(step.keys) == runs
    assert len(set(step.keys)) == 1
    assert step.keys[0].startswith("job/")
    assert said.startswith(("step 1 done", "it was done: 1", "interrupted"))


def test_what_was_declared_is_never_made_wider(tmp_path):
    path, step = tmp_path / "s.jsonl", Step()
    cut(path, step)
    wider = Step(replay="safe")
    with runtime(path, ["the end"], wider) as second:
        stream = second.resume()
        assert stream is not None
        assert [event.open[0].replay for event in stream if hasattr(event, "open")] == ["never"]
    assert wider.keys == []


def test_a_run_that_is_held_is_told_and_let_go(tmp_path):
    path, step = tmp_path / "s.jsonl", Step()
    cut(path, step)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"run_left"' not in line))
    with runtime(path, ["the end"], step, on_crash="hold") as second:
        with pytest.raises(CommandError, match="is held") as held:
            second.resume()
        assert held.value.code == "held"
        assert isinstance(list(second.resume_run("job"))[-1], events.Done)


def test_the_same_in_a_loop(tmp_path):
    path, step = tmp_path / "s.jsonl", Step()
    cut(path, step)

    async def main() -> list:
        provider = ScriptedProvider(["the end"])
        async with AsyncRuntime(
            provider=provider, session=path, durable=True, tools=[step.tool]
        ) as second:
            stream = second.resume()
            assert stream is not None
            told = [event async for event in stream]
            assert second.resume() is None
            again = second.prompt("go", run="job")
            assert again.end is not None
            return [*told, *[event async for event in again]]

    told = asyncio.run(main())
    assert isinstance(told[0], events.RunResumed)
    assert told[-1] == events.Done()


def test_durable_needs_a_session(tmp_path):
    with pytest.raises(ConfigError, match="session=PATH"):
        Runtime(provider=ScriptedProvider([]), durable=True)
    with (
        Runtime(provider=ScriptedProvider(["x"])) as plain,
        pytest.raises(CommandError, match="durable"),
    ):
        plain.prompt("go", run="job")
    with pytest.raises(TypeError, match="replay must be"):
        tool(replay="often")(lambda: None)  # type: ignore[call-overload]


def test_a_tool_call_costs_one_row_and_one_sync_more(tmp_path, monkeypatch):
    syncs: list[str] = []
    plain = FileStore._fdatasync

    def counted(self: FileStore, fd: int) -> None:
        syncs.append(self.path)
        plain(self, fd)

    monkeypatch.setattr(FileStore, "_fdatasync", counted)

    def cost(calls: int, *, durable: bool) -> tuple[int, int]:
        """Rows and syncs of a run with so many calls."""
        path = tmp_path / f"{calls}-{durable}.jsonl"
        syncs.clear()
        turns = [{"tools": [{"name": "look", "args": {}}]}] * calls
        with Runtime(
            provider=ScriptedProvider([*turns, "end"]), session=path, durable=durable, tools=[look]
        ) as it:
            list(it.prompt("go"))
        return len(path.read_bytes().splitlines()), len(syncs)

    (few, more), (few_durable, more_durable) = (
        [cost(calls, durable=durable) for calls in (2, 7)] for durable in (False, True)
    )
    assert more_durable[0] - few_durable[0] == more[0] - few[0] + 5
    assert more_durable[1] - few_durable[1] == more[1] - few[1] + 5
    assert few_durable[0] - few[0] == 2 + 3  # accepted, begun and ended


@tool
def look() -> str:
    """Looks."""
    return "seen"
