"""Starts, shares and releases the model server: one process for all zot processes of a user.

Each of them holds a shared lock on the lease, so the kernel tracks who is there; the address and
the one-time key are in a file beside it. The server's own code is in serve.py.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from zot import trees
from zot.cancel import Cancel
from zot.errors import ConfigError, NetworkError, ProviderError, Rejected
from zot.extras import missing
from zot.files import ensure_dir, lock_file
from zot.home import Surroundings
from zot.local.models import Weights, free_memory, read_header, server_threads
from zot.local.serve import ADDRESS, ALIVE, LEASE, LOG, STARTING, Orders, ServerAddress
from zot.text import size_text

CONTEXT = 8192
LINGER_SECONDS = 3.0
START_LIMIT_SECONDS = 300.0
POLL_SECONDS = 0.05
PORT_VARIABLE = "ZOT_LOCAL_PORT"
CHILD_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH")
"""Variables passed to the server; above all it gets no keys."""
SOURCE = Path(__file__).parents[2]
"""Import path that makes the server run this zot, even where zot is not installed."""

Progress = Callable[[str], None]


def quiet(text: str) -> None:
    """Discard progress messages."""


class LocalServer:
    """This process's claim on the server of one model. Threads may share it."""

    def __init__(
        self,
        weights: Weights,
        around: Surroundings,
        *,
        context: int = CONTEXT,
        progress: Progress = quiet,
        linger: float = LINGER_SECONDS,
        template: str = "",
        memory: Callable[[], int | None] = free_memory,
    ) -> None:
        self.weights, self.progress = weights, progress
        self.linger, self.template = linger, template
        self._context, self._memory = context, memory
        self._lease: int | None = None
        self._lock = threading.Lock()
        self.directory = Path(around.home, "local", self._key())
        self._environ = around.environ

    def _key(self) -> str:
        """Return the directory name; servers that would answer differently do not share one."""
        told = f"{self.weights.path}\n{self.weights.bytes}\n{self._context}\n{self.template}"
        digest = hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()
        return f"{self.weights.name}-{digest[:12]}"

    # --- for the provider --------------------------------------------------------------------

    def acquire(self, cancel: Cancel) -> ServerAddress:
        """Return the address of a ready server, starting one if necessary.

        Raises:
            ConfigError: the package is not installed, or the model cannot be run on this machine.
            ProviderError: it did not start.
            Cancelled: the turn was aborted; a server that was already starting goes on.
        """
        with self._lock:
            ensure_dir(self.directory)
            if self._lease is None:
                self._lease = self._take(LEASE, cancel, shared=True)
            if (address := running_server(self.directory)) is not None:
                return address
            starting = self._take(STARTING, cancel)
            try:
                return (
                    running_server(self.directory)
                    or self._await_other(cancel)
                    or self._start(cancel)
                )
            finally:
                os.close(starting)

    def release(self) -> None:
        """Release the server; it ends when its last user has released it."""
        with self._lock:
            if self._lease is not None:
                os.close(self._lease)
                self._lease = None

    def ends_within(self, seconds: float) -> bool:
        """Return whether the server has ended, or ends within this time."""
        deadline = time.monotonic() + seconds
        while is_alive(self.directory):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    # --- locks -------------------------------------------------------------------------------

    def _take(self, name: str, cancel: Cancel, *, shared: bool = False) -> int:
        """Wait for a lock until `cancel` is set."""
        while (fd := lock_file(self.directory / name, shared=shared)) is None:
            cancel.sleep(POLL_SECONDS)
        return fd

    # --- starting ----------------------------------------------------------------------------

    def _await_other(self, cancel: Cancel) -> ServerAddress | None:
        """Return a server that another process started, or that still loads though its starter is
        gone; None if none runs."""
        while is_alive(self.directory):
            if (address := running_server(self.directory)) is not None:
                return address
            cancel.sleep(POLL_SECONDS)
        return None

    def _start(self, cancel: Cancel) -> ServerAddress:
        orders = self._orders()
        (self.directory / ADDRESS).unlink(missing_ok=True)
        child = self._spawn(orders)
        began = shown = time.monotonic()
        while (address := running_server(self.directory)) is None:
            if child.poll() is not None:
                raise self._why_it_failed(child.returncode, orders)
            now = time.monotonic()
            if now - began > START_LIMIT_SECONDS:
                child.kill()
                raise ProviderError(
                    f"the local model {self.weights.name!r} was not loaded within "
                    f"{START_LIMIT_SECONDS:.0f} s; see {str(self.directory / LOG)!r}"
                )
            if now - shown > 0.5:
                shown = now
                self.progress(self._how_far(child.pid, now - began))
            cancel.sleep(POLL_SECONDS)
        self.progress(f"local model {self.weights.name} ready in {time.monotonic() - began:.1f} s")
        return address

    def _orders(self) -> Orders:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError(missing("the local model", "xllamacpp", "local"))
        header = read_header(self.weights.path)
        if not header.chat_template and not self.template:
            raise ConfigError(
                f"{str(self.weights.path)!r} has no chat template: it was not trained to talk; "
                "choose an instruct model"
            )
        return Orders(
            directory=str(self.directory),
            model=str(self.weights.path),
            key=secrets.token_hex(24),
            port=_fixed_port(self._environ),
            threads=server_threads(),
            context=min(self._context, header.context or self._context),
            slim=self._must_be_slim(),
            linger=self.linger,
            template=self.template,
        )

    def _must_be_slim(self) -> bool:
        free = self._memory()
        if free is None or free >= self.weights.memory:
            return False
        if free >= self.weights.memory_slim:
            return True
        raise ConfigError(
            f"the local model {self.weights.name!r} needs {size_text(self.weights.memory_slim)} "
            f"of memory and {size_text(free)} are free: close something, or take a smaller model "
            "(`zot local list`)"
        )

    def _spawn(self, orders: Orders) -> subprocess.Popen[bytes]:
        ensure_dir(self.directory / "prefixes")
        log = os.open(
            self.directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        environ = self._environ
        environment = {name: environ[name] for name in CHILD_ENVIRONMENT if name in environ}
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "zot.local.serve"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**environment, "PYTHONUTF8": "1", "PYTHONPATH": str(SOURCE)},
                # Other processes may use it: Ctrl-C at our terminal must not reach the server.
                start_new_session=True,
                cwd=self.directory,
            )
        finally:
            os.close(log)
        trees.own.add(child.pid)  # it serves others too, and outlives this process
        assert child.stdin is not None
        try:
            with child.stdin as pipe:
                pipe.write(msgspec.json.encode(orders))
        except BrokenPipeError:
            pass  # it ended already; the caller reports why
        threading.Thread(
            target=child.wait, name=f"reap local server {child.pid}", daemon=True
        ).start()
        return child

    def _how_far(self, pid: int, seconds: float) -> str:
        loaded = _resident(pid)
        part = f" {min(99, 100 * loaded // self.weights.memory)} %," if loaded else ""
        size = size_text(self.weights.bytes)
        return f"loading local model {self.weights.name} ({size}):{part} {seconds:.0f} s"

    def _why_it_failed(self, code: int, orders: Orders) -> Exception:
        text = (self.directory / LOG).read_text(encoding="utf-8", errors="replace")
        if "couldn't bind" in text:
            return ConfigError(
                f"port {orders.port} for the local model is in use: choose another with "
                f"{PORT_VARIABLE}, or unset it to let the system choose"
            )
        if "failed to load model" in text:
            return ConfigError(
                f"{str(self.weights.path)!r} is broken or not supported: llama.cpp cannot load it; "
                "pull or download it again"
            )
        if code < 0:
            return NetworkError(
                f"the local model server was killed by signal {-code} while loading "
                "(out of memory?)"
            )
        last = text.strip().splitlines()[-1:] or ["no message"]
        return Rejected(f"the local model server did not start ({last[0][:200]})")


def running_server(directory: Path) -> ServerAddress | None:
    """Return the address of the server in this directory, if one is ready."""
    try:
        data = (directory / ADDRESS).read_bytes()
    except FileNotFoundError:
        return None
    # The file may be left over from a server that was killed.
    return msgspec.json.decode(data, type=ServerAddress) if is_alive(directory) else None


def running_servers(folder: Path) -> list[ServerAddress]:
    """Return the addresses of the servers whose directories are in this folder."""
    if not folder.is_dir():
        return []
    addresses = (running_server(path) for path in sorted(folder.iterdir()) if path.is_dir())
    return [address for address in addresses if address is not None]


def is_alive(directory: Path) -> bool:
    """Return whether a server runs: it holds this lock for its whole life, however it ends."""
    fd = lock_file(directory / ALIVE, shared=True)
    if fd is None:
        return True
    os.close(fd)
    return False


def _fixed_port(environ: Mapping[str, str]) -> int:
    text = environ.get(PORT_VARIABLE, "").strip()
    if not text:
        return 0
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise ConfigError(f"{PORT_VARIABLE}={text!r} is not a port number (1 to 65535)")
    return int(text)


def _resident(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
