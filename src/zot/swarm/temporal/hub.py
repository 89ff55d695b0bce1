"""HTTP between the supervisor and its workers. At the hub, workers deliver events, sessions and
work, and fetch commands for their agents; Temporal carries none of this. A worker's client retries
while the hub is unreachable."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http.client
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zot.bugs import complain
from zot.errors import ConfigError, ZotError
from zot.files import write_atomic
from zot.lines import LINE_ERRORS
from zot.swarm.task import NoSuchAgent, SwarmError
from zot.swarm.temporal.config import TemporalConfig, WorkerPlace
from zot.swarm.temporal.remote import STOPPING, OrderReply, RemoteAgent, Superseded
from zot.swarm.web import LOOPBACK, Refusal, body_of, error_of, json_of, listen, server

REQUEST_SECONDS = 120.0
PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
MAX_JSON = 1024 * 1024
MAX_ROWS = 64 * 1024 * 1024
MAX_SESSION = 256 * 1024 * 1024
MAX_BUNDLE = 512 * 1024 * 1024

Handler = Callable[[Request, RemoteAgent], Awaitable[Response]]


class Hub:
    def __init__(
        self, config: TemporalConfig, token: str, remote: Callable[[str], RemoteAgent]
    ) -> None:
        self._config = config
        self._token = token.encode()
        self._remote = remote
        self._serving: asyncio.Task[None] | None = None
        self._server: uvicorn.Server | None = None

    async def start(self) -> None:
        config = self._config
        self._server = server(
            self.app(), config.tls_cert, config.tls_key, timeout_graceful_shutdown=1
        )
        otherwise = "choose another for workers with zot swarm temporal config --hub-port"
        listening = listen(config.hub_host, config.hub_port, otherwise)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving

    def app(self) -> Starlette:
        routes = [
            ("claim", "POST", self._claim),
            ("session", "GET", self._session),
            ("session", "POST", self._take_session),
            ("bundle", "GET", self._bundle),
            ("tip", "POST", self._take_tip),
            ("rows", "POST", self._take_rows),
            ("orders", "GET", self._orders),
            ("reply", "POST", self._reply),
        ]
        return Starlette(
            routes=[
                Route(f"/agents/{{id}}/{name}", self._guarded(handler, name), methods=[method])
                for name, method, handler in routes
            ]
        )

    def _guarded(self, handler: Handler, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                token = request.headers.get("authorization", "").removeprefix("Bearer ")
                if not hmac.compare_digest(token.encode(), self._token):
                    raise Refusal(401, "this token is not known")
                remote = self._remote(request.path_params["id"])
                if name != "claim":
                    remote.check(*_who(request))
                return await handler(request, remote)
            except (Superseded, NoSuchAgent) as error:
                return error_of(error, 410, Superseded.code)
            except Refusal as error:
                return error_of(error, error.status, "refused")
            except LINE_ERRORS as error:
                return json_of({"error": str(error), "code": "invalid_params"}, 400)
            except ZotError as error:
                return error_of(error, 409)
            except FileNotFoundError as error:
                # `rm` may remove an agent while a request of its worker is answered; the worker
                # asks again, and hears then that the agent is gone.
                missing = ZotError(f"a file of the agent is gone: {error.filename}")
                return error_of(missing, 409)
            except asyncio.CancelledError:
                if self._server is None or not self._server.should_exit:
                    raise
                # The server would log the cancel as an error of ours.
                return json_of({"error": "the hub is stopping", "code": "stopping"}, STOPPING)

        return handle

    async def _claim(self, request: Request, remote: RemoteAgent) -> Response:
        return json_of(await remote.claim(*_who(request)))

    async def _session(self, request: Request, remote: RemoteAgent) -> Response:
        return Response(remote.session())

    async def _take_session(self, request: Request, remote: RemoteAgent) -> Response:
        data = await body_of(request, MAX_SESSION)
        remote.check(*_who(request))  # again: reading the body took time
        return json_of({"size": remote.take_session(_number(request, "at"), data)})

    async def _bundle(self, request: Request, remote: RemoteAgent) -> Response:
        have = [word for word in request.query_params.get("have", "").split(",") if word]
        if not all(_is_commit(word) for word in have):
            raise Refusal(400, "have must be commits")
        bundle = await remote.bundle(have)
        return Response(bundle) if bundle else Response(status_code=204)

    async def _take_tip(self, request: Request, remote: RemoteAgent) -> Response:
        commit = request.query_params.get("commit", "")
        if not _is_commit(commit):
            raise Refusal(400, f"not a commit: {commit!r}")
        final = request.query_params.get("final") == "1"
        bundle = await body_of(request, MAX_BUNDLE)
        await remote.take_tip(*_who(request), commit, bundle, final=final)
        return json_of({"ok": True})

    async def _take_rows(self, request: Request, remote: RemoteAgent) -> Response:
        lines = (await body_of(request, MAX_ROWS)).splitlines()
        remote.check(*_who(request))
        return json_of({"taken": remote.take_rows(lines)})

    async def _orders(self, request: Request, remote: RemoteAgent) -> Response:
        child = remote.check(*_who(request))
        return json_of(await child.orders(_number(request, "after")))

    async def _reply(self, request: Request, remote: RemoteAgent) -> Response:
        data = await body_of(request, MAX_JSON)
        remote.check(*_who(request)).reply(msgspec.json.decode(data, type=OrderReply))
        return json_of({"ok": True})


def _who(request: Request) -> tuple[int, str]:
    attempt, worker = _number(request, "attempt"), request.query_params.get("worker", "")
    if attempt < 1 or not worker:
        raise Refusal(400, "attempt must be at least 1, and worker a name")
    return attempt, worker


def _number(request: Request, name: str) -> int:
    word = request.query_params.get(name, "")
    with contextlib.suppress(ValueError):
        return int(word)
    raise Refusal(400, f"{name} must be a number, not {word[:40]!r}")


def _is_commit(word: str) -> bool:
    return len(word) in (40, 64) and all(letter in "0123456789abcdef" for letter in word)


# --- the worker's side ----------------------------------------------------------------------------


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
