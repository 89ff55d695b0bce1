import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.tui.editor import Editor
from zot.tui.keymap import ViKeys
from zot.tui.keys import KeyPress


def after(text, cursor, keys):
    editor, vi = Editor(), ViKeys()
    editor.set(text, cursor)
    vi.inserts = False
    vi.key(KeyPress("text", keys), editor)
    return editor, vi


@pytest.mark.parametrize(
    ("before", "keys", "expected"),
    [
        ("|one two", "w", "one| two"),
        ("one two|", "b", "one |two"),
        ("one| two", "0", "|one two"),
        ("|one two", "$", "one two|"),
        ("|one", "2l", "on|e"),
        ("|one two", "x", "|ne two"),
        ("|one two", "3x", "| two"),
        ("|one two", "dw", "| two"),
        ("|one two three", "2dw", "| three"),
        ("one |two", "D", "one |"),
        ("a\nb|b\nc", "dd", "a\n|c"),
        ("a\nb|b\nc", "ddp", "a\ncbb\n|"),
        ("|one", "cwtwo", "two|"),
        ("on|e", "A!", "one!|"),
        ("on|e", "I!", "!|one"),
        ("a|b", "onew", "ab\nnew|"),
        ("a|b", "Onew", "new|\nab"),
        ("|one", "rx", "|xne"),
        ("one\ntwo|", "gg", "|one\ntwo"),
        ("|one\ntwo", "G", "one\ntwo|"),
        ("|one", "xu", "|one"),
        ("|one", "zz", "|one"),
    ],
)
def test_what_keys_do_in_normal_mode(before, keys, expected):
    editor, _ = after(before.replace("|", ""), before.index("|"), keys)
    assert f"{editor.text[: editor.cursor]}|{editor.text[editor.cursor :]}" == expected


def test_escape_leaves_insert_mode_and_means_stop_the_second_time():
    editor, vi = Editor(), ViKeys()
    assert not vi.key(KeyPress("text", "a"), editor)
    assert vi.key(KeyPress("esc"), editor)
    assert not vi.key(KeyPress("esc"), editor)
    assert not vi.key(KeyPress("enter"), editor)
    vi.sent()
    assert vi.inserts


@pytest.mark.untraced
@given(
    st.text(alphabet="ab \n", max_size=20),
    st.text(alphabet="hjklwbe0$xdcyiaIAoOupPDCGgr123", max_size=30),
)
def test_no_order_of_keys_breaks_it(text, keys):
    editor, _ = after(text, len(text) // 2, keys)
    assert 0 <= editor.cursor <= len(editor.text)
