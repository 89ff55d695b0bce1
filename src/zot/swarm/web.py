"""Code shared by the two HTTP servers, the workers' hub and the page of all agents: listening, size
limits, refusals. TLS and web libraries are imported on first use."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import msgspec

from zot.errors import ConfigError, UsageError, ZotError

if TYPE_CHECKING:
    import uvicorn
    from starlette import responses
    from starlette.applications import Starlette
    from starlette.requests import Request

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Refusal(ZotError):
    """A refused request; the text says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def check_reach(host: str, cert: str, key: str, flags: str, tunnel: str) -> None:
    """Require TLS where other machines can connect; `flags` names the certificate's options.

    Raises:
        UsageError: TLS is required and missing, or only one of certificate and key is given.
    """
    if bool(cert) != bool(key):
        raise UsageError(f"a certificate and its key belong together: {flags}")
    if host not in LOOPBACK and not cert:
        raise UsageError(
            f"{host!r} can be reached from other machines: give {flags}, or stay on 127.0.0.1 and "
            f"use a tunnel ({tunnel})"
        )


def listen(host: str, port: int, otherwise: str) -> socket.socket:
    """Open a listening socket. Raises ConfigError, which includes the hint `otherwise`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; {otherwise}"
        ) from error
    listening.listen(1024)
    return listening


def server(app: Starlette, cert: str, key: str, **more: Any) -> uvicorn.Server:
    """Create the server. Raises ConfigError for an unusable certificate."""
    try:
        if cert:
            import ssl

            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"cannot use certificate {cert!r} with key {key!r}: {why}") from error
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # request URLs are private
        server_header=False,
        ssl_certfile=cert or None,
        ssl_keyfile=key or None,
        lifespan="off",
        ws="none",
        **more,
    )
    return uvicorn.Server(config)


async def body_of(request: Request, most: int) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise Refusal(413, f"more than {most} bytes were sent")
        chunks.append(chunk)
    return b"".join(chunks)


def json_of(value: Any, status: int = 200) -> responses.Response:
    from starlette import responses

    return responses.Response(msgspec.json.encode(value), status, media_type="application/json")


def error_of(error: ZotError, status: int, code: str = "") -> responses.Response:
    return json_of({"error": str(error), "code": code or error.code}, status)
