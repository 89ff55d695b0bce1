import threading
import time

import pytest

from zot.cancel import Cancel
from zot.errors import Cancelled, ConfigError, NetworkError, ProviderError, RateLimited
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.scripted import ScriptedProvider, ScriptedTurn
from zot.provider.types import (
    Finished,
    Message,
    Reasoning,
    ReasoningDelta,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
)


def ask(text="hello"):
    return Request(MODEL, "", (Message("user", (Text(text),), 0.0),))


def play(provider, text="hello"):
    return list(provider.stream(ask(text), Cancel()))


def test_a_string_is_a_turn_with_one_delta():
    assert play(ScriptedProvider(["hi"])) == [
        Started(),
        TextDelta("hi"),
        UsageSeen(Usage()),
        Finished((Text("hi"),), "end", Usage()),
    ]


def test_thinking_text_and_tools_come_in_order():
    turn = {
        "thinking": ["a", "b"],
        "text": ["c", "d"],
        "tools": [{"name": "bash", "args": {"command": "ls"}}, {"name": "read", "id": "mine"}],
        "usage": {"input": 5, "output": 2, "reasoning": 1},
    }
    events = play(ScriptedProvider([turn]))
    assert events == [
        Started(),
        ReasoningDelta("a"),
        ReasoningDelta("b"),
        TextDelta("c"),
        TextDelta("d"),
        ToolCallStart("call_1", "bash"),
        ToolCallArgs("call_1", '{"command":"ls"}'),
        ToolCallEnd("call_1"),
        ToolCallStart("mine", "read"),
        ToolCallArgs("mine", "{}"),
        ToolCallEnd("mine"),
        UsageSeen(Usage(5, 2, 0, 0, 1)),
        Finished(
            (
                Reasoning("ab", "scripted"),
                Text("cd"),
                ToolCall("call_1", "bash", {"command": "ls"}),
                ToolCall("mine", "read", {}),
            ),
            "tool_use",
            Usage(5, 2, 0, 0, 1),
        ),
    ]


def test_ids_differ_between_turns():
    provider = ScriptedProvider([{"tools": [{"name": "a"}]}, {"tools": [{"name": "b"}]}])
    ids = [play(provider)[-1].content[0].id for _ in range(2)]
    assert ids == ["call_1", "call_2"]


def test_raw_arguments_are_kept_as_they_were_written():
    calls = [{"name": "bash", "raw_args": '{"a'}, {"name": "bash", "raw_args": '{"a":1}'}]
    finished = play(ScriptedProvider([{"tools": calls}]))[-1]
    assert [call.args for call in finished.content] == [None, {"a": 1}]
    assert finished.content[0].raw == '{"a'


def test_an_error_carries_status_and_retry_after():
    error = {"status": 429, "message": "slow down", "retry_after": 2}
    provider = ScriptedProvider([{"error": error}])
    with pytest.raises(RateLimited, match="scripted: http 429: slow down") as caught:
        play(provider)
    assert (caught.value.status, caught.value.retry_after) == (429, 2)


def test_an_error_without_status_and_after_content():
    provider = ScriptedProvider([{"text": "half", "error": {"message": "broke"}}])
    seen = []
    with pytest.raises(ProviderError, match="scripted: broke"):
        seen.extend(provider.stream(ask(), Cancel()))
    stream = ScriptedProvider([{"text": "half", "error": {}}]).stream(ask(), Cancel())
    assert [next(stream), next(stream)] == [Started(), TextDelta("half")]


@pytest.mark.parametrize(("after", "seen"), [(0, 1), (1, 2), (9, 3)])
def test_a_cut_turn_is_an_error_after_that_many_deltas(after, seen):
    stream = ScriptedProvider([{"text": ["a", "b"], "cut_after": after}]).stream(ask(), Cancel())
    events = []
    with pytest.raises(NetworkError):
        for event in stream:
            events.append(event)
    assert len(events) == seen


def test_past_the_last_turn_is_a_clear_error():
    provider = ScriptedProvider(["one"])
    play(provider)
    with pytest.raises(ProviderError, match="no turn is left for the message 'hello'"):
        play(provider)
    assert len(provider.requests) == 2


def test_match_chooses_by_the_last_user_message():
    provider = ScriptedProvider(
        [{"match": "weather", "text": "sunny", "repeat": True}, {"text": "first"}]
    )
    answers = [play(provider, text)[1].text for text in ("the weather?", "hi", "weather")]
    assert answers == ["sunny", "first", "sunny"]
    with pytest.raises(ProviderError):
        list(provider.stream(Request(MODEL, "", (Message("tool", (), 0.0),)), Cancel()))


def test_a_delay_ends_at_abort():
    cancel = Cancel()
    stream = ScriptedProvider([{"text": "late", "delay_ms": 60_000}]).stream(ask(), cancel)
    assert next(stream) == Started()
    threading.Timer(0.05, cancel.set).start()
    start = time.monotonic()
    with pytest.raises(Cancelled):
        next(stream)
    assert time.monotonic() - start < 10


def test_many_threads_play_every_turn_once():
    provider = ScriptedProvider([str(n) for n in range(64)])
    got, threads = [], []
    for _ in range(8):
        thread = threading.Thread(
            target=lambda: got.extend(play(provider)[1].text for _ in range(8))
        )
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [str(n) for n in range(64)]


def test_a_file_is_read(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('{"turns":[{"text":["a","b"],"stop":"length"}]}')
    assert play(ScriptedProvider.from_file(str(path)))[-1].stop == "length"


@pytest.mark.parametrize("text", ['{"turns":[{"txt":1}]}', "[]", "{", "[" * 100_000])
def test_a_broken_file_is_a_config_error_that_names_it(tmp_path, text):
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="script.json"):
        ScriptedProvider.from_file(str(path))


def test_a_missing_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the script"):
        ScriptedProvider.from_file(str(tmp_path / "none.json"))


def test_a_turn_that_is_not_one_is_a_config_error():
    with pytest.raises(ConfigError, match="not a scripted turn"):
        ScriptedProvider([{"colour": "red"}])


def test_it_says_that_it_is_not_a_model():
    assert MODEL.id == "scripted"
    assert MODEL.name == "scripted (not a model)"
    provider = ScriptedProvider([ScriptedTurn(text="x")])
    provider.close()
    assert provider.name == "scripted"
