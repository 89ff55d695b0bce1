"""`zot mcp-server` as a client sees it, in both eras: real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bwrap import needs_bwrap
from support.extension import write_extension
from support.jsonrpc import HELLO, Frame, JsonRpcProcess
from support.mcp import configure, entry
from support.patience import PATIENCE
from support.tools import eventually

from zot.core.agent import Limits
from zot.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from zot.mcpserver import protocol, tools
from zot.mcpserver.job import lower, narrowed
from zot.mcpserver.tools import StartArguments

META = "io.modelcontextprotocol/"
SLOW = {"match": "slow", "text": ["a"] * 10_000, "delay_ms": 100}
TOUCH = {"match": "touch", "tools": [{"name": "bash", "args": {"command": "touch made"}}]}
SLEEP = {"match": "sleep", "tools": [{"name": "bash", "args": {"command": "sleep 30"}}]}
READ = {"match": "read", "tools": [{"name": "read", "args": {"path": "x"}}], "repeat": True}
RESULT = jsonschema_rs.validator_for(tools.tool_list()[0]["outputSchema"])
Decide = str | None


class Mcp(JsonRpcProcess):
    """A client of one era that answers questions with `decide`; None: it cannot be asked."""

    def __init__(
        self,
        folder: Path,
        *turns: Any,
        modern: bool,
        decide: Decide = None,
        args: tuple[str, ...] = (),
    ) -> None:
        self.modern = modern
        self.decide = decide
        super().__init__(
            folder, "mcp-server", turns or (HELLO,), args=("--cwd", str(folder / "work"), *args)
        )
        can: Frame = {} if decide is None else {"elicitation": {}}
        self.meta = {
            f"{META}protocolVersion": "2026-07-28",
            f"{META}clientInfo": {"name": "test", "version": "1"},
            f"{META}clientCapabilities": can,
        }
        if not modern:
            info = {"name": "test", "version": "1"}
            self.hello = self.ok(
                "initialize", protocolVersion="2025-06-18", capabilities=can, clientInfo=info
            )
            self.notify("notifications/initialized")

    def start(self, method: str, **params: Any) -> int:
        if self.modern:
            params["_meta"] = {**self.meta, **params.get("_meta", {})}
        return super().start(method, **params)

    def start_call(self, tool: str, token: str | None = None, **arguments: Any) -> int:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return self.start("tools/call", name=tool, arguments=arguments, **meta)

    def call(self, tool: str, **arguments: Any) -> Frame:
        """The result of a tool; questions are answered on the way."""
        result = self.answer(self.start_call(tool, **arguments))["result"]
        while result.get("resultType") == "input_required":
            state = result["requestState"]
            asked = {key: each["params"] for key, each in result["inputRequests"].items()}
            filled = {key: form(self.decide, params) for key, params in asked.items()}
            again = {"name": tool, "arguments": arguments}
            result = self.ok("tools/call", **again, inputResponses=filled, requestState=state)
        if "structuredContent" in result:
            RESULT.validate(result["structuredContent"])
        assert result.get("resultType", "complete") == "complete"
        assert ("resultType" in result) == self.modern
        return result

    def _take(self, frame: Frame) -> None:
        super()._take(frame)
        if frame.get("method") == "elicitation/create" and self.decide is not None:
            self.send(id=frame["id"], result=form(self.decide, frame["params"]))

    def progress(self) -> list[Frame]:
        with self._news:
            notes = [f for f in self.frames if f.get("method") == "notifications/progress"]
        return [note["params"] for note in notes]


def form(decision: Decide, asked: Frame) -> Frame:
    if decision == "cancel":
        return {"action": "cancel"}
    name = next(iter(asked["requestedSchema"]["properties"]))
    return {"action": "accept", "content": {name: decision}}


@pytest.fixture(params=[True, False], ids=["modern", "handshake"])
def mcp(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Mcp]:
    def start(*turns: Any, **options: Any) -> Mcp:
        return Mcp(tmp_path, *turns, modern=request.param, **options)

    return start


Start = Callable[..., Mcp]


# --- tools -----------------------------------------------------------------------------------


def test_two_tools_are_listed_with_their_schemas(mcp: Start) -> None:
    with mcp() as client:
        listed = client.ok("tools/list")
    assert [tool["name"] for tool in listed["tools"]] == ["zot", "zot_reply"]
    for tool in listed["tools"]:
        jsonschema_rs.validator_for(tool["inputSchema"])
    assert ("ttlMs" in listed) == client.modern


def test_a_task_and_a_reply(mcp: Start) -> None:
    with mcp() as client:
        first = client.call("zot", prompt="hi")
        assert first["content"] == [{"type": "text", "text": "Hello"}]
        facts = first["structuredContent"]
        assert (facts["text"], facts["stop"], facts["cost_usd"]) == ("Hello", "end", 0)
        assert (facts["input_tokens"], facts["output_tokens"]) == (10, 3)
        again = client.call("zot_reply", prompt="more", session_id=facts["session_id"])
        assert again["structuredContent"]["session_id"] == facts["session_id"]
        assert again["structuredContent"]["input_tokens"] == 10


def test_progress_follows_the_events(mcp: Start) -> None:
    with mcp({**READ, "repeat": False, "text": "I look"}, HELLO) as client:
        client.answer(client.start_call("zot", "t1", prompt="read"))
        notes = client.progress()
    assert [note["message"] for note in notes] == [
        "thinking",
        "I look",
        "Read x",
        "thinking, step 2",
        "Hello",
    ]
    assert [note["progress"] for note in notes] == [1, 2, 3, 4, 5]
    assert {note["progressToken"] for note in notes} == {"t1"}


def test_without_a_token_there_is_no_progress(mcp: Start) -> None:
    with mcp() as client:
        client.call("zot", prompt="hi")
        assert client.progress() == []


def test_a_call_says_where_with_what_and_how_much(mcp: Start) -> None:
    where = {"match": "where", "tools": [{"name": "bash", "args": {"command": "pwd"}}]}
    with mcp(READ, where, HELLO, args=("--yolo", "--max-steps", "4")) as client:
        folder = client.folder / "elsewhere"
        folder.mkdir()
        limited = client.call("zot", prompt="read", max_steps=2, model="scripted", reasoning="low")
        assert limited["structuredContent"]["error"] == "limit"
        assert "max steps (2)" in limited["structuredContent"]["text"]
        bounded = client.call("zot", prompt="read", max_steps=9)
        assert "max steps (4)" in bounded["structuredContent"]["text"]
        # The tool that was not allowed is none: the model is told so, and goes on.
        client.call("zot", prompt="where", cwd=str(folder), tools=["read"])
        assert client.call("zot", prompt="hi", cwd="relative")["isError"]
        assert client.call("zot", prompt="hi", model="nothing")["isError"]


def test_a_caller_does_not_choose_another_jail_nor_what_is_trusted(mcp: Start) -> None:
    with mcp(READ, HELLO, args=("--yolo", "--jail", "--trust")) as client:
        folder = client.folder / "elsewhere"
        write_extension(folder / ".zot" / "extensions", "hostile", 'open("ran", "w").close()')
        write_extension(client.cwd / "sub/.zot/extensions", "hostile", 'open("ran", "w").close()')
        (client.cwd / "link").symlink_to(folder)
        for place in (folder, client.cwd / "link", client.folder):
            refused = client.call("zot", prompt="hi", cwd=str(place))
            assert refused["isError"]
            assert "jailed: " in refused["content"][0]["text"]
        below = client.call("zot", prompt="hi", cwd=str(client.cwd / "sub"))
        assert not below.get("isError"), below
        assert not list(client.folder.rglob("ran"))


@needs_bwrap
def test_a_caller_does_not_work_where_other_programs_obey_what_is_written(mcp: Start) -> None:
    command = "echo id > post-checkout; chmod +x post-checkout"
    plant = {"match": "plant", "tools": [{"name": "bash", "args": {"command": command}}]}
    turns = ({**plant, "repeat": True}, HELLO)
    with mcp(*turns, args=("--yolo", "--jail", "--max-steps", "2")) as client:
        for repository in (".", "sub", ".zot/extensions/cloned"):
            subprocess.run(["git", "init", "-q", str(client.cwd / repository)], check=True)
        subprocess.run(["git", "init", "-q", "--bare", str(client.cwd / "bare")], check=True)
        for name in (".vscode", ".claude", ".husky", "sub/.VSCode/deep", "sub/code"):
            (client.cwd / name).mkdir(parents=True)
        (client.cwd / "link").symlink_to(".git/hooks")
        (client.cwd / "sub/up").symlink_to("..")
        wrong = [".git", ".git/hooks", ".git/info", "sub/.git/hooks", "bare", "bare/hooks"]
        wrong += [".vscode", ".claude", ".husky", "sub/.VSCode/deep", "link", "sub/up/.git/hooks"]
        wrong += [".zot", ".zot/extensions", ".zot/extensions/cloned"]
        for name in wrong:
            refused = client.call("zot", prompt="plant", cwd=str(client.cwd / name))
            assert refused.get("isError"), name
            assert "is protected: " in refused["content"][0]["text"]
        assert not list(client.cwd.rglob("post-checkout"))
        for name in ("sub", "sub/code"):
            client.call("zot", prompt="plant", cwd=str(client.cwd / name))
            assert (client.cwd / name / "post-checkout").exists()


SWAP = """import ctypes, time
call = ctypes.CDLL(None).renameat2
open("on", "w").close()
while True:
    call(-100, b"sub", -100, b"link", 2)
    time.sleep(0.004)
