"""A worker's client for the hub: HTTP with a token, retried while the hub is unreachable."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from zot.bugs import complain
from zot.errors import ConfigError
from zot.files import write_atomic
from zot.swarm.task import SwarmError
from zot.swarm.temporal.config import WorkerPlace
from zot.swarm.temporal.remote import STOPPING, Superseded
from zot.swarm.web import LOOPBACK

REQUEST_SECONDS = 120.0
PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class HubAddress:
    def __init__(self, place: WorkerPlace) -> None:
        parts = urlsplit(place.hub)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the hub must be an address like https://host:7749: {place.hub!r}")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ConfigError(f"{place.hub!r} is on another machine: use https, or a tunnel")
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.token = place.token
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=place.ca_file or None)

    def connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=REQUEST_SECONDS)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=REQUEST_SECONDS, context=self._tls
        )


class HubClient:
    """Requests of one attempt; each names the attempt."""

    def __init__(self, address: HubAddress, id: str, attempt: int, worker: str) -> None:
        self._address = address
        self._id = id
        self._who = {"attempt": attempt, "worker": worker}
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._closed = False

    async def get(self, what: str, **words: Any) -> bytes:
        return await self._call("GET", what, words, b"")

    async def post(self, what: str, body: bytes | Path = b"", **words: Any) -> bytes:
        return await self._call("POST", what, words, body)

    async def fetch(self, what: str, path: Path, **words: Any) -> bool:
        """Download into a file; False: the answer was empty."""
        data = await self.get(what, **words)
        await asyncio.to_thread(write_atomic, path, data)
        return bool(data)

    def close(self) -> None:
        """Close all connections; pending requests fail, in whatever thread."""
        self._closed = True
        for connection in self._idle:
            connection.close()
        for connection in list(self._busy):
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

    async def _call(
        self, method: str, what: str, words: dict[str, Any], body: bytes | Path
    ) -> bytes:
        """Send a request, retrying connection failures. Raises Superseded, or SwarmError for errors
        that a retry would not fix."""
        failed = 0
        while True:
            try:
                status, data = await asyncio.to_thread(self._once, method, what, words, body)
            except ssl.SSLCertVerificationError as error:
                text = f"the hub's certificate cannot be trusted: {error.verify_message}; --ca-file"
                raise SwarmError(text) from error
            except (OSError, http.client.HTTPException) as error:
                if self._closed:
                    raise SwarmError(
                        f"the attempt at {self._id} is over: {what} is not sent"
                    ) from (error)
                if failed == len(PAUSE_SECONDS):
                    at = f"{self._address.host}:{self._address.port}"
                    complain(f"{self._id}: waiting for the hub at {at}: {error}")
                await asyncio.sleep(PAUSE_SECONDS[min(failed, len(PAUSE_SECONDS) - 1)])
                failed += 1
                continue
            if status < 300:
                return data
            raise _error(what, status, data)

    def _once(
        self, method: str, what: str, words: dict[str, Any], body: bytes | Path
    ) -> tuple[int, bytes]:
        connection = self._idle.pop() if self._idle else self._address.connect()
        self._busy.add(connection)
        path = f"/agents/{self._id}/{what}?{urlencode({**self._who, **words})}"
        headers = {"Authorization": f"Bearer {self._address.token}"}
        try:
            if isinstance(body, Path):
                headers["Content-Length"] = str(body.stat().st_size)
                with body.open("rb") as file:
                    connection.request(method, path, file, headers)
            else:
                connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            data = response.read()
            if response.status == STOPPING:
                raise ConnectionResetError("the hub is stopping")
        except BaseException:
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return response.status, data


def _error(what: str, status: int, data: bytes) -> SwarmError:
    try:
        text = str(msgspec.json.decode(data, type=dict[str, Any]).get("error"))
    except msgspec.DecodeError:
        text = f"status {status}"
    if status == 410:
        return Superseded(text)
    if status == 401:
        return SwarmError("the hub does not know this token: see ZOT_SWARM_TOKEN")
    return SwarmError(f"the hub refused {what}: {text[:500]}")
