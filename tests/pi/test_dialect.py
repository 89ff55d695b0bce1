"""pi's dialect without a process: lines, generations, streamed messages, odd orders of events."""

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from support.pi import kinds, outline

from zot.core import events
from zot.core.session import Compaction, Label, Session
from zot.errors import CommandError
from zot.lines import encode_line
from zot.pi import commands as pi
from zot.pi import replies as pi_replies
from zot.pi.commands import AnyPiCommand, Generation, ImageContent, PiPeer, Prompt
from zot.pi.events import Encoder, RunKind
from zot.pi.frames import TouchedFiles
from zot.pi.messages import assistant_to_pi
from zot.pi.stream import BURST, BYTES_A_SECOND, Budget, PiStream, parsed_so_far
from zot.provider import model as models
from zot.provider.types import Message, Model, Origin, Text, ToolCall, ToolResult, Usage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


# --- lines -----------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_no_line_makes_the_decoder_raise(line: bytes) -> None:
    found = pi.decode(line)
    assert (found.command is None) == (found.error is not None)


@given(st.dictionaries(st.sampled_from(["type", "id", "message", "images", "level"]), JSON))
def test_no_object_makes_the_decoder_raise(value: dict[str, Any]) -> None:
    found = pi.decode(json.dumps(value).encode())
    assert (found.command is None) == (found.error is not None)


@pytest.mark.parametrize("command", get_args(AnyPiCommand))
def test_every_command_is_read_back(command: type) -> None:
    values = {"provider": "p", "modelId": "m", "level": "off", "mode": "all", "enabled": True}
    values |= {"command": "c", "sessionPath": "p", "entryId": "e", "name": "n"}
    fields = {name: values[name] for name in command.__struct_fields__ if name in values}
    value = command(**fields)
    found = pi.decode(msgspec.json.encode(value)[:-1] + b',"id":"7"}')
    assert found.command == value
    assert bytes(found.id) == b'"7"'


def test_two_types_in_one_line_are_refused() -> None:
    assert pi.decode(b'{"type":"abort","type":"nothing"}').error is not None


def test_half_a_character_in_a_prompt_is_mended() -> None:
    found = pi.decode(b'{"type":"prompt","message":"a\\ud83d"}')
    assert found.command == Prompt("a\ufffd")


def test_an_answer_without_data_has_no_data() -> None:
    incoming = pi.decode(b'{"type":"abort","id":"1"}')
    assert json.loads(encode_line(pi.success(incoming))) == {
        "id": "1",
        "type": "response",
        "command": "abort",
        "success": True,
    }
    assert json.loads(encode_line(pi.success(incoming, None)))["data"] is None


# --- generations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "generation"),
    [
        (b'{"type":"prompt","message":"x"}', "a"),
        (b'{"type":"prompt","message":"x","attachments":[]}', "a"),
        (b'{"type":"abort"}', "a"),
        (b'{"type":"compact","customInstructions":"x"}', "a"),
        (b"garbage", "a"),
        (b'{"type":"unknown"}', "a"),
        (b'{"type":"unknown","id":"1"}', "b"),
        (b'{"type":"prompt","message":"x","id":"1"}', "b"),
        (b'{"type":"prompt","message":"x","images":[]}', "b"),
        (b'{"type":"prompt","message":"x","streamingBehavior":"steer"}', "b"),
        (b'{"type":"get_state"}', "b"),
        (b'{"type":"clear_queue"}', "c"),
        (b'{"type":"get_available_thinking_levels","id":"1"}', "c"),
    ],
)
def test_a_peer_is_known_by_what_it_does(line: bytes, generation: Generation) -> None:
    peer = PiPeer()
    peer.learn(pi.decode(line))
    assert peer.generation == generation
    fixed = PiPeer("a")
    fixed.learn(pi.decode(line))
    fixed.choose("c")
    assert fixed.generation == "a"


def test_a_peer_does_not_go_back() -> None:
    peer = PiPeer()
    peer.choose("c")
    peer.learn(pi.decode(b'{"type":"get_state","id":"1"}'))
    assert peer.generation == "c"


# --- streamed messages -----------------------------------------------------------------------

