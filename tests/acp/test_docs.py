"""docs/acp.md: its session is run, its files can be read."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

from support.acp import Acp
from support.docs import runnable

import zot

PAGE = "docs/acp.md"


def lines(number: int) -> list[dict[str, object]]:
    text = runnable(PAGE, "jsonl")[number].text
    return [json.loads(line) for line in text.splitlines()]


def test_the_session_of_the_page_runs(acp: Callable[..., Acp]) -> None:
    with acp(initialize=False) as client:
        session = ""
        for line in lines(0):
            id = line["id"]
            assert isinstance(id, int)
            text = json.dumps(line).replace("/project", str(client.cwd))
            client.asked[id] = str(line["method"])
            client.write(text.replace("SESSION", session).encode() + b"\n")
            result = client.answer(id)["result"]
            session = result.get("sessionId", session)
        shown = [
            json.loads(json.dumps(frame).replace(session, "SESSION")) for frame in client.frames
        ]
    chunk, answer = lines(1)
    first = next(f for f in shown if f.get("params", {}).get("update", {}).get("messageId"))
    first["params"]["update"]["messageId"] = "MESSAGE"
    assert first == chunk
    assert answer in shown


def test_the_files_of_the_page_can_be_read() -> None:
    zed, jetbrains, registry = (json.loads(block.text) for block in runnable(PAGE, "json"))
    for servers in (zed, jetbrains):
        assert servers["agent_servers"]["zot"]["args"] == ["acp"]
    assert registry["version"] == zot.__version__
    assert registry["distribution"]["uvx"]["package"] == f"zot-agent@{zot.__version__}"
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"]["zot-agent"] == "zot.__main__:main"  # uvx runs what is so called
