"""Data about servers kept between runs, below `$ZOT_HOME/mcp/`: their lists, and the user's
consent.

A broken file must not open a door: if it cannot be read, nothing is accepted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from zot.errors import ConfigError
from zot.files import locked, read_bytes, write_atomic
from zot.mcp.protocol import McpToolInfo, ServerLists
from zot.text import Frozen, prepared

MAX_CACHE = 8 * 1024 * 1024


class Consent(Frozen, omit_defaults=True):
    """The user's consent for one server."""

    name: str = ""
    start: bool = False
    """A project's server may be started."""
    hints: bool = False
    """Its read-only tools run without approval."""
    seen: bool = False
    """Its tools were accepted once; those that differ are off."""
    tools: dict[str, str] = {}
    """The hash of each tool when it was accepted."""
    instructions: str = ""
    """Hash of the accepted instructions; empty: there were none."""


prepared(ServerLists, Consent)


class ServerStore:
    """The files; safe for several processes."""

    def __init__(self, home: str) -> None:
        self._folder = os.path.join(home, "mcp")
        self._trust = os.path.join(self._folder, "trust.json")

    # --- what servers bring ------------------------------------------------------------------

    def listed(self, fingerprint: str) -> ServerLists | None:
        """Return the last known lists of the server; None: unknown."""
        try:
            data = read_bytes(self._cache(fingerprint))
            return None if data is None else msgspec.json.decode(data, type=ServerLists)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def keep_listed(self, fingerprint: str, listed: ServerLists) -> None:
        """Cache the lists; write errors and oversized lists are ignored."""
        data = msgspec.json.encode(listed)
        if len(data) > MAX_CACHE:
            return
        try:
            write_atomic(self._cache(fingerprint), data)
        except OSError:
            pass

    def forget(self, fingerprint: str) -> None:
        """Delete all data about a server."""
        try:
            os.unlink(self._cache(fingerprint))
        except OSError:
            pass
        self._change(fingerprint, None)

    def _cache(self, fingerprint: str) -> str:
        return os.path.join(self._folder, "cache", f"{fingerprint}.json")

    # --- what the user agreed to -------------------------------------------------------------

    def consent(self, fingerprint: str) -> Consent:
        try:
            return self._read().get(fingerprint, Consent())
        except ConfigError:
            return Consent(seen=True)

    def allow(self, fingerprint: str, name: str, *, hints: bool | None = None) -> None:
        """Record that the server may start, and optionally that its hints are trusted."""
        now = self.consent(fingerprint)
        hints = now.hints if hints is None else hints
        self._change(fingerprint, replace(now, name=name, start=True, hints=hints))

    def accept(self, fingerprint: str, name: str, listed: ServerLists) -> None:
        """Record these lists as accepted."""
        faces = {tool.name: tool.face for tool in listed.tools}
        face = instructions_face(listed)
        now = self.consent(fingerprint)
        consent = replace(now, name=name, seen=True, tools=faces, instructions=face)
        self._change(fingerprint, consent)

    def _read(self) -> dict[str, Consent]:
        try:
            data = read_bytes(self._trust)
            return {} if data is None else msgspec.json.decode(data, type=dict[str, Consent])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{self._trust!r} cannot be read: {error}; repair it") from error

    def _change(self, fingerprint: str, consent: Consent | None) -> None:
        try:
            with locked(self._trust):
                servers = self._read()
                if consent is None:
                    if servers.pop(fingerprint, None) is None:
                        return
                else:
                    servers[fingerprint] = consent
                data = msgspec.json.format(msgspec.json.encode(servers), indent=2)
                write_atomic(self._trust, data + b"\n")
        except OSError as error:
            raise ConfigError(f"cannot write {self._trust!r}: {error.strerror or error}") from error


def instructions_face(listed: ServerLists) -> str:
    """Return a hash of the instructions; empty: there are none."""
    text = listed.instructions
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16] if text else ""


def changed_tools(consent: Consent, tools: Sequence[McpToolInfo]) -> list[McpToolInfo]:
    """Return the tools that the user has not accepted: a changed text or schema, or new."""
    return [tool for tool in tools if consent.tools.get(tool.name) != tool.face]
