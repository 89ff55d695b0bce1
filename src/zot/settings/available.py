"""The models a running agent can switch to: those of every provider with a credential."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from zot.errors import ConfigError
from zot.provider.providers import PROVIDERS, env_key
from zot.provider.types import Model, Provider
from zot.settings.known import stored_providers
from zot.settings.resolve import Setup, resolve


class AvailableModels:
    """Finds and connects models across providers (see runtime.models.Models)."""

    def __init__(self, setup: Setup) -> None:
        self._first = setup
        self._setups = {setup.info.name: setup}
        self._around = setup.around

    def find(self, name: str, provider: str) -> Model:
        head, slash, id = name.partition("/")
        if slash and id and self._is_provider(head) and not self._has_such_ids(provider):
            provider, name = self._first.known.provider(head).name, id
        return self._setup(provider, name).find(name)

    def all(self, provider: str = "") -> Sequence[Model]:
        if provider:
            setup = self._setup(provider, "")
            return setup.all() or [setup.model]
        first = self._first.info
        models = list(self._first.all()) or [self._first.model]
        environ, stored = self._around.environ, stored_providers(self._around.home)
        seen = {first.catalog}
        for info in PROVIDERS.values():
            if info.name == first.name or info.auth == "none" or info.catalog in seen:
                continue  # provider aliases share one catalog
            if env_key(info, environ) or info.name in stored:
                seen.add(info.catalog)
                models += self._first.known.all(info.name)
        return models

    def connect(self, model: Model) -> Provider:
        return self._setup(model.provider, model.id).connect(model)

    def renew(self, provider: str) -> bool:
        before = self._setups.get(provider)
        if before is None or before.info.auth == "none":
            return False
        options = replace(before.options, provider=provider, model=before.model.id)
        setup = resolve(options, self._around)
        self._setups[provider] = setup
        if before is self._first:
            self._first = setup
        return setup.key != before.key

    def _is_provider(self, name: str) -> bool:
        try:
            self._first.known.provider(name)
        except ConfigError:
            return name in self._setups
        return True

    def _has_such_ids(self, provider: str) -> bool:
        """Return whether the provider is a gateway: its own ids look like PROVIDER/ID."""
        known = self._setups.get(provider, self._first)
        return any("/" in model.id for model in known.all())

    def _setup(self, provider: str, model: str) -> Setup:
        if provider not in self._setups:
            if provider == "scripted":
                raise ConfigError("prepared turns are of one run: start zot with --script")
            # The key, address and script of the command line are for the first provider only.
            options = replace(
                self._first.options,
                provider=provider,
                model=model,
                api_key="",
                base_url="",
                script="",
            )
            self._setups[provider] = resolve(options, self._around)
        return self._setups[provider]
