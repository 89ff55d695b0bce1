from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.patience import patience
from support.rpc import environment, make_folder

from tests.support.around import zot_home
from zot.errors import AuthError
from zot.home import Surroundings
from zot.provider.address import host_and_port, is_loopback
from zot.provider.auth.store import AuthFile, Credential
from zot.settings.choose import CANDIDATES, Candidate, choose, first_model
from zot.settings.known import Known
from zot.settings.options import Options
from zot.settings.resolve import choose_provider

NOBODY: tuple[Candidate, ...] = ()


class ModelServer(ThreadingHTTPServer):
    daemon_threads = True
    answer = b'{"object":"list","data":[{"id":"nomic-embed-text"},{"id":"qwen3:8b"}]}'
    status = 200

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_GET(self) -> None:
        is_list = self.path == "/v1/models"
        self.send_response(self.server.status if is_list else 404)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "zot-home"))


def test_first_a_key_then_a_login(tmp_path: Path) -> None:
    home = str(tmp_path / "zot-home")
    AuthFile(home).put("google", Credential(api_key="another-key"))
    around = Surroundings({"OPENAI_API_KEY": "x"}, home, str(tmp_path))
    choice = choose_provider(Options(), around, Known(home))
    assert choice.line("gpt-5") == (
        "using openai with gpt-5 (OPENAI_API_KEY is set); --provider NAME chooses another"
    )
    choice = choose_provider(Options(), Surroundings({}, home, str(tmp_path)), Known(home))
    assert (choice.info.name, choice.because) == ("google", "you are logged in")


def test_then_a_server_on_this_machine(server: ModelServer) -> None:
    candidate = Candidate("ollama", "ollama", server.base_url)
    choice = choose({}, zot_home(), candidates=(candidate,))
    assert (choice.info.name, choice.model) == ("ollama", "qwen3:8b")
    assert choice.base_url == server.base_url
    assert "ollama answers on port" in choice.because


def test_a_server_may_have_been_moved(server: ModelServer) -> None:
    candidate = Candidate("ollama", "ollama", "http://127.0.0.1:1/v1")
    moved = {"OLLAMA_HOST": server.base_url.removesuffix("/v1")}
    assert choose(moved, zot_home(), candidates=(candidate,)).model == "qwen3:8b"


def test_no_other_machine_is_asked() -> None:
    far = Candidate("custom", "far", "http://192.0.2.1:9/v1")
    with pytest.raises(AuthError):
        choose(
            {"OLLAMA_HOST": "http://192.0.2.1:11434"}, zot_home(), candidates=(far, *CANDIDATES[:1])
        )
    assert not is_loopback(host_and_port("http://192.0.2.1:9/v1")[0])
    assert not is_loopback(host_and_port("http://127.0.0.1:what/v1")[0])
    assert not is_loopback(host_and_port("http://127.evil.example/v1")[0])
    assert is_loopback(host_and_port("http://localhost/v1")[0])
    assert is_loopback(host_and_port("http://127.0.0.2/v1")[0])


@pytest.mark.parametrize(
    ("status", "answer"),
    [(404, b"{}"), (200, b"<html>"), (200, b'{"data":null}'), (200, b"[]"), (200, b'{"data":[]}')],
)
def test_something_else_on_the_port_is_left_alone(
    server: ModelServer, status: int, answer: bytes
) -> None:
    server.status, server.answer = status, answer
    assert first_model(Candidate("custom", "other", server.base_url)) == ""


def test_a_port_that_listens_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        assert first_model(Candidate("custom", "silent", url)) == ""


def test_looking_at_every_port_takes_no_time() -> None:
    began = time.monotonic()
    with pytest.raises(AuthError):
        choose(
            {},
            zot_home(),
            candidates=[Candidate("custom", "x", f"http://127.0.0.1:{n}/v1") for n in range(1, 10)],
        )
    assert time.monotonic() - began < patience(5)


def test_then_the_pulled_model(tmp_path: Path) -> None:
    models = tmp_path / "zot-home" / "models"
    models.mkdir(parents=True)
    with (models / "smollm2-135m.gguf").open("wb") as file:
        file.truncate(98_362_432)
    choice = choose({}, zot_home(), candidates=NOBODY)
    assert (choice.info.name, choice.model) == ("local", "smollm2-135m")


def test_with_nothing_the_three_ways_are_told() -> None:
    with pytest.raises(AuthError, match="Three ways to get one") as raised:
        choose({}, zot_home(), candidates=NOBODY)
    for way in ("ANTHROPIC_API_KEY", "ollama", "zot local pull"):
        assert way in str(raised.value)


def test_the_program_says_on_stderr_what_it_took(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zot", "rpc"],
        input=b'{"type":"hello"}\n',
        env=environment(tmp_path, OPENAI_API_KEY=None),
        cwd=make_folder(tmp_path),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert b"zot: using anthropic with" in done.stderr
    assert b"(ANTHROPIC_API_KEY is set); --provider NAME chooses another" in done.stderr
