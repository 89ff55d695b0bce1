"""The providers, models and keys that can be used: zot's own data and the user's files.

Part of stage one: models.json, auth.json and the cache are read only if they exist or are needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from zot.errors import AuthError, ConfigError
from zot.home import RPC_TOKEN, Surroundings
from zot.provider import catalog, providers
from zot.provider.model import Model
from zot.provider.providers import ProviderInfo
from zot.text import Frozen

COMMAND_SECONDS = 10.0
"""Timeout of a command that prints a key, in seconds."""


class Key(Frozen):
    """Credential of a provider."""

    text: str = ""
    is_token: bool = False
    """Whether it is an OAuth token: it expires, and is sent in another header."""


def visible_environment(around: Surroundings) -> dict[str, str]:
    """Return the environment for a program of the user (an editor), without provider keys."""
    hidden = Known(around.home).key_variables(around.environ)
    return providers.without_keys(around.environ, hidden)


def hide_keys(home: str, environ: Mapping[str, str], more: Sequence[str] = ()) -> None:
    """Keep the user's other processes from reading the keys in this one, a server of agents. `more`
    are further variables with secrets.
    """
    from zot.tools.process import hide

    hide.hide_server({*Known(home).key_variables(environ), RPC_TOKEN, *more})


class UserModels(Frozen):
    """Content of models.json."""

    providers: dict[str, ProviderInfo] = {}
    """New providers, and built-in ones as changed."""
    models: dict[str, dict[str, Model]] = {}
    """Models by provider and id."""
    keys: dict[str, str] = {}
    """Per provider, as in pi: the name of a variable that is set, `!command`, or the key itself."""
    warnings: list[str] = []
    """Parts that cannot be used, and why."""


class Known:
    """The available providers, models and keys: zot's own, overridden by models.json."""

    def __init__(self, home: str) -> None:
        self.home = home
        self._user = UserModels()
        if os.path.exists(os.path.join(home, "models.json")):
            from zot.settings import models

            self._user = models.read_models(home)
        self.warnings = self._user.warnings

    # --- providers and models ----------------------------------------------------------------

    def providers(self) -> dict[str, ProviderInfo]:
        return {**providers.PROVIDERS, **self._user.providers}

    def provider(self, name: str) -> ProviderInfo:
        """Return the provider with this name or alias. Raises ConfigError: there is none."""
        own = self._user.providers
        if name in own:
            return own[name]
        info = providers.find_provider(name)
        return own.get(info.name, info)

    def all(self, provider: str) -> Sequence[Model]:
        """Return a provider's models: of the catalog, of its server's list, then the user's."""
        by_id = {model.id: model for model in catalog_models(provider)}
        for id, model in self._cached(provider).items():
            by_id.setdefault(id, model)  # the catalog has prices, which servers do not report
        return tuple({**by_id, **self._user.models.get(provider, {})}.values())

    def find(self, provider: str, id: str, *, unlisted: bool = False) -> Model:
        """Return one model; `unlisted` also accepts one that is not in the catalog.

        Raises:
            ConfigError: the provider has no such model.
        """
        if (own := self._user.models.get(provider, {}).get(id)) is not None:
            return own
        if provider not in providers.PROVIDERS:
            return self._cached(provider).get(id) or self._of_own_provider(provider, id)
        model = catalog.find(provider, id, unlisted=True)
        if model.source != "unlisted":
            return model
        return self._cached(provider).get(id) or catalog.find(provider, id, unlisted=unlisted)

    def default(self, provider: str) -> Model | None:
        """Return the model to use when none is named; None: the user must name one."""
        id = self.provider(provider).default_model
        if not id:
            id = next(iter(self._user.models.get(provider, {})), "")
        return self.find(provider, id) if id else None

    def _cached(self, provider: str) -> dict[str, Model]:
        from zot.settings import models

        return models.read_cache(self.home, provider)

    def _of_own_provider(self, provider: str, id: str) -> Model:
        info = self.provider(provider)
        if not id:
            raise ConfigError(f"provider {provider!r} needs a model: pass --model ID")
        return Model(id=id, provider=provider, api=info.api, name=id, source="unlisted")

    # --- keys --------------------------------------------------------------------------------

    def key(self, info: ProviderInfo, flag: str, environ: Mapping[str, str]) -> Key:
        """Return the provider's key; empty when there is none.

        Raises:
            AuthError: there is one, but it cannot be obtained.
        """
        if key := flag or providers.env_key(info, environ):
            return Key(key)
        if info.auth == "none":
            return Key()
        if _has_logged_in(self.home):
            from zot.provider.auth import resolve

            hidden = self.key_variables(environ)
            credential = resolve.find_credential(info, flag, environ, self.home, hidden=hidden)
            if credential is not None:
                return Key(credential.key, credential.source == "oauth")
        return Key(self._key_in_file(info.name, environ))

    def _key_in_file(self, provider: str, environ: Mapping[str, str]) -> str:
        text = self._user.keys.get(provider, "")
        if not text.startswith("!"):
            return environ.get(text) or text
        from zot.provider.auth import resolve

        words, hidden = ("sh", "-c", text[1:]), self.key_variables(environ)
        return resolve.key_from_command(words, COMMAND_SECONDS, provider, environ, hidden)

    def key_variables(self, environ: Mapping[str, str]) -> frozenset[str]:
        """Return all variables with provider keys: no child process may see them."""
        named = {text for text in self._user.keys.values() if text in environ}
        own = (name for info in self._user.providers.values() for name in info.env)
        return providers.env_secret_names().union(named, own)

    def written_keys(self, environ: Mapping[str, str]) -> set[str]:
        """Return the keys written literally in models.json."""
        keys = self._user.keys.values()
        return {text for text in keys if text not in environ and text[:1] != "!"}


