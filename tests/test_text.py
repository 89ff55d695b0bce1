import sys
import unicodedata

import pytest

from zot.text import MAX_NESTING, check_nesting, cookie_of, printable


@pytest.mark.untraced
def test_nothing_that_a_terminal_obeys_is_left():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    kept = set(printable(every))
    kinds = {letter: unicodedata.category(letter) for letter in kept}
    assert {letter for letter, kind in kinds.items() if kind in ("Cc", "Cs")} == {"\t", "\n"}
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not [letter for letter in kept if unicodedata.bidirectional(letter) in turning]


def test_what_people_write_stays():
    for text in (
        "a\tb\nc",
        "10\u00a0km",
        "\U0001f468\u200d\U0001f469",
        "\u0645\u200c\u06cc",
        "\u2003",
    ):
        assert printable(text) == text
    assert printable("a\r\nb\rc") == "a\nb\ufffdc"


def test_a_cookie_is_one_of_those_that_were_sent():
    header = 'x="a;b"; zot_2=other ;zot=to-ken_=; zot=second'
    assert [cookie_of(header, name) for name in ("zot", "zot_2", "ot")] == ["to-ken_=", "other", ""]


@pytest.mark.parametrize("inside", [b"", b'"]"', b'"\\"]"', b'"' + b"]" * 1000 + b'"'])
def test_json_is_nested_so_deep_and_no_deeper(inside):
    def nested(levels):
        half = levels // 2
        opened = b'[{"a":' * half + b"[" * (levels % 2)
        return opened + inside + b"]" * (levels % 2) + b"}]" * half

    check_nesting(nested(MAX_NESTING))
    with pytest.raises(RecursionError, match="more than 500 levels"):
        check_nesting(nested(MAX_NESTING + 1))


def test_a_string_that_never_ends_is_looked_at_once():
    check_nesting(b'["' + b"[\\" * 1_000_000)
