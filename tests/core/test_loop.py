"""The loop and its supervisor: what is told, in which order, and what is left in the transcript."""

import random
import sys
import threading
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.patience import PATIENCE
from support.session import (
    FullDisk,
    Recorder,
    SmallTool,
    kinds,
    last_turn_end,
    of,
    said,
    valid,
)

from zot.cancel import Cancel
from zot.core import events, toolbox
from zot.core.agent import Limits
from zot.core.compact import Keep
from zot.core.hook import ALLOW, Block, Hook, ReplaceArgs, ReplaceText
from zot.core.limits import Reservations, Spent
from zot.core.session import Session
from zot.core.tool import ToolOutput
from zot.errors import (
    BadResponse,
    BusyError,
    ClosedError,
    CommandError,
    LimitError,
    NetworkError,
    ProviderError,
    ToolError,
)
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.repair import repaired
from zot.provider.scripted import ScriptedProvider
from zot.provider.types import (
    Finished,
    Image,
    Price,
    Started,
    Text,
    TextDelta,
    ToolCall,
    Usage,
    UsageSeen,
)
from zot.runtime import run as run_module
from zot.runtime import runs as runs_module

OK = {"text": "ok", "repeat": True}
NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def echo(name="echo", schema=None):
    return SmallTool(name, lambda args, context: f"{name}:{args}", schema)


def calls(*names, **more):
    tools = [{"name": name} if isinstance(name, str) else name for name in names]
    return {"tools": tools, **more}


def results_of(told):
    return [
        (event.result.is_error, event.result.content[0].text)
        for event in of(told, events.ToolReturned)
    ]


def usable(it):
    """The transcript is valid for the next request, and the next prompt works."""
    assert valid(repaired(it.session.messages()))
    told, run = it.prompt("next")
    assert run.stop == "end", run.error
    assert valid(it.requests[-1].messages)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


# --- order -------------------------------------------------------------------------------------


def test_a_plain_answer_in_order():
    with Recorder(
        [{"text": ["a", "b"], "thinking": "t", "usage": {"input": 2, "output": 1}}]
    ) as it:
        told, run = it.prompt("hi")
        assert kinds(told) == [
            *("UserMessage", "TurnStart", "AssistantStart", "ReasoningDelta", "TextDelta"),
            *("TextDelta", "UsageReport", "AssistantMessage", "TurnEnd", "Done"),
        ]
        assert last_turn_end(told).stop == "end"
        assert run.stop == "end"
        message = it.session.messages()[-1]
        assert message.origin.stop == "end"
        assert message.origin.usage.total == 3


def test_tools_run_in_call_order_after_the_turn_has_ended():
    turn = calls({"name": "a", "id": "1"}, {"name": "b", "id": "2"}, text="x")
    with Recorder([turn, OK], tools=[echo("b"), echo("a")]) as it:
        told, _ = it.prompt()
        assert kinds(told)[7:] == [
            *("ToolCallStart", "ToolCallArgs", "ToolCallEnd", "UsageReport", "AssistantMessage"),
            *("ToolCalled", "ToolCalled", "TurnEnd"),
            *("ToolStarted", "ToolAllowed", "ToolReturned"),
            *("ToolStarted", "ToolAllowed", "ToolReturned"),
            *("TurnStart", "AssistantStart", "TextDelta", "UsageReport", "AssistantMessage"),
            *("TurnEnd", "Done"),
        ]
        assert [event.call.id for event in of(told, events.ToolReturned)] == ["1", "2"]
        assert [spec.name for spec in it.requests[0].tools] == ["a", "b"]
        usable(it)


def test_of_two_tools_with_one_name_the_first_wins():
    first, second = SmallTool("t", lambda *_: "first"), SmallTool("t", lambda *_: "second")
    with Recorder([calls("t"), OK], tools=[first, second]) as it:
        assert results_of(it.prompt()[0]) == [(False, "first")]


# --- tools that go wrong -----------------------------------------------------------------------


def test_an_unknown_tool_is_a_result_that_names_the_known_ones():
    with Recorder([calls("reed"), OK], tools=[echo("read")]) as it:
        ((failed, text),) = results_of(it.prompt()[0])
        assert failed
        assert "unknown tool 'reed'" in text
        assert "read" in text
        usable(it)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"args": {"n": "x"}}, "'n' must be of type integer"),
        ({"args": {}}, "'n' is missing"),
        ({"args": {"n": 1, "m": 2}}, "'m' is not an argument"),
        ({"raw_args": '{"n": 1'}, "not a JSON object"),
        ({"raw_args": "[1]"}, "not a JSON object"),
        ({"raw_args": ""}, "not a JSON object"),
    ],
)
def test_bad_arguments_never_reach_the_tool(fields, words):
    tool = echo("t", NUMBER)
    with Recorder([calls({"name": "t", **fields}), OK], tools=[tool]) as it:
        ((failed, text),) = results_of(it.prompt()[0])
        assert failed
        assert words in text
        assert tool.calls == []
        usable(it)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("no such file"), "no such file"),
        (ValueError("oops"), "the tool crashed: ValueError: oops"),
        (SystemExit(3), "the tool crashed: SystemExit: 3"),
        (KeyboardInterrupt(), "the tool crashed: KeyboardInterrupt"),
        (MemoryError(), "the tool crashed: MemoryError"),
        (RecursionError("deep"), "the tool crashed: RecursionError"),
    ],
)
def test_a_tool_that_raises_fails_alone(error, words, capsys):
    def run(args, context):
        raise error

    with Recorder([calls("bad", "good"), OK], tools=[SmallTool("bad", run), echo("good")]) as it:
        told, run_ = it.prompt()
        (failed, text), (good, _) = results_of(told)
        assert failed
        assert words in text
        assert not good
        assert run_.stop == "end"
        usable(it)
    assert ("Traceback" in capsys.readouterr().err) == (not isinstance(error, ToolError))