def catalog_models(provider: str) -> Sequence[Model]:
    """Return the models of the catalog; none for a provider of the user."""
    return catalog.models(provider) if provider in providers.PROVIDERS else ()


def with_token(info: ProviderInfo, token: str) -> ProviderInfo:
    """Return the provider's data for authentication with a token instead of a key."""
    # Anthropic's own tokens have this prefix, and need one more header (client.py).
    return info if token.startswith("sk-ant-oat") else replace(info, auth="bearer")


def stored_providers(home: str) -> Sequence[str]:
    """Return the providers with a credential in auth.json."""
    if not _has_logged_in(home):
        return ()
    from zot.provider.auth import store

    return tuple(name for name in store.AuthFile(home).all() if not name.startswith("mcp:"))


def _has_logged_in(home: str) -> bool:
    return os.path.exists(os.path.join(home, "auth.json"))


# --- logging in and out ----------------------------------------------------------------------


def keep_key(
    info: ProviderInfo, key: str, home: str, *, try_it: bool = True, keyring: bool = False
) -> str:
    """Store a key if the provider accepts it; return a note for the user, or an empty text.

    Raises:
        AuthError: it is none, the provider refuses it, or it cannot be kept.
    """
    from zot.provider.auth import resolve, store

    check_key(key)
    note = try_key(info, key) if try_it else ""
    if keyring:
        resolve.put_in_keyring(info.name, key)
    credential = store.Credential(keyring=True) if keyring else store.Credential(api_key=key)
    store.AuthFile(home).put(info.name, credential)
    return note


def check_key(key: str) -> None:
    """Raise AuthError for a text that cannot be a key: keys are sent in a header."""
    if not key or not (key.isascii() and key.isprintable()) or " " in key:
        raise AuthError("this is no key: it is empty, or has a space or a letter that is not ASCII")


def try_key(info: ProviderInfo, key: str) -> str:
    """Check a key with the provider; return why it could not be checked, or an empty text.

    Raises:
        AuthError: it was refused.
    """
    from zot.provider.discover import probe

    probed = probe(info, key)
    if probed.verdict == "refused":
        raise AuthError(probed.reason)
    return f"the key could not be tried: {probed.reason}" if probed.verdict == "unknown" else ""


def log_out(provider: str, home: str) -> None:
    """Delete a stored login. Raises AuthError when there is none."""
    from zot.provider.auth import resolve, store

    if not resolve.forget(store.AuthFile(home), provider):
        raise AuthError(f"not logged in to {provider!r}; `zot auth status` shows where you are")
