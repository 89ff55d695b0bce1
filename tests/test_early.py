"""The first ping is answered before the program is loaded, and never otherwise than by it."""

import json
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.environment import uncovered

from zot.early import RPC_TOKEN, pong
from zot.wire import commands, zot

FLAGS = ["--provider", "anthropic", "--api-key", "k"]
PING = b'{"id":"1","type":"ping"}\n'
PONG = b'{"type":"response","command":"ping","success":true,"id":"1","data":{"pong":true}}\n'
# Tells on stderr what was loaded when the answer was written.
LOADED = """
import os, sys
plain_write = os.write
def write(fd, data):
    if fd == 1 and b'"pong"' in data:
        plain_write(2, " ".join(sys.modules).encode())
    return plain_write(fd, data)
os.write = write
from zot.__main__ import main
sys.argv = ["zot", "rpc", *sys.argv[1:]]
sys.exit(main())
"""


def run(lines, folder, *flags, start=("-c", LOADED), **environment):
    """What `zot rpc` answers to lines that are there before it starts, and what was loaded then."""
    read, write = os.pipe()
    os.write(write, lines)
    os.close(write)
    done = subprocess.run(
        [sys.executable, *start, *(flags or FLAGS)],
        stdin=read,
        capture_output=True,
        timeout=60,
        env={**uncovered(), "ZOT_HOME": str(folder), **environment},
    )
    os.close(read)
    return done


# --- what it understands -----------------------------------------------------------------------

spaces = st.sampled_from(["", " ", "\t", "  "])
texts = st.one_of(
    st.sampled_from(["ping", "hello", "type", "id", "", "1", "a b", '"', "\\", "null"]),
    st.text(max_size=70),
)


@st.composite
def lines(draw):
    """Something like a ping."""
    fields = draw(st.lists(st.tuples(texts, st.one_of(texts, st.integers())), max_size=3))
    fields += [("type", "ping")] if draw(st.booleans()) else []
    fields += [("id", draw(texts))] if draw(st.booleans()) else []
    gap = draw(spaces)
    pairs = [f"{json.dumps(name)}{gap}:{gap}{json.dumps(value)}" for name, value in fields]
    line = f"{{{gap}{f',{gap}'.join(draw(st.permutations(pairs)))}{gap}}}"
    cut = draw(st.integers(0, len(line)))
    return (line if draw(st.booleans()) else line[:cut] + draw(texts) + line[cut:]).encode()


@given(lines())
@example(PING.strip())
@example(b'{"type":"ping"}')
@example(b'{"id":"1","id":"ping"}')
@example(b'{"type":"ping","type":"ping"}')
@example(b'{"type":"ping","id":""}')
@example('{"type":"ping","id":"é"}'.encode())
@example(b'{"type":"ping","id":"1"} ')
@example(b'{"type":"ping"\x0b}')
@example(b'x{"type":"ping"}')
def test_it_answers_a_line_as_the_server_does_or_not_at_all(line):
    line = line.strip(b" \t\r")
    answer = pong(line)
    if answer is None:
        return
    incoming = zot.decode(line)
    assert isinstance(incoming.command, commands.Ping)
    assert answer == zot.encode(zot.success(incoming, zot.Pong()))


@pytest.mark.parametrize("id", ["1", "a7", "x" * 64, None])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_it_understands_what_json_libraries_write(id, separators):
    for fields in ({"id": id, "type": "ping"}, {"type": "ping", "id": id}):
        sent = {name: value for name, value in fields.items() if value is not None}
        answer = pong(json.dumps(sent, separators=separators).encode())
        assert answer is not None
        assert json.loads(answer).get("id") == id


# --- the process -------------------------------------------------------------------------------


def test_a_first_ping_is_answered_with_almost_nothing_loaded(tmp_path):
    done = run(PING, tmp_path)
    assert (done.stdout, done.returncode) == (PONG, 0)
    loaded = set(done.stderr.decode().split())
    assert not {"msgspec", "typing", "re", "enum", "collections", "threading"} & loaded
    ours = {name for name in loaded if name.startswith("zot")}
    assert ours == {"zot", "zot.__main__", "zot.early"}


def test_what_follows_the_ping_is_read_by_the_server(tmp_path):
    torn = b'\xef\xbb\xbf{"type":"hello"}\n{"id":"2","type":"ping"}\n{"id":"3","type":"hel'
    answers = run(PING + torn + b'lo"}', tmp_path).stdout.splitlines(keepends=True)
    assert answers[0] == PONG
    refused, second, hello = map(json.loads, answers[1:])
    assert refused["error"].startswith("parse_error")  # a mark belongs to the first line only
    assert (second["id"], hello["id"]) == ("2", "3")
    assert hello["data"]["provider"] == "anthropic"


@pytest.mark.parametrize(
    "line",
    [b'{"id":1,"type":"ping"}\n', b'{"id":"1","type":"hello"}\n', b'{"id":"1","type":"ping"}'],
)
def test_every_other_first_line_is_read_by_the_server(line, tmp_path):
    done = run(line, tmp_path, start=("-m", "zot", "rpc"))
    assert json.loads(done.stdout)["success"] is True


@pytest.mark.parametrize(
    "flags", [["--help"], ["--mode", "rpc"], ["--provider"], ["--nonsense", "1"], ["words"]]
)
def test_flags_that_ask_for_something_else_are_looked_at_first(flags, tmp_path):
    assert b'"pong"' not in run(PING, tmp_path, *flags, start=("-m", "zot", "rpc")).stdout


def test_a_client_that_must_say_a_token_is_not_answered_early(tmp_path):
    done = run(PING, tmp_path, start=("-m", "zot", "rpc"), **{RPC_TOKEN: "secret"})
    assert json.loads(done.stdout)["success"] is False
    assert done.returncode == 1


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1"])
def test_a_signal_after_the_answer_ends_it_as_ever(name, tmp_path):
    number = getattr(signal, f"SIG{name}")
    with subprocess.Popen(
        [sys.executable, "-m", "zot", "rpc", *FLAGS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**uncovered(), "ZOT_HOME": str(tmp_path)},
    ) as process:
        process.stdin.write(PING)
        process.stdin.flush()
        assert process.stdout.readline() == PONG
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert process.stderr.read() == b""


def test_wrong_settings_are_told_after_the_pong(tmp_path):
    done = run(PING, tmp_path, "--provider", "nobody", start=("-m", "zot", "rpc"))
    assert done.stdout == PONG
    assert done.returncode != 0
    assert b"'nobody'" in done.stderr


def test_a_reader_that_has_gone_is_met_by_the_server(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "zot", "rpc", *FLAGS],
        input=PING,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        env={**uncovered(), "ZOT_HOME": str(tmp_path)},
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