def test_what_a_tool_gives_back_is_told_as_it_is():
    picture = Image("image/png", b"x")
    shown = ToolOutput((Text("t"), picture), is_error=True, details={"exit": 1})
    empty = SmallTool("empty", lambda *_: ToolOutput(()))
    tools = [SmallTool("full", lambda *_: shown), empty]
    with Recorder([calls("full", "empty"), OK], tools=tools) as it:
        first, second = (event.result for event in of(it.prompt()[0], events.ToolReturned))
        assert first.content == (Text("t"), picture)
        assert first.is_error
        assert first.details == {"exit": 1}
        assert second.content == (Text("(no output)"),)


def test_progress_is_told_while_the_tool_runs_and_not_after_an_abort():
    released = threading.Event()

    def run(args, context):
        context.progress("one")
        context.progress("")
        context.cancel.wait(PATIENCE)
        context.progress("late")
        released.set()
        return "x"

    with Recorder([calls("t"), OK], tools=[SmallTool("t", run)]) as it:
        run_ = it.runtime.prompt("go")
        it.wait_for(events.ToolProgress)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert [event.text for event in of(it.events, events.ToolProgress)] == ["one"]
        assert released.is_set()


# --- abort -------------------------------------------------------------------------------------


def test_an_abort_before_the_run_starts_still_ends_it():
    with Recorder([OK]) as it:
        blocker = threading.Event()
        it.block_on = blocker
        first = it.runtime.prompt("one", tag="one")
        second = it.runtime.prompt("two", tag="two")
        assert it.runtime.runs.tags() == ["one", "two"]
        assert it.runtime.abort("two")
        assert not it.runtime.abort("three")
        blocker.set()
        assert second.ended.wait(PATIENCE)
        assert (first.stop, second.stop) == ("end", "aborted")
        mine = [event for event, run in zip(it.events, it.runs, strict=True) if run is second]
        assert kinds(mine) == ["TurnEnd", "Done"]
        usable(it)


def test_abort_of_a_batch_gives_every_call_a_result_and_runs_no_other():
    def run(args, context):
        context.cancel.sleep(PATIENCE)
        return "x"

    later = echo("later")
    with Recorder([calls("wait", "later"), OK], tools=[SmallTool("wait", run), later]) as it:
        run_ = it.runtime.prompt("go")
        it.wait_for(events.ToolStarted)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert results_of(it.events) == [(True, "aborted"), (True, "not run: the turn was aborted")]
        assert later.calls == []
        assert kinds(it.events)[-2:] == ["TurnEnd", "Done"]
        assert last_turn_end(it.events).stop == "aborted"
        usable(it)


def test_a_tool_that_ignores_the_abort_is_given_up_and_its_late_output_dropped(monkeypatch):
    monkeypatch.setattr(run_module, "ABORT_GRACE", 0.05)
    started, release, finished = threading.Event(), threading.Event(), threading.Event()

    def stubborn(args, context):
        started.set()
        release.wait(PATIENCE)
        try:
            context.progress("late")
            return "too slow"
        finally:
            finished.set()

    tools = [echo("quick"), SmallTool("stubborn", stubborn), echo("later")]
    with Recorder([calls("quick", "stubborn", "later"), OK], tools=tools) as it:
        run_ = it.runtime.prompt("go")
        assert started.wait(PATIENCE)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert run_.stop == "aborted"
        told = len(it.events)
        assert kinds(it.events)[-2:] == ["TurnEnd", "Done"]
        release.set()
        assert finished.wait(PATIENCE)
        usable(it)
        assert "too slow" not in str(it.session.messages())
        assert kinds(it.events[told:])[0] == "UserMessage"
        # What the first tool of the batch gave was kept.
        assert "quick:{}" in str(it.requests[-1].messages)
        assert run_.stop == "aborted"


def test_an_abort_in_the_stream_keeps_the_text_and_drops_the_calls():
    turn = {"text": ["a", "b"] * 200, "delay_ms": 5, "tools": [{"name": "t"}]}
    with Recorder([turn, OK]) as it:
        run_ = it.runtime.prompt("go")
        it.wait_for(events.TextDelta, 2)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert kinds(it.events)[-3:] == ["AssistantMessage", "TurnEnd", "Done"]
        message = it.session.messages()[-1]
        assert message.content == (Text(said(it.events)),)
        assert message.origin.stop == "aborted"
        usable(it)


def test_the_time_of_a_tool_is_its_own_and_not_the_guards(monkeypatch):
    clock = [0.0]
    fake = SimpleNamespace(monotonic=lambda: clock[0], time=lambda: 0.0)
    monkeypatch.setattr(toolbox, "time", fake)

    class TakesLong(Hook):
        def before_tool(self, call, context):
            clock[0] += 100
            return ALLOW

    def work(args, context):
        clock[0] += 3
        return "done"

    with Recorder([calls("t"), OK], tools=[SmallTool("t", work)], hooks=[TakesLong()]) as it:
        (returned,) = of(it.prompt()[0], events.ToolReturned)
        assert returned.seconds == 3


def test_an_abort_in_a_guard_that_asks_runs_no_tool():
    asked = threading.Event()

    class Asks(Hook):
        def before_tool(self, call, context):
            asked.set()
            context.cancel.wait(PATIENCE)
            return ALLOW

    tool = echo("t")
    with Recorder([calls("t"), OK], tools=[tool], hooks=[Asks()]) as it:
        run_ = it.runtime.prompt("go")
        assert asked.wait(PATIENCE)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert tool.calls == []
        assert last_turn_end(it.events).stop == "aborted"


def test_abort_when_nothing_runs_is_no_news():
    with Recorder([OK]) as it:
        assert it.runtime.abort() is False
        assert it.events == []


