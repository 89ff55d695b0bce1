"""Arguments as the models of other agents write them, run by the real tools."""

import json

import pytest
from support.rpc import Zot

from zot.cancel import Cancel
from zot.core.toolbox import Toolbox
from zot.errors import ToolError
from zot.provider.types import ToolCall
from zot.tools.registry import SharedPlace, SharedSupervisor, builtin_tools

OLD = "def one():\n    return 1\n"
NEW = OLD.replace("return 1", "return 2")
EDIT = {"oldText": "return 1", "newText": "return 2"}
CLAUDE = {"old_string": "return 1", "new_string": "return 2"}


@pytest.fixture
def toolbox(tmp_path):
    supervisor = SharedSupervisor()
    place = SharedPlace(str(tmp_path), {"PATH": "/usr/bin:/bin"})
    yield Toolbox(builtin_tools(place, supervisor=supervisor))
    supervisor.close()


def run(toolbox, name, args, raw=""):
    call = ToolCall("1", name, args, raw)
    output = toolbox.call(call, Cancel(), lambda event: None, lambda *change: None)
    return "".join(block.text for block in output.content), output.details or {}


@pytest.mark.parametrize(
    "args",
    [
        {"path": "f", "edits": [EDIT]},
        {"file_path": "f", "edits": [EDIT]},
        {"file_path": "f", **CLAUDE},
        {"file_path": "f", **CLAUDE, "replace_all": False},
        {"file_path": "f", **CLAUDE, "replace_all": "true"},
        {"filePath": "f", "oldString": "return 1", "newString": "return 2"},
        {"path": "f", "old_str": "return 1", "new_str": "return 2"},
        {"path": "f", "edits": [CLAUDE]},
        {"path": "f", "edits": EDIT},
        {"path": "f", "edits": '[{"oldText": "return 1", "newText": "return 2"}]'},
        {"path": "f", "edits": '{"old_string": "return 1", "new_string": "return 2"}'},
        {"path": "f", **EDIT},
        {"path": "f", **EDIT, "edits": []},
        {"path": "f", "edits": [{**EDIT, "replaceAll": "false"}]},
    ],
)
def test_an_edit_in_other_words(toolbox, tmp_path, args):
    (tmp_path / "f").write_text(OLD)
    _, details = run(toolbox, "edit", args)
    assert (tmp_path / "f").read_text() == NEW
    assert bool(details.get("repaired")) == (args != {"path": "f", "edits": [EDIT]})


@pytest.mark.parametrize(
    "args",
    [
        {"path": "f", "file_path": "g", "old_string": "return 1"},
        {"path": "f", "edits": "return 2"},
        {"path": "f", "edits": [5]},
        {"path": "f", "old_string": "return 1", "old_str": "one", "new_string": "return 2"},
        {"file_path": "f", "filename": "g", **EDIT},
        {"path": "f", "edits": [{"oldText": "return 1", "newText": {"a": 1}}]},
    ],
)
def test_an_edit_that_is_unclear_changes_nothing(toolbox, tmp_path, args):
    (tmp_path / "f").write_text(OLD)
    with pytest.raises(ToolError):
        run(toolbox, "edit", args)
    assert (tmp_path / "f").read_text() == OLD


def test_an_edit_beside_the_list_is_not_lost(toolbox, tmp_path):
    (tmp_path / "f").write_text(OLD)
    run(toolbox, "edit", {"path": "f", "edits": [{"oldText": "one", "newText": "two"}], **EDIT})
    assert (tmp_path / "f").read_text() == NEW.replace("one", "two")


def test_replace_all_of_claude_code(toolbox, tmp_path):
    (tmp_path / "f").write_text("a b a\n")
    args = {"file_path": "f", "old_string": "a", "new_string": "c", "replace_all": True}
    run(toolbox, "edit", args)
    assert (tmp_path / "f").read_text() == "c b c\n"


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ({"path": "f", "offset": "2", "limit": "1"}, [2]),
        ({"path": "f", "offset": "2.0", "limit": 1}, [2]),
        ({"file_path": "f", "offset": 2, "limit": None}, [2, 3, 4]),
        ({"absolute_path": "f", "start_line": 2, "end_line": 3}, [2, 3]),
        ({"path": "f", "view_range": [3, -1]}, [3, 4]),
        ({"path": "f", "view_range": [1, 2]}, [1, 2]),
    ],
)
def test_a_read_in_other_words(toolbox, tmp_path, args, lines):
    (tmp_path / "f").write_text("".join(f"line {n}\n" for n in range(1, 5)))
    text, details = run(toolbox, "Read", args)
    assert [n for n in range(1, 5) if f"line {n}" in text] == lines
    assert details["repaired"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"cmd": "echo 'a b'"}, "a b"),
        ({"command": ["echo", "a b"]}, "a b"),
        ({"command": ["bash", "-lc", "echo $((1 + 1)) 'a b'"]}, "2 a b"),
        ({"command": "pwd; echo hi", "workdir": "sub dir"}, "/sub dir\nhi"),
        ({"command": "echo hi", "timeout": "5", "background": "false"}, "hi"),
        ({"command": "echo hi", "timeout_ms": 5000, "description": "says hi"}, "hi"),
    ],
)
def test_a_command_in_other_words(toolbox, tmp_path, args, said):
    (tmp_path / "sub dir").mkdir()
    text, details = run(toolbox, "bash", args)
    assert said in text and details["exit_code"] == 0 and details["repaired"]


def test_commands_that_are_unclear_do_not_run(toolbox, tmp_path):
    for command in (["touch x", "touch y"], [["touch", "x"]], {"run": "touch x"}, []):
        with pytest.raises(ToolError, match="invalid arguments for 'bash'"):
            run(toolbox, "bash", {"command": command})
    text, _ = run(toolbox, "bash", {"command": "touch x; echo", "cwd": "none"})
    assert "[exit 1]" in text and list(tmp_path.iterdir()) == []


def test_arguments_that_are_no_json(toolbox, tmp_path):
    run(toolbox, "write", None, raw='"{\\"path\\": \\"a\\", \\"contents\\": \\"x\\"}"')
    run(toolbox, "write", None, raw='{"path": "b", "content": "1\n2\n"}')
    assert [(tmp_path / name).read_text() for name in "ab"] == ["x", "1\n2\n"]
    with pytest.raises(ToolError, match="not a JSON object"):
        run(toolbox, "write", None, raw='{"path": "c", "content": ')


def test_the_guard_sees_and_the_session_keeps_what_was_repaired(tmp_path):
    calls = [{"name": "Edit", "args": {"file_path": "f", **CLAUDE}}]
    session = tmp_path / "s.jsonl"
    args = ["--session", str(session)]
    with Zot(tmp_path, [{"tools": calls}, "done"], args=args, features=["approvals"]) as zot:
        (tmp_path / "work" / "f").write_text(OLD)
        zot.send("prompt", message="go")
        question = zot.until("approval_request")[-1]
        assert (question["name"], question["args"]["path"]) == ("edit", "f")
        zot.ask("approve", request_id=question["request_id"], decision="allow")
        zot.until("done")
        assert (tmp_path / "work" / "f").read_text() == NEW
    rows = [json.loads(line) for line in session.read_text().splitlines()]
    assert any("file_path read as path" in json.dumps(row) for row in rows)
