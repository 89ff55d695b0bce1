"""The models to go on with when the first one fails for good: of its provider, or of another."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from zot.errors import ConfigError
from zot.provider.types import Model, Provider
from zot.settings.resolve import Setup, resolve


def connect_fallback(setup: Setup, name: str, environ: Mapping[str, str]) -> tuple[Provider, Model]:
    """`name` is an id of the same provider, or `PROVIDER/ID`.

    Raises:
        ConfigError: there is no such model.
        AuthError: the other provider has no credential.
    """
    provider, id = _parts(setup, name)
    if provider in ("", setup.info.name):
        model = setup.find(id)
        return setup.connect(model), model
    # A key and an address of the command line are for the first provider.
    options = replace(
        setup.options, provider=provider, model=id, api_key="", base_url="", script=""
    )
    other = resolve(options, environ, home=setup.known.home)
    return other.connect(other.model), other.model


def _parts(setup: Setup, name: str) -> tuple[str, str]:
    """The provider and the model of `PROVIDER/ID`; no provider when the name is an id as it is."""
    head, _, id = name.partition("/")
    if not (head and id) or setup.options.record or setup.options.replay:
        return "", name
    try:
        provider = setup.known.provider(head).name
    except ConfigError:
        return "", name
    if any("/" in model.id for model in setup.all()):
        return "", name  # a gateway: its own ids look like this
    return provider, id
