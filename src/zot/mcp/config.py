"""Configuration of MCP servers: `mcpServers` of files, entries of programs that embed zot, and the
secrets in them.

Starts nothing, and expands a server's variables only when that server is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec.structs import replace

from zot.errors import ConfigError
from zot.files import read_bytes, read_own
from zot.home import RPC_TOKEN, expand_user
from zot.provider.address import is_loopback, parse_url, split_query
from zot.provider.types import Json
from zot.secret_values import argument_secrets, header_secrets, url_secrets, variable_secrets
from zot.text import Frozen, prepared

PROJECT_FILE = ".mcp.json"
USER_FILE = "mcp.json"
MAX_BYTES = 1024 * 1024
MAX_SERVERS = 200
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Server names, kept plain because they become parts of file names (the log) and tool names."""
START_SECONDS = 30.0
CALL_SECONDS = 300.0
LONGEST = 3_600.0

Origin = Literal["given", "user", "project"]
"""Origin of an entry. `given`, by a program that embeds zot, takes precedence; then `user`."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class OAuthConfig(Frozen, forbid_unknown_fields=True):
    """Login settings of a server; all are optional, missing ones are discovered."""

    client_id: str = ""
    client_secret: str = ""
    scopes: tuple[str, ...] = ()
    callback_port: int = 0
    client_metadata_url: str = ""


class _Wishes(Frozen, kw_only=True):
    """Fields that are copied unchanged from the file."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    oauth: OAuthConfig = OAuthConfig()
    enabled: bool = True
    tools: tuple[str, ...] | None = None
    """Names of the only tools to offer; None: all."""
    timeout: float = CALL_SECONDS
    startup_timeout: float = START_SECONDS
    lazy: bool | None = None
    """Whether to offer its tools through the single tool `mcp`; None: only if there are many."""
    required: bool = False
    trust: bool = False
    """The user trusts its tool annotations: read-only tools run without approval."""
    network: bool = False
    """With --jail: whether it may use the network."""


class ServerConfig(_Wishes, kw_only=True):
    name: str
    origin: Origin
    folder: str
    """Working directory of its program; part of the fingerprint of a project's server."""

    @property
    def shown(self) -> str:
        """The command or URL to show to the user before the server starts."""
        words = [f"{name}={value!r}" for name, value in self.env.items()]
        return self.url or " ".join([*words, self.command, *map(repr, self.args)])


class _Entry(_Wishes, kw_only=True):
    """An entry of `mcpServers`, with the spellings of several programs."""

    type: str = ""
    cwd: str = ""
    httpUrl: str = ""  # the name in the file
    disabled: bool = False


prepared(_Entry)


class Configured(Frozen):
    servers: tuple[ServerConfig, ...] = ()
    problems: tuple[str, ...] = ()
    hint: str = ""
    """A note about configuration that waits for the user's consent."""


UNTRUSTED = (
    f"this project's {PROJECT_FILE} is not used before you trust the directory: zot config trust"
)


# --- from files and programs -----------------------------------------------------------------


def user_path(home: str) -> str:
    return os.path.join(home, USER_FILE)


def project_path(cwd: str) -> str:
    return os.path.join(cwd, PROJECT_FILE)


def read_all(
    cwd: str, home: str, entries: Mapping[str, Json], *, files: bool, trusted: bool
) -> Configured:
    """Return all servers, with unique names: a project's server cannot replace a user's."""
    parts = [parse_servers(entries, "given", cwd)] if entries else []
    hint = ""
    if files:
        parts.append(read_file(user_path(home), "user", cwd, None))
        if trusted:
            parts.append(read_file(project_path(cwd), "project", cwd, cwd))
        elif os.path.exists(project_path(cwd)):
            hint = UNTRUSTED
    servers: dict[str, ServerConfig] = {}
    problems = [problem for part in parts for problem in part.problems]
    for server in (server for part in parts for server in part.servers):
        first = servers.setdefault(server.name, server)
        if first is not server:
            problems.append(
                f"the MCP server {server.name!r} of the {server.origin} is left out: "
                f"there is one of that name ({first.origin}); rename it"
            )
    return Configured(tuple(servers.values())[:MAX_SERVERS], tuple(problems), hint)


def read_file(path: str, origin: Origin, folder: str, inside: str | None) -> Configured:
    """Return the servers of a file; errors are collected in `problems`, never raised."""
    try:
        data = read_own(path, inside, MAX_BYTES)
    except FileNotFoundError:
        return Configured()
    except OSError as error:
        return Configured(problems=(f"{path!r} is not used: {error.strerror or error}",))
    if len(data) > MAX_BYTES:
        return Configured(problems=(f"{path!r} is not used: it has more than {MAX_BYTES} bytes",))
    try:
        return parse_servers(decode_file(data), origin, folder)
    except ConfigError as error:
        return Configured(problems=(f"{path!r} is not used: {error}",))


