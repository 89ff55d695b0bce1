from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.core.rule import Rule
from zot.provider.types import ToolCall
from zot.runtime.rules import SHELL_SIGNS, covers, offered
from zot.text import compiled


def bash(command: str) -> ToolCall:
    return ToolCall("1", "bash", {"command": command})


def write(path: str, tool: str = "write") -> ToolCall:
    return ToolCall("1", tool, {"path": path})


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("ls -la", "ls *"),
        ("git status", "git status *"),
        ("git -C /elsewhere log", "git -C /elsewhere log"),
        ("npm test -- --watch", "npm test *"),
        ("python -c 'print(1)'", "python -c 'print(1)'"),
        ("python tool.py x", "python tool.py *"),
        ("sudo ls", "sudo ls"),
        ("FOO=1 ls", "FOO=1 ls"),
        ("ls | wc -l", "ls | wc -l"),
        ("", ""),
    ],
)
def test_the_rule_that_is_offered_covers_the_call(command: str, pattern: str) -> None:
    rule = offered(bash(command), "/")
    assert rule == Rule("bash", pattern)
    assert covers(rule, bash(command), "/")


@pytest.mark.parametrize(
    "command",
    [
        "git log; rm -r .",
        "git log && rm x",
        "git log\nrm x",
        "git log $(rm x)",
        "git log `rm x`",
        "git log > .bashrc",
        "git logs",
        "git",
        "rm git log",
    ],
)
def test_a_rule_covers_nothing_but_its_command(command: str) -> None:
    assert not covers(Rule("bash", "git log *"), bash(command), "/")


@given(
    st.text(st.sampled_from("git log-x.;&|<>$`\n\r(){}\\\0 "), max_size=30),
    st.sampled_from(["git log *", "git *", "log *"]),
)
def test_words_never_cover_what_the_shell_would_do_more_with(command: str, pattern: str) -> None:
    if covers(Rule("bash", pattern), bash(command), "/"):
        assert not compiled(SHELL_SIGNS).search(command)
        assert command.split()[0] == pattern.split()[0]


@given(st.text(max_size=40))
def test_every_offer_covers_its_call(command: str) -> None:
    assert covers(offered(bash(command), "/"), bash(command), "/")


def test_anything_can_be_allowed() -> None:
    assert covers(Rule("bash", "*"), bash("a; b"), "/")
    other = ToolCall("1", "favourite", {"x": 1})
    assert covers(offered(other, "/"), other, "/")
    assert not covers(Rule("bash", "*"), other, "/")


def test_paths_are_what_they_lead_to(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project / "src", elsewhere):
        folder.mkdir(parents=True)
    (project / "src" / "link").symlink_to(elsewhere)
    cwd = str(project)
    rule = offered(write("src/a.py"), cwd)
    assert rule == Rule("write", "src/*")
    for path in ("src/b.py", "./src/deep/c.py", str(project / "src/d.py")):
        assert covers(rule, write(path), cwd)
        assert covers(rule, write(path, "edit"), cwd)
    for path in ("a.py", "src/../a.py", "src/link/x", "/etc/passwd", "~/x", "srcs/a"):
        assert not covers(rule, write(path), cwd)
    assert covers(Rule("write", "*"), write("anything"), cwd)
    assert not covers(Rule("write", "*"), write(str(elsewhere / "x")), cwd)
    assert offered(write("top.txt"), cwd) == Rule("write", "top.txt")
    outside = offered(write(str(elsewhere / "x")), cwd)
    assert covers(outside, write("../elsewhere/x"), cwd)
    assert not covers(outside, write("../elsewhere/y"), cwd)
