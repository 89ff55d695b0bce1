import copy
import json
import subprocess
import sys

import jsonschema_rs
import pytest
from support.docs import ROOT

from zot.cli.schema import DOCUMENTS
from zot.wire import commands
from zot.wire.schema import DATA, breaking_changes, rpc_schema, text_of

FOLDER = ROOT / "docs" / "schema"
BASELINE = FOLDER / "rpc-v1-baseline.json"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_schema_in_the_documents_is_the_one_of_the_code(name):
    written = (FOLDER / f"{name}.json").read_text()
    assert written == text_of(DOCUMENTS[name]()), (
        f"docs/schema/{name}.json is stale: run `zot schema {name} > docs/schema/{name}.json`"
    )


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_each_document_is_a_valid_schema(name):
    jsonschema_rs.validator_for(DOCUMENTS[name]())


def test_nothing_has_disappeared_within_protocol_version_1():
    assert breaking_changes(json.loads(BASELINE.read_text()), rpc_schema()) == []


def test_every_command_says_what_its_response_carries():
    assert set(DATA) == set(commands.AnyCommand.__args__)


@pytest.mark.parametrize(
    ("frame", "valid"),
    [
        ({"type": "done"}, True),
        ({"type": "done", "seq": 7, "prompt_id": "1"}, True),
        ({"type": "turn_start", "step": 1}, True),
        ({"type": "turn_start", "step": "one"}, False),
        ({"type": "turn_start"}, False),
        ({"type": "no_such_event"}, False),
        ({"type": "prompt", "message": "hi", "id": 7}, True),
        ({"type": "prompt", "message": 7}, False),
        ({"type": "response", "command": "ping", "success": True, "data": {"pong": True}}, True),
        ({"type": "response", "command": "ping", "success": True}, False),
        ({"type": "response", "command": "abort", "success": True, "id": "1"}, True),
        ({"type": "response", "command": "", "success": False, "error": "no"}, True),
        ({"type": "response", "command": "", "success": False}, False),
    ],
)
def test_the_schema_tells_frames_from_what_is_none(frame, valid):
    assert jsonschema_rs.validator_for(rpc_schema()).is_valid(frame) is valid


# --- the compatibility check -----------------------------------------------------------------


def changed(change):
    new = copy.deepcopy(rpc_schema())
    change(new["$defs"])
    return breaking_changes(rpc_schema(), new)


def test_an_event_that_disappears_is_found():
    member = {"$ref": "#/$defs/TurnEnd"}
    problems = changed(lambda defs: (defs.pop("TurnEnd"), defs["Event"]["anyOf"].remove(member)))
    assert "TurnEnd has disappeared" in problems
    assert "Event no longer includes TurnEnd" in problems


def test_a_field_that_disappears_is_found():
    assert changed(lambda defs: defs["Usage"]["properties"].pop("cumulative")) == [
        "Usage.cumulative has disappeared"
    ]


def test_a_field_that_changes_its_type_is_found():
    change = {"type": "string"}
    assert changed(lambda defs: defs["TurnStart"]["properties"].update(step=change)) == [
        "TurnStart.step was integer, is string"
    ]


def test_a_field_that_is_not_always_sent_any_more_is_found():
    assert changed(lambda defs: defs["ToolResult"]["required"].remove("is_error")) == [
        "ToolResult.is_error is not always sent any more"
    ]


def test_a_field_that_a_command_needs_all_at_once_is_found():
    assert changed(lambda defs: defs["Prompt"]["required"].append("message")) == [
        "Prompt.message must be sent now"
    ]


def test_a_word_that_disappears_is_found():
    (problem,) = changed(lambda defs: defs["TurnEnd"]["properties"]["stop"]["enum"].remove("end"))
    assert problem.startswith("TurnEnd.stop was one of aborted, end,")


def test_additions_break_nothing():
    def grow(defs):
        defs["New"] = {"type": "object", "properties": {}}
        defs["Event"]["anyOf"].append({"$ref": "#/$defs/New"})
        defs["TurnEnd"]["properties"]["more"] = {"type": "string"}
        defs["TurnEnd"]["properties"]["stop"]["enum"].append("paused")
        defs["Prompt"]["properties"]["more"] = {"type": "string"}
        defs["TurnStart"]["properties"]["step"]["description"] = "words"

    assert changed(grow) == []


# --- the command -----------------------------------------------------------------------------


def zot_schema(*words):
    command = [sys.executable, "-m", "zot", "schema", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_zot_schema_prints_the_schema():
    done = zot_schema()
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(json.dumps(rpc_schema()))


@pytest.mark.slow
def test_zot_schema_against_an_older_one_lists_what_breaks(tmp_path):
    old = rpc_schema()
    old["$defs"]["TurnEnd"]["properties"]["gone"] = {"type": "string"}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old))
    done = zot_schema("--against", str(path))
    assert (done.returncode, done.stdout) == (1, "TurnEnd.gone has disappeared\n")
    assert zot_schema("--against", str(BASELINE)).returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nonsense"], 2, "invalid choice: 'nonsense'"),
        (["--against"], 2, "--against: expected one argument"),
        (["--against", "/no/such/file"], 1, "cannot read '/no/such/file'"),
        (["--against", __file__], 1, "is not JSON"),
    ],
)
def test_zot_schema_says_what_is_wrong_with_its_words(words, code, said):
    done = zot_schema(*words)
    assert done.returncode == code
    assert said in done.stderr


def test_zot_schema_help():
    assert "usage: zot schema" in zot_schema("--help").stdout
