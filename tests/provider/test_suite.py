"""The suite that every API passes, against a real server that misbehaves on demand."""

import random
import socket
import threading
import time
from contextlib import suppress

import pytest
from support.patience import patience
from support.provider import BY_API, KEY, ask, assistant, client, model_of, run, tool, user

from zot.cancel import Cancel
from zot.errors import (
    BadResponse,
    Cancelled,
    ContextTooLong,
    NetworkError,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    Rejected,
    StreamIdle,
)
from zot.provider.retry import RetryPolicy, stream_with_retry
from zot.provider.types import (
    Finished,
    Image,
    Reasoning,
    ReasoningDelta,
    Retrying,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    Usage,
    UsageSeen,
)
from zot.testing.fakeserver import FakeServer
from zot.testing.rules import problems

APIS = sorted(BY_API)
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
FAST = RetryPolicy(first_delay=0.01, max_delay=0.02)
pytestmark = pytest.mark.parametrize("api", APIS)


@pytest.fixture(scope="module")
def server():
    with FakeServer() as made:
        yield made


def call(server, api, prompt, **fields):
    provider = BY_API[api]
    with client(provider, server.url, idle_seconds=20) as made:
        return run(made, ask(model_of(provider), prompt, **fields))


def good(server, api, prompt, **fields):
    events, error = call(server, api, prompt, **fields)
    assert error is None, repr(error)
    assert isinstance(events[-1], Finished)
    dialect = server.requests[-1].dialect
    assert problems(dialect, server.requests[-1].body) == []
    return events


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# --- answers ---------------------------------------------------------------------------------


def test_text_streams_in_deltas_and_ends_whole(server, api):
    events = good(server, api, "say:one two three")
    assert events[0] == Started()
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["one ", "two ", "three"]
    assert events[-1].content == (Text("one two three"),)
    assert events[-1].stop == "end"


def test_a_tool_call_streams_its_arguments(server, api):
    events = good(server, api, "say:ok\ntool:bash:ls -l")
    starts = [e for e in events if isinstance(e, ToolCallStart)]
    assert len(starts) == 1
    assert starts[0].name == "bash"
    args = "".join(e.delta for e in events if isinstance(e, ToolCallArgs))
    assert args.replace(" ", "") == '{"command":"ls-l"}'
    assert ToolCallEnd(starts[0].id) in events
    text, made = events[-1].content
    assert text == Text("ok")
    assert (made.id, made.name, made.args) == (starts[0].id, "bash", {"command": "ls -l"})
    assert events[-1].stop == "tool_use"


def test_parallel_calls_keep_their_order(server, api):
    events = good(server, api, "tools:3\ntool:read:a.txt")
    calls = events[-1].content
    assert [made.name for made in calls] == ["bash", "bash", "bash", "read"]
    assert len({made.id for made in calls}) == 4
    opened = [e.id for e in events if isinstance(e, ToolCallStart)]
    closed = [e.id for e in events if isinstance(e, ToolCallEnd)]
    assert opened == [made.id for made in calls]
    assert sorted(opened) == sorted(closed)


@pytest.mark.parametrize("kind", ["empty", "long", "lf", "same"])
def test_ids_that_cannot_be_used_are_replaced(server, api, kind):
    events = good(server, api, f"toolid:{kind} tools:2")
    ids = [made.id for made in events[-1].content]
    assert len(set(ids)) == 2
    assert all(0 < len(id) <= 256 and id.isprintable() for id in ids)


@pytest.mark.parametrize("shape", ["noindex", "noid", "whole", "noindex noid whole"])
def test_calls_as_other_servers_send_them(server, api, shape):
    events = good(server, api, f"{shape} tools:2")
    assert [made.args for made in events[-1].content] == [{"command": "true"}] * 2
    assert events[-1].stop == "tool_use"


def test_calls_with_another_stop_word_are_still_a_tool_turn(server, api):
    word = {"anthropic": "end_turn", "google": "STOP"}.get(api, "stop")
    assert good(server, api, f"stop:{word} tools:1")[-1].stop == "tool_use"


def test_arguments_that_are_not_json_are_kept_raw(server, api):
    events, error = call(server, api, "badargs")
    if api == "google":  # its arguments are part of the event
        assert isinstance(error, BadResponse)
        return
    made = events[-1].content[0]
    assert made.args is None
    assert made.raw == '{"command": "tru'


def test_reasoning_streams_and_is_kept_for_replay(server, api):
    events = good(server, api, "think:3 text:1", reasoning="high")
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["abcd "] * 3
    thought, text = events[-1].content
    assert isinstance(thought, Reasoning)
    assert (thought.text, thought.api) == ("abcd " * 3, api)
    assert text == Text("abcd ")


