"""Replays recordings of real model servers through zot's readers, and tells which are read wrong.

    python scripts/replay_recordings.py CHECKOUT...

CHECKOUT is a working copy of a project with such recordings among its tests: pydantic-ai (cassettes
in YAML) or vercel/ai (`__fixtures__`). They stay where they are; nothing is copied. An answer that
the server itself ended with an error is right when zot reports one. Exits 1 when one is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from zot.errors import ProviderError, Refused
from zot.provider.client import load_wire
from zot.provider.failure import class_for_status, error_message
from zot.provider.http import Splitter
from zot.provider.types import Api, Finished, Text, ToolCall

PATHS: dict[str, Api] = {
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
    "/messages": "anthropic",
    ":streamGenerateContent": "google",
    ":generateContent": "google",
}
# Below packages/ of vercel/ai; what is not here speaks an API that zot does not.
FIXTURES: dict[str, Api] = {
    "anthropic/src/__fixtures__": "anthropic",
    "google/src/__fixtures__": "google",
    "google-vertex/src/__fixtures__": "google",
    "openai/src/responses": "openai-responses",
    "open-responses/src/responses": "openai-responses",
    "xai/src/responses": "openai-responses",
    "azure/src/__fixtures__": "openai-responses",
    "openai/src/chat": "openai-chat",
    "xai/src/__fixtures__": "openai-chat",
    "groq/src/__fixtures__": "openai-chat",
    "deepseek/src/chat": "openai-chat",
    "mistral/src/__fixtures__": "openai-chat",
    "alibaba/src/__fixtures__": "openai-chat",
    "moonshotai/src/__fixtures__": "openai-chat",
    "perplexity/src/__fixtures__": "openai-chat",
    "openai-compatible/src/chat": "openai-chat",
}
SHAPES = {
    "anthropic": ("content", "type"),
    "openai-chat": ("choices", "model"),
    "openai-responses": ("output", "status"),
    "google": ("candidates", "usageMetadata"),
}
ENDED = ("completed", "incomplete", "failed")
# Not as a server sent it: two answers spliced into one, to see what a client does.
SPLICED = ("spliced-message-start",)
COUNTED = re.compile(rb'"(output_tokens|completion_tokens|candidatesTokenCount)": ?[1-9]')
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Recording(NamedTuple):
    name: str
    api: Api
    status: int
    events: list[bytes]
    error_body: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", nargs="+", type=Path)
    parser.add_argument("--verbose", action="store_true", help="name what was read right too")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong = 0
    for checkout in options.checkout:
        for recording in recordings(checkout):
            problem = replay(recording)
            counts[recording.api] += 1
            wrong += bool(problem)
            if problem or options.verbose:
                print(f"{recording.name} ({recording.api}): {problem or 'right'}")
    print(f"{sum(counts.values())} answers, {wrong} wrong;", dict(counts))
    return 1 if wrong or not counts else 0


# --- finding them ----------------------------------------------------------------------------


def recordings(checkout: Path) -> Iterator[Recording]:
    for path in sorted(checkout.rglob("cassettes/**/*.yaml")):
        yield from from_cassette(path, str(path.relative_to(checkout)))
    for path in sorted(checkout.rglob("__fixtures__/*")):
        name = str(path.relative_to(checkout))
        api = next((api for part, api in FIXTURES.items() if f"packages/{part}" in name), None)
        if api is None:
            continue
        if path.name.endswith(".chunks.txt"):
            yield from from_lines(name, api, path.read_bytes().splitlines())
        elif path.suffix == ".json":
            yield from whole(name, api, json.loads(path.read_text()))


def from_lines(name: str, api: Api, lines: list[bytes]) -> Iterator[Recording]:
    """The data of one event a line; of several answers, when a conversation was recorded."""
    events = [line for line in lines if line.strip()]
    if any(not is_json(line) for line in events) or any(word in name for word in SPLICED):
        return
    if any(b'"chat.completion.chunk"' in line for line in events[:1]):
        api = "openai-chat"
    starts = [0, *(at for at in range(1, len(events)) if is_start(events[at - 1], events[at]))]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        yield Recording(f"{name}#{start}", api, 200, events[start:end])


def is_start(before: bytes, line: bytes) -> bool:
    """Whether another answer begins here."""
    ended = b'"type":"message_stop"' in before and b'"type":"message_start"' in line
    return ended or b'"type":"response.created"' in line


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def from_cassette(path: Path, name: str) -> Iterator[Recording]:
    cassette = yaml.load(path.read_text(encoding="utf-8"), LOADER) or {}
    for number, exchange in enumerate(cassette.get("interactions") or []):
        if "request" not in exchange:  # a recording of a WebSocket
            continue
        uri = str(exchange["request"].get("uri", "")).partition("?")[0]
        api = next((api for end, api in PATHS.items() if uri.endswith(end)), None)
        if api is None or exchange["request"].get("method") != "POST":
            continue
        answer = exchange["response"]
        status = answer.get("status", {}).get("code", 200)
        body = (answer.get("body") or {}).get("string") or ""
        text = body if isinstance(body, str) else body.decode("utf-8", "replace")
        title = f"{name}#{number}"
        if status >= 300:
            shown = text or json.dumps(answer.get("parsed_body"))
            yield Recording(title, api, status, [], shown)
        elif answer.get("parsed_body"):
            yield from whole(title, api, answer["parsed_body"])
        elif text.lstrip().startswith("{"):
            yield from whole(title, api, json.loads(text))
        elif text.startswith(("data:", "event:", ":")):
            splitter = Splitter(title)
            events = [*splitter.feed(text.encode()), *splitter.finish()]
            yield Recording(title, api, status, events)


def whole(name: str, api: Api, answer: Any) -> Iterator[Recording]:
    """An answer that was not streamed, as the events that it would have been."""
    if not isinstance(answer, dict) or not all(key in answer for key in SHAPES[api]):
        return
    if api != "openai-responses" or answer["status"] in ENDED:  # else it was asked for later
        events = [json.dumps(event).encode() for event in as_events(api, answer)]
        yield Recording(name, api, 200, events)


def as_events(api: Api, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if api == "anthropic":
        yield {"type": "message_start", "message": {"usage": answer.get("usage")}}
        for index, block in enumerate(answer["content"]):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": {"stop_reason": answer.get("stop_reason")}}
        yield {"type": "message_stop"}
    elif api == "openai-responses":
        for index, item in enumerate(answer["output"]):
            yield {"type": "response.output_item.added", "output_index": index, "item": item}
            for part in item.get("content") or [] if item.get("type") == "message" else []:
                text = part.get("text") or ""
                yield {
                    "type": "response.output_text.delta",
                    "output_index": index,
                    "delta": text,
                }
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": f"response.{answer['status']}", "response": answer}
    else:
        yield answer


# --- judging them ----------------------------------------------------------------------------


def replay(recording: Recording) -> str:
    """What is wrong with what zot makes of it; empty when nothing is."""
    if recording.status >= 300:
        kind = class_for_status(recording.status, recording.error_body)
        return "" if error_message(recording.error_body) else f"{kind.__name__} without a text"
    reader = load_wire(recording.api).reader("replayed")
    try:
        for data in recording.events:
            reader.read(data)
        finished = reader.finish()
    except Refused:
        return ""
    except ProviderError as error:
        return "" if has_failed(recording) else f"{type(error).__name__}: {error}"
    return "; ".join(problems(recording, finished))


def has_failed(recording: Recording) -> bool:
    """Whether the server itself said that it failed."""
    marks = (b'"type":"error"', b'"error":{', b'"response.failed"', b"MALFORMED_", b"UNEXPECTED_")
    return any(mark in data.replace(b": ", b":") for data in recording.events for mark in marks)


def problems(recording: Recording, finished: Finished) -> Iterator[str]:
    calls = [block for block in finished.content if isinstance(block, ToolCall)]
    if any(not call.name for call in calls):
        yield "a call without a name"
    if any(call.args is None for call in calls):
        yield "arguments that cannot be read"
    if any(map(COUNTED.search, recording.events)) and finished.content and not finished.usage.total:
        yield "its token counts were lost"
    if recording.api == "openai-responses" and (end := final_output(recording)) is not None:
        yield from differences(finished, end)


def final_output(recording: Recording) -> list[dict[str, Any]] | None:
    """The whole answer, which this API repeats at its end."""
    for data in reversed(recording.events):
        event = json.loads(data) if data[:1] == b"{" else {}
        if event.get("type") in ("response.completed", "response.incomplete"):
            output: list[dict[str, Any]] | None = event["response"].get("output")
            return output or None
    return None


def differences(finished: Finished, output: list[dict[str, Any]]) -> Iterator[str]:
    said = [item for item in output if item.get("type") == "message"]
    text = "".join(part.get("text") or "" for item in said for part in item.get("content") or [])
    read = "".join(block.text for block in finished.content if isinstance(block, Text))
    if len(read) > len(text) or bool(read) != bool(text):  # some recordings leave deltas out
        yield "its text is not the one that the server repeats at the end"
    names = [item["name"] for item in output if item.get("type") == "function_call"]
    if names != [block.name for block in finished.content if isinstance(block, ToolCall)]:
        yield "its calls are not those that the server repeats at the end"
    thoughts = [item for item in output if item.get("type") == "reasoning"]
    if len(thoughts) < sum(block.__class__.__name__ == "Reasoning" for block in finished.content):
        yield "more thoughts than the server had"


if __name__ == "__main__":
    sys.exit(main())
