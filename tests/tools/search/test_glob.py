import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tools import call, text

from tests.support.around import place_at
from zot.cancel import Cancel
from zot.errors import Cancelled, ToolError
from zot.tools.search import glob as glob_module
from zot.tools.search.glob import Glob

NONE = "No files matched the pattern."


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "main.py", "src/app.py", "src/app.ts", "src/deep/er/mod.py", "src/view.tsx", "tests/t.py",
        ".github/ci.yml", ".env", "build/out.py", "src/.hidden/x.py",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.utime(path, (1, 1))
    (tmp_path / ".gitignore").write_text("build/\n")
    return tmp_path


def matches(tree: Path, pattern: str, **args: object) -> list[str]:
    return text(call(Glob(place_at(str(tree))), pattern=pattern, **args)).split("\n")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["main.py", "src/app.py", "src/deep/er/mod.py", "tests/t.py"]),
        ("src/*.py", ["src/app.py"]),
        ("./*.py", ["main.py"]),
        ("src/**/*.py", ["src/app.py", "src/deep/er/mod.py"]),
        ("**/*.{ts,tsx}", ["src/app.ts", "src/view.tsx"]),
        ("{src,tests}/*.py", ["src/app.py", "tests/t.py"]),
        ("src/deep/**", ["src/deep/er/mod.py"]),
        ("app.?s", ["src/app.ts"]),
        ("[mt]*.py", ["main.py", "src/deep/er/mod.py", "tests/t.py"]),
        ("*.yml", [NONE]),
        (".github/*", [".github/ci.yml"]),
        (".env", [".env"]),
        ("src/app.py", ["src/app.py"]),
        ("build/*.py", ["build/out.py"]),
        ("out.py", [NONE]),
        ("src/*/", ["src/deep/"]),
        ("nowhere/*.py", [NONE]),
        ("*/*/*/*.py", ["src/deep/er/mod.py"]),
    ],
)
def test_patterns(tree: Path, pattern: str, expected: list[str]) -> None:
    assert matches(tree, pattern) == expected


def test_hidden_files_on_request(tree: Path) -> None:
    assert matches(tree, "*.yml", hidden=True) == [".github/ci.yml"]
    assert "src/.hidden/x.py" in matches(tree, "*.py", hidden=True)


def test_below_a_path_and_shown_relative_to_the_working_directory(tree: Path) -> None:
    assert matches(tree, "*.py", path="src") == ["src/app.py", "src/deep/er/mod.py"]
    assert matches(tree, f"{tree}/src/*.py") == ["src/app.py"]


def test_outside_the_working_directory_paths_are_absolute(tree: Path) -> None:
    assert matches(tree / "src", "../*.py") == [str(tree / "main.py")]


def test_git_directories_are_never_entered(tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".git/config.py").write_text("")
    assert ".git/config.py" not in matches(tree, "*.py", hidden=True)


def test_symlink_loops_end(tree: Path) -> None:
    (tree / "src/loop").symlink_to(tree)
    (tree / "link.py").symlink_to(tree / "main.py")
    (tree / "broken.py").symlink_to(tree / "nothing")
    names = matches(tree, "*.py")
    assert names.count("main.py") == 1
    assert "link.py" in names
    assert "broken.py" in names


def test_a_file_name_that_is_not_utf8_is_shown(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/\xff.py")).write_text("")
    assert "\ufffd.py" in matches(tree, "*.py")


def test_the_newest_come_first_and_equals_in_the_order_of_their_paths(tree: Path) -> None:
    os.utime(tree / "tests/t.py", (5, 5))
    names = ["tests/t.py", "main.py", "src/app.py", "src/deep/er/mod.py"]
    assert matches(tree, "*.py") == names


def test_a_file_name_cannot_speak_to_the_terminal(tree: Path) -> None:
    (tree / "\x1b[2Jx\ny.rb").write_text("")
    assert matches(tree, "*.rb") == ["x\ufffdy.rb"]


def test_many_matches_are_cut(tmp_path: Path) -> None:
    for number in range(501):
        (tmp_path / f"{number:04}.txt").write_text("")
        os.utime(tmp_path / f"{number:04}.txt", (1, 1))
    os.utime(tmp_path / "0500.txt", (2, 2))
    output = text(call(Glob(place_at(str(tmp_path))), pattern="*.txt"))
    assert output.startswith("0500.txt\n0000.txt\n")
    assert output.endswith("0498.txt\n\n(The newest 500 of 501 matches)")
    (tmp_path / "0500.txt").unlink()
    assert "newest" not in text(call(Glob(place_at(str(tmp_path))), pattern="*.txt"))


def test_time_is_bounded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob_module, "SECONDS", -1.0)
    assert "Stopped after" in text(call(Glob(place_at(str(tree))), pattern="*.py"))


def test_abort_ends_the_walk(tree: Path) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        call(Glob(place_at(str(tree))), pattern="*.py", cancel=cancel)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"pattern": ""}, "pattern is required"),
        ({"pattern": "[a"}, r"invalid glob pattern '\[a'"),
        ({"pattern": "*", "path": "nope"}, "no such file or directory: '.*nope'"),
        ({"pattern": "*", "path": "main.py"}, "is not a directory"),
        ({"pattern": "*", "path": "a\0b"}, "NUL"),
    ],
)
def test_errors(tree: Path, args: dict[str, str], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        call(Glob(place_at(str(tree))), **args)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "ab", "c.py"]), min_size=1, max_size=3).map("/".join),
        max_size=8,
    ),
    st.lists(st.sampled_from(["**", "*", "a", "a*", "?b", "*.py", "[ab]"]), min_size=1, max_size=4),
)
def test_as_a_naive_search_finds(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], parts: list[str]
) -> None:
    root = tmp_path_factory.mktemp("glob")
    for name in names:
        try:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("")
        except OSError:
            continue  # a file where another name needs a directory
    pattern = "/".join(parts)
    if len(parts) == 1 and pattern != "**":
        pattern = f"**/{pattern}"
    # pathlib's trailing `**` means directories only
    naive = root.glob(pattern + "/*" if pattern.endswith("**") else pattern)
    expected = {path.relative_to(root).as_posix() for path in naive if path.is_file()}
    said = text(call(Glob(place_at(str(root))), pattern="/".join(parts)))
    assert set(said.split("\n")) == (expected or {NONE})
