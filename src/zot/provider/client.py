"""Joins an API file with HTTP: the one Provider behind every real model. No API's words here."""

from __future__ import annotations

from zot.errors import ConfigError
from zot.provider.providers import ProviderInfo
from zot.provider.types import Api, Provider


def open_client(
    info: ProviderInfo,
    api: Api,
    key: str,
    base_url: str,
    *,
    idle_seconds: float,
    connect_seconds: float,
) -> Provider:
    """A client that speaks `api` to `base_url`; connects when first used."""
    raise ConfigError(f"provider {info.name!r} is not ready yet")