# --- provider faults ---------------------------------------------------------------------------

FAULTS = {
    "400": {"error": {"status": 400}},
    "401": {"error": {"status": 401}},
    "404": {"error": {"status": 404}},
    "no class": {"error": {"message": "odd"}},
    "after text": {"text": "partial", "error": {"status": 500}},
    "cut at once": {"text": "abc", "cut_after": 0},
    "cut in the text": {"text": ["abc", "def"], "cut_after": 1},
    "cut in a call": {"text": "abc", "tools": [{"name": "t"}], "cut_after": 1},
    "cut after a call": {"tools": [{"name": "t", "args": {"a": "b" * 200}}], "cut_after": 5},
    "thinking only, then cut": {"thinking": ["hm", "so"], "cut_after": 1},
}


@pytest.mark.parametrize("turn", FAULTS.values(), ids=FAULTS)
def test_every_fault_ends_in_one_done_and_a_usable_transcript(turn):
    tool = echo("t")
    with Recorder([{**turn, "match": "fault", "repeat": True}, OK], tools=[tool]) as it:
        told, run_ = it.prompt("fault")
        assert run_.stop == "error"
        assert kinds(told)[-3:] == ["TurnEnd", "ErrorRaised", "Done"]
        ends = of(told, events.TurnEnd)
        retries = of(told, events.Retrying)
        assert len(ends) == 1 + sum(retry.dropped for retry in retries)
        assert all(end.again for end in ends[:-1])
        assert last_turn_end(told).error == str(run_.error)
        assert tool.calls == []
        last = told[max(at for at, kind in enumerate(kinds(told)) if kind == "TurnStart") :]
        if said(last):
            assert it.session.messages()[-1].content == (Text(said(last)),)
            assert it.session.messages()[-1].origin.error
        assert len(it.session.messages()) <= 2
        usable(it)


def test_a_failure_that_passes_is_retried_and_told():
    busy = {"error": {"status": 503, "message": "busy"}}
    with Recorder([busy, busy, "fine"]) as it:
        told, run_ = it.prompt()
        assert run_.stop == "end"
        assert [event.attempt for event in of(told, events.Retrying)] == [1, 2]
        assert len(of(told, events.TurnStart)) == len(of(told, events.TurnEnd)) == 1
        assert len(it.requests) == 3


def test_an_abort_in_a_retry_pause_is_an_abort():
    busy = {"error": {"status": 503, "retry_after": 50}, "match": "go"}
    with Recorder([busy, OK]) as it:
        run_ = it.runtime.prompt("go")
        it.wait_for(events.Retrying)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert last_turn_end(it.events).stop == "aborted"
        usable(it)


def test_the_next_model_answers_when_one_fails_for_good():
    other = ScriptedProvider(["from the other"])
    priced = replace(MODEL, id="other", price=Price(1.0, 1.0))
    turns = [{"error": {"status": 400, "message": "gone"}}]
    with Recorder(turns, settings={"fallbacks": ((other, priced),)}) as it:
        told, run_ = it.prompt()
        assert said(told) == "from the other"
        (event,) = of(told, events.FellBack)
        assert (event.failed, event.model.id) == ("scripted", "other")
        assert it.session.messages()[-1].origin.model == "other"


class OddProvider:
    """Plays stream events as they are given, and raises exceptions among them."""

    name = "odd"

    def __init__(self, *streams):
        self._streams = list(streams)
        self.requests = []
        self.closed = 0

    def stream(self, request, cancel):
        self.requests.append(request)
        for event in self._streams.pop(0) if self._streams else fine():
            if isinstance(event, BaseException):
                raise event
            yield event

    def close(self):
        self.closed += 1


def fine(*content, stop="end"):
    return [Started(), TextDelta("ok"), Finished((Text("ok"), *content), stop, Usage(1, 1))]


def test_a_stream_without_an_end_is_an_error_and_its_text_is_kept():
    with Recorder([], provider=OddProvider([Started(), TextDelta("half")])) as it:
        told, run_ = it.prompt()
        assert run_.error.code == "bad_response"
        assert it.session.messages()[-1].content == (Text("half"),)
        usable(it)


@pytest.mark.parametrize("bug", [ValueError("bug"), SystemExit(1), KeyError("x")])
def test_a_bug_in_a_provider_is_an_error_of_this_run_only(bug, capsys):
    with Recorder([], provider=OddProvider([Started(), bug])) as it:
        told, run_ = it.prompt()
        assert run_.stop == "error"
        assert "internal error" in str(run_.error)
        assert kinds(told)[-3:] == ["TurnEnd", "ErrorRaised", "Done"]
        usable(it)
    assert "Traceback" in capsys.readouterr().err


def test_what_an_aborted_or_cut_call_used_is_counted():
    cut = [Started(), UsageSeen(Usage(100, 3)), TextDelta("x"), BadResponse("cut")]
    price = replace(MODEL, price=Price(1.0, 1.0))
    with Recorder([], provider=OddProvider(cut), model=price) as it:
        told, _ = it.prompt()
        (report,) = of(told, events.UsageReport)
        assert report.usage.total == 103
        assert report.cumulative.cost.total == pytest.approx(103e-6)
        assert it.runtime.state().usage == report.cumulative


def test_each_attempt_that_was_cut_is_counted_in_its_own_void_turn():
    cut = [Started(), UsageSeen(Usage(100, 3)), TextDelta("x"), NetworkError("cut")]
    silent = [Started(), UsageSeen(Usage(10, 0)), NetworkError("cut")]
    nothing = [Started(), NetworkError("cut")]
    whole = fine()
    with Recorder([], provider=OddProvider(cut, silent, nothing, whole)) as it:
        told, run_ = it.prompt()
        assert run_.stop == "end"
        totals = [report.usage.total for report in of(told, events.UsageReport)]
        assert totals[:2] == [103, 10]
        assert [retry.dropped for retry in of(told, events.Retrying)] == [True, True, False]
        assert [end.again for end in of(told, events.TurnEnd)] == [True, True, False]
        assert [start.step for start in of(told, events.TurnStart)] == [1, 1, 1]
        assert [len(m.content) for m in it.session.messages()] == [1, 1]


