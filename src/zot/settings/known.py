"""What the user's files add to what zot ships: settings, models, credentials; each looked for
only if its file exists, so that a start without files pays for none of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from zot.errors import ConfigError
from zot.home import home_dir
from zot.provider import catalog
from zot.provider.providers import ProviderInfo, env_key, find_provider
from zot.provider.types import Json, Model
from zot.settings.flags import LEVEL_WORDS, Options

if TYPE_CHECKING:
    from zot.settings.config import Config
    from zot.settings.models import Models


VARIABLES = (
    *("ZOT_PROVIDER", "ZOT_MODEL", "ZOT_REASONING", "ZOT_BASE_URL"),
    *("ZOT_AUTO_COMPACT_THRESHOLD", "ZOT_MAX_STEPS", "ZOT_MAX_COST"),
    *("ZOT_MAX_TOKENS", "ZOT_MAX_SECONDS", "ZOT_JAIL"),
)
"""Those that hold settings; the same as in config.py, which is not loaded to find out."""
_LIMITS = ("max_steps", "max_cost", "max_tokens", "max_seconds", "idle_timeout")
_SWITCHES = {"context_files": "no_context_files", "skills": "no_skills", "extensions": "no_ext"}
"""Settings, and the flags that say the opposite."""


class Known:
    """The providers and models to choose from: the catalog, with models.json over it."""

    def __init__(self) -> None:
        self._models: Models | None = None
        if os.path.exists(os.path.join(home_dir(), "models.json")):
            self._load()

    @property
    def warnings(self) -> Sequence[str]:
        return self._models.warnings if self._models else ()

    def provider(self, name: str) -> ProviderInfo:
        """Raises ConfigError when there is no such provider."""
        return self._models.provider(name) if self._models else find_provider(name)

    def find(self, provider: str, id: str, *, unlisted: bool = False) -> Model:
        """Raises ConfigError when the provider has no such model."""
        if self._models is None:
            try:
                return catalog.find(provider, id, unlisted=unlisted)
            except ConfigError:
                pass  # its server may have told of it
        return self._load().find(provider, id, unlisted=unlisted)

    def default(self, provider: str) -> Model | None:
        return self._models.default(provider) if self._models else catalog.default_model(provider)

    def all(self, provider: str) -> Sequence[Model]:
        return self._load().all(provider)

    def _load(self) -> Models:
        if self._models is None:
            from zot.settings.models import Models  # start-up budget

            self._models = Models()
        return self._models


def configured(options: Options, environ: Mapping[str, str], cwd: str) -> tuple[Options, list[str]]:
    """The options, with the configuration's words where the command line said nothing; warnings.

    Raises:
        ConfigError: a variable holds a value that cannot be used.
    """
    files = (os.path.join(home_dir(), "config.json"), os.path.join(cwd, ".zot", "config.json"))
    if not any(map(os.path.exists, files)) and not any(name in environ for name in VARIABLES):
        return options, []
    from zot.settings.config import Config  # start-up budget

    config = Config(cwd, trusted=options.trust)
    said = _from_config(options, config)
    new = {name: value for name, value in said.items() if value and not getattr(options, name)}
    return replace(options, **new), config.warnings


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


def _from_config(options: Options, config: Config) -> dict[str, Json]:
    threshold = config["auto_compact_threshold"]
    said: dict[str, Json] = {
        "reasoning": LEVEL_WORDS.get(config["reasoning"]),
        "fallback_model": tuple(config["fallback_models"]),
        "approve": tuple(config["approve"]),
        "compact_at": float(threshold),
        "no_auto_compact": threshold == 0,
        "jail": config["jail"],
    }
    said |= {name: config[name] for name in _LIMITS}
    said |= {flag: not config[name] for name, flag in _SWITCHES.items()}
    if not options.provider or options.provider == config["provider"]:
        # A model or an address belongs to the provider it was set with.
        said |= {name: config[name] for name in ("provider", "model", "base_url")}
    return said


class Key(Struct, frozen=True):
    """What opens a provider."""

    text: str = ""
    is_token: bool = False
    """Of an OAuth login: it ends one day, and travels in another header."""


def find_key(info: ProviderInfo, flag: str, environ: Mapping[str, str]) -> Key:
    """The provider's key; empty when there is none.

    Raises:
        AuthError: there is one, but it cannot be had.
    """
    if key := flag or env_key(info, environ):
        return Key(key)
    if info.auth == "none" or not _has_logged_in():
        return Key()
    from zot.provider.auth.resolve import find_credential  # start-up budget

    found = find_credential(info, flag, environ, home_dir())
    return Key() if found is None else Key(found.key, found.source == "oauth")


def current_token(info: ProviderInfo, environ: Mapping[str, str]) -> str:
    """The token of a login, renewed if it ends soon. Asked for before each request.

    Raises:
        AuthError: it has ended and cannot be renewed.
    """
    return find_key(info, "", environ).text


def with_token(info: ProviderInfo, token: str) -> ProviderInfo:
    """The provider as it is asked with a token instead of a key."""
    # Anthropic's own tokens are known by their beginning, and need one header more (client.py).
    return info if token.startswith("sk-ant-oat") else replace(info, auth="bearer")


def stored_providers() -> Sequence[str]:
    """Those with a credential in auth.json."""
    if not _has_logged_in():
        return ()
    from zot.provider.auth.store import AuthFile  # start-up budget

    return tuple(AuthFile(home_dir()).all())


def _has_logged_in() -> bool:
    return os.path.exists(os.path.join(home_dir(), "auth.json"))
