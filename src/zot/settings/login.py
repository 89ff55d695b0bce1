"""Keeping and forgetting credentials on this machine; who asks a person for them is a door."""

from __future__ import annotations

from zot.errors import AuthError
from zot.provider.auth.probe import probe
from zot.provider.auth.resolve import forget, put_in_keyring
from zot.provider.auth.store import AuthFile, Credential
from zot.provider.providers import ProviderInfo


def keep_key(
    info: ProviderInfo, key: str, home: str, *, try_it: bool = True, keyring: bool = False
) -> str:
    """Keep a key, if the provider takes it; what is to be said of it, if anything.

    Raises:
        AuthError: it is none, the provider refuses it, or it cannot be kept.
    """
    check_key(key)
    note = try_key(info, key) if try_it else ""
    if keyring:
        put_in_keyring(info.name, key)
        AuthFile(home).put(info.name, Credential(keyring=True))
    else:
        AuthFile(home).put(info.name, Credential(api_key=key))
    return note


def check_key(key: str) -> None:
    """Raises AuthError for what cannot be a key: it travels in a header."""
    if not key or not (key.isascii() and key.isprintable()) or " " in key:
        raise AuthError("this is no key: it is empty, has a space, or a letter that is not ASCII")


def try_key(info: ProviderInfo, key: str) -> str:
    """Ask the provider about a key; why it could not be tried, if so.

    Raises:
        AuthError: it was refused.
    """
    probed = probe(info, key)
    if probed.verdict == "refused":
        raise AuthError(probed.reason)
    return f"the key could not be tried: {probed.reason}" if probed.verdict == "unknown" else ""


def log_out(provider: str, home: str) -> None:
    """Raises AuthError when there is no such login."""
    if not forget(AuthFile(home), provider):
        raise AuthError(f"not logged in to {provider!r}; `zot auth status` shows where you are")
