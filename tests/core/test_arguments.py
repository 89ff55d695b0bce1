"""Arguments that do not fit their schema: repaired where there is one meaning, and only there."""

import json

from hypothesis import given
from hypothesis import strategies as st

from zot.core.arguments import fitted, parsed
from zot.core.check import problem

SCHEMA = {
    "type": "object",
    "properties": {
        "scale": {"type": "string", "enum": ["css", "Device"], "default": "css"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "rows": {"type": "array", "items": {"type": "object"}},
        "maybe": {"type": ["integer", "null"]},
        "free": {},
    },
    "required": ["scale"],
}


def test_values_are_read_in_the_types_of_the_schema():
    args = {
        "count": "12",
        "ratio": "1.5",
        "deep": "True",
        "names": '["a", "b"]',
        "options": '{"n": "3"}',
        "rows": {"x": 1},
        "maybe": "4",
        "free": "5",
    }
    repaired, notes = fitted(args, SCHEMA)
    assert repaired == {
        "count": 12,
        "ratio": 1.5,
        "deep": True,
        "names": ["a", "b"],
        "options": {"n": 3},
        "rows": [{"x": 1}],
        "maybe": 4,
        "free": "5",
        "scale": "css",
    }
    assert len(notes) == 9 and "options.n: text read as integer" in notes
    assert args["count"] == "12"  # the model's own words stay as they are


def test_null_is_left_out_of_optional_arguments_only():
    repaired, _ = fitted({"scale": "DEVICE", "count": None, "maybe": None}, SCHEMA)
    assert repaired == {"scale": "Device", "maybe": None}
    assert fitted({"scale": None}, SCHEMA)[0] == {"scale": "css"}


def test_unclear_values_stay_as_they_are():
    for name, value in [
        ("count", "1.5"),
        ("count", "１"),
        ("count", "1_0"),
        ("count", ""),
        ("ratio", "nan"),
        ("ratio", "inf"),
        ("deep", "yes"),
        ("deep", 1),
        ("names", "a, b"),
        ("names", {"a": 1}),
        ("options", "[1]"),
        ("scale", "cs"),
    ]:
        args = {"scale": "css", name: value}
        assert fitted(args, SCHEMA)[0] == args


def test_text_that_holds_an_object():
    assert parsed(json.dumps(json.dumps({"a": 1}))) == {"a": 1}
    assert parsed('{"a": "1\n2"}') == {"a": "1\n2"}
    for raw in ("", "5", '"x"', "[1]", '{"a": ', "[" * 100_000, json.dumps(json.dumps("{}"))):
        assert parsed(raw) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), JSON))
def test_arguments_that_fit_are_never_changed_and_repairs_are_final(args):
    repaired, notes = fitted(args, SCHEMA)
    if problem(args, SCHEMA) is None:
        assert (repaired, notes) == (args, [])
    if problem(repaired, SCHEMA) is None:
        assert fitted(repaired, SCHEMA) == (repaired, [])
