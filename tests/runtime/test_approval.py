from __future__ import annotations

import os
import pty
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rpc import Zot

from zot.cancel import Cancel
from zot.core.events import ApprovalRequest, ApprovalResolved, Event
from zot.core.hook import ALLOW, Allow, Block, HookContext, Project, Rule
from zot.core.source import Question
from zot.errors import Cancelled, CommandError, ConfigError
from zot.provider.types import Model, ToolCall
from zot.runtime.approval import (
    MAX_PREVIEW,
    Approval,
    Verdict,
    preview,
)
from zot.runtime.client import RuntimeClient
from zot.serve import ask_terminal as terminal_module
from zot.serve.ask_terminal import ask_terminal, understand


class Answers(RuntimeClient):
    def can_answer(self, what: Question) -> bool:
        return True


ANSWERS = Answers()
RUN = ToolCall("c1", "bash", {"command": "make"})
READ = ToolCall("c2", "read", {"path": "a"})


def decided(approval: Approval, call: ToolCall = RUN) -> tuple[Allow | Block, list[Event]]:
    events: list[Event] = []
    return approval.before_tool(call, HookContext(Cancel(), events.append)), events  # type: ignore[return-value]


def test_a_run_that_was_aborted_asks_nobody() -> None:
    cancel, events = Cancel(), []
    cancel.set()
    for approval in (Approval(client=ANSWERS), Approval(["bash"], terminal=lambda *_: None)):
        with pytest.raises(Cancelled):
            approval.before_tool(RUN, HookContext(cancel, events.append))
    assert events == []


def answered(decision: str, reason: str = "", **policy: object) -> tuple[object, list[Event]]:
    """A client that answers as soon as it is asked."""
    approval = Approval(**policy, client=ANSWERS)
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, ApprovalRequest):
            approval.answer(event.id, Verdict(decision, reason))  # type: ignore[arg-type]

    return approval.before_tool(RUN, HookContext(Cancel(), emit)), events


# --- the client ------------------------------------------------------------------------------


def test_a_client_allows() -> None:
    verdict, events = answered("allow")
    assert verdict == Allow("user")
    request, resolved = events
    assert isinstance(request, ApprovalRequest)
    assert (request.call, request.preview) == (RUN, "make")
    assert resolved == ApprovalResolved(request.id, "c1", "allow", "client")


def test_a_client_denies_with_a_reason() -> None:
    verdict, events = answered("deny", "not on Fridays")
    assert verdict == Block("the user did not allow this: not on Fridays", "user")
    assert events[-1] == ApprovalResolved("approval-1", "c1", "deny", "client")


def test_allowing_for_the_session_is_remembered_for_that_tool() -> None:
    approval = Approval(client=ANSWERS)
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, ApprovalRequest):
            approval.answer(event.id, Verdict("allow_session"))

    context = HookContext(Cancel(), emit)
    assert approval.before_tool(RUN, context) == Allow("user")
    assert approval.before_tool(RUN, context) == Allow("remembered")
    assert events[-1] == ApprovalResolved("approval-2", "c1", "allow", "remembered")
    approval.before_tool(ToolCall("c3", "write", {}), context)
    assert sum(isinstance(event, ApprovalRequest) for event in events) == 2


def test_no_answer_is_a_denial() -> None:
    approval = Approval(seconds=0.01, client=ANSWERS)
    verdict, events = decided(approval)
    assert verdict == Block("not allowed: nobody answered within 0.01 s")
    assert events[-1] == ApprovalResolved("approval-1", "c1", "deny", "timeout")


def test_an_abort_ends_the_wait() -> None:
    approval = Approval(client=ANSWERS)
    cancel = Cancel()
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, ApprovalRequest):
            cancel.set()

    with pytest.raises(Cancelled):
        approval.before_tool(RUN, HookContext(cancel, emit))
    assert events[-1] == ApprovalResolved("approval-1", "c1", "deny", "abort")


def test_a_client_that_leaves_denies_what_is_open_and_what_comes() -> None:
    approval = Approval(client=ANSWERS)
    asked = threading.Event()
    verdicts: list[object] = []

    def ask() -> None:
        verdicts.append(approval.before_tool(RUN, HookContext(Cancel(), lambda event: asked.set())))

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(20)
    approval.client_gone()
    thread.join(20)
    gone = Block("the user did not allow this: the client is gone")
    assert verdicts == [gone]
    assert decided(approval)[0] == gone


def test_an_answer_to_nothing_is_refused() -> None:
    approval = Approval()
    with pytest.raises(CommandError, match="no approval 'approval-1' is waiting"):
        approval.answer("approval-1", Verdict("allow"))


# --- the policy ------------------------------------------------------------------------------


