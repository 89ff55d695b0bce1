"""Interface for finding models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zot.provider.types import Model, Provider


class Models(Protocol):
    """The models of every usable provider."""

    def find(self, name: str, provider: str) -> Model:
        """Return a model; `name` is an id of `provider`, or PROVIDER/ID.

        Raises:
            ConfigError: there is no such model.
            AuthError: its provider has no credential.
        """

    def all(self, provider: str = "") -> Sequence[Model]:
        """Return the models of one provider, or of every provider with a credential."""

    def connect(self, model: Model) -> Provider: ...

    def renew(self, provider: str) -> bool:
        """Look up the provider's credential again; return True if it changed.

        Raises:
            AuthError: there is none any more.
        """
