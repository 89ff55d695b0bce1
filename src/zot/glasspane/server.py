"""The page's server: files, two event streams, and the actions behind the buttons."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Send

from zot.errors import ZotError
from zot.glasspane.board import Board
from zot.glasspane.feed import encode_event, next_batch
from zot.glasspane.guard import SAFE_HEADERS, Guard, Role
from zot.lines import LINE_ERRORS
from zot.swarm.local import LocalSwarm
from zot.swarm.log import read_log, start_of_last
from zot.swarm.task import NoSuchAgent, SwarmTask
from zot.swarm.web import Refusal, body_of, error_of, json_of
from zot.text import position_of

PAGE = Path(__file__).parent / "page"
FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    **{
        name: (name, "text/javascript; charset=utf-8")
        for name in (
            *("app.js", "board.js", "agent.js", "markdown.js", "dom.js", "diff.js"),
            *("stream.js", "worker.js", "feed.js", "session.js"),
        )
    },
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
TICK = 0.08
"""Seconds between two events of one agent's text."""
BOARD_TICK = 0.2
"""Seconds between two updates of the board."""
HEARTBEAT_SECONDS = 15.0
RETRY = b"retry: 500\n\n"
"""Reconnect delay of the browser, in milliseconds."""
MAX_BODY = 1024 * 1024
FIRST_BYTES = 2 * 1024 * 1024
"""Bytes of a log sent when an agent is opened; earlier ones on demand."""
SLOW_SECONDS = 20.0
"""Seconds after which a browser that reads nothing is disconnected."""

Handler = Callable[[Request], Awaitable[Response]]


