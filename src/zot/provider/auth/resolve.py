"""Which credential a model call uses. The order: flag, environment, auth.json, command, keyring.

On the start-up path: with a key in a flag or variable, no file is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from zot.errors import AuthError
from zot.provider.auth import store
from zot.provider.providers import ProviderInfo, env_key, without_keys
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.provider.auth.store import AuthFile

Source = Literal["flag", "environment", "auth.json", "oauth", "command", "keyring"]

MAX_KEY = 64 * 1024

_from_commands: dict[tuple[str, ...], str] = {}
"""In memory only: a command may ask the user for a fingerprint, once is enough."""


class FoundKey(Frozen):
    key: str
    source: Source
    where: str = ""
    """The variable, file or program."""

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
    """The key to send to the provider, and where it came from. Without `run_commands` no program is
    started for it; one that is does not see the variables `hidden`, nor any that a provider's key
    is read from. Raises AuthError: there is one, but it cannot be had."""
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
    """The one line a program prints. No shell, no key of another provider in its environment:
    `hidden` are the variables of the user's own providers.

    Raises:
        AuthError: it failed, took too long, or did not print one line.
    """
    if words in _from_commands:
        return _from_commands[words]
    what = f"the key command of {provider!r} ({words[0]!r})"
    import subprocess  # few keys come from a command

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
    """Raises AuthError when the system's keyring does not have it."""
    key = _keyring("get_password", provider)
    if not key:
        raise AuthError(f"the keyring has no key of {provider!r}; run `zot login {provider}`")
    return str(key)


def put_in_keyring(provider: str, key: str) -> None:
    """Raises AuthError when there is no keyring."""
    _keyring("set_password", provider, key)


def take_from_keyring(provider: str) -> None:
    """Raises AuthError when the keyring does not answer."""
    _keyring("delete_password", provider)


def forget(file: AuthFile, provider: str) -> bool:
    """Forget what is kept of a provider, wherever; False if nothing is.

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
        raise AuthError("the keyring needs a package: pip install 'zot-agent[keyring]'") from None
    try:
        return getattr(keyring, action)("zot", *words)
    except keyring.errors.PasswordDeleteError:
        return None  # it was gone already
    except keyring.errors.KeyringError as error:
        # Not its text: it is not ours, and may say too much.
        raise AuthError(
            f"the keyring does not answer ({type(error).__name__}); log in without --keyring"
        ) from None


def masked(key: str) -> str:
    """Enough to recognise a key, too little to use it."""
    return f"...{key[-4:]}" if len(key) >= 16 else "..."
