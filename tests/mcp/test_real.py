"""Published servers, unmodified: of npm (with a handshake) and of PyPI (without one)."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.mcp import alone
from support.npm import installed, node
from support.pypi import fetched
from support.tools import eventually

from zot.cancel import Cancel
from zot.errors import Cancelled
from zot.provider.types import Image

NPM = "@modelcontextprotocol/server-"
VERSION = "2026.8.31"
NODE_SERVERS = tuple(f"{NPM}{name}@{VERSION}" for name in ("everything", "filesystem", "memory"))
PYTHON = {"time": "2026.10.19", "git": "2026.10.19", "fetch": "2026.10.24"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": f"{Path(node()).parent}:/usr/bin:/bin"}


def node_server(cache: Path, name: str, *words: str) -> dict:
    folder = installed(cache, *NODE_SERVERS) / "node_modules"
    script = folder / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    return {"command": node(), "args": [str(script), *words], "startup_timeout": 60}


def python_server(cache: Path, name: str, *words: str) -> dict:
    folder = fetched(cache, f"mcp-server-{name}=={PYTHON[name]}")
    module = f"mcp_server_{name}"
    return {
        "command": sys.executable,
        "args": ["-m", module, *words],
        "env": {"PYTHONPATH": str(folder)},
        "startup_timeout": 60,
    }


def test_everything(tmp_path, cache, environ):
    with alone(tmp_path, entry=node_server(cache, "everything"), environ=environ) as test:
        assert len(test.listed()) == 13
        assert test.server.listed.era == "legacy"
        assert test.text("echo", {"message": "hi"}) == "Echo: hi"
        assert test.text("get-sum", {"a": 2, "b": 3}) == "The sum of 2 and 3 is 5."
        picture, _ = test.call("get-tiny-image")
        assert any(isinstance(block, Image) for block in picture.content)
        facts, _ = test.call("get-structured-content", {"location": "New York"})
        assert set(facts.details["structured_content"]) == {"temperature", "conditions", "humidity"}
        _, told = test.call("trigger-long-running-operation", {"duration": 1, "steps": 2})
        assert told == "1/2\n2/2\n"
        assert "resource" in test.text("get-resource-links", {"count": 2})
        seen = json.loads(test.text("get-env"))
        assert set(seen) - {"PATH", "HOME"} <= {"LC_CTYPE"}
        assert {prompt.name for prompt in test.server.listed.prompts} >= {"simple-prompt"}


def test_everything_by_http(tmp_path, cache, environ):
    words = node_server(cache, "everything", "streamableHttp")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [words["command"], *words["args"]],
        env={**environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: is_open(port), 60)
        with alone(tmp_path, entry={"url": f"http://127.0.0.1:{port}/mcp"}) as test:
            assert len(test.listed()) >= 12
            assert test.text("echo", {"message": "hi"}) == "Echo: hi"
            _, told = test.call("trigger-long-running-operation", {"duration": 1, "steps": 2})
            assert told == "1/2\n2/2\n"
            cancel = Cancel()
            threading.Timer(0.5, cancel.set).start()
            with pytest.raises(Cancelled):
                test.call("trigger-long-running-operation", {"duration": 60, "steps": 2}, cancel)
            assert test.text("echo", {"message": "again"}) == "Echo: again"
    finally:
        process.kill()
        process.wait()


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_filesystem(tmp_path, cache, environ):
    place = tmp_path / "files"
    place.mkdir()
    entry = node_server(cache, "filesystem", str(place))
    with alone(tmp_path, entry=entry, environ=environ) as test:
        assert len(test.listed()) == 14
        path = str(place / "a.txt")
        test.call("write_file", {"path": path, "content": "hello"})
        assert (place / "a.txt").read_text() == "hello"
        assert test.text("read_text_file", {"path": path}).splitlines()[0] == "hello"
        refused, _ = test.call("read_text_file", {"path": "/etc/passwd"})
        assert refused.is_error


def test_memory(tmp_path, cache, environ):
    entry = node_server(cache, "memory")
    entry["env"] = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}
    with alone(tmp_path, entry=entry, environ=environ) as test:
        ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
        test.call("create_entities", {"entities": [ada]})
        assert "likes engines" in test.text("search_nodes", {"query": "Ada"})


def test_time(tmp_path, cache, environ):
    with alone(tmp_path, entry=python_server(cache, "time"), environ=environ) as test:
        assert test.listed() == ["get_current_time", "convert_time"]
        assert test.server.listed.era == "modern"
        answer = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in test.text("convert_time", answer)


def test_git(tmp_path, cache, environ):
    place = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    (place / "new.txt").write_text("x")
    with alone(tmp_path, entry=python_server(cache, "git"), environ=environ) as test:
        assert len(test.listed()) == 12
        assert "new.txt" in test.text("git_status", {"repo_path": str(place)})


def test_fetch(tmp_path, cache, environ):
    with alone(tmp_path, entry=python_server(cache, "fetch"), environ=environ) as test:
        assert test.listed() == ["fetch"]
        # There may be no network: its own word on that is what matters.
        answer = test.call_or_error("fetch", {"url": "http://127.0.0.1:9/nothing"})
        assert "127.0.0.1" in answer or "fetch" in answer.lower()
