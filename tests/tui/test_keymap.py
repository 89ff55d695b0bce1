import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.tui.editor import Editor
from zot.tui.keys import KeyPress
from zot.tui.vi import ViKeys


def after(text, cursor, keys):
    editor, vi = Editor(), ViKeys()
    editor.set(text, cursor)
    vi.inserts = False
    vi.key(KeyPress("text", keys), editor)
    return editor, vi


TABLE = json.loads((Path(__file__).parent / "vi_table.json").read_text())


def test_it_does_what_vim_does():
    """The table was made with vim itself: scripts/vi_table.py."""
    wrong = []
    for text, cursor, keys, expected, place in TABLE:
        editor, vi = Editor(), ViKeys()
        editor.set(text, cursor)
        vi.inserts = False
        for index, part in enumerate(keys.split("\x1b")):
            if index:
                vi.key(KeyPress("esc"), editor)
            vi.key(KeyPress("text", part), editor)
        if vi.inserts:
            vi.key(KeyPress("esc"), editor)
        if (editor.text, editor.cursor) != (expected, place):
            wrong.append((text, cursor, keys, editor.text, editor.cursor))
    assert len(TABLE) > 150
    assert wrong == []


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
    st.text(alphabet='hjklwbeWBE0$^xXdcyiaIAoOupPDCSYGgrJ~{}%fFtT;,|.()w"123', max_size=30),
)
def test_no_order_of_keys_breaks_it(text, keys):
    editor, _ = after(text, len(text) // 2, keys)
    assert 0 <= editor.cursor <= len(editor.text)
