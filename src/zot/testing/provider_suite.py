"""Checks of the Provider protocol, for authors of model clients.

`stream_problems` checks the events of any call. `run_suite` drives an HTTP client through
answers, faults and aborts of the fake server, and reports what it got wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from zot import errors
from zot.cancel import Cancel
from zot.provider import types
from zot.testing.fakeserver import FakeServer
from zot.testing.rules import problems
from zot.text import Frozen

ABORT_SECONDS = 1.0
TOOL = types.ToolSpec(
    "bash",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)

Make = Callable[[str], types.Provider]
"""Function that makes a client for the server at that URL."""


class ExpectedAnswer(Frozen):
    """Expected answer to a prompt: text, arguments of the calls, and stop reason."""

    prompt: str
    text: str = ""
    calls: tuple[dict[str, str] | None, ...] = ()
    stop: str = "end"


class Failure(Frozen):
    """Expected failure of a prompt; `text` is streamed before it."""

    prompt: str
    kinds: tuple[type[errors.ProviderError], ...]
    text: str = ""


ANSWERS = (
    ExpectedAnswer("say:one two", "one two"),
    ExpectedAnswer("say:ok\ntool:bash:ls", "ok", ({"command": "ls"},), "tool_use"),
    ExpectedAnswer("tools:3", "", ({"command": "true"},) * 3, "tool_use"),
    ExpectedAnswer("think:3 text:1", "abcd "),
    ExpectedAnswer("stop:max_tokens text:1", "abcd ", (), "length"),
    ExpectedAnswer("chop:1 say:slow", "slow"),
    ExpectedAnswer("crlf pings say:odd lines", "odd lines"),
    ExpectedAnswer("surrogate", "a\ufffdb"),
    ExpectedAnswer("nousage say:x", "x"),
    ExpectedAnswer("toolid:same tools:2", "", ({"command": "true"},) * 2, "tool_use"),
    ExpectedAnswer("toolid:empty tools:1", "", ({"command": "true"},), "tool_use"),
)
FAILURES = (
    Failure("status:400", (errors.Rejected,)),
    Failure("status:401", (errors.Rejected,)),
    Failure("status:413", (errors.ContextTooLong,)),
    Failure("status:400 overflow", (errors.ContextTooLong,)),
    Failure("status:429", (errors.RateLimited,)),
    Failure("status:500", (errors.Overloaded,)),
    Failure("status:529", (errors.Overloaded,)),
    Failure("cut:0", (errors.NetworkError,)),
    Failure("cut:2 text:4", (errors.NetworkError, errors.BadResponse), "abcd abcd "),
    Failure("nostop text:2", (errors.NetworkError, errors.BadResponse), "abcd abcd "),
    Failure("error text:4", (errors.Overloaded,), "abcd abcd "),
    Failure("refuse text:1", (errors.Refused,), "abcd "),
    Failure("html", (errors.BadResponse,)),
    Failure("blank", (errors.BadResponse,)),
    Failure("json", (errors.BadResponse,)),
    Failure("gzip", (errors.BadResponse,)),
    Failure("junk", (errors.BadResponse, errors.NetworkError)),
    Failure("garbage text:3", (errors.BadResponse,)),
)
ABORTS = ("hang", "hang:headers", "hang:2 text:4", "ttft:60000 text:1", "delay:60000 text:3")


def run_suite(make: Make, model: types.Model) -> list[str]:
    """Return the client's errors, one sentence each; empty: it passes."""
    wrong: list[str] = []

    def note(about: str, problems: Iterator[str]) -> None:
        wrong.extend(f"{about}: {text}" for text in problems)

    with FakeServer() as server:
        for answer in ANSWERS:
            note(repr(answer.prompt), check_answer(make, model, server, answer))
        for failure in FAILURES:
            note(repr(failure.prompt), check_failure(make, model, server, failure))
        for prompt in ABORTS:
            note(f"abort in {prompt!r}", check_abort(make, model, server, prompt))
        note("conversation", check_conversation(make, model, server))
        note("redirect", check_redirect(make, model, server))
    return wrong


def stream_problems(events: Sequence[types.StreamEvent]) -> list[str]:
    """Return what is wrong with the events of a successful call."""
    if not events or not isinstance(events[-1], types.Finished):
        return ["the last event is not Finished"]
    last = events[-1]
    before = events[:-1]
    opened = [event.id for event in before if isinstance(event, types.ToolCallStart)]
    closed = [event.id for event in before if isinstance(event, types.ToolCallEnd)]
    pieces = {event.id for event in before if isinstance(event, types.ToolCallArgs)}
    thoughts = "".join(event.text for event in before if isinstance(event, types.ReasoningDelta))
    calls = [block.id for block in last.content if isinstance(block, types.ToolCall)]
    said = "".join(types.texts_in(last.content))
    thought = "".join(block.text for block in last.content if isinstance(block, types.Reasoning))
    checks = {
        "Finished is not the last event": not any(isinstance(e, types.Finished) for e in before),
        "two calls have the same id": len(set(opened)) == len(opened),
        "arguments of a call that was not announced": pieces <= set(opened),
        "the text deltas are not the text of the message": text_of(before) == said,
        "the reasoning deltas are not the reasoning of the message": thoughts == thought,
        "the calls announced are not the calls of the message": calls == opened,
        "a call was not ended exactly once": sorted(closed) == sorted(opened),
        "the stop reason does not fit the calls": last.stop == "length"
        or bool(calls) == (last.stop == "tool_use"),
    }
    return [text for text, good in checks.items() if not good]


