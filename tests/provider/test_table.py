"""Every row of the table of providers works against a server that speaks its API."""

import json

import pytest
from msgspec.structs import replace
from support.provider import BASH, KEY, ask, assistant, model_of, run, tool, user

from zot.errors import ConfigError, Refused
from zot.provider.catalog import find, models
from zot.provider.client import ModelClient, connect, join_path, load_wire
from zot.provider.http import Http
from zot.provider.openai_chat import ChatReader
from zot.provider.providers import PROVIDERS, resolve_quirks
from zot.provider.turns import EncodedTurns
from zot.provider.types import (
    Finished,
    Image,
    Model,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)
from zot.testing.fakeserver import FakeServer
from zot.testing.rules import problems
from zot.text import encode_json

ROWS = sorted(set(PROVIDERS) - {"scripted"})
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}


def open_client(info, api, key, url):
    return ModelClient(info, load_wire(api), api, key, Http(info.name, url))


@pytest.fixture(scope="module")
def server():
    with FakeServer() as made:
        yield made


def served(server, provider):
    """The provider's own path on the loopback server."""
    url = PROVIDERS[provider].base_url
    tail = "/" + url.partition("://")[2].partition("/")[2] if url.count("/") > 2 else ""
    return server.url + tail


@pytest.mark.parametrize("provider", ROWS)
def test_a_row_streams_text_and_tools_with_its_key_and_path(server, provider):
    info = PROVIDERS[provider]
    model = model_of(provider)
    made = open_client(info, model.api, KEY, served(server, provider))
    request = ask(model, "think:1\nsay:hi\ntool:bash:ls", reasoning="medium", cache_key="conv-1")
    events, error = run(made, request)
    made.close()
    assert error is None
    assert isinstance(events[-1], Finished)
    assert events[-1].stop == "tool_use"
    seen = server.requests[-1]
    assert problems(seen.dialect, seen.body) == []
    expected = {
        "bearer": ("authorization", f"Bearer {KEY}"),
        "none": ("authorization", None),
    }.get(info.auth, (info.auth, KEY))
    assert seen.headers.get(expected[0]) == expected[1]
    for name, value in info.headers.items():
        assert seen.headers[name] == value
    assert seen.path.count("/v1") + seen.path.count("/v4") <= 1
    assert seen.headers["user-agent"].startswith("zot/")
    assert seen.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("provider", ROWS)
def test_a_row_takes_the_results_of_its_calls(server, provider):
    info = PROVIDERS[provider]
    model = model_of(provider)
    made = open_client(info, model.api, KEY, served(server, provider))
    first, _ = run(made, ask(model, "tools:2"))
    made_calls = first[-1].content
    answers = tool(*(ToolResult(call.id, (Text("ok"),), name="bash") for call in made_calls))
    said = (user("tools:2\nthen\nsay:end"), assistant(model, *made_calls, stop="tool_use"), answers)
    events, error = run(made, ask(model, *said))
    made.close()
    assert error is None
    assert events[-1].content == (Text("end"),)
    assert problems(server.requests[-1].dialect, server.requests[-1].body) == []


@pytest.mark.parametrize("provider", [name for name in ROWS if PROVIDERS[name].catalog])
@pytest.mark.parametrize("level", ["off", "minimum", "high", "max"])
def test_every_model_of_a_row_can_be_asked_at_every_level(provider, level):
    info = PROVIDERS[provider]
    for model in models(provider):
        request = ask(model, "hi", reasoning=level)
        body = load_wire(model.api).body(request, resolve_quirks(info, model), EncodedTurns())
        if model.api != "google":
            assert body["model"] == model.id


def body_of(provider, *messages, model=None, **fields):
    model = model or model_of(provider)
    quirks = resolve_quirks(PROVIDERS[provider], model)
    request = ask(model, *(messages or ("hi",)), **fields)
    return json.loads(encode_json(load_wire(model.api).body(request, quirks, EncodedTurns())))


