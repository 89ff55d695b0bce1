import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.session import (
    FAST,
    Recorder,
    SmallTool,
    assistant,
    call,
    kinds,
    of,
    results,
    said,
    user,
    valid,
)

from zot.cancel import Cancel
from zot.core import events
from zot.core.compact import KEEP_MESSAGES, Compactor, serialised
from zot.core.cost import estimate
from zot.core.session import SUMMARY_HEADING, Session
from zot.errors import Cancelled, CommandError, ProviderError
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.repair import repaired
from zot.provider.scripted import ScriptedProvider
from zot.provider.types import Image, Message, Reasoning, Text, ToolCall, ToolResult

SUMMARY = {"match": "<conversation>", "text": "the summary", "usage": {"input": 5, "output": 1}}


def session_of(*messages):
    session = Session()
    for message in messages:
        session.append(message)
    return session


def compactor(*turns, model=MODEL):
    return Compactor(ScriptedProvider(turns), model, FAST)


def test_the_last_messages_are_kept():
    session = session_of(*(user(str(n)) for n in range(10)))
    plan = compactor().plan(session.context(), "manual")
    assert len(plan.old) == 10 - KEEP_MESSAGES
    assert session.entries[plan.first_kept].body.content[0].text == "6"
    assert plan.tokens == estimate(session.messages())


@pytest.mark.parametrize("count", range(KEEP_MESSAGES + 1))
def test_too_little_to_compact_is_refused(count):
    session = session_of(*(user(str(n)) for n in range(count)))
    with pytest.raises(CommandError, match="nothing to compact"):
        compactor().plan(session.context(), "manual")
    assert not compactor().can_shrink(session.context())


def test_large_messages_are_summarised_even_if_they_are_the_last():
    small = replace(MODEL, context_window=1000)
    session = session_of(user("a"), assistant("b"), user("c"), assistant("x" * 8000))
    plan = compactor(model=small).plan(session.context(), "overflow")
    assert len(plan.old) == 3
    result = Message("tool", (ToolResult("1", (Text("y" * 8000),)),), 3.0)
    session = session_of(user("a"), assistant("", call("1")), result)
    plan = compactor(model=small).plan(session.context(), "overflow")
    assert plan.first_kept is None
    assert len(plan.old) == 3


exchanges = st.lists(
    st.sampled_from(
        [
            (user("u"),),
            (assistant("a"),),
            (assistant("", call("1"), call("2")), results("1", "2")),
            (assistant("", call("1")), results("1"), results("2")),
            (results("9"),),
            (user("z" * 4000),),
            (assistant("", call("1")), Message("tool", (ToolResult("1", (Text("o" * 4000),)),), 1)),
        ]
    ),
    max_size=8,
)


@settings(max_examples=200)
@given(exchanges, st.sampled_from([1000, 8000, 200_000]))
def test_no_cut_ever_parts_a_call_from_its_result(groups, window):
    session = session_of(*(message for group in groups for message in group))
    made = compactor(model=replace(MODEL, context_window=window))
    context = session.context()
    try:
        plan = made.plan(context, "manual")
    except CommandError:
        return
    session.append(plan.entry("s", 0, None))
    kept = session.messages()[1:]
    assert len(kept) + len(plan.old) == len(context)
    assert not kept or kept[0].role != "tool"
    after = repaired(session.messages())
    assert valid(after)
    lost = [b for m in after for b in m.content if isinstance(b, ToolResult) and b.is_error]
    assert lost == []


def test_a_summary_is_asked_for_without_tools_and_its_cost_comes_with_it():
    made = compactor(SUMMARY)
    session = session_of(*(user(str(n)) for n in range(6)))
    plan = made.plan(session.context(), "manual")
    summary, usage = made.summarise(plan, "the tests", Cancel())
    assert summary == "the summary"
    assert usage.total == 6
    (request,) = made._calls._provider.requests
    assert request.tools == ()
    assert request.max_output == 4096
    (asked,) = request.messages
    assert "<conversation>\n\n--- user ---\n0\n" in asked.content[0].text
    assert "Above all: the tests" in asked.content[0].text


@pytest.mark.parametrize(
    "turn", [{"text": "  "}, {"error": {"status": 400}}, {"text": "", "tools": []}]
)
def test_no_summary_is_an_error(turn):
    made = compactor(turn)
    plan = made.plan(session_of(*(user(str(n)) for n in range(6))).context(), "manual")
    with pytest.raises(ProviderError):
        made.summarise(plan, "", Cancel())
    aborted = Cancel()
    aborted.set()
    with pytest.raises(Cancelled):
        made.summarise(plan, "", aborted)


def test_a_conversation_is_written_as_plain_text():
    text = serialised(
        [
            Message("user", (Text("hi"), Image("image/png", b"1234")), 1.0),
            Message("assistant", (Reasoning("secret", "x"), ToolCall("1", "ls", {"a": 1})), 2.0),
            Message("assistant", (ToolCall("2", "ls", None, "{bad"),), 2.0),
            Message("tool", (ToolResult("1", (Text("o" * 5000),)),), 3.0),
        ]
    )
    assert "[image: image/png, 4 bytes]" in text
    assert '[tool_call ls {"a":1}]' in text
    assert "[tool_call ls {bad]" in text
    assert "3000 characters left out" in text
    assert "secret" not in text


