from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.local.form import MARKERS, Speech, SpokenCall, find_call, forms_for
from zot.provider.types import ToolSpec

FORMS = forms_for(
    [
        ToolSpec(
            "bash", "", {"properties": {"command": {"type": "string"}}, "required": ["command"]}
        ),
        ToolSpec(
            "edit", "", {"properties": {"path": {}, "edits": {}}, "required": ["path", "edits"]}
        ),
    ]
)
LS = SpokenCall("bash", {"command": "ls"})
FLAT = '{"tool":"bash","command":"ls"}'
USUAL = '{"name": "bash", "arguments": {"command": "ls"}}'


def heard(pieces: list[str]) -> tuple[str, SpokenCall | None]:
    speech = Speech(FORMS)
    shown = "".join(speech.feed(piece) for piece in pieces)
    rest, call = speech.finish()
    return shown + rest, call


@pytest.mark.parametrize(
    "text",
    [
        FLAT,
        f"  {FLAT}",
        f"```json\n{FLAT}\n```",
        f"```json\n{USUAL}\n```",
        f"[TOOL]{USUAL}[/TOOL]",
        f"<tool_call>\n{USUAL}\n</tool_call>",
        f"<tools>{USUAL}</tools>",
        json.dumps(json.loads(FLAT), indent=2),
        '{"name":"bash","parameters":{"command":"ls"}}',
        f"{FLAT} and then some",
    ],
)
def test_a_call_is_found_in_whatever_markup(text: str) -> None:
    for pieces in ([text], list(text)):
        assert heard(pieces) == ("", LS)


def test_a_call_after_text_is_found_and_its_markup_not_shown() -> None:
    assert heard(["I will list them.\n", "```js", "on\n", FLAT, "\n```"]) == (
        "I will list them.\n",
        LS,
    )


def test_a_flat_edit_is_rearranged() -> None:
    call = heard(['{"tool":"edit","path":"a","old":"x","new":"y"}'])[1]
    assert call == SpokenCall("edit", {"path": "a", "edits": [{"oldText": "x", "newText": "y"}]})


@pytest.mark.parametrize(
    "text",
    [
        '{"tool":"rocket","command":"ls"}',
        '{"name":"bash"}',
        '{"tool":7}',
        '{"tool":"bash","command":"ls',
        "{not json}",
        "{",
        "[TOOL]nothing",
        '["a"]',
    ],
)
def test_what_is_no_call_is_given_back_as_text(text: str) -> None:
    assert heard(list(text)) == (text, None)


def test_json_that_is_no_call_is_shown_without_waiting_for_its_end() -> None:
    speech = Speech(FORMS)
    assert speech.feed("Here: ") == "Here: "
    assert speech.feed('{"colour":') == '{"colour":'


def test_a_whole_answer_that_begins_with_a_brace_is_a_call() -> None:
    speech = Speech(FORMS)
    assert speech.feed(" ") == ""
    assert not speech.is_call
    speech.feed('{"tool"')
    assert speech.is_call
    assert speech.held == ' {"tool"'


def test_deep_nesting_is_no_call() -> None:
    assert find_call('{"tool":' + "[" * 100_000 + "]" * 100_000 + "}", FORMS) is None


@given(st.lists(st.text(alphabet=st.sampled_from('ab {}[]"`<>|\nTOLjson:_tc/'))))
def test_text_is_never_lost_or_changed(pieces: list[str]) -> None:
    text = "".join(pieces)
    shown, call = heard(pieces)
    assert call is not None or shown == text


@given(st.text(), st.integers(1, 5))
def test_any_cut_gives_the_same(text: str, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert heard(pieces) == heard([text])


@given(st.sampled_from(MARKERS), st.text(alphabet="abc ", min_size=1))
def test_a_marker_alone_hides_nothing(marker: str, text: str) -> None:
    whole = f"x{marker}{text}"
    assert heard(list(whole)) == (whole, None)
