"""The official MCP SDKs, as they are published, drive `zot mcp-server`: Python's in both eras, and
TypeScript's of both eras.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.jsonrpc import HELLO
from support.npm import installed, node
from support.pypi import fetched
from support.rpc import environment, make_folder, write_script

pytestmark = pytest.mark.slow

CLIENTS = Path(__file__).parent / "clients"
PYTHON_SDK = "mcp==2.3.0"
TYPESCRIPT = {
    "modern": "@modelcontextprotocol/client@2.4.0",
    "handshake": "@modelcontextprotocol/sdk@1.32.2",
}
TURNS = [
    {"match": "tool", "tools": [{"name": "bash", "args": {"command": "echo out"}}]},
    {"match": "slow", "text": ["part"] * 200, "delay_ms": 100},
    HELLO,
]


def run(words: list[str], folder: Path, **variables: str) -> dict[str, Any]:
    done = subprocess.run(
        words,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def server(folder: Path) -> tuple[list[str], dict[str, str], Path]:
    cwd = make_folder(folder)
    flags = [*write_script(folder, TURNS), "--cwd", str(cwd)]
    return [sys.executable, "-m", "zot", "mcp-server", *flags], environment(folder), cwd


def check(seen: dict[str, Any]) -> None:
    assert seen["tools"] == ["zot", "zot_reply"]
    assert (seen["task"]["text"], seen["task"]["stop"]) == ("Hello", "end")
    assert seen["reply"]["session_id"] == seen["task"]["session_id"]
    assert seen["after"]["text"] == "Hello"
    assert seen["after"]["session_id"] != seen["task"]["session_id"]
    assert len(seen["forms"]) == 1
    assert "echo out" in seen["forms"][0]
    assert "echo out" in seen["notes"]


def test_the_python_sdk_calls_both_tools_in_both_eras(tmp_path: Path, cache: Path) -> None:
    command, variables, cwd = server(tmp_path)
    packages = fetched(cache, PYTHON_SDK)
    words = [sys.executable, str(CLIENTS / "drive.py")]
    arguments = [json.dumps(part) for part in (command, variables, str(cwd))]
    seen = run([*words, *arguments], tmp_path, PYTHONPATH=str(packages))
    for era in ("auto", "legacy"):
        check(seen[era])
    assert seen["auto"]["version"] == "2026-07-28"
    assert seen["legacy"]["version"] == "2025-11-25"


@pytest.mark.parametrize("era", sorted(TYPESCRIPT))
def test_the_typescript_sdks_call_both_tools(tmp_path: Path, cache: Path, era: str) -> None:
    command, variables, _ = server(tmp_path)
    packages = installed(cache, TYPESCRIPT[era])
    script = packages / "drive-mcp.mjs"  # beside node_modules: where imports are looked for
    script.write_text((CLIENTS / "drive.mjs").read_text("utf-8"), "utf-8")
    words = [node(), str(script), era, json.dumps(command), json.dumps(variables)]
    seen = run(words, tmp_path)
    check(seen)
    assert seen["cancelled"] == "cancelled"
    assert seen.get("version") == ("2026-07-28" if era == "modern" else None)
