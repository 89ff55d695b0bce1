"""A pytest plug-in with runtimes that need no model: the fixtures `zot_scripted` and `zot_replay`.

pytest loads it in every project that has zot installed, so it imports nothing of the agent before a
test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pytest

if TYPE_CHECKING:
    from zot.provider.scripted import ScriptedTurn
    from zot.provider.types import Json
    from zot.sdk import Config, Runtime
    from zot.sdk.config import Settings

RECORD = "--zot-record"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("zot").addoption(
        RECORD, action="store_true", help="zot_replay: ask the model and write the cassettes anew"
    )


class ScriptedRuntimes:
    """Maker of runtimes that answer with prepared turns, without key and network:

    def test_it(zot_scripted):
        runtime = zot_scripted("first answer", {"text": "second one"}, tools=["read"])
        assert runtime.ask("hello").text == "first answer"
    """

    def __init__(self, cwd: Path, opened: ExitStack) -> None:
        self._cwd = cwd
        self._opened = opened

    def __call__(
        self, *turns: ScriptedTurn | str | dict[str, Json], **settings: Unpack[Settings]
    ) -> Runtime:
        """Return a runtime with these turns and settings; it is closed after the test. Its default
        directory is the test's `tmp_path`."""
        from zot.sdk import Runtime

        return self._opened.enter_context(Runtime(self.config(*turns, **settings)))

    def config(
        self, *turns: ScriptedTurn | str | dict[str, Json], **settings: Unpack[Settings]
    ) -> Config:
        """Return the settings instead, for an AsyncRuntime."""
        from zot.provider.scripted import ScriptedProvider
        from zot.sdk import Config

        chosen: Settings = {"cwd": self._cwd, "provider": ScriptedProvider(turns), **settings}
        return Config(**chosen)


class ReplayedRuntimes:
    """Maker of runtimes that answer from a recorded conversation, a cassette:

    def test_it(zot_replay):
        runtime = zot_replay("greeting", provider="anthropic", no_tools=True)
        assert "hello" in runtime.ask("say hello").text

    `pytest --zot-record` asks the model and writes `cassettes/greeting.jsonl` beside the test;
    later runs need neither key nor network.
    """

    def __init__(self, request: pytest.FixtureRequest, cwd: Path, opened: ExitStack) -> None:
        self._folder = request.path.parent / "cassettes"
        self._test = request.node.nodeid
        self._records = bool(request.config.getoption(RECORD))
        self._cwd = cwd
        self._opened = opened

    def __call__(self, name: str, **settings: Unpack[Settings]) -> Runtime:
        """Return a runtime that replays the cassette of this name; it is closed after the test.
        `provider`, `model` and keys count when it is recorded."""
        from zot.sdk import Runtime

        return self._opened.enter_context(Runtime(self.config(name, **settings)))

    def config(self, name: str, **settings: Unpack[Settings]) -> Config:
        """Return the settings instead, for an AsyncRuntime."""
        from zot.sdk import Config

        cassette = self._folder / f"{name}.jsonl"
        chosen: Settings = {"cwd": self._cwd, **settings}
        if self._records:
            self._folder.mkdir(exist_ok=True)
            chosen["record"] = cassette
        elif cassette.exists():
            chosen["replay"] = cassette
        else:
            pytest.fail(
                f"there is no {cassette}: run `pytest {RECORD} {self._test}` once, with a model",
                pytrace=False,
            )
        return Config(**chosen)


@pytest.fixture
def zot_scripted(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ScriptedRuntimes]:
    """Make runtimes that answer with prepared turns; zot's own files are kept away from yours."""
    monkeypatch.setenv("ZOT_HOME", str(tmp_path_factory.mktemp("zot-home")))
    with ExitStack() as opened:
        yield ScriptedRuntimes(tmp_path, opened)


@pytest.fixture
def zot_replay(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[ReplayedRuntimes]:
    """Make runtimes that answer from cassettes. Only recording uses your own keys and settings."""
    if not request.config.getoption(RECORD):
        monkeypatch.setenv("ZOT_HOME", str(tmp_path_factory.mktemp("zot-home")))
    with ExitStack() as opened:
        yield ReplayedRuntimes(request, tmp_path, opened)
