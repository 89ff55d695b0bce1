import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zot.core import session as core
from zot.core.session import Compaction, Entry, Session, Title
from zot.errors import SessionError
from zot.pi.format import PI, PiTranscript, PiWriter
from zot.pi.messages import NotAMessage, from_pi, to_pi
from zot.provider import types
from zot.provider.types import Image, Message, Origin, Reasoning, Text, ToolCall, ToolResult, Usage
from zot.sessions import format
from zot.sessions.files import FileStore, load
from zot.sessions.open import open_session
from zot.sessions.rows import Meta

META = Meta("id-1", "/w", "m", "p", "2026-01-02T03:04:05.678901Z", "0.1")
ORIGIN = Origin("anthropic", "m", "anthropic", "tool_use", Usage(1, 2, 3, 4, cost=types.Cost(0.5)))


def said(text: str, role="user") -> Message:
    return Message(role, (Text(text),), 1.0)


def result(id: str) -> ToolResult:
    return ToolResult(
        id, (Text(f"out of {id}"), Image("image/png", b"\x00")), False, "bash", {"a": 1}
    )


def shown(message: Message) -> list[dict]:
    return json.loads(msgspec.json.encode(to_pi(message)))


def read(data: bytes) -> PiTranscript:
    transcript = PiTranscript()
    for number, line in enumerate(data.splitlines(), 1):
        transcript.feed(line, number)
    return transcript


def session_of(transcript: PiTranscript) -> Session:
    return Session(entries=transcript.entries().values())


def rewritten(session: Session) -> Session:
    return session_of(read(b"".join(format.lines(PI, META, [*session.entries.values()]))))


def test_a_conversation_is_the_same_after_going_through_pi():
    session = Session()
    session.append(core.ModelChange("anthropic", "m"))
    session.append(core.LevelChange("minimum"))
    session.append(Message("user", (Text("hi"), Image("image/png", b"\x01\x02")), 1.5))
    session.append(
        Message(
            "assistant",
            (
                Reasoning("hm", "anthropic", {"signature": "s"}),
                Text("will do"),
                ToolCall("a", "bash", {"command": "ls"}),
                ToolCall("b", "bash", {}, opaque={"thoughtSignature": "t"}),
            ),
            2.0,
            ORIGIN,
        )
    )
    session.append(Message("tool", (result("a"), result("b")), 3.0))
    session.append(core.UsageNote(Usage(1), Usage(2)))
    session.append(Title("a name"))
    again = rewritten(session)
    assert again.messages() == session.messages()
    assert [entry.body for entry in again.path()][:3] == [
        core.ModelChange("p", "m"),  # what a zot file has in its head
        core.ModelChange("anthropic", "m"),
        core.LevelChange("minimum"),
    ]
    assert again.path()[-1].body == Title("a name")


@pytest.mark.parametrize(
    ("api", "opaque", "signature"),
    [
        ("anthropic", {"signature": "s"}, "s"),
        ("anthropic", {"redacted": "blob"}, "blob"),
        ("google", {"thoughtSignature": "g"}, "g"),
        ("openai-responses", {"item": {"id": "r", "encrypted_content": "e"}}, None),
        ("openai-chat", {"details": [1]}, None),
        ("anthropic", None, None),
    ],
)
def test_what_a_provider_wants_back_is_where_pi_keeps_it(api, opaque, signature):
    origin = msgspec.structs.replace(ORIGIN, api=api)
    message = Message("assistant", (Reasoning("hm", api, opaque),), 1.0, origin)
    (value,) = shown(message)
    block = value["content"][0]
    assert block.get("redacted", False) == bool(opaque and "redacted" in opaque)
    if signature:
        assert block["thinkingSignature"] == signature
    assert from_pi(value).content == message.content


def test_a_signature_that_is_no_item_is_not_sent_back():
    value = {"role": "assistant", "api": "openai-responses", "content": []}
    for text in ("plain", "[]", ""):
        value["content"] = [{"type": "thinking", "thinking": "x", "thinkingSignature": text}]
        assert from_pi(value).content == (Reasoning("x", "openai-responses"),)


