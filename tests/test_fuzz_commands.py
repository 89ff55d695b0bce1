"""Random lines against a real process: changed commands and garbage, from fixed seeds."""

import json
import random
import time

import pytest
from support.rpc import Zot

from zot.wire import commands

SECONDS = 2.0
ROUND = 60
COMMANDS = [
    {"type": "open_agent", "agent": "a", "tools": ["read"], "limits": {"max_steps": 3}},
    {"type": "close_agent", "agent": "a"},
    {"type": "list_agents"},
    {"type": "hello", "features": ["seq"]},
    {"type": "hello", "features": []},
    {"type": "prompt", "message": "quick"},
    {"type": "prompt", "message": "tool", "images": []},
    {"type": "prompt", "message": "x", "images": [{"mime_type": "image/png", "data": "aGk="}]},
    {"type": "steer", "message": "left"},
    {"type": "follow_up", "message": "then"},
    {"type": "abort"},
    {"type": "abort", "target": "id-1"},
    {"type": "compact", "instructions": "x"},
    {"type": "get_state"},
    {"type": "get_messages", "offset": 1, "limit": 2},
    {"type": "clear"},
    {"type": "set_model", "model": "scripted"},
    {"type": "set_reasoning", "reasoning": "low"},
    {"type": "get_models"},
    {"type": "ping"},
    {"type": "approve", "request_id": "x", "decision": "allow"},
    {"type": "retry_prompt"},
    {"type": "get_approvals"},
    {"type": "remove_approval", "tool": "bash", "pattern": "x"},
    {"type": "prompt", "message": "tool", "max_steps": 1, "max_cost": 0.5},
    {"type": "list_sessions", "limit": 3},
    {"type": "load_session", "session": "latest"},
    {"type": "fork_session", "at": 1, "load": False},
    {"type": "export_session", "format": "markdown"},
    {"type": "events", "from": 3, "limit": 2},
    {"type": "resume_run", "run": "x"},
    {"type": "checkpoints"},
    {"type": "rewind", "to": "x", "files": False, "preview": True},
    {"type": "get_changes"},
    {"type": "set_messages", "messages": [{"role": "user", "content": []}]},
    {"type": "get_commands"},
    {"type": "run_command", "name": "x", "args": "y"},
    {"type": "reload_ext"},
    {"type": "panel_key", "extension": "e", "panel_id": "p", "key": "up"},
    {"type": "panel_resize", "extension": "e", "panel_id": "p", "width": 3, "height": 2},
    {"type": "panel_close", "extension": "e", "panel_id": "p"},
    {"type": "answer", "request_id": "x", "value": "y"},
    {"type": "run_shell", "command": "true"},
    {"type": "abort_shell"},
    {"type": "new_session"},
    {"type": "set_jail", "jail": False},
    {"type": "set_mode", "mode": "plan"},
]
VALUES = [
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    1e308,
    "",
    "x",
    "\u2028",
    "\0",
    "😀",
    [],
    {},
    [[]],
    {"a": 1},
]
BYTES = [
    b"",
    b"\0",
    b"\xff",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"\r",
    b"\\ud83d",
    b"\xe2\x80\xa8",
    b",",
]
TURNS = [
    {"match": "tool", "tools": [{"name": "bash", "args": {"command": "true"}}], "text": "x"},
    {"match": "tool", "error": {"status": 400}},
    {"text": ["ok", "\u2028"], "usage": {"input": 1}, "repeat": True},
]


def mutated(chance: random.Random) -> bytes:
    """One line: a good command, one with odd fields, one with broken bytes, or garbage."""
    command = dict(chance.choice(COMMANDS))
    kind = chance.random()
    if chance.random() < 0.8:
        command["id"] = chance.choice([f"id-{chance.randrange(5)}", chance.randrange(9), *VALUES])
    if kind < 0.5:
        for _ in range(chance.randrange(3)):
            field = chance.choice([*command, "x", "message", "type"])
            command[field] = chance.choice(VALUES)
    line = json.dumps(command, ensure_ascii=chance.random() < 0.5).encode()
    if 0.5 < kind < 0.75:
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(line) + 1)
            end = at + chance.randrange(3)
            line = line[:at] + chance.choice(BYTES) + line[end:]
    elif kind > 0.9:
        line = chance.randbytes(chance.randrange(1, 40))
    return line.replace(b"\n", b" ")


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.slow
def test_no_line_breaks_it_and_every_line_is_answered(tmp_path, seed):
    chance = random.Random(seed)
    end = time.monotonic() + SECONDS
    with Zot(tmp_path, TURNS, args=["--max-steps", "5"]) as zot:
        zot.ask("ping")
        while time.monotonic() < end:
            data = b"".join(mutated(chance) + b"\n" for _ in range(ROUND))
            for start in range(0, len(data), 997):  # cut where it hurts
                zot.write(data[start : start + 997])
            try:
                zot.write(b'{"type":"hello","features":[]}\n')
                zot.invariants()
            except AssertionError:
                (tmp_path / "last-lines.bin").write_bytes(data)
                raise
        assert "Traceback" not in zot.stderr()
        assert zot.close()[0] == 0


def test_every_command_is_among_them():
    assert {command["type"] for command in COMMANDS} == set(commands.BY_NAME)