def test_only_what_can_change_something_is_asked_for_unless_told_otherwise() -> None:
    assert decided(Approval()) == (ALLOW, [])  # nobody said that they would answer
    approval = Approval(client=ANSWERS)
    assert decided(approval, READ) == (ALLOW, [])
    assert answered("allow", tools=["read"]) == (ALLOW, [])


def test_a_policy_with_nobody_to_ask_denies() -> None:
    verdict, _ = decided(Approval(["bash"]))
    assert isinstance(verdict, Block)
    assert "nobody can give it" in verdict.reason
    assert isinstance(decided(Approval(["all"]), READ)[0], Block)
    assert decided(Approval(["bash"]), READ)[0] == ALLOW


@pytest.mark.parametrize(
    ("ask", "terminal", "asked"),
    [
        ("", False, False),
        ("", True, False),
        ("person", False, False),
        ("person", True, True),
        ("always", False, True),
        ("always", True, True),
    ],
)
def test_the_model_says_whether_its_calls_must_be_allowed(
    ask: str, terminal: bool, asked: bool
) -> None:
    approval = Approval(terminal=(lambda *_: Verdict("deny")) if terminal else None)
    approval.use_model(Model("m", "p", "scripted", ask=ask))  # type: ignore[arg-type]
    assert isinstance(decided(approval)[0], Block) == asked
    assert decided(approval, READ)[0] == ALLOW


def test_a_reckless_model_is_asked_about_whatever_else_is_asked_for() -> None:
    approval = Approval(["read"])
    approval.use_model(Model("m", "p", "scripted", ask="always"))
    assert isinstance(decided(approval)[0], Block)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (RUN, "make"),
        (ToolCall("1", "write", {"path": "a", "content": "é"}), "a (2 bytes)\né"),
        (
            ToolCall("1", "edit", {"path": "a", "edits": [{"oldText": "x\ny", "newText": "z"}]}),
            "a\n- x\n- y\n+ z",
        ),
        (ToolCall("1", "other", {"n": 1}), '{"n":1}'),
        (ToolCall("1", "bash", None, raw="{"), "{}"),
    ],
)
def test_a_preview_is_what_a_person_wants_to_read(call: ToolCall, text: str) -> None:
    assert preview(call) == text


def test_a_long_preview_is_cut() -> None:
    text = preview(ToolCall("1", "bash", {"command": "x" * 5000}))
    assert text == "x" * MAX_PREVIEW + "\n[and more]"


# --- the terminal ----------------------------------------------------------------------------


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of a terminal."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(terminal_module, "TTY", os.ttyname(theirs))
    yield ours
    os.close(ours)
    os.close(theirs)


def question(preview: str = "ls", seconds: float = 20) -> ApprovalRequest:
    return ApprovalRequest("a", RUN, preview, seconds, "ls *")


@pytest.mark.parametrize(
    ("typed", "verdict"),
    [
        ("y", Verdict("allow")),
        ("YES", Verdict("allow")),
        ("a", Verdict("allow_session")),
        ("p", Verdict("allow_project")),
        ("", Verdict("deny")),
        ("n", Verdict("deny")),
        ("use git mv", Verdict("deny", "use git mv")),
    ],
)
def test_a_person_answers_in_words(keyboard: int, typed: str, verdict: Verdict) -> None:
    os.write(keyboard, b"y\n")  # typed too early: it must not count
    shown: list[str] = []

    def person() -> None:
        while "why not: " not in "".join(shown):
            shown.append(os.read(keyboard, 4096).decode())
        os.write(keyboard, typed.encode() + b"\n")

    thread = threading.Thread(target=person)
    thread.start()
    assert ask_terminal(question("ls\x1b[2K"), Cancel()) == verdict
    thread.join(20)
    assert "zot wants to use bash" in "".join(shown)
    assert "always here: ls *" in "".join(shown)
    assert "ls\\x1b[2K" in "".join(shown)
    assert understand(typed) == verdict


def test_a_person_who_says_nothing_or_an_abort_is_no_answer(keyboard: int) -> None:
    assert ask_terminal(question(seconds=0.01), Cancel()) is None
    cancel = Cancel()
    cancel.set()
    assert ask_terminal(question(), cancel) is None


def test_without_a_terminal_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_module, "TTY", "/nowhere/tty")
    assert ask_terminal(question(), Cancel()) is None


def test_the_guard_takes_the_terminals_word() -> None:
    said = [Verdict("allow_session"), None]
    approval = Approval(terminal=lambda *_: said.pop(0))
    approval.use_model(Model("m", "p", "scripted", ask="person"))
    assert decided(approval)[0] == Allow("user")
    assert decided(approval)[0] == Allow("remembered")  # remembered: nobody is asked
    write = ToolCall("c4", "write", {"path": "a", "content": ""})
    assert isinstance(decided(approval, write)[0], Block)


