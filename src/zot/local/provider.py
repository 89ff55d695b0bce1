"""The local model as a provider: the ordinary OpenAI Chat client, connected to zot's own server.
Everything special to small models stays in this package; prompts and answers are in call.py.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from zot.cancel import Cancel
from zot.errors import Cancelled, NetworkError, ProviderError, ZotError
from zot.home import Surroundings
from zot.local.call import MAX_OUTPUT, TINY_BYTES, LocalCall
from zot.local.form import forms_for
from zot.local.models import DEFAULT, find_weights, looks_like_path, pulled_models
from zot.local.serve import ServerAddress
from zot.local.server import CONTEXT, LocalServer
from zot.provider import types
from zot.provider.client import connect
from zot.provider.http import open_url
from zot.provider.providers import PROVIDERS
from zot.provider.types import Json

IDLE_SECONDS = 900.0
"""Idle timeout in seconds: a slow machine reads a full context for minutes before it answers."""
DEATH_SECONDS = 0.5
"""Seconds to wait for the server's exit after its connection broke: the break is seen first."""
IDLE_RELEASE_SECONDS = 300.0
"""Idle seconds after which this process releases the server, and so its memory."""


def find_local(name: str, home: str) -> types.Model:
    """Find the model for `--provider local --model NAME|PATH.gguf`; no name: the best one here.

    Raises:
        ConfigError: no such model, or it was not pulled.
    """
    name = name or next((model.name for model in pulled_models(home)), DEFAULT)
    weights = find_weights(name, home)
    title = weights.known.title if weights.known else weights.path.name
    return types.Model(
        id=str(weights.path) if looks_like_path(name) else weights.name,
        provider="local",
        api="openai-chat",
        name=title,
        context_window=CONTEXT,
        max_output=MAX_OUTPUT,
        images=False,
        price=types.Price(0.0, 0.0),
        source="local",
        ask=weights.known.ask if weights.known else "person",
    )


def local_models(home: str) -> tuple[types.Model, ...]:
    """Return the pulled models, which can be used now."""
    return tuple(find_local(model.name, home) for model in pulled_models(home))


def open_local(model: types.Model, around: Surroundings) -> LocalProvider:
    """Open a provider and start its server now, while the prompt is being prepared."""
    server = LocalServer(find_weights(model.id, around.home), around, progress=StderrProgress())
    provider = LocalProvider(server)
    provider.warm()
    return provider


class StderrProgress:
    """Progress lines on stderr: redrawn at a terminal, otherwise only the first and the last."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, text: str) -> None:
        try:
            if sys.stderr.isatty():
                end = "\n" if "ready" in text else ""
                sys.stderr.write(f"\r\x1b[Kzot: {text}{end}")
            elif not self._shown or "ready" in text:
                sys.stderr.write(f"zot: {text}\n")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass  # stderr is closed
        self._shown = True


class LocalProvider:
    """A model on this machine. The server starts with `warm` or the first call."""

    name = "local"

    def __init__(
        self,
        server: LocalServer,
        *,
        idle_release: float = IDLE_RELEASE_SECONDS,
    ) -> None:
        self._server = server
        self._tiny = server.weights.bytes < TINY_BYTES
        self._prefixes = PrefixStore(self._server.directory)
        self._client: tuple[ServerAddress, types.Provider] | None = None
        self._warming = Cancel()
        self._idle_release = idle_release
        self._idle: threading.Timer | None = None
        self._active = 0
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Start the server while the prompt is being prepared."""
        self._warming = Cancel()
        threading.Thread(
            target=self._warm, args=(self._warming,), name="zot-local-start", daemon=True
        ).start()

    def _warm(self, cancel: Cancel) -> None:
        try:
            self._server.acquire(cancel)
        except (ZotError, Cancelled):
            return  # the first call tries again, and reports the error
        self._rest()

    def stream(self, request: types.Request, cancel: Cancel) -> Iterator[types.StreamEvent]:
        self._stop_idle()
        with self._lock:
            self._active += 1
        try:
            address = self._server.acquire(cancel)
            client = self._connected(address, request.model)
            forms = forms_for(request.tools)
            call = LocalCall(request, forms, tiny=self._tiny)
            if forms:
                self._prefixes.restore(address, call.prefix)
            try:
                for event in call.run(client, cancel):
                    if isinstance(event, types.Finished) and forms:
                        self._prefixes.save(address, call.prefix)
                    yield event
            except NetworkError as broken:
                if not self._server.ends_within(DEATH_SECONDS):
                    raise
                raise NetworkError(
                    "the local model server ended in the middle of an answer; "
                    "it is started again for the next one"
                ) from broken
        finally:
            with self._lock:
                self._active -= 1
            self._rest()

    def close(self) -> None:
        self._warming.set()
        self._stop_idle()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client[1].close()
        self._server.release()

    def _connected(self, address: ServerAddress, model: types.Model) -> types.Provider:
        with self._lock:
            if self._client is None or self._client[0] != address:
                if self._client is not None:
                    self._client[1].close()
                url = f"http://127.0.0.1:{address.port}/v1"
                info = PROVIDERS["local"]
                info = msgspec.structs.replace(info, auth="bearer")
                client = connect(info, model, address.key, url, idle_seconds=IDLE_SECONDS)
                self._client = (address, client)
            return self._client[1]

    # --- releasing the server's memory -------------------------------------------------------

    def _rest(self) -> None:
        self._stop_idle()
        with self._lock:
            self._idle = threading.Timer(self._idle_release, self._release_if_idle)
            self._idle.name = "zot-local-idle"
            self._idle.daemon = True
            self._idle.start()

    def _release_if_idle(self) -> None:
        with self._lock:
            if self._active == 0:
                self._server.release()

    def _stop_idle(self) -> None:
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None


