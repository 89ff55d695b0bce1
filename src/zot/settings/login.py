"""Stores and deletes credentials on this machine. Prompting the user is left to the front ends."""

from __future__ import annotations

from zot.errors import AuthError
from zot.provider.auth.probe import probe
from zot.provider.auth.resolve import forget, put_in_keyring
from zot.provider.auth.store import AuthFile, Credential
from zot.provider.providers import ProviderInfo


def keep_key(
    info: ProviderInfo, key: str, home: str, *, try_it: bool = True, keyring: bool = False
) -> str:
    """Store a key if the provider accepts it; return a note for the user, or an empty text.

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
    """Raise AuthError for a text that cannot be a key: keys are sent in a header."""
    if not key or not (key.isascii() and key.isprintable()) or " " in key:
        raise AuthError("this is no key: it is empty, has a space, or a letter that is not ASCII")


def try_key(info: ProviderInfo, key: str) -> str:
    """Check a key with the provider; return why it could not be checked, or an empty text.

    Raises:
        AuthError: it was refused.
    """
    probed = probe(info, key)
    if probed.verdict == "refused":
        raise AuthError(probed.reason)
    return f"the key could not be tried: {probed.reason}" if probed.verdict == "unknown" else ""


def log_out(provider: str, home: str) -> None:
    """Delete a stored login. Raises AuthError when there is none."""
    if not forget(AuthFile(home), provider):
        raise AuthError(f"not logged in to {provider!r}; `zot auth status` shows where you are")
