"""Asks a provider whether it takes a key. The cheapest request there is: its list of models."""

from __future__ import annotations

from typing import Literal

from zot.errors import AuthError
from zot.provider.auth.http import get
from zot.provider.providers import ProviderInfo

Verdict = Literal["accepted", "refused", "unknown"]
SECONDS = 10.0


def probe(info: ProviderInfo, key: str, base_url: str = "") -> tuple[Verdict, str]:
    """Whether the key is good, and in words why not or why nobody knows."""
    base = (base_url or info.base_url).rstrip("/")
    if not base:
        return "unknown", "the provider has no address"
    path = "/v1/models" if info.api == "anthropic" else "/models"
    headers = {**info.headers, **_key_header(info, key)}
    if info.api == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    try:
        status = get(base + path, headers, SECONDS).status
    except AuthError as error:
        return "unknown", str(error)
    if status in (401, 403):
        return "refused", f"{info.name} refused the key (HTTP {status})"
    if status == 200:
        return "accepted", ""
    return "unknown", f"{info.name} answered with HTTP {status}"


def _key_header(info: ProviderInfo, key: str) -> dict[str, str]:
    if info.auth == "none" or not key:
        return {}
    if info.auth == "bearer":
        return {"authorization": f"Bearer {key}"}
    return {info.auth: key}
