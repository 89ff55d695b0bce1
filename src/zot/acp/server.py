"""`zot acp`: the Agent Client Protocol over stdin and stdout, for editors.

The main thread reads and answers; it never waits for a turn. `initialize` is answered before the
agent is loaded. A connection has several sessions, each with its own directory and runtime.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Raw

from zot import __version__, jsonrpc
from zot.acp import commands
from zot.acp.commands import LOGIN, AcpRequest, ClientAbilities, SlowRequest
from zot.acp.shapes import fault_of
from zot.cancel import Cancel
from zot.errors import ZotError
from zot.home import Surroundings, own_command
from zot.settings.options import Options
from zot.wire.jsonrpc_server import JsonRpcServer

if TYPE_CHECKING:
    from zot.acp import sessions
    from zot.acp.sessions import AcpSessions

PROTOCOL_VERSION = 1
MAX_WAITING = 64
"""Maximum number of requests in progress, not counting prompts."""
CAPABILITIES: dict[str, Any] = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
    "auth": {"logout": {}},
}


def serve(options: Options, around: Surroundings) -> int:
    """Serve until stdin closes or a signal arrives; return the exit code."""
    return AcpServer(options, around).serve()


class AcpServer(JsonRpcServer):
    def __init__(self, options: Options, around: Surroundings) -> None:
        super().__init__(options, around, "$/cancel_request")
        self.abilities = ClientAbilities()
        self._working: dict[jsonrpc.RpcId, Cancel] = {}
        self._loaded: AcpSessions | None = None
        self._loading = threading.Lock()

    # --- requests ----------------------------------------------------------------------------

    def take_request(self, id: jsonrpc.RpcId, method: str, params: Raw) -> None:
        self.answering(id, lambda: self._take(id, commands.read_request(method, params)))

    def fault_of(self, error: ZotError) -> jsonrpc.RpcFault:
        return fault_of(error)

    def _take(self, id: jsonrpc.RpcId, request: AcpRequest) -> None:
        match request:
            case commands.Initialize():
                self.abilities = request.client_capabilities
                self.peer.answer(id, self._initialized())
                self._load_behind()
            case commands.Prompt(session_id, blocks):
                self.sessions.prompt(id, session_id, blocks)
            case commands.SetMode(session_id, mode):
                self.sessions.get(session_id).set_mode(mode)
                self.peer.answer(id, {})
            case commands.SetConfigOption(session_id, option, value):
                changed = self.sessions.get(session_id).set_option(option, value)
                self.peer.answer(id, {"configOptions": changed})
            case _:
                self._begin(id, request)

    def _initialized(self) -> dict[str, Any]:
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": CAPABILITIES,
            "authMethods": [self._login_method()],
            "agentInfo": {"name": "zot", "title": "zot", "version": __version__},
        }

    def _login_method(self) -> dict[str, Any]:
        name = "Set up a provider"
        if not self.abilities.terminal_auth:
            text = "Run `zot login` in a terminal, or set the provider's variable; then try again"
            return {"id": LOGIN, "name": name, "description": text}
        text = "Log in to a model provider, or give its key"
        method: dict[str, Any] = {"id": LOGIN, "name": name, "description": text}
        method |= {"type": "terminal", "args": ["--login"]}
        if "terminal-auth" in self.abilities.meta:
            # The convention before the protocol had terminal logins: send the whole command.
            program, *words = own_command("acp", "--login")
            command = {"command": program, "args": words, "label": name}
            method["_meta"] = {"terminal-auth": command}
        return method

    def take_notification(self, method: str, params: Raw) -> None:
        notification = commands.read_notification(method, params)
        match notification:
            case None:
                pass
            case commands.Cancel(session_id):
                if self._loaded is not None:
                    self._loaded.cancel(session_id)
            case commands.CancelRequest(request_id):
                with self.lock:
                    cancel = self._working.get(request_id)
                if cancel is not None:
                    cancel.set()
                elif self._loaded is not None:
                    self._loaded.cancel_request(request_id)
            case _:
                assert_never(notification)

    def _begin(self, id: jsonrpc.RpcId, request: SlowRequest) -> None:
        cancel = Cancel()
        with self.lock:
            if len(self._working) >= MAX_WAITING:
                raise jsonrpc.RpcError(
                    jsonrpc.INTERNAL_ERROR, f"{MAX_WAITING} requests are being worked on"
                )
            self._working[id] = cancel

        def work() -> None:
            self.answering(id, lambda: self.sessions.take(id, request, cancel))
            with self.lock:
                self._working.pop(id, None)

        self.threads.start("zot-acp-request", work)

    # --- sessions ----------------------------------------------------------------------------

    @property
    def sessions(self) -> sessions.AcpSessions:
        with self._loading:
            if self._loaded is None:
                # Deferred import: initialize is answered without loading the agent.
                from zot.acp import sessions

                self._loaded = sessions.AcpSessions(self, self.options, self.around)
            return self._loaded

    def _load_behind(self) -> None:
        """Load the agent in the background, before the client opens a session."""

        def load() -> None:
            _ = self.sessions

        try:
            self.threads.start("zot-acp-load", load)
        except RuntimeError:
            pass  # no thread available; the next request loads it

    # --- the end -----------------------------------------------------------------------------

    @property
    def has_runtime(self) -> bool:
        return self._loaded is not None or self.threads.working() > 0

    def abort_everything(self) -> None:
        self.input_ended()
        with self.lock:
            working = list(self._working.values())
        for cancel in working:
            cancel.set()
        if self._loaded is not None:
            self._loaded.abort_all()

    def release(self) -> None:
        if self._loaded is not None:
            self._loaded.close_all()