def test_another_model_begins_anew_after_a_cut():
    cut = {"text": ["half", "x"], "cut_after": 1, "repeat": True}
    other = ScriptedProvider(["whole"])
    fallbacks = ((other, replace(MODEL, id="other")),)
    with Recorder([cut], settings={"fallbacks": fallbacks}) as it:
        told, run_ = it.prompt()
        assert run_.stop == "end"
        assert len(it.requests) == 4
        assert [end.again for end in of(told, events.TurnEnd)] == [True] * 4 + [False]
        assert it.session.messages()[-1].content == (Text("whole"),)
        assert it.session.messages()[-1].origin.model == "other"


def test_guards_are_asked_before_each_attempt_that_may_cost():
    class Counting(Hook):
        steps = []

        def before_turn(self, step, context):
            self.steps.append(step)
            return Block("enough") if len(self.steps) > 2 else ALLOW

    cut = {"text": ["half", "x"], "cut_after": 1, "repeat": True}
    with Recorder([cut], hooks=[Counting()]) as it:
        _, run_ = it.prompt()
        assert run_.error.code == "blocked"
        assert Counting.steps == [1, 1, 1]


def test_calls_with_the_wrong_stop_word_still_run():
    wanted = ToolCall("1", "t", {})
    with Recorder([], provider=OddProvider(fine(wanted, stop="end")), tools=[echo("t")]) as it:
        told, _ = it.prompt()
        assert [event.stop for event in of(told, events.TurnEnd)] == ["tool_use", "end"]
        assert results_of(told) == [(False, "t:{}")]


def test_a_tool_turn_without_calls_is_an_end():
    with Recorder([], provider=OddProvider(fine(stop="tool_use"))) as it:
        told, run_ = it.prompt()
        assert last_turn_end(told).stop == "end"
        assert run_.stop == "end"


def test_calls_of_an_answer_cut_at_its_length_do_not_run():
    tool = echo("t")
    with Recorder([calls("t", text="long", stop="length"), OK], tools=[tool]) as it:
        told, run_ = it.prompt()
        assert last_turn_end(told).stop == "length"
        assert of(told, events.ToolCalled) == []
        assert tool.calls == []
        assert it.session.messages()[-1].content == (Text("long"),)
        usable(it)


def test_an_empty_answer_leaves_no_empty_message():
    with Recorder([{"text": ""}, OK]) as it:
        told, run_ = it.prompt()
        assert run_.stop == "end"
        assert len(it.session.messages()) == 1
        usable(it)


def test_calls_that_share_an_id_do_not_poison_the_transcript():
    same = [{"name": "t", "id": "x"}, {"name": "t", "id": "x"}]
    with Recorder([{"tools": same}, {"tools": same}, OK], tools=[echo("t")]) as it:
        assert it.prompt()[1].stop == "end"
        assert all(valid(request.messages) for request in it.requests)
        usable(it)


# --- steering and follow-ups -------------------------------------------------------------------


def test_steering_skips_the_rest_of_the_batch():
    entered, go = threading.Event(), threading.Event()

    def wait(args, context):
        entered.set()
        go.wait(PATIENCE)
        return "x"

    later = echo("later")
    turns = [calls("wait", "later"), {"match": "left", "text": "turned"}]
    with Recorder(turns, tools=[SmallTool("wait", wait), later]) as it:
        run_ = it.runtime.prompt("go")
        assert entered.wait(PATIENCE)
        assert it.runtime.steer("left") is True
        go.set()
        assert run_.ended.wait(PATIENCE)
        assert said(it.events) == "turned"
        assert later.calls == []
        assert results_of(it.events)[1] == (True, "not run: the user sent a message first")
        updates = of(it.events, events.QueueUpdate)
        assert [update.steering for update in updates] == [("left",), ()]


def test_follow_ups_come_one_by_one_or_all_at_once():
    for all_at_once in (True, False):
        gate = threading.Event()
        turns = [calls("wait"), {"text": "ok", "repeat": True}]
        wait = SmallTool("wait", lambda *_, gate=gate: str(gate.wait(PATIENCE)))
        with Recorder(turns, tools=[wait]) as it:
            it.runtime.queue.deliver("follow_up", one_at_a_time=not all_at_once)
            run_ = it.runtime.prompt("go")
            it.wait_for(events.ToolStarted)
            it.runtime.follow("one")
            it.runtime.follow("two")
            gate.set()
            assert run_.ended.wait(PATIENCE)
            assert len(of(it.events, events.UserMessage)) == 3
            assert len(of(it.events, events.TurnStart)) == (3 if all_at_once else 4)


def test_a_message_for_nobody_is_refused_or_kept():
    with Recorder([OK]) as it:
        assert it.runtime.steer("x") is False
        assert it.runtime.follow("y") is False
        assert it.runtime.queue.clear() == ([], [])
        assert it.runtime.steer("kept", keep=True) is False
        told, _ = it.prompt("go")
        texts = [event.message.content[0].text for event in of(told, events.UserMessage)]
        assert texts == ["go", "kept"]
        with pytest.raises(CommandError, match="empty"):
            it.runtime.steer("  ")


def test_the_queue_of_messages_is_bounded():
    with Recorder([OK]) as it:
        for _ in range(runs_module.MAX_QUEUE):
            it.runtime.steer("x", keep=True)
        with pytest.raises(CommandError, match="queue_full"):
            it.runtime.steer("x", keep=True)
        steering, follow_up = it.runtime.queue.clear()
        assert (len(steering), follow_up) == (runs_module.MAX_QUEUE, [])


