import wcwidth
from hypothesis import given
from hypothesis import strategies as st

from zot.tui.cells import cells, clean, joined, line_cells, padded, plain, split_at, visible, wrap

SPANS = st.lists(
    st.tuples(
        st.sampled_from(["", "bold", "code"]),
        st.text(alphabet="ab c日é\n", max_size=20),
    ),
    max_size=6,
)


@given(SPANS, st.integers(2, 30), st.booleans())
def test_no_line_is_wider_and_no_letter_is_lost(spans, width, indented):
    indent = (("", " "),) if indented else ()
    lines = wrap(spans, width, first=indent, rest=indent)
    assert all(line_cells(line) <= width for line in lines)
    text = "".join(text for _, text in spans)
    assert "".join(plain(line) for line in lines).replace(" ", "") == text.replace(" ", "").replace(
        "\n", ""
    )


@given(st.text(alphabet="a日e\u0301👍🏽👩‍👩‍👧 ", max_size=20), st.integers(1, 10))
def test_a_text_is_cut_between_characters(text, width):
    head, rest = split_at(text, width)
    assert head + rest == text
    assert not text or head


def test_words_are_kept_whole_where_they_fit():
    lines = wrap([("", "the quick brown fox")], 10)
    assert [plain(line) for line in lines] == ["the quick", "brown fox"]


def test_a_word_of_two_styles_is_kept_whole():
    lines = wrap([("", "the quick "), ("bold", "bro"), ("", "wn fox")], 13)
    assert [plain(line) for line in lines] == ["the quick", "brown fox"]


def test_what_a_terminal_would_obey_is_gone_or_spelled_out():
    assert clean("a\x1b[2Jb\tc\x07") == "a\ufffd[2Jb  c\ufffd"
    assert visible("a\x1b[2J\tb\n") == "a\\x1b[2J    b\n"
    assert cells("日本a") == 5
    assert joined([("a", "x"), ("a", "y"), ("b", "")]) == (("a", "xy"),)
    assert plain(padded([("", "a")], 3)) == "a  "


def test_a_word_of_two_styles_stays_whole():
    lines = wrap([("", "some text (see "), ("code", "name"), ("", ").")], 18)
    assert [plain(line) for line in lines] == ["some text (see", "name)."]
    lines = wrap([("", "some text ("), ("code", "longname"), ("", ") end")], 18)
    assert [plain(line) for line in lines] == ["some text", "(longname) end"]


@given(st.text(alphabet="a日本語かナ한、é ", max_size=30), st.integers(1, 12))
def test_east_asian_letters_are_measured_as_the_library_does(text, width):
    assert cells(text) == wcwidth.wcswidth(text)
    head, tail = split_at(text, width)
    assert head + tail == text
    assert cells(head) <= max(2, width)
