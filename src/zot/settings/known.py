"""Adds the user's files to zot's built-in data: settings, models, credentials. Each module is
loaded only if its file exists, so that a start without files costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from zot.errors import ConfigError
from zot.home import RPC_TOKEN, Surroundings
from zot.provider import catalog, providers
from zot.provider.model import Model
from zot.settings.options import VARIABLES, Options, with_defaults
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.settings import models


class Choice(Frozen):
    info: providers.ProviderInfo
    model: str = ""
    """Model id; empty: the provider's default."""
    base_url: str = ""
    because: str = ""
    """Reason for the choice; empty when the user named the provider."""

    def line(self, model: str) -> str:
        """Return the notice for the user."""
        return (
            f"using {self.info.name} with {model} ({self.because}); --provider NAME chooses another"
        )


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


class Known:
    """The available providers, models and keys: the catalog, overridden by models.json."""

    def __init__(self, home: str) -> None:
        self.home = home
        self._models: models.KnownModels | None = None
        if os.path.exists(os.path.join(self.home, "models.json")):
            self._load()

    @property
    def warnings(self) -> Sequence[str]:
        return self._models.warnings if self._models else ()

    def provider(self, name: str) -> providers.ProviderInfo:
        """Return a provider. Raises ConfigError when there is no such provider."""
        return self._models.provider(name) if self._models else providers.find_provider(name)

    def find(self, provider: str, id: str, *, unlisted: bool = False) -> Model:
        """Return a model. Raises ConfigError when the provider has no such model."""
        if self._models is None:
            try:
                return catalog.find(provider, id)
            except ConfigError:
                pass  # the server's cached list may have it
        return self._load().find(provider, id, unlisted=unlisted)

    def default(self, provider: str) -> Model | None:
        return self._models.default(provider) if self._models else catalog.default_model(provider)

    def all(self, provider: str) -> Sequence[Model]:
        return self._load().all(provider)

    def _load(self) -> models.KnownModels:
        if self._models is None:
            from zot.settings import models

            self._models = models.KnownModels(self.home)
        return self._models

    def key_variables(self, environ: Mapping[str, str]) -> frozenset[str]:
        """Return all variables with provider keys: no child process may see them."""
        return providers.env_secret_names() | (
            self._models.key_variables(environ) if self._models else set()
        )

    def written_keys(self, environ: Mapping[str, str]) -> set[str]:
        """Return the keys written literally in models.json."""
        return self._models.written_keys(environ) if self._models else set()

    def key(self, info: providers.ProviderInfo, flag: str, environ: Mapping[str, str]) -> Key:
        """Return the provider's key; empty when there is none.

        Raises:
            AuthError: there is one, but it cannot be obtained.
        """
        if key := flag or providers.env_key(info, environ):
            return Key(key)
        if info.auth == "none":
            return Key()
        if _has_logged_in(self.home):
            hidden = self.key_variables(environ)
            from zot.provider.auth import resolve

            credential = resolve.find_credential(info, flag, environ, self.home, hidden=hidden)
            if credential is not None:
                return Key(credential.key, credential.source == "oauth")
        return Key(self._models.own_key(info.name, environ) if self._models else "")


def configured(
    options: Options, environ: Mapping[str, str], cwd: str, home: str
) -> tuple[Options, list[str]]:
    """Return the options completed from variables, files and defaults, and warnings.

    Raises:
        ConfigError: a variable holds a value that cannot be used.
    """
    files = (os.path.join(home, "config.json"), os.path.join(cwd, ".zot", "config.json"))
    if not any(map(os.path.exists, files)) and environ.keys().isdisjoint(VARIABLES):
        return with_defaults(options), []
    from zot.settings import config

    read = config.read_configuration(options, environ, cwd, home)
    values = {name: value.value for name, value in read.values.items()}
    return replace(options, **values), read.warnings


def resumed(options: Options, model: tuple[str, str] | None, known: Known) -> Options:
    """Return the options with the session's last model, unless a flag names one."""
    if model is None or options.provider or options.model:
        return options
    try:
        info = known.provider(model[0])
        known.find(info.name, model[1], unlisted=bool(options.base_url))
    except ConfigError:
        return options  # the model is gone: continue the conversation with today's default
    if info.api == "scripted":
        return options  # prepared turns belong to one run
    return replace(options, provider=info.name, model=model[1])


def with_token(info: providers.ProviderInfo, token: str) -> providers.ProviderInfo:
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
