"""The models a pi client can choose from: those of every provider with a credential."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from zot.errors import AuthError, ConfigError, ZotError
from zot.provider.providers import PROVIDERS, env_key
from zot.provider.types import Model, Provider
from zot.settings.flags import Options
from zot.settings.known import Known, stored_providers
from zot.settings.resolve import DEFAULT_PROVIDER, Setup, resolve


class PiModels:
    """Finds and connects models across providers (see agent.runtime.Models)."""

    def __init__(self, setup: Setup, environ: Mapping[str, str], patterns: str = "") -> None:
        self._setups = {setup.info.name: setup}
        self._first = setup
        self._environ = environ
        self._patterns = [each.strip() for each in patterns.split(",") if each.strip()]

    def find(self, id: str) -> Model:
        """`provider/id`, or an id of the provider that zot was started with."""
        provider, slash, model = id.partition("/")
        if slash and (provider in PROVIDERS or provider in self._setups):
            return self.find_of(provider, model)
        return self._first.find(id)

    def find_of(self, provider: str, id: str) -> Model:
        """Raises ConfigError when there is no such model, or no credential for its provider."""
        return self._setup(provider, id).find(id)

    def all(self) -> Sequence[Model]:
        found = list(self._first.all()) or [self._first.model]
        seen = {self._first.info.catalog}
        for info in PROVIDERS.values():
            if info.name == self._first.info.name or info.auth == "none" or info.catalog in seen:
                continue  # two names of one provider have one catalog
            if env_key(info, self._environ) or info.name in stored_providers():
                seen.add(info.catalog)
                found += self._first.known.all(info.name)
        return found

    def scoped(self) -> Sequence[Model]:
        """Those that `--models` names, in its order; empty without the flag."""
        found: dict[tuple[str, str], Model] = {}
        every = self.all() if self._patterns else ()
        for pattern in self._patterns:
            for model in every:
                if matches(pattern, model):
                    found.setdefault((model.provider, model.id), model)
        return list(found.values())

    def connect(self, model: Model) -> Provider:
        return self._setup(model.provider, model.id).connect(model)

    def _setup(self, provider: str, model: str) -> Setup:
        if provider not in self._setups:
            options = replace(
                self._first.options, provider=provider, model=model, api_key="", base_url=""
            )
            try:
                self._setups[provider] = resolve(options, self._environ)
            except ZotError as error:
                raise ConfigError(f"model not found: {provider}/{model} ({error})") from error
        return self._setups[provider]


def resolve_pi(options: Options, environ: Mapping[str, str]) -> Setup:
    """As `resolve`; a model may also be named by a part of its id, as pi allows.

    Raises:
        ConfigError: it cannot be found, or there is no credential.
    """
    try:
        return resolve(options, environ)
    except AuthError:
        raise
    except ConfigError:
        found = near(options) if options.model else None
        if found is None:
            raise
        return resolve(replace(options, provider=found.provider, model=found.id), environ)


def near(options: Options) -> Model | None:
    """The model whose id holds what the user wrote: the shortest, and of those the newest."""
    known = Known()
    provider = known.provider(options.provider or DEFAULT_PROVIDER).name
    found = [each for each in known.all(provider) if matches(options.model, each)]
    found.sort(key=lambda each: each.id, reverse=True)
    return min(found, key=lambda each: len(each.id), default=None)


def matches(pattern: str, model: Model) -> bool:
    """An exact id, a pattern with stars, or a part of the id; a `:level` at the end is left out."""
    pattern = without_level(pattern).lower()
    names = (model.id.lower(), f"{model.provider}/{model.id}".lower())
    if any(letter in pattern for letter in "*?["):
        return any(fnmatchcase(name, pattern) for name in names)
    return pattern in names or (pattern in model.id.lower() and "/" not in pattern)


def without_level(pattern: str) -> str:
    head, colon, tail = pattern.rpartition(":")
    known = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
    return head if colon and tail in known else pattern
