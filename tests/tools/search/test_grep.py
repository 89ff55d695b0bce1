import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tools import call, none_left, text

from tests.support.around import place_at
from zot.cancel import Cancel
from zot.errors import Cancelled, ToolError
from zot.tools import paths
from zot.tools.process.supervisor import Supervisor
from zot.tools.search import grep as grep_module
from zot.tools.search import program as search
from zot.tools.search.grep import Grep

RG = shutil.which("rg")
ENGINES = [pytest.param("rg", marks=pytest.mark.skipif(RG is None, reason="no rg")), "python"]


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in {
        "a.py": "import os\n\ndef alpha():\n    return 1\n",
        "sub/b.py": "def beta():\r\n    return 2\r\n",
        "sub/c.txt": "def gamma\n",
        "skip.log": "def delta\n",
        ".github/ci.yml": "run: def\n",
        "no_newline": "def last",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    (tmp_path / "binary").write_bytes(b"def \0 x\n")
    (tmp_path / "latin").write_bytes(b"def \xe9t\xe9\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    return tmp_path


@pytest.fixture(params=ENGINES)
def grep(
    request: pytest.FixtureRequest,
    tree: Path,
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
) -> Grep:
    if request.param == "python":
        without_rg(monkeypatch)
    return Grep(place_at(str(tree)), supervisor)


def without_rg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module.paths, "executable", lambda *args: None)


def test_matches_with_path_and_number(grep: Grep) -> None:
    assert text(call(grep, pattern="^def ")).split("\n") == [
        "a.py:3: def alpha():",
        "latin:1: def \ufffdt\ufffd",
        "no_newline:1: def last",
        "sub/b.py:1: def beta():",
        "sub/c.txt:1: def gamma",
        "",
        "(not searched: 1 binary with matches)",
    ]


def test_hidden_files_are_searched_but_git_and_ignored_ones_are_not(grep: Grep, tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".git/config").write_text("def\n")
    output = text(call(grep, pattern="def"))
    assert ".github/ci.yml:1: run: def" in output
    assert ".git/config" not in output
    assert "skip.log" not in output
    assert "binary:" not in output


def test_context_lines_and_separators(grep: Grep) -> None:
    assert text(call(grep, pattern="return", context=1)).split("\n") == [
        "a.py-3- def alpha():",
        "a.py:4:     return 1",
        "--",
        "sub/b.py-1- def beta():",
        "sub/b.py:2:     return 2",
    ]


def test_case_literal_and_glob(grep: Grep) -> None:
    assert text(call(grep, pattern="ALPHA", ignore_case=True)) == "a.py:3: def alpha():"
    assert text(call(grep, pattern="ALPHA")) == "No matches found."
    assert text(call(grep, pattern="alpha():", literal=True)) == "a.py:3: def alpha():"
    assert text(call(grep, pattern="def", glob="*.txt")) == "sub/c.txt:1: def gamma"
    assert text(call(grep, pattern="def", glob="sub/*.{py,js}")) == "sub/b.py:1: def beta():"


def test_below_a_directory_and_in_one_file(grep: Grep) -> None:
    assert text(call(grep, pattern="beta", path="sub")) == "sub/b.py:1: def beta():"
    assert text(call(grep, pattern="beta", path="sub/b.py")) == "sub/b.py:1: def beta():"
    assert text(call(grep, pattern="delta", path="skip.log")) == "skip.log:1: def delta"


def test_the_working_directory_rules_hold_below_a_path(grep: Grep, tree: Path) -> None:
    (tree / "sub/x.log").write_text("def\n")
    assert "x.log" not in text(call(grep, pattern="def", path="sub"))


def test_the_end_of_a_crlf_line_matches(grep: Grep) -> None:
    assert text(call(grep, pattern=r"beta\(\):$")) == "sub/b.py:1: def beta():"


def test_look_around_works(grep: Grep) -> None:
    assert text(call(grep, pattern=r"def (?=alpha)")) == "a.py:3: def alpha():"


def test_the_limit_is_said(grep: Grep) -> None:
    output = text(call(grep, pattern="def", limit=2))
    assert output == (
        "(6 matches in 6 files; the first 2 are shown; narrow the pattern, path or glob)\n"
        ".github/ci.yml: 1\na.py: 1\nlatin: 1\nno_newline: 1\nsub/b.py: 1\nsub/c.txt: 1\n\n"
        ".github/ci.yml:1: run: def\na.py:3: def alpha():\n\n"
        "(not searched: 1 binary with matches)"
    )


def test_utf16_with_its_mark_is_read(grep: Grep, tree: Path) -> None:
    (tree / "wide").write_bytes("\ufeffeins\nzwölf\n".encode("utf-16-le"))
    (tree / "big").write_bytes("\ufeffzwölf\n".encode("utf-16-be"))
    (tree / "marked").write_bytes("\ufeffzwölf\n".encode())
    output = text(call(grep, pattern="^zwö"))
    assert output == "big:1: zwölf\nmarked:1: zwölf\nwide:2: zwölf"


def test_a_file_name_cannot_speak_to_the_terminal(grep: Grep, tree: Path) -> None:
    (tree / "\x1b[2Jx").write_text("needle\n")
    assert text(call(grep, pattern="needle")) == "x:1: needle"


def test_what_was_not_searched_is_said(grep: Grep, tree: Path) -> None:
    (tree / "binary").write_bytes(b"only here\n\0\n")
    assert text(call(grep, pattern="only here")) == (
        "No matches found.\n\n(not searched: 1 binary with matches)"
    )


def test_a_file_that_could_not_be_searched_is_said(
    tree: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_rg(monkeypatch)
    (tree / "huge").touch()
    os.truncate(tree / "huge", search.MAX_FILE + 1)
    output = text(call(Grep(place_at(str(tree)), supervisor), pattern="gamma"))
    assert output == "sub/c.txt:1: def gamma\n\n(not searched: 1 larger than 67108864 bytes)"


def test_long_lines_and_much_output_are_cut(grep: Grep, tree: Path) -> None:
    (tree / "long.txt").write_text(("needle" + "é" * 3000 + "\n") * 100)
    output = text(call(grep, pattern="needle"))
    assert "... [line cut]" in output
    assert output.startswith("(100 matches in 1 files; cut at 51200 bytes;")
    assert len(output.encode()) < 53_000


def test_a_pattern_that_looks_like_an_option(grep: Grep, tree: Path) -> None:
    (tree / "opt").write_text("--version\n")
    assert text(call(grep, pattern="--version")) == "opt:1: --version"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"pattern": ""}, "pattern is required"),
        ({"pattern": "("}, r"invalid regular expression '\('"),
        ({"pattern": "a\nb"}, "one line at a time"),
        ({"pattern": "a", "path": "nope"}, "no such file or directory"),
        ({"pattern": "a", "glob": "[a"}, "invalid glob pattern"),
        ({"pattern": "a", "limit": -1}, "whole numbers"),
    ],
)
def test_errors(grep: Grep, args: dict[str, object], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        call(grep, **args)


def test_an_expression_that_never_ends_is_stopped(
    tree: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_rg(monkeypatch)
    monkeypatch.setattr(grep_module, "SECONDS", 0.5)
    (tree / "evil").write_text("a" * 60 + "\n")
    output = text(call(Grep(place_at(str(tree)), supervisor), pattern="(a+)+$b", path="evil"))
    assert output.startswith("No matches found.\n\n(stopped after")
    assert none_left("zot.tools.search.program")


def test_abort_stops_an_expression_that_never_ends(
    tree: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    without_rg(monkeypatch)
    (tree / "evil").write_text("a" * 60 + "\n")
    cancel = Cancel()
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    with pytest.raises(Cancelled):
        call(Grep(place_at(str(tree)), supervisor), pattern="(a+)+$b", path="evil", cancel=cancel)
    timer.join()
    assert none_left("zot.tools.search.program")


def test_a_program_in_the_working_directory_is_never_used(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tree / "bin/rg"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tree / 'bin'}:bin::.:{os.environ['PATH']}")
    assert paths.executable("rg", tree, os.environ) in (RG, None)
    (tree.parent / "outside").mkdir()
    (tree.parent / "outside/rg").symlink_to(fake)
    monkeypatch.setenv("PATH", str(tree.parent / "outside"))
    assert paths.executable("rg", tree, os.environ) is None


WORDS = st.sampled_from(["def", "x", "déf", "DEF", "\t", "a b", "def def", "\r", "é", ""])
LINES = st.lists(st.lists(WORDS, max_size=3).map("".join), max_size=6).map("\n".join)


@pytest.mark.skipif(RG is None, reason="needs rg to compare with")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    files=st.dictionaries(
        st.sampled_from(["a", "a.x", "b/a", "b/c.x", "b.x", ".h/a"]), LINES, max_size=4
    ),
    pattern=st.sampled_from(["def", "^def", "e.$", r"\bd\w+", "x|é", r"^\s*$", "d(e)f", "[^d]x"]),
    ignored=st.sampled_from(["", "*.x\n", "b/\n", "/a\n", "!a\n*.x\n"]),
    context=st.integers(0, 2),
    limit=st.integers(1, 6),
    ignore_case=st.booleans(),
)
@pytest.mark.slow
def test_both_engines_say_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    supervisor: Supervisor,
    files: dict[str, str],
    pattern: str,
    ignored: str,
    context: int,
    limit: int,
    ignore_case: bool,
) -> None:
    root = tmp_path_factory.mktemp("grep")
    (root / ".gitignore").write_text(ignored)
    for name, content in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        # rg lets no pattern match a carriage return, also not one in the middle of a line.
        (root / name).write_bytes(re.sub(r"\r(?!\n)", "", content).encode())
    tool = Grep(place_at(str(root)), supervisor)
    args = {"pattern": pattern, "context": context, "limit": limit, "ignore_case": ignore_case}
    with_rg = text(call(tool, **args))
    with pytest.MonkeyPatch.context() as patch:
        without_rg(patch)
        assert text(call(tool, **args)) == with_rg


def test_the_searching_program_answers_like_rg(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "huge").write_bytes(b"")
    os.truncate(tree / "huge", search.MAX_FILE + 1)
    os.mkfifo(tree / "pipe")
    request = {
        "pattern": "def|return", "literal": False, "ignore_case": True, "context": 1,
        "root": str(tree), "cwd": str(tree), "bounds": None,
    }  # fmt: skip
    assert search.search(json.dumps(request)) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["type"], each["data"].get("line_number")) for each in said[3:8]] == [
        ("begin", None), ("context", 2), ("match", 3), ("match", 4), ("end", None)
    ]  # fmt: skip
    for pattern, root in (("(", tree), ("def", tree / "gone"), ("def", tree / "a.py")):
        request |= {"pattern": pattern, "root": str(root)}
        assert search.search(json.dumps(request)) == (2 if pattern == "(" else 0)
    assert "unterminated" in capsys.readouterr().err
    request |= {"pattern": "():", "literal": True}
    assert search.search(json.dumps(request)) == 0
    assert '"match"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "the search was killed"),
        (
            "raise ModuleNotFoundError('no search here')",
            "^the search failed: ModuleNotFoundError: no search here;",
        ),
    ],
)
def test_a_search_that_fell_over_does_not_say_that_nothing_is_there(
    tree: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    without_rg(monkeypatch)
    monkeypatch.setattr(grep_module, "launch", lambda *_: [sys.executable, "-c", program])
    with pytest.raises(ToolError, match=said):
        call(Grep(place_at(str(tree)), supervisor), pattern="def")


def test_a_file_that_is_too_large_is_refused(
    tree: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_FILE", 3)
    with pytest.raises(ToolError, match="too large for grep"):
        call(Grep(place_at(str(tree)), supervisor), pattern="def", path="a.py")
