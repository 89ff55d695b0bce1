from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.errors import Cancelled, ContextTooLong, Rejected
from zot.local.serve import ServerAddress
from zot.provider.client import connect
from zot.provider.providers import PROVIDERS
from zot.provider.types import (
    Api,
    Finished,
    Message,
    Model,
    Provider,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolCallArgs,
    ToolResult,
    ToolSpec,
)

pytestmark = pytest.mark.long

APIS: tuple[Api, ...] = ("openai-chat", "openai-responses", "anthropic")
PICK = ToolSpec(
    "pick",
    "Pick a colour.",
    {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red"]}},
        "required": ["colour"],
    },
)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    return request.param


@pytest.fixture
def client(api: Api, shared_server: ServerAddress) -> Iterator[Provider]:
    client = client_for(api, shared_server, shared_server.key)
    yield client
    client.close()


def client_for(api: Api, server: ServerAddress, key: str) -> Provider:
    auth = "x-api-key" if api == "anthropic" else "bearer"
    info = replace(PROVIDERS["llama.cpp"], name="test", api=api, auth=auth)
    return connect(info, model(api), key, f"http://127.0.0.1:{server.port}/v1")


def model(api: Api, max_output: int = 64) -> Model:
    return Model("small", "test", api, context_window=1024, max_output=max_output, images=False)


def said(text: str, api: Api, max_output: int = 64) -> Request:
    message = Message("user", (Text(text),), 0.0)
    return Request(model(api, max_output), "You are brief.", (message,), max_output=max_output)


def picked_before(api: Api, max_output: int) -> Request:
    """A conversation so full of one call that even a tiny model makes it again."""
    messages: list[Message] = []
    for number in range(4):
        id = f"call{number}abcd"
        messages += [
            Message("user", (Text("Pick a colour."),), 0.0),
            Message("assistant", (ToolCall(id, "pick", {"colour": "red"}),), 0.0),
            Message("tool", (ToolResult(id, (Text("ok"),), name="pick"),), 0.0),
            Message("assistant", (Text("Done."),), 0.0),
        ]
    messages.append(Message("user", (Text("Pick a colour."),), 0.0))
    return Request(
        model(api, max_output), "", tuple(messages), tools=(PICK,), max_output=max_output
    )


@pytest.mark.slow
def test_a_real_answer_streams_and_is_counted(client: Provider, api: Api) -> None:
    events = list(client.stream(said("What is the capital of France?", api), Cancel()))
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert len(deltas) > 1
    assert finished.content == (Text("".join(deltas)),)
    assert finished.usage.output > 0
    assert finished.usage.input + finished.usage.cache_read > 5


def test_the_length_limit_stops_the_answer(client: Provider, api: Api) -> None:
    events = list(client.stream(said("Write a long story about a fox.", api, 16), Cancel()))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.usage.output == 16
    if api != "openai-responses":  # llama.cpp does not say why it stopped on this wire
        assert finished.stop == "length"


def test_a_prompt_longer_than_the_context_says_so(client: Provider, api: Api) -> None:
    with pytest.raises(ContextTooLong, match="exceeds the available context"):
        list(client.stream(said("word " * 2000, api), Cancel()))


@pytest.mark.slow
def test_a_real_tool_call_comes_with_its_arguments(client: Provider, api: Api) -> None:
    events = list(client.stream(picked_before(api, 40), Cancel()))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.stop == "tool_use"
    (call,) = finished.content
    assert isinstance(call, ToolCall)
    assert (call.name, call.args) == ("pick", {"colour": "red"})
    pieces = [event.delta for event in events if isinstance(event, ToolCallArgs)]
    assert "".join(pieces).replace(" ", "") == '{"colour":"red"}'


def test_arguments_cut_by_the_limit_are_not_taken_for_arguments(client: Provider, api: Api) -> None:
    events = list(client.stream(picked_before(api, 14), Cancel()))
    finished = events[-1]
    assert isinstance(finished, Finished)
    (call,) = finished.content
    assert isinstance(call, ToolCall)
    assert call.args is None
    assert call.raw.startswith("{")


def test_an_abort_in_the_stream_ends_it_and_frees_the_server(client: Provider, api: Api) -> None:
    cancel = Cancel()
    stream = client.stream(said("Count from one to a thousand.", api), cancel)
    with pytest.raises(Cancelled):
        for event in stream:
            if isinstance(event, TextDelta):
                cancel.set()
    began = time.monotonic()
    assert isinstance(list(client.stream(said("Hi", api, 2), Cancel()))[-1], Finished)
    assert time.monotonic() - began < 20


def test_an_abort_before_the_first_byte_ends_it(client: Provider, api: Api) -> None:
    cancel = Cancel()
    timer = threading.Timer(0.05, cancel.set)
    timer.start()
    with pytest.raises(Cancelled):
        list(client.stream(said("Long " * 500, api), cancel))
    timer.join()


def test_a_wrong_key_is_refused(api: Api, shared_server: ServerAddress) -> None:
    client = client_for(api, shared_server, "wrong")
    with pytest.raises(Rejected):
        list(client.stream(said("Hi", api), Cancel()))
    client.close()
