"""Sessions of pi's dialect: files, forks, clones, names, pages."""

import json
from pathlib import Path
from typing import Any

from support.pi import PiProcess, PiServers, kinds

HELLO = {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True}
SUMMARY = {"match": "<conversation>", "text": "a summary"}
BASH = {"name": "bash", "args": {"command": "echo out"}}
WRITE = {"name": "write", "args": {"path": "a.txt", "content": "x"}}
READ = {"name": "read", "args": {"path": "b.txt"}}
KEEP: list[str] = []


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def texts(server: PiProcess) -> list[str]:
    found = server.data("get_messages")["messages"]
    return [each["content"][0]["text"] for each in found if each["role"] == "user"]


def test_a_session_is_written_where_pi_looks_for_it(servers: PiServers) -> None:
    with servers.start({"tools": [BASH, BASH]}, HELLO, args=KEEP) as server:
        path = server.data("get_state")["sessionFile"]
        assert not Path(path).exists()
        server.run("hi", id="1")
    assert servers.files() == [Path(path)]
    assert Path(path).parent.name == "--" + str(servers.cwd).strip("/").replace("/", "-") + "--"
    found = rows(Path(path))
    assert [row["type"] for row in found] == [
        "session",
        "model_change",
        "thinking_level_change",
        "message",
        "message",
        "message",
        "message",
        "message",
    ]
    assert found[0]["cwd"] == str(servers.cwd)
    assert [row["parentId"] for row in found[1:]] == [None, *[row["id"] for row in found[1:-1]]]
    assert oct(Path(path).stat().st_mode & 0o777) == "0o600"


