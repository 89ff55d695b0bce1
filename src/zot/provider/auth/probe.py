"""Checks whether a provider accepts a key, by the cheapest request there is: its list of models."""

from __future__ import annotations

from typing import Literal

from zot.errors import ConfigError, ProviderError
from zot.provider.discover import live_models
from zot.provider.providers import ProviderInfo
from zot.provider.types import Model
from zot.text import Frozen

Verdict = Literal["accepted", "refused", "unknown"]
SECONDS = 10.0


class Probed(Frozen):
    verdict: Verdict
    reason: str = ""
    """Why the key was refused, or why the check failed."""
    models: tuple[Model, ...] = ()


def probe(info: ProviderInfo, key: str) -> Probed:
    """Check whether the provider accepts the key."""
    try:
        return Probed("accepted", models=live_models(info, key, seconds=SECONDS))
    except ProviderError as error:
        if error.status in (401, 403):
            return Probed("refused", f"{info.name} refused the key (HTTP {error.status})")
        return Probed("unknown", str(error))
    except ConfigError as error:
        return Probed("unknown", str(error))
