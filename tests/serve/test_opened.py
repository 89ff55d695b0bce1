"""A repository that is merely opened: whatever its files hold, ping and abort are answered."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.rpc import Zot, make_folder

WORK = 3.0
"""Seconds of the processor from the start of the process to every answer: a busy machine does not
count."""


def work_of(zot: Zot) -> float:
    numbers = Path(f"/proc/{zot.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def skill(cwd: Path, head: str, name: str = "x", body: str = "text") -> None:
    path = cwd / ".zot" / "skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{head}\n---\n{body}\n")


def bomb(key: str) -> str:
    """Ten aliases of ten aliases of ten: a few lines that stand for a billion words."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join([*lines, f"{key}: *a8"])


def alias_bomb(cwd: Path) -> None:
    skill(cwd, bomb("name"))
    skill(cwd, bomb("description"), "y")


def alias_bomb_in_a_prompt(cwd: Path) -> None:
    folder = cwd / ".zot" / "prompts"
    folder.mkdir(parents=True)
    (folder / "x.md").write_text(f"---\n{bomb('description')}\n---\ntext\n")


def deep_heads(cwd: Path) -> None:
    for number in range(600):
        skill(cwd, "name: " + "[" * 16_000, f"s{number}")


def many_words(cwd: Path) -> None:
    for number in range(600):
        skill(cwd, "name: [" + "x," * 7_900 + "]", f"s{number}")


def long_skills(cwd: Path) -> None:
    for number in range(300):
        skill(cwd, f"name: s{number}\ndescription: d", f"s{number}", "word " * 50_000)


def long_numbers(cwd: Path) -> None:
    skill(cwd, "name: 0x" + "f" * 16_000)
    skill(cwd, "name: " + ":".join(["59"] * 5_000), "y")
    skill(cwd, "name: " + "9" * 16_000, "z")


def unknown_settings(cwd: Path) -> None:
    (cwd / ".zot").mkdir()
    keys = {f"provder{number}": number for number in range(40_000)}
    (cwd / ".zot" / "config.json").write_text(json.dumps(keys))


def deep_settings(cwd: Path) -> None:
    (cwd / ".zot").mkdir()
    (cwd / ".zot" / "config.json").write_text('{"model": ' + "[" * 900_000)


def many_servers(cwd: Path) -> None:
    servers = {f"s{number}": {"command": "x", "url": "y"} for number in range(20_000)}
    (cwd / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


def deep_servers(cwd: Path) -> None:
    (cwd / ".mcp.json").write_text('{"mcpServers": ' + '{"a":' * 150_000)


def many_extensions(cwd: Path) -> None:
    for number in range(1000):
        folder = cwd / ".zot" / "extensions" / f"e{number}"
        folder.mkdir(parents=True)
        (folder / "extension.json").write_text('{"name": ' + "[" * 10_000)


def long_instructions(cwd: Path) -> None:
    (cwd / "AGENTS.md").write_text("`" * 10_000_000)
    (cwd / "AGENTS.MD").write_text("\u0301" * 3_000_000)


def pipes(cwd: Path) -> None:
    (cwd / ".zot" / "skills" / "x").mkdir(parents=True)
    for name in ("AGENTS.md", ".mcp.json", ".zot/config.json", ".zot/skills/x/SKILL.md"):
        os.mkfifo(cwd / name)


HOSTILE = (
    alias_bomb,
    alias_bomb_in_a_prompt,
    deep_heads,
    many_words,
    long_skills,
    long_numbers,
    unknown_settings,
    deep_settings,
    many_servers,
    deep_servers,
    many_extensions,
    long_instructions,
    pipes,
)


@pytest.mark.parametrize("trusted", [False, True], ids=["untrusted", "trusted"])
@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_ping_and_abort_are_answered(
    tmp_path: Path, make: Callable[[Path], None], trusted: bool
) -> None:
    make(make_folder(tmp_path))
    hang = [{"text": "begun", "delay_ms": 60_000}]
    with Zot(tmp_path, hang, args=["--trust"] if trusted else []) as zot:
        zot.send("ping", id="first")
        zot.send("prompt", message="go", id="go")
        zot.send("get_commands", id="commands")
        zot.send("ping", id="second")
        zot.send("abort", id="stop")
        assert zot.answer("second")["data"] == {"pong": True}
        zot.answer("stop")
        if zot.answer("go")["success"]:
            zot.until("done")
        assert work_of(zot) < WORK
