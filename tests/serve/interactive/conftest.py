import json

import pytest
from support.terminal import AtTerminal, environment, zot
from support.terminal import cache as cache
from support.terminal import emulator as emulator


@pytest.fixture
def opened(emulator):
    """Start a program at a terminal; it ends with the test."""
    started = []

    def start(command, environ, cwd, size=(80, 24)):
        cwd.mkdir(exist_ok=True)
        started.append(AtTerminal(emulator, command, environ, cwd, size))
        return started[-1]

    yield start
    for program in started:
        program.close()


@pytest.fixture
def scripted(tmp_path):
    """The words that start zot with a model that plays these turns."""

    def command(turns, *words):
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"turns": turns}))
        return zot("--provider", "scripted", "--script", str(script), "--no-ext", *words)

    return command


@pytest.fixture
def at_terminal(opened, scripted, tmp_path):
    """Start zot at a terminal, with a model that plays these turns."""

    def start(turns, *words, size=(80, 24), **variables):
        environ = environment(tmp_path, **variables)
        return opened(scripted(turns, *words), environ, tmp_path / "work", size)

    return start
