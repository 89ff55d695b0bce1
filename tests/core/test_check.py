import subprocess
import sys

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.environment import uncovered

from zot.core.check import is_plain, problem

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10},
        "edits": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"old": {"type": "string"}},
                "required": ["old"],
                "additionalProperties": False,
            },
        },
        "mode": {"enum": ["a", "b"]},
        "deep": {"type": "boolean"},
        "gone": {"type": "null"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "'path' is missing"),
        ({"path": 1}, "'path' must be of type string, not int"),
        ({"path": None}, "'path' must be of type string, not null"),
        ({"path": "x", "limit": 0}, "'limit' must be at least 1"),
        ({"path": "x", "limit": 11}, "'limit' must be at most 10"),
        ({"path": "x", "limit": 1.5}, "'limit' must be of type integer"),
        ({"path": "x", "limit": True}, "'limit' must be of type integer"),
        ({"path": "x", "edits": []}, "at least 1 item"),
        ({"path": "x", "edits": [{"old": "a"}, {}]}, "'edits'[1].old is missing"),
        ({"path": "x", "edits": [{"old": "a", "new": 1}]}, "'edits'[0].new is not an argument"),
        ({"path": "x", "mode": "c"}, "'mode' must be one of"),
        ({"path": "x", "more": 1}, "'more' is not an argument of this tool"),
        ({"path": "x", "gone": 0}, "'gone' must be of type null"),
    ],
)
def test_a_problem_names_the_field(args, words):
    assert words in problem(args, SCHEMA)


def test_good_arguments_have_no_problem():
    args = {"path": "x", "limit": 3.0, "edits": [{"old": ""}], "mode": "a", "deep": False}
    assert problem(args, SCHEMA) is None
    assert problem({"anything": [1]}, {}) is None


def test_a_schema_that_needs_the_library_is_checked_by_it():
    schema = {"type": "object", "properties": {"n": {"oneOf": [{"const": 1}, {"const": 2}]}}}
    assert problem({"n": 1}, schema) is None
    assert problem({"n": 3}, schema).startswith("'n': 3 is not valid")
    assert problem({}, {"type": "object", "minProperties": 1}).startswith("the arguments: ")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "object", "properties": {"a": {"minimum": "x"}}},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "pattern": "("},
        {"required": "path"},
        {"properties": []},
    ],
)
def test_a_schema_that_cannot_be_used_says_so_and_fetches_nothing(schema):
    assert "schema cannot be used" in problem({"a": 1}, schema)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "b", 1.0, 2.5]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
kinds = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
schemas = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": kinds,
            "enum": st.lists(json_values, min_size=1, max_size=3),
            "minimum": st.integers(-3, 3),
            "maximum": st.integers(-3, 3),
            "minItems": st.integers(0, 2),
            "description": st.just("d"),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": kinds | st.lists(kinds, min_size=1, max_size=2, unique=True),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "items": inner,
            "additionalProperties": st.booleans() | inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=5,
)


@pytest.mark.untraced
@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from("abcd"), json_values, max_size=3), schemas)
def test_it_agrees_with_the_library_on_any_schema(args, schema):
    assert (problem(args, schema) is None) == jsonschema_rs.validator_for(schema).is_valid(args)


@settings(max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from(["type", "required", "minItems", "title", "examples", "$schema", "enum"])
        | st.sampled_from(["properties", "items", "minimum", "additionalProperties", "x"]),
        json_values
        | st.lists(st.just("a"))
        | kinds
        | st.just("http://json-schema.org/draft-07/schema#"),
    )
)
def test_a_schema_that_is_plain_is_valid(schema):
    assert not is_plain(schema) or jsonschema_rs.meta.is_valid(schema)


@pytest.mark.parametrize("inner", [{"type": "integer"}, {"enum": ["a"]}, {"maxLength": 5}])
def test_a_problem_with_a_whole_file_is_told_in_a_line(inner):
    schema = {"type": "object", "properties": {"edits": {"type": "array", "items": inner}}}
    told = problem({"edits": ["x" * 1_000_000]}, schema)
    assert told.startswith("'edits'[0]")
    assert len(told) < 1000


def test_the_library_is_not_loaded_for_a_plain_tool_of_an_extension():
    program = (
        "import sys; from zot.extensions.registered import check_schema as check;"
        f"assert check({SCHEMA!r}); assert 'jsonschema_rs' not in sys.modules;"
        "assert check({'oneOf': [{}]}); assert 'jsonschema_rs' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=uncovered())
