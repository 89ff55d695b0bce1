"""What recordings of real servers showed: each of these answers was once read wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.provider import ask, assistant, model_of

from zot.errors import ProviderError, Refused
from zot.provider.client import load_wire
from zot.provider.google import put
from zot.provider.providers import Quirks
from zot.provider.turns import EncodedTurns
from zot.provider.types import ReasoningDelta, Text
from zot.text import encode_json

COMPLETED = {"type": "response.completed", "response": {"status": "completed"}}


def read(api, *events):
    reader = load_wire(api).reader("test")
    for event in events:
        reader.read(json.dumps(event).encode())
    return reader


def finish(api, *events):
    return read(api, *events).finish()


def item(kind, index=0, **fields):
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": fields}


def test_a_servers_own_tool_with_object_arguments_is_passed_over():
    search = {"type": "tool_search_call", "id": "ts", "arguments": {"queries": ["a"]}}
    text = {"type": "response.output_text.delta", "output_index": 1, "delta": "hi"}
    done = finish(
        "openai-responses", item("added", **search), item("done", **search), text, COMPLETED
    )
    assert done.content == (Text("hi"),)


def test_a_thought_that_ends_after_the_text_is_told_once_and_stands_before_it():
    summary = [{"type": "summary_text", "text": "why"}]
    reader = read(
        "openai-responses",
        item("added", 0, type="reasoning", id="r"),
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "why"},
        item("added", 1, type="message"),
        {"type": "response.output_text.delta", "output_index": 1, "delta": "he"},
        item("done", 0, type="reasoning", id="r", summary=summary, encrypted_content="enc"),
        {"type": "response.output_text.delta", "output_index": 1, "delta": "llo"},
        COMPLETED,
    )
    assert [e for e in reader.out.take() if isinstance(e, ReasoningDelta)] == [
        ReasoningDelta("why")
    ]
    thought, text = reader.finish().content
    assert (thought.text, thought.opaque["item"]["encrypted_content"]) == ("why", "enc")
    assert text == Text("hello")


def test_a_thought_without_words_or_cipher_is_no_block():
    done = finish(
        "openai-responses",
        item("added", 0, type="reasoning", id="r"),
        {"type": "response.output_text.delta", "output_index": 1, "delta": "x"},
        COMPLETED,
    )
    assert done.content == (Text("x"),)


def test_usage_that_only_groq_has_is_counted():
    chunk = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    done = finish("openai-chat", {**chunk, "x_groq": {"id": "r", "usage": usage}})
    assert (done.usage.input, done.usage.output) == (7, 3)
    with pytest.raises(ProviderError, match="over_capacity"):
        finish("openai-chat", {"x_groq": {"error": "over_capacity"}})


def candidate(*parts, finish=None):
    row = {"content": {"parts": list(parts)}}
    return {"candidates": [{**row, "finishReason": finish} if finish else row]}


def test_the_signature_of_a_text_goes_back_with_the_text():
    done = finish(
        "google",
        candidate({"text": "a"}),
        candidate({"text": "b", "thoughtSignature": "s1"}),
        candidate({"text": "", "thoughtSignature": "s2"}, finish="STOP"),
    )
    assert "".join(b.text for b in done.content if isinstance(b, Text)) == "ab"
    model = model_of("google")
    request = ask(model, "q", assistant(model, *done.content), "next")
    body = json.loads(encode_json(load_wire("google").body(request, Quirks(), EncodedTurns())))
    assert body["contents"][1]["parts"] == [
        {"text": "ab", "thoughtSignature": "s1"},
        {"text": "", "thoughtSignature": "s2"},
    ]


@pytest.mark.parametrize("reason", ["MODEL_ARMOR", "SAFETY", "IMAGE_PROHIBITED_CONTENT", "NEW_ONE"])
def test_a_filters_stop_is_no_normal_end(reason):
    with pytest.raises(Refused, match=reason):
        finish("google", candidate({"text": "a"}, finish=reason))


def test_arguments_in_pieces_become_one_call():
    def call(**fields):
        return candidate({"functionCall": fields})

    def arg(path, **value):
        return {"jsonPath": path, **value}

    done = finish(
        "google",
        call(name="bash", id="c1", willContinue=True),
        call(partialArgs=[arg("$.command", stringValue="ls ")], willContinue=True),
        call(partialArgs=[arg("$.command", stringValue="-l")], willContinue=True),
        call(partialArgs=[arg("$.list[0].n", numberValue=2), arg("$.on", boolValue=True)]),
        call(),
        call(name="read", args={"path": "x"}),
        candidate(finish="STOP"),
    )
    assert [(c.name, c.args) for c in done.content] == [
        ("bash", {"command": "ls -l", "list": [{"n": 2}], "on": True}),
        ("read", {"path": "x"}),
    ]


@given(st.text(max_size=40), st.none() | st.text(max_size=5) | st.integers())
def test_any_path_of_an_argument_is_survived(path, value):
    args = {"a": "x", "b": [1]}
    for prefix in ("", "$.", "$.b[", "$.a."):
        put(args, prefix + path, value)
    encode_json(args)


def test_an_answer_that_came_whole_needs_no_reason_to_stop():
    whole = {"choices": [{"message": {"content": "x"}, "finish_reason": ""}]}
    assert finish("openai-chat", whole).content == (Text("x"),)


# --- the script that replays recordings --------------------------------------------------------

SCRIPT = Path(__file__).parents[2] / "scripts" / "replay_recordings.py"
CASSETTE = """
interactions:
- request: {method: POST, uri: https://api.example/v1/chat/completions}
  response:
    status: {code: 200}
    body:
      string: |
        data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}

        data: [DONE]
- request: {method: POST, uri: https://api.example/v1/messages}
  response: {status: {code: 529}, body: {string: '{"error":{"message":"busy"}}'}}
"""


@pytest.mark.parametrize(("end", "wrong"), [("STOP", 0), (None, 1)])
def test_recordings_are_replayed_and_judged(tmp_path, end, wrong):
    cassette = tmp_path / "tests" / "cassettes" / "one.yaml"
    fixture = tmp_path / "packages" / "google" / "src" / "__fixtures__" / "x.chunks.txt"
    for path, text in ((cassette, CASSETTE), (fixture, json.dumps(candidate(finish=end)))):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True)
    assert f"3 answers, {wrong} wrong" in done.stdout, done.stderr
    assert done.returncode == wrong
