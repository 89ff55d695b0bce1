"""The event log of a durable SDK runtime: what was told can be read again, and followed."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from zot import client
from zot.sdk import (
    AsyncRuntime,
    CommandError,
    KeptEvent,
    Runtime,
    events,
    follow,
    follow_async,
    parse_frame,
)
from zot.testing import ScriptedProvider

PROGRAM = """
import os
import sys
from zot.sdk import Runtime, tool
from zot.testing import ScriptedProvider

@tool
def step() -> str:
    "Never ends."
    os.write(1, b"in the tool\\n")
    sys.stdin.read()
    return "done"

turns = ["first", {"text": "second", "tools": [{"name": "step", "args": {}}]}]
provider = ScriptedProvider(turns)
with Runtime(provider=provider, session=sys.argv[1], durable=True, tools=[step]) as it:
    for name in ("one", "two"):
        stream = it.prompt(name, run=name)
        for event in stream:
            os.write(1, f"{stream.seq} {type(event).__name__}\\n".encode())
"""


def runtime(path: Path, *turns: object, **more: object) -> Runtime:
    return Runtime(provider=ScriptedProvider(list(turns)), session=path, durable=True, **more)  # type: ignore[arg-type]


def kinds(read: events.EventsRead) -> list[str]:
    return [event["type"] for event in read.events]


def test_what_was_heard_before_a_kill_is_in_the_log_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    heard = []
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "in the tool\n":
                break
            seq, name = line.split()
            heard.append((int(seq), name))
        child.send_signal(signal.SIGKILL)

    with runtime(path, "the end", tools=[]) as second:
        kept = {event["seq"]: parse_frame(event) for event in second.events().events}
        assert [(seq, type(kept[seq]).__name__) for seq, _ in heard] == heard
        cursor = heard[-1][0]
        stream = second.resume()
        assert stream is not None
        told = [(stream.seq, event) for event in stream]
        assert told[0][0] > cursor
        assert isinstance(told[0][1], events.RunResumed)
        behind = second.events(after=told[0][0] - 1)
        assert [event["seq"] for event in behind.events] == [seq for seq, _ in told]
        page = second.events(limit=2)
        assert page.more
        assert second.events(page.last).events[0]["seq"] > page.last


def test_an_end_that_was_written_and_not_told_is_kept_by_the_next_runtime(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with runtime(path, "one") as first:
        list(first.prompt("x", run="job"))
    log = Path(f"{path}.events")
    *lines, last = log.read_bytes().splitlines(keepends=True)
    assert b'"done"' in last
    log.write_bytes(b"".join(lines))
    with runtime(path) as second:
        assert second.events().events[-1]["type"] == "done"


def test_only_what_was_asked_for_is_read_and_a_cursor_that_is_too_old_gets_a_snapshot(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    turn = {"text": "a", "thinking": "hm"}
    with runtime(path, turn) as first:
        list(first.prompt("x"))
        assert "thinking_delta" not in kinds(first.events())
    with runtime(path, "b", features=["thinking"]) as second:
        assert "thinking_delta" in kinds(second.events())
        Path(f"{path}.events").write_bytes(b'{"type":"event_log","after":5000}\n')
        expired = second.events(after=3)
        assert expired.cursor_expired
        assert isinstance(expired.snapshot, events.Snapshot)
        assert expired.snapshot.state.message_count == 2
    with (
        Runtime(provider=ScriptedProvider(["x"])) as plain,
        pytest.raises(CommandError, match="durable"),
    ):
        plain.events()


def test_others_follow_from_another_thread_and_the_client_too(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    followed: list[KeptEvent] = []
    over = threading.Event()

    def read() -> None:
        for kept in follow(path):
            followed.append(kept)
            if isinstance(kept.event, events.Done):
                break
        over.set()

    reader = threading.Thread(target=read)
    reader.start()
    with runtime(path, "hello") as it:
        stream = it.prompt("x")
        told = [(stream.seq, event) for event in stream]
        assert over.wait(20)
    reader.join()
    assert [(kept.seq, kept.event) for kept in followed if kept.seq in dict(told)] == told
    again = list(client.follow(path, after=told[-2][0], once=True))
    assert [kept.event for kept in again] == [told[-1][1]]


def test_the_same_in_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"

    async def main() -> None:
        provider = ScriptedProvider(["hello"])
        async with AsyncRuntime(provider=provider, session=path, durable=True) as it:
            followed: list[KeptEvent] = []

            async def read() -> None:
                async for kept in follow_async(path):
                    followed.append(kept)
                    if isinstance(kept.event, events.Done):
                        break

            reader = asyncio.create_task(read())
            stream = it.prompt("x")
            told = [(stream.seq, event) async for event in stream]
            await asyncio.wait_for(reader, 20)
            assert [(kept.seq, kept.event) for kept in followed if kept.seq in dict(told)] == told
            read_again = await it.events(after=told[0][0])
            assert [event["seq"] for event in read_again.events] == [seq for seq, _ in told[1:]]
            assert [kept.seq async for kept in follow_async(path, told[-2][0], once=True)] == [
                told[-1][0]
            ]

    asyncio.run(main())


def test_an_agent_that_was_opened_has_a_log_of_its_own_and_lets_go_of_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.jsonl"
    with Runtime(provider=ScriptedProvider(["one"])) as it:
        with it.open_agent("a", session=path, durable=True) as agent:
            stream = agent.prompt("x")
            assert [type(event) for event in stream][-1] is events.Done
            assert agent.events().events[-1]["type"] == "done"
            assert stream.seq == agent.events().last
        opened = {link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.exists()}
        assert not any(name.startswith("agent.jsonl") for name in opened)


def test_what_waits_for_an_answer_is_listed(tmp_path: Path) -> None:
    call = {"tools": [{"name": "bash", "args": {"command": "touch made"}, "id": "c"}]}
    provider = ScriptedProvider([call, "ok"])
    with Runtime(provider=provider, cwd=tmp_path, features=["approvals"]) as it:
        assert it.questions() == ()
        for event in it.prompt("x"):
            if isinstance(event, events.ApprovalRequest):
                assert it.questions() == (event,)
                it.approve(event.request_id, "deny")
        assert it.questions() == ()


def test_nothing_depends_on_the_directory_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Runtime(provider=ScriptedProvider(["one", "two"]), session="s.jsonl", durable=True) as it:
        agent = it.open_agent("a", session="a.jsonl", durable=True)
        monkeypatch.chdir("elsewhere")
        later = it.open_agent("b", session="b.jsonl", durable=True)
        for runtime in (it, agent, later):
            assert isinstance(list(runtime.prompt("x"))[-1], events.Done)
            assert runtime.events().events[-1]["type"] == "done"
    kept = {path.name for path in tmp_path.iterdir()}
    assert {"s.jsonl", "a.jsonl", "b.jsonl", "s.jsonl.events", "b.jsonl.events"} <= kept
    assert list((tmp_path / "elsewhere").iterdir()) == []
