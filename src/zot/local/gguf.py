"""Reads the header of a GGUF file: enough to reject a broken file and to learn its abilities."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from zot.errors import ConfigError
from zot.text import Frozen

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
