import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.patience import patience

from zot.tools.search.wildcard import BadPattern, braces, compile_name, compile_segments, matches

NAMES = st.text(alphabet="ab.", min_size=1, max_size=4)
PATHS = st.lists(NAMES, min_size=1, max_size=5)
PARTS = st.one_of(st.just("**"), st.text(alphabet="ab.*?", min_size=1, max_size=5))


def model_name(pattern: str, name: str) -> bool:
    """The plain recursive meaning."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return model_name(pattern[1:], name) or bool(name) and model_name(pattern, name[1:])
    return bool(name) and pattern[0] in ("?", name[0]) and model_name(pattern[1:], name[1:])


def model(parts: list[str], path: list[str]) -> bool:
    if not parts:
        return not path
    if parts[0] == "**":
        rest = [part for part in parts if part != "**"]
        if not rest:
            return bool(path)
        return model(parts[1:], path) or bool(path) and model(parts, path[1:])
    return bool(path) and model_name(parts[0], path[0]) and model(parts[1:], path[1:])


@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="ab", max_size=8))
def test_names_match_as_the_plain_meaning_says(pattern: str, name: str) -> None:
    assert bool(compile_name(pattern).match(name)) == model_name(pattern, name)


@given(st.lists(PARTS, min_size=1, max_size=5), PATHS)
def test_paths_match_as_the_plain_meaning_says(parts: list[str], path: list[str]) -> None:
    if any("**" in part and part != "**" for part in parts):
        return
    assert matches(compile_segments("/".join(parts)), path) == model(parts, path)


@given(st.text(alphabet="ab[]!^-\\*?{},/", max_size=12), PATHS)
def test_any_pattern_matches_or_is_refused(pattern: str, path: list[str]) -> None:
    try:
        for each in braces(pattern):
            matches(compile_segments(each), path)
    except BadPattern:
        pass


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("[ab].py", "a.py", True),
        ("[!ab].py", "a.py", False),
        ("[^ab].py", "c.py", True),
        ("[a-c]", "b", True),
        ("[]x]", "]", True),
        ("[a-]", "-", True),
        (r"\*", "*", True),
        (r"\*", "a", False),
        (r"[\]]", "]", True),
        ("a\\", "a\\", True),
        ("*", "new\nline", True),
    ],
)
def test_classes_and_escapes(pattern: str, name: str, expected: bool) -> None:
    assert bool(compile_name(pattern).match(name)) == expected


@pytest.mark.parametrize("pattern", ["[ab", "[", "[z-a]", "x[!"])
def test_a_pattern_without_meaning_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compile_name(pattern)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.{ts,tsx}", ["*.ts", "*.tsx"]),
        ("{a,b{c,d}}/{e,f}", ["a/e", "a/f", "bc/e", "bc/f", "bd/e", "bd/f"]),
        ("{a}", ["{a}"]),
        ("{a,b", ["{a,b"]),
        (r"\{a,b}", [r"\{a,b}"]),
        (r"{a\,b,c}", [r"a\,b", "c"]),
        ("{,x}", ["", "x"]),
    ],
)
def test_braces(pattern: str, expected: list[str]) -> None:
    assert braces(pattern) == expected


def test_a_bomb_of_braces_is_refused() -> None:
    with pytest.raises(BadPattern, match="more than"):
        braces("{a,b}" * 40)


def test_no_pattern_takes_long() -> None:
    started = time.monotonic()
    assert not compile_name("*a" * 60 + "b").match("a" * 250)
    assert not matches(compile_segments("**/a/" * 30 + "b"), ["a"] * 200)
    assert time.monotonic() - started < patience(5)
    assert re.compile("x")
