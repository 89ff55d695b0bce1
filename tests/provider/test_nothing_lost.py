"""Parts of an answer that are easily lost: pauses, tools of the server, citations, refusals, whole
items, thoughts in tags."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.canned import CannedServer
from support.provider import ask, assistant, client, model_of, run, tool, user

from zot.errors import Refused
from zot.provider.client import load_wire
from zot.provider.openai_chat import ThinkTags
from zot.provider.providers import PROVIDERS, resolve_quirks
from zot.provider.types import Finished, Reasoning, Text, TextDelta, ToolCall, ToolResult
from zot.testing.fakeserver import FakeServer

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]}
CITED = {"type": "web_search_result_location", "url": "u", "cited_text": "c"}


def anthropic(*blocks, stop="end_turn", details=None):
    """An answer; a block is what begins it and the deltas that follow."""
    events = [{"type": "message_start", "message": {"usage": {"input_tokens": 10}}}]
    for index, (start, *deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_details": details}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}})
    return [*events, {"type": "message_stop"}]


def text(words):
    return {"type": "text", "text": ""}, {"type": "text_delta", "text": words}


def test_a_paused_answer_is_continued_with_all_of_its_blocks():
    query = {"type": "input_json_delta", "partial_json": '{"query": "x"}'}
    cited = {"type": "citations_delta", "citation": CITED}
    first = anthropic(text("I look."), ({**SEARCH, "input": {}}, query), stop="pause_turn")
    second = anthropic((FOUND,), (*text("It is so."), cited))
    model = model_of("anthropic")
    server = CannedServer(first, second, anthropic(text("ok")))
    with server, client("anthropic", server.url) as made:
        request = ask(model, "find it")
        events, error = run(made, request)
        assert error is None
        last = events[-1]
        assert [event.text for event in events if isinstance(event, TextDelta)] == [
            "I look.",
            "It is so.",
        ]
        assert (last.stop, last.paused, last.usage.input, last.usage.output) == (
            *("end", False),
            *(20, 10),
        )
        said = assistant(model, *last.content)
        run(made, ask(model, "find it", said, user("and?")))
    whole = [
        {"type": "text", "text": "I look."},
        {**SEARCH, "input": {"query": "x"}},
        FOUND,
        {"type": "text", "text": "It is so.", "citations": [CITED]},
    ]
    continued = server.bodies[1]["messages"]
    assert [message["role"] for message in continued] == ["user", "assistant"]
    assert continued[1]["content"][0] == whole[0]
    assert continued[1]["content"][1].items() >= whole[1].items()
    assert server.bodies[2]["messages"][1]["content"] == whole


def test_a_refusal_is_explained():
    details = {"type": "refusal", "category": "cyber", "explanation": "It asks for an exploit."}
    server = CannedServer(anthropic(stop="refusal", details=details))
    with server, client("anthropic", server.url) as made:
        _, error = run(made, ask(model_of("anthropic"), "go"))
    assert isinstance(error, Refused)
    assert str(error).endswith("refused to answer: cyber: It asks for an exploit.")


def read(api, *events):
    reader = load_wire(api).reader("test")
    for event in events:
        reader.read(json.dumps(event).encode())
    return reader.finish()


MESSAGE = {
    "type": "message",
    "content": [{"type": "output_text", "text": "hi", "annotations": [{"url": "u"}]}],
}
CALL = {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "*** x"}
DONE = {"type": "response.completed", "response": {"status": "completed"}}
WHOLE = (
    Text("hi", {"annotations": [{"url": "u"}]}),
    ToolCall("c", "bash", {}),
    ToolCall("custom-d", "apply_patch", {"input": "*** x"}),
)


def test_items_that_come_whole():
    items = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate((MESSAGE, CALL, CUSTOM))
    ]
    assert read("openai-responses", *items, DONE).content == WHOLE
    response = {"status": "completed", "output": [MESSAGE, CALL, CUSTOM]}
    assert read("openai-responses", {**DONE, "response": response}).content == WHOLE


def test_a_streamed_message_is_not_said_twice():
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "hi"}
    added = {"type": "response.output_text.annotation.added", "annotation": {"url": "u"}}
    done = {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}
    assert read("openai-responses", delta, added, done, DONE).content == WHOLE[:1]


def test_a_custom_call_goes_back_as_one():
    model = model_of("azure")
    said = assistant(model, WHOLE[2], stop="tool_use")
    result = tool(ToolResult("custom-d", (Text("ok"),), name="apply_patch"))
    with CannedServer([DONE]) as server, client("azure", server.url) as made:
        run(made, ask(model, "go", said, result))
    call, output = server.bodies[0]["input"][-2:]
    assert call == {**CUSTOM}
    assert output == {"type": "custom_tool_call_output", "call_id": "d", "output": "ok"}


def chat(*pieces):
    chunks = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    return read("openai-chat", *chunks, {"choices": [{"delta": {}, "finish_reason": "stop"}]})


def test_thoughts_in_tags_are_thoughts():
    answer = chat("<thi", "nk>\nhm", " ok</th", "ink>\n\nThe <think>answer</think>.")
    assert answer.content == (
        Reasoning("\nhm ok", "openai-chat"),
        Text("The <think>answer</think>."),
    )
    assert chat("a <think>b</think>").content == (Text("a <think>b</think>"),)
    assert chat("<thi").content == (Text("<thi"),)
    assert chat("<think>never ended").content == (Reasoning("never ended", "openai-chat"),)
    assert chat(" \n", "hello").content == (Text(" \nhello"),)


@given(st.text(alphabet="<>/think \na", max_size=30), st.data())
def test_tags_are_found_wherever_the_text_is_cut(words, data):
    def split(*pieces):
        tags, out = ThinkTags(), {"thought": "", "text": ""}
        for piece in pieces:
            for kind, part in tags.feed(piece):
                out[kind] += part
        for kind, part in tags.finish():
            out[kind] += part
        return out

    whole = f"<think>{words}"
    at = data.draw(st.integers(0, len(whole)))
    again = data.draw(st.integers(at, len(whole)))
    assert split(whole[:at], whole[at:again], whole[again:]) == split(whole)
    assert split(words)["text"] == words or words.lstrip().startswith("<think>")


def test_citations_of_other_apis_are_kept():
    url = {"type": "url_citation", "url_citation": {"url": "u"}}
    chunk = {
        "choices": [{"delta": {"content": "x", "annotations": [url]}, "finish_reason": "stop"}]
    }
    assert read("openai-chat", chunk).content == (Text("x", {"annotations": [url]}),)
    facts = {"groundingChunks": [{"web": {"uri": "u"}}]}
    candidate = {"content": {"parts": [{"text": "x"}]}, "groundingMetadata": facts}
    event = {"candidates": [{**candidate, "finishReason": "STOP"}]}
    assert read("google", event).content == (Text("x", {"grounding": [facts]}),)
    assert isinstance(read("google", event), Finished)


@pytest.mark.parametrize("write", [2154, 0])
def test_tokens_that_a_gateway_counts_twice_are_counted_once(write):
    details = {"cached_tokens": 2154, "cache_write_tokens": write}
    usage = {"prompt_tokens": 2168, "completion_tokens": 9, "prompt_tokens_details": details}
    chunk = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}
    assert read("openai-chat", chunk).usage.total == 2168 + 9


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses", "google"])
def test_extra_fields_reach_every_api(provider):
    search = {"type": "web_search_20250305", "name": "web_search"}
    extra = {"service_tier": "flex", "thinking": {"more": 1}, "tools": [search]}
    model = model_of(provider, compat={"extra_body": extra})
    with FakeServer() as server, client(provider, server.url) as made:
        run(made, ask(model, "text:1"))
    body = server.requests[0].body
    assert body["service_tier"] == "flex" and body["thinking"]["more"] == 1
    assert body["tools"][-1] == search and len(body["tools"]) > 1


def test_fields_of_a_provider_and_of_its_model_are_joined():
    info = replace(PROVIDERS["custom"], quirks={"extra_body": {"a": 1, "text": {"b": 1}}})
    model = model_of("custom", compat={"extra_body": {"text": {"c": 2}}})
    assert resolve_quirks(info, model).extra_body == {"a": 1, "text": {"b": 1, "c": 2}}