def test_no_message_is_lost_when_it_comes_as_the_run_ends():
    with Recorder([OK]) as it:
        heard = 0
        for number in range(200):
            run_ = it.runtime.prompt("p")
            if it.runtime.steer(f"s{number}"):
                heard += 1
            assert run_.ended.wait(PATIENCE)
        texts = [event.message.content[0].text for event in of(it.events, events.UserMessage)]
        assert sum(text.startswith("s") for text in texts) == heard
        assert it.runtime.queue.clear() == ([], [])


# --- limits ------------------------------------------------------------------------------------


def looping(**usage):
    return [{"tools": [{"name": "t"}], "usage": usage, "repeat": True}]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(max_steps=3), "max steps (3) exceeded"),
        (Limits(max_tokens=1000), "max tokens (1000) would be exceeded"),
        (Limits(max_cost=0.001), "max cost (0.001 USD) would be exceeded"),
        (Limits(max_seconds=0.0001), "max seconds (0.0001) exceeded"),
    ],
)
def test_a_limit_ends_the_run_with_an_error_between_turns(limits, words):
    priced = replace(MODEL, price=Price(1.0, 1.0))
    with Recorder(looping(input=300, output=10), model=priced, tools=[echo("t")]) as it:
        told, run_ = it.prompt(limits=limits)
        assert run_.error.code == "limit"
        assert words in str(run_.error)
        assert kinds(told)[-2:] == ["ErrorRaised", "Done"]
        assert len(of(told, events.TurnStart)) == len(of(told, events.TurnEnd))
        assert valid(repaired(it.session.messages()))
    if limits.max_steps:
        assert len(of(told, events.TurnStart)) == 3


@pytest.mark.parametrize("usage", [{"output": -3_000_000_000}, {"output": 10**310}])
def test_no_usage_switches_the_cost_limit_off(usage):
    priced = replace(MODEL, price=Price(1.0, 1.0))
    answers = [{**looping(**usage)[0], "repeat": False}, *looping(input=300, output=10)]
    with Recorder(answers, model=priced, tools=[echo("t")]) as it:
        _, run_ = it.prompt(limits=Limits(max_cost=0.001, max_steps=50))
        assert "max cost (0.001 USD) would be exceeded" in str(run_.error)


def test_a_summary_counts_against_the_cost_limit_before_the_answer_after_it():
    first = {**looping()[0], "repeat": False}
    full = {**first, "usage": {"input": 900, "output": 40}}
    answers = [first, full, {"text": "sum", "usage": {"input": 900, "output": 90}}, *looping()]
    priced = replace(MODEL, price=Price(1.0, 1.0), context_window=1_000, max_output=100)
    settings = {"compact_at": 0.5, "keep": Keep(messages=1)}
    with Recorder(answers, model=priced, tools=[echo("t")], settings=settings) as it:
        told, run_ = it.prompt(limits=Limits(max_cost=0.00193))
        assert run_.error.limit == "cost"
        assert len(of(told, events.CompactDone)) == 1
        assert len(it.requests) == 3


def test_agents_at_the_same_time_exceed_the_cost_limit_by_one_call_at_most():
    model = replace(MODEL, price=Price(1.0, 1.0), max_output=100)
    reservations, first, second = Reservations(), object(), object()
    used = [0.0]

    def hold(who):
        reservations.hold(who, 0.000250, lambda: Spent(0, 0, used[0], 100), model, Cancel())

    hold(first)
    waiting = threading.Thread(target=hold, args=(second,))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()  # 200 + 100 would be too much
    used[0] = 0.000120
    reservations.release(first)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    used[0] = 0.000160
    reservations.release(second)
    with pytest.raises(LimitError, match="max cost"):
        hold(first)


@pytest.mark.parametrize("waits_in", ["the stream", "a tool"])
def test_the_time_limit_ends_what_the_run_waits_for(waits_in):
    waits = SmallTool("t", lambda args, context: context.cancel.sleep(60))
    slow = {"text": ["x"] * 6000, "delay_ms": 10} if waits_in == "the stream" else looping()[0]
    with Recorder([slow], tools=[waits]) as it:
        told, run_ = it.prompt(limits=Limits(max_seconds=0.3))
        assert (run_.error.code, str(run_.error)) == ("limit", "max seconds (0.3) exceeded")
        assert kinds(told)[-2:] == ["ErrorRaised", "Done"]
        assert len(of(told, events.TurnStart)) == len(of(told, events.TurnEnd)) == 1
        assert valid(repaired(it.session.messages()))
    for thread in threading.enumerate():
        if thread.name == "zot-deadline":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_an_abort_before_the_time_limit_is_an_abort():
    with Recorder([{"text": ["x"] * 6000, "delay_ms": 10}]) as it:
        run_ = it.runtime.prompt("go", limits=Limits(max_seconds=60))
        it.wait_for(events.TextDelta)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert (run_.error, run_.stop) == (None, "aborted")


def test_a_cost_limit_needs_a_price():
    unknown = replace(MODEL, price=None)
    with Recorder([OK], model=unknown, settings={"limits": Limits(max_cost=1.0)}) as it:
        told, run_ = it.prompt()
        assert "price of 'scripted' is not known" in str(run_.error)
        assert it.requests == []


def test_an_unknown_price_is_said_in_every_report():
    unknown = replace(MODEL, price=None)
    with Recorder([{"text": "x", "usage": {"input": 5}}], model=unknown) as it:
        told, _ = it.prompt()
        (report,) = of(told, events.UsageReport)
        assert (report.usage.cost_known, report.cumulative.cost_known) == (False, False)
        assert report.usage.cost.total == 0


# --- guards ------------------------------------------------------------------------------------


