"""Saves the model's state after the prompt prefix and restores it into the next server, so that the
first word comes at once. Speed only: every failure here is harmless.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from zot.errors import ProviderError
from zot.local.serve import ServerAddress
from zot.provider.http import open_url
from zot.provider.types import Json

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