HEAD = assistant_to_pi(Message("assistant", (), 0.0))


def updates(stream: PiStream, *, now: float = 0.0) -> list[dict[str, Any]]:
    frames = stream.say("thinking", "hm", now)
    frames += stream.say("text", "a", now)
    frames += stream.say("text", "b", now)
    frames += stream.call("1", "read")
    frames += stream.call("2", "write")
    frames += stream.call_args("1", '{"pa', now)
    frames += stream.call_args("2", "{}", now)
    frames += stream.call_args("1", 'th":"x"}', now)
    frames += stream.call_end("2")
    frames += stream.finish()
    return [json.loads(encode_line(frame)) for frame in frames]


def pieces(frames: list[dict[str, Any]]) -> list[str]:
    found = [frame["assistantMessageEvent"] for frame in frames]
    return [f"{piece['type']}@{piece['contentIndex']}" for piece in found]


def test_blocks_start_and_end_in_order() -> None:
    frames = updates(PiStream(HEAD, Budget()))
    assert pieces(frames) == [
        "thinking_start@0",
        "thinking_delta@0",
        "thinking_end@0",
        "text_start@1",
        "text_delta@1",
        "text_delta@1",
        "text_end@1",
        "toolcall_start@2",
        "toolcall_start@3",
        "toolcall_delta@2",
        "toolcall_delta@3",
        "toolcall_delta@2",
        "toolcall_end@3",
        "toolcall_end@2",
    ]


def test_every_snapshot_is_a_true_copy_of_its_moment() -> None:
    frames = updates(PiStream(HEAD, Budget()))
    text: dict[int, str] = {}
    for frame in frames:
        piece = frame["assistantMessageEvent"]
        assert frame["message"] == piece["partial"]
        at = piece["contentIndex"]
        text[at] = text.get(at, "") + piece.get("delta", "")
        block = frame["message"]["content"][at]
        if block["type"] != "toolCall":
            assert block[block["type"]] == text[at]
    last = frames[-1]["message"]["content"][2]
    assert last == {"type": "toolCall", "id": "1", "name": "read", "arguments": {"path": "x"}}


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=200))
def test_deltas_add_up_whatever_the_budget_holds_back(parts: list[str]) -> None:
    budget = Budget()
    budget.spend(BURST)
    stream = PiStream(HEAD, budget)
    frames = []
    for number, part in enumerate(parts):
        frames += stream.say("text", part, number * 0.0005)
    frames += stream.finish()
    found = [json.loads(encode_line(frame))["assistantMessageEvent"] for frame in frames]
    said = "".join(piece.get("delta", "") for piece in found)
    whole = json.loads(encode_line("".join(parts)))
    assert said == whole
    assert found[-1]["content"] == whole


def test_snapshots_stay_within_their_budget() -> None:
    stream = PiStream(HEAD, Budget())
    size = 0
    for number in range(20_000):
        for frame in stream.say("text", "word ", 1.0 + number * 0.0001):
            size += len(encode_line(frame))
    assert stream.waiting
    assert size < 2 * BURST + 2 * BYTES_A_SECOND + 300_000
    held = stream.tick(10_000.0)
    assert len(held) == 1
    assert not stream.waiting
    assert stream.tick(10_001.0) == []


def test_deltas_of_another_block_send_what_waits_first() -> None:
    budget = Budget()
    stream = PiStream(HEAD, budget)
    stream.call("1", "a")
    stream.call("2", "b")
    budget.spend(2 * BURST)
    assert stream.call_args("1", "x", 0.0) == []
    frames = [json.loads(encode_line(each)) for each in stream.call_args("2", "y", 0.0)]
    assert pieces(frames) == ["toolcall_delta@0"]


def test_unknown_calls_are_passed_over() -> None:
    stream = PiStream(HEAD, None)
    assert stream.call_args("x", "{}", 0.0) == []
    assert stream.call_end("x") == []
    stream.call("1", "a")
    assert len(stream.call_end("1")) == 1
    assert stream.call_end("1") == []


