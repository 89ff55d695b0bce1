import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools import call, text

from tests.support.around import place_at
from zot.errors import ToolError
from zot.tools.edit.edit import Edit
from zot.tools.edit.lenient import PLAIN, columns, key
from zot.tools.edit.replace import Replacement, apply

FILE = """\
import os

class Job:
    def run(self):
        name = "it's"
        print(name,  "done")   # aligned
        return os.getpid() - 1

    def stop(self):
        pass
"""


def edited(file: str, old: str, new: str) -> str:
    return apply(file.encode(), [Replacement(old.encode(), new.encode())], "f").content.decode()


@pytest.mark.parametrize(
    ("old", "new", "was", "now"),
    [
        # trailing blanks that the file has not
        ("def stop(self):  \n        pass  ", "def stop(self):  \n        go()  ", "pass", "go()"),
        # typographic characters, also in what is new
        ("name = \u201cit\u2019s\u201d", "name = \u201cshe\u2019s\u201d", "it's", "she's"),
        ("os.getpid() \u2013 1", "os.getpid() \u2013 2", "- 1", "- 2"),
        # the lines at the margin, and a new one deeper
        ("def stop(self):\n    pass", "def stop(self):\n    if 1:\n        go()",
         "        pass", "        if 1:\n            go()"),
        # tabs for spaces
        ("\tdef stop(self):\n\t\tpass", "\tdef stop(self):\n\t\tgo()", "pass", "go()"),
        # alignment lost; what is not changed keeps its own
        ('print(name, "done") # aligned\n', 'print(name, "ready") # aligned\n', "done", "ready"),
        # a blank line fewer, and one too many
        ("import os\nclass Job:", "import os\nclass Task:", "Job", "Task"),
        ("def stop(self):\n\n        pass", "def stop(self):\n\n        go()", "pass", "go()"),
        # escaped once too often
        ("def stop(self):\\n        pass", "def stop(self):\\n        go()", "pass", "go()"),
        ('name = \\"it\'s\\"', 'name = \\"she\'s\\"', "it's", "she's"),
    ],
)  # fmt: skip
def test_an_edit_is_understood_and_the_rest_of_the_file_keeps_its_characters(
    old: str, new: str, was: str, now: str
) -> None:
    assert old not in FILE
    assert FILE.count(was) == 1
    assert edited(FILE, old, new) == FILE.replace(was, now)


def test_plain_characters_for_typographic_ones_keep_those_of_the_file() -> None:
    file = "It\u2019s \u201cone\u201d \u2014 two\n"
    assert edited(file, 'It\'s "one" - two', 'It\'s "one" - three') == file.replace("two", "three")