# --- quirks, one by one ----------------------------------------------------------------------


def test_limits_go_into_the_field_the_server_knows():
    assert "max_tokens" in body_of("deepseek")
    assert "max_completion_tokens" in body_of("groq")


def test_usage_is_not_asked_of_servers_that_refuse_the_option():
    assert "stream_options" not in body_of("mistral")
    assert body_of("groq")["stream_options"] == {"include_usage": True}


def test_mistral_gets_short_ids_and_names():
    model = model_of("mistral")
    said = (
        user("hi"),
        assistant(model, ToolCall("call_long_identifier", "bash", {}), stop="tool_use"),
        tool(ToolResult("call_long_identifier", (Text("out"),))),
    )
    call, result = body_of("mistral", *said)["messages"][-2:]
    assert len(result["tool_call_id"]) == 9
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert result["name"] == "bash"


def thinking_model(provider, **compat):
    return replace(model_of(provider), reasoning=True, compat=compat)


ZAI_ON = {"type": "enabled", "clear_thinking": False}


@pytest.mark.parametrize(
    ("provider", "compat", "level", "fields"),
    [
        ("groq", {}, "high", {"reasoning_effort": "high"}),
        ("groq", {}, "off", {}),
        ("groq", {"levels": {"off": "none"}}, "off", {"reasoning_effort": "none"}),
        ("deepseek", {}, "off", {"thinking": {"type": "disabled"}}),
        ("deepseek", {"levels": {"off": None}}, "off", {}),
        (
            "deepseek",
            {"levels": {"max": "max"}},
            "max",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ),
        (
            "zai",
            {"effort": False},
            "low",
            {"thinking": {"type": "enabled", "clear_thinking": False}},
        ),
        ("zai", {}, "off", {"thinking": {"type": "disabled"}}),
        ("openrouter", {"thinking": "openrouter"}, "low", {"reasoning": {"effort": "low"}}),
        ("openrouter", {}, "off", {"reasoning": {"effort": "none"}}),
        ("openrouter", {"levels": {"off": None}}, "off", {}),
        ("together", {}, "low", {"reasoning": {"enabled": True}}),
        ("together", {}, "off", {"reasoning": {"enabled": False}}),
        ("vllm", {}, "high", {}),
    ],
)
def test_reasoning_is_asked_for_in_the_servers_own_way(provider, compat, level, fields):
    model = replace(thinking_model(provider, **compat), api="openai-chat")
    body = body_of(provider, model=model, reasoning=level)
    seen = {key: body[key] for key in ("thinking", "reasoning", "reasoning_effort") if key in body}
    assert seen == fields


def test_reasoning_goes_back_where_it_is_wanted_and_nowhere_else():
    for provider, field in (("deepseek", "reasoning_content"), ("groq", None)):
        model = model_of(provider)
        said = (user("q"), assistant(model, Reasoning("why", "openai-chat"), Text("a")), user("b"))
        message = body_of(provider, *said)["messages"][2]
        assert message.get("reasoning_content") == ("why" if field else None)


def test_a_gateways_structured_thoughts_go_back_whole():
    model = replace(model_of("openrouter"), api="openai-chat")
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    thought = Reasoning("", "openai-chat", {"details": details})
    said = (user("q"), assistant(model, thought, Text("a")), user("b"))
    assert body_of("openrouter", *said, model=model)["messages"][2]["reasoning_details"] == details


def test_what_came_with_a_call_goes_back_with_it():
    model = model_of("groq")
    call = ToolCall("c", "bash", {}, "", {"extra_content": {"google": {"thought_signature": "s"}}})
    said = (user("q"), assistant(model, call), tool(ToolResult("c", ())))
    sent = body_of("groq", *said)["messages"][2]["tool_calls"][0]
    assert sent["extra_content"] == {"google": {"thought_signature": "s"}}