@pytest.mark.parametrize(
    ("raw", "args"),
    [
        ("", None),
        ("{", {}),
        ('{"path"', None),
        ('{"path":"sr', {"path": "sr"}),
        ('{"path":"a\\', {"path": "a"}),
        ('{"path":"a\\u00', {"path": "a"}),
        ('{"path":"a\\"b', {"path": 'a"b'}),
        ('{"path":"a","edits":[{"old":"x', {"path": "a", "edits": [{"old": "x"}]}),
        ('{"path":"a","lim', {"path": "a"}),
        ('{"path":"a","limit":', {"path": "a"}),
        ('{"path":"a"}', {"path": "a"}),
        ("[1", None),
        ('{"a":[1,2],"b":{"c":1', {"a": [1, 2], "b": {"c": 1}}),
    ],
)
def test_unfinished_arguments_are_read_as_far_as_they_go(raw: str, args: object) -> None:
    assert parsed_so_far(raw) == args


@given(st.dictionaries(st.text(), JSON, max_size=4), st.integers(0, 400))
def test_no_cut_makes_the_reader_raise(value: dict[str, Any], cut: int) -> None:
    raw = json.dumps(value)
    parsed_so_far(raw[:cut])
    assert parsed_so_far(raw) == json.loads(raw)


# --- odd orders ------------------------------------------------------------------------------

CALL = ToolCall("1", "bash", {"command": "x"})
OTHER = ToolCall("2", "bash", {"command": "y"})


class Wire:
    def __init__(self, generation: Generation = "b") -> None:
        self.encoder = Encoder(PiPeer(generation))
        self.encoder.use_model("p", "m", "anthropic")
        self.frames: list[dict[str, Any]] = []

    def tell(self, *told: events.Event, kind: RunKind | None = "prompt") -> "Wire":
        for event in told:
            for frame in self.encoder.encode(event, kind, 0.0):
                self.frames.append(json.loads(encode_line(frame)))
        return self

    @property
    def outline(self) -> str:
        return outline(self.frames)

    def last(self, type: str) -> dict[str, Any]:
        return next(frame for frame in reversed(self.frames) if frame["type"] == type)


def user(text: str = "hi") -> events.UserMessage:
    return events.UserMessage(Message("user", (Text(text),), 1.0))


def answer(*blocks: Any, stop: Any = "end") -> events.AssistantMessage:
    origin = Origin("p", "m", "anthropic", stop, Usage(1, 2))
    return events.AssistantMessage(Message("assistant", tuple(blocks), 1.0, origin))


def test_a_run_aborted_at_birth_still_has_a_beginning_and_an_end() -> None:
    wire = Wire().tell(events.TurnEnd("aborted"), events.Done("aborted"))
    assert wire.outline == "run turn asst /asst /turn /run"
    assert wire.frames[-1]["messages"][-1]["stopReason"] == "aborted"


def test_a_run_that_says_nothing_but_done_is_a_failure() -> None:
    assert Wire().tell(events.Done("error")).outline == "run turn asst /asst /turn /run"
    wire = Wire().tell(user(), events.Done("error"))
    assert wire.outline == "run turn user /user asst /asst /turn /run"


def test_an_error_before_any_turn_is_a_message_that_failed() -> None:
    wire = Wire().tell(user(), events.ErrorRaised("max steps (1) exceeded"), events.Done("error"))
    assert wire.outline == "run turn user /user asst /asst /turn /run"
    assert wire.frames[-1]["messages"][-1]["errorMessage"] == "max steps (1) exceeded"
    assert wire.frames[-1]["messages"][-1]["provider"] == "p"


def test_an_error_between_turns_opens_one_more() -> None:
    wire = Wire().tell(user(), events.TurnStart(1), answer(Text("x")), events.TurnEnd("end"))
    wire.tell(events.ErrorRaised("limit"), events.Done("error"))
    assert wire.outline.endswith("/turn turn asst /asst /turn /run")


def test_deltas_without_a_start_begin_a_message() -> None:
    wire = Wire().tell(user(), events.TurnStart(1), events.TextDelta("x"))
    assert wire.outline.endswith("asst text_start text_delta")
    wire.tell(events.TurnEnd("error", "broke"), events.ErrorRaised("broke"), events.Done("error"))
    assert wire.frames[-1]["messages"][-1]["content"] == [{"type": "text", "text": "x"}]
    assert wire.outline.count("/asst") == 1


