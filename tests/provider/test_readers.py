"""Events one by one: what each API's reader makes of the odd ones."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zot.errors import BadResponse, ContextTooLong, Overloaded, ProviderError, Refused
from zot.provider.assemble import MAX_ANSWER, decode, parse_args
from zot.provider.client import load_wire
from zot.provider.types import (
    Reasoning,
    Text,
    TextDelta,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from zot.text import whole_value

APIS = ("anthropic", "openai-chat", "openai-responses", "google")


BEGIN = {"type": "message_start", "message": {}}


def read(api, *events):
    if (
        api == "anthropic"
        and events
        and isinstance(events[0], dict)
        and events[0]["type"] != BEGIN["type"]
    ):
        events = (BEGIN, *events)
    return read_exactly(api, *events)


def read_exactly(api, *events):
    reader = load_wire(api).reader("test")
    for event in events:
        reader.read(event if isinstance(event, bytes) else json.dumps(event).encode())
    return reader


def finish(api, *events):
    return read(api, *events).finish()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("data", [b"[1,2]", b"null", b"{", b"3", b"\xff", b'"x"', b"[" * 100_000])
def test_what_is_no_event_is_an_error_that_shows_it(api, data):
    with pytest.raises(BadResponse, match="test: cannot read an event"):
        read(api, data)


@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_never_began_was_cut(api):
    with pytest.raises(BadResponse, match="ended before it was complete") as caught:
        finish(api)
    assert caught.value.retryable


@given(st.sampled_from(APIS), st.lists(st.binary() | st.just(b'{"type":"error"}'), max_size=3))
def test_no_bytes_make_a_reader_raise_anything_else(api, events):
    try:
        finish(api, *events)
    except ProviderError:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
def test_an_answer_without_end_is_an_error_before_it_fills_the_memory(api):
    piece = "x" * (MAX_ANSWER // 8)
    reader = load_wire(api).reader("test")
    with pytest.raises(BadResponse, match="more than 16777216 characters"):
        for _ in range(9):
            reader.out.text(piece)
    reader = load_wire(api).reader("test")
    with pytest.raises(BadResponse, match="more than"):
        for number in range(MAX_ANSWER):
            reader.out.open_call(f"call{number}", "bash")


# --- Anthropic -------------------------------------------------------------------------------

STOP = {"type": "message_stop"}


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, kind, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def test_two_text_blocks_stay_two():
    done = finish(
        "anthropic",
        start(0, type="text", text="a"),
        {"type": "content_block_stop", "index": 0},
        start(1, type="text", text="b"),
        STOP,
    )
    assert done.content == (Text("a"), Text("b"))


def test_signed_and_redacted_thoughts_are_kept():
    done = finish(
        "anthropic",
        start(0, type="thinking", thinking="hm", signature="s1"),
        start(1, type="redacted_thinking", data="xyz"),
        start(2, type="redacted_thinking", data="abc"),
        start(3, type="thinking", thinking="", signature=""),
        delta(3, "signature_delta", signature="only"),
        STOP,
    )
    assert done.content == (
        Reasoning("hm", "anthropic", {"signature": "s1"}),
        Reasoning("", "anthropic", {"redacted": "xyz"}),
        Reasoning("", "anthropic", {"redacted": "abc"}),
        Reasoning("", "anthropic", {"signature": "only"}),
    )


def test_a_call_with_its_arguments_in_the_start():
    reader = read("anthropic", start(0, type="tool_use", id="t", name="bash", input={"a": 1}), STOP)
    reader.out.close_calls()
    assert reader.out.take() == [
        ToolCallStart("t", "bash"),
        ToolCallArgs("t", '{"a":1}'),
        ToolCallEnd("t"),
    ]
    assert reader.finish().content == (ToolCall("t", "bash", {"a": 1}),)


def test_what_this_client_does_not_know_is_passed_over():
    done = finish(
        "anthropic",
        {"type": "ping"},
        {"type": "a_new_event", "x": [1]},
        start(0, type="server_tool_use", id="s", name="web"),
        delta(0, "input_json_delta", partial_json="{}"),
        delta(0, "citations_delta"),
        start(1, type="text", text=""),
        delta(1, "text_delta", text="hi"),
        {"type": "message_delta"},
        {"type": "content_block_stop", "index": 9},
        STOP,
    )
    search = {"type": "server_tool_use", "id": "s", "name": "web"}
    assert done.content == (Reasoning("", "anthropic", {"block": search}), Text("hi"))


@pytest.mark.parametrize("kind", ["content_block_delta", "content_block_start"])
def test_an_event_without_what_it_is_about_is_an_error(kind):
    with pytest.raises(BadResponse):
        read("anthropic", {"type": kind, "index": 0})


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "end"),
        ("something_new", "end"),
        ("tool_use", "end"),
    ],
)
def test_anthropic_reasons_to_stop(reason, stop):
    end = {"type": "message_delta", "delta": {"stop_reason": reason}}
    assert finish("anthropic", start(0, type="text", text="x"), end, STOP).stop == stop


TEXT = [start(0, type="text"), delta(0, "text_delta", text="a")]
CLOSED = {"type": "content_block_stop", "index": 0}
END_TURN = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([STOP], "message_stop came before message_start"),
        ([{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}], "before message_start"),
        (TEXT, "content_block_start came before message_start"),
        (TEXT[1:], "text_delta for block 0, which is not open"),
        ([BEGIN, TEXT[1]], "text_delta for block 0, which is not open"),
        ([BEGIN, *TEXT, CLOSED, TEXT[1]], "text_delta for block 0, which is not open"),
        ([BEGIN, *TEXT, BEGIN], "message_start came twice in one answer"),
        ([BEGIN, BEGIN], "message_start came twice in one answer"),
    ],
)
def test_messages_out_of_order_are_no_answer(events, text):
    with pytest.raises(BadResponse, match=text):
        read_exactly("anthropic", *events)


def test_a_gateway_may_begin_the_same_message_twice():
    begin = {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 7}}}
    done = finish("anthropic", begin, begin, *TEXT, CLOSED, END_TURN, STOP)
    assert done.usage.input == 7
    other = {"type": "message_start", "message": {"id": "m2"}}
    for events in ([begin, other], [begin, *TEXT, begin], [begin, *TEXT, CLOSED, begin]):
        with pytest.raises(BadResponse, match="message_start came twice"):
            read_exactly("anthropic", *events)


def test_a_message_may_have_its_content_when_it_begins():
    block = {"type": "tool_use", "id": "t1", "name": "roll", "input": {"player": 1}}
    message = {"content": [block], "stop_reason": "tool_use", "usage": {"output_tokens": 3}}
    done = finish("anthropic", {"type": "message_start", "message": message}, STOP)
    assert (done.stop, done.content, done.usage.output) == (
        "tool_use",
        (ToolCall("t1", "roll", {"player": 1}),),
        3,
    )


def test_a_message_that_only_begins_and_ends_was_cut():
    with pytest.raises(BadResponse, match="ended before it was complete") as caught:
        finish("anthropic", BEGIN, STOP)
    assert caught.value.retryable


def test_a_cut_tool_call_at_the_limit_is_not_a_tool_turn():
    end = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
    call = start(0, type="tool_use", id="t", name="bash")
    half = delta(0, "input_json_delta", partial_json='{"com')
    done = finish("anthropic", call, half, end, STOP)
    assert done.stop == "length"
    assert done.content[0].args is None


def test_usage_of_later_events_overwrites_what_they_name():
    begin = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    end = {"type": "message_delta", "usage": {"output_tokens": 7, "cache_read_input_tokens": None}}
    done = finish("anthropic", begin, start(0, type="text", text="a"), end, STOP)
    assert done.usage == Usage(input=9, output=7)


def test_anthropic_says_how_long_entries_live_and_how_a_call_was_served():
    counts = {
        "input_tokens": 9,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "service_tier": "standard",
        "inference_geo": "us",
    }
    begin = {"type": "message_start", "message": {"usage": counts}}
    end = {"type": "message_delta", "usage": {"output_tokens": 7}}
    done = finish("anthropic", begin, start(0, type="text", text="a"), end, STOP)
    expected = Usage(9, 7, 0, 30, cache_write_long=20, service="standard us")
    assert done.usage == expected


def test_an_error_without_words():
    with pytest.raises(Overloaded):
        read("anthropic", {"type": "error"})


# --- OpenAI Responses --------------------------------------------------------------------------

COMPLETED = {"type": "response.completed", "response": {"status": "completed"}}


def item(kind, index=0, **fields):
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": fields}


def test_thoughts_in_parts_are_joined_and_kept():
    part = {"type": "response.reasoning_summary_part.added"}
    say = {"type": "response.reasoning_summary_text.delta", "delta": "a"}
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "a"}]
    end = item("done", type="reasoning", id="r1", summary=summary, encrypted_content="enc")
    done = finish(
        "openai-responses",
        item("added", type="reasoning", id="r1"),
        part,
        say,
        part,
        say,
        end,
        COMPLETED,
    )
    thought = done.content[0]
    assert thought.text == "a\n\na"
    assert thought.opaque["item"]["encrypted_content"] == "enc"
    assert thought.opaque["item"]["id"] == "r1"


def test_thoughts_that_come_only_whole():
    end = item("done", type="reasoning", id="r", summary=[{"type": "summary_text", "text": "why"}])
    late = {"type": "reasoning", "id": "r", "encrypted_content": "late"}
    closing = {"type": "response.completed", "response": {"output": [late, {"type": "message"}]}}
    thought = finish("openai-responses", end, closing).content[0]
    assert thought.text == "why"
    assert thought.opaque["item"]["encrypted_content"] == "late"


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([{"type": "response.created"}] * 2, "response.created came twice"),
    ],
)
def test_responses_out_of_order_are_no_answer(events, text):
    with pytest.raises(BadResponse, match=text):
        read("openai-responses", *events)


def test_a_chat_call_whose_name_never_came_is_no_answer():
    call = {"index": 0, "id": "a", "function": {"arguments": "{}"}}
    chunk = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    with pytest.raises(BadResponse, match="a tool call without a name"):
        finish("openai-chat", chunk)


def test_a_refusal_in_the_message_item():
    refusal = item("done", type="message", content=[{"type": "refusal", "refusal": "no way"}])
    with pytest.raises(Refused, match="no way"):
        finish("openai-responses", refusal, COMPLETED)


def test_a_content_filter_is_a_refusal():
    end = {
        "type": "response.incomplete",
        "response": {"incomplete_details": {"reason": "content_filter"}},
    }
    with pytest.raises(Refused, match="content filter"):
        finish("openai-responses", end)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "x"}},
            },
            Overloaded,
            "x",
        ),
        ({"type": "response.failed"}, Overloaded, "the response failed"),
        (
            {"type": "error", "code": "context_length_exceeded", "message": "long"},
            ContextTooLong,
            "long",
        ),
        ({"type": "error", "error": {"type": "x_error", "message": "m"}}, ProviderError, "m"),
    ],
)
def test_failures_inside_a_response(event, kind, text):
    with pytest.raises(kind, match=text):
        read("openai-responses", event)


def test_events_that_say_nothing_new_are_passed_over():
    done = finish(
        "openai-responses",
        b"[DONE]",
        {"type": "response.in_progress"},
        {"type": "response.output_item.added"},
        {"type": "response.output_item.done"},
        {"type": "response.code_interpreter_call_code.delta", "delta": "x"},
        {"type": "response.audio.delta", "delta": {"a": 1}},
        {"type": "response.function_call_arguments.delta", "delta": "x", "output_index": 7},
        item("done", type="web_search_call"),
        {"type": "response.output_text.delta", "delta": "hi"},
        COMPLETED,
    )
    assert done.content == (Text("hi"),)


# --- Google ------------------------------------------------------------------------------------


def candidate(*parts, **fields):
    return {"candidates": [{"content": {"parts": list(parts)}, **fields}]}


def test_signatures_are_kept_with_thoughts_and_calls():
    done = finish(
        "google",
        candidate({"text": "hm", "thought": True}),
        candidate({"text": "", "thought": True, "thoughtSignature": "s1"}),
        candidate({"functionCall": {"name": "bash"}, "thoughtSignature": "s2"}),
        candidate(finishReason="STOP"),
    )
    thought, call = done.content
    assert thought == Reasoning("hm", "google", {"thoughtSignature": "s1"})
    assert (call.args, call.opaque) == ({}, {"thoughtSignature": "s2"})
    assert call.id


def test_a_blocked_prompt_is_a_refusal():
    with pytest.raises(Refused, match="PROHIBITED_CONTENT"):
        finish("google", {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "BLOCKLIST"])
def test_a_stopped_answer_is_a_refusal(reason):
    with pytest.raises(Refused, match=reason):
        finish("google", candidate({"text": "x"}, finishReason=reason))


def test_a_malformed_call_is_worth_another_try():
    with pytest.raises(BadResponse, match="MALFORMED_FUNCTION_CALL because") as caught:
        finish("google", candidate(finishReason="MALFORMED_FUNCTION_CALL", finishMessage="because"))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 503, "message": "busy", "status": "UNAVAILABLE"}, Overloaded),
        ({"status": "INTERNAL"}, Overloaded),
        ({}, Overloaded),
    ],
)
def test_google_errors_in_a_stream(error, kind):
    with pytest.raises(kind):
        read("google", {"error": error})


def chat_usage(**usage):
    usage = {"prompt_tokens": 2_168, "completion_tokens": 5, **usage}
    chunk = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}
    return finish("openai-chat", {**chunk, "service_tier": "flex"}).usage


def test_a_gateway_names_the_cost_of_a_call():
    assert chat_usage(cost=0.25, is_byok=False).billed == 0.25
    assert chat_usage(cost=0.25).service == "flex"
    own_key = {"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}}
    assert chat_usage(**own_key).billed == pytest.approx(0.21)
    assert chat_usage(cost=0.01, is_byok=True).billed is None
    assert chat_usage(cost="1").billed is None


def test_tokens_that_were_read_from_a_cache_are_not_written_to_it_as_well():
    details = {"cached_tokens": 2_154, "cache_write_tokens": 2_154}
    assert chat_usage(prompt_tokens_details=details).total == 2_168 + 5


def test_openai_says_how_long_entries_live_and_how_a_call_was_served():
    written = {"cache_write_tokens": 30, "cache_write_tokens_details": {"ttl_12h_tokens": 20}}
    usage = {"input_tokens": 40, "output_tokens": 1, "input_tokens_details": written}
    ended = {"usage": usage, "status": "completed", "service_tier": "priority", "output": []}
    text = {"type": "response.output_text.delta", "delta": "x"}
    done = finish("openai-responses", text, {"type": "response.completed", "response": ended})
    assert done.usage == Usage(10, 1, 0, 30, cache_write_long=20, service="priority")


def test_thoughts_count_as_output():
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}
    done = finish(
        "google", {**candidate({"text": "x"}, finishReason="STOP"), "usageMetadata": usage}
    )
    assert done.usage == Usage(input=10, output=7, reasoning=4)


def test_an_event_without_candidates_or_content_is_passed_over():
    done = finish("google", {}, {"candidates": [{}]}, candidate({"text": "x"}, finishReason="STOP"))
    assert done.content == (Text("x"),)


# --- shared ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "args"),
    [
        ("", {}),
        ("  ", {}),
        ('{"a":1}', {"a": 1}),
        ("[1]", None),
        ('{"a', None),
        ("null", None),
        ('{"a":NaN}', None),
        ("{" * 100_000, None),
        ('{"a":' * 501 + "1" + "}" * 501, None),
        ('{"a":"\\ud83d"}', {"a": "\ufffd"}),
        ('{"a":"\\ud83d\\ude42"}', {"a": "\U0001f642"}),
        ('{"a":"\\\\ud83d"}', {"a": "\\ud83d"}),
    ],
)
def test_tool_arguments_are_an_object_or_nothing(raw, args):
    assert parse_args(raw) == args


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=6,
    )
)
def test_any_text_survives_json_with_escapes(value):
    body = {"v": value}
    data = json.dumps(body)  # lone halves as escapes
    assert parse_args(data) == json.loads(json.dumps(whole_value(body)))


def test_half_a_pair_on_both_sides_of_whole_ones():
    import msgspec

    decoder = msgspec.json.Decoder(str)
    data = b'"\\ude42\\ud83d\\ude42\\ud83dx\\ud83d\\ud83d\\ude42"'
    assert decode(decoder, data, "t") == "\ufffd\U0001f642\ufffdx\ufffd\U0001f642"


@pytest.mark.parametrize("api", APIS)
def test_text_deltas_are_handed_on_at_once(api):
    events = {
        "anthropic": start(0, type="text", text="x"),
        "openai-chat": {"choices": [{"delta": {"content": "x"}}]},
        "openai-responses": {"type": "response.output_text.delta", "delta": "x"},
        "google": candidate({"text": "x"}),
    }
    reader = read(api, events[api])
    assert reader.out.take() == [TextDelta("x")]
    assert reader.out.take() == []


def test_counts_that_are_no_numbers_do_not_cost_the_answer():
    usage = {"prompt_tokens": "many", "completion_tokens": 3, "prompt_tokens_details": [1]}
    choice = {"delta": {"content": "hi"}, "finish_reason": "stop"}
    finished = finish("openai-chat", {"choices": [choice], "usage": usage})
    assert (finished.content, finished.usage) == ((Text("hi"),), Usage(output=3))