def test_a_diff_says_more_than_the_arguments(keyboard: int) -> None:
    call = ToolCall("1", "write", {"path": "a.txt", "content": "much"})
    asked = ApprovalRequest("a", call, "a.txt (4 bytes)", 0.01, diff="-old\n+new")
    assert ask_terminal(asked, Cancel()) is None
    shown = os.read(keyboard, 4096).decode()
    assert "a.txt\r\n  -old\r\n  +new" in shown
    assert "always here" not in shown


# --- the wire --------------------------------------------------------------------------------

TURNS = [{"tools": [{"name": "bash", "args": {"command": "echo made > made.txt"}}]}, "done"]


def asked(zot: Zot) -> str:
    zot.send("prompt", message="go")
    return zot.until("approval_request")[-1]["request_id"]


def test_over_rpc_a_tool_waits_for_approve(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, features=["approvals"]) as zot:
        id = asked(zot)
        assert not (zot.cwd / "made.txt").exists()
        assert zot.ask("approve", request_id="other", decision="allow")["success"] is False
        assert zot.ask("approve", request_id=id, decision="allow")["success"]
        (resolved,) = [f for f in zot.until("done") if f["type"] == "approval_resolved"]
        assert (resolved["decision"], resolved["source"]) == ("allow", "client")
        assert (zot.cwd / "made.txt").exists()
        zot.invariants()


def test_over_rpc_a_denied_tool_does_not_run_and_the_model_hears_why(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, features=["approvals"]) as zot:
        zot.ask("approve", request_id=asked(zot), decision="deny", reason="no files")
        result = next(f for f in zot.until("done") if f["type"] == "tool_result")
        assert result["is_error"]
        assert "no files" in result["content"][0]["text"]
        assert not (zot.cwd / "made.txt").exists()
        zot.invariants()


def test_over_rpc_an_abort_while_asking_ends_the_run(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, features=["approvals"]) as zot:
        asked(zot)
        zot.send("abort")
        frames = [frame for frame in zot.until("done") if frame["type"] != "response"]
        assert frames[-2]["stop"] == "aborted"
        assert not (zot.cwd / "made.txt").exists()
        zot.invariants()


def test_over_rpc_the_end_of_input_denies(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, features=["approvals"]) as zot:
        asked(zot)
        assert zot.close()[0] == 0
        assert not (zot.cwd / "made.txt").exists()
        assert zot.frames[-1] == {"type": "done"}


def test_over_rpc_nothing_is_asked_without_the_feature_or_with_yolo(tmp_path: Path) -> None:
    with Zot(tmp_path / "plain", TURNS) as zot:
        assert not any("approval" in frame["type"] for frame in zot.prompt())
        assert (zot.cwd / "made.txt").exists()
    with Zot(tmp_path / "yolo", TURNS, features=["approvals"], args=["--yolo"]) as zot:
        assert not any("approval" in frame["type"] for frame in zot.prompt())
        assert zot.ask("approve", request_id="approval-1", decision="allow")["success"] is False


def test_over_rpc_a_policy_binds_a_client_that_cannot_answer(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, args=["--approve", "bash"]) as zot:
        result = next(frame for frame in zot.prompt() if frame["type"] == "tool_result")
        assert "nobody can give it" in result["content"][0]["text"]
        assert not (zot.cwd / "made.txt").exists()


# --- for good in a project -------------------------------------------------------------------

LOG = {"tools": [{"name": "bash", "args": {"command": "git log --oneline"}}]}
WRITE = {"tools": [{"name": "write", "args": {"path": "src/a.txt", "content": "new\n"}}]}


def test_what_is_like_it_runs_in_this_project_from_now_on(tmp_path: Path) -> None:
    with Zot(tmp_path, [LOG, "ok", LOG, "ok"], features=["approvals"]) as zot:
        zot.send("prompt", message="go")
        request = zot.until("approval_request")[-1]
        assert request["pattern"] == "git log *"
        zot.ask("approve", request_id=request["request_id"], decision="allow_project")
        zot.until("done")
        assert not any(frame["type"] == "approval_request" for frame in zot.prompt())
        rules = zot.data("get_approvals")["approvals"]
        assert rules == [{"tool": "bash", "pattern": "git log *"}]
    kept = tmp_path / "zot-home" / "approvals.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    with Zot(tmp_path, [LOG, "ok"], args=["--approve", "bash"]) as zot:  # nobody could answer
        result = next(frame for frame in zot.prompt() if frame["type"] == "tool_result")
        assert "needs an approval" not in result["content"][0]["text"]
        assert zot.ask("remove_approval", tool="bash", pattern="git log *")["success"]
        assert not zot.ask("remove_approval", tool="bash", pattern="git log *")["success"]
        assert zot.data("get_approvals") == {"approvals": []}