def test_reasoning_goes_back_to_the_model_that_made_it(server, api):
    provider = BY_API[api]
    model = model_of(provider)
    prompt = "think:1\ntool:bash:ls\nthen\nsay:end"
    first = good(server, api, prompt, reasoning="high")[-1]
    made = first.content[1]
    messages = (
        user(prompt),
        assistant(model, *first.content, stop="tool_use"),
        tool(ToolResult(made.id, (Text("out"),))),
    )
    with client(provider, server.url) as again:
        events, error = run(again, ask(model, *messages, reasoning="high"))
    assert error is None
    assert text_of(events) == "end"
    body = server.requests[-1].body
    assert problems(server.requests[-1].dialect, body) == []
    signed = {"anthropic": "c2lnbmVk", "openai-responses": "c2VjcmV0", "google": "c2lnbmVk"}
    assert (signed.get(api, "no-signature") in str(body)) == (api in signed)


def test_another_providers_reasoning_is_not_sent(server, api):
    provider = BY_API[api]
    model, other = model_of(provider), model_of("mistral")
    thought = Reasoning("secret thought", api, {"signature": "x", "item": {"type": "reasoning"}})
    request = ask(model, "hi", assistant(other, thought, Text("hello")), "say:end")
    with client(provider, server.url) as made:
        _, error = run(made, request)
    assert error is None
    assert "secret thought" not in str(server.requests[-1].body)


def test_images_are_sent_in_prompts_and_results(server, api):
    provider = BY_API[api]
    model = model_of(provider)
    request = ask(
        model,
        user("look", Image("image/png", PNG)),
        assistant(model, ToolCall("c1", "read", {"path": "x.png"}), stop="tool_use"),
        tool(ToolResult("c1", (Image("image/png", PNG),))),
        "say:seen",
    )
    with client(provider, server.url) as made:
        events, error = run(made, request)
    assert error is None
    assert text_of(events) == "seen"
    assert str(server.requests[-1].body).count("iVBORw0KGgo") == 2
    assert problems(server.requests[-1].dialect, server.requests[-1].body) == []


def test_a_model_without_eyes_gets_words_instead(server, api):
    provider = BY_API[api]
    model = model_of(provider, images=False)
    request = ask(
        model,
        user("look", Image("image/png", PNG)),
        assistant(model, ToolCall("c1", "read", {}), stop="tool_use"),
        tool(ToolResult("c1", (Image("image/png", PNG),))),
        "say:seen",
    )
    with client(provider, server.url) as made:
        _, error = run(made, request)
    assert error is None
    assert "iVBORw0KGgo" not in str(server.requests[-1].body)


def test_a_failed_tool_is_told_as_one(server, api):
    provider = BY_API[api]
    model = model_of(provider)
    request = ask(
        model,
        "say:go",
        assistant(model, ToolCall("c1", "bash", {"command": "x"}), stop="tool_use"),
        tool(ToolResult("c1", (Text("no such file"),), is_error=True)),
    )
    with client(provider, server.url) as made:
        run(made, request)
    said = str(server.requests[-1].body)
    assert "error" in said
    assert "no such file" in said


def test_usage_is_split_into_fresh_and_cached(server, api):
    events = good(server, api, "usage:100,20,30,7 text:1")
    usage = events[-1].usage
    write = 0 if api == "google" else 7
    assert (usage.cache_read, usage.cache_write, usage.output) == (30, write, 20)
    assert usage.input == 107 - write
    assert any(isinstance(event, UsageSeen) for event in events)


def test_missing_usage_is_no_error(server, api):
    assert good(server, api, "nousage text:1")[-1].usage == Usage()


def test_an_answer_at_its_limit_says_length(server, api):
    assert good(server, api, "stop:max_tokens text:1")[-1].stop == "length"


def test_a_refusal_is_an_error(server, api):
    events, error = call(server, api, "say:no refuse\nrefuse text:1")
    assert isinstance(error, Refused)


def test_an_empty_answer_is_one(server, api):
    assert good(server, api, "empty")[-1].content == ()


@pytest.mark.parametrize("how", ["chop:1", "chop:7", "crlf", "crlf chop:3", "pings", "close"])
def test_how_the_bytes_are_cut_does_not_matter(server, api, how):
    events = good(server, api, f"{how} unicode")
    assert events[-1].content == good(server, api, "unicode")[-1].content
    assert "🙂" in text_of(events)


def test_half_a_surrogate_pair_becomes_a_replacement_character(server, api):
    assert text_of(good(server, api, "surrogate")) == "a\ufffdb"


