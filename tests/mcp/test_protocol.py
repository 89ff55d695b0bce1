"""What servers say, read as data: whatever they say."""

import base64
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.cancel import Cancel
from zot.mcp import protocol
from zot.mcp.connection import argument_headers, progress_text
from zot.mcp.dialogs import McpDialogs, PersonAnswer, ServerDialogs
from zot.mcp.http import header_value
from zot.mcp.protocol import McpToolInfo, PromptInfo, Unusable, read_prompt, read_tool, tool_name
from zot.mcp.tool import output_of, prompt_arguments, prompt_text, resource_of
from zot.provider.types import Image, Text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
FIELDS = st.sampled_from(
    ["name", "description", "inputSchema", "annotations", "title", "arguments", "type", "text"]
)
LOOSE = st.dictionaries(FIELDS | st.text(max_size=5), JSON) | JSON


def test_a_tool_is_read_with_what_matters():
    tool = read_tool(
        {
            "name": "query",
            "title": "Query",
            "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}},
            "annotations": {"readOnlyHint": True, "destructiveHint": False},
            "outputSchema": {},
        },
        http=False,
    )
    assert (tool.name, tool.description, tool.reads_only) == ("query", "Query", True)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"description": "x"}, "name"),
        ({"name": ""}, "0 characters"),
        ({"name": "x" * 200}, "200 characters"),
        ({"name": "x", "inputSchema": {"type": "string"}}, "type 'string', not object"),
        ({"name": "x", "inputSchema": []}, "Expected `object`"),
        ({"name": "x", "inputSchema": {"properties": []}}, "no proper `properties`"),
        ({"name": "x", "inputSchema": {"description": "y" * 70_000}}, "the limit is 65536"),
    ],
)
def test_a_tool_that_cannot_be_used_says_why(raw, reason):
    with pytest.raises(Unusable, match=reason):
        read_tool(raw, http=False)


def test_a_schema_that_is_nested_too_deeply_is_refused():
    deep: dict = {}
    for _ in range(100):
        deep = {"items": deep}
    with pytest.raises(Unusable, match="nested too deeply"):
        read_tool({"name": "x", "inputSchema": {"properties": {"a": deep}}}, http=False)


def test_characters_that_cannot_be_seen_are_written_out():
    hidden = "plain\u200b\u202etext\U000e0041"
    tool = read_tool({"name": "x", "description": hidden}, http=False)
    assert tool.description == "plain\\u{200b}\\u{202e}text\\u{e0041}"


def test_any_change_that_can_be_seen_changes_the_face():
    plain = McpToolInfo("x", "about", {"type": "object"})
    others = [
        McpToolInfo("x", "other", {"type": "object"}),
        McpToolInfo("x", "about", {"type": "object", "properties": {}}),
        McpToolInfo("x", "about", {"type": "object"}, reads_only=True),
    ]
    assert plain.face not in {tool.face for tool in others}
    assert plain.face == McpToolInfo("x", "about", {"type": "object"}).face


# --- names -----------------------------------------------------------------------------------


def test_plain_names_stay_and_others_get_a_mark():
    assert tool_name("git", "git_status") == "mcp__git__git_status"
    dotted = tool_name("git", "status.all")
    assert dotted.startswith("mcp__git__status_all_") and dotted != tool_name("git", "status_all")


@given(st.text(min_size=1, max_size=128), st.text(min_size=1, max_size=128))
def test_every_name_is_one_that_providers_take(server, tool):
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool_name(server, tool))


@given(st.lists(st.text(min_size=1, max_size=90), unique=True, max_size=8))
def test_no_two_tools_of_a_server_have_one_name(names):
    assert len({tool_name("s", name) for name in names}) == len(names)


# --- headers of HTTP -------------------------------------------------------------------------


def header_tool(**properties):
    return read_tool({"name": "x", "inputSchema": {"properties": properties}}, http=True)


def test_marked_arguments_travel_as_headers():
    tool = header_tool(
        region={"type": "string", "x-mcp-header": "Region"},
        inner={"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        on={"type": "boolean", "x-mcp-header": "On"},
        plain={"type": "string"},
    )
    args = {"region": "eu", "inner": {"n": 7}, "on": True, "plain": "x"}
    assert argument_headers(tool, args) == {
        "Mcp-Param-Region": "eu",
        "Mcp-Param-N": "7",
        "Mcp-Param-On": "true",
    }
    assert argument_headers(tool, {"region": None}) == {}


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "string", "x-mcp-header": ""}},
        {"a": {"type": "string", "x-mcp-header": "has space"}},
        {"a": {"type": "string", "x-mcp-header": 7}},
        {"a": {"type": "object", "x-mcp-header": "A"}},
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
        {
            "a": {"type": "string", "x-mcp-header": "A"},
            "b": {"type": "string", "x-mcp-header": "a"},
        },
    ],
)
def test_a_mark_that_is_wrong_makes_the_tool_unusable_over_http_only(properties):
    with pytest.raises(Unusable, match="header"):
        header_tool(**properties)
    read_tool({"name": "x", "inputSchema": {"properties": properties}}, http=False)


