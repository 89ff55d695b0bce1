"""The secrets in the entry of an MCP server: texts that no model, client or file may see.

A value counts by its place (a header, a variable, after `--token`); the redactor decides whether it
is long enough to be removed from ordinary text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

from zot.errors import ConfigError
from zot.mcp.config import ServerConfig, expanded, read_all
from zot.provider.types import Json

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
RANDOM = re.compile(r"[A-Za-z0-9]{16,}")
"""A run of letters and digits as in random tokens; see `_looks_random`."""


def configured_secrets(
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    entries: Mapping[str, Json],
    *,
    trusted: bool,
) -> set[str]:
    """Return the secrets of all servers: of the files, and `entries` of a program that embeds
    zot."""
    texts: set[str] = set()
    for server in read_all(cwd, home, entries, files=True, trusted=trusted).servers:
        texts |= secrets_of(server)
        try:
            texts |= secrets_of(expanded(server, environ, ()))
        except ConfigError:
            continue  # a variable is not set: the server cannot start, either
    return texts


def secrets_of(server: ServerConfig) -> set[str]:
    texts = {server.oauth.client_secret, *url_secrets(server.url)}
    for name, value in server.headers.items():
        texts |= set(_header_secrets(name, value))
    for name, value in server.env.items():
        texts |= set(_variable_secrets(name, value))
    return texts | set(_argument_secrets(server.args))


def url_secrets(url: str) -> Iterator[str]:
    """Yield the password, query values with a secret's name, and parts that look random."""
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:
        return
    yield from {password, unquote(password)}
    for name, value in parse_qsl(parts.query):
        if SECRET_NAME.search(name) or _looks_random(value):
            yield value
    yield from filter(_looks_random, parts.path.split("/"))


def _header_secrets(name: str, value: str) -> Iterator[str]:
    if name.strip().lower() in ORDINARY_HEADERS:
        return
    value = value.strip()
    yield value
    scheme, _, rest = value.partition(" ")
    yield rest.strip()
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(rest.strip(), validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return
        yield pair
        yield pair.partition(":")[2]


def _variable_secrets(name: str, value: str) -> Iterator[str]:
    if "://" in value:
        yield from url_secrets(value)
    elif SECRET_NAME.search(name) or _looks_random(value) or not _is_ordinary(name, value):
        yield value


def _is_ordinary(name: str, value: str) -> bool:
    return bool(ORDINARY_NAME.search(name)) or value.startswith(("/", "~", "."))


def _argument_secrets(args: Sequence[str]) -> Iterable[str]:
    before = ""
    for arg in args:
        flag, equals, value = arg.partition("=")
        if before in HEADER_FLAGS or flag in HEADER_FLAGS:
            name, _, text = (value if equals and flag in HEADER_FLAGS else arg).partition(":")
            yield from _header_secrets(name, text)
        elif before.startswith("-") and SECRET_NAME.search(before) and not arg.startswith("-"):
            yield arg
        elif equals and SECRET_NAME.search(flag):
            yield value
        elif "://" in arg:
            yield from url_secrets(arg if "://" in flag else value)
        elif _looks_random(arg):
            yield arg
        before = "" if equals else arg


def _looks_random(text: str) -> bool:
    """Whether there is a long run of mixed letters and digits, unlike names and versions."""
    return any(
        sum(map(str.isdigit, run)) >= 2 and sum(map(str.isalpha, run)) >= 2
        for run in RANDOM.findall(text)
    )