def test_cache_marks_go_through_a_gateway_that_takes_them():
    model = replace(model_of("openrouter"), api="openai-chat", compat={"cache_marks": True})
    body = body_of("openrouter", "hi", model=model)
    assert str(body).count("cache_control") == 2
    picture = body_of("openrouter", user("x", Image("image/png", b"")), model=model)
    assert "cache_control" in picture["messages"][-1]["content"][-1]


def test_a_conversation_is_routed_by_its_key(server):
    made = open_client(PROVIDERS["fireworks"], "openai-chat", KEY, server.url)
    model = replace(model_of("fireworks"), api="openai-chat", headers={"X-Own": "1"})
    run(made, ask(model, "hi", cache_key="conv-9"))
    made.close()
    assert server.requests[-1].headers["x-session-affinity"] == "conv-9"
    assert server.requests[-1].headers["x-own"] == "1"
    assert body_of("openai", cache_key="c")["prompt_cache_key"] == "c"
    chat = replace(model_of("openai"), api="openai-chat")
    assert body_of("openai", model=chat, cache_key="c")["prompt_cache_key"] == "c"


def test_zai_is_asked_to_stream_arguments():
    assert body_of("zai")["tool_stream"] is True


BUDGETED = "claude-haiku-4-5"
"""A Claude that takes a budget instead of an effort."""


def test_anthropic_budgets_leave_room_for_the_answer():
    model = find("anthropic", BUDGETED)
    body = body_of("anthropic", model=model, reasoning="high")
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 16_384}
    small = body_of("anthropic", model=model, reasoning="max", max_output=2_000)
    assert small["max_tokens"] > small["thinking"]["budget_tokens"]
    tiny = body_of("anthropic", model=replace(model, max_output=1_500), reasoning="low")
    assert tiny["max_tokens"] > tiny["thinking"]["budget_tokens"] >= 1_024
    assert body_of("anthropic", model=model)["thinking"] == {"type": "disabled"}
    assert "thinking" not in body_of("anthropic", model=replace(model, reasoning=False))


def test_an_answer_of_claude_may_be_as_long_as_the_model_allows():
    assert body_of("anthropic")["max_tokens"] == model_of("anthropic").max_output == 128_000
    assert body_of("anthropic", max_output=2_000)["max_tokens"] == 2_000


@pytest.mark.parametrize("id", ["claude-fable-5-2", "claude-opus-5-5", "claude-sonnet-5-5"])
def test_a_claude_that_always_thinks_is_asked_for_the_least_instead_of_off(id):
    body = body_of("anthropic", model=find("anthropic", id), reasoning="off")
    assert body["thinking"]["type"] == "adaptive"
    assert body["thinking"]["display"] == "summarized"
    assert body["output_config"] == {"effort": "low"}


BINDING = {
    *("claude-fable-5-1", "claude-fable-5-2", "claude-haiku-5-5", "claude-opus-5"),
    *("claude-opus-5-5", "claude-sonnet-5-5"),
}


def test_models_that_bind_thoughts_are_told_to_drop_those_that_do_not_fit():
    wire = load_wire("anthropic")
    for model in models("anthropic"):
        quirks = resolve_quirks(PROVIDERS["anthropic"], model)
        request = ask(model, "x", reasoning="medium")
        told = "block_binding" in wire.body(request, quirks, EncodedTurns())["thinking"]
        header = wire.headers(request, quirks).get("anthropic-beta", "")
        assert told == ("thinking-binding-controls" in header) == (model.id in BINDING)
        off = ask(model, "x", reasoning="off")
        mode = wire.body(off, quirks, EncodedTurns())["thinking"]
        assert mode["type"] in ("disabled", "adaptive")
        assert ("block_binding" in mode) == (told and mode["type"] == "adaptive")
        header = wire.headers(off, quirks).get("anthropic-beta", "")
        assert ("thinking-binding-controls" in header) == ("block_binding" in mode)