@pytest.mark.parametrize("generation", ["a", "b"])
def test_a_tool_that_was_given_up_has_an_end_all_the_same(generation: Generation) -> None:
    wire = Wire(generation).tell(user(), events.TurnStart(1), answer(CALL, OTHER, stop="tool_use"))
    wire.tell(events.ToolCalled(CALL), events.ToolCalled(OTHER), events.TurnEnd("tool_use"))
    wire.tell(events.ToolStarted(CALL), events.TurnEnd("aborted"), events.Done("aborted"))
    started = kinds(wire.frames).count("tool_execution_start")
    assert (
        started == kinds(wire.frames).count("tool_execution_end") == (1 if generation == "a" else 2)
    )
    assert wire.outline.endswith("/result /turn turn asst /asst /turn /run")
    assert kinds(wire.frames).count("turn_end") == 2


def test_a_run_goes_on_in_the_words_it_began_with() -> None:
    peer = PiPeer()
    wire = Wire()
    wire.encoder = Encoder(peer)
    wire.tell(user(), events.TurnStart(1), answer(CALL, OTHER, stop="tool_use"))
    wire.tell(events.ToolCalled(CALL), events.ToolCalled(OTHER), events.TurnEnd("tool_use"))
    wire.tell(events.ToolStarted(CALL), events.ToolReturned(CALL, ToolResult("1", (Text("x"),))))
    peer.choose("c")
    wire.tell(events.ToolStarted(OTHER), events.ToolReturned(OTHER, ToolResult("2", (Text("y"),))))
    group = "tool /tool result /result"
    assert wire.outline == f"run turn user /user asst /asst {group} {group} /turn"
    wire.tell(events.TurnStart(2), answer(Text("x")), events.TurnEnd("end"), events.Done())
    assert "willRetry" not in wire.frames[-1]
    wire.tell(user(), events.Done("error"))
    assert "willRetry" in wire.frames[-1]


def test_results_after_the_end_of_their_turn_are_dropped() -> None:
    result = ToolResult("1", (Text("late"),))
    wire = Wire().tell(events.ToolReturned(CALL, result), events.ToolProgress("1", "x"))
    wire.tell(events.ToolStarted(CALL), events.ToolCalled(CALL))
    assert wire.frames == []


def test_a_retry_that_fails_is_told_after_the_end() -> None:
    wire = Wire().tell(user(), events.TurnStart(1), events.Retrying(1, 4, 0.5, "busy"))
    assert wire.encoder.retrying
    wire.tell(events.Retrying(2, 4, 1.0, "busy"), events.TurnEnd("error", "gave up"))
    wire.tell(events.ErrorRaised("gave up"), events.Done("error"))
    assert wire.outline.endswith("/run auto_retry_end")
    end = wire.last("auto_retry_end")
    assert (end["success"], end["attempt"], end["finalError"]) == (False, 2, "gave up")
    assert not wire.encoder.retrying


def test_progress_waits_when_the_budget_is_used_up() -> None:
    wire = Wire().tell(user(), events.TurnStart(1), answer(CALL, stop="tool_use"))
    wire.tell(events.ToolCalled(CALL), events.TurnEnd("tool_use"), events.ToolStarted(CALL))
    wire.tell(*(events.ToolProgress("1", "x" * 40_000) for _ in range(40)))
    sent = kinds(wire.frames).count("tool_execution_update")
    assert sent < 20
    assert wire.encoder.holds_back
    later = wire.encoder.tick(100.0)
    assert len(later) == 1
    assert len(wire.last("tool_execution_update")["partialResult"]["content"][0]["text"]) == 51_200
    assert not wire.encoder.holds_back


def test_text_that_waits_is_sent_by_a_tick() -> None:
    wire = Wire().tell(user(), events.TurnStart(1))
    wire.tell(*(events.TextDelta("x" * 1000) for _ in range(200)))
    assert wire.encoder.holds_back
    assert len(wire.encoder.tick(100.0)) == 1