def decode_file(data: bytes) -> dict[str, Json]:
    """Return the entries of a file. Raises ConfigError."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"it is not valid JSON: {error}") from error
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError('it must be {"mcpServers": {NAME: {...}, ...}}')
    return servers


def parse_servers(entries: Mapping[str, Json], origin: Origin, folder: str) -> Configured:
    """Parse a mapping from names to entries; an invalid entry does not affect the others."""
    servers, problems = [], []
    for name, entry in entries.items():
        try:
            servers.append(parse_server(name, entry, origin, folder))
        except ConfigError as error:
            problems.append(f"the MCP server {name!r:.80} is left out: {error}")
    return Configured(tuple(servers), tuple(problems))


def parse_server(name: str, entry: Json, origin: Origin, folder: str) -> ServerConfig:
    """Parse one entry. Raises ConfigError, which says what is wrong with it."""
    if NAME.fullmatch(name) is None:
        raise ConfigError("its name must have 1 to 64 letters, digits, dots, - or _")
    try:
        raw = msgspec.convert(entry, _Entry)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(str(error)) from error
    url = raw.httpUrl or raw.url
    if bool(url) == bool(raw.command):
        raise ConfigError("it needs either `command` or `url`")
    if raw.type == "sse":
        raise ConfigError("the old SSE transport is not spoken; use its streamable HTTP address")
    if url and "${" not in url:
        check_address(url)
    for seconds in (raw.timeout, raw.startup_timeout):
        if not 0 < seconds <= LONGEST:
            raise ConfigError(f"a timeout is given in seconds, up to {LONGEST:g}, not {seconds!r}")
    for text in (raw.command, *raw.args, *raw.env, *raw.env.values(), raw.cwd):
        if "\0" in text:
            raise ConfigError("it holds a NUL character")
    wishes = {field: getattr(raw, field) for field in _Wishes.__struct_fields__}
    wishes["url"] = url
    wishes["enabled"] = raw.enabled and not raw.disabled
    if origin == "project":  # a project cannot vouch for itself
        wishes["trust"] = wishes["network"] = False
    place = os.path.abspath(os.path.join(folder, os.path.expanduser(raw.cwd)))
    return ServerConfig(name=name, origin=origin, folder=place, **wishes)


def check_address(url: str) -> None:
    """Raises ConfigError for an address that is neither https nor local: others could read it."""
    address = parse_url(split_query(url)[0])
    if address.scheme != "https" and not is_loopback(address.host):
        raise ConfigError(f"{url!r}: an address that is not on this machine needs https")


def from_acp(servers: Iterable[Mapping[str, Json]]) -> dict[str, Json]:
    """Convert ACP's list of servers, with its name/value lists, to entries by name."""
    entries: dict[str, Json] = {}
    for server in servers:
        entry = dict(server)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(entry.pop("name", ""))).strip("-._")[:64]
        for field in ("env", "headers"):
            pairs = entry.get(field)
            if isinstance(pairs, list):
                entry[field] = {
                    str(pair.get("name", "")): str(pair.get("value", ""))
                    for pair in pairs
                    if isinstance(pair, dict)
                }
        entry.pop("_meta", None)
        entries[name or f"server-{len(entries) + 1}"] = entry
    return entries


# --- identity and variables ------------------------------------------------------------------


def fingerprint(server: ServerConfig) -> str:
    """Return a hash that differs for every entry that runs another program or calls another URL."""
    # `./server.py` is a different program in each project.
    place = os.path.realpath(server.folder) if server.origin == "project" else ""
    parts: Sequence[Json] = (
        place,
        server.command,
        server.args,
        sorted(server.env.items()),
        server.url,
        sorted(server.headers.items()),
        msgspec.to_builtins(server.oauth),
    )
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def expanded(
    server: ServerConfig, environ: Mapping[str, str], keys: Collection[str]
) -> ServerConfig:
    """Return the server with `${VAR}` and `${VAR:-default}` expanded. A project's file may not use
    the variables in `keys`, which hold the user's API keys.

    Raises:
        ConfigError: a variable is not set, or may not be used.
    """
    withheld = {RPC_TOKEN, *(keys if server.origin == "project" else ())}

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name in withheld:
            raise ConfigError(
                f"${{{name}}} holds a key of yours, which a project's file may not use; "
                f"put the server into your own {USER_FILE}"
            )
        if environ.get(name):
            return environ[name]
        if default is None:
            raise ConfigError(f"the variable {name} is not set")
        return str(default)

    def fill(text: str) -> str:
        return _VARIABLE.sub(value, text)

    return replace(
        server,
        command=expand_user(fill(server.command), environ),
        args=tuple(map(fill, server.args)),
        env={name: fill(text) for name, text in server.env.items()},
        url=fill(server.url),
        headers={name: fill(text) for name, text in server.headers.items()},
        oauth=replace(server.oauth, client_secret=fill(server.oauth.client_secret)),
    )


# --- changing a file -------------------------------------------------------------------------


def changed_file(path: str, name: str, entry: Mapping[str, Json] | None) -> bytes:
    """Return the file's content with one entry added or removed; the rest is unchanged. Raises
    ConfigError: the file cannot be read, or there is no such entry to remove."""
    data = read_bytes(path)
    try:
        content = msgspec.json.decode(data) if data and data.strip() else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path!r} is not valid JSON: {error}; repair it") from error
    servers = content.setdefault("mcpServers", {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{path!r} must be {{"mcpServers": {{NAME: {{...}}}}}}; repair it')
    if entry is not None:
        servers[name] = dict(entry)
    elif servers.pop(name, None) is None:
        raise ConfigError(f"there is no MCP server {name!r} in {path!r}")
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


# --- secrets ---------------------------------------------------------------------------------
# Texts that no model, client or file may see; the redactor decides whether one is long enough to be
# removed from ordinary text.


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
        texts |= set(header_secrets(name, value))
    for name, value in server.env.items():
        texts |= set(variable_secrets(name, value))
    return texts | set(argument_secrets(server.args))
