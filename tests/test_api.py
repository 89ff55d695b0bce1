"""The API of the Runtime, through every door: a use case works the same wherever it is asked for.

What a door did is looked at from the other side: two model servers on loopback see the requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doors import DOORS, Door, Place, Wishes
from support.extension import write_extension
from support.terminal import cache as cache
from support.terminal import emulator as emulator

from zot.sdk import events, follow
from zot.testing.fakeserver import FakeServer, Seen

EXTENSION = """
hello()
emit("register_command", name="greet", description="greets")
emit("register_command", name="show", description="shows")
emit("register_command", name="today", description="looks first")
asks = {"description": "asks", "schema": {"type": "object"}, "interactive": True}
emit("register_tool", name="favourite", **asks)
emit("ready")
waiting = []
for frame in frames():
    if frame["type"] == "command_invoked" and frame["name"] == "greet":
        prompt = "say:hello " + frame["args"]
        emit("command_response", id=frame["id"], action="prompt", prompt=prompt)
    if frame["type"] == "command_invoked" and frame["name"] == "show":
        emit("command_response", id=frame["id"], action="display", display="shown")
    if frame["type"] == "command_invoked" and frame["name"] == "today":
        emit("command_response", id=frame["id"], action="tool_prompt", tool_name="bash",
             tool_args={"command": "echo from-the-tool"}, prompt="say:no\\nthen\\nsay:heard it")
    if frame["type"] == "tool_call":
        waiting.append(frame["id"])
        emit("ask", id="q", method="input", title="which colour?", timeout=60)
    if frame["type"] == "answer":
        text(waiting.pop(), "they like " + str(frame.get("value")))