def test_a_failed_automatic_compaction_is_told_once() -> None:
    failed = events.CompactFailed("threshold", "no")
    error = events.ErrorRaised("automatic compaction failed: no")
    wire = Wire("a").tell(user(), failed, error, events.TurnStart(1), answer(Text("x")))
    wire.tell(events.TurnEnd("end"), events.Done())
    assert wire.outline == "run turn user /user error asst /asst /turn /run"
    wire = Wire("b").tell(user(), failed, error)
    assert wire.outline == "run turn user /user compaction_end"


def test_an_aborted_compaction_says_so() -> None:
    wire = Wire().tell(events.CompactFailed("manual", "aborted", aborted=True), kind="compact")
    assert wire.frames == [
        {"type": "compaction_end", "reason": "manual", "aborted": True, "willRetry": False}
    ]
    assert Wire().tell(events.TurnEnd("aborted"), events.Done(), kind="compact").frames == []


def test_what_extensions_show_reaches_the_interface() -> None:
    wire = Wire().tell(
        events.ExtensionNotify("x", "error", "bad"),
        events.ExtensionDisplay("x", "text"),
        events.ExtensionPanel("x", "open", {"id": "1", "title": "T", "lines": ["a", "b"]}),
        events.ExtensionPanel("x", "close", {"panel_id": "1"}),
        events.FellBack("m1", "p", Model("m2", "p", "scripted"), "down"),
        kind=None,
    )
    shown = [{k: v for k, v in f.items() if k not in ("id", "type")} for f in wire.frames]
    assert shown == [
        {"method": "notify", "message": "bad", "notifyType": "error"},
        {"method": "notify", "message": "text", "notifyType": "info"},
        {"method": "setWidget", "widgetKey": "x:1", "widgetLines": ["T", "a", "b"]},
        {"method": "setWidget", "widgetKey": "x:1"},
        {
            "method": "notify",
            "message": "m1 failed (down); going on with p/m2",
            "notifyType": "warning",
        },
    ]
    assert len({frame["id"] for frame in wire.frames}) == 5
    assert Wire("a").tell(events.ExtensionDisplay("x", "text")).frames == []


def test_events_that_pi_has_no_word_for_are_left_out() -> None:
    wire = Wire("a").tell(
        events.CompactStart("manual"),
        events.QueueUpdate(("a",), ()),
        events.UsageReport(Usage(), Usage()),
        events.ApprovalResolved("1", "1", "allow", "client"),
        events.ErrorRaised("x"),
        kind=None,
    )
    assert wire.frames == []
    assert wire.encoder.settled(aborted=False) == []
    assert wire.encoder.ui("notify", message="x") == []


# --- answers ---------------------------------------------------------------------------------


def thinker(**levels: str | None) -> Model:
    return Model("m", "p", "anthropic", reasoning=True, compat={"levels": levels})


def test_levels_of_a_model() -> None:
    assert models.levels(Model("m", "p", "anthropic")) == ["off"]
    assert models.levels(thinker(xhigh="x")) == [
        "off",
        "minimum",
        "low",
        "medium",
        "high",
        "xhigh",
    ]
    assert models.levels(thinker(minimum=None)) == ["off", "low", "medium", "high"]
    assert models.clamped("max", thinker()) == "high"
    assert models.clamped("minimum", thinker(minimum=None)) == "low"
    assert models.clamped("off", thinker(off=None, minimum=None)) == "low"
    shown = pi_replies.model(Model("m", "nobody", "google", images=False, headers={"a": "b"}))
    assert (shown.input, shown.headers, shown.baseUrl) == (["text"], {"a": "b"}, "")


def test_labels_stand_on_their_entries_in_the_tree() -> None:
    session = Session()
    first = session.append(Message("user", (Text("a"),), 1.0))
    second = session.append(Message("user", (Text("b"),), 1.0))
    session.append(Label(first.id, "kept"))
    session.append(Label(second.id, "gone"))
    session.append(Label(second.id, None))
    rows = pi_replies.Rows(session)
    root = rows.tree()[0]
    assert (root["label"], "label" in root["children"][0]) == ("kept", False)
    session.move(first.id)
    session.append(Message("user", (Text("c"),), 1.0))
    assert len(pi_replies.Rows(session).tree()[0]["children"]) == 2


