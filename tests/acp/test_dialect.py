"""The dialect by itself: no process, no input or output."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.acp import AcpSchema, outline

from zot.acp import calls, commands, shapes
from zot.acp.commands import SessionAbilities, lenient
from zot.acp.session import prompt_content
from zot.acp.shapes import fault_of
from zot.acp.updates import UpdateEncoder, history, outcome
from zot.core import events
from zot.core.session import Cleared, Entry, Replaced, ResultNote
from zot.core.tool import title_of
from zot.errors import AuthError, CommandError, LimitError, Refused, Rejected, ZotError
from zot.jsonrpc import RpcAnswer, RpcError, RpcFault
from zot.provider.types import (
    Cost,
    Image,
    Message,
    Model,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)

ALL = SessionAbilities(compaction={}, notices={})
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=5,
)
FEW = settings(max_examples=40)
CALL = ToolCall("c1", "bash", {"command": "ls"})
EDIT = ToolCall("c2", "edit", {"path": "a.txt", "edits": []})
MESSAGE = Message("user", (Text("hello"),), 0.0)
MODEL = Model("m2", "openai", "openai-chat")


def shown(update: Any) -> dict[str, Any]:
    built: dict[str, Any] = json.loads(msgspec.json.encode(update))
    return built


def encoded(encoder: UpdateEncoder, *happened: Any, now: float = 1.0) -> list[dict[str, Any]]:
    return [shown(update) for event in happened for update in encoder.encode(event, now)]


# --- the golden transcript -------------------------------------------------------------------

RUN = (
    events.UserMessage(MESSAGE),
    events.RunResumed("r", 2, 5.0),
    events.RunHeld("r", 3, "it crashed"),
    events.TurnStart(1),
    events.Retrying(1, 10, 2.0, "busy"),
    events.AssistantStart("p", "m", "api"),
    events.ReasoningDelta("hm"),
    events.TextDelta("look"),
    events.TextDelta(""),
    events.ToolCallStart("c1", "bash"),
    events.ToolCallArgs("c1", "{"),
    events.ToolCallEnd("c1"),
    events.UsageReport(Usage(10, 5), Usage(10, 5, cost=Cost(0.5, 0.25))),
    events.AssistantMessage(MESSAGE),
    events.ToolCalled(CALL),
    events.ToolCalled(EDIT),
    events.TurnEnd("tool_use"),
    events.ToolStarted(CALL),
    events.ToolAllowed(CALL),
    events.ToolProgress("c1", "out"),
    events.ToolReturned(CALL, ToolResult("c1", (Text("out"), Image("image/png", b"x")))),
    events.QueueUpdate((), ()),
    events.UserMessage(MESSAGE),
    events.FellBack("m1", "openai", MODEL, "gone"),
    events.CompactStart("threshold"),
    events.UsageReport(Usage(99, 1), Usage(109, 6)),
    events.CompactDone("short", "threshold", 100, 50),
    events.CompactStart("threshold"),
    events.CompactFailed("threshold", "no", aborted=True),
    events.ErrorRaised("the image was left out"),
    events.ExtensionNotify("x", "error", "broken"),
    events.ExtensionDisplay("x", "shown"),
    events.ExtensionPanel("x", "open", {}),
    events.TurnEnd("aborted"),
    events.ErrorRaised("at the end"),
    events.Done("aborted"),
)
TRANSCRIPT = (
    "session_info notice notice notice agent_thought_chunk agent_message_chunk "
    "tool_call[c1 pending] usage "
    "tool_call[c1] tool_call[c2 pending] tool_call[c2] tool_call[c1 in_progress] "
    "tool_call[c1 content] tool_call[c1 completed content,content] user_message_chunk notice "
    "compaction compaction usage compaction compaction notice notice agent_message_chunk "
    "tool_call[c2 failed content] session_info"
)


def test_a_run_with_everything_in_it() -> None:
    encoder = UpdateEncoder("/w", ALL)
    encoder.window = 1000
    assert outline(encoded(encoder, *RUN)) == TRANSCRIPT


def test_a_client_that_can_little_is_told_less() -> None:
    encoder = UpdateEncoder("/w", SessionAbilities())
    kinds = outline(encoded(encoder, *RUN)).split()
    assert {"notice", "compaction", "usage"} & set(kinds) == set()


CUT = (
    events.TurnStart(1),
    events.AssistantStart("p", "m", "api"),
    events.TextDelta("half"),
    events.ToolCallStart("c1", "bash"),
    events.Retrying(1, 10, 2.0, "the connection was closed", "network", dropped=True),
    events.TurnEnd("length", again=True),
    events.TurnStart(1),
    events.AssistantStart("p", "m", "api"),
    events.TextDelta("whole"),
    events.TurnEnd("end"),
)


def test_a_cut_answer_is_followed_by_a_line_that_says_so() -> None:
    encoder = UpdateEncoder("/w", SessionAbilities())
    updates = encoded(encoder, *CUT)
    chunks = [update for update in updates if update["sessionUpdate"] == "agent_message_chunk"]
    half, line, whole = chunks
    assert "begins anew" in line["content"]["text"]
    assert half["messageId"] == line["messageId"] != whole["messageId"]
    (failed,) = [update for update in updates if update.get("status") == "failed"]
    assert failed["toolCallId"] == "c1"
    assert not encoder.cut


def test_every_update_is_what_the_schema_says(schema: AcpSchema) -> None:
    encoder = UpdateEncoder("/w", ALL)
    encoder.window = 1000
    for update in encoded(encoder, *RUN):
        schema.check("SessionUpdate", update)
    for error in (AuthError("a"), Rejected("b", status=403), CommandError("c"), ZotError("d")):
        schema.check("Error", shown(fault_of(error)))


def test_usage_is_the_window_and_the_cost_of_the_session() -> None:
    encoder = UpdateEncoder("/w", ALL)
    encoder.window = 1000
    report = events.UsageReport(Usage(10, 5), Usage(20, 9, cost=Cost(0.5, 0.25)))
    assert encoded(encoder, report) == [
        {
            "sessionUpdate": "usage_update",
            "used": 15,
            "size": 1000,
            "cost": {"amount": 0.75, "currency": "USD"},
        }
    ]
    unknown = events.UsageReport(Usage(1), Usage(1, cost_known=False))
    assert "cost" not in encoded(encoder, unknown)[0]
    assert encoded(encoder, events.UsageReport(Usage(), Usage())) == []


def test_progress_is_held_back_and_shown_by_the_next_tick() -> None:
    encoder = UpdateEncoder("/w", ALL)
    encoded(encoder, events.ToolCalled(CALL))
    assert len(encoded(encoder, events.ToolProgress("c1", "a"), now=1.0)) == 1
    assert encoded(encoder, events.ToolProgress("c1", "b"), now=1.05) == []
    assert encoder.holds_back
    (update,) = encoder.tick(1.1)
    assert "ab" in msgspec.json.encode(update).decode()
    assert not encoder.holds_back
    assert encoded(encoder, events.ToolProgress("unknown", "x")) == []


@pytest.mark.untraced
@FEW
@given(st.lists(st.text(max_size=9000), max_size=12))
def test_output_is_bounded_and_keeps_both_ends(pieces: list[str]) -> None:
    output = calls.RunningOutput()
    for piece in pieces:
        output.add(piece)
    whole, seen = "".join(pieces), output.shown()
    if len(whole) <= calls.HEAD + calls.TAIL:
        assert seen == whole
    else:
        assert seen.startswith(whole[: calls.HEAD])
        assert seen.endswith(whole[-calls.TAIL :])
        assert len(seen) < calls.HEAD + calls.TAIL + 60


def test_a_call_that_was_cut_off_fails_and_the_next_one_of_its_id_is_another() -> None:
    encoder = UpdateEncoder("/w", ALL)
    first = encoded(encoder, events.ToolCallStart("c", "bash"), events.TurnEnd("length"))
    assert [update.get("status") for update in first] == ["pending", "failed"]
    assert encoder.cut
    again = encoded(encoder, events.ToolCallStart("c", "bash"), events.ToolCallStart("c", "bash"))
    assert [update["toolCallId"] for update in again] == ["c#2"]


def test_a_manual_compaction_says_so_to_a_client_without_compactions() -> None:
    encoder = UpdateEncoder("/w", SessionAbilities())
    done = events.CompactDone("s", "manual", 100, 10)
    (update,) = encoded(encoder, done)
    assert update["content"]["text"] == "Compacted: 100 tokens became 10."


# --- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "error", "cut", "reason"),
    [
        ("end", None, False, "end_turn"),
        ("end", None, True, "max_tokens"),
        ("aborted", None, True, "cancelled"),
        ("error", LimitError("", limit="steps"), False, "max_turn_requests"),
        ("error", LimitError("", limit="tokens"), False, "max_tokens"),
        ("error", Refused("I will not"), False, "end_turn"),
    ],
)
def test_how_runs_end(stop: Any, error: Any, cut: bool, reason: str) -> None:
    ended = outcome(stop, error, cut=cut)
    assert (ended.reason, ended.fault) == (reason, None)
    assert ended.text == ("I will not" if isinstance(error, Refused) else "")


def test_other_errors_are_faults() -> None:
    assert outcome("error", LimitError("", limit="cost"), cut=False).fault == RpcFault(
        -32603, "", {"code": "limit"}
    )
    assert fault_of(AuthError("x")).code == -32000
    assert fault_of(Rejected("x", status=401)).code == -32000
    assert fault_of(CommandError("x", code="not_found")).code == -32002


# --- what is asked ---------------------------------------------------------------------------


@FEW
@given(st.sampled_from(sorted(commands.REQUESTS)), JSON)
def test_any_params_are_a_request_or_a_fault(method: str, params: Any) -> None:
    try:
        commands.read_request(method, msgspec.Raw(json.dumps(params).encode()))
    except RpcError as error:
        assert error.fault.code == -32602


@FEW
@given(JSON, JSON, JSON)
def test_whatever_is_optional_never_fails(abilities: Any, version: Any, servers: Any) -> None:
    read = lenient({"protocolVersion": 1, "clientCapabilities": abilities}, commands.Initialize)
    assert isinstance(read.client_capabilities.terminal_auth, bool)
    new = lenient({"cwd": "/", "mcpServers": servers}, commands.NewSession)
    assert all(isinstance(server, dict) for server in new.mcp_servers)


def test_servers_are_handed_on_as_they_are_and_garbage_is_not() -> None:
    servers = [{"name": "a", "command": "c", "args": []}, 5, "x"]
    read = lenient({"cwd": "/", "mcpServers": servers}, commands.NewSession).mcp_servers
    assert read == (servers[0],)


@FEW
@given(st.lists(JSON))
def test_any_blocks_are_a_prompt_or_refused(blocks: list[Any]) -> None:
    try:
        prompt_content(blocks)
    except CommandError:
        pass


# --- calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "title"),
    [
        (CALL, "ls"),
        (ToolCall("", "bash", {"command": "a\nb"}), "a …"),
        (ToolCall("", "bash", {"command": "x" * 500}), "x" * 119 + "…"),
        (ToolCall("", "bash", {"command": " "}), "bash"),
        (ToolCall("", "glob", {"pattern": "*.py"}), "Find *.py"),
        (ToolCall("", "grep", {"pattern": "x"}), "Search for x"),
        (ToolCall("", "mcp__db__query", {"q": 1}), "mcp__db__query"),
        (ToolCall("", "read", None, "{"), "read"),
    ],
)
def test_titles_are_for_people(call: ToolCall, title: str) -> None:
    assert title_of(call) == title


def test_paths_are_absolute() -> None:
    (place,) = calls.locations_of(ToolCall("", "read", {"path": "../a"}), "/w/x")
    assert place == shapes.Location("/w/a")
    assert calls.locations_of(ToolCall("", "read", {"path": 5}), "/w") == ()
    assert calls.locations_of(ToolCall("", "other", {"path": "a"}), "/w") == ()


@FEW
@given(st.text())
def test_a_fence_is_longer_than_any_inside(text: str) -> None:
    first, *_, last = calls.fenced(text).split("\n")
    assert first == last
    assert first not in text


@FEW
@given(JSON)
def test_any_arguments_are_a_plan_or_none(args: Any) -> None:
    entries = calls.plan_of(ToolCall("", "todo_write", {"todos": args}))
    assert all(entry.content for entry in entries)


# --- questions -------------------------------------------------------------------------------


@FEW
@given(JSON)
def test_any_answer_to_a_question_is_understood(answer: Any) -> None:
    raw = RpcAnswer(1, msgspec.Raw(json.dumps(answer).encode()))
    assert calls.decision(raw) == "deny"
    for method in ("confirm", "select", "input", "editor"):
        ask = events.ExtensionAsk("t", id="1", extension="x", method=method, options=("a",))  # type: ignore[arg-type]
        assert not calls.form_answer(ask, raw).confirmed
        assert not calls.button_answer(ask, raw).confirmed


@pytest.mark.parametrize("method", ["confirm", "select", "input", "editor"])
def test_questions_are_what_the_schema_says(schema: AcpSchema, method: Any) -> None:
    ask = events.ExtensionAsk(
        "t", "m", ("a", "b"), "hint", "start", id="1", extension="x", method=method
    )
    schema.check("CreateElicitationRequest", shown(calls.form("s", ask)))
    asked = calls.buttons("s", ask)
    assert (asked is None) == (method in ("input", "editor"))
    if asked is not None:
        schema.check("RequestPermissionRequest", shown(asked))
    assert calls.form_answer(ask, RpcAnswer(1, fault=RpcFault(-1))).cancelled


# --- history ---------------------------------------------------------------------------------


def test_what_was_said_is_shown_again() -> None:
    lost = ToolCall("c9", "bash", {})
    entries = [
        Entry("a", None, 0, Message("user", (Text("gone"),), 0)),
        Entry("b", "a", 0, Cleared()),
        Entry(
            "c", "b", 0, Replaced((Message("user", (Text("kept"), Image("image/png", b"")), 0),))
        ),
        Entry("d", "c", 0, Message("assistant", (Reasoning("hm", ""), Text("ok"), CALL, lost), 0)),
        Entry("e", "d", 0, ResultNote(ToolResult("c1", (Text("noted"),)))),
        Entry("f", "e", 0, Message("tool", (ToolResult("c1", (Text("done"),)),), 0)),
        Entry("g", "f", 0, Message("assistant", (Reasoning("", ""), Text("")), 0)),
    ]
    updates = [shown(update) for update in history(entries, "/w")]
    assert outline(updates) == (
        "user_message_chunk agent_thought_chunk agent_message_chunk "
        "tool_call[c1 completed content] tool_call[c9 failed]"
    )
    assert "done" in json.dumps(updates)
    assert "gone" not in json.dumps(updates)