def test_adaptive_models_get_an_effort():
    model = find("anthropic", "claude-opus-5")
    body = body_of("anthropic", model=model, reasoning="minimum")
    assert body["thinking"]["type"] == "adaptive"
    assert body["output_config"] == {"effort": "low"}
    wire = load_wire("anthropic")
    quirks = resolve_quirks(PROVIDERS["anthropic"], model)
    beta = wire.headers(ask(model, "x", reasoning="low"), quirks)["anthropic-beta"]
    assert beta == "thinking-binding-controls-2026-08-01"
    none = replace(model, compat={"adaptive": True, "levels": dict.fromkeys(LEVEL_WORDS)})
    assert "output_config" not in body_of("anthropic", model=none, reasoning="low")


LEVEL_WORDS = ("minimum", "low", "medium", "high", "xhigh", "max")


def test_thoughts_between_calls_need_a_header():
    model = find("anthropic", BUDGETED)
    quirks = resolve_quirks(PROVIDERS["anthropic"], model)
    headers = load_wire("anthropic").headers(ask(model, "x", reasoning="low"), quirks)
    assert headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"


@pytest.mark.parametrize(
    ("opaque", "sent"),
    [
        ({"signature": "s"}, [{"type": "thinking", "thinking": "why", "signature": "s"}]),
        ({"redacted": "r"}, [{"type": "redacted_thinking", "data": "r"}]),
        (None, []),
    ],
)
def test_anthropic_thoughts_go_back_signed_or_not_at_all(opaque, sent):
    model = find("anthropic", BUDGETED)
    thought = Reasoning("why", "anthropic", opaque)
    said = (user("q"), assistant(model, thought, Text("a")), user("b"))
    body = body_of("anthropic", *said, model=model)
    assert body["messages"][1]["content"][:-1] == sent


def test_unsigned_thoughts_go_back_to_a_gateway_that_has_no_signatures():
    model = find("vercel", "anthropic/claude-haiku-4.5")
    said = (user("q"), assistant(model, Reasoning("why", "anthropic"), Text("a")), user("b"))
    body = body_of("vercel", *said, model=model)
    assert body["messages"][1]["content"][0]["thinking"] == "why"


def test_tool_choice_in_every_api():
    for provider in ("anthropic", "groq", "openai", "google"):
        for choice in ("none", "required"):
            assert body_of(provider, tool_choice=choice)
    assert "tool_choice" not in body_of("groq")
    assert body_of("groq", tool_choice="none")["tool_choice"] == "none"
    able = find("anthropic", "claude-haiku-5-5")  # thinking can be turned off
    forced = body_of("anthropic", model=able, tool_choice="required")
    assert forced["tool_choice"] == {"type": "any"}
    assert "tool_choice" not in body_of("anthropic", tool_choice="required")
    both = body_of("anthropic", tool_choice="required", reasoning="high")
    assert "tool_choice" not in both
    assert body_of("google", tool_choice="none")["toolConfig"] == {
        "functionCallingConfig": {"mode": "NONE"}
    }


def test_responses_effort_and_limits():
    model = model_of("openai")
    body = body_of("openai", reasoning="high", max_output=5)
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["max_output_tokens"] == 16
    off = replace(model, compat={"levels": {"off": "none"}})
    assert body_of("openai", model=off)["reasoning"] == {"effort": "none"}
    assert "reasoning" not in body_of(
        "openai", model=replace(model, compat={"effort": False}), reasoning="high"
    )
    assert "include" not in body_of("openai", model=replace(model, reasoning=False))


def test_google_levels_and_budgets():
    old = find("google", "gemini-2.5-pro")
    assert body_of("google", model=old, reasoning="low")["generationConfig"]["thinkingConfig"] == {
        "includeThoughts": True,
        "thinkingBudget": 2_048,
    }
    assert "generationConfig" not in body_of("google", model=old)
    flash = find("google", "gemini-2.5-flash")
    off = body_of("google", model=flash, max_output=50)["generationConfig"]
    assert off == {"maxOutputTokens": 50, "thinkingConfig": {"thinkingBudget": 0}}
    new = find("google", "gemini-3.8-flash")
    level = body_of("google", model=new, reasoning="max")["generationConfig"]["thinkingConfig"]
    assert level == {"includeThoughts": True, "thinkingLevel": "high"}
    assert "generationConfig" not in body_of("google", model=new)