def test_rows_have_the_fields_pi_wants():
    writer = PiWriter(Meta("id-1", "/w", started=META.started))
    entry = Entry("0000000b", "0000000a", 1.0, Message("tool", (result("a"), result("b")), 2.0))
    first, second = (json.loads(row) for row in writer.entry(entry, Session()).splitlines())
    assert json.loads(writer.head()) == {
        "type": "session",
        "version": 3,
        "id": "id-1",
        "timestamp": "2026-01-02T03:04:05.678Z",
        "cwd": "/w",
    }
    assert json.loads(PI.writer(Meta(parent="/old"), None).head())["parentSession"] == "/old"
    assert (first["parentId"], second["parentId"]) == ("0000000a", first["id"])
    assert second["id"] == "0000000b"
    assert first["timestamp"] == "1970-01-01T00:00:01.000Z"
    assert first["message"] == {
        "role": "toolResult",
        "toolCallId": "a",
        "toolName": "bash",
        "content": [
            {"type": "text", "text": "out of a"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
        ],
        "details": {"a": 1},
        "isError": False,
        "timestamp": 2000,
    }
    (assistant,) = shown(Message("assistant", (Text("x"),), 1.0, ORIGIN))
    assert assistant["usage"]["totalTokens"] == 10
    assert assistant["usage"]["cost"]["total"] == 0.5
    assert (assistant["api"], assistant["stopReason"]) == ("anthropic-messages", "toolUse")
    failed = Origin("p", "m", "google", "error", error="no")
    (message,) = shown(Message("assistant", (), 1.0, failed))
    assert (message["errorMessage"], message["api"]) == ("no", "google-generative-ai")
    assert from_pi(message).origin == failed


def test_results_written_as_they_came_are_not_written_twice():
    session = Session()
    session.append(said("go"))
    session.append(
        Message("assistant", (ToolCall("a", "x", {}), ToolCall("b", "x", {})), 1.0, ORIGIN)
    )
    session.append(core.ResultNote(result("a")))
    session.append(core.ResultNote(result("b")))
    session.append(Message("tool", (result("a"), result("b")), 3.0))
    session.append(said("more", "assistant"))
    again = rewritten(session)
    assert [message.content for message in again.messages()] == [
        message.content for message in session.messages()
    ]


def test_a_cleared_conversation_is_a_new_root_and_so_is_a_replaced_one():
    session = Session()
    session.append(said("old"))
    session.append(core.Cleared())
    session.append(said("new"))
    assert rewritten(session).messages() == (said("new"),)
    session.append(core.Replaced((said("a"), said("b", "assistant"))))
    session.append(said("c"))
    again = rewritten(session).messages()
    assert [message.content[0].text for message in again] == ["a", "b", "c"]


def test_branches_labels_and_compactions_point_to_the_right_rows():
    session = Session()
    first = session.append(said("a"))
    session.append(
        Message("assistant", (ToolCall("x", "t", {}), ToolCall("y", "t", {})), 1.0, ORIGIN)
    )
    tools = session.append(Message("tool", (result("x"), result("y")), 2.0))
    session.append(core.Label(tools.id, "here"))
    session.append(Compaction("sum", tools.id, 5, usage=Usage(1), details={"k": 1}))
    after = rewritten(session)
    assert len(after.messages()) == len(session.messages()) == 2
    assert after.messages()[1].content == session.messages()[1].content
    session.move(first.id)
    session.append(said("other branch"))
    session.append(core.Custom("mine", {"x": 1}))
    again = rewritten(session)
    assert [message.content[0].text for message in again.messages()] == ["a", "other branch"]
    assert again.path()[-1].body == core.Custom("custom", {"customType": "mine", "data": {"x": 1}})


V1 = [
    {"type": "session", "id": "s", "timestamp": "2025-01-01T00:00:00Z", "cwd": "/w"}
    | {"provider": "anthropic", "modelId": "claude", "thinkingLevel": "off"},
    {"type": "message", "timestamp": "2025-01-01T00:00:01Z"}
    | {"message": {"role": "user", "content": "first", "timestamp": 1000}},
    {"type": "message", "message": {"role": "user", "content": "second", "timestamp": 2000}},
    {"type": "thinking_level_change", "thinkingLevel": "high"},
    {"type": "message", "message": {"role": "user", "content": "third"}},
    {"type": "compaction", "summary": "sum", "firstKeptEntryIndex": 4, "tokensBefore": 9},
    {"type": "model_change", "provider": "openai", "modelId": "gpt"},
]


def lines(rows) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def test_version_1_is_read_with_ids_in_order():
    transcript = read(lines(V1))
    assert (transcript.version, transcript.bad) == (1, [])
    assert transcript.meta.model == "claude"
    texts = [message.content[0].text for message in session_of(transcript).messages()]
    assert texts == ["## Context Summary (compacted)\n\nsum", "third"]


def test_version_2_names_of_hook_messages_are_read():
    hook = {"role": "hookMessage", "customType": "h", "content": "told", "display": True}
    rows = [
        {"type": "session", "version": 2, "id": "s"},
        {"type": "message", "id": "0000000a", "parentId": None, "message": hook},
    ]
    (message,) = session_of(read(lines(rows))).messages()
    assert message.content == (Text("told"),)
    assert to_pi(message) == [{**hook, "role": "custom"}]


def test_rows_only_pi_has_reach_the_model_or_are_kept():
    bash = {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 2}
    bash |= {"cancelled": False, "truncated": True, "fullOutputPath": "/f"}
    rows = [
        {"type": "session", "version": 3, "id": "s"},
        {"type": "message", "id": "1", "parentId": None, "message": bash},
        {"type": "message", "id": "2", "parentId": "1"}
        | {"message": {**bash, "excludeFromContext": True}},
        {"type": "message", "id": "3", "parentId": "2"}
        | {"message": {"role": "bashExecution", "command": "x", "cancelled": True}},
        {"type": "branch_summary", "id": "4", "parentId": "3", "fromId": "1", "summary": "was"},
        {"type": "custom_message", "id": "5", "parentId": "4", "customType": "c", "content": "hey"},
        {"type": "custom_message", "id": "6", "parentId": "5", "customType": "c", "content": []},
        {"type": "context_edit", "id": "7", "parentId": "6", "targetId": "1", "replacement": None},
        {"type": "message", "id": "8", "parentId": "7", "message": {"role": "system"}},
        {"type": "session_info", "id": "9", "parentId": "8", "name": "N"},
        {"type": "label", "id": "10", "parentId": "9", "targetId": "1", "label": "L"},
    ]
    transcript = read(lines(rows))
    assert transcript.bad == []
    texts = [message.content[0].text for message in session_of(transcript).messages()]
    assert texts == [
        "Ran `ls`\n```\na\n```\nExit code 2\n(cut; all of it is in /f)",
        "Ran `x`\n(no output)\n(it was cancelled)",
        "was",
        "hey",
    ]
    entries = transcript.entries()
    assert entries["7"].body == core.Custom("context_edit", {"targetId": "1", "replacement": None})
    assert entries["10"].body == core.Label("1", "L")
    encoded = [
        json.loads(row)
        for row in b"".join(format.lines(PI, META, [*entries.values()])).splitlines()
    ]
    assert [row["type"] for row in encoded[2:]][6] == "context_edit"
    assert encoded[2]["message"] == bash


@pytest.mark.parametrize(
    ("word", "level"), [("off", "off"), ("minimal", "minimum"), ("xhigh", "xhigh"), ("max", "max")]
)
def test_every_level_of_pi_is_one_of_ours(word, level):
    row = {"type": "thinking_level_change", "id": "1", "thinkingLevel": word}
    session = session_of(read(lines([{"type": "session"}, row])))
    assert session.path()[-1].body == core.LevelChange(level)
    assert rewritten(session).path()[-1].body == core.LevelChange(level)


def test_a_level_that_nobody_knows_changes_nothing_and_is_kept():
    row = {"type": "thinking_level_change", "id": "1", "thinkingLevel": "galactic"}
    session = session_of(read(lines([{"type": "session"}, row])))
    assert session.path()[-1].body == core.Custom(row["type"], {"thinkingLevel": "galactic"})
    assert rewritten(session).path()[-1].body == session.path()[-1].body


def test_what_pi_keeps_from_a_row_that_is_no_message_on_is_kept():
    messages = [
        {"type": "message", "id": str(number), "message": {"role": "user", "content": str(number)}}
        for number in range(5)
    ]
    model = {"type": "model_change", "id": "m", "provider": "p", "modelId": "x"}
    cut = {"type": "compaction", "id": "c", "summary": "sum", "firstKeptEntryId": "m"}
    session = session_of(
        read(lines([{"type": "session"}, *messages[:2], model, *messages[2:], cut]))
    )
    texts = [message.content[0].text for message in session.messages()]
    assert texts[1:] == ["2", "3", "4"]
    assert rewritten(session).messages() == session.messages()


def test_attachments_stay_with_their_message():
    attachments = [{"id": "a", "fileName": "x.txt"}]
    value = {"role": "user", "content": "see", "attachments": attachments, "timestamp": 1000}
    message = from_pi(value)
    assert message.extra == {"attachments": attachments}
    assert shown(message)[0]["attachments"] == attachments


def test_a_lost_parent_and_a_repeated_id_do_not_break_the_tree():
    rows = [
        {"type": "session", "version": 3, "id": "s"},
        {"type": "session_info", "id": "a", "parentId": "gone", "name": "1"},
        {"type": "session_info", "id": "a", "parentId": ["odd"], "name": "2"},
    ]
    entries = list(read(lines(rows)).entries().values())
    assert [entry.parent for entry in entries] == [None, "a"]
    assert len({entry.id for entry in entries}) == 2


@pytest.mark.parametrize("row", [b"null", b"{}", b'{"type":"message"}', b"\xff"])
def test_garbage_is_left_out_with_its_line_number(row):
    transcript = PiTranscript()
    assert not transcript.feed(row, 4)
    assert transcript.bad[0][0] == 4


def test_an_unknown_role_is_no_message():
    with pytest.raises(NotAMessage, match="king"):
        from_pi({"role": "king"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "text", "usage", "cost", "data", "id", "summary"]
            ),
            inner,
        )
    ),
    max_leaves=8,
)
types = st.sampled_from(
    ["message", "session", "compaction", "label", "model_change", "branch_summary", "custom", "?"]
)
roles = st.sampled_from(["user", "assistant", "toolResult", "bashExecution", "custom"])


