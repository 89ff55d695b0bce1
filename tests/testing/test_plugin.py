import subprocess
import sys

import pytest
from support.environment import uncovered

from zot.testing.fakeserver import FakeServer

TESTS = """
import asyncio
import os

from zot import AsyncRuntime, tool


@tool
def double(number: int) -> int:
    "Double a number."
    return 2 * number


def test_scripted(zot_scripted, tmp_path):
    (tmp_path / "a.txt").write_text("inside")
    call = {"tools": [{"name": "double", "args": {"number": 21}}]}
    runtime = zot_scripted(call, "It is 42.", tools=["read", double])
    assert runtime.ask("what is it?").text == "It is 42."
    assert "zot-home" in os.environ["ZOT_HOME"]


def test_scripted_in_a_loop(zot_scripted):
    async def main():
        async with AsyncRuntime(zot_scripted.config("hello")) as runtime:
            return (await runtime.ask("hi")).text

    assert asyncio.run(main()) == "hello"


def test_recorded(zot_replay):
    settings = {"provider": "anthropic", "no_tools": True}
    if "URL" in os.environ:
        settings |= {"base_url": os.environ["URL"], "api_key": "k"}
    assert zot_replay("greeting", **settings).ask("say:hello there").text == "hello there"
"""


def run(folder, *words, **variables):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    environ = {**uncovered(), "ZOT_HOME": str(folder / "home"), **variables}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=110, env=environ
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def test_the_fixtures_work_without_a_model_and_from_a_cassette(folder):
    first = run(folder)
    assert "2 passed, 1 failed" in first.stdout or "1 failed, 2 passed" in first.stdout
    assert "run `pytest --zot-record test_it.py::test_recorded` once" in first.stdout
    with FakeServer() as server:
        recorded = run(folder, "--zot-record", URL=server.url)
    assert "3 passed" in recorded.stdout, recorded.stdout
    assert (folder / "cassettes" / "greeting.jsonl").exists()
    replayed = run(folder)
    assert "3 passed" in replayed.stdout, replayed.stdout
    assert not (folder / "home" / "sessions").exists()


def test_pytest_loads_nothing_of_the_agent_for_it():
    code = "import zot.testing.plugin, sys; print(*(n for n in sys.modules if n.startswith('zot')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=uncovered()
    )
    assert done.stdout.split() == ["zot", "zot.testing", "zot.testing.plugin"]
