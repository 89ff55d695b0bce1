"""Patches as GPT models write them: applied right, or refused with nothing changed."""

import difflib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rpc import Zot

from zot.cancel import Cancel
from zot.core.toolbox import Toolbox
from zot.errors import ToolError
from zot.provider.types import ToolCall
from zot.tools.edit import patch, replace
from zot.tools.registry import SharedPlace, SharedSupervisor, builtin_tools

FILE = "class A:\n    def run(self):\n        pass\n\nclass B:\n    def run(self):\n        pass\n"


def wrapped(*lines):
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


@pytest.fixture
def run(tmp_path):
    supervisor = SharedSupervisor()
    place = SharedPlace(str(tmp_path), {"PATH": "/usr/bin:/bin"})
    toolbox = Toolbox(builtin_tools(place, supervisor=supervisor))

    def run(text, tool="apply_patch"):
        args = {"command": text} if tool == "bash" else {"input": text}
        call = ToolCall("1", tool, args)
        return toolbox.call(call, Cancel(), lambda event: None, lambda *change: None)

    yield run
    supervisor.close()


MANY = wrapped(
    "*** Update File: a.py",
    "@@ class B:",
    "     def run(self):",
    "-        pass",
    "+        go()",
    "*** Add File: new/b.txt",
    "+one",
    "+",
    "*** Delete File: c d.txt",
    "*** Update File: e.txt",
    "*** Move to: moved/e.txt",
    "-x",
    "+y",
)


@pytest.mark.parametrize("heredoc", [None, "'EOF'", "PATCH"])
def test_a_patch_changes_adds_deletes_and_moves(run, tmp_path, heredoc):
    (tmp_path / "a.py").write_text(FILE)
    (tmp_path / "c d.txt").write_text("gone")
    (tmp_path / "e.txt").write_text("x\n")
    if heredoc is None:
        output = run(MANY)
    else:
        word = heredoc.strip("'")
        output = run(f"apply_patch <<{heredoc}\n{MANY}\n{word}\n", "bash")
    assert not output.is_error
    assert (tmp_path / "a.py").read_text() == FILE.rpartition("pass")[0] + "go()\n"
    assert (tmp_path / "new/b.txt").read_text() == "one\n\n"
    assert not (tmp_path / "c d.txt").exists() and not (tmp_path / "e.txt").exists()
    assert (tmp_path / "moved/e.txt").read_text() == "y\n"
    assert "edit, write, bash, edit, bash" in output.details["repaired"][-1]


def test_a_patch_in_another_directory(run, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.py").write_text(FILE)
    change = wrapped("*** Update File: a.py", "-class B:", "+class C:")
    run(f"cd sub && apply_patch <<'X'\n{change}\nX", "bash")
    assert (tmp_path / "sub/a.py").read_text() == FILE.replace("B", "C")


def test_a_command_that_does_more_is_not_a_patch(run):
    change = wrapped("*** Add File: x", "+1")
    for command in (
        f"apply_patch <<'X'\n{change}\nX\ntouch y",
        f"cd $(echo sub) && apply_patch <<'X'\n{change}\nX",
        f"cat <<'X'\n{change}\nX",
    ):
        assert patch.in_command(command) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("*** Update File: a.py", "begins with"),
        (wrapped(), "no files"),
        (wrapped("hello"), "line 2"),
        (wrapped("*** Update File: a.py"), "no changes"),
        (wrapped("*** Update File: a.py", " class A:"), "nothing changes"),
        (wrapped("*** Update File: a.py", "@@ class A:"), "nothing follows"),
        (wrapped("*** Update File: a.py", "?what"), "begins with ' '"),
        (wrapped("*** Add File: n", "text"), "each line of a new"),
        (wrapped("*** Update File: none", "-a", "+b"), "no such file"),
        (wrapped("*** Delete File: none"), "no such file"),
        (wrapped("*** Update File: a.py", "-        pass", "+        go()"), "lines 3, 7"),
        (wrapped("*** Update File: a.py", "@@ class C:", "-        pass", "+x"), "no line"),
        (wrapped("*** Update File: a.py", "-nothing", "+x"), "not in the file"),
        (wrapped("*** Update File: a.py", "@@ class A:", "+x"), "only adds lines"),
        (wrapped("*** Add File: n", "+1", "*** Update File: a.py", "-no", "+x"), "not in the"),
        (wrapped("*** Add File: n", "+1", "*** Delete File: n"), "twice"),
        (wrapped("*** Update File: a.py", "*** Move to: b.py", "-class A:", "+class Z:"), "exists"),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(run, tmp_path, text, why):
    (tmp_path / "a.py").write_text(FILE)
    (tmp_path / "b.py").write_text("")
    with pytest.raises(ToolError, match=why):
        run(text)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.py": FILE,
        "b.py": "",
    }


