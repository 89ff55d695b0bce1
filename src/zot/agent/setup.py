"""Decides with which provider, model and key to run. On the start-up path: loads little.

Nothing here changes a file, whatever the user typed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from zot.agent.flags import Options
from zot.errors import AuthError, ConfigError
from zot.provider import catalog
from zot.provider.providers import (
    PROVIDERS,
    ProviderInfo,
    connect,
    env_base_url,
    env_key,
    find_provider,
)
from zot.provider.types import Model, Provider

DEFAULT_PROVIDER = "anthropic"


class Setup(Struct, frozen=True):
    """A provider that can be asked: everything is known, nothing was sent."""

    options: Options
    info: ProviderInfo
    model: Model
    key: str
    base_url: str
    cwd: str

    # --- where the runtime finds models (agent.runtime.Models) -------------------------------

    def find(self, id: str) -> Model:
        return catalog.find(self.info.name, id, unlisted=bool(self.base_url))

    def all(self) -> Sequence[Model]:
        return catalog.models(self.info.name)

    def connect(self, model: Model) -> Provider:
        options = self.options
        return connect(
            self.info,
            model,
            self.key,
            self.base_url or None,
            idle_seconds=options.idle_timeout or 120.0,
            script=options.script,
        )


def resolve(options: Options, environ: Mapping[str, str]) -> Setup:
    """Find out what to run with.

    Raises:
        ConfigError: an unknown provider or model, a bad directory; says what to do.
        AuthError: no key.
    """
    info = choose_provider(options, environ)
    base_url = options.base_url or env_base_url(info, environ)
    model = choose_model(info, options.model, unlisted=bool(base_url))
    key = options.api_key or env_key(info, environ)
    if not key and info.auth != "none" and not info.key_optional:
        raise AuthError(missing_key(info))
    return Setup(options, info, model, key, base_url, working_directory(options.cwd))


def choose_provider(options: Options, environ: Mapping[str, str]) -> ProviderInfo:
    """What the user named, else the first one with a key in the environment."""
    if options.provider:
        return find_provider(options.provider)
    if options.api_key:
        return find_provider(DEFAULT_PROVIDER)
    with_key = (info for info in PROVIDERS.values() if env_key(info, environ))
    return next(with_key, PROVIDERS[DEFAULT_PROVIDER])


def choose_model(info: ProviderInfo, name: str, *, unlisted: bool) -> Model:
    if name:
        return catalog.find(info.name, name, unlisted=unlisted)
    model = catalog.default_model(info.name)
    if model is None:
        raise ConfigError(f"provider {info.name!r} has no default model: pass --model ID")
    return model


def missing_key(info: ProviderInfo) -> str:
    variable = info.env[0] if info.env else "the provider's variable"
    return (
        f"no credential for {info.name}; set {variable}, pass --api-key, or run `zot login "
        f"{info.name}`. Without a key: --provider local runs a model on this machine"
    )


def working_directory(cwd: str) -> str:
    path = os.path.abspath(cwd) if cwd else os.getcwd()
    if not os.path.isdir(path):
        raise ConfigError(f"--cwd {cwd!r} is not a directory")
    return path