class Guard(Hook):
    def __init__(self, **verdicts):
        self.verdicts = verdicts
        self.asked = []

    def _answer(self, name, value):
        self.asked.append((name, value))
        verdict = self.verdicts.get(name, ALLOW)
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    def before_start(self, system, context):
        return self._answer("start", system)

    def before_turn(self, step, context):
        return self._answer("turn", step)

    def before_tool(self, call, context):
        return self._answer("tool", call.args)

    def before_reply(self, message, context):
        return self._answer("reply", message.content)


BROKEN = RuntimeError("broken")


def test_a_guard_that_allows_changes_nothing():
    with Recorder([calls("t"), OK], tools=[echo("t")], hooks=[Hook()]) as it:
        assert it.prompt()[1].stop == "end"


def test_a_guard_that_was_given_one_word_is_asked_for_it():
    """And one that has nothing to say for now is not."""
    given, idle = Hook(), Guard(turn=Block("never"), reply=Block("never"))
    given.before_turn = lambda step, context: Block("given")
    idle.idle = True
    with Recorder([OK], hooks=[idle, given]) as it:
        assert last_turn_end(it.prompt()[0]).error == "given"
        assert idle.asked == []
    with Recorder([OK], hooks=[idle]) as it:
        assert it.prompt()[1].stop == "end"
        idle.idle = False
        assert last_turn_end(it.prompt()[0]).error == "never"


@pytest.mark.parametrize("verdict", [Block("not now"), BROKEN])
def test_a_blocked_turn_ends_with_its_reason(verdict, capsys):
    with Recorder([OK], hooks=[Guard(turn=verdict)]) as it:
        told, run_ = it.prompt()
        assert kinds(told) == ["UserMessage", "TurnStart", "TurnEnd", "ErrorRaised", "Done"]
        assert run_.error.code == "blocked"
        words = "a guard failed: RuntimeError: broken" if verdict is BROKEN else "not now"
        assert last_turn_end(told).error == words
        assert it.requests == []
    assert ("Traceback" in capsys.readouterr().err) == (verdict is BROKEN)


@pytest.mark.parametrize("verdict", [Block("never"), BROKEN, Block("")])
def test_a_blocked_start_asks_no_model(verdict, capsys):
    with Recorder([OK], hooks=[Guard(start=verdict)]) as it:
        told, run_ = it.prompt()
        assert run_.error.code == "blocked"
        assert it.requests == []


@pytest.mark.parametrize("verdict", [Block("not this"), BROKEN, Block("")])
def test_a_blocked_tool_does_not_run_and_the_model_hears_why(verdict, capsys):
    tool = echo("t")
    hooks = [Guard(tool=verdict), Guard(tool=ALLOW)]
    with Recorder([calls("t"), OK], tools=[tool], hooks=hooks) as it:
        told, run_ = it.prompt()
        ((failed, text),) = results_of(told)
        assert failed
        assert text in ("not this", "a guard failed: RuntimeError: broken") or "refused" in text
        assert tool.calls == []
        assert run_.stop == "end"
        assert ("tool", {}) not in hooks[1].asked
        usable(it)


def test_replaced_arguments_are_seen_by_the_next_guard_and_checked_again():
    tool = echo("t", NUMBER)
    second = Guard()
    hooks = [Guard(tool=ReplaceArgs({"n": 7})), second]
    turn = calls({"name": "t", "args": {"n": 1}})
    with Recorder([turn, OK], tools=[tool], hooks=hooks) as it:
        told, _ = it.prompt()
        assert tool.calls == [{"n": 7}]
        assert ("tool", {"n": 7}) in second.asked
        assert of(told, events.ToolCalled)[0].call.args == {"n": 1}
    with Recorder([turn, OK], tools=[tool], hooks=[Guard(tool=ReplaceArgs({"n": "x"}))]) as it:
        ((failed, text),) = results_of(it.prompt()[0])
        assert failed
        assert "'n' must be of type integer" in text


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (ReplaceText("better"), "better"),
        (Block("rude"), "[reply withheld: rude]"),
        (BROKEN, "[reply withheld: a guard failed: RuntimeError: broken]"),
    ],
)
def test_a_reply_can_be_replaced_before_it_is_kept(verdict, text, capsys):
    with Recorder([{"text": "raw"}, OK], hooks=[Guard(reply=verdict)]) as it:
        told, _ = it.prompt()
        assert said(told) == "raw"
        assert of(told, events.AssistantMessage)[0].message.content == (Text(text),)
        assert it.session.messages()[-1].content == (Text(text),)


def test_the_system_prompt_is_made_once_a_conversation_and_guards_may_replace_it():
    made = []

    def system():
        made.append(1)
        return "base"

    guard = Guard(start=ReplaceText("mine"))
    with Recorder([calls("t"), OK], tools=[echo("t")], hooks=[guard], system=system) as it:
        it.prompt()
        it.prompt()
        assert len(made) == 1
        assert {request.system for request in it.requests} == {"mine"}
        it.runtime.sessions.clear()
        it.prompt()
        assert len(made) == 2


# --- the disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", range(1, 8))
def test_a_full_disk_at_any_moment_ends_the_run_with_an_error(moment):
    usage = {"input": 1, "output": 1}
    turns = [
        calls("t", "t", text="x", usage=usage),
        {"text": "ok", "usage": usage, "repeat": True},
    ]
    with Recorder(turns, tools=[echo("t")], store=FullDisk(moment)) as it:
        told, run_ = it.prompt()
        assert run_.error.code == "session"
        assert kinds(told)[-2:] == ["ErrorRaised", "Done"]
        assert len(of(told, events.TurnStart)) == len(of(told, events.TurnEnd))
        assert len(of(told, events.Done)) == 1
        usable(it)