@given(st.text())
def test_any_text_can_travel_as_a_header(text):
    text = text.encode("utf-8", "replace").decode()
    value = header_value(text)
    assert value.isascii() and all(" " <= char <= "~" for char in value)
    if value.startswith("=?base64?") and value.endswith("?="):
        assert base64.b64decode(value[9:-2]).decode() == text
    else:
        assert value == text


# --- any value at all ------------------------------------------------------------------------


@pytest.mark.untraced
@given(LOOSE, st.booleans())
def test_any_tool_is_read_or_unusable(raw, http):
    try:
        tool = read_tool(raw, http=http)
    except Unusable:
        return
    assert tool.schema["type"] == "object"
    msgspec.json.encode(tool)


@pytest.mark.untraced
@given(LOOSE)
def test_any_prompt_is_read_or_unusable(raw):
    try:
        read_prompt(raw)
    except Unusable:
        pass


@given(st.dictionaries(st.sampled_from(["content", "structuredContent", "isError"]), JSON))
def test_any_result_is_an_output(result):
    output = output_of(result, lambda text: text)
    assert all(isinstance(block, Text | Image) for block in output.content)


@pytest.mark.untraced
@given(st.dictionaries(st.sampled_from(["contents", "messages"]), st.lists(LOOSE) | JSON))
def test_any_resource_and_any_prompt_is_text(result):
    resource_of(result, lambda text: text)
    prompt_text(result)


# --- prompts ---------------------------------------------------------------------------------


def test_what_a_person_types_becomes_arguments():
    prompt = PromptInfo("p", "", ("who", "how"), ("who",))
    assert prompt_arguments(prompt, "Ada very nicely") == {"who": "Ada", "how": "very nicely"}
    assert prompt_arguments(prompt, "how=loud 'Ada Lovelace'") == {
        "how": "loud",
        "who": "Ada Lovelace",
    }
    assert prompt_arguments(prompt, "it's \"fine") == {"who": "it's", "how": '"fine'}


def test_long_results_are_shortened_once_and_images_counted():
    result = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert output_of(result, lambda text: text).content == (Text("a"), Text("b"))
    assert output_of(result, lambda text: "short").content == (Text("short"),)
    picture = {"type": "image", "data": "iVBORw0KGgoAAAA=", "mimeType": "image/png"}
    many = output_of({"content": [picture] * 25}, lambda text: text).content
    assert many[0] == Text("[5 more images are left out]") and len(many) == 21
    big = {"type": "image", "data": "A" * 6_000_000, "mimeType": "image/png"}
    assert "the limit is 3750000" in output_of({"content": [big]}, str).content[0].text


def test_a_structured_result_is_shown_only_if_no_text_says_it():
    both = {"content": [{"type": "text", "text": '{"n": 1}'}], "structuredContent": {"n": 1}}
    assert output_of(both, str).content == (Text('{"n": 1}'),)
    wrapped = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"result": "hi"}}
    assert output_of(wrapped, str).content == (Text("hi"),)
    other = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"n": 1}}
    assert output_of(other, str).content == (Text("hi"), Text('{"n":1}'))


def test_versions_are_chosen_newest_first():
    assert protocol.common_version(["2024-11-05", "2026-07-28"]) == "2026-07-28"
    assert protocol.common_version(["2024-11-05", "2025-06-18"]) == "2025-06-18"
    assert protocol.common_version(["1999-01-01"]) is None
    assert protocol.common_version("2026-07-28") is None


@given(JSON.map(msgspec.json.encode) | st.binary(max_size=40))
def test_any_progress_can_be_shown(data):
    assert isinstance(progress_text(msgspec.Raw(data)), str)


class Agreeing(McpDialogs):
    """A person who says yes to everything."""

    def ask(self, *question, **more):
        return PersonAnswer(confirmed=True)


@pytest.mark.parametrize(
    ("url", "action"),
    [
        ("https://x.test/login?for=me#here", "accept"),
        ("http://localhost:3000/x", "accept"),
        ("http://127.0.0.1/", "accept"),
        ("http://localhost.evil.test/", "decline"),
        ("https://user:password@x.test/", "decline"),
        ("javascript:alert(1)", "decline"),
        ("", "decline"),
    ],
)
def test_a_page_that_a_server_wants_opened_is_https_or_on_this_machine(url, action):
    asker = ServerDialogs(Agreeing(), "s")
    assert asker.elicit({"mode": "url", "url": url, "message": "go"}, Cancel()) == {
        "action": action
    }
