"""Selection of models as pi clients do it: by a part of an id, or by a pattern."""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec.structs import replace

from zot.home import Surroundings
from zot.pi.messages import WORD_LEVELS
from zot.provider.types import Model, Models
from zot.settings.known import Known
from zot.settings.options import Options
from zot.settings.resolve import DEFAULT_PROVIDER, Setup, resolve


def scoped(models: Models, patterns: str) -> list[Model]:
    """Return the models that `--models` names, in its order; empty without the flag."""
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    matching: dict[tuple[str, str], Model] = {}
    every = models.all() if wanted else ()
    for pattern in wanted:
        for model in every:
            if matches(pattern, model):
                matching.setdefault((model.provider, model.id), model)
    return list(matching.values())


def resolve_pi(options: Options, around: Surroundings) -> Setup:
    """Like `resolve`, but the model may also be a part of an id, as in pi. Raises ConfigError: it
    cannot be found, or there is no credential."""
    setup = resolve(options, around)
    if not options.model or setup.model.source != "unlisted":
        return setup
    model = near(options, around.home)
    if model is None:
        return setup
    return resolve(replace(options, provider=model.provider, model=model.id), around)


def near(options: Options, home: str) -> Model | None:
    """Return the model whose id contains the user's text: the shortest id; among equals the last in
    alphabetical order, usually the newest."""
    known = Known(home)
    provider = known.provider(options.provider or DEFAULT_PROVIDER).name
    models = [model for model in known.all(provider) if matches(options.model, model)]
    models.sort(key=lambda model: model.id, reverse=True)
    return min(models, key=lambda model: len(model.id), default=None)


def matches(pattern: str, model: Model) -> bool:
    """Whether an id, glob or part of an id matches the model; a final `:level` is ignored."""
    pattern = without_level(pattern).lower()
    names = (model.id.lower(), f"{model.provider}/{model.id}".lower())
    if any(letter in pattern for letter in "*?["):
        return any(fnmatchcase(name, pattern) for name in names)
    return pattern in names or (pattern in model.id.lower() and "/" not in pattern)


def without_level(pattern: str) -> str:
    head, colon, tail = pattern.rpartition(":")
    return head if colon and tail in WORD_LEVELS else pattern
