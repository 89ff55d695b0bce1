"""The sessions of one ACP connection: found, opened, listed, closed.

Each is on disk from the beginning, so that another process can continue it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, assert_never

from msgspec.structs import replace

from zot.acp import commands, shapes
from zot.acp.commands import LOGIN, JsonObject, SlowRequest
from zot.acp.session import AcpPrompt, AcpSession, prompt_content
from zot.acp.shapes import NOT_FOUND
from zot.acp.updates import MAX_TITLE
from zot.bugs import complain
from zot.cancel import Cancel
from zot.core.tool import shortened
from zot.errors import AuthError, CommandError, SessionError
from zot.home import Surroundings
from zot.jsonrpc import RpcError, RpcId
from zot.mcp.config import from_acp
from zot.provider.auth.resolve import forget
from zot.provider.auth.store import AuthFile
from zot.sessions import library
from zot.sessions.open import begin_session, in_use
from zot.sessions.rows import rfc3339
from zot.settings.options import Options
from zot.settings.resolve import Plan, plan
from zot.text import position_of

if TYPE_CHECKING:
    from zot.acp.server import AcpServer

MAX_SESSIONS = 64
FREE_SECONDS = 5.0
"""Seconds to wait for another process to release a session."""
PAGE = 50
"""Sessions per answer to `session/list`."""


class AcpSessions:
    """The sessions; thread-safe."""

    def __init__(self, wire: AcpServer, options: Options, around: Surroundings) -> None:
        self._wire = wire
        self._options = options
        self._around = around
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        """Held while a stored session is opened, closed or deleted."""
        self._open: dict[str, AcpSession] = {}
        self._being_made = 0
        self._over = False

    # --- prompts -----------------------------------------------------------------------------

    def get(self, id: str) -> AcpSession:
        """Return an open session. Raises RpcError: there is none with this id."""
        with self._lock:
            session = self._open.get(id)
        if session is None:
            raise RpcError(NOT_FOUND, f"no session {id!r} is open here: create, load or resume it")
        return session

    def prompt(self, id: RpcId, session_id: str, blocks: list[Any]) -> None:
        """Accept a prompt; the answer follows when it ends."""
        self.get(session_id).prompt(AcpPrompt(id, prompt_content(blocks)))

    def cancel(self, session_id: str) -> None:
        with self._lock:
            session = self._open.get(session_id)
        if session is not None:
            session.cancel(every=True)

    def cancel_request(self, id: RpcId) -> None:
        """Cancel the prompt of this request, in any session."""
        for session in self._all():
            session.cancel(id)

    def _all(self) -> list[AcpSession]:
        with self._lock:
            return list(self._open.values())

    # --- slow requests -----------------------------------------------------------------------

    def take(self, id: RpcId, request: SlowRequest, cancel: Cancel) -> None:
        """Carry out a request and answer it. Raises RpcError, ZotError: it failed, which becomes
        the answer; Cancelled: the client cancelled it."""
        result: Any = {}
        match request:
            case commands.NewSession():
                self._new(id, request)
                return
            case commands.LoadSession() | commands.ResumeSession():
                with self._opening:
                    self._go_on_with(id, request, cancel)
                return
            case commands.ListSessions(cwd, cursor):
                result = _listed(cwd, cursor, self._around.home)
            case commands.CloseSession(session_id):
                with self._opening:
                    self.get(session_id)
                    self._close(session_id)
            case commands.DeleteSession(session_id):
                with self._opening:
                    self._delete(session_id)
            case commands.Authenticate(method):
                self._authenticate(method)
            case commands.Logout():
                self._log_out()
            case _:
                assert_never(request)
        self._wire.peer.answer(id, result)

    # --- opening -----------------------------------------------------------------------------

    def _new(self, id: RpcId, request: commands.NewSession) -> None:
        planned = plan(self._options_in(request.cwd), self._around)
        setup = planned.setup
        if not setup.options.no_session:
            provider, model = setup.info.name, setup.model.id
            stored = begin_session(
                setup.cwd, self._around.home, provider=provider, model=model, at_once=True
            )
            planned = replace(planned, session=stored)
        session = self._add(planned, request.mcp_servers)
        self._wire.peer.answer(id, session.opened(new=True))
        session.begin(_warnings(planned))

    def _go_on_with(self, id: RpcId, request: commands.StoredSession, cancel: Cancel) -> None:
        options = self._options_in(request.cwd)
        path = self._path_of(request.session_id)
        self._close(request.session_id)  # it may be open here, with another directory
        _wait_until_free(path, cancel)
        planned = plan(replace(options, session=path), self._around)
        session = self._add(planned, request.mcp_servers)
        session.runtime.sessions.adopt()  # flags apply to new sessions only
        if isinstance(request, commands.LoadSession):
            session.replay(cancel)
        self._wire.peer.answer(id, session.opened(new=False))
        session.begin(_warnings(planned))

    def _options_in(self, cwd: str) -> Options:
        if not os.path.isabs(cwd):
            raise CommandError(f"cwd must be an absolute path, not {cwd!r}")
        return replace(self._options, cwd=cwd)

    def _add(self, planned: Plan, servers: Sequence[JsonObject]) -> AcpSession:
        try:
            with self._room_for_one():
                session = AcpSession(planned, self._wire, from_acp(servers))
                with self._lock:
                    over = self._over
                    self._open[session.id] = session
        except BaseException:
            if planned.session is not None:
                planned.session.close()
            raise
        if over:
            session.abort()
        return session

    @contextmanager
    def _room_for_one(self) -> Iterator[None]:
        with self._lock:
            if len(self._open) + self._being_made >= MAX_SESSIONS:
                raise CommandError(f"{MAX_SESSIONS} sessions are open: close one", code="busy")
            self._being_made += 1
        try:
            yield
        finally:
            with self._lock:
                self._being_made -= 1

    # --- the rest ----------------------------------------------------------------------------

    def _close(self, session_id: str) -> None:
        with self._lock:
            session = self._open.pop(session_id, None)
        if session is not None:
            session.close()

    def _delete(self, session_id: str) -> None:
        path = self._path_of(session_id)
        self._close(session_id)
        if in_use(path):
            raise SessionError(f"the session {session_id!r} is in use by another process")
        library.remove(path)

    def _authenticate(self, method: str) -> None:
        if method != LOGIN:
            raise CommandError(f"there is no way to log in called {method!r}: {LOGIN}")
        plan(replace(self._options, cwd=""), self._around)  # raises if something is missing

    def _log_out(self) -> None:
        """Delete the logins and keys that zot stores; variables are not zot's to delete."""
        file = AuthFile(self._around.home)
        stored = file.all()
        if not stored:
            raise AuthError("there is no login to forget: keys come from variables or flags")
        for name in stored:
            forget(file, name)

    def _path_of(self, id: str) -> str:
        try:
            return library.find_id(id, self._around.home)
        except SessionError as error:
            raise RpcError(NOT_FOUND, str(error), {"code": error.code}) from error

    # --- the end -----------------------------------------------------------------------------

    def abort_all(self) -> None:
        """Cancel everything; does not wait."""
        with self._lock:
            self._over = True
        for session in self._all():
            session.abort()

    def close_all(self) -> None:
        for session in self._all():
            self._close(session.id)


def _wait_until_free(path: str, cancel: Cancel) -> None:
    """Wait for another process: a client that restarts the agent requests its session while the old
    process is still ending. Raises Cancelled."""
    end = time.monotonic() + FREE_SECONDS
    while in_use(path) and time.monotonic() < end:
        cancel.sleep(0.05)


def _listed(cwd: str | None, cursor: str | None, home: str) -> shapes.SessionsListed:
    """Return a page of sessions. Raises CommandError: the cursor is unknown."""
    start = position_of(cursor or "0")
    if start is None:
        raise CommandError(f"there is no cursor {cursor!r:.80}")
    infos, place = library.page(cwd, home, start, PAGE)
    sessions = (
        shapes.ListedSession(
            info.id,
            info.cwd,
            info.title or shortened(info.first_text, MAX_TITLE) or None,
            rfc3339(info.modified) if info.modified else None,
        )
        for info in infos
    )
    return shapes.SessionsListed(tuple(sessions), None if place is None else str(place))


def _warnings(planned: Plan) -> list[str]:
    """Return the warnings about the session; also print them on stderr."""
    setup = planned.setup
    texts = [*setup.warnings, *([setup.notice] if setup.notice else [])]
    for text in texts:
        complain(text)
    return texts