def test_a_disk_that_cannot_sync_is_an_error_of_the_run():
    with Recorder([OK], store=FullDisk(sync_fails=True)) as it:
        told, run_ = it.prompt()
        assert run_.error.code == "session"
        assert kinds(told)[-2:] == ["ErrorRaised", "Done"]


def test_a_store_with_a_bug_cannot_keep_a_run_from_its_end(capsys):
    store = FullDisk()
    with Recorder([OK], store=store) as it:
        it.prompt()
        store.sync = lambda: 1 / 0
        told, run_ = it.prompt()
        assert run_.stop == "error"
        assert kinds(told)[-1] == "Done"
        store.sync = lambda: None
        assert it.prompt()[1].stop == "end"


# --- the runtime -------------------------------------------------------------------------------


def test_state_is_busy_exactly_until_done():
    seen = []

    def look(event, run):
        if isinstance(event, events.TurnEnd):
            seen.append(it.runtime.runs.busy)

    with Recorder([OK], listeners=[look]) as it:
        it.prompt()
        assert seen == [True]
        assert it.runtime.runs.busy is False
        state = it.runtime.state()
        assert (state.busy, state.queued, state.message_count) == (False, 0, 2)
        assert state.cwd == "/work"


def test_a_listener_may_ask_for_the_state_and_may_fail(capsys):
    states = []

    def nosy(event, run):
        states.append(it.runtime.state())

    def broken(event, run):
        raise ValueError("broken listener")

    with Recorder([OK], listeners=[broken, nosy]) as it:
        for _ in range(20):
            assert it.prompt()[1].stop == "end"
        assert states[-1].message_count == 40
    assert "broken listener" in capsys.readouterr().err


def test_what_changes_the_agent_needs_it_idle():
    gate = threading.Event()
    tool = SmallTool("t", lambda *_: str(gate.wait(PATIENCE)))
    with Recorder([calls("t"), OK], tools=[tool]) as it:
        run_ = it.runtime.prompt("go")
        it.wait_for(events.ToolStarted)
        for change in (
            it.runtime.sessions.clear,
            lambda: it.runtime.models.set("scripted"),
            lambda: it.runtime.models.set_reasoning("low"),
            lambda: it.runtime.sessions.set_messages(()),
        ):
            with pytest.raises(BusyError, match="agent is busy"):
                change()
        gate.set()
        assert run_.ended.wait(PATIENCE)
        it.runtime.models.set_reasoning("low")
        assert it.runtime.state().reasoning == "low"
        it.runtime.sessions.set_messages(it.session.messages()[:1])
        assert it.runtime.state().message_count == 1
        assert it.runtime.models.set("scripted").id == "scripted"
        it.runtime.sessions.clear()
        assert it.runtime.state().message_count == 0
        usable(it)


def test_another_models_client_is_let_go():
    other = OddProvider()
    with Recorder([], provider=OddProvider()) as it:
        before = it.agent.provider
        it.models.provider = other
        it.models.model = replace(MODEL, id="other")
        it.runtime.models.set("other")
        assert before.closed == 1
        assert it.agent.provider is other


def test_a_closed_runtime_takes_nothing_more():
    it = Recorder([OK])
    assert it.runtime.close()
    with pytest.raises(ClosedError):
        it.runtime.prompt("x")
    it.runtime.release()
    it = Recorder([{"text": "a", "delay_ms": 20, "repeat": True}])
    runs = [it.runtime.prompt("x") for _ in range(5)]
    assert it.runtime.close(drain=True, timeout=PATIENCE)
    assert [run_.stop for run_ in runs] == ["end"] * 5
    it = Recorder([{"text": ["a"] * 500, "delay_ms": 20, "repeat": True}])
    runs = [it.runtime.prompt("x") for _ in range(5)]
    assert it.runtime.close(timeout=PATIENCE)
    assert [run_.stop for run_ in runs] == ["aborted"] * 5
    assert len(of(it.events, events.Done)) == 5


def test_a_system_without_threads_refuses_the_first_prompt_or_needs_none(monkeypatch):
    def cannot(self):
        raise RuntimeError("can't start new thread")

    long = {"match": "long", "text": ["x"] * 6000, "delay_ms": 10}
    with Recorder([long, OK]) as it:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", cannot)
            with pytest.raises(CommandError, match="no thread can be started"):
                it.runtime.prompt("x")
        assert it.prompt()[1].stop == "end"
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", cannot)
            assert it.prompt()[1].stop == "end"
            run_ = it.runtime.prompt("long")
            it.wait_for(events.TextDelta)
            it.runtime.abort()
            assert run_.ended.wait(PATIENCE)
        assert run_.stop == "aborted"


def test_deep_and_large_arguments_do_no_harm():
    deep = "x"
    for _ in range(150):
        deep = {"d": deep}
    turns = [calls({"name": "t", "args": {"deep": deep, "n": 10**30}}), OK]
    with Recorder(turns, tools=[echo("t")]) as it:
        assert it.prompt()[1].stop == "end"
        usable(it)


def test_one_large_delta_becomes_several():
    with Recorder(["x" * 600_000]) as it:
        told, _ = it.prompt()
        assert [len(event.text) for event in of(told, events.TextDelta)] == [262144, 262144, 75712]


def test_the_tests_leave_no_thread_behind():
    names = [t.name for t in threading.enumerate() if t.name.startswith("zot-")]
    assert names == [], sys._current_frames()


def test_a_failed_provider_error_is_a_provider_error():
    with Recorder([{"error": {"message": "odd"}}]) as it:
        _, run_ = it.prompt()
        assert isinstance(run_.error, ProviderError)


def test_a_compaction_can_be_aborted_and_leaves_everything_as_it_was():
    slow = {"match": "<conversation>", "text": ["s"] * 500, "delay_ms": 10}
    with Recorder([slow, OK]) as it:
        for _ in range(4):
            it.prompt()
        before = it.session.messages()
        run_ = it.runtime.compact()
        it.wait_for(events.CompactStart)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert kinds(it.events)[-3:] == ["CompactFailed", "TurnEnd", "Done"]
        assert of(it.events, events.CompactFailed)[0].aborted
        assert it.session.messages() == before
        usable(it)


