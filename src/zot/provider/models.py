"""Where models are found, and how much each of them can think."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zot.provider.types import LEVELS, Level, Model, Provider

_EVERY_MODEL_THINKS: tuple[Level, ...] = ("off", "minimum", "low", "medium", "high")


class Models(Protocol):
    """The models of every provider that can be asked."""

    def find(self, name: str, provider: str) -> Model:
        """`name` is an id of `provider`, or PROVIDER/ID.

        Raises:
            ConfigError: there is no such model.
            AuthError: its provider has no credential.
        """

    def all(self, provider: str = "") -> Sequence[Model]:
        """Those of one provider, or of every one with a credential."""

    def connect(self, model: Model) -> Provider: ...

    def renew(self, provider: str) -> bool:
        """Look for the provider's credential again; True: it is another one than before.

        Raises:
            AuthError: there is none any more.
        """


def levels(model: Model) -> list[Level]:
    """How much a model can think, the least first."""
    if not model.reasoning:
        return ["off"]
    words = (model.compat or {}).get("levels")
    words = words if isinstance(words, dict) else {}
    more: tuple[Level, ...] = ("xhigh", "max")
    plain = [level for level in _EVERY_MODEL_THINKS if words.get(level, "") is not None]
    return plain + [level for level in more if words.get(level)]


def clamped(wanted: Level, model: Model) -> Level:
    """The level itself, or the highest one below it that the model has."""
    most = LEVELS.index(wanted)
    within = [level for level in levels(model) if LEVELS.index(level) <= most]
    return within[-1] if within else "off"
