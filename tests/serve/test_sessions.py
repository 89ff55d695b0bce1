import base64
import json
from pathlib import Path

from support.rpc import CANARIES, Zot

from zot.core.session import Session
from zot.sessions.files import load


def texts(zot: Zot) -> list[str]:
    messages = zot.data("get_messages")["messages"]
    return [
        block["text"] for message in messages for block in message["content"] if "text" in block
    ]


def session_file(tmp_path: Path) -> str:
    return str(tmp_path / "s.jsonl")


def test_a_session_is_kept_and_taken_up_again(tmp_path):
    path = session_file(tmp_path)
    with Zot(tmp_path, ["hello"], args=["--session", path]) as zot:
        zot.prompt("first")
    with Zot(tmp_path, ["again"], args=["--session", path]) as zot:
        assert texts(zot) == ["first", "hello"]
        before = zot.data("get_state")
        assert before["message_count"] == 2
        zot.prompt("second")
    saved = Session(entries=load(path).entries.values())
    assert [message.content[0].text for message in saved.messages()] == [
        "first",
        "hello",
        "second",
        "again",
    ]


def test_nothing_is_kept_unless_asked_for(tmp_path):
    with Zot(tmp_path, ["hello"]) as zot:
        zot.prompt("first")
    assert not (tmp_path / "zot-home").exists()


def test_continue_takes_the_latest_of_the_directory(tmp_path):
    with Zot(tmp_path, ["one"], args=["--continue"]) as zot:
        zot.prompt("first")
    with Zot(tmp_path, ["two"], args=["--continue"]) as zot:
        assert texts(zot) == ["first", "one"]


def test_a_session_in_use_is_refused_before_anything_is_said(tmp_path):
    path = session_file(tmp_path)
    with Zot(tmp_path, ["hello"], args=["--session", path]) as zot:
        zot.prompt("first")
        other = Zot(tmp_path, ["x"], args=["--session", path])
        code, stderr = other.finish()
        other.kill()
        assert code == 1
        assert f"in use by process {zot.process.pid}" in stderr
        assert other.frames == []


def test_sessions_are_listed_loaded_forked_and_exported(tmp_path):
    path = session_file(tmp_path)
    with Zot(tmp_path, ["one", "two"], args=["--continue"], features=["sessions"]) as zot:
        zot.prompt("first")
        zot.prompt("second")
        (row,) = zot.data("list_sessions")["sessions"]
        assert (row["message_count"], row["first_text"]) == (4, "first")
        assert zot.data("get_state")["session"]["path"] == row["path"]
        assert zot.data("list_sessions", limit=0) == {"sessions": []}
        forked = zot.data("fork_session", at=2)["session"]
        assert (forked["message_count"], forked["parent"]) == (2, row["id"])
        assert texts(zot) == ["first", "one"]
        kept = zot.data("fork_session", load=False)["session"]
        assert kept["parent"] == forked["id"]
        assert zot.data("get_state")["session"]["id"] == forked["id"]
        loaded = zot.data("load_session", session=row["id"])["session"]
        assert (loaded["id"], loaded["message_count"]) == (row["id"], 4)
        assert zot.data("load_session", session=row["path"])["session"]["id"] == row["id"]
        assert zot.data("export_session")["content"].startswith('{"type":"meta"')
        page = zot.data("export_session", format="html", path=str(tmp_path / "page.html"))
        assert page == {"format": "html", "path": str(tmp_path / "page.html")}
        assert "second" in (tmp_path / "page.html").read_text()
        markdown = zot.data("export_session", session=forked["id"], format="markdown")["content"]
        assert "second" not in markdown
        assert not zot.ask("load_session", session="nothing")["success"]
        assert not zot.ask("fork_session", at="zzzz")["success"]
        assert len(zot.data("list_sessions", all=True)["sessions"]) == 3
        assert not Path(path).exists()


def test_a_session_in_memory_can_be_exported_and_forked_to_a_file(tmp_path):
    with Zot(tmp_path, ["one", "two"]) as zot:
        zot.prompt("first")
        assert (
            json.loads(zot.data("export_session", format="json")["content"])["session"]["path"]
            == ""
        )
        path = zot.data("fork_session")["session"]["path"]
        zot.prompt("second")
    assert len(Session(entries=load(path).entries.values()).messages()) == 4


def test_the_transcript_can_be_replaced(tmp_path):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "c", "name": "read", "args": {"path": "x"}}],
            "time": "2026-01-01T00:00:00Z",
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool_result",
                    "call_id": "c",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "no"},
                        {
                            "type": "image",
                            "mime_type": "image/jpeg",
                            "data": base64.b64encode(b"\xff\xd8\xff").decode(),
                        },
                    ],
                }
            ],
        },
    ]
    with Zot(tmp_path, ["answer"]) as zot:
        zot.prompt("old")
        assert zot.data("set_messages", messages=messages) == {"message_count": 3}
        shown = zot.data("get_messages")["messages"]
        assert [message["role"] for message in shown] == ["user", "assistant", "tool"]
        assert shown[1]["time"] == "2026-01-01T00:00:00.000Z"
        assert shown[2]["content"][0]["content"][1] == {
            "type": "image",
            "mime_type": "image/jpeg",
            "bytes": 3,
        }
        for wrong in ([{"role": "king", "content": []}], [{"role": "user"}], "text"):
            assert not zot.ask("set_messages", messages=wrong)["success"]
        assert zot.data("set_messages", messages=[]) == {"message_count": 0}