def test_what_the_summariser_sees_fits_its_window():
    tiny = replace(MODEL, context_window=2000)
    made = compactor(SUMMARY, model=tiny)
    plan = made.plan(session_of(*(user("w" * 20_000) for _ in range(6))).context(), "manual")
    made.summarise(plan, "", Cancel())
    asked = made._calls._provider.requests[0].messages[0].content[0].text
    assert len(asked) < 6000
    assert "[the beginning was left out]" in asked


def test_an_estimate_counts_every_kind_of_block():
    blocks = (
        Text("x" * 400),
        Image("image/png", b""),
        ToolCall("1", "t", {"a": "b" * 100}),
        ToolCall("2", "t", None, "r" * 100),
        ToolResult("1", (Text("y" * 400),)),
        Reasoning("z" * 400, "a"),
    )
    assert 1500 < estimate((Message("user", blocks, 1.0),)) < 1700
    assert estimate(()) == 0


# --- in a run ----------------------------------------------------------------------------------


def talk(recorder, count=4):
    for number in range(count):
        recorder.prompt(f"prompt {number}")


def test_compact_replaces_the_past_and_counts_what_it_cost():
    with Recorder([SUMMARY, {"text": "ok", "repeat": True}]) as it:
        talk(it)
        told, run = it.compact()
        assert kinds(told) == ["CompactStart", "UsageReport", "CompactDone", "Done"]
        assert run.stop == "end"
        done = of(told, events.CompactDone)[0]
        assert (done.summary, done.reason) == ("the summary", "manual")
        assert done.first_kept in it.session.entries
        assert it.session.messages()[0].content[0].text == SUMMARY_HEADING + "the summary"
        assert it.agent.cumulative.total == 6
        assert it.agent.context_tokens == estimate(it.session.messages())
        told, run = it.prompt("next")
        assert said(told) == "ok"


def test_a_failed_compaction_changes_nothing_and_ends():
    with Recorder(
        [{"match": "<conversation>", "error": {"status": 400}}, {"text": "ok", "repeat": True}]
    ) as it:
        talk(it)
        before = it.session.messages()
        told, run = it.compact()
        assert kinds(told) == ["CompactStart", "CompactFailed", "ErrorRaised", "Done"]
        assert run.stop == "error"
        assert it.session.messages() == before


def full():
    usage = {"input": 180_000, "output": 10}
    return [SUMMARY, {"text": "ok", "usage": usage, "repeat": True}]


def test_a_context_past_the_threshold_is_compacted_before_the_next_call():
    with Recorder(full()) as it:
        it.prompt("one")
        it.prompt("two")
        it.prompt("three")
        told, run = it.prompt("four")
        assert run.stop == "end"
        start = of(told, events.CompactStart)
        assert [event.reason for event in start] == ["threshold"]
        assert kinds(told).index("CompactDone") < kinds(told).index("TurnStart")


def test_automatic_compaction_can_be_turned_off():
    with Recorder(full(), settings={"compact_at": None}) as it:
        for _ in range(4):
            told, _ = it.prompt("x")
            assert "CompactStart" not in kinds(told)


def test_an_automatic_compaction_that_fails_is_told_and_not_tried_again_in_the_run():

    usage = {"input": 180_000, "output": 10}
    turns = [
        {"match": "<conversation>", "error": {"status": 400, "message": "no"}, "repeat": True},
        *({"match": "work", "tools": [{"name": "t"}], "usage": usage} for _ in range(3)),
        {"text": "ok", "usage": usage, "repeat": True},
    ]
    with Recorder(turns, tools=[SmallTool("t", lambda args, context: "x")]) as it:
        it.prompt("one")
        it.prompt("two")
        told, run = it.prompt("work")
        assert run.stop == "end"
        assert len(of(told, events.CompactFailed)) == 1
        (error,) = of(told, events.ErrorRaised)
        assert "automatic compaction failed" in error.message


def test_an_overflow_is_compacted_once_and_the_prompt_goes_on():
    overflow = {"match": "long", "error": {"status": 400, "message": "prompt is too long"}}
    with Recorder([SUMMARY, overflow, {"text": "ok", "repeat": True}]) as it:
        talk(it)
        told, run = it.prompt("long")
        assert run.stop == "end"
        assert said(told) == "ok"
        assert [event.reason for event in of(told, events.CompactStart)] == ["overflow"]
        assert len(of(told, events.TurnEnd)) == 1
        assert len(of(told, events.TurnStart)) == 1


def test_an_overflow_again_after_compaction_is_an_error():
    overflow = {"match": "long", "error": {"status": 413, "message": "x"}, "repeat": True}
    with Recorder([SUMMARY, overflow, {"text": "ok", "repeat": True}]) as it:
        talk(it)
        told, run = it.prompt("long")
        assert run.stop == "error"
        assert run.error.code == "too_large"
        assert len(of(told, events.CompactStart)) == 1
        assert said(it.prompt("short")[0]) == "ok"


def test_an_overflow_that_cannot_be_compacted_says_both():
    overflow = {"match": "long", "error": {"status": 413, "message": "too big"}}
    with Recorder([overflow, {"text": "ok", "repeat": True}]) as it:
        told, run = it.prompt("long")
        assert run.error.code == "too_large"
        assert "too big" in str(run.error)
        assert "nothing to compact" in str(run.error)
        assert len(of(told, events.TurnEnd)) == 1
    with Recorder([overflow], settings={"compact_at": None}) as it:
        told, run = it.prompt("long")
        assert "CompactStart" not in kinds(told)
        assert run.error.code == "too_large"
