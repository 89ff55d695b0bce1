"""Where workers bring events, sessions and work, and fetch what their agents are told: a small HTTP
server in the supervisor. Temporal carries none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zot.errors import ZotError
from zot.lines import LINE_ERRORS
from zot.swarm.task import NoSuchAgent, SwarmError
from zot.swarm.temporal.config import TemporalConfig
from zot.swarm.temporal.remote import OrderReply, RemoteAgent, Superseded

MAX_JSON = 1024 * 1024
MAX_ROWS = 64 * 1024 * 1024
MAX_SESSION = 256 * 1024 * 1024
MAX_BUNDLE = 512 * 1024 * 1024

Handler = Callable[[Request, RemoteAgent], Awaitable[Response]]


class HubRefusal(ZotError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Hub:
    def __init__(
        self, config: TemporalConfig, token: str, remote: Callable[[str], RemoteAgent]
    ) -> None:
        self._config = config
        self._token = token.encode()
        self._remote = remote
        self._serving: asyncio.Task[None] | None = None
        self._server: uvicorn.Server | None = None

    def _served_with(self) -> uvicorn.Config:
        """Raises SwarmError for a certificate that cannot be used."""
        cert, key = self._config.tls_cert, self._config.tls_key
        served_with = uvicorn.Config(
            self.app(),
            log_level="warning",
            access_log=False,
            server_header=False,
            ssl_certfile=cert or None,
            ssl_keyfile=key or None,
            timeout_graceful_shutdown=1,
            lifespan="off",
            ws="none",
        )
        try:
            served_with.load()
        except OSError as error:
            raise SwarmError(
                f"the hub cannot use certificate {cert!r} with key {key!r}: "
                f"{error.strerror or error}; see zot swarm temporal config"
            ) from error
        return served_with

    async def start(self) -> None:
        config = self._config
        self._server = uvicorn.Server(self._served_with())
        family = socket.AF_INET6 if ":" in config.hub_host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((config.hub_host, config.hub_port))
        except OSError as error:
            listening.close()
            raise SwarmError(
                f"cannot listen for workers on {config.hub_host} port {config.hub_port}: "
                f"{error.strerror}; choose another with zot swarm temporal config --hub-port"
            ) from error
        listening.listen(1024)
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
                given = request.headers.get("authorization", "").removeprefix("Bearer ")
                if not hmac.compare_digest(given.encode(), self._token):
                    raise HubRefusal(401, "this token is not known")
                remote = self._remote(request.path_params["id"])
                if name != "claim":
                    remote.check(*_who(request))
                return await handler(request, remote)
            except Superseded as error:
                return _json({"error": str(error), "code": error.code}, 410)
            except NoSuchAgent as error:
                return _json({"error": str(error), "code": "superseded"}, 410)
            except HubRefusal as error:
                return _json({"error": str(error), "code": "refused"}, error.status)
            except LINE_ERRORS as error:
                return _json({"error": str(error), "code": "invalid_params"}, 400)
            except ZotError as error:
                return _json({"error": str(error), "code": error.code}, 409)

        return handle

    async def _claim(self, request: Request, remote: RemoteAgent) -> Response:
        return _json(await remote.claim(*_who(request)))

    async def _session(self, request: Request, remote: RemoteAgent) -> Response:
        return Response(remote.session())

    async def _take_session(self, request: Request, remote: RemoteAgent) -> Response:
        data = await _body(request, MAX_SESSION)
        remote.check(*_who(request))  # the body took its time
        return _json({"size": remote.take_session(_number(request, "at"), data)})

    async def _bundle(self, request: Request, remote: RemoteAgent) -> Response:
        have = [word for word in request.query_params.get("have", "").split(",") if word]
        if not all(_is_commit(word) for word in have):
            raise HubRefusal(400, "have must be commits")
        with tempfile.TemporaryDirectory(prefix="zot-bundle-") as folder:
            path = Path(folder) / "bundle"
            there = await remote.bundle(have, path)
            return Response(path.read_bytes()) if there else Response(status_code=204)

    async def _take_tip(self, request: Request, remote: RemoteAgent) -> Response:
        commit = request.query_params.get("commit", "")
        if not _is_commit(commit):
            raise HubRefusal(400, f"not a commit: {commit!r}")
        final = request.query_params.get("final") == "1"
        with tempfile.TemporaryDirectory(prefix="zot-bundle-") as folder:
            path = Path(folder) / "bundle"
            with path.open("wb") as file:
                async for chunk in request.stream():
                    file.write(chunk)
                    if file.tell() > MAX_BUNDLE:
                        raise HubRefusal(413, "the bundle is too large")
            remote.check(*_who(request))
            await remote.take_tip(commit, path if path.stat().st_size else None, final=final)
        return _json({"ok": True})

    async def _take_rows(self, request: Request, remote: RemoteAgent) -> Response:
        lines = (await _body(request, MAX_ROWS)).splitlines()
        remote.check(*_who(request))
        return _json({"taken": remote.take_rows(lines)})

    async def _orders(self, request: Request, remote: RemoteAgent) -> Response:
        child = remote.check(*_who(request))
        return _json(await child.orders(_number(request, "after")))

    async def _reply(self, request: Request, remote: RemoteAgent) -> Response:
        data = await _body(request, MAX_JSON)
        remote.check(*_who(request)).reply(msgspec.json.decode(data, type=OrderReply))
        return _json({"ok": True})


def _who(request: Request) -> tuple[int, str]:
    attempt, worker = _number(request, "attempt"), request.query_params.get("worker", "")
    if attempt < 1 or not worker:
        raise HubRefusal(400, "attempt must be at least 1, and worker a name")
    return attempt, worker


def _number(request: Request, name: str) -> int:
    word = request.query_params.get(name, "")
    with contextlib.suppress(ValueError):
        return int(word)
    raise HubRefusal(400, f"{name} must be a number, not {word[:40]!r}")


def _is_commit(word: str) -> bool:
    return len(word) in (40, 64) and all(letter in "0123456789abcdef" for letter in word)


async def _body(request: Request, most: int) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise HubRefusal(413, f"more than {most} bytes were sent")
        chunks.append(chunk)
    return b"".join(chunks)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
