"""What the user's files add to what zot ships: settings, models, credentials; each looked for
only if its file exists, so that a start without files pays for none of them.
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
from zot.settings.flags import Options, with_defaults
from zot.settings.table import VARIABLES
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.settings import models


class Choice(Frozen):
    info: providers.ProviderInfo
    model: str = ""
    """Empty: the provider's default."""
    base_url: str = ""
    because: str = ""
    """Why this one; empty when the user named it."""

    def line(self, model: str) -> str:
        """What the user is told."""
        return (
            f"using {self.info.name} with {model} ({self.because}); --provider NAME chooses another"
        )


class Key(Frozen):
    """What opens a provider."""

    text: str = ""
    is_token: bool = False
    """Of an OAuth login: it ends one day, and travels in another header."""


def visible_environment(around: Surroundings) -> dict[str, str]:
    """What a program of the user's (an editor) sees of the environment: no key of a provider."""
    hidden = Known(around.home).key_variables(around.environ)
    return providers.without_keys(around.environ, hidden)


def hide_keys(home: str, environ: Mapping[str, str], more: Sequence[str] = ()) -> None:
    """Let no other process of the user find the keys in this one, a server of agents. `more` are
    further variables with secrets."""
    from zot.tools import hide

    hide.hide_server({*Known(home).key_variables(environ), RPC_TOKEN, *more})


class Known:
    """The providers, models and keys to choose from: the catalog, with models.json over it."""

    def __init__(self, home: str) -> None:
        self.home = home
        self._models: models.KnownModels | None = None
        if os.path.exists(os.path.join(self.home, "models.json")):
            self._load()

    @property
    def warnings(self) -> Sequence[str]:
        return self._models.warnings if self._models else ()

    def provider(self, name: str) -> providers.ProviderInfo:
        """Raises ConfigError when there is no such provider."""
        return self._models.provider(name) if self._models else providers.find_provider(name)

    def find(self, provider: str, id: str, *, unlisted: bool = False) -> Model:
        """Raises ConfigError when the provider has no such model."""
        if self._models is None:
            try:
                return catalog.find(provider, id)
            except ConfigError:
                pass  # its server may have told of it
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
        """Every variable that holds the key of a provider: no child process may see it."""
        return providers.env_secret_names() | (
            self._models.key_variables(environ) if self._models else set()
        )

    def written_keys(self, environ: Mapping[str, str]) -> set[str]:
        """The keys that stand in models.json themselves."""
        return self._models.written_keys(environ) if self._models else set()

    def key(self, info: providers.ProviderInfo, flag: str, environ: Mapping[str, str]) -> Key:
        """The provider's key; empty when there is none.

        Raises:
            AuthError: there is one, but it cannot be had.
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
    """The options with every setting filled in: from variables, files, defaults; warnings.

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
    """The options, with the model a session was last used with, where no flag names one."""
    if model is None or options.provider or options.model:
        return options
    try:
        info = known.provider(model[0])
        known.find(info.name, model[1], unlisted=bool(options.base_url))
    except ConfigError:
        return options  # a model of yesterday: today's default goes on with the conversation
    if info.api == "scripted":
        return options  # prepared turns are of one run
    return replace(options, provider=info.name, model=model[1])


def with_token(info: providers.ProviderInfo, token: str) -> providers.ProviderInfo:
    """The provider as it is asked with a token instead of a key."""
    # Anthropic's own tokens are known by their beginning, and need one header more (client.py).
    return info if token.startswith("sk-ant-oat") else replace(info, auth="bearer")


def stored_providers(home: str) -> Sequence[str]:
    """Those with a credential in auth.json."""
    if not _has_logged_in(home):
        return ()
    from zot.provider.auth import store

    return tuple(name for name in store.AuthFile(home).all() if not name.startswith("mcp:"))


def _has_logged_in(home: str) -> bool:
    return os.path.exists(os.path.join(home, "auth.json"))