class Glasspane:
    def __init__(self, board: Board, swarm: LocalSwarm, guard: Guard, directory: str) -> None:
        self._board = board
        self._swarm = swarm
        self._guard = guard
        self._directory = directory
        self.is_over: Callable[[], bool] = lambda: False
        """Whether the server is stopping; ends the streams."""
        self._done: dict[str, dict[str, Any]] = {}
        """Answers by click id, so that a repeated click acts only once."""

    def app(self) -> Starlette:
        routes = [
            Route("/login", self._guarded(self._login, None), methods=["POST"]),
            Route("/events", self._guarded(self._board_events, "see")),
            Route("/agents", self._guarded(self._new, "drive"), methods=["POST"]),
            Route("/agents/{id}/events", self._guarded(self._agent_events, "see")),
            Route("/agents/{id}/raw", self._guarded(self._raw, "see")),
            Route("/agents/{id}/diff", self._guarded(self._diff, "see")),
            Route("/agents/{id}/{action}", self._guarded(self._act, "answer"), methods=["POST"]),
            Route("/{name:path}", self._guarded(self._file, None)),
        ]
        return Starlette(routes=routes)

    def _guarded(self, handler: Handler, role: Role | None) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                self._guard.check_host(request.headers)
                if request.method == "POST":
                    self._guard.check_origin(request.headers)
                if role is not None:
                    self._guard.need(request.headers, role)
                response = await handler(request)
            except Refusal as error:
                response = error_of(error, error.status, "denied")
            except NoSuchAgent as error:
                response = error_of(error, 404)
            except ZotError as error:
                response = error_of(error, 400 if error.code == "invalid_params" else 409)
            response.headers.update(SAFE_HEADERS)
            return response

        return handle

    # --- the page ----------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        entry = FILES.get(request.path_params["name"])
        if entry is None or request.method != "GET":
            raise Refusal(404, "there is no such page")
        name, kind = entry
        return Response((PAGE / name).read_bytes(), media_type=kind)

    async def _login(self, request: Request) -> Response:
        """Log in with a code or token; without one, check the existing session."""
        fields = await _fields(request)
        answer = {"directory": self._directory}
        if "code" not in fields:
            return json_of({**answer, "role": self._guard.need(request.headers)})
        session, role = self._guard.log_in(str(fields["code"]), str(fields.get("click", "")))
        return json_of({**answer, "role": role, "session": session})

    # --- streams -----------------------------------------------------------------------------

    async def _board_events(self, request: Request) -> Response:
        return EventStream(self._board_stream())

    async def _board_stream(self) -> AsyncIterator[bytes]:
        """Yield a snapshot, then changes; a new connection starts with a snapshot again."""
        yield RETRY
        version, ids, silent = 0, frozenset[str](), 0.0
        while not self.is_over():
            self._board.refresh()
            gone = ids - self._board.ids()
            rows = self._board.rows(version)
            if rows or gone or version == 0:
                name = "changes" if version else "snapshot"
                ids = self._board.ids()
                version = max(self._board.version, 1)
                totals = self._board.totals()
                data = {"agents": rows, "removed": sorted(gone), "totals": totals}
                yield encode_event(name, data, str(version))
                silent = 0.0
            elif silent >= HEARTBEAT_SECONDS:
                yield b": still here\n\n"
                silent = 0.0
            await asyncio.sleep(BOARD_TICK)
            silent += BOARD_TICK

    async def _agent_events(self, request: Request) -> Response:
        log = self._board.log(request.path_params["id"])
        last = request.headers.get("last-event-id") or request.query_params.get("from") or ""
        seen = position_of(last)
        start = start_of_last(log, FIRST_BYTES) if seen is None else seen
        return EventStream(self._agent_stream(log, start, resumed=seen is not None))

    async def _agent_stream(
        self, log: Path, position: int, *, resumed: bool
    ) -> AsyncIterator[bytes]:
        yield RETRY
        if not resumed:
            yield encode_event("start", {"position": position}, str(position))
        silent = 0.0
        while not self.is_over():
            batch = next_batch(log, position)
            if batch.items:
                yield encode_event("facts", batch.items, str(batch.position))
                silent = 0.0
            elif silent >= HEARTBEAT_SECONDS:
                yield b": still here\n\n"
                silent = 0.0
            position = batch.position
            if not batch.more:
                await asyncio.sleep(TICK)
                silent += TICK

    # --- one agent ---------------------------------------------------------------------------

    async def _raw(self, request: Request) -> Response:
        """Return up to 200 frames as they were received."""
        log = self._board.log(request.path_params["id"])
        position = position_of(request.query_params.get("from", ""))
        if position is None:
            position = start_of_last(log, 64 * 1024)
        rows = []
        for after, row in read_log(log, position):
            position = after
            rows.append(row)
            if len(rows) == 200:
                break
        return json_of({"rows": rows, "position": position})

    async def _diff(self, request: Request) -> Response:
        diff = await asyncio.to_thread(self._swarm.diff, request.path_params["id"])
        return json_of({"diff": diff})

    async def _new(self, request: Request) -> Response:
        fields = await _fields(request)
        return await self._once(fields, self._submit)

    def _submit(self, fields: dict[str, Any]) -> dict[str, Any]:
        allowed = set(SwarmTask.__struct_fields__) - {"id", "created", "words", "parent"}
        options = {name: value for name, value in fields.items() if name in allowed}
        options = {"prompt": None, "directory": self._directory, **options}
        return {"id": self._swarm.submit(**options)}

    async def _act(self, request: Request) -> Response:
        id, action = request.path_params["id"], request.path_params["action"]
        self._board.log(id)  # raises NoSuchAgent
        if action not in ("approve", "answer"):
            self._guard.need(request.headers, "drive")
        fields = await _fields(request)
        return await self._once(fields, lambda said: self._do(id, action, said))

    def _do(self, id: str, action: str, fields: dict[str, Any]) -> dict[str, Any]:
        text = str(fields.get("text", ""))
        match action:
            case "send":
                return {"run": self._swarm.send(id, text)}
            case "steer":
                self._swarm.steer(id, text)
            case "cancel":
                self._swarm.cancel(id)
            case "retry":
                self._swarm.retry(id)
            case "merge":
                return {"commit": self._swarm.merge(id, squash=fields.get("squash") is True)}
            case "remove":
                self._swarm.remove(id)
            case "approve":
                decision = fields.get("decision")
                if decision not in ("allow", "deny", "allow_session"):
                    raise Refusal(
                        400, f"decision must be allow, deny or allow_session: {decision!r}"
                    )
                self._swarm.approve(
                    id, str(fields.get("request_id")), decision, str(fields.get("reason") or "")
                )
            case "answer":
                value = fields.get("value")
                self._swarm.answer(
                    id,
                    str(fields.get("request_id")),
                    value=value if isinstance(value, str) else None,
                    confirmed=fields.get("confirmed") is True,
                    cancelled=fields.get("cancelled") is True,
                )
            case _:
                raise Refusal(404, f"no action {action!r}")
        return {"ok": True}

    async def _once(
        self, fields: dict[str, Any], do: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Response:
        click = str(fields.get("click", ""))
        if click and click in self._done:
            return json_of(self._done[click])
        answer = await asyncio.to_thread(do, fields)
        if click:
            self._done[click] = answer
            if len(self._done) > 1000:
                self._done.pop(next(iter(self._done)))
        return json_of(answer)


async def _fields(request: Request) -> dict[str, Any]:
    data = await body_of(request, MAX_BODY)
    try:
        return msgspec.json.decode(data or b"{}", type=dict[str, Any])
    except LINE_ERRORS as error:
        raise Refusal(400, f"not a JSON object: {error}") from error


class EventStream(StreamingResponse):
    """Server-sent events. A browser that reads nothing is disconnected: it can reconnect with the
    id of its last event, and nothing is buffered for it meanwhile."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                await asyncio.wait_for(send(message), SLOW_SECONDS)
            except TimeoutError as error:
                sys.stderr.write(
                    f"zot: a browser took nothing for {SLOW_SECONDS:.0f} s and was let go; it goes "
                    "on where it was when it comes back\n"
                )
                raise OSError("the browser takes nothing") from error

        await super().stream_response(send_in_time)