@pytest.mark.slow
def test_one_delta_of_twelve_megabytes_arrives(server, api):
    events = good(server, api, "big:12000000")
    assert len(text_of(events)) == 12_000_000


def test_a_stream_with_another_content_type_is_read(server, api):
    assert text_of(good(server, api, "type:text/plain chop:2 say:hi")) == "hi"


def test_the_connection_is_kept_for_the_next_call(server, api):
    provider = BY_API[api]
    ports = set()
    with client(provider, server.url) as made:
        for _ in range(3):
            events, error = run(made, ask(model_of(provider), "say:hi"))
            assert error is None
            kept = made._http._kept
            ports.add(kept._sock.getsockname())
    assert len(ports) == 1


# --- faults ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, Rejected, False),
        (401, Rejected, False),
        (403, Rejected, False),
        (404, Rejected, False),
        (408, Overloaded, True),
        (409, Overloaded, True),
        (413, ContextTooLong, False),
        (422, Rejected, False),
        (429, RateLimited, True),
        (500, Overloaded, True),
        (503, Overloaded, True),
        (529, Overloaded, True),
    ],
)
def test_a_status_becomes_its_error(server, api, status, kind, retryable):
    events, error = call(server, api, f"status:{status}")
    assert type(error) is kind or (kind is Rejected and isinstance(error, Rejected))
    assert events == []
    assert (error.status, error.retryable) == (status, retryable)
    said, _, advice = str(error).partition(" (")
    assert said == f"{BY_API[api]}: http {status}: scripted error {status}"
    assert ("check the key" in advice) is (status in (401, 403))
    assert error.code == ("auth" if status in (401, 403) else kind.code)


def test_a_prompt_that_does_not_fit_has_its_own_class(server, api):
    _, error = call(server, api, "status:400 overflow")
    assert isinstance(error, ContextTooLong)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0.5", 0.5), ("-3", None), ("abc", None), ("nan", None), ("inf", None)],
)
def test_retry_after_is_read_or_ignored(server, api, value, seconds):
    _, error = call(server, api, f"status:429 retry-after:{value}")
    assert error.retry_after == seconds


def test_retry_after_as_a_date(server, api):
    past = "Wed,_21_Oct_2015_07:28:00_GMT"
    _, error = call(server, api, f"status:429 retry-after:{past}")
    assert error.retry_after == 0


def test_the_key_is_in_no_error_text(server, api):
    _, error = call(server, api, "status:401 echo-key")
    assert KEY not in str(error)
    assert "[key]" in str(error)


@pytest.mark.parametrize("fault", ["cut:0", "reset:0"])
def test_a_connection_dropped_before_the_head_is_a_network_error(server, api, fault):
    events, error = call(server, api, fault)
    assert events == []
    assert isinstance(error, NetworkError)
    assert error.retryable


@pytest.mark.parametrize("fault", ["cut:2", "reset:2", "nostop", "close cut:2", "close nostop"])
def test_a_cut_stream_is_an_error_and_never_an_answer(server, api, fault):
    events, error = call(server, api, f"{fault} text:4")
    assert isinstance(error, NetworkError | BadResponse)
    assert not any(isinstance(event, Finished) for event in events)
    if "reset" not in fault:  # a reset may overtake what was sent
        assert text_of(events).startswith("abcd abcd ")


def test_a_cut_inside_a_tools_arguments_is_an_error(server, api):
    events, error = call(server, api, "cut:1 tool:bash:a long command\ntool:bash:another one")
    assert isinstance(error, NetworkError | BadResponse)


def test_an_error_event_keeps_what_came_before(server, api):
    events, error = call(server, api, "error:overloaded_error text:4")
    assert isinstance(error, Overloaded)
    assert text_of(events) == "abcd abcd "
    assert error.request_id


def test_an_error_event_of_another_kind(server, api):
    assert isinstance(call(server, api, "error:rate_limit_error text:2")[1], RateLimited)
    assert isinstance(call(server, api, "error:invalid_request_error text:2")[1], Rejected)
    assert isinstance(call(server, api, "error:authentication_error text:2")[1], Rejected)
    assert type(call(server, api, "error:whatever text:2")[1]) is ProviderError