"""


@needs_bwrap
def test_a_caller_cannot_swap_the_jail_of_another_call(mcp: Start) -> None:
    swap = {"match": "swap", "tools": [{"name": "bash", "args": {"command": "python3 swap.py"}}]}
    write = {"name": "write", "args": {"path": "planted", "content": "evil"}}
    plant = {"match": "plant", "tools": [{"name": "bash", "args": {"command": "touch run"}}, write]}
    turns = (swap, {**plant, "repeat": True}, HELLO)
    with mcp(*turns, args=("--yolo", "--jail", "--max-steps", "2")) as client:
        outside = client.folder / "outside"
        outside.mkdir()
        (client.cwd / "sub").mkdir()
        (client.cwd / "link").symlink_to(outside)
        (client.cwd / "swap.py").write_text(SWAP)
        client.start_call("zot", prompt="swap")
        assert eventually((client.cwd / "on").exists, 20)
        for _ in range(8):
            client.call("zot", prompt="plant", cwd=str(client.cwd / "sub"))
        assert list(outside.iterdir()) == []


def test_wrong_arguments_are_told_to_the_model(mcp: Start) -> None:
    wrong: list[Frame] = [{}, {"prompt": 5}, {"prompt": "x", "max_steps": 0}]
    with mcp() as client:
        for arguments in (*wrong, {"prompt": "x", "else": 1}, {"prompt": " "}):
            assert client.call("zot", **arguments)["isError"] is True
            assert client.call("zot_reply", **arguments)["isError"] is True


def test_a_misspelt_command_is_an_error_that_names_the_nearest_and_a_path_is_a_prompt(
    mcp: Start,
) -> None:
    with mcp(HELLO, args=("--trust",)) as client:
        prompts = client.cwd / ".zot" / "prompts"
        prompts.mkdir(parents=True)
        (prompts / "show.md").write_text("Show $ARGUMENTS")
        missed = client.call("zot", prompt="/shwo me")
        assert missed["isError"] is True
        said = "there is no command /shwo here (did you mean /show?)"
        assert missed["content"][0]["text"].startswith(said)
        assert missed["structuredContent"]["error"] == "not_found"
        assert client.call("zot", prompt="/show me")["content"][0]["text"] == "Hello"
        assert client.call("zot", prompt="/tmp what is in it?")["content"][0]["text"] == "Hello"


def test_an_unknown_session_is_told_to_the_model(mcp: Start) -> None:
    with mcp() as client:
        result = client.call("zot_reply", prompt="x", session_id="01a1e2fe-0000")
    assert "there is no session" in result["content"][0]["text"]


def test_a_failure_of_the_model_is_a_result_with_its_class(mcp: Start) -> None:
    broken = {"error": {"status": 400, "message": "no such thing"}}
    with mcp(broken, {"text": "cut", "stop": "length"}, HELLO) as client:
        failed = client.call("zot", prompt="hi")
        assert failed["isError"] is True
        assert failed["structuredContent"]["error"] == "invalid_request"
        # Its session goes on; the turns of the script begin anew with it.
        again = {"prompt": "hi", "session_id": failed["structuredContent"]["session_id"]}
        assert client.call("zot_reply", **again)["isError"] is True


def test_an_answer_that_was_cut_says_so(mcp: Start) -> None:
    with mcp({"text": "cut", "stop": "length"}) as client:
        assert client.call("zot", prompt="hi")["structuredContent"]["stop"] == "length"


# --- approval --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decide", "made"),
    [("Allow", True), ("Allow for this session", True), ("Deny", False), ("cancel", False)],
)
def test_a_tool_waits_for_the_answer_to_a_form(mcp: Start, decide: str, made: bool) -> None:
    with mcp(TOUCH, HELLO, decide=decide) as client:
        assert client.call("zot", prompt="touch")["structuredContent"]["stop"] == "end"
    assert (client.cwd / "made").exists() is made


def test_a_client_that_cannot_be_asked_is_denied(mcp: Start) -> None:
    with mcp(TOUCH, HELLO) as client:
        client.call("zot", prompt="touch")
    assert not (client.cwd / "made").exists()


@pytest.mark.parametrize("decide", [None, "Allow"])
def test_tools_of_servers_are_asked_about_too(mcp: Start, tmp_path: Path, decide: Decide) -> None:
    run = {"name": "run", "inputSchema": {"type": "object"}}
    configure(tmp_path / "zot-home" / "mcp.json", s=entry(tools=[run]))
    turn = {"match": "go", "tools": [{"name": "mcp__s__run", "args": {"command": "touch made"}}]}
    with mcp(turn, HELLO, decide=decide) as client:
        client.call("zot", prompt="go")
    assert (client.cwd / "made").exists() is (decide == "Allow")


def test_with_yolo_nobody_is_asked(mcp: Start) -> None:
    with mcp(TOUCH, HELLO, args=("--yolo",)) as client:
        client.call("zot", prompt="touch")
    assert (client.cwd / "made").exists()


def test_a_question_that_nobody_comes_back_for_holds_nothing_up(tmp_path: Path) -> None:
    with Mcp(tmp_path, TOUCH, HELLO, modern=True, decide="Allow") as client:
        asked = client.answer(client.start_call("zot", prompt="touch"))["result"]
        assert asked["resultType"] == "input_required"
        assert client.call("zot", prompt="hi")["isError"] is False
        late = {"name": "zot", "arguments": {}, "requestState": "unknown"}
        assert client.fails("tools/call", **late)["code"] == INVALID_PARAMS
    assert not (client.cwd / "made").exists()


# --- cancel and the end ----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["slow", "sleep"])
def test_cancel_is_abort_and_has_no_answer(mcp: Start, text: str) -> None:
    with mcp(SLOW, SLEEP, HELLO, args=("--yolo",)) as client:
        id = client.start_call("zot", "t", prompt=text)
        client.unanswered.add(id)
        wanted = "thinking" if text == "slow" else "sleep 30"
        client.wait(lambda: [n for n in client.progress() if n["message"] == wanted])
        began = time.monotonic()
        client.notify("notifications/cancelled", requestId=id, reason="enough")
        assert client.call("zot", prompt="hi")["isError"] is False
        assert time.monotonic() - began < PATIENCE


def test_cancel_in_the_same_write_as_the_call(mcp: Start) -> None:
    with mcp({**SLOW, "repeat": True}, HELLO) as client:
        for _ in range(5):
            with client.in_one_write():
                id = client.start_call("zot", prompt="slow")
                client.unanswered.add(id)
                client.notify("notifications/cancelled", requestId=id)
        client.notify("notifications/cancelled", requestId=999)
        client.notify("notifications/cancelled")
        assert client.call("zot", prompt="hi")["isError"] is False


@pytest.mark.parametrize("decide", [None, "Allow"])
def test_the_end_of_input_aborts_and_ends(mcp: Start, decide: Decide) -> None:
    with mcp(SLEEP, HELLO, decide=decide, args=("--yolo",)) as client:
        id = client.start_call("zot", "t", prompt="sleep")
        client.wait(lambda: [n for n in client.progress() if n["message"] == "sleep 30"])
        assert client.close() == 0
        assert client.answer(id)["result"]["structuredContent"]["stop"] == "aborted"


def test_a_signal_aborts_and_ends(mcp: Start) -> None:
    client = mcp(SLEEP, HELLO, args=("--yolo",))
    id = client.start_call("zot", "t", prompt="sleep")
    client.wait(lambda: [n for n in client.progress() if n["message"] == "sleep 30"])
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(PATIENCE) == 143
    assert client.answer(id)["result"]["isError"] is True
    client.kill()


def test_too_many_tasks_are_refused(tmp_path: Path) -> None:
    with Mcp(tmp_path, SLOW, HELLO, modern=False) as client:
        ids = [client.start_call("zot", prompt="slow") for _ in range(20)]
        answers = [client.answer(id)["result"] for id in ids[16:]]
        assert all("try later" in answer["content"][0]["text"] for answer in answers)
        for id in ids[:16]:
            client.unanswered.add(id)
            client.notify("notifications/cancelled", requestId=id)


# --- protocol --------------------------------------------------------------------------------


def test_the_eras_greet_differently(tmp_path: Path) -> None:
    with Mcp(tmp_path, modern=False) as client:
        assert client.hello["protocolVersion"] == "2025-06-18"
        newest = client.ok("initialize", protocolVersion="2099-01-01", capabilities={})
        assert newest["protocolVersion"] == "2025-11-25"
        assert client.ok("ping") == {}
        assert client.fails("resources/list")["code"] == METHOD_NOT_FOUND
        assert client.fails("tools/call", name="other")["code"] == INVALID_PARAMS
        assert client.fails("tools/call", name=5)["code"] == INVALID_PARAMS
    with Mcp(tmp_path, modern=True) as client:
        found = client.ok("server/discover")
        assert found["supportedVersions"][0] == "2026-07-28"
        assert found["_meta"][f"{META}serverInfo"]["name"] == "zot"
        meta = {f"{META}protocolVersion": "2030-01-01"}
        error = client.fails("server/discover", _meta=meta)
        assert error["code"] == -32022
        assert "2026-07-28" in error["data"]["supported"]


def test_garbage_is_answered_and_skipped(tmp_path: Path) -> None:
    with Mcp(tmp_path, modern=True) as client:
        for line in (b"{", b"[]", b"\xff", b"x" * (17 * 1024 * 1024)):
            client.write(line + b"\n")
        client.send(id=77, result={})
        assert client.call("zot", prompt="hi")["isError"] is False
        assert sum(frame.get("id", 0) is None for frame in client.frames) == 4


def test_a_bad_flag_is_told_before_anything_is_served() -> None:
    for words in (["hello"], ["--continue"], ["--nope"]):
        program = [sys.executable, "-m", "zot", "mcp-server", *words]
        done = subprocess.run(program, capture_output=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout) == (2, b"")
    program = [sys.executable, "-m", "zot", "mcp-server", "--help"]
    assert b"zot_reply" in subprocess.run(program, capture_output=True, timeout=PATIENCE).stdout


# --- pure ------------------------------------------------------------------------------------


def test_a_call_can_only_ask_for_less() -> None:
    assert narrowed(None, None) is None
    assert narrowed(("read",), None) == ("read",)
    assert narrowed(None, ("bash",)) == ("bash",)
    assert narrowed(("read", "grep"), ("bash", "read")) == ("read",)
    asked = StartArguments("x", max_steps=5, max_cost=9.0)
    assert lower(Limits(max_steps=9, max_cost=1.0), asked) == Limits(5, 1.0)


@pytest.mark.parametrize(
    ("abilities", "forms"),
    [
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({"elicitation": 5}, False),
        ({}, False),
        (None, False),
    ],
)
def test_who_can_be_asked(abilities: Any, forms: bool) -> None:
    assert protocol.has_forms(abilities) is forms


@settings(max_examples=30)
@given(st.dictionaries(st.text(), st.none() | st.text() | st.dictionaries(st.text(), st.text())))
def test_whatever_is_no_clear_yes_is_a_no(answer: Any) -> None:
    assert protocol.chosen(answer) == "deny"


# --- what a call asks of others --------------------------------------------------------------

ASKS = """
hello()
emit("register_tool", name="who", description="asks", schema={"type": "object"}, interactive=True)
emit("ready")
waiting = []
for frame in frames():
    if frame["type"] == "tool_call":
        waiting.append(frame["id"])
        emit("ask", id=frame["id"], method="input", title="who are you?", timeout=60)
    if frame["type"] == "answer":
        text(waiting.pop(0), "it is " + str(frame.get("value")))
