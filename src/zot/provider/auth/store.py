"""auth.json: the only file with secrets. Readable by the user only, replaced atomically.

The Go program reads and writes the same file; unknown keys are kept.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from zot.errors import AuthError
from zot.files import locked, read_bytes, write_atomic
from zot.provider.types import Json
from zot.text import Frozen, indented_json, prepared

DEDICATED = ("anthropic", "openai", "kimi", "google", "deepseek")
"""Providers with their own key at the top of the file."""
OTHERS = "additional_api_key_creds"
REFRESH_SECONDS = 300.0
"""Remaining seconds below which a token is renewed before use."""


class Token(Frozen, omit_defaults=True):
    """A token from an OAuth server."""

    access_token: str
    refresh_token: str = ""
    token_type: str = ""
    expiry: str = ""
    """RFC 3339; empty: it does not expire."""
    scope: str = ""
    client_id: str = ""
    id_token: str = ""
    account_id: str = ""

    def seconds_left(self, now: float) -> float:
        """Return the remaining seconds; infinite if it does not expire."""
        if not self.expiry or self.expiry.startswith("0001-"):
            return math.inf
        try:
            expiry = datetime.fromisoformat(self.expiry)
        except ValueError:
            return 0.0
        return (expiry if expiry.tzinfo else expiry.replace(tzinfo=UTC)).timestamp() - now

    def ends_soon(self) -> bool:
        """Return whether the token must be renewed before use."""
        return self.seconds_left(time.time()) < REFRESH_SECONDS


class KeyCommand(Frozen, omit_defaults=True):
    """A program that prints the key."""

    program: str
    args: tuple[str, ...] = ()
    timeout_ms: int = 120_000


class Credential(Frozen, omit_defaults=True):
    """A key, a token, a command, or a flag that the key is in the system's keyring."""

    api_key: str = ""
    oauth: Token | None = None
    api_key_command: KeyCommand | None = None
    keyring: bool = False
    base_url: str = ""
    details: dict[str, Json] = {}
    """Further data for renewal; known only to the code that wrote it."""


prepared(Credential)


class AuthFile:
    def __init__(self, home: str) -> None:
        self.path = os.path.join(home, "auth.json")

    def get(self, provider: str) -> Credential | None:
        """Return the credential of a provider.

        Raises:
            AuthError: the file, or this credential, cannot be read.
        """
        return self._decoded(provider, _find(self._read(), provider))

    def all(self) -> dict[str, Credential]:
        """Return every credential in the file, by provider."""
        content = self._read()
        names = [*(name for name in content if name != OTHERS), *content.get(OTHERS, {})]
        credentials = {name: self.get(name) for name in dict.fromkeys(names)}
        return {
            name: credential for name, credential in credentials.items() if credential is not None
        }

    def check(self) -> None:
        """Raise AuthError when the file cannot be read."""
        self._read()

    def put(self, provider: str, credential: Credential) -> None:
        """Store a credential, replacing the provider's previous one.

        Raises:
            AuthError: the file is broken (it is left as it is) or cannot be written.
        """
        value = msgspec.to_builtins(credential)

        def edit(content: dict[str, Json]) -> None:
            _drop(content, provider)
            if provider in DEDICATED or credential.oauth is not None:
                content[provider] = value
            else:
                content.setdefault(OTHERS, {})[provider] = value

        self._change(edit)

    def remove(self, provider: str) -> bool:
        """Delete a credential; return False if there was none."""
        if _find(self._read(), provider) is None:
            return False
        self._change(lambda content: _drop(content, provider))
        return True

    # --- inside ------------------------------------------------------------------------------

    def _change(self, edit: Callable[[dict[str, Json]], None]) -> None:
        try:
            with locked(self.path):
                self.change_locked(edit)
        except OSError as error:
            raise AuthError(f"cannot write {self.path!r}: {error.strerror or error}") from error

    def change_locked(self, edit: Callable[[dict[str, Json]], None]) -> None:
        """Change the file; the caller holds `locked(self.path)`."""
        content = self._read()
        edit(content)
        write_atomic(self.path, indented_json(content))

    def _read(self) -> dict[str, Json]:
        try:
            data = read_bytes(self.path)
            if data is None or not data.strip():
                return {}
            self._make_private()
            content = msgspec.json.decode(data, type=dict[str, dict[str, Json]])
        except OSError as error:
            raise AuthError(f"cannot read {self.path!r}: {error.strerror or error}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Omit the decoder's message: it may quote the file.
            raise AuthError(
                f"{self.path!r} is not valid JSON; repair it, or move it away and log in again"
            ) from None
        return content

    def _make_private(self) -> None:
        if os.name == "posix" and os.stat(self.path).st_mode & 0o077:
            os.chmod(self.path, 0o600)

    def _decoded(self, provider: str, value: Json) -> Credential | None:
        if value is None:
            return None
        try:
            return msgspec.convert(value, Credential)
        except msgspec.ValidationError:
            raise AuthError(
                f"the credential of {provider!r} in {self.path!r} cannot be read; "
                f"run `zot login {provider}` to replace it"
            ) from None


def _find(content: dict[str, Json], provider: str) -> Json:
    return content.get(provider) or content.get(OTHERS, {}).get(provider)


def _drop(content: dict[str, Json], provider: str) -> None:
    content.pop(provider, None)
    content.get(OTHERS, {}).pop(provider, None)
