"""Answers that must fit a schema: checked, asked for once more, an error else."""

import dataclasses
import json
import subprocess
import sys
from typing import TypedDict

import msgspec
import pytest
from support.provider import BY_API, ask, client, model_of, run
from support.rpc import Zot, environment, make_folder, write_script

import zot
from zot.errors import CommandError, InvalidOutput
from zot.sdk.output import converted, schema_of
from zot.testing.fakeserver import FakeServer
from zot.testing.rules import loose

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["name"],
}
GOOD = '{"name": "zot", "size": 3}'


class Found(msgspec.Struct):
    name: str
    size: int = 0


@dataclasses.dataclass
class Plain:
    name: str
    found: list[Found]


class Typed(TypedDict):
    name: str


def last(frames, kind):
    return [frame for frame in frames if frame["type"] == kind][-1]


def test_over_rpc_an_answer_is_checked_and_asked_for_once_more(tmp_path):
    with Zot(
        tmp_path, [GOOD, "it is zot", GOOD, "no", '{"size": 0}'], features=["codes"]
    ) as process:
        frames = process.prompt(schema=SCHEMA)
        assert [frame["type"] for frame in frames].count("turn_start") == 1
        frames = process.prompt(schema=SCHEMA)
        assert last(frames, "assistant_message")["content"][0]["text"] == GOOD
        assert last(frames, "turn_end")["stop"] == "end"
        frames = process.prompt(schema=SCHEMA)
        error = last(frames, "error")
        assert error["code"] == "invalid_output" and "'name' is missing" in error["message"]
        said = process.ask("prompt", message="go", schema={"type": "nonsense"})
        assert not said["success"] and "schema cannot be used" in said["error"]
        process.invariants()


@pytest.mark.parametrize(("answers", "code"), [([GOOD], 0), (["no", "no"], 1)])
def test_one_shot_modes_take_a_file(tmp_path, answers, code):
    cwd = make_folder(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    flags = ["--output-schema", str(tmp_path / "schema.json"), "--no-session"]
    done = subprocess.run(
        [sys.executable, "-m", "zot", *write_script(tmp_path, answers), *flags, "-p", "go"],
        env=environment(tmp_path),
        cwd=cwd,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert (done.stdout.decode().strip() == GOOD) == (code == 0)


def test_in_python_the_answer_has_the_type(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"turns": [{"text": GOOD}, {"text": "no"}, {"text": "no"}]}))
    with zot.Runtime(provider="scripted", script=str(path), cwd=str(tmp_path)) as runtime:
        assert runtime.ask("go", schema=Found).output == Found("zot", 3)
        with pytest.raises(InvalidOutput):
            runtime.ask("go", schema=Found)
        with pytest.raises(CommandError, match="has no JSON Schema"):
            runtime.ask("go", schema=object())


def test_schemas_of_types():
    assert schema_of(SCHEMA) is SCHEMA and converted(GOOD, SCHEMA) == json.loads(GOOD)
    schema = schema_of(Plain)
    assert schema["type"] == "object" and set(schema["properties"]) == {"name", "found"}
    assert converted('{"name": "a", "found": []}', Plain) == Plain("a", [])
    assert converted('{"name": "a"}', Typed) == {"name": "a"}
    assert schema_of(list[int])["type"] == "array"

    class Model:
        @classmethod
        def model_json_schema(cls):
            return SCHEMA

        @classmethod
        def model_validate_json(cls, text):
            return "made of " + text

    assert schema_of(Model) is SCHEMA and converted(GOOD, Model) == "made of " + GOOD


@pytest.mark.parametrize("api", [*BY_API, "azure"])
def test_providers_are_asked_in_their_own_way(api):
    provider = BY_API.get(api, api)
    schema = schema_of(Plain)
    with FakeServer() as server, client(provider, server.url) as made:
        _, error = run(made, ask(model_of(provider), "text:1", tools=(), schema=schema))
    assert error is None
    body = server.requests[0].body
    match api:
        case "anthropic":
            form = body["output_config"]["format"]
            assert form["type"] == "json_schema" and loose([form["schema"]]) == []
            assert body["output_config"]["effort"]
        case "azure":
            form = body["text"]["format"]
            assert (form["type"], form["name"]) == ("json_schema", "answer")
            assert loose([form["schema"]]) == []
        case "google":
            assert body["generationConfig"]["responseJsonSchema"] == schema
            assert body["generationConfig"]["responseMimeType"] == "application/json"
        case _:  # any host: only asked in words
            assert "response_format" not in body and "text" not in body