def test_garbage_in_the_stream_is_an_error_that_shows_it(server, api):
    _, error = call(server, api, "garbage text:9")
    assert isinstance(error, BadResponse)
    assert "not json" in str(error)


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("html", "Please log in to the network"),
        ("json", '{"id":"x","choices":[]}'),
        ("blank", "empty body"),
        ("blank type:text/html", "empty body"),
        ("gzip", "content-encoding 'gzip'"),
    ],
)
def test_a_200_that_is_no_stream_is_an_error(server, api, fault, shown):
    events, error = call(server, api, fault)
    assert isinstance(error, BadResponse)
    assert shown in str(error)
    assert not error.retryable
    assert not any(isinstance(event, Finished) for event in events)


def test_an_answer_that_is_not_http_is_an_error(server, api):
    _, error = call(server, api, "junk")
    assert isinstance(error, BadResponse)


def test_a_redirect_is_refused_and_nothing_goes_there(server, api):
    with FakeServer() as elsewhere:
        _, error = call(server, api, f"redirect:{elsewhere.url}/v1/messages")
        assert isinstance(error, Rejected)
        assert elsewhere.url in str(error)
        assert error.status == 302
        assert elsewhere.requests == []


@pytest.mark.parametrize("when", ["hang", "hang:headers", "hang:2 text:4"])
def test_silence_ends_at_the_idle_limit(server, api, when):
    provider = BY_API[api]
    with client(provider, server.url, idle_seconds=0.2) as made:
        _, error = run(made, ask(model_of(provider), when))
    assert isinstance(error, StreamIdle)
    assert not error.retryable  # the limit is when the user wants to hear of it
    assert "not a byte for 0.2 s" in str(error)


@pytest.mark.slow
def test_a_slow_stream_lives_as_long_as_bytes_come(server, api):
    provider = BY_API[api]
    with client(provider, server.url, idle_seconds=0.5) as made:
        start = time.monotonic()
        events, error = run(made, ask(model_of(provider), "chop:40 drip:60 text:4"))
    assert error is None
    assert time.monotonic() - start > 0.5
    assert text_of(events) == "abcd " * 4


def test_nobody_listening_is_a_network_error(server, api):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    provider = BY_API[api]
    with client(provider, f"http://127.0.0.1:{port}") as made:
        _, error = run(made, ask(model_of(provider), "hi"))
    assert isinstance(error, NetworkError)
    assert f"cannot connect to 127.0.0.1:{port}" in str(error)


def test_a_stale_kept_connection_is_replaced_without_a_word(server, api):
    provider = BY_API[api]
    with client(provider, server.url) as made:
        assert run(made, ask(model_of(provider), "say:one"))[1] is None
        for sock in list(server._open):
            with suppress(OSError):  # the end of an earlier test's connection
                sock.shutdown(socket.SHUT_RDWR)
        events, error = run(made, ask(model_of(provider), "say:two"))
    assert error is None
    assert text_of(events) == "two"


# --- abort -----------------------------------------------------------------------------------


def aborted(server, api, prompt, *, after=0, policy=None):
    """Abort a call after so many content events, or while it waits; how long it then took."""
    provider = BY_API[api]
    cancel = Cancel()
    with client(provider, server.url) as made:
        request = ask(model_of(provider), prompt)
        stream = (
            stream_with_retry(made, request, cancel, policy)
            if policy
            else made.stream(request, cancel)
        )
        timer = threading.Timer(0.1, cancel.set)
        start = time.monotonic()
        seen = []
        with pytest.raises(Cancelled):
            if not after and not policy:
                timer.start()
            for event in stream:
                seen.append(event)
                if isinstance(event, Retrying):
                    timer.start()
                if after and sum(isinstance(e, TextDelta) for e in seen) >= after:
                    cancel.set()
        timer.cancel()
        return seen, time.monotonic() - start


@pytest.mark.parametrize(
    "prompt", ["hang", "hang:headers", "hang:2 text:4", "ttft:60000 text:1", "delay:60000 text:9"]
)
def test_abort_ends_every_wait(server, api, prompt):
    seen, took = aborted(server, api, prompt)
    assert took < patience(5)
    assert not any(isinstance(event, Finished) for event in seen)


def test_abort_in_a_slow_stream_of_single_bytes(server, api):
    _, took = aborted(server, api, "chop:1 delay:20 text:1000")
    assert took < patience(5)


def test_abort_between_deltas(server, api):
    seen, took = aborted(server, api, "delay:1 text:2000", after=5)
    assert took < patience(5)
    assert server.wait_outcome("gone")


def test_abort_before_the_call_sends_nothing(server, api):
    cancel = Cancel()
    cancel.set()
    before = len(server.requests)
    provider = BY_API[api]
    with client(provider, server.url) as made, pytest.raises(Cancelled):
        list(made.stream(ask(model_of(provider), "hi"), cancel))
    assert len(server.requests) == before


