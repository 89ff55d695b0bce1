"""Where models are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zot.provider.types import Model, Provider


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
