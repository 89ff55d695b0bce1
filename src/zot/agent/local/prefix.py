"""Keeps what a model has read: the prompt's prefix, saved by the server and given back to the
next one, so that its first word comes at once. Speed only: every failure here is harmless.
"""

from __future__ import annotations

import hashlib
import http.client
from pathlib import Path

import msgspec

from zot.agent.local.serve import Address

KEPT = 4
"""Saved prefixes of one model; tens of megabytes each."""
TIMEOUT_SECONDS = 20.0
WARM = "warm"
"""Names the server process that was given a prefix, so that it is done once."""


class PrefixStore:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def restore(self, address: Address, prefix: str) -> bool:
        """Give a server that has just started what an earlier one had read."""
        name = _file_name(prefix)
        warm = self._directory / WARM
        saved = self._directory / "prefixes" / name
        if not saved.is_file() or (warm.is_file() and warm.read_text() == str(address.pid)):
            return False
        warm.write_text(str(address.pid))
        if not _slot(address, "restore", name):
            saved.unlink(missing_ok=True)  # another version of the server wrote it
            return False
        saved.touch()  # the most recently used are kept
        return True

    def save(self, address: Address, prefix: str) -> bool:
        """Keep what the server has read now, unless it is kept already."""
        name = _file_name(prefix)
        folder = self._directory / "prefixes"
        if (folder / name).is_file():
            return False
        (self._directory / WARM).write_text(str(address.pid))
        if not _slot(address, "save", name):
            return False
        (folder / name).chmod(0o600)
        by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in by_age[KEPT:]:
            old.unlink(missing_ok=True)
        return True


def _file_name(prefix: str) -> str:
    return hashlib.sha256(prefix.encode("utf-8", "surrogatepass")).hexdigest()[:24] + ".kv"


def _slot(address: Address, action: str, name: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request(
            "POST",
            f"/slots/0?action={action}",
            msgspec.json.encode({"filename": name}),
            {"Authorization": f"Bearer {address.key}", "Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200
    except (OSError, http.client.HTTPException):
        return False  # the call that follows will say what is wrong with the server
    finally:
        connection.close()
