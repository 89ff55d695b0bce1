import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zot.tools.disk import Disk
from zot.tools.search.walk import IgnoreRules, Tree

GIT = shutil.which("git")

LINES = st.sampled_from(
    [
        "*.log", "build/", "/build", "a/b", "a/*", "/a/**", "**/b", "a/**/c", "!keep.log", "!a/b",
        "*", "!*/", "c", "# comment", "", "   ", "b\\ ", "x ", "[ab]", "[!c]", "[z", "\\#x", "\\!x",
        "a/", "/*.log", "**", "a/**", "foo**bar", "d/e/", "!c",
    ]
)  # fmt: skip
FILES = [
    "x.log", "keep.log", "a/b", "a/c", "a/d/c", "a/b.log", "build/x", "sub/build/x", "sub/a/b",
    "b", "c", "d/e/f", "d/e.log", "#x", "!x", "b ", "x", "foobar", "foozbar", "sub/keep.log",
]  # fmt: skip


def make(root: Path, ignores: dict[str, list[str]]) -> None:
    for name in FILES:
        path = root / name
        if path.is_dir() or path.parent.is_file():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for folder, lines in ignores.items():
        if (root / folder).is_dir():
            (root / folder / ".gitignore").write_text("\n".join(lines) + "\n")


def ours(root: Path) -> list[str]:
    entries = Tree(str(root), str(root), Disk()).walk(hidden=True, check=lambda: None)
    return ["/".join(path) for path, entry in entries if entry.is_file()]


@pytest.mark.skipif(GIT is None, reason="needs git to compare with")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(LINES, max_size=5), st.lists(LINES, max_size=3), st.lists(LINES, max_size=3))
@pytest.mark.slow
def test_the_same_files_as_git(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], sub: list[str], a: list[str]
) -> None:
    root = tmp_path_factory.mktemp("repo")
    make(root, {"": top, "sub": sub, "a": a})
    assert GIT is not None
    subprocess.run([GIT, "init", "-q"], cwd=root, check=True)
    said = subprocess.run(
        [GIT, "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"],
        cwd=root, check=True, capture_output=True,
    )  # fmt: skip
    expected = said.stdout.decode().rstrip("\0").split("\0")
    assert sorted(ours(root)) == sorted(name for name in expected if name)
    shutil.rmtree(root)


def test_names_come_in_the_order_of_their_parts(tmp_path: Path) -> None:
    for name in ("a.txt", "a/z", "a/b/c", "B", "é"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert ours(tmp_path) == ["B", "a/b/c", "a/z", "a.txt", "é"]


def test_rules_above_the_root_count_down_from_the_repository(tmp_path: Path) -> None:
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("*\n")
    (tmp_path / "repo/.gitignore").write_text("*.log\n/sub/skip\n")
    (tmp_path / "repo/sub").mkdir()
    for name in ("x.log", "skip", "kept"):
        (tmp_path / "repo/sub" / name).write_text("")
    assert ours(tmp_path / "repo/sub") == ["kept"]


def test_a_repository_inside_has_its_own_rules(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "inner/.git").mkdir(parents=True)
    (tmp_path / "inner/x.log").write_text("")
    (tmp_path / "y.log").write_text("")
    assert ours(tmp_path) == [".gitignore", "inner/x.log"]


def test_an_ignored_directory_can_be_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("node_modules/\n")
    (tmp_path / "node_modules/pkg").mkdir(parents=True)
    (tmp_path / "node_modules/pkg/index.js").write_text("")
    assert ours(tmp_path) == [".gitignore"]
    assert ours(tmp_path / "node_modules") == ["pkg/index.js"]


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4))
@pytest.mark.slow
def test_no_file_of_rules_is_too_strange(text: str, path: list[str]) -> None:
    IgnoreRules(text).verdict(path, False)


def test_an_exception_leaves_the_other_rules_together() -> None:
    lines = [f"*.x{n}" for n in range(200)]
    rules = IgnoreRules("\n".join([*lines, "!keep.x7", *lines[:100]]))
    assert len(rules._runs) == 3
    assert rules.verdict(("a", "keep.x150"), False) is True
    assert rules.verdict(("a", "keep.y"), False) is None
    assert IgnoreRules("*.x7\n!keep.x7").verdict(("a", "keep.x7"), False) is False
