"""What a peer can do wrong, and how it is recognised."""

import json
import signal

import pytest
from support.pi import PiServers, kinds, outline

HELLO = {"text": ["Hel", "lo"], "repeat": True}
BAD = [b"null", b"[]", b'"text"', b"3", b"{", b"{]", b"garbage", b"\xff\xfe", b"[" * 20_000]


@pytest.fixture(scope="module", params=["a", "b"])
def generation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_bad_lines_are_errors_and_the_process_goes_on(servers: PiServers, generation: str) -> None:
    with servers.start(HELLO, args=["--no-session", "--pi-protocol", generation]) as server:
        for line in BAD:
            server.raw(line + b"\n")
            frame = server.frame()
            if generation == "a":
                assert set(frame) == {"type", "error"}
                assert frame["type"] == "error"
            else:
                assert (frame["type"], frame["command"], frame["success"]) == (
                    "response",
                    "parse",
                    False,
                )
                assert "id" not in frame
        assert outline(server.run("hi", end="agent_end")).endswith("/run")


def test_a_line_of_20_megabytes_is_an_error_and_the_process_goes_on(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        message = "x" * 20_000_000
        server.send("prompt", message=message, id="1")
        frame = server.frame()
        assert frame["type"] == "error"
        assert "longer than" in frame["error"]
        assert server.data("get_state")["messageCount"] == 0


def test_a_prompt_without_text_is_an_error(servers: PiServers) -> None:
    wrong: list[dict[str, object]] = [{}, {"message": ""}, {"message": 3}, {"message": None}]
    with servers.start(HELLO) as server:
        for fields in wrong:
            server.send("prompt", **fields)
            assert server.frame()["type"] == "error"
        for fields in wrong:
            response = server.ask("prompt", **fields)
            assert (response["success"], response["command"]) == (False, "prompt")


def test_an_unknown_command_keeps_its_id(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.send("no_such_thing", id="x")
        assert server.frame() == {
            "id": "x",
            "type": "response",
            "command": "no_such_thing",
            "success": False,
            "error": "unknown command: no_such_thing",
        }


def test_a_command_without_a_type_is_answered_without_a_command(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.raw(b'{"id":"x"}\n')
        frame = server.frame()
        assert (frame["id"], frame["success"]) == ("x", False)
        assert "command" not in frame


def test_crlf_and_blank_lines_are_taken(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.raw(b'\r\n\n{"type":"prompt","message":"hi"}\r\n')
        assert outline(server.until("agent_end")).startswith("run turn user")


def test_line_separators_are_escaped_on_the_wire(servers: PiServers) -> None:
    with servers.start({"text": "a\u2028b\u2029c"}) as server:
        frames = server.run("x\u2028y", end="agent_end")
    assert frames[-1]["messages"][0]["content"][0]["text"] == "x\u2028y"
    assert frames[-1]["messages"][1]["content"][0]["text"] == "a\u2028b\u2029c"


def test_the_bytes_on_stdout_hold_no_line_separator(servers: PiServers) -> None:
    import subprocess
    import sys

    turns = ({"text": "a\u2028b\u2029c\u0085d"},)
    done = subprocess.run(
        [sys.executable, "-m", "zot", "--mode", "rpc", "--no-session", *servers.arguments(turns)],
        input=b'{"type":"prompt","message":"hi"}\n',
        capture_output=True,
        cwd=servers.cwd,
        env=servers.environment(),
        timeout=30,
    )
    assert done.returncode == 0
    for mark in ("\u2028", "\u2029", "\u0085"):
        assert mark.encode() not in done.stdout
    assert all(json.loads(line) for line in done.stdout.split(b"\n")[:-1])


# --- which generation ------------------------------------------------------------------------


def test_a_peer_without_ids_gets_no_answers(servers: PiServers) -> None:
    with servers.start({"match": "<conversation>", "text": "sum"}, HELLO) as server:
        server.run("hi", end="agent_end")
        server.send("compact")
        server.send("abort")
        server.send("prompt", message="again")
        server.until("agent_end")
        assert not {"response", "agent_settled", "compaction_end"} & set(kinds(server.seen))


def test_an_id_makes_the_peer_a_newer_one(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.run("hi", end="agent_end")
        server.send("abort", id="1")
        # Heard in time, it also makes the newer frame of the first run's end come.
        assert server.until("response")[-1] == {
            "id": "1",
            "type": "response",
            "command": "abort",
            "success": True,
        }
        server.send("prompt", message="no id, but answered")
        assert server.frame()["type"] == "response"
        assert kinds(server.until("agent_settled"))[-1] == "agent_settled"
        server.raw(b"garbage\n")
        assert server.frame()["command"] == "parse"


def test_a_command_of_newer_generations_needs_no_id(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.send("get_state")
        frame = server.frame()
        assert frame["success"] is True
        assert "id" not in frame


def test_a_command_of_the_newest_generation_ends_the_snapshots(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        updates = [f for f in server.run("hi", id="1") if f["type"] == "message_update"]
        assert all("message" in frame and "usage" in frame for frame in updates)
        server.data("clear_queue")
        updates = [f for f in server.run("hi", id="2") if f["type"] == "message_update"]
        assert not any("message" in frame for frame in updates)


def test_get_protocol_says_what_is_spoken_and_lets_the_peer_choose(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        told = server.data("get_protocol")
        assert (told["protocol"], told["generation"], told["server"]) == ("pi-rpc", "b", "zot")
        assert "entries" in told["features"]
        assert server.data("get_protocol", generation="c")["generation"] == "c"
        updates = [f for f in server.run("hi", id="2") if f["type"] == "message_update"]
        assert not any("message" in frame for frame in updates)


def test_a_pinned_generation_stays(servers: PiServers) -> None:
    with servers.start(HELLO, args=["--no-session", "--pi-protocol", "a"]) as server:
        frames = server.run("hi", end="agent_end", id="1")
        assert frames[0]["id"] == "1"
        assert kinds(frames[1:])[0] == "agent_start"
        assert server.data("get_protocol", generation="c")["generation"] == "a"


# --- the end ---------------------------------------------------------------------------------


def test_the_end_of_input_lets_a_run_of_generation_a_finish(servers: PiServers) -> None:
    with servers.start({"text": ["a", "b", "c"], "delay_ms": 100}) as server:
        server.send("prompt", message="hi")
        server.until("message_update")
        assert kinds(server.rest())[-1] == "agent_end"
        assert server.wait() == 0


def test_the_end_of_input_ends_newer_generations_at_once(servers: PiServers) -> None:
    with servers.start({"text": ["a"] * 100, "delay_ms": 200}) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        rest = server.rest()
        assert rest[-1] == {"type": "agent_settled", "aborted": True}
        assert server.wait() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_process(servers: PiServers, number: int, code: int) -> None:
    with servers.start({"text": ["a"] * 100, "delay_ms": 200}) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        server.process.send_signal(number)
        assert server.wait() == code