def test_google_wants_a_signature_on_the_first_call_of_its_newer_models():
    new = find("google", "gemini-3.8-flash")
    call = ToolCall("c", "bash", {})
    said = (user("q"), assistant(model_of("anthropic"), call), tool(ToolResult("c", ())))
    part = body_of("google", *said, model=new)["contents"][1]["parts"][0]
    assert part["thoughtSignature"] == "skip_thought_signature_validator"
    old = find("google", "gemini-2.5-pro")
    part = body_of("google", *said, model=old)["contents"][1]["parts"][0]
    assert "thoughtSignature" not in part


def test_google_schemas_are_cut_to_what_it_knows():
    from zot.provider.google import clean_schema

    schema = {
        "type": "object",
        "$schema": "x",
        "additionalProperties": False,
        "required": ["a", "zzz"],
        "properties": {
            "a": {"type": ["string", "null"], "format": "uri", "default": 3},
            "b": {"const": 5},
            "c": {"oneOf": [{"type": "integer", "format": "int32"}, {"enum": [1, 2]}]},
            "d": {"type": "array"},
            "e": {"type": "array", "items": {"properties": {}}},
            "f": {"type": ["null"]},
            "h": {"type": ["integer"]},
            "g": True,
        },
    }
    out = clean_schema(schema)
    assert out["required"] == ["a"]
    assert out["properties"] == {
        "a": {"type": "string", "nullable": True},
        "b": {"enum": ["5"], "type": "string"},
        "c": {
            "anyOf": [
                {"type": "integer", "format": "int32"},
                {"enum": ["1", "2"], "type": "string"},
            ]
        },
        "d": {"type": "array", "items": {"type": "string"}},
        "e": {"type": "array", "items": {"properties": {}, "type": "object"}},
        "f": {"type": "string", "nullable": True},
        "h": {"type": "integer"},
        "g": {"type": "string"},
    }
    deep = schema
    for _ in range(100):
        deep = {"type": "object", "properties": {"x": deep}, "required": ["y"]}
    assert clean_schema(deep)


# --- what odd servers send -------------------------------------------------------------------


def chat(*chunks):
    reader = ChatReader("test")
    for chunk in chunks:
        reader.read(chunk)
    events = reader.out.take()
    return events, reader.finish()


def test_mistrals_list_of_thoughts_and_text():
    events, done = chat(
        b'{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},'
        b'{"type":"thinking","thinking":"!"},{"type":"text","text":"hi"}]}}]}',
        b'{"choices":[{"delta":{},"finish_reason":"stop"}]}',
    )
    assert events == [ReasoningDelta("hm"), ReasoningDelta("!"), TextDelta("hi")]
    assert done.content == (Reasoning("hm!", "openai-chat"), Text("hi"))


def test_a_whole_answer_under_message_and_usage_in_the_choice():
    _, done = chat(
        b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop",'
        b'"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_cache_hit_tokens":3}}]}'
    )
    assert done.content == (Text("hi"),)
    assert (done.usage.input, done.usage.cache_read, done.usage.output) == (2, 3, 2)


def test_a_name_that_comes_after_the_id_and_arguments_as_an_object():
    _, done = chat(
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1"}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"bash",'
        b'"arguments":{"command":"ls"}},"extra_content":{"google":1}}]}}]}',
        b"[DONE]",
    )
    assert done.content == (
        ToolCall("c1", "bash", {"command": "ls"}, "", {"extra_content": {"google": 1}}),
    )
    assert done.stop == "tool_use"


