import json

import pytest
from support.terminal import AtTerminal, environment, zot
from support.terminal import cache as cache
from support.terminal import emulator as emulator


@pytest.fixture
def at_terminal(emulator, tmp_path):
    """Start zot at a terminal, with a model that plays these turns."""
    started = []

    def start(turns, *words, size=(80, 24), **variables):
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"turns": turns}))
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        command = zot("--provider", "scripted", "--script", str(script), "--no-ext", *words)
        program = AtTerminal(emulator, command, environment(tmp_path, **variables), work, size)
        started.append(program)
        return program

    yield start
    for program in started:
        program.close()
