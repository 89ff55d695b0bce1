import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.tui.keys import KeyDecoder, KeyPress

KNOWN = {
    b"a": KeyPress("text", "a"),
    "é".encode(): KeyPress("text", "é"),
    b"\r": KeyPress("enter"),
    b"\n": KeyPress("ctrl+j"),
    b"\t": KeyPress("tab"),
    b"\x01": KeyPress("ctrl+a"),
    b"\x1f": KeyPress("ctrl+_"),
    b"\x7f": KeyPress("backspace"),
    b"\x1b[A": KeyPress("up"),
    b"\x1bOB": KeyPress("down"),
    b"\x1b[1;5C": KeyPress("ctrl+right"),
    b"\x1b[1;3D": KeyPress("alt+left"),
    b"\x1b[3~": KeyPress("delete"),
    b"\x1b[3;5~": KeyPress("ctrl+delete"),
    b"\x1b[Z": KeyPress("shift+tab"),
    b"\x1bb": KeyPress("alt+b"),
    "\x1bö".encode(): KeyPress("alt+ö"),
    b"\x1b\r": KeyPress("alt+enter"),
    b"\x1b\x7f": KeyPress("alt+backspace"),
    b"\x1b[13;2u": KeyPress("shift+enter"),
    b"\x1b[27;5;13~": KeyPress("ctrl+enter"),
    b"\x1b[97;5u": KeyPress("ctrl+a"),
    b"\x1b[97u": KeyPress("text", "a"),
    b"\x1b[97;2u": KeyPress("text", "A"),
    b"\x1b[32u": KeyPress("text", " "),
    b"\x1b[27u": KeyPress("esc"),
    b"\x1b[I": KeyPress("focus"),
    b"\x1b[O": KeyPress("blur"),
    b"\x1b[?62;c": KeyPress("reply", "[?62;c"),
    b"\x1b]11;rgb:0/0/0\x07": KeyPress("reply", "]11;rgb:0/0/0"),
    b"\x1b]11;rgb:0/0/0\x1b\\": KeyPress("reply", "]11;rgb:0/0/0"),
    b"\x1b[200~a\rb\x1b[201~": KeyPress("paste", "a\nb"),
}
BYTES = st.one_of(st.binary(max_size=12), st.sampled_from(sorted(KNOWN)))


def whole(keys):
    """Letters in a row are one key, however they came."""
    merged = []
    for key in keys:
        if merged and key.name == merged[-1].name == "text":
            merged[-1] = KeyPress("text", merged[-1].text + key.text)
        else:
            merged.append(key)
    return merged


@pytest.mark.parametrize("data", sorted(KNOWN), ids=repr)
def test_each_sequence_is_its_key(data):
    assert KeyDecoder().feed(data) == [KNOWN[data]]


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"\x1b", [KeyPress("esc")]),
        (b"\x1b\x1b", [KeyPress("alt+esc")]),
        (b"\x1b[", [KeyPress("alt+[")]),
        (b"\x1b[1;", []),
        (b"", []),
        (b"\x1b[200~half", []),
    ],
)
def test_after_a_pause_an_escape_character_is_the_key(data, keys):
    decoder = KeyDecoder()
    assert decoder.feed(data) == []
    assert decoder.flush() == keys


def test_two_escape_keys_before_another_key_are_two_keys():
    assert KeyDecoder().feed(b"\x1b\x1b[A") == [KeyPress("esc"), KeyPress("up")]


def test_a_key_that_was_let_go_of_is_none():
    assert KeyDecoder().feed(b"\x1b[97;1:3u") == []


@pytest.mark.parametrize(
    "data", [b"\x1b[99999999u", b"\x1b[57441u", b"\x1b[99~", b"\x1bOx", b"\x1b[y"]
)
def test_unknown_keys_are_dropped(data):
    assert KeyDecoder().feed(data) == []


def test_an_answer_without_end_does_not_fill_the_memory():
    decoder = KeyDecoder()
    for _ in range(100):
        decoder.feed(b"\x1b]11;" + b"x" * 1000)
    assert decoder.feed(b"\x07") is not None
    assert not decoder.waits


@given(st.lists(BYTES, max_size=8), st.data())
def test_any_split_of_the_bytes_gives_the_same_keys(pieces, data):
    stream = b"".join(pieces)
    at_once = KeyDecoder()
    expected = whole([*at_once.feed(stream), *at_once.flush()])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    split = KeyDecoder()
    keys = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        keys += split.feed(stream[start:end])
    assert whole([*keys, *split.flush()]) == expected


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), min_size=1))
def test_typed_text_comes_as_it_was_typed(text):
    keys = KeyDecoder().feed(text.encode())
    assert "".join(key.text for key in keys) == text
