from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.local import PATIENCE, tiny_gguf, within

from zot.cancel import Cancel
from zot.errors import Cancelled, ConfigError, NetworkError, Rejected
from zot.home import of_process
from zot.local.models import Weights
from zot.local.serve import ADDRESS, ALIVE, LEASE, claim, wait_until_unused
from zot.local.server import LocalServer, is_alive, running_server


@pytest.fixture
def server(small: Weights) -> Iterator[LocalServer]:
    server = LocalServer(small, of_process(), context=512, linger=0.2)
    yield server
    server.release()


def is_gone(pid: int) -> Callable[[], bool]:
    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    return gone


def weights(path: Path, data: bytes) -> Weights:
    path.write_bytes(data)
    return Weights(path.stem, path, len(data))


# --- one server for all ----------------------------------------------------------------------


def test_it_starts_once_is_shared_and_ends_when_unused(server: LocalServer, small: Weights) -> None:
    first = server.acquire(Cancel())
    other = LocalServer(small, of_process(), context=512, linger=0.2)
    assert other.acquire(Cancel()) == first
    server.release()
    assert running_server(other.directory) is not None
    assert other.acquire(Cancel()) == first
    other.release()
    within(is_gone(first.pid), "the end of the server")
    assert not (server.directory / ADDRESS).exists()
    assert running_server(server.directory) is None


def test_the_address_is_for_the_user_alone_and_the_key_is_in_no_argument(
    server: LocalServer,
) -> None:
    address = server.acquire(Cancel())
    mode = stat.S_IMODE((server.directory / ADDRESS).stat().st_mode)
    assert mode == 0o600
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    line = Path(f"/proc/{address.pid}/cmdline").read_bytes()
    assert address.key.encode() not in line
    variables = Path(f"/proc/{address.pid}/environ").read_bytes()
    assert address.key.encode() not in variables
    assert b"API_KEY" not in variables


def test_two_processes_share_it_and_it_outlives_neither_when_both_are_killed(
    server: LocalServer,
) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from zot.local.models import find_weights\n"
        "from zot.local.server import LocalServer\n"
        "from zot.cancel import Cancel\n"
        "from zot.home import of_process\n"
        "around = of_process()\n"
        "weights = find_weights('smollm2-135m', around.home)\n"
        "server = LocalServer(weights, around, context=512, linger=0.2)\n"
        "print(server.acquire(Cancel()).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    users = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        pids = set()
        for user in users:
            assert user.stdout is not None
            pids.add(int(user.stdout.readline()))
        (pid,) = pids
        users[0].kill()
        users[0].wait()
        assert running_server(server.directory) is not None
    finally:
        for user in users:
            user.kill()
            user.wait()
            assert user.stdout is not None
            user.stdout.close()
    within(is_gone(pid), "the end of the server after kill -9 of its users")


@pytest.mark.slow
def test_a_killed_server_is_replaced(server: LocalServer) -> None:
    first = server.acquire(Cancel())
    os.kill(first.pid, signal.SIGKILL)
    within(lambda: running_server(server.directory) is None, "the death of the server")
    second = server.acquire(Cancel())
    assert second.pid != first.pid
    assert second.key != first.key


def test_a_server_whose_starter_was_killed_is_awaited(server: LocalServer, small: Weights) -> None:
    # The lease must be held as the starter's was, or the server would end at once.
    address = server.acquire(Cancel())
    told = server.directory / ADDRESS
    hidden = told.rename(told.with_name("hidden"))
    other = LocalServer(small, of_process(), context=512, linger=0.2)
    pids: list[int] = []
    waiting = threading.Thread(target=lambda: pids.append(other.acquire(Cancel()).pid))
    waiting.start()
    assert is_alive(server.directory)
    hidden.rename(told)  # in one step, as the server does it
    waiting.join(PATIENCE)
    assert pids == [address.pid]
    other.release()