@settings(max_examples=100, deadline=None)
@given(
    type=types,
    rest=st.dictionaries(
        st.sampled_from(
            ["id", "parentId", "timestamp", "version", "summary", "usage", "firstKeptEntryIndex"]
        ),
        json_values,
    ),
    role=roles,
    message=json_values,
)
@pytest.mark.slow
def test_no_row_breaks_the_reader(type, rest, role, message):
    if isinstance(message, dict):
        message = {**message, "role": role}
    data = msgspec.json.encode({**rest, "type": type, "message": message})
    transcript = PiTranscript()
    transcript.feed(data, 1)
    session_of(transcript).messages()


def test_a_pi_file_can_be_opened_and_continued(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(V1))
    path.chmod(0o600)
    session = open_session(str(path), "/w")
    assert session.last_model == ("openai", "gpt")
    session.append(Message("assistant", (Text("half \ud83d"),), 5.0, ORIGIN))
    session.append(core.UsageNote(Usage(1), Usage(1)))
    session.append(said("and on"))
    session.close()
    loaded = load(str(path))
    assert loaded.format == "pi"
    again = Session(entries=loaded.entries.values())
    assert [message.content[0].text for message in again.messages()][1:] == [
        "third",
        "half \ufffd",
        "and on",
    ]


def test_a_file_of_a_newer_pi_is_read_but_not_added_to(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines([{**V1[0], "version": 4}, *V1[1:]]))
    path.chmod(0o600)
    assert len(load(str(path)).entries) == 7
    with pytest.raises(SessionError, match="newer than 3"):
        open_session(str(path), "/w")


def test_a_new_file_in_the_format_of_pi(tmp_path):
    path = tmp_path / "s.jsonl"
    store = FileStore.create(str(path), META, format="pi")
    session = Session(id="id-1", store=store)
    store.follow(session)
    session.append(said("hi"))
    session.close()
    head, model, row = path.read_bytes().splitlines()
    assert json.loads(head)["version"] == 3
    assert json.loads(model)["parentId"] is None
    assert json.loads(row)["parentId"] == json.loads(model)["id"]