def test_the_result_says_what_was_tolerated(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(FILE)
    edits = [{"oldText": "def stop(self):\n    pass", "newText": "def stop(self):\n    go()"}]
    output = call(Edit(place_at(str(tmp_path))), path="f", edits=edits)
    note = "edit 1: applied at lines 9-10 in spite of: indentation"
    assert text(output).endswith(f"+        go()\n\n[{note}]")
    assert output.details is not None
    assert output.details["tolerated"] == [note]


def test_two_places_that_can_be_meant_are_refused_and_shown() -> None:
    file = "if a:\n    go( 1 )\nelse:\n        go( 1 )\n"
    with pytest.raises(ToolError) as error:
        edited(file, "go(  1 )", "stop()")
    assert "2 places can be meant" in str(error.value)
    assert "2:     go( 1 )\n...\n4:         go( 1 )" in str(error.value)


def test_an_exact_match_wins_over_lenient_ones() -> None:
    file = "x = 'a'\nx  = 'a'\nx = \u2018a\u2019\n"
    assert edited(file, "x = 'a'", "y") == file.replace("x = 'a'", "y", 1)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("import os\nclass Job:", "import os\nimport re\nclass Job:", "blank lines differ"),
        ("\tdef stop(self):\n            pass", "\tdef stop(self):\n  go()", "indent of newText"),
        ("name =  \u201cit's\u201d", "name =  \u201c\u2026\u201d", "may be meant or not"),
    ],
)
def test_what_cannot_be_known_is_refused_with_the_text(old: str, new: str, why: str) -> None:
    with pytest.raises(ToolError, match=why) as error:
        edited(FILE, old, new)
    assert "Send it as it is:\n" in str(error.value)


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        # blanks at the end of a line in the file, others in the old text
        ("run . \nthen\n", "run .   \nthen", "run .  \nthen", "ends of lines differ"),
        # the new text has another unit of indent than the old one
        ("\ta\n\t\tb\n", "        a\n                b", "    a\n        b", "indent of newText"),
        # tabs and spaces in one indent
        ("\t\t        a\n", " " * 24 + "a", " " * 24 + "a\n" + " " * 32 + "b", "indent of newText"),
        # a line that is there twice, and a blank line fewer beside one of them
        ("}\nif a {\nb\n}\n\nreturn\n", "}\nif a {\nb\n}\nreturn", "b\n}\nc\nd", "blank lines"),
        # blanks in a blank line, beside a change: which of the new blank lines is it?
        ("a\n  \nb\n", "a\n\nb", "a\n\nc\n\nb", "beside a change"),
        ("a\n  \nb\n", "a\n\nb", "c\n\nd", "beside a change"),
        # a wide gap beside words that bring gaps of their own
        ("x.  Per default y\n", "x. Per default y", "x.  When z. Per default y", "beside a change"),
        # blanks in the indent of the new text that the old one has not
        ("    run()\nx\n", "    run() \nx", "\u00a0   go() \nx", "typographic blanks"),
        # as many blank lines above as below what is added
        ("f()\ng()\n", "f()\n\ng()", "f()\n\nh()\n\ng()", "lines are added"),
        ("f()\n\ng()\n", "f()\ng()", "f()\nh()\n\ng()", "lines are added"),
        # a bracket that is there twice says nothing about the blank lines beside it
        ("}\nif a {\nb\n}\n\nend\n", "}\nif a {\nb\n}\nend", "b\n}\nc\n}\n\nd", "blank lines"),
        # a string of several lines, whose blanks are its own
        ("\tx := 1\n", "  x := 1\n", "  x := `\n  usage\n`\n", "inside a string"),
    ],
)
def test_what_only_guessing_could_tell_is_refused(file: str, old: str, new: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        edited(file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new", "after"),
    [
        # it begins a line, so it is not the end of another one
        ("- pip install x\n\n    x\n", "\nx\n", "\nx y\n", "- pip install x\n\n    x y\n"),
        # lines are added, and the blank lines below them are not those of the old text
        ("f()\n\ng()\n", "f()\ng()", "f()\nh()\n\n\ng()", "f()\n\nh()\n\n\ng()\n"),
        ("f()\n\ng()\n", "f()\ng()", "f()\n\nh()\n\ng()", "f()\n\nh()\n\ng()\n"),
        # the line on the other side is replaced by two
        ("# t\n\n- a\n", "# t\n\n\n- a", "# t\n\n\n* a\n* b", "# t\n\n* a\n* b\n"),
        # the other kind of quotes, which the old text does not have
        ('say("a")\n', "say(\u201ca\u201d)", "say(\u201cit\u2019s\u201d)", 'say("it\'s")\n'),
        # what follows the last line end is no blank line
        ("a\nb()\n\n", "a\nb( )\n\n\n", "a\nc()\n\n", None),
    ],
)
def test_what_can_be_told_is_applied(file: str, old: str, new: str, after: str | None) -> None:
    if after is None:
        with pytest.raises(ToolError):
            edited(file, old, new)
    else:
        assert edited(file, old, new) == after


def test_a_place_with_fewer_blank_lines_than_the_old_text_is_not_the_better_one() -> None:
    file = "    })\n  })\n\n  x\n  })\n})\n"
    with pytest.raises(ToolError, match="2 places"):
        edited(file, "  })\n})\n\n", "  })\n  y\n})\n\n")


def test_crlf_a_byte_order_mark_and_odd_bytes_survive() -> None:
    file = b"\xef\xbb\xbfone  two\r\n\xff three\r\nfour\n"
    after = apply(file, [Replacement(b"one two\n", b"one 2\n")], "f").content
    assert after == b"\xef\xbb\xbfone  2\r\n\xff three\r\nfour\n"


def test_lenient_and_exact_edits_of_one_call_do_not_overlap() -> None:
    stop = Replacement(b"def stop(self):\n    pass", b"def stop(self):\n    go()")
    edits = [stop, Replacement(b"pass\n", b"x\n")]
    with pytest.raises(ToolError, match="edits 1 and 2 overlap"):
        apply(FILE.encode(), edits, "f")


@pytest.mark.untraced
def test_a_large_file_takes_a_fraction_of_a_second() -> None:
    block = "".join(f"    line {n} of the block with \u201cwords\u201d\n" for n in range(200))
    file = FILE * 20_000 + block + FILE * 3_000
    started = time.process_time()
    after = edited(file, block.replace("\u201c", '"').replace("    ", ""), "")
    assert time.process_time() - started < 3
    assert after == FILE * 23_000


LINES = st.lists(
    st.sampled_from(["a = 1", "b('x')", "  c", "    d - e", "", "f  g", "}"]), min_size=1
)


@pytest.mark.untraced
@given(LINES, st.data())
def test_a_lenient_edit_changes_lines_of_the_matched_region_only(
    lines: list[str], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    spoil = data.draw(st.sampled_from(["  {} ", "{} ", "\t{}", " {}"]))
    old = "\n".join(spoil.format(line) if line else line for line in lines[start:end])
    file = "\n".join(lines)
    try:
        after = edited(file, old, old + "\nNEW").split("\n")
    except ToolError:
        return
    added = [at for at, line in enumerate(after) if line.strip() == "NEW"]
    assert len(added) == 1
    assert after[: added[0]] + after[added[0] + 1 :] == lines


@given(st.text(alphabet=[*"ab \t\x0b-'", *PLAIN], max_size=12))
def test_each_character_of_a_key_has_its_column(line: str) -> None:
    where = columns(line)
    assert len(where) == len(key(line)) + 1
    assert where == sorted(where)
