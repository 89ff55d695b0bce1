"""Any conversation, however broken, becomes a request that the API's server would take."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.provider import BASH, BY_API, READ, ask, assistant, model_of, tool, user

from zot.provider import client
from zot.provider.client import ModelClient, load_wire
from zot.provider.providers import PROVIDERS, Quirks, resolve_quirks
from zot.provider.turns import EncodedTurns, output_limit, short_id, wire_id
from zot.provider.types import (
    LEVELS,
    Image,
    Message,
    Model,
    Origin,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from zot.testing.replies import dialect_of
from zot.testing.rules import problems
from zot.text import encode_json

text = st.text(max_size=12)
ids = st.sampled_from(["a", "b", "call_1", "", "x" * 300, "a\nb", "ü", "call 2"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
args = st.dictionaries(text, json_values, max_size=2)
images = st.builds(Image, st.just("image/png"), st.binary(max_size=4))
opaque = st.none() | st.sampled_from(
    [
        {"signature": "s"},
        {"redacted": "r"},
        {"thoughtSignature": "t"},
        {"item": {"type": "reasoning", "id": "r", "summary": []}},
        {"details": [{"type": "reasoning.text", "text": "x"}]},
        {"extra_content": {"google": {}}},
    ]
)
calls = st.builds(ToolCall, ids, st.sampled_from(["bash", "read"]), st.none() | args, text, opaque)
results = st.builds(
    ToolResult, ids, st.lists(st.builds(Text, text) | images, max_size=2).map(tuple), st.booleans()
)
thoughts = st.builds(Reasoning, text, st.sampled_from(sorted(BY_API)), opaque)
blocks = st.lists(st.builds(Text, text) | images | calls | results | thoughts, max_size=4)
origins = st.none() | st.builds(
    Origin,
    st.sampled_from(["anthropic", "openai", "google"]),
    st.sampled_from(["claude-sonnet-4-5", "gpt-5"]),
    st.just("x"),
    st.just("end"),
    st.just(Usage()),
)
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool"]),
    blocks.map(tuple),
    st.just(0.0),
    origins,
)
providers = st.sampled_from(sorted(set(PROVIDERS) - {"scripted"}))


@pytest.mark.untraced
@settings(max_examples=250, deadline=None)
@given(
    providers,
    st.lists(messages, max_size=6),
    st.sampled_from(LEVELS),
    text,
    st.sampled_from([(), (BASH,), (BASH, READ)]),
    st.sampled_from(["auto", "none", "required"]),
    st.none() | st.integers(1, 10**6),
    st.booleans(),
)
@pytest.mark.slow
def test_any_conversation_encodes_to_a_valid_request(
    provider, said, level, system, tools, choice, limit, sees
):
    model = model_of(provider, images=sees)
    request = Request(model, system, tuple(said), tools, level, limit, "key", choice)
    wire = load_wire(model.api)
    quirks = resolve_quirks(PROVIDERS[provider], model)
    body = json.loads(encode_json(wire.body(request, quirks, EncodedTurns())))
    assert problems(dialect_of(wire.path), body) == []
    wire.headers(request, quirks)


@settings(max_examples=40, deadline=None)
@given(st.lists(messages, max_size=5))
def test_encoding_twice_gives_the_same_bytes(said):
    # Prompt caches match prefixes: a body must not depend on anything but the request.
    request = ask(model_of("anthropic"), *said)
    wire = load_wire("anthropic")
    assert encode_json(wire.body(request, Quirks(), EncodedTurns())) == encode_json(
        wire.body(request, Quirks(), EncodedTurns())
    )


@pytest.mark.parametrize("api", sorted(BY_API))
def test_a_longer_conversation_starts_with_the_shorter_one(api):
    model = model_of(BY_API[api])
    wire = load_wire(api)
    made = assistant(model, Text("ok"), ToolCall("c1", "bash", {}), stop="tool_use")
    first = [user("one"), made, tool(ToolResult("c1", (Text("out"),)))]
    longer = [*first, assistant(model, Text("done")), user("two")]
    key = {"google": "contents", "openai-responses": "input"}.get(api, "messages")

    def plain(body):
        return json.dumps(json.loads(encode_json(body))[key]).replace(
            ', "cache_control": {"type": "ephemeral"}', ""
        )

    short = plain(wire.body(ask(model, *first), Quirks(), EncodedTurns()))
    long = plain(wire.body(ask(model, *longer), Quirks(), EncodedTurns()))
    assert long.startswith(short[:-1])


@pytest.mark.parametrize("api", sorted(BY_API))
def test_half_a_surrogate_pair_in_a_prompt_does_not_raise(api):
    model = model_of(BY_API[api])
    made = assistant(model, ToolCall("c", "bash", {"a": "\ud800", "n": 2**80}), stop="tool_use")
    request = ask(model, "\ud83d hi \U0001f642", made, tool(ToolResult("c", (Text("\udc00"),))))
    body = encode_json(load_wire(api).body(request, Quirks(), EncodedTurns())).decode()
    assert "\ufffd hi \U0001f642" in body


@pytest.mark.parametrize("api", sorted(BY_API))
@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": 3}, {"type": "string"}])
def test_odd_schemas_do_not_raise(api, schema):
    model = model_of(BY_API[api])
    request = ask(model, "hi", tools=(ToolSpec("t", "", schema),))
    assert encode_json(load_wire(api).body(request, Quirks(), EncodedTurns()))


def test_tool_ids_fit_every_server():
    assert wire_id("call_1") == "call_1"
    assert wire_id("") != ""
    assert len(wire_id("x" * 300)) == 64
    assert wire_id("a b") != wire_id("a_b")
    assert len(short_id("call_1")) == 9
    assert short_id("abcdefgh1") == "abcdefgh1"


def test_an_id_used_twice_is_sent_as_two():
    model = model_of("anthropic")
    made = assistant(model, ToolCall("c", "bash", {}), ToolCall("c", "bash", {}))
    result = tool(ToolResult("c", (Text("x"),)))
    request = ask(model, "hi", made, result, made, result)
    body = json.loads(encode_json(load_wire("anthropic").body(request, Quirks(), EncodedTurns())))
    said = [message for message in body["messages"] if message["role"] == "assistant"]
    ids = [block["id"] for message in said for block in message["content"]]
    assert ids == ["c", "c_2", "c_3", "c_4"]


def test_the_output_limit_stays_within_the_window():
    small = Model("m", "x", "openai-chat", context_window=4_000, max_output=4_000)
    encoded = EncodedTurns()
    load_wire("openai-chat").body(ask(small, "x" * 8_000), Quirks(), encoded)
    assert output_limit(ask(small), encoded.size) < 2_100
    assert output_limit(ask(small), 100_000) == 1_024
    tiny = Model("m", "x", "openai-chat", context_window=512, max_output=100)
    assert output_limit(ask(tiny), 9_000) == 100


@pytest.mark.untraced
@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(BY_API)),
    st.lists(messages, min_size=1, max_size=12),
    st.lists(st.integers(0, 12), min_size=1, max_size=5),
)
def test_what_is_kept_of_the_last_request_changes_no_byte(api, said, lengths):
    model = model_of(BY_API[api])
    wire, kept = load_wire(api), EncodedTurns()
    for length in lengths:
        request = ask(model, *said[: length or 1])
        assert encode_json(wire.body(request, Quirks(), kept)) == encode_json(
            wire.body(request, Quirks(), EncodedTurns())
        )


SAID = [
    Message(role, (Text(f"{role}{number}"),), 1.0)
    for number in range(3)
    for role in ("user", "assistant")
]


@pytest.mark.untraced
@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(BY_API)),
    st.lists(st.lists(st.sampled_from(SAID), min_size=1, max_size=5), min_size=1, max_size=5),
)
def test_nothing_is_sent_of_a_conversation_that_went_another_way(api, conversations):
    model = model_of(BY_API[api])
    wire, kept = load_wire(api), EncodedTurns()
    for said in conversations:
        request = Request(model, "", tuple(said))
        assert encode_json(wire.body(request, Quirks(), kept)) == encode_json(
            wire.body(request, Quirks(), EncodedTurns())
        )


@pytest.mark.parametrize("api", sorted(BY_API))
def test_a_turn_is_encoded_once(api, monkeypatch):
    model = model_of(BY_API[api])
    wire, kept, said = load_wire(api), EncodedTurns(), []
    seen = []
    plain = EncodedTurns._add
    monkeypatch.setattr(
        EncodedTurns, "_add", lambda self, *more: seen.append(self) or plain(self, *more)
    )
    for number in range(30):
        said += [user(f"q{number}"), assistant(model, ToolCall(f"c{number}", "bash", {}))]
        said += [tool(ToolResult(f"c{number}", (Text("out"),), name="bash"))]
        wire.body(ask(model, *said), Quirks(), kept)
    assert len(seen) <= len(said)
    wire.body(ask(model, user("all"), *said[1:]), Quirks(), kept)
    wire.body(ask(replace(model, id="other"), *said), Quirks(), kept)


def test_the_json_of_a_huge_request_is_not_kept(monkeypatch):
    monkeypatch.setattr(client, "MAX_KEPT", 2_000)
    model, wire = model_of("anthropic"), load_wire("anthropic")
    made = ModelClient(PROVIDERS["anthropic"], wire, "anthropic", "k", None)
    for count in (3, 9, 3):
        request = ask(model, *(user("x" * 300) for _ in range(count)))
        body, *_ = made._body(request, Quirks())
        assert len(json.loads(body)["messages"]) == count
        assert (made._encoded is None) == (count == 9)