def test_a_name_of_a_file_that_becomes_an_option_is_asked_about(tmp_path: Path) -> None:
    attack = {"name": "bash", "args": {"command": "git log -1 --format=%B --[o]*/*"}}
    with Zot(tmp_path, [LOG, "ok", {"tools": [attack]}, "ok"], features=["approvals"]) as zot:
        hostile = zot.cwd / "--output=.git"
        hostile.mkdir()
        (hostile / "config").touch()
        zot.send("prompt", message="go")
        request = zot.until("approval_request")[-1]
        zot.ask("approve", request_id=request["request_id"], decision="allow_project")
        zot.until("done")
        zot.send("prompt", message="go")
        request = zot.until("approval_request")[-1]
        assert request["pattern"] == attack["args"]["command"]
        zot.ask("approve", request_id=request["request_id"], decision="deny")
        zot.until("done")


def test_the_question_shows_the_diff_and_where_it_begins(tmp_path: Path) -> None:
    edit = {"path": "src/a.txt", "edits": [{"oldText": "two", "newText": "three"}]}
    turns = [WRITE, {"tools": [{"name": "edit", "args": edit}]}, "ok"]
    with Zot(tmp_path, turns, features=["approvals"]) as zot:
        (zot.cwd / "src").mkdir()
        (zot.cwd / "src" / "a.txt").write_text("old\n")
        zot.send("prompt", message="go")
        request = zot.until("approval_request")[-1]
        assert request["diff"] == "-old\n+new"
        assert (request["line"], request["pattern"]) == (1, "src/*")
        (zot.cwd / "src" / "a.txt").write_text("one\ntwo\n")
        zot.ask("approve", request_id=request["request_id"], decision="deny")
        request = zot.until("approval_request")[-1]
        assert request["diff"] == " one\n-two\n+three"
        assert request["line"] == 2
        zot.ask("approve", request_id=request["request_id"], decision="allow_project")
        zot.until("done")
        assert zot.data("get_approvals")["approvals"] == [{"tool": "write", "pattern": "src/*"}]


def test_changed_arguments_are_what_runs_and_the_model_hears_of_it(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, features=["approvals"]) as zot:
        zot.ask(
            "approve",
            request_id=asked(zot),
            decision="allow",
            args={"command": "echo safe"},
        )
        result = next(frame for frame in zot.until("done") if frame["type"] == "tool_result")
        text = "".join(block["text"] for block in result["content"])
        assert "safe" in text
        assert "the user changed the call" in text
        assert not (zot.cwd / "made.txt").exists()


def test_arguments_that_the_tool_does_not_take_are_refused(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, features=["approvals"]) as zot:
        zot.ask("approve", request_id=asked(zot), decision="allow", args={"command": 7})
        result = next(frame for frame in zot.until("done") if frame["type"] == "tool_result")
        assert "invalid arguments" in result["content"][0]["text"]


def test_a_pattern_that_does_not_fit_is_refused_and_the_question_stays(tmp_path: Path) -> None:
    with Zot(tmp_path, TURNS, features=["approvals"]) as zot:
        id = asked(zot)
        answer = {"request_id": id, "decision": "allow_project"}
        assert "does not cover" in zot.ask("approve", **answer, pattern="echo *")["error"]
        assert zot.ask("approve", **answer)["success"]
        zot.until("done")
        pattern = "echo made > made.txt"  # it redirects: only the very same one is allowed
        assert zot.data("get_approvals")["approvals"] == [{"tool": "bash", "pattern": pattern}]


def test_what_is_allowed_for_the_session_is_listed_and_can_be_taken_back() -> None:
    approval = Approval(terminal=lambda *_: Verdict("allow_session"))
    approval.use_model(Model("m", "p", "scripted", ask="person"))
    decided(approval)
    assert approval.rules() == [Rule("bash", "this session")]
    approval.remove_rule("bash", "this session")
    assert approval.rules() == []


def test_without_a_place_for_rules_nothing_is_allowed_for_good() -> None:
    with pytest.raises(CommandError, match="no approvals"):
        answered("allow_project")


class Broken:
    def all(self) -> list[Rule]:
        raise ConfigError("broken")

    def add(self, rule: Rule) -> None:
        raise ConfigError("broken")

    def remove(self, rule: Rule) -> bool:
        raise ConfigError("broken")


def test_rules_that_cannot_be_read_allow_nothing() -> None:
    approval = Approval(terminal=lambda *_: None)
    approval.use_model(Model("m", "p", "scripted", ask="always"))
    approval.use_project(Project("/", {}), Broken(), None)
    assert isinstance(decided(approval)[0], Block)
