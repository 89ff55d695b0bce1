import json

import pytest

from zot.tui.blocks import PartialFields

TEXTS = {"path": "a/ü.py", "content": 'one\n"two"\\ \u00e9 😀 three\t\u2028'}


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("ascii", [True, False])
def test_texts_are_read_however_they_are_cut(size, ascii):
    raw = json.dumps(TEXTS, ensure_ascii=ascii)
    partial = PartialFields()
    for start in range(0, len(raw), size):
        partial.add(raw[start : start + size])
        for name, value in partial.fields.items():
            assert TEXTS[name].startswith(value)
    assert partial.fields == TEXTS


def test_inner_texts_come_with_the_outer_ones_and_what_is_no_text_is_passed_over():
    partial = PartialFields()
    partial.add('{"n": 1, "edits": [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newTex')
    assert partial.fields == {"oldText": "c", "newText": "b"}


@pytest.mark.parametrize("raw", ["", "[", '{"a', '{"a": "\\ud83d x" ', '{"a": "\\x', '"' * 50])
def test_nothing_that_is_no_json_raises(raw):
    partial = PartialFields()
    for char in raw + "and so on, to the end":
        partial.add(char)


def test_a_long_text_keeps_its_end():
    partial = PartialFields()
    partial.add('{"content": "')
    for number in range(10_000):
        partial.add(f"line {number}\\n")
    assert str(partial.fields["content"]).endswith("line 9998\nline 9999\n")
    assert len(str(partial.fields["content"])) <= 20_000