"""


@pytest.fixture
def anthropic() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def openai() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    anthropic: FakeServer,
    openai: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    made = Place(tmp_path, lambda: request.getfixturevalue("emulator"))
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ZOT_HOME", str(made.home))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-anthropic-0123456789")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", anthropic.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{openai.url}/v1")
    return made


@pytest.fixture(params=sorted(DOORS))
def open_door(request: pytest.FixtureRequest, place: Place) -> Iterator[Callable[..., Door]]:
    kind = DOORS[request.param]
    opened: list[Door] = []

    def open_door(*needs: str, **wishes: object) -> Door:
        """A door; the test is passed over where it has no word for what the test needs."""
        for need in needs:
            if need in kind.LACKS:
                pytest.skip(f"{request.param} has no word for {need}: {kind.LACKS[need]}")
        opened.append(kind(place, Wishes(**wishes)))  # type: ignore[arg-type]
        return opened[-1]

    yield open_door
    for door in opened:
        door.close()


@pytest.fixture
def extension(place: Place) -> Path:
    return write_extension(place.home.parent, "friend", EXTENSION)


class Gate:
    """Holds a bash tool until it is opened, without sleeping."""

    def __init__(self, place: Place) -> None:
        self._path = place.work / "gate"
        os.mkfifo(self._path)
        self.prompt = 'tool:bash:{"command": "cat gate"}\nthen\nsay:after the tool'

    def wait_until_it_runs(self) -> None:
        self._writer = os.open(self._path, os.O_WRONLY)  # waits for the one that reads

    def open(self) -> None:
        os.close(self._writer)


def asked(server: FakeServer) -> list[Seen]:
    return [seen for seen in server.requests if seen.body]


def has_messages(door: Door, count: int) -> bool:
    return "count" in door.LACKS or door.state()[2] == count


def has_commands(door: Door, *names: str) -> bool:
    return "commands" in door.LACKS or set(names) <= set(door.commands())


def last_body(server: FakeServer) -> str:
    return json.dumps(asked(server)[-1].body)


# --- runs ------------------------------------------------------------------------------------


def test_a_prompt_is_answered(open_door: Callable[..., Door]) -> None:
    door = open_door()
    assert door.ask("say:hello") == "hello"
    provider, model, count, busy = door.state()
    assert (provider, model) == ("anthropic", "claude-sonnet-5-5")
    assert "count" in door.LACKS or (count, busy) == (2, False)


def test_an_abort_ends_a_prompt_and_the_next_one_works(
    open_door: Callable[..., Door], anthropic: FakeServer
) -> None:
    door = open_door()
    door.begin("hang:headers")
    anthropic.wait_for(1)
    door.abort()
    assert door.end() == "aborted"
    assert door.ask("say:here again") == "here again"


def test_a_prompt_that_failed_goes_on_with_another_model_without_being_said_again(
    open_door: Callable[..., Door], anthropic: FakeServer, openai: FakeServer
) -> None:
    door = open_door("retry")
    assert door.ask("status:401") == "error"
    with_key = asked(anthropic)
    door.set_model("gpt-6.1-sol", "openai")
    door.retry()
    assert len(asked(anthropic)) == len(with_key)
    messages = asked(openai)[-1].body["messages"]
    said = [message["content"] for message in messages if message["role"] == "user"]
    assert [text.split("\n")[1:] for text in said] == [["status:401"]]  # behind the date


def test_a_cut_answer_is_asked_for_anew_and_its_tool_runs_once(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer
) -> None:
    door = open_door()
    first = "say:half an answer\ntool:bash:echo ran >> effects\ncut:99 tries:1"
    assert door.ask(f"{first}\nthen\ncut:1 tries:1 say:the whole answer") == "the whole answer"
    assert (place.work / "effects").read_text() == "ran\n"
    assert len(asked(anthropic)) == 4
    sent = asked(anthropic)[-1].body["messages"]
    assert str(sent).count("half an answer") == 2  # in the prompt, and said once


def test_a_message_is_heard_after_the_tool(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer
) -> None:
    door, gate = open_door("steer"), Gate(place)
    door.begin(gate.prompt)
    gate.wait_until_it_runs()
    door.steer("say:steered")
    gate.open()
    assert door.end() == "steered"
    assert len(asked(anthropic)) == 2


def test_a_message_is_heard_when_the_model_would_stop(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer
) -> None:
    door, gate = open_door("steer"), Gate(place)
    door.begin(gate.prompt)
    gate.wait_until_it_runs()
    door.follow("say:followed")
    gate.open()
    assert door.end() == "followed"
    assert len(asked(anthropic)) == 3


def test_a_compaction_leaves_a_summary(
    open_door: Callable[..., Door], anthropic: FakeServer
) -> None:
    door = open_door("compact")
    for number in range(6):
        door.ask(f"say:{number} " + "word " * 5_000)
    assert has_messages(door, 12)
    assert door.compact()
    assert door.ask("say:after it") == "after it"
    assert len(asked(anthropic)[-1].body["messages"]) < 12


def test_the_transcript_can_be_cleared(
    open_door: Callable[..., Door], anthropic: FakeServer
) -> None:
    door = open_door("clear")
    door.ask("say:remember-this")
    door.clear()
    assert has_messages(door, 0)
    door.ask("say:new")
    assert "remember-this" not in last_body(anthropic)


def test_a_durable_prompt_is_run_once_under_its_name(
    open_door: Callable[..., Door], anthropic: FakeServer
) -> None:
    door = open_door("durable", durable=True)
    assert door.ask_once("say:done so", "job") == "done so"
    assert door.ask_once("say:done so", "job") == "done so"
    door.close()
    again = open_door("durable", durable=True)
    assert again.ask_once("say:done so", "job") == "done so"
    assert len(asked(anthropic)) == 1


def test_what_was_told_of_a_durable_run_can_be_read_again_and_followed(
    open_door: Callable[..., Door], place: Place
) -> None:
    door = open_door("durable", durable=True)
    door.ask_once("say:one", "a")
    kinds, last = door.told()
    assert (kinds.count("done"), kinds[-1]) == (1, "done")
    door.close()
    again = open_door("durable", durable=True)
    again.ask_once("say:two", "b")
    assert again.told()[0].count("done") == 2
    assert again.told(last)[0].count("done") == 1
    followed = list(follow(place.session, last, once=True))
    assert [kept.seq for kept in followed] == sorted({kept.seq for kept in followed})
    assert followed[-1].event == events.Done("b")


# --- models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [("gpt-6.1-sol", "openai"), ("openai/gpt-6.1-sol", "")])
def test_the_model_of_another_provider_goes_on_with_the_conversation(
    open_door: Callable[..., Door],
    anthropic: FakeServer,
    openai: FakeServer,
    name: tuple[str, str],
) -> None:
    door = open_door()
    door.set_reasoning("low")
    door.ask('think:2\ntool:bash:{"command": "echo printed"}\nthen\nsay:the first answer')
    door.set_model(*name)
    assert door.state()[:2] == ("openai", "gpt-6.1-sol")
    assert door.ask("say:second") == "second"
    assert len(asked(openai)) == 1
    body = last_body(openai)
    assert "the first answer" in body
    assert "printed" in body
    assert "signature" not in body  # thoughts are given back only to those who had them
    assert openai.requests[-1].headers["authorization"] == "Bearer sk-openai-0123456789"
    door.set_model("claude-sonnet-5-5", "anthropic")
    assert door.ask("say:third") == "third"
    assert "second" in last_body(anthropic)


def test_a_model_that_is_not_there_changes_nothing(open_door: Callable[..., Door]) -> None:
    door = open_door()
    absent = [("gemini-2.5-pro", "google")]
    if "provider" not in door.LACKS:  # elsewhere it may be the name of a model with a slash
        absent.append(("x", "no-such-provider"))
    for name, provider in absent:
        with pytest.raises(Exception, match=provider):
            door.set_model(name, provider)
            door.ask("say:where a call brings its model it is the call that fails")
    assert door.state()[:2] == ("anthropic", "claude-sonnet-5-5")
    assert door.ask("say:still here") == "still here"


def test_the_level_of_thinking_counts_from_the_next_call_on(
    open_door: Callable[..., Door], anthropic: FakeServer
) -> None:
    door = open_door()
    door.ask("say:quick")
    assert asked(anthropic)[-1].body["output_config"] == {"effort": "medium"}
    door.set_reasoning("high")
    door.ask("say:slow")
    assert asked(anthropic)[-1].body["output_config"] == {"effort": "high"}


# --- agents ----------------------------------------------------------------------------------


def test_agents_beside_it_have_their_own_conversation_directory_and_end(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer, openai: FakeServer
) -> None:
    door = open_door("agents")
    assert door.ask("say:the first") == "the first"
    (place.work / "sub").mkdir()
    pwd = 'tool:bash:{"command": "pwd > where"}\nthen\nsay:looked'
    assert door.ask_another("a", pwd, cwd="sub") == "looked"
    assert (place.work / "sub" / "where").read_text().strip() == str(place.work / "sub")
    assert "the first" not in last_body(anthropic)
    assert door.ask_another("b", "say:other", provider="openai", model="gpt-6.1-sol") == "other"
    assert "other" in last_body(openai)
    assert door.agents() == [("a", "idle"), ("b", "idle")]
    with pytest.raises(Exception, match="already"):
        door.ask_another("a", "say:no")
    door.close_agent("a")
    with pytest.raises(Exception, match="no agent"):
        door.close_agent("a")
    assert door.agents() == [("b", "idle")]
    assert door.ask("say:still here") == "still here"


# --- sessions --------------------------------------------------------------------------------


def test_a_session_goes_on_with_its_model_and_level(
    open_door: Callable[..., Door], openai: FakeServer, place: Place
) -> None:
    door = open_door(keep=True)
    door.set_model("gpt-6.1-sol", "openai")
    door.set_reasoning("low")
    door.ask("say:before")
    path = door.path()
    door.close()
    place.session = place.session.with_name("another.jsonl")
    other = open_door(keep=True)
    assert other.ask("say:elsewhere") == "elsewhere"
    assert other.state()[:2] == ("anthropic", "claude-sonnet-5-5")
    other.load(path)
    assert "state" in other.LACKS or other.state()[:2] == ("openai", "gpt-6.1-sol")
    assert other.ask("say:after") == "after"
    assert other.state()[:2] == ("openai", "gpt-6.1-sol")
    assert "before" in last_body(openai)
    assert asked(openai)[-1].body["reasoning_effort"] == "low"


ONE_SHOT: dict[str, tuple[str, ...]] = {
    "-p": ("-p",),
    "--json": ("--json",),
    "--mode json": ("--mode", "json"),
    "--mode text": ("--mode", "text"),
}


@pytest.mark.parametrize("mode", ONE_SHOT)
def test_the_latest_session_goes_on_with_the_model_and_level_that_flags_gave_it(
    place: Place, anthropic: FakeServer, mode: str
) -> None:
    def answered(*flags: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "zot", *ONE_SHOT[mode], *flags, "say:ok"]
        environ = {**os.environ, "PI_CODING_AGENT_DIR": str(place.agent)}
        done = subprocess.run(
            command,
            cwd=place.work,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, "sonnet" in done.stderr) == (0, False), done
        return asked(anthropic)[-1].body

    answered("--model", "claude-opus-4-5")
    level = "--thinking" if "--mode" in ONE_SHOT[mode] else "--reasoning"
    second = answered("-c", "--model", "claude-haiku-4-5", level, "high")
    assert (second["model"], len(second["messages"])) == ("claude-haiku-4-5", 3)
    third = answered("-c")
    assert (third["model"], len(third["messages"])) == ("claude-haiku-4-5", 5)
    assert third["thinking"] == second["thinking"]


def test_a_fork_goes_on_beside_what_it_came_from(
    open_door: Callable[..., Door], anthropic: FakeServer
) -> None:
    door = open_door("fork", keep=True)
    door.ask("say:one")
    door.ask("say:two")
    path = door.path()
    copy = door.fork(2)
    assert copy != path
    assert has_messages(door, 2)
    assert door.ask("say:three") == "three"
    assert "say:two" not in last_body(anthropic)
    assert "messages" in door.LACKS or "two" not in door.said()
    door.load(path)
    assert has_messages(door, 4)
    door.ask("say:four")
    assert "say:two" in last_body(anthropic)
    assert "say:three" not in last_body(anthropic)


def test_the_conversation_and_the_files_go_back_to_a_prompt(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer
) -> None:
    door = open_door("rewind", keep=True)
    door.ask('tool:write:{"path": "a.txt", "content": "one"}\nthen\nsay:first')
    door.ask('tool:write:{"path": "a.txt", "content": "two"}\nthen\nsay:forgotten')
    assert door.changed_files() == ["a.txt"]
    assert door.rewind(door.checkpoints()[1]) == "restore a.txt"
    assert (place.work / "a.txt").read_text() == "one"
    door.ask("say:third")
    assert "forgotten" not in last_body(anthropic)
    assert door.rewind(door.checkpoints()[0]) == "remove a.txt"
    assert not (place.work / "a.txt").exists()
    assert has_messages(door, 0)


def test_what_is_kept_can_be_listed(open_door: Callable[..., Door]) -> None:
    door = open_door("sessions", keep=True)
    door.ask("say:one")
    copy = door.fork(2)
    assert door.sessions() == []  # both are where the user put them, not where zot looks
    assert Path(copy).exists()


# --- commands, questions, the shell ----------------------------------------------------------


def test_a_command_of_an_extension_runs(open_door: Callable[..., Door], extension: Path) -> None:
    door = open_door(ext=extension)
    assert has_commands(door, "greet", "show")
    assert door.type("greet", "Ada") == "hello Ada"
    assert door.type("GREET", "again") == "hello again"
    assert "shown" in door.type("show", "")


def test_a_tool_that_a_command_wants_runs_before_the_model_is_asked(
    open_door: Callable[..., Door], extension: Path, anthropic: FakeServer
) -> None:
    door = open_door("call", ext=extension)
    assert door.type("today", "") == "heard it"
    assert "from-the-tool" in last_body(anthropic)
    assert len(asked(anthropic)) == 1


def test_a_skill_is_a_command(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer
) -> None:
    folder = place.home / "skills" / "careful"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: careful\ndescription: d\n---\nBe careful.\n")
    door = open_door()
    assert has_commands(door, "skill:careful")
    assert door.type("skill:careful", "say:done so").endswith("done so")
    assert "Be careful." in last_body(anthropic)


def test_a_prompt_file_is_a_command(open_door: Callable[..., Door], place: Place) -> None:
    folder = place.home / "prompts"
    folder.mkdir()
    (folder / "Echo.md").write_text("---\ndescription: echoes\n---\nsay:$2 $1, all: $ARGUMENTS\n")
    door = open_door()
    assert has_commands(door, "Echo")
    assert door.type("echo", "a b") == "b a, all: a b"


def test_a_question_of_an_extension_is_answered(
    open_door: Callable[..., Door], extension: Path, anthropic: FakeServer
) -> None:
    door = open_door("dialogs", ext=extension, answer="blue")
    door.ask("tool:favourite:{}\nthen\nsay:ok")
    assert "they like blue" in last_body(anthropic)


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_tool_waits_for_its_approval(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer, decision: str
) -> None:
    door = open_door("decide", decide=decision)
    door.ask('tool:bash:{"command": "touch made"}\nthen\nsay:ok')
    assert (place.work / "made").exists() == (decision == "allow")
    assert ("did not allow" in last_body(anthropic)) == (decision == "deny")


def test_what_is_allowed_for_the_project_is_kept_and_taken_back(
    open_door: Callable[..., Door], place: Place
) -> None:
    door = open_door("approvals", decide="allow_project")
    door.ask('tool:bash:{"command": "touch made"}\nthen\nsay:ok')
    assert (place.work / "made").exists()
    assert door.approvals() == ["bash touch *"]
    door.remove_approval("bash", "touch *")
    assert door.approvals() == []


def test_a_shell_command_goes_into_the_transcript_without_keys(
    open_door: Callable[..., Door], anthropic: FakeServer, place: Place
) -> None:
    (place.work / "leak").write_text("the key is sk-anthropic-0123456789\n")
    door = open_door("shell")
    assert "[secret removed]" in door.shell("cat leak")
    door.shell("echo not-for-the-model", hidden=True)
    door.ask("say:ok")
    body = last_body(anthropic)
    assert "cat leak" in body
    assert "[secret removed]" in body
    assert "sk-anthropic" not in body
    assert "not-for-the-model" not in body


def test_in_plan_mode_only_tools_that_read_run(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer
) -> None:
    (place.work / "seen.txt").write_text("what stands there\n")
    door = open_door("set_mode")
    door.set_mode("plan")
    door.ask("tool:bash:touch made\nthen\nread:seen.txt\nthen\nsay:ok")
    assert not (place.work / "made").exists()
    assert "plan mode" in last_body(anthropic)
    assert "what stands there" in last_body(anthropic)
    door.set_mode("yolo")
    door.ask("tool:bash:touch made\nthen\nsay:ok")
    assert (place.work / "made").exists()


def test_a_jail_can_be_closed_and_opened(
    open_door: Callable[..., Door], place: Place, anthropic: FakeServer
) -> None:
    outside = place.home.parent / "outside.txt"
    outside.write_text("seen from inside\n")
    look = f"read:{outside}\nthen\nsay:ok"
    door = open_door("set_jail")
    door.set_jail(True)
    door.ask(look)
    assert "seen from inside" not in last_body(anthropic)
    door.set_jail(False)
    door.ask(look)
    assert "seen from inside" in last_body(anthropic)