def test_structured_thoughts_are_joined():
    _, done = chat(
        b'{"choices":[{"delta":{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a"}]}}]}',
        b'{"choices":[{"delta":{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b","signature":"s"}]}}]}',
        b'{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]},"finish_reason":"stop"}]}',
    )
    assert done.content[0].opaque == {
        "details": [
            {"type": "reasoning.text", "text": "ab", "signature": "s"},
            {"type": "reasoning.encrypted", "data": "x"},
        ]
    }


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        (b'{"error":{"message":"no","code":429}}', "no"),
        (b'{"error":"plain words"}', "plain words"),
        (b'{"error":{}}', "an error without a message"),
        (b'{"choices":[{"delta":{},"finish_reason":"error"}]}', "stopped with an error"),
    ],
)
def test_errors_in_a_chat_stream(chunk, text):
    with pytest.raises(Exception, match=text):
        chat(chunk)


def test_a_filter_is_a_refusal():
    with pytest.raises(Refused):
        chat(b'{"choices":[{"delta":{"content":"x"},"finish_reason":"content_filter"}]}')


# --- addresses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "path", "joined"),
    [
        ("", "/v1/messages", "/v1/messages"),
        ("/v1", "/v1/messages", "/v1/messages"),
        ("/api/paas/v4", "/v1/chat/completions", "/api/paas/v4/chat/completions"),
        ("/anthropic", "/v1/messages", "/anthropic/v1/messages"),
        ("/openai", "/openai/v1/responses", "/openai/v1/responses"),
        ("/openai/v1", "/openai/v1/responses", "/openai/v1/responses"),
        ("/proxy/v1beta", "/v1beta/models/x:y?alt=sse", "/proxy/v1beta/models/x:y?alt=sse"),
        ("/engines/v1", "/v1/models", "/engines/v1/models"),
    ],
)
def test_paths_join_without_repeating(base, path, joined):
    assert join_path(base, path) == joined


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(server):
    info = PROVIDERS["anthropic"]
    made = connect(info, model_of("anthropic"), "secr\nkey", server.url)
    with pytest.raises(ConfigError) as caught:
        list(
            made.stream(ask(model_of("anthropic"), "hi"), __import__("zot.cancel").cancel.Cancel())
        )
    assert "secr" not in str(caught.value)


def test_a_key_may_be_fetched_for_each_request(server):
    keys = iter(["first-key", "second-key"])
    model = model_of("groq")
    made = connect(PROVIDERS["groq"], model, lambda: next(keys), server.url)
    for _ in range(2):
        run(made, ask(model, "say:hi"))
    made.close()
    sent = [seen.headers["authorization"] for seen in server.requests[-2:]]
    assert sent == ["Bearer first-key", "Bearer second-key"]


def test_a_login_token_of_anthropic_travels_as_one(server):
    model = find("anthropic", BUDGETED)
    made = connect(PROVIDERS["anthropic"], model, "sk-ant-oat01-x", server.url)
    run(made, ask(model, "say:hi", reasoning="low"))
    run(made, ask(model, "say:hi"))
    made.close()
    first, second = (seen.headers for seen in server.requests[-2:])
    assert first["authorization"] == "Bearer sk-ant-oat01-x"
    assert "x-api-key" not in first
    assert first["anthropic-beta"] == "interleaved-thinking-2025-05-14,oauth-2025-04-20"
    assert second["anthropic-beta"] == "oauth-2025-04-20"


def test_scripted_is_no_wire():
    with pytest.raises(ValueError, match="no connection"):
        load_wire("scripted")


def test_a_users_own_provider_is_a_row_like_any_other(server):
    info = replace(PROVIDERS["custom"], name="mine", headers={"X-Team": "a"}, auth="api-key")
    model = Model("m", "mine", "openai-chat", compat={"max_tokens_field": "max_tokens"})
    made = connect(info, model, KEY, f"{server.url}/v1")
    events, error = run(made, ask(model, "say:hi", tools=(BASH,)))
    made.close()
    assert error is None
    assert server.requests[-1].headers["x-team"] == "a"
    assert server.requests[-1].headers["api-key"] == KEY
