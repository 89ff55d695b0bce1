"""Finds the secrets in a configuration by their place: a header, a variable, a password in an
address, the word after `--token`. Reads no file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import parse_qsl, urlsplit

from zot.text import url_passwords

SECRET_NAME = re.compile(
    r"(?i)token|secret|passw|pwd|key|auth|credential|private|bearer|cookie|session|signature"
    r"|(^|[-_])(pat|sig|pass|dsn)($|[-_])"
)
ORDINARY_NAME = re.compile(
    r"(?i)(^|_)(region|zone|env|environment|level|mode|host|hostname|port|path|dir|directory|home"
    r"|root|lang|locale|tz|name|user|username|model|version|timeout|debug|format|type|org|project"
    r"|workspace|browser|display|shell|term|editor|pager|options?|pythonpath)$"
)
"""Names of variables whose values are common words."""
ORDINARY_HEADERS = frozenset(
    ("accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-type")
    + ("host", "origin", "referer", "user-agent", "mcp-protocol-version")
)
HEADER_FLAGS = ("-H", "--header", "--headers")
IN_FILE = re.compile(r"(?i).*(api_?key|secret|password|token|cookie|signature|credential)")
"""Fields of zot's own files that hold a secret."""
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
RANDOM = re.compile(r"[A-Za-z0-9]{16,}")
"""A run of letters and digits as in random tokens; see `looks_random`."""


def url_secrets(url: str) -> Iterator[str]:
    """Yield the password, query values with a secret's name, and parts that look random."""
    yield from url_passwords(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    for name, value in parse_qsl(parts.query):
        if SECRET_NAME.search(name) or looks_random(value):
            yield value
    yield from filter(looks_random, parts.path.split("/"))


def header_secrets(name: str, value: str) -> Iterator[str]:
    if name.strip().lower() in ORDINARY_HEADERS:
        return
    value = value.strip()
    yield value
    scheme, _, rest = value.partition(" ")
    yield rest.strip()
    for _, part in _pairs(value):  # cookies, and parameters of a scheme
        yield part
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(rest.strip(), validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return
        yield pair
        yield pair.partition(":")[2]


def variable_secrets(name: str, value: str) -> Iterator[str]:
    if "://" in value:
        yield from url_secrets(value)
    elif SECRET_NAME.search(name) or looks_random(value) or not _is_ordinary(name, value):
        yield value
    yield from pair_secrets(value)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of `a=1; b=2`."""
    for part in re.split(r"[;,\s]+", text):
        name, equals, value = part.partition("=")
        if equals:
            yield name, value.strip("\"'")


def pair_secrets(text: str) -> Iterator[str]:
    """Yield the values with a secret's name, as in `Server=db; Password=...`."""
    return (value for name, value in _pairs(text) if SECRET_NAME.search(name))


def _is_ordinary(name: str, value: str) -> bool:
    return bool(ORDINARY_NAME.search(name)) or value.startswith(("/", "~", "."))


def argument_secrets(args: Sequence[str]) -> Iterable[str]:
    before = ""
    for arg in args:
        flag, equals, value = arg.partition("=")
        if before in HEADER_FLAGS or flag in HEADER_FLAGS:
            name, _, text = (value if equals and flag in HEADER_FLAGS else arg).partition(":")
            yield from header_secrets(name, text)
        elif before.startswith("-") and SECRET_NAME.search(before) and not arg.startswith("-"):
            yield arg
            yield from (part for _, part in _pairs(arg))
        elif equals and SECRET_NAME.search(flag):
            yield value
        elif "://" in arg:
            yield from url_secrets(arg if "://" in flag else value)
        elif looks_random(arg):
            yield arg
        before = "" if equals else arg


def looks_random(text: str) -> bool:
    """Whether there is a long run of mixed letters and digits, unlike names and versions."""
    return any(
        sum(map(str.isdigit, run)) >= 2 and sum(map(str.isalpha, run)) >= 2
        for run in RANDOM.findall(text)
    )


def looks_secret(name: str, value: str) -> bool:
    """Return whether a field holds a secret: not the name of a variable that has it, a command
    that prints it, or an ordinary word such as `bearer`."""
    if name.lower().endswith("env") or value.startswith("!") or VARIABLE.fullmatch(value):
        return False
    return bool(IN_FILE.fullmatch(name)) or looks_random(value)
