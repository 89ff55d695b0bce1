from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.around import tools_at
from zot.local.form import Form, flat_call, forms_for, grammar
from zot.provider.types import ToolCall, ToolSpec
from zot.runtime.task import TaskTool


def builtin() -> dict[str, Form]:
    tools = [*tools_at("/"), TaskTool]
    return forms_for(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)


def test_our_own_tools_come_first_without_what_the_shell_can_do() -> None:
    assert list(builtin()) == ["bash", "read", "write", "edit"]


def test_search_tools_are_shown_where_there_is_no_shell() -> None:
    specs = [ToolSpec("grep", "Search.", {"properties": {"pattern": {"type": "string"}}})]
    assert list(forms_for(specs)) == ["grep"]


def test_optional_arguments_of_our_tools_are_left_out() -> None:
    assert builtin()["read"].line() == '{"tool":"read","path":"..."} shows a file'


def test_edit_is_flat_for_the_model_and_nested_for_the_tool() -> None:
    edit = builtin()["edit"]
    args = {"path": "a", "edits": [{"oldText": "x", "newText": "y"}]}
    flat = {"tool": "edit", "path": "a", "old": "x", "new": "y"}
    assert edit.args(flat) == args
    assert json.loads(edit.flat(args)) == flat


def test_an_edit_of_several_places_is_shown_as_it_was() -> None:
    edit = builtin()["edit"]
    many = [{"oldText": "x", "newText": "y"}] * 2
    assert json.loads(edit.flat({"path": "a", "edits": many}))["edits"] == many


def test_a_foreign_tool_keeps_its_arguments_and_its_first_sentence() -> None:
    schema = {
        "properties": {
            "unit": {"enum": ["c", "f"]},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
            "scale": {"type": "number"},
            "city": {"type": "string"},
            "more": {"type": "object"},
            "any": True,
        },
        "required": ["city", "unit"],
    }
    form = forms_for([ToolSpec("weather", "Tells the weather. At length.\nVery.", schema)])[
        "weather"
    ]
    assert form.line() == (
        '{"tool":"weather","unit":"c"|"f","city":"...","days":0?,"exact":true?,"scale":0.0?,'
        '"more":...?,"any":...?} Tells the weather'
    )
    assert '( "\\"c\\"" | "\\"f\\"" )' in form.rule()
    assert '( ",\\"days\\":" int )?' in form.rule()


def test_a_tool_without_properties_has_no_arguments() -> None:
    form = forms_for([ToolSpec("now", "Tells the time.", {"type": "object"})])["now"]
    assert form.line() == '{"tool":"now"} Tells the time.'


def test_the_grammar_follows_the_choice() -> None:
    forms = builtin().values()
    assert grammar(forms, "auto").startswith("root ::= call | text\n")
    assert grammar(forms, "required").startswith("root ::= call\n")
    assert grammar(forms, "none").startswith("root ::= text\n")
    assert grammar((), "auto").startswith("root ::= text\n")


def test_a_call_of_a_tool_that_is_gone_is_still_shown() -> None:
    assert flat_call(ToolCall("1", "old", {"a": 1}), {}) == '{"tool":"old","a":1}'
    assert flat_call(ToolCall("1", "old", None, raw="{half"), {}) == "{half"


@given(st.dictionaries(st.sampled_from(["path", "content"]), st.text(), min_size=2))
def test_flat_and_back_is_the_same_call(args: dict[str, str]) -> None:
    write = builtin()["write"]
    assert write.args(json.loads(write.flat(args))) == args


@given(st.text(), st.text(), st.text())
def test_flat_and_back_is_the_same_edit(path: str, old: str, new: str) -> None:
    edit = builtin()["edit"]
    args = {"path": path, "edits": [{"oldText": old, "newText": new}]}
    assert edit.args(json.loads(edit.flat(args))) == args
