"""Every JSON example of docs/rpc.md: commands go to a real process, frames are compared with it."""

import json
import re
import typing

import msgspec
import pytest
from support.docs import blocks
from support.rpc import Zot

from zot import errors
from zot.settings.options import FLAGS
from zot.wire import commands, frames, zot
from zot.wire.frames import EventFrame
from zot.wire.zot import FEATURES

PAGE = "docs/rpc.md"
EXAMPLES = [(block, json.loads(block.text)) for block in blocks(PAGE, "json")]
WORDS = commands.BY_NAME
COMMANDS = [value for _, value in EXAMPLES if value.get("type") in WORDS and "id" in value]
COMMANDS = [value for value in COMMANDS if "name" not in value or value["type"] == "run_command"]
RESPONSES = [value for _, value in EXAMPLES if value.get("type") == "response"]
EVENT_TYPES = {each.__struct_config__.tag for each in typing.get_args(EventFrame)}
EVENTS = [
    value
    for _, value in EXAMPLES
    if value.get("type") in EVENT_TYPES and value not in COMMANDS and "role" not in value
]
# Answers to something that nobody asked in the test; they are known, and nothing waits for them.
NEEDS_A_PARTNER = {
    "retry_prompt",
    "approve",
    "remove_approval",
    "answer",
    "panel_key",
    "panel_close",
    "panel_resize",
    "run_command",
    "load_session",
    "resume_run",
    "events",
}
TURNS = [
    {"match": "<conversation>", "text": "the summary", "usage": {"input": 5, "output": 5}},
    {"text": "ok", "repeat": True},
]


def test_every_example_is_a_command_an_answer_an_event_or_a_message():
    known = len(COMMANDS) + len(RESPONSES) + len(EVENTS)
    messages = [value for _, value in EXAMPLES if "role" in value]
    assert known + len(messages) == len(EXAMPLES) > 70
    for message in messages:
        made = msgspec.convert(message, frames.MessageShape)
        assert json.loads(zot.encode(made)) == message


def test_every_command_event_and_feature_has_its_example():
    assert {command["type"] for command in COMMANDS} == set(commands.BY_NAME)
    assert {event["type"] for event in EVENTS} == EVENT_TYPES
    text = blocks(PAGE)[0].path.read_text()
    for feature in FEATURES:
        assert f"\n| `{feature}` |" in text


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event["type"])
def test_an_event_has_exactly_these_fields(event):
    plain = {
        name: value for name, value in event.items() if name not in ("agent", "seq", "prompt_id")
    }
    made = msgspec.convert(plain, EventFrame)
    assert json.loads(zot.encode(made)) == plain


def shape(value):
    """Names and kinds, without the values: what an example promises about an answer."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if type(value) in (int, float) else type(value).__name__


def test_every_command_is_carried_out_and_answered_as_shown(tmp_path):
    with Zot(tmp_path, TURNS, env={"ZOTCORE_RPC_TOKEN": "shared-secret"}) as process:
        shown = {response["id"]: response for response in RESPONSES}
        for command in COMMANDS:
            if command["type"] == "compact":
                for number in range(4):
                    process.prompt(f"prompt {number}")
            answer = process.ask(**command)
            if command["type"] in NEEDS_A_PARTNER and not answer["success"]:
                assert answer.get("code") in (None, "not_found", "session"), answer
                continue
            assert answer["success"], (command, answer)
            if (example := shown.get(command["id"])) and "queued" not in str(example):
                kept = {n: v for n, v in answer.items() if n in example}
                assert shape(kept) == shape(example), command
            if "started" in (answer.get("data") or {}):
                process.wait(lambda: process.done_count() == process.run_count(), "done")
        process.ask("hello", features=[])
        process.invariants()
        assert process.close()[0] == 0


def test_failed_answers_are_as_shown(tmp_path):
    with Zot(tmp_path, TURNS) as process:
        failed = process.ask("fly", id="a")
        assert failed in RESPONSES
        process.ask("hello", features=["codes"])
        assert process.ask("prompt", id="f", message="") in RESPONSES
        assert process.ask("ping", id=7) in RESPONSES


def codes(kind):
    yield kind.code
    for below in kind.__subclasses__():
        # What is said beside the wire: of a server that is gone, by the swarm. Other tests load it.
        if below.__module__ != "zot.rpc_process" and not below.__module__.startswith("zot.swarm"):
            yield from codes(below)


def test_every_code_of_an_error_is_explained():
    text = blocks(PAGE)[0].path.read_text()
    for code in {*codes(errors.ZotError)}:
        assert f"\n| `{code}` |" in text, code


def test_flags_that_are_named_exist():
    text = blocks(PAGE)[0].path.read_text()
    names = set(FLAGS)
    for name in set(re.findall(r"`(--[a-z-]+)", text)):
        assert name in names, name