def test_no_session_leaves_no_file(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.run("hi", id="1")
        server.data("new_session")
        server.run("hi", id="2")
        assert "sessionFile" not in server.data("get_state")
    assert servers.files() == []


def test_a_session_in_which_nothing_was_said_leaves_no_file(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.data("set_thinking_level", level="high")
        server.rest()
        server.wait()
    assert servers.files() == []


def test_continue_goes_on_with_the_latest_session(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("remember", id="1")
        server.data("set_thinking_level", level="low")
        server.data("set_session_name", name="  mine ")
        id = server.data("get_state")["sessionId"]
    with servers.start(HELLO, args=["--continue"]) as server:
        state = server.data("get_state")
        assert (state["sessionId"], state["sessionName"]) == (id, "mine")
        assert state["thinkingLevel"] == "low"
        assert texts(server) == ["remember"]
    with servers.start(HELLO, args=["--session", id[:13]]) as server:
        assert texts(server) == ["remember"]
    with servers.start(HELLO, args=["--session", str(servers.files()[0])]) as server:
        assert server.data("get_state")["messageCount"] == 2


def test_a_torn_last_line_loses_nothing_before_it(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("one", id="1")
        server.run("two", id="2")
    path = servers.files()[0]
    path.write_bytes(path.read_bytes()[:-20])
    with servers.start(HELLO, args=["--continue"]) as server:
        assert texts(server) == ["one", "two"]
        server.run("three", id="1")
    assert all(row["type"] for row in rows(path))
    assert rows(path)[-1]["message"]["role"] == "assistant"


def test_a_session_of_pi_itself_can_be_opened(servers: PiServers) -> None:
    lines = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z"},
        {
            "type": "message",
            "id": "aaaaaaaa",
            "parentId": None,
            "timestamp": "2026-01-01T00:00:01.000Z",
            "message": {"role": "user", "content": "from pi", "timestamp": 1767225601000},
        },
    ]
    servers.agent.mkdir(parents=True)
    path = servers.agent / "old.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with servers.start(HELLO, args=KEEP) as server:
        server.data("switch_session", sessionPath=str(path))
        assert texts(server) == ["from pi"]
        server.run("go on", id="1")
        server.data("switch_session", sessionPath=str(path))  # the one that is open
        assert texts(server) == ["from pi", "go on"]
    assert rows(path)[2]["parentId"] == "aaaaaaaa"


def test_entries_are_a_durable_cursor(servers: PiServers) -> None:
    with servers.start({"tools": [BASH, BASH]}, HELLO, args=KEEP) as server:
        server.run("one", id="1")
        first = server.data("get_entries")
        server.run("two", id="2")
        more = server.data("get_entries", since=first["leafId"])
        assert [each["message"]["role"] for each in more["entries"]] == ["user", "assistant"]
        assert server.ask("get_entries", since="nothere0")["success"] is False
        everything = server.data("get_entries")["entries"]
    assert [row["id"] for row in rows(servers.files()[0])[1:]] == [
        each["id"] for each in everything
    ]
    with servers.start(HELLO, args=["--continue"]) as server:
        again = server.data("get_entries", since=first["leafId"])
        assert again == more


def test_the_tree_shows_every_branch(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.run("one", id="1")
        found = server.data("get_tree")
    depth, node = 1, found["tree"][0]
    while node["children"]:
        assert len(node["children"]) == 1
        node = node["children"][0]
        depth += 1
    assert depth == 4
    assert node["entry"]["id"] == found["leafId"]


def test_a_fork_goes_on_before_the_message(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("one", id="1")
        server.run("two", id="2")
        before = server.data("get_state")["sessionFile"]
        messages = server.data("get_fork_messages")["messages"]
        assert [each["text"] for each in messages] == ["one", "two"]
        answer = server.data("fork", entryId=messages[1]["entryId"])
        assert answer == {"text": "two", "cancelled": False}
        assert texts(server) == ["one"]
        server.run("other", id="3")
        after = server.data("get_state")["sessionFile"]
        assert server.ask("fork", entryId="nothere0")["success"] is False
    assert after != before
    head = rows(Path(after))[0]
    assert head["parentSession"] == before
    assert [row["message"]["role"] for row in rows(Path(before)) if "message" in row].count(
        "user"
    ) == 2


def test_sessions_in_memory_can_be_forked_and_switched_too(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("kept", id="1")
        path = server.data("get_state")["sessionFile"]
    before = Path(path).read_bytes()
    with servers.start(HELLO) as server:
        server.run("one", id="1")
        server.run("two", id="2")
        id = server.data("get_fork_messages")["messages"][1]["entryId"]
        server.data("fork", entryId=id)
        assert texts(server) == ["one"]
        server.data("clone")
        server.data("switch_session", sessionPath=path)
        server.run("not kept", id="3")
        assert texts(server) == ["kept", "not kept"]
    assert Path(path).read_bytes() == before


def test_a_session_is_found_or_made_by_its_name(servers: PiServers) -> None:
    path = servers.cwd / "own.jsonl"
    with servers.start(HELLO, args=["--session", str(path)]) as server:
        assert server.data("get_state")["sessionFile"] == str(path)
        server.run("hi", id="1")
    assert rows(path)[0]["type"] == "session"
    with servers.start(HELLO, args=["--session", "no-such-id"]) as server:
        assert server.wait() == 1
    with servers.start(HELLO, args=["--continue"]) as server:
        assert server.data("get_state")["messageCount"] == 0


def test_a_session_can_be_forked_from_the_command_line(servers: PiServers) -> None:
    with servers.start(HELLO, args=["--session-id", "first"]) as server:
        server.run("one", id="1")
    with servers.start(HELLO, args=["--fork", "fir", "--session-id", "second"]) as server:
        assert texts(server) == ["one"]
        server.run("two", id="1")
    with servers.start(HELLO, args=["--session-id", "first"]) as server:
        assert texts(server) == ["one"]
    assert len(servers.files()) == 2
    with servers.start(HELLO, args=["--fork", "nobody"]) as server:
        assert server.wait() == 1


def test_a_fork_from_the_first_message_starts_empty(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("one", id="1")
        id = server.data("get_fork_messages")["messages"][0]["entryId"]
        assert server.data("fork", entryId=id)["text"] == "one"
        assert server.data("get_state")["messageCount"] == 0


def test_a_clone_is_a_session_of_its_own(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        assert "nothing" in server.ask("clone")["error"]
        server.run("one", id="1")
        server.data("clone")
        server.run("two", id="2")
        assert texts(server) == ["one", "two"]
    assert len(servers.files()) == 2


def test_a_new_session_ends_what_runs(servers: PiServers) -> None:
    with servers.start({"text": ["a"] * 100, "delay_ms": 200}, HELLO, args=KEEP) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        server.data("new_session", parentSession="/somewhere.jsonl")
        assert {"agent_end", "agent_settled"} <= set(kinds(server.seen))
        server.run("hi", id="2")
        path = server.data("get_state")["sessionFile"]
    assert rows(Path(path))[0]["parentSession"] == "/somewhere.jsonl"


def test_a_page_is_made_of_a_session(servers: PiServers) -> None:
    with servers.start({"tools": [BASH]}, HELLO) as server:
        assert "nothing" in server.ask("export_html")["error"]
        server.run("make <b>it</b>", id="1")
        path = server.data("export_html")["path"]
        assert "make &lt;b&gt;it&lt;/b&gt;" in Path(path).read_text()
        named = server.data("export_html", outputPath="out/page.html")["path"]
        assert named == str(servers.cwd / "out" / "page.html")
        assert server.ask("export_html", outputPath="/proc/no/page.html")["success"] is False


def test_a_compaction_tells_the_files_that_were_touched(servers: PiServers) -> None:
    with servers.start(SUMMARY, {"tools": [WRITE, READ]}, HELLO, args=KEEP) as server:
        server.run("hi", id="1")
        result = server.data("compact")
        assert result["details"] == {"readFiles": ["b.txt"], "modifiedFiles": ["a.txt"]}
        found = server.data("get_messages")["messages"]
        assert [each["role"] for each in found] == ["compactionSummary"]
        assert found[0]["summary"] == "a summary"
    row = next(row for row in rows(servers.files()[0]) if row["type"] == "compaction")
    assert row["id"] == row["firstKeptEntryId"] == result["firstKeptEntryId"]
    with servers.start(HELLO, args=["--continue"]) as server:
        assert server.data("get_messages")["messages"][0]["role"] == "compactionSummary"


def test_the_name_of_a_session(servers: PiServers) -> None:
    with servers.start(HELLO, args=["--no-session", "--name", "given"]) as server:
        assert server.data("get_state")["sessionName"] == "given"
        server.data("set_session_name", name="other")
        assert {"type": "session_info_changed", "name": "other"} in server.seen
        assert server.ask("set_session_name", name=" ")["success"] is False