def test_line_ends_trailing_blanks_and_the_last_line_stay(run, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one  \r\ntwo\r\nthree")
    run(wrapped("*** Update File: f", " one", "-two", "+2", " three", "*** End of File"))
    assert path.read_bytes() == b"one  \r\n2\r\nthree"
    run(wrapped("*** Update File: f", "@@", "-three", "+3", "+4", "*** End of File"))
    assert path.read_bytes() == b"one  \r\n2\r\n3\r\n4"
    run(wrapped("*** Update File: f", "+5", "*** End of File"))
    assert path.read_bytes() == b"one  \r\n2\r\n3\r\n4\r\n5"
    run(wrapped("*** Update File: f", "-2"))
    assert path.read_bytes() == b"one  \r\n3\r\n4\r\n5"


def test_guards_are_asked_about_every_part_before_the_first_one_runs(tmp_path: Path) -> None:
    text = wrapped("*** Add File: a", "+1", "*** Delete File: old")
    turns = [{"tools": [{"name": "apply_patch", "args": {"patch": text}}]}, "done"]
    with Zot(tmp_path, turns, features=["approvals"]) as zot:
        (zot.cwd / "old").write_text("x")
        zot.send("prompt", message="go")
        question = zot.until("approval_request")[-1]
        assert (question["name"], question["args"]["path"]) == ("write", "a")
        zot.ask("approve", request_id=question["request_id"], decision="allow")
        question = zot.until("approval_request")[-1]
        assert (question["name"], question["args"]["command"]) == ("bash", "rm -- old")
        zot.ask("approve", request_id=question["request_id"], decision="deny", reason="no")
        zot.until("done")
        assert not (zot.cwd / "a").exists() and (zot.cwd / "old").exists()
        zot.invariants()


LINES = st.lists(st.sampled_from(["a", "b", "", "  a", "a ", "}"]), max_size=12)


@settings(max_examples=300)
@given(LINES, LINES, st.integers(0, 3), st.booleans(), st.booleans())
def test_a_patch_is_applied_as_it_was_made_or_refused(old, new, context, ends, anchored):
    if not old or old == new or not (ends or (old[-1] and new and new[-1])):
        return
    before, after = ("\n".join(lines) + ("\n" if ends and lines else "") for lines in (old, new))
    rows = ["*** Update File: f"]
    matcher = difflib.SequenceMatcher(None, old, new, False)
    for group in matcher.get_grouped_opcodes(context):
        first = group[0][1]
        rows.append(f"@@ {old[first - 1]}" if anchored and first else "@@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [f" {line}" for line in old[i1:i2]]
            else:
                rows += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
    try:
        (parsed,) = patch.parse(wrapped(*rows))
        edits = patch.edits(before.encode(), parsed.hunks, "f")
        made = replace.apply(before.encode(), replace.parse({"edits": edits}), "f")
    except ToolError:
        return
    assert made.content.decode() == after


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text):
    for body in (text, wrapped(text), wrapped("*** Update File: f", text)):
        try:
            patch.parse(body)
        except ToolError:
            pass