def test_an_empty_session_has_no_leaf() -> None:
    rows = pi_replies.Rows(Session())
    assert (rows.leaf, rows.tree(), rows.since(None)) == (None, [], [])
    assert pi_replies.last_assistant_text(()) is None


def test_a_summary_costs_what_it_cost() -> None:
    session = Session()
    session.append(Compaction("s", None, usage=Usage(5, 6)))
    session.append(Compaction("s", None))
    assert pi_replies.spent(session).total == 11


def test_files_of_a_prompt() -> None:
    found = pi.files(Prompt("x", attachments=({"type": "document", "fileName": "n"},)))
    assert (found.images, found.documents) == ((), ())
    with pytest.raises(CommandError, match="empty"):
        pi.files(Prompt("x", attachments=({"type": "image", "mimeType": "image/png"},)))
    assert pi.pinned("") is None
    assert pi.failure(pi.PiIncoming("", UNSET, None), ValueError("x")).command is UNSET


def test_a_turn_that_was_left_open_is_closed_by_the_next() -> None:
    wire = Wire().tell(user(), events.TurnStart(1), answer(CALL, stop="tool_use"))
    wire.tell(events.ToolCalled(CALL), events.TurnEnd("tool_use"), events.TurnStart(2))
    assert wire.outline.endswith("tool /tool result /result /turn turn")


def test_only_what_was_held_back_is_sent_by_a_tick() -> None:
    wire = Wire().tell(user(), events.TurnStart(1), answer(CALL, OTHER, stop="tool_use"))
    wire.tell(events.ToolCalled(CALL), events.ToolCalled(OTHER), events.TurnEnd("tool_use"))
    wire.tell(events.ToolStarted(CALL), events.ToolStarted(OTHER))
    wire.tell(*(events.ToolProgress("1", "x" * 40_000) for _ in range(40)))
    assert len(wire.encoder.tick(100.0)) == 1
    assert wire.encoder.tick(200.0) == []


def test_a_compaction_is_told_with_its_result() -> None:
    done = events.CompactDone("s", "manual", 10)
    assert Wire().tell(done, kind="compact").frames == []
    frame = Wire().encoder.compacted(done, pi_replies.compaction(done, Session()))
    assert json.loads(encode_line(frame))["result"]["summary"] == "s"


def test_questions_of_extensions_are_dialogs() -> None:
    asked = [
        events.ExtensionAsk("T", id="1", extension="x", method="confirm", message="m", timeout=1.5),
        events.ExtensionAsk("T", id="2", extension="x", method="select", options=("a", "b")),
        events.ExtensionAsk("T", id="3", extension="x", method="input", placeholder="p"),
        events.ExtensionAsk("T", id="4", extension="x", method="editor", prefill="e"),
    ]
    frames = Wire().tell(*asked, kind=None).frames
    assert [frame["id"] for frame in frames] == ["1", "2", "3", "4"]
    assert (frames[0]["message"], frames[0]["timeout"]) == ("m", 1500)
    assert frames[1]["options"] == ["a", "b"]
    assert (frames[2]["placeholder"], frames[3]["prefill"]) == ("p", "e")


def test_files_that_a_call_does_not_name_are_not_listed() -> None:
    session = Session()
    calls = (ToolCall("1", "read", None), ToolCall("2", "read", {"path": 3}), CALL)
    origin = Origin("p", "m", "anthropic", "tool_use")
    session.append(Message("assistant", calls, 1.0, origin))
    assert pi_replies.touched_files(session) == TouchedFiles([], [])


def test_bad_images_are_refused() -> None:
    with pytest.raises(CommandError, match="must be one of"):
        pi.files(Prompt("x", attachments=({"type": "image", "mimeType": "image/x"},)))
    with pytest.raises(CommandError, match="no image that models take"):
        pi.files(Prompt("x", images=(ImageContent("image/png", b"not a png"),)))
    with pytest.raises(CommandError, match="not base64"):
        pi.files(Prompt("x", attachments=({"type": "image", "content": "%"},)))
    with pytest.raises(CommandError, match="cannot be used"):
        pi.files(Prompt("x", attachments=({"type": "film"},)))
