from pathlib import Path

import pytest
from support.rpc import Zot

from zot.errors import ConfigError
from zot.settings.hiding import hidden_patterns


def test_both_sources_count(tmp_path: Path) -> None:
    assert hidden_patterns(str(tmp_path), ["a"]) == ("a",)
    (tmp_path / ".zotignore").write_text("# secrets\n\n.env*\n/keys/\n")
    assert hidden_patterns(str(tmp_path), ["a"]) == ("a", ".env*", "./keys/")


@pytest.mark.parametrize("content", [b"!x", b"\xff", b"x\n" * 40_000])
def test_a_file_that_cannot_be_used_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ".zotignore").write_bytes(content)
    with pytest.raises(ConfigError, match=r"zotignore"):
        hidden_patterns(str(tmp_path), [])


def test_no_tool_sees_what_the_project_hides(tmp_path: Path) -> None:
    project = tmp_path / "hiding"
    project.mkdir()
    (project / ".zotignore").write_text("*.pem\n")
    (project / "a.pem").write_text("needle")
    (project / "a.txt").write_text("needle")
    calls = [
        ("read", {"path": "a.pem"}),
        ("grep", {"pattern": "needle"}),
        ("glob", {"pattern": "a*"}),
    ]
    calls.append(("write", {"path": "a.pem", "content": "x"}))
    turns = [{"tools": [{"name": name, "args": args} for name, args in calls]}, "done"]
    with Zot(tmp_path, turns, args=["--cwd", str(project)]) as zot:
        frames = zot.prompt()
    results = [frame for frame in frames if frame["type"] == "tool_result"]
    read, grep, glob, write = (str(frame) for frame in results)
    assert "hidden" in read
    assert "needle" not in read
    for found in (grep, glob):
        assert "a.txt" in found
        assert "a.pem" not in found
    assert "hidden" in write
    assert (project / "a.pem").read_text() == "needle"