def test_abort_while_connecting(server, api):
    # A listener with a full backlog: the handshake never ends.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        provider = BY_API[api]
        cancel = Cancel()
        threading.Timer(0.1, cancel.set).start()
        start = time.monotonic()
        with client(provider, f"http://127.0.0.1:{port}") as made, pytest.raises(Cancelled):
            list(made.stream(ask(model_of(provider), "hi"), cancel))
        assert time.monotonic() - start < patience(5)
        for filler in fillers:
            filler.close()


def test_abort_in_a_tls_handshake(server, api):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        provider = BY_API[api]
        cancel = Cancel()
        threading.Timer(0.1, cancel.set).start()
        start = time.monotonic()
        with client(provider, f"https://127.0.0.1:{port}") as made, pytest.raises(Cancelled):
            list(made.stream(ask(model_of(provider), "hi"), cancel))
        assert time.monotonic() - start < patience(5)


def test_abort_in_a_retry_pause(server, api):
    policy = RetryPolicy(first_delay=60, max_delay=60)
    seen, took = aborted(server, api, "status:529", policy=policy)
    assert took < patience(5)
    assert isinstance(seen[-1], Retrying)


def test_a_client_can_be_used_after_an_abort(server, api):
    provider = BY_API[api]
    with client(provider, server.url) as made:
        cancel = Cancel()
        stream = made.stream(ask(model_of(provider), "delay:5 text:100"), cancel)
        next(stream)
        cancel.set()
        with pytest.raises(Cancelled):
            list(stream)
        events, error = run(made, ask(model_of(provider), "say:again"))
    assert error is None
    assert text_of(events) == "again"


def test_a_stream_closed_early_lets_its_connection_go(server, api):
    provider = BY_API[api]
    with client(provider, server.url) as made:
        stream = made.stream(ask(model_of(provider), "delay:5 text:1000"), Cancel())
        next(stream)
        stream.close()
        assert server.wait_outcome("gone")


# --- retries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["status:529:2", "status:429:2 retry-after:0.01", "status:500:1"])
def test_a_failure_that_passes_is_asked_again(server, api, fault):
    provider = BY_API[api]
    with client(provider, server.url) as made:
        request = ask(model_of(provider), f"{fault} say:fine\n{api} {fault}")
        events = list(stream_with_retry(made, request, Cancel(), FAST))
    assert text_of(events) == "fine"
    tries = [event for event in events if isinstance(event, Retrying)]
    assert len(tries) == int(fault.split(":")[2].split()[0])


def test_a_rejected_request_is_not_asked_again(server, api):
    provider = BY_API[api]
    before = len(server.requests)
    with client(provider, server.url) as made, pytest.raises(Rejected):
        list(stream_with_retry(made, ask(model_of(provider), "status:400"), Cancel(), FAST))
    assert len(server.requests) == before + 1


def test_a_cut_after_content_is_asked_again_from_the_beginning(server, api):
    provider = BY_API[api]
    before = len(server.requests)
    prompt = f"cut:2 tries:2 text:4\n{api}"
    with client(provider, server.url) as made:
        events = list(stream_with_retry(made, ask(model_of(provider), prompt), Cancel(), FAST))
    assert len(server.requests) == before + 3
    retries = [at for at, event in enumerate(events) if isinstance(event, Retrying)]
    assert len(retries) == 2
    assert text_of(events[retries[-1] :]) == "abcd " * 4


@pytest.mark.parametrize("fault", ["cut:0 text:4", "reset:0 text:4"])
def test_a_cut_before_content_is_asked_again_a_handful_of_times(server, api, fault):
    provider = BY_API[api]
    before = len(server.requests)
    with client(provider, server.url) as made, pytest.raises(NetworkError):
        list(stream_with_retry(made, ask(model_of(provider), fault), Cancel(), FAST))
    assert len(server.requests) == before + FAST.max_attempts


def test_abort_at_any_moment_leaves_a_client_that_works(server, api):
    provider = BY_API[api]
    prompts = (
        "text:50",
        "delay:2 text:9",
        "hang",
        "hang:3 text:9",
        "cut:3 text:9",
        "chop:1 text:3",
    )
    moments = random.Random(api)
    with client(provider, server.url) as made:
        for prompt in prompts * 5:
            cancel = Cancel()
            timer = threading.Timer(moments.random() * 0.02, cancel.set)
            timer.start()
            try:
                run(made, ask(model_of(provider), prompt), cancel)
            except Cancelled:
                pass
            timer.cancel()
            timer.join()
        events, error = run(made, ask(model_of(provider), "say:alive"))
    assert error is None
    assert text_of(events) == "alive"