# --- saved prompt prefixes --------------------------------------------------------------------
#
# The model's state after the prompt prefix is saved, and restored into the next server, so that the
# first word comes at once. For speed only: every failure here is harmless.

KEPT = 4
"""Maximum saved prefixes per model; tens of megabytes each."""
TIMEOUT_SECONDS = 20.0
WARM = "warm"
"""File with the pid of the server that has its prefix already, so that it is restored once."""


Prefix = Sequence[dict[str, str]]
"""Messages in the server's format."""


class PrefixStore:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def restore(self, address: ServerAddress, prefix: Prefix) -> bool:
        """Restore the saved prefix into a newly started server."""
        name = _file_name(prefix)
        warm = self._directory / WARM
        saved = self._directory / "prefixes" / name
        if not saved.is_file() or (warm.is_file() and warm.read_text() == str(address.pid)):
            return False
        self._mark(address)
        if not _slot(address, "restore", name):
            saved.unlink(missing_ok=True)  # written by another server version
            return False
        saved.touch()  # the most recently used are kept
        return True

    def _mark(self, address: ServerAddress) -> None:
        warm = self._directory / WARM
        warm.touch(mode=0o600)
        warm.write_text(str(address.pid))

    def save(self, address: ServerAddress, prefix: Prefix) -> bool:
        """Save the server's state after the prefix, unless it is saved already.

        The server first drops everything after it: the conversation must not reach the disk.
        """
        name = _file_name(prefix)
        folder = self._directory / "prefixes"
        if (folder / name).is_file():
            return False
        self._mark(address)
        alone = {"messages": prefix, "max_tokens": 1, "id_slot": 0, "cache_prompt": True}
        if not _post(address, "/v1/chat/completions", alone) or not _slot(address, "save", name):
            return False
        (folder / name).chmod(0o600)
        by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in by_age[KEPT:]:
            old.unlink(missing_ok=True)
        return True


def _file_name(prefix: Prefix) -> str:
    return hashlib.sha256(msgspec.json.encode(prefix)).hexdigest()[:24] + ".kv"


def _slot(address: ServerAddress, action: str, name: str) -> bool:
    return _post(address, f"/slots/0?action={action}", {"filename": name})


def _post(address: ServerAddress, path: str, body: dict[str, Json]) -> bool:
    url = f"http://127.0.0.1:{address.port}{path}"
    headers = {"authorization": f"Bearer {address.key}", "content-type": "application/json"}
    data = msgspec.json.encode(body)
    try:
        with open_url("local", url, headers=headers, body=data, seconds=TIMEOUT_SECONDS) as answer:
            while answer.read():
                pass
            return answer.status == 200
    except ProviderError:
        return False  # the next call reports what is wrong with the server