def test_progress_is_told_while_it_loads(small: Weights) -> None:
    told: list[str] = []
    server = LocalServer(small, of_process(), context=512, linger=0.0, progress=told.append)
    server.acquire(Cancel())
    server.release()
    assert "ready in" in told[-1]
    assert server._how_far(os.getpid(), 1.0).startswith("loading local model smollm2-135m (98 MB):")
    assert server._how_far(2**22 + 5, 1.0).endswith(": 1 s")


def test_an_abort_ends_the_wait_for_another_starter(small: Weights) -> None:
    server = LocalServer(small, of_process(), context=512, linger=0.0)
    server.directory.mkdir(parents=True)
    from zot.files import lock_file
    from zot.local.serve import STARTING

    held = lock_file(server.directory / STARTING)
    assert held is not None
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        server.acquire(cancel)
    os.close(held)
    server.release()


def test_claim_and_lease_files_decide_who_lives(tmp_path: Path) -> None:
    assert claim(tmp_path)
    assert is_alive(tmp_path)
    assert not claim(tmp_path)
    assert (tmp_path / ALIVE).exists()
    os.close(wait_until_unused(tmp_path, 0.0))
    assert (tmp_path / LEASE).exists()


# --- what cannot run -------------------------------------------------------------------------


def test_a_file_that_is_not_a_gguf_is_refused(tmp_path: Path) -> None:
    broken = weights(tmp_path / "broken.gguf", b"hello, I am not a model")
    with pytest.raises(ConfigError, match="not a usable GGUF"):
        LocalServer(broken, of_process()).acquire(Cancel())


def test_a_gguf_that_llama_cpp_cannot_load_is_refused(tmp_path: Path, small: Weights) -> None:
    half = weights(tmp_path / "half.gguf", small.path.read_bytes()[:20_000_000])
    server = LocalServer(half, of_process(), context=512)
    with pytest.raises(ConfigError, match="llama.cpp cannot load it"):
        server.acquire(Cancel())
    server.release()


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path, small: Weights) -> None:
    plain = weights(tmp_path / "base.gguf", tiny_gguf({"general.architecture": "llama"}))
    server = LocalServer(plain, of_process())
    with pytest.raises(ConfigError, match="no chat template"):
        server.acquire(Cancel())
    server.release()


def test_too_little_memory_is_refused_and_little_makes_it_slim(small: Weights) -> None:
    poor = LocalServer(small, of_process(), memory=lambda: 10_000_000)
    with pytest.raises(ConfigError, match=r"needs 350 MB of memory and 10 MB are free"):
        poor.acquire(Cancel())
    poor.release()
    assert LocalServer(small, of_process(), memory=lambda: 400_000_000)._orders().slim
    assert not LocalServer(small, of_process(), memory=lambda: 900_000_000)._orders().slim
    assert not LocalServer(small, of_process(), memory=lambda: None)._orders().slim


def test_a_busy_port_is_named(small: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        monkeypatch.setenv("ZOT_LOCAL_PORT", str(port))
        server = LocalServer(small, of_process(), context=512)
        with pytest.raises(ConfigError, match=f"port {port} for the local model is in use"):
            server.acquire(Cancel())
        server.release()


@pytest.mark.parametrize("text", ["abc", "0", "70000"])
def test_a_port_that_is_none_is_refused(
    small: Weights, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("ZOT_LOCAL_PORT", text)
    with pytest.raises(ConfigError, match="not a port number"):
        LocalServer(small, of_process())._orders()


def test_how_it_failed_is_told(small: Weights) -> None:
    server = LocalServer(small, of_process())
    server.directory.mkdir(parents=True)
    log = server.directory / "server.log"
    log.write_text("")
    orders = server._orders()
    assert isinstance(server._why_it_failed(-9, orders), NetworkError)
    assert "no message" in str(server._why_it_failed(1, orders))
    log.write_text("first\nlast words\n")
    failure = server._why_it_failed(1, orders)
    assert isinstance(failure, Rejected)
    assert "last words" in str(failure)
