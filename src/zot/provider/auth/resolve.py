"""Finds a model call's credential, in the order: flag, environment, auth.json, command, keyring.

On the start-up path: with a key in a flag or variable, no file is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from zot.errors import AuthError
from zot.extras import missing
from zot.provider.auth import store
from zot.provider.providers import ProviderInfo, env_key, without_keys
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.provider.auth.store import AuthFile

Source = Literal["flag", "environment", "auth.json", "oauth", "command", "keyring"]

MAX_KEY = 64 * 1024

_from_commands: dict[tuple[str, ...], str] = {}
"""Keys printed by commands, in memory only: a command may ask for a fingerprint, once is enough."""


class FoundKey(Frozen):
    key: str
    source: Source
    where: str = ""
    """Name of the variable, file or program."""

    def __repr__(self) -> str:
        return f"FoundKey(key=..., source={self.source!r}, where={self.where!r})"

    __str__ = __repr__


def find_credential(
    info: ProviderInfo,
    flag: str,
    environ: Mapping[str, str],
    home: str,
    *,
    run_commands: bool = True,
    hidden: frozenset[str] = frozenset(),
) -> FoundKey | None:
    """Return the key for the provider and its source. Without `run_commands` no program is started;
    a started one sees neither the variables in `hidden` nor any provider's key variable. Raises
    AuthError: there is one, but it cannot be obtained."""
    if flag:
        return FoundKey(flag, "flag", "--api-key")
    if key := env_key(info, environ):
        name = next(name for name in info.env if environ.get(name, "").strip())
        return FoundKey(key, "environment", name)
    if not os.path.exists(os.path.join(home, "auth.json")):
        return None
    file = store.AuthFile(home)
    stored = file.get(info.name)
    if stored is None:
        return None
    if stored.api_key:
        return FoundKey(stored.api_key, "auth.json", file.path)
    if stored.oauth is not None:
        token = stored.oauth
        if token.ends_soon():
            from zot.provider.auth import oauth

            token = oauth.refreshed(info.name, file, home)
        return FoundKey(token.access_token, "oauth", file.path)
    if stored.api_key_command is not None:
        command = stored.api_key_command
        words = (command.program, *command.args)
        key = ""
        if run_commands:
            seconds = command.timeout_ms / 1000
            key = key_from_command(words, seconds, info.name, environ, hidden)
        return FoundKey(key, "command", command.program)
    if stored.keyring:
        return FoundKey(key_from_keyring(info.name), "keyring", "keyring")
    return None


def key_from_command(
    words: tuple[str, ...],
    seconds: float,
    provider: str,
    environ: Mapping[str, str],
    hidden: frozenset[str] = frozenset(),
) -> str:
    """Return the single line a program prints. No shell; its environment has no provider keys:
    `hidden` are the variables of the user's own providers.

    Raises:
        AuthError: it failed, took too long, or did not print one line.
    """
    if words in _from_commands:
        return _from_commands[words]
    what = f"the key command of {provider!r} ({words[0]!r})"
    import subprocess  # deferred: key commands are rare

    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=without_keys(environ, hidden),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AuthError(f"{what} took longer than {seconds:g} seconds") from None
    except OSError as error:
        raise AuthError(f"{what} cannot be started: {error.strerror or error}") from error
    lines = done.stdout[: MAX_KEY + 1].decode("utf-8", "replace").split("\n")
    if done.returncode:
        raise AuthError(f"{what} failed with exit code {done.returncode}")
    if len(done.stdout) > MAX_KEY or not lines[0].strip() or any(map(str.strip, lines[1:])):
        raise AuthError(f"{what} must print the key on one line, and nothing else")
    _from_commands[words] = lines[0].strip()
    return _from_commands[words]


def key_from_keyring(provider: str) -> str:
    """Return the key from the system's keyring. Raises AuthError when it is not there."""
    key = _keyring("get_password", provider)
    if not key:
        raise AuthError(f"the keyring has no key of {provider!r}; run `zot login {provider}`")
    return str(key)


def put_in_keyring(provider: str, key: str) -> None:
    """Store a key in the keyring. Raises AuthError when there is no keyring."""
    _keyring("set_password", provider, key)


def take_from_keyring(provider: str) -> None:
    """Delete a key from the keyring. Raises AuthError when the keyring does not answer."""
    _keyring("delete_password", provider)


def forget(file: AuthFile, provider: str) -> bool:
    """Delete a provider's stored credential, in file and keyring; return False if there is none.

    Raises:
        AuthError: the file cannot be written, or the keyring does not answer.
    """
    stored = file.all().get(provider)
    if stored is not None and stored.keyring:
        take_from_keyring(provider)
    return file.remove(provider)


def _keyring(action: str, *words: str) -> object:
    try:
        import keyring.errors  # optional
    except ImportError:
        raise AuthError(missing("--keyring", "keyring", "keyring")) from None
    try:
        return getattr(keyring, action)("zot", *words)
    except keyring.errors.PasswordDeleteError:
        return None  # deleted already
    except keyring.errors.KeyringError as error:
        # Omit the message: it is the keyring's, and may reveal too much.
        raise AuthError(
            f"the keyring does not answer ({type(error).__name__}); log in without --keyring"
        ) from None


def masked(key: str) -> str:
    """Return enough of a key to recognise it, too little to use it."""
    return f"...{key[-4:]}" if len(key) >= 16 else "..."
