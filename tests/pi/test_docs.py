"""What docs/pi.md shows is run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

from support.docs import ROOT, runnable
from support.pi import PiServers

from zot.pi import commands as pi
from zot.pi.commands import AnyPiCommand

TEXT = (ROOT / "docs" / "pi.md").read_text(encoding="utf-8")


def test_the_commands_of_the_document_run(servers: PiServers, tmp_path: Path) -> None:
    bin = tmp_path / "bin"
    bin.mkdir()
    program = bin / "zot"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zot "$@"\n')
    program.chmod(0o755)
    environment = servers.environment()
    environment["PATH"] = f"{bin}:{environment['PATH']}"
    for block in runnable("docs/pi.md", "sh"):
        done = subprocess.run(
            ["sh", "-e"],
            input=block.text.encode(),
            cwd=servers.cwd,
            env=environment,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, (str(block), done.stderr)
        types = [json.loads(line)["type"] for line in done.stdout.splitlines()]
        assert types.count("agent_end") == 2
        assert types.count("response") == 1


def test_the_lines_of_the_document_are_commands() -> None:
    lines = [line for block in runnable("docs/pi.md", "json") for line in block.text.splitlines()]
    assert lines
    assert all(pi.decode(line.encode()).command is not None for line in lines)


def test_the_document_names_every_command() -> None:
    words = {each.__struct_config__.tag for each in get_args(AnyPiCommand)}
    assert {word for word in words if f"`{word}`" not in TEXT} == set()


def test_the_shim_of_the_document_is_the_one_that_is_tested() -> None:
    (shown,) = runnable("docs/pi.md", "js")
    tested = (Path(__file__).parent / "clients" / "shim.mjs").read_text()
    assert "process.on(signal, () => child.kill(signal))" in shown.text
    assert "process.on(signal, () => child.kill(signal))" in tested