def test_a_busy_agent_keeps_its_session(tmp_path):
    turns = [{"tools": [{"name": "bash", "args": {"command": "sleep 30"}}]}, "x"]
    with Zot(tmp_path, turns, args=["--continue"]) as zot:
        zot.send("prompt", message="go")
        zot.until("tool_call")
        for name, fields in (
            ("load_session", {"session": "latest"}),
            ("fork_session", {}),
            ("set_messages", {"messages": []}),
        ):
            answer = zot.ask(name, **fields)
            assert not answer["success"]
            assert "agent is busy" in answer["error"]
        assert zot.data("fork_session", load=False)["session"]["message_count"] >= 1
        zot.ask("abort")
        zot.until("done")


def test_a_prompt_may_bring_its_own_budget(tmp_path):
    turns = [{"tools": [{"name": "bash", "args": {"command": "true"}}]}, "end"]
    with Zot(tmp_path, turns, args=["--max-steps", "9"], features=["budgets"]) as zot:
        assert zot.data("get_state")["limits"] == {
            "max_steps": 9,
            "max_cost": None,
            "max_tokens": None,
            "max_seconds": None,
        }
        frames = zot.prompt("go", max_steps=1)
        assert [frame["message"] for frame in frames if frame["type"] == "error"] == [
            "max steps (1) exceeded"
        ]
        assert not zot.ask("prompt", message="x", max_cost=0)["success"]
        assert not zot.ask("prompt", message="x", max_tokens="many")["success"]
        zot.invariants()
    with Zot(tmp_path, ["x"]) as zot:
        assert "limits" not in zot.data("get_state")


def test_a_killed_process_has_lost_nothing_it_told(tmp_path):
    path = session_file(tmp_path)
    turns = [
        {"tools": [{"name": "bash", "args": {"command": "echo out"}}]},
        {"tools": [{"name": "bash", "args": {"command": "sleep 60"}}]},
    ]
    zot = Zot(tmp_path, turns, args=["--session", path])
    zot.send("prompt", message="go")
    zot.until("tool_result")
    zot.until("tool_call")
    zot.process.kill()
    zot.process.wait()
    zot.kill()
    with Zot(tmp_path, ["after"], args=["--session", path]) as again:
        shown = again.data("get_messages")["messages"]
        assert [message["role"] for message in shown][:3] == ["user", "assistant", "tool"]
        assert "out" in json.dumps(shown[2])
        again.prompt("go on")  # the call without a result does not make the next request invalid
        assert texts(again)[-1] == "after"


def test_no_secret_reaches_a_session_a_log_or_an_export(tmp_path):
    home = tmp_path / "zot-home"
    command = f"env; cat {home}/auth.json; cat /proc/$PPID/environ /proc/$PPID/cmdline"
    turns = [
        {
            "tools": [
                {"name": "bash", "args": {"command": command}},
                {"name": "read", "args": {"path": str(home / "auth.json")}},
                {"name": "grep", "args": {"pattern": "sk-", "path": str(home)}},
            ]
        },
        "done",
    ]
    key = ["--api-key", CANARIES[0]]
    home.mkdir(mode=0o700)
    (home / "auth.json").write_text(json.dumps({"openai": {"api_key": CANARIES[1]}}))
    with Zot(tmp_path, turns, args=["--continue", *key]) as zot:
        frames = zot.prompt("show me")
        shown = json.dumps([frame for frame in frames if frame["type"] == "tool_result"])
        assert shown.count("[secret removed]") >= 2
        for form in ("json", "html", "markdown", "pi", "zotsession"):
            content = zot.data("export_session", format=form)["content"]
            assert not any(canary in content for canary in CANARIES)
        zot.data("get_state")
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "auth.json":
            data = file.read_bytes()
            assert not any(canary.encode() in data for canary in CANARIES), file


def test_a_key_that_the_model_says_reaches_nobody(tmp_path):
    path = session_file(tmp_path)
    with Zot(tmp_path, [f"it is {CANARIES[1]}, or not"], args=["--session", path]) as zot:
        frames = zot.prompt("which key")
        said = "".join(frame["delta"] for frame in frames if frame["type"] == "text_delta")
        assert said == "it is [secret removed], or not"
    assert CANARIES[1] not in Path(path).read_text()


def test_a_full_disk_fails_the_run_and_nothing_else(tmp_path):
    path = session_file(tmp_path)
    full = ["bash", "-c", 'ulimit -f 16; exec "$@"', "bash"]  # no file may pass 16 KiB
    env = {"PYTHONDONTWRITEBYTECODE": "1"}  # Python would leave half a file of its own behind
    turns = ["short", "x" * 20_000, "short again"]
    with Zot(tmp_path, turns, args=["--session", path], wrapper=full, env=env) as zot:
        zot.prompt("one")
        frames = zot.prompt("two")
        (error,) = [frame["message"] for frame in frames if frame["type"] == "error"]
        assert "cannot write to the session" in error
        zot.prompt("three")  # what is short still fits
        zot.invariants()
    saved = Session(entries=load(path).entries.values())
    assert load(path).notes == ()
    assert [message.content[0].text for message in saved.messages()] == [
        "one",
        "short",
        "two",
        "three",
        "short again",
    ]