def ask(model: types.Model, *messages: types.Message | str) -> types.Request:
    said = tuple(
        types.Message("user", (types.Text(message),), 0.0) if isinstance(message, str) else message
        for message in messages
    )
    return types.Request(model, "be brief", said, (TOOL,))


def play(
    make: Make, url: str, request: types.Request
) -> tuple[list[types.StreamEvent], errors.ProviderError | None]:
    """Return the events of a call up to its end, and the error that ended it."""
    provider = make(url)
    events: list[types.StreamEvent] = []
    try:
        for event in provider.stream(request, Cancel()):
            events.append(event)
    except errors.ProviderError as error:
        return events, error
    finally:
        provider.close()
    return events, None


def text_of(events: Sequence[types.StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, types.TextDelta))


def check_answer(
    make: Make, model: types.Model, server: FakeServer, wanted: ExpectedAnswer
) -> Iterator[str]:
    events, error = play(make, server.url, ask(model, wanted.prompt))
    if error is not None:
        yield f"failed with {error!r}"
        return
    yield from stream_problems(events)
    last = events[-1]
    assert isinstance(last, types.Finished)
    calls = tuple(block.args for block in last.content if isinstance(block, types.ToolCall))
    if (text_of(events), calls, last.stop) != (wanted.text, wanted.calls, wanted.stop):
        yield f"gave {text_of(events)!r}, {calls!r}, {last.stop!r}"
    yield from refused(server)


def check_failure(
    make: Make, model: types.Model, server: FakeServer, wanted: Failure
) -> Iterator[str]:
    events, error = play(make, server.url, ask(model, wanted.prompt))
    if not isinstance(error, wanted.kinds):
        yield f"ended with {error!r}"
    if not text_of(events).startswith(wanted.text):
        yield f"lost the text before the failure: {text_of(events)!r}"
    if any(isinstance(event, types.Finished) for event in events):
        yield "said that it finished"


def check_abort(make: Make, model: types.Model, server: FakeServer, prompt: str) -> Iterator[str]:
    provider, cancel = make(server.url), Cancel()
    timer = threading.Timer(0.2, cancel.set)
    timer.start()
    start = time.monotonic()
    try:
        for _ in provider.stream(ask(model, prompt), cancel):
            pass
        yield "ended without Cancelled"
    except errors.Cancelled:
        took = time.monotonic() - start - 0.2
        if took > ABORT_SECONDS:
            yield f"took {took:.1f} s"
    except errors.ProviderError as error:
        yield f"raised {error!r} instead of Cancelled"
    finally:
        timer.cancel()
        provider.close()


def check_conversation(make: Make, model: types.Model, server: FakeServer) -> Iterator[str]:
    """Check that the server accepts a history with calls, an image and an error."""
    first, error = play(make, server.url, ask(model, "think:1\ntools:2"))
    if error is not None or not isinstance(first[-1], types.Finished):
        yield f"failed with {error!r}"
        return
    content = first[-1].content
    ids = [block.id for block in content if isinstance(block, types.ToolCall)]
    if len(ids) != 2:
        yield f"gave {len(ids)} calls where two were asked for"
        return
    results = (
        types.ToolResult(ids[0], (types.Text("out"), types.Image("image/png", b"\x89PNG"))),
        types.ToolResult(ids[1], (types.Text("bad"),), is_error=True),
    )
    request = ask(
        model,
        "tools:2\nthen\nsay:end",
        types.Message("assistant", content, 0.0),
        types.Message("tool", results, 0.0),
    )
    events, error = play(make, server.url, request)
    if error is not None or text_of(events) != "end":
        yield f"came to {text_of(events)!r}, {error!r}"
    yield from refused(server)


def check_redirect(make: Make, model: types.Model, server: FakeServer) -> Iterator[str]:
    with FakeServer() as elsewhere:
        _, error = play(make, server.url, ask(model, f"redirect:{elsewhere.url}/v1/messages"))
        if error is None or elsewhere.requests:
            yield "was followed: the key and the prompt went along"


def refused(server: FakeServer) -> Iterator[str]:
    """Yield what a real server would refuse in the last request."""
    if not server.requests:
        yield "no request came"
        return
    seen = server.requests[-1]
    if seen.dialect is not None:
        yield from problems(seen.dialect, seen.body)
