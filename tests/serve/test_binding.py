"""Conversations with models that bind thoughts to what came before them (tests/support/binding.py):
no request of a real process is refused, and thoughts that fit go back.
"""

import json
from pathlib import Path

import pytest
from support.binding import BindingServer, thoughts
from support.mcp import configure, entry
from support.rpc import Zot

from zot.testing.rules import problems

MODEL = "claude-sonnet-5-5"
TOOL_TURN = "think:2 text:1 tool:bash:true\nthen\nthink:1 text:2"
PLAIN = "think:2 text:3"


@pytest.fixture
def server():
    with BindingServer() as made:
        yield made


def zot(folder: Path, server, *args: str, model: str = MODEL, features=None, **env: str) -> Zot:
    flags = ["--provider", "anthropic", "--base-url", server.url, "--model", model, *args]
    return Zot(folder, args=flags, env=env, features=features)


def asked(process: Zot, server, *prompts: str) -> dict:
    """Have each prompt answered; the body of the last request."""
    for prompt in prompts:
        frames = process.prompt(prompt)
        ends = [frame for frame in frames if frame["type"] == "turn_end"]
        assert ends[-1]["stop"] == "end", (ends, process.stderr())
    for seen in server.requests:
        assert problems("anthropic", seen.body) == []
    return server.requests[-1].body


def test_thoughts_that_fit_go_back(tmp_path, server):
    with zot(tmp_path, server) as process:
        body = asked(process, server, TOOL_TURN, PLAIN, PLAIN)
    assert thoughts(body) == [1, 1, 1]
    mode = {"type": "adaptive", "display": "summarized"}
    drop = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert body["thinking"] == {**mode, **drop}
    assert body["max_tokens"] == 128_000
    assert server.requests[-1].headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"


def test_several_thoughts_in_one_answer_go_back(tmp_path, server):
    with zot(tmp_path, server) as process:
        body = asked(process, server, "think:1 text:1 think:2 text:1 tool:bash:true", PLAIN)
    assert thoughts(body)[0] == 2


def test_after_a_compaction(tmp_path, server):
    with zot(tmp_path, server) as process:
        asked(process, server, TOOL_TURN, PLAIN, TOOL_TURN, PLAIN)
        process.data("compact")
        process.until("done")
        body = asked(process, server, PLAIN)
        assert not any(thoughts(body))
        assert len(thoughts(body)) >= 2
        assert thoughts(asked(process, server, TOOL_TURN, PLAIN))[-3:] == [1, 1, 1]


def test_with_tools_that_come_late(tmp_path, server):
    # Longer than the first prompt waits for servers.
    configure(tmp_path / "zot-home" / "mcp.json", test=entry(start="slow", seconds=6))
    with zot(tmp_path, server, features=["mcp"]) as process:
        first = asked(process, server, TOOL_TURN)
        process.until("mcp_server", state="ready", tools=18)
        later = asked(process, server, PLAIN)
        assert not any(thoughts(later))
        assert thoughts(asked(process, server, PLAIN))[-1] == 1
    began, now = ([tool["name"] for tool in body["tools"]] for body in (first, later))
    assert now[: len(began)] == began == sorted(began)
    assert now[len(began) :] == sorted(name for name in now if name.startswith("mcp_"))


def test_with_another_agents_md(tmp_path, server):
    session = str(tmp_path / "kept.jsonl")
    with zot(tmp_path, server, "--session", session) as process:
        (process.cwd / "AGENTS.md").write_text("Be brief.\n")
        first = asked(process, server, TOOL_TURN, PLAIN)
    (tmp_path / "work" / "AGENTS.md").write_text("Be long.\n")
    with zot(tmp_path, server, "--session", session) as process:
        body = asked(process, server, PLAIN)
        assert "Be long." in json.dumps(body["system"])
        assert first["system"] != body["system"]
        assert not any(thoughts(body))
        assert thoughts(asked(process, server, PLAIN))[-1:] == [1]


def test_in_the_next_process_nothing_is_lost(tmp_path, server):
    session = str(tmp_path / "kept.jsonl")
    with zot(tmp_path, server, "--session", session) as process:
        asked(process, server, TOOL_TURN, PLAIN)
    with zot(tmp_path, server, "--session", session) as process:
        body = asked(process, server, PLAIN)
    assert thoughts(body) == [1, 1, 1]


def test_on_the_next_day(tmp_path, server):
    clock = tmp_path / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(
        "import time\nnow = time.time\ntime.time = lambda: now() - 86_400\n"
    )
    session = str(tmp_path / "kept.jsonl")
    with zot(tmp_path, server, "--session", session, PYTHONPATH=str(clock)) as process:
        first = asked(process, server, TOOL_TURN, PLAIN)
    with zot(tmp_path, server, "--session", session) as process:
        body = asked(process, server, PLAIN)
    assert first["system"] == body["system"]
    assert thoughts(body) == [1, 1, 1]
    said = [
        block["text"]
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "text" and "current date" in block["text"]
    ]
    assert len(said) == len(set(said)) == 2


def test_with_another_model_and_back(tmp_path, server):
    with zot(tmp_path, server) as process:
        asked(process, server, TOOL_TURN, PLAIN)
        process.data("set_model", model="claude-opus-5-5")
        assert thoughts(asked(process, server, PLAIN)) == [0, 0, 0]
        process.data("set_model", model=MODEL)
        assert thoughts(asked(process, server, PLAIN)) == [1, 1, 1, 0]
        process.data("set_model", model="claude-haiku-4-5")
        asked(process, server, PLAIN)
        process.data("set_model", model=MODEL)
        asked(process, server, PLAIN)


def test_after_a_fork_and_a_rewind(tmp_path, server):
    session = str(tmp_path / "kept.jsonl")
    with zot(tmp_path, server, "--session", session) as process:
        asked(process, server, TOOL_TURN, PLAIN, PLAIN)
        moment = process.data("checkpoints")["checkpoints"][-1]["id"]
        process.data("rewind", to=moment, conversation=True, files=False)
        assert thoughts(asked(process, server, PLAIN)) == [1, 1, 1]
        process.data("fork_session", at=4, load=True)
        assert thoughts(asked(process, server, PLAIN)) == [1, 1]


def test_at_another_level(tmp_path, server):
    with zot(tmp_path, server, model="claude-haiku-5-5") as process:
        asked(process, server, TOOL_TURN, PLAIN)
        process.data("set_reasoning", reasoning="off")
        body = asked(process, server, "text:1")
        assert body["thinking"] == {"type": "disabled"}
        process.data("set_reasoning", reasoning="high")
        assert asked(process, server, PLAIN)["output_config"] == {"effort": "high"}