def test_a_compaction_whose_summary_has_no_end_is_an_error():
    with Recorder([], provider=OddProvider(*[fine()] * 4, [Started(), TextDelta("s")])) as it:
        for _ in range(4):
            it.prompt()
        told, run_ = it.compact()
        assert "ended without an end" in str(run_.error)
        assert kinds(told)[-2:] == ["ErrorRaised", "Done"]
        usable(it)


def test_counts_are_taken_up_from_a_session_that_was_read_back():
    with Recorder([{"text": "x", "usage": {"input": 5, "output": 2}}]) as it:
        it.prompt()
        entries = it.session.entries.values()
    again = Recorder([OK], session=Session(entries=entries))
    again.agent.resume()
    assert again.agent.cumulative.total == 7
    assert again.agent.context_tokens > 0
    with again:
        again.runtime.sessions.use(Session())
        assert again.agent.cumulative.total == 0
        assert again.runtime.state().message_count == 0
        usable(again)


def test_tools_can_be_exchanged_between_runs():
    with Recorder([calls("b"), OK], tools=[echo("a")]) as it:
        it.agent.set_tools([echo("b")])
        assert results_of(it.prompt()[0]) == [(False, "b:{}")]
        assert it.requests[0].tools[0].name == "b"


def test_an_empty_prompt_is_refused_before_anything_happens():
    with Recorder([OK]) as it:
        for text in ("", " \n"):
            with pytest.raises(CommandError, match="the prompt is empty"):
                it.runtime.prompt(text)
        assert it.events == []
        assert it.prompt("", images=[Image("image/png", PNG)])[1].stop == "end"


def test_the_queue_of_runs_is_bounded_by_number_and_by_size(monkeypatch):
    monkeypatch.setattr(runs_module, "MAX_QUEUE", 3)
    monkeypatch.setattr(runs_module, "MAX_QUEUE_SIZE", 1000)
    gate = threading.Event()
    tool = SmallTool("t", lambda *_: str(gate.wait(PATIENCE)))
    with Recorder([calls("t"), OK], tools=[tool]) as it:
        large = "x" * 5000
        it.runtime.prompt(large)  # the first one may be as large as it likes
        it.wait_for(events.ToolStarted)
        with pytest.raises(CommandError, match="queue_full"):
            it.runtime.prompt("small")
        gate.set()
        it.wait_for(events.Done)
        blocked = [it.runtime.prompt("x") for _ in range(3)]
        assert [run_.ended.wait(PATIENCE) for run_ in blocked] == [True] * 3


def test_late_emits_of_a_given_up_run_are_refused(monkeypatch):
    monkeypatch.setattr(run_module, "ABORT_GRACE", 0.05)
    release, seen = threading.Event(), []

    class Slow(Hook):
        def before_turn(self, step, context):
            if not seen:
                seen.append("entered")
                release.wait(PATIENCE)
                try:
                    context.emit(events.ExtensionNotify("e", "info", "late"))
                except BaseException as error:
                    seen.append(type(error).__name__)
                    raise
            return ALLOW

    with Recorder([OK], hooks=[Slow()]) as it:
        run_ = it.runtime.prompt("go")
        it.wait_for(events.TurnStart)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        release.set()
        usable(it)
        assert of(it.events, events.ExtensionNotify) == []
        for _ in range(1000):
            if len(seen) > 1:
                break
            threading.Event().wait(0.01)
        assert seen == ["entered", "Cancelled"]


def test_an_abort_at_a_random_moment_ends_in_one_done_and_a_usable_transcript():
    chance = random.Random(7)

    def work(args, context):
        for _ in range(5):
            context.progress("x")
            context.cancel.sleep(0.001)
        return "x"

    turn = {"text": ["a"] * 5, "delay_ms": 1, "tools": [{"name": "t"}, {"name": "t"}]}
    busy = {"match": "p", "error": {"status": 503, "message": "busy"}}
    turns = [t for _ in range(150) for t in ({**turn, "match": "p"}, busy)]
    stops = set()
    with Recorder([*turns, OK], tools=[SmallTool("t", work)]) as it:
        for number in range(60):
            start = len(it.events)
            run_ = it.runtime.prompt(f"p{number}")
            threading.Event().wait(chance.random() * 0.02)
            it.runtime.abort()
            assert run_.ended.wait(PATIENCE)
            told = it.events[start:]
            assert kinds(told).count("Done") == 1
            assert kinds(told)[-1] == "Done"
            assert len(of(told, events.TurnEnd)) >= len(of(told, events.TurnStart))
            called = [event.call.id for event in of(told, events.ToolCalled)]
            assert [event.call.id for event in of(told, events.ToolReturned)] == called
            assert valid(repaired(it.session.messages()))
            stops.add(run_.stop)
        assert "aborted" in stops
        usable(it)


def test_a_call_that_breaks_because_of_the_abort_was_aborted():
    class Breaks(OddProvider):
        def stream(self, request, cancel):
            self.requests.append(request)
            yield Started()
            if len(self.requests) == 1:
                yield TextDelta("half")
                cancel.wait(PATIENCE)
                raise NetworkError("the socket was shut down")
            yield from fine()[1:]

    with Recorder([], provider=Breaks()) as it:
        run_ = it.runtime.prompt("go")
        it.wait_for(events.TextDelta)
        it.runtime.abort()
        assert run_.ended.wait(PATIENCE)
        assert (run_.stop, run_.error) == ("aborted", None)
        assert last_turn_end(it.events).stop == "aborted"
        assert of(it.events, events.ErrorRaised) == []
        usable(it)