"""
WHO = {"name": "who", "args": {}}


@pytest.mark.parametrize("count", [1, 2])
def test_questions_of_an_extension_are_forms(mcp: Start, tmp_path: Path, count: int) -> None:
    extension = write_extension(tmp_path, "asks", ASKS)
    turns = ({"tools": [WHO] * count}, {"text": "asked"})
    with mcp(*turns, decide="Ada", args=("--ext", str(extension), "--yolo")) as client:
        result = client.call("zot", prompt="who?")
        assert result["structuredContent"]["text"] == "asked"
    kept = next((tmp_path / "zot-home" / "sessions").rglob("*.jsonl")).read_text()
    assert kept.count("it is Ada") >= count


def test_a_reply_goes_on_with_the_model_and_the_tools_it_names(mcp: Start, tmp_path: Path) -> None:
    with mcp(TOUCH, HELLO, TOUCH, HELLO, args=("--yolo",)) as client:
        id = client.call("zot", prompt="hi")["structuredContent"]["session_id"]
        narrow = {"session_id": id, "tools": ["read"], "reasoning": "low"}
        client.call("zot_reply", prompt="touch it", **narrow)
        assert not (tmp_path / "work" / "made").exists()
        failed = client.call("zot_reply", prompt="x", session_id=id, model="nowhere/none")
        assert failed["isError"] is True
        client.call("zot_reply", prompt="touch it", session_id=id)
        assert (tmp_path / "work" / "made").exists()
