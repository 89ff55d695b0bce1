from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.local import text, tiny_gguf

from zot.errors import ConfigError
from zot.local.models import Header, read_header

GOOD = tiny_gguf(
    {
        "general.architecture": "llama",
        "llama.context_length": 2048,
        "tokenizer.ggml.tokens": ["a", "bc"],
        "tokenizer.chat_template": "{{ messages }}",
    }
)


def header(tmp_path: Path, data: bytes) -> Header:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return read_header(path)


def test_a_header_is_read(tmp_path: Path) -> None:
    assert header(tmp_path, GOOD) == Header("llama", 2048, "{{ messages }}")


def test_what_is_missing_is_empty(tmp_path: Path) -> None:
    assert header(tmp_path, tiny_gguf({})) == Header("", 0, "")
    assert header(tmp_path, tiny_gguf({".context_length": "many"})).context == 0


def test_arrays_of_numbers_are_skipped(tmp_path: Path) -> None:
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    data += text("n") + struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3)
    data += text("general.architecture") + struct.pack("<I", 8) + text("x")
    assert header(tmp_path, data).architecture == "x"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends in the middle"),
        (b"HTML", "does not begin with the letters GGUF"),
        (b"GGUF" + struct.pack("<I", 9), "version is not 2 or 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "a length of"),
        (tiny_gguf({"a": "b"})[:-1], "ends in the middle"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 77), "type 77"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1),
            "an array of type 9",
        ),
    ],
)
def test_a_broken_header_says_what_is_wrong(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        header(tmp_path, data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_header(tmp_path / "none.gguf")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(GOOD)), st.binary(max_size=40))
def test_no_damage_raises_anything_else(tmp_path: Path, at: int, junk: bytes) -> None:
    try:
        header(tmp_path, GOOD[:at] + junk + GOOD[at + len(junk) :])
    except ConfigError:
        pass
