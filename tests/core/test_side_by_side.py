"""Calls of one turn that may run side by side, and those that may not."""

import threading
from typing import Any

import pytest
from support.patience import PATIENCE

from zot.cancel import Cancel
from zot.core.tool import ToolContext
from zot.errors import Cancelled, ToolError
from zot.provider.scripted import ScriptedProvider
from zot.sdk import Runtime, events


class Meeting:
    """A tool whose calls wait for each other: alone it would never return."""

    name = "meet"
    description = "meets"
    schema: dict[str, Any] = {"type": "object", "properties": {"who": {"type": "string"}}}
    side_by_side = True

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties, timeout=PATIENCE)

    def run(self, args: dict[str, Any], context: ToolContext) -> str:
        if args["who"] == "nobody":
            raise ToolError("nobody came")
        context.progress(f"{args['who']} is here\n")
        self._barrier.wait()
        return f"met {args['who']}"


class Alone:
    name = "alone"
    description = "works alone"
    schema: dict[str, Any] = {"type": "object"}

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    def run(self, args: dict[str, Any], context: ToolContext) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.running -= 1
        return "done alone"


def calls(*words: str) -> list[dict[str, Any]]:
    return [
        {"name": "alone"} if word == "alone" else {"name": "meet", "args": {"who": word}}
        for word in words
    ]


def runtime(tools: list[Any], *words: str) -> Runtime:
    turns = [{"tools": calls(*words)}, {"text": "ok"}]
    return Runtime(provider=ScriptedProvider(turns), tools=tools)


def results(frames: list[Any]) -> list[str]:
    return [frame.content[0].text for frame in frames if isinstance(frame, events.ToolResult)]


def test_neighbours_that_only_read_run_together_and_their_results_keep_the_order() -> None:
    with runtime([Meeting(3)], "a", "b", "c") as agent:
        frames = list(agent.prompt("go"))
        assert results(frames) == ["met a", "met b", "met c"]
        (message,) = (one for one in agent.messages() if one.role == "tool")
        assert [block.call_id for block in message.content] == ["call_1", "call_2", "call_3"]


def test_a_call_that_is_not_of_that_kind_stands_between_them() -> None:
    alone = Alone()
    with runtime([Meeting(2), alone], "a", "b", "alone", "c", "d") as agent:
        said = results(list(agent.prompt("go")))
    assert said == ["met a", "met b", "done alone", "met c", "met d"]
    assert alone.most == 1


def test_one_that_fails_does_not_take_the_others_with_it() -> None:
    with runtime([Meeting(2)], "a", "nobody", "c") as agent:
        assert results(list(agent.prompt("go"))) == ["met a", "nobody came", "met c"]


def test_a_guard_is_asked_about_one_call_at_a_time_before_any_of_them_runs() -> None:
    asked: list[str] = []
    lock = threading.Lock()

    def guard(call: Any) -> str | None:
        assert lock.acquire(blocking=False)
        asked.append(call.args["who"])
        lock.release()
        return "not c" if call.args["who"] == "c" else None

    turns = [{"tools": calls("a", "b", "c")}, {"text": "ok"}]
    with Runtime(provider=ScriptedProvider(turns), tools=[Meeting(2)], hooks=[guard]) as agent:
        said = results(list(agent.prompt("go")))
    assert asked == ["a", "b", "c"]
    assert said[:2] == ["met a", "met b"]
    assert "not c" in said[2]


class Waiting(Meeting):
    def __init__(self, parties: int) -> None:
        super().__init__(parties)
        self.cancelled = 0

    def run(self, args: dict[str, Any], context: ToolContext) -> str:
        self._barrier.wait()
        woken = threading.Event()
        with context.cancel.calling(woken.set):
            woken.wait(PATIENCE)
        self.cancelled += 1
        raise Cancelled


def test_an_abort_ends_all_of_them_and_each_has_its_result() -> None:
    tool = Waiting(3)
    with runtime([tool], "a", "b") as agent:
        stream = agent.prompt("go")
        tool._barrier.wait()  # both run
        agent.cancel()
        frames = list(stream)
    assert results(frames) == ["aborted", "aborted"]
    assert tool.cancelled == 2
    assert [frame.stop for frame in frames if isinstance(frame, events.TurnEnd)][-1] == "aborted"


def test_no_more_than_eight_run_at_once() -> None:
    most = 0
    running = 0
    lock = threading.Lock()

    class Counting(Meeting):
        def run(self, args: dict[str, Any], context: ToolContext) -> str:
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            Cancel().sleep(0.01)
            with lock:
                running -= 1
            return "counted"

    with runtime([Counting(1)], *"abcdefghijklmnopqrst") as agent:
        assert results(list(agent.prompt("go"))) == ["counted"] * 20
    assert 2 <= most <= 8


@pytest.mark.parametrize("name", ["read", "glob", "grep"])
def test_the_tools_that_only_read_say_so(name: str) -> None:
    from support.around import tools_at

    (tool,) = tools_at("/", [name])
    assert getattr(tool, "side_by_side", None) is True
