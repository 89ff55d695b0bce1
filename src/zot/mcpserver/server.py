"""`zot mcp-server`: tools over stdin and stdout, for other agents.

The main thread reads and answers; each tool call has its own thread. A client is answered before
the agent is loaded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from zot import jsonrpc
from zot.errors import CommandError
from zot.home import Surroundings
from zot.mcpserver import protocol, tools
from zot.mcpserver.protocol import JsonObject, McpParams, McpPeer
from zot.settings.options import Options
from zot.wire.jsonrpc_server import JsonRpcServer
from zot.wire.serving import STOP_SECONDS

if TYPE_CHECKING:
    from zot.mcpserver.job import McpJob

MAX_JOBS = 16
MAX_HELD = 32
"""Maximum number of results held for clients that have not answered a question."""


def serve(options: Options, around: Surroundings) -> int:
    """Serve until stdin closes or a signal arrives; return the exit code."""
    return ZotMcpServer(options, around).serve()


class ZotMcpServer(JsonRpcServer):
    join_seconds = 2 * STOP_SECONDS

    def __init__(self, options: Options, around: Surroundings) -> None:
        super().__init__(options, around, "notifications/cancelled")
        self._greeted = McpPeer()
        self._calls: dict[jsonrpc.RpcId, McpJob] = {}
        """Jobs by the id of the call that waits for them."""
        self._asked: dict[str, McpJob] = {}
        """Jobs whose last call was answered with a question, by its request state."""
        self._results: dict[str, JsonObject] = {}
        """Results of such jobs that have ended, by request state."""

    # --- requests ----------------------------------------------------------------------------

    def take_request(self, id: jsonrpc.RpcId, method: str, params: Raw) -> None:
        def work() -> None:
            result = self._request(id, method, protocol.read_params(params))
            if result is not None:
                self.peer.answer(id, result)

        self.answering(id, work)

    def _request(self, id: jsonrpc.RpcId, method: str, params: McpParams) -> JsonObject | None:
        """Return the result; None: it follows later."""
        peer = protocol.peer_of(params, self._greeted)
        match method:
            case "initialize":
                self._greeted = McpPeer(forms=protocol.has_forms(params.capabilities))
                return protocol.initialized(params)
            case "server/discover":
                return protocol.discovered()
            case "ping":
                return {}
            case "tools/list":
                return protocol.listed(tools.tool_list(), peer)
            case "tools/call" if params.request_state:
                return self._call_again(id, params)
            case "tools/call":
                return self._call(id, params, peer)
            case _:
                raise jsonrpc.RpcError(jsonrpc.METHOD_NOT_FOUND, f"there is no method {method!r}")

    def take_notification(self, method: str, params: Raw) -> None:
        if method != "notifications/cancelled":
            return
        try:
            cancelled = protocol.read_params(params).request_id
        except jsonrpc.RpcError:
            return
        with self.lock:
            job = None if cancelled is UNSET else self._calls.pop(cancelled, None)
        if job is not None:
            job.cancel()  # a cancelled request gets no answer

    # --- calls -------------------------------------------------------------------------------

    def _call(self, id: jsonrpc.RpcId, params: McpParams, peer: McpPeer) -> JsonObject | None:
        try:
            arguments = tools.arguments_of(params.name, params.arguments)
        except CommandError as error:
            return protocol.called(str(error), peer, failed=True)
        if arguments is None:
            raise jsonrpc.RpcError(
                jsonrpc.INVALID_PARAMS, f"there is no tool {params.name!r}: zot, zot_reply"
            )
        if self.threads.working() >= MAX_JOBS:
            text = f"{MAX_JOBS} tasks are being worked on; try later"
            return protocol.called(text, peer, failed=True)
        from zot.mcpserver import job as mcp_jobs

        job = mcp_jobs.McpJob(self, peer, arguments, params.progress_token)

        with self.lock:
            self._calls[id] = job
        self.threads.start(
            "zot-mcp-job", lambda: self._ended(job, job.work(self.options, self.around))
        )
        return None

    def _call_again(self, id: jsonrpc.RpcId, params: McpParams) -> JsonObject | None:
        """Handle a call that brings the answer to a question."""
        state = params.request_state
        with self.lock:
            result = self._results.pop(state, None)
            job = self._asked.pop(state, None)
            if job is not None:
                self._calls[id] = job
        if result is not None:
            return result
        if job is None:
            raise jsonrpc.RpcError(
                jsonrpc.INVALID_PARAMS, "nothing waits for this answer: it is too late"
            )
        job.token = params.progress_token
        job.answered(params.input_responses)
        return None

    def _ended(self, job: McpJob, result: JsonObject) -> None:
        """Answer the call that waits for the job, or keep the result for the next call."""
        with self.lock:
            waiting = self._taken(job)
            for state in [state for state, other in self._asked.items() if other is job]:
                del self._asked[state]
                self._results[state] = result
                while len(self._results) > MAX_HELD:
                    del self._results[next(iter(self._results))]
        for id in waiting:
            self.peer.answer(id, result)

    def _taken(self, job: McpJob) -> list[jsonrpc.RpcId]:
        """Remove and return the calls that wait for the job; the caller holds the lock."""
        waiting = [id for id, other in self._calls.items() if other is job]
        for id in waiting:
            del self._calls[id]
        return waiting

    def answer_with_questions(self, job: McpJob, forms: dict[str, JsonObject]) -> None:
        """Answer the call that waits for the job, if any, with its questions."""
        state = os.urandom(16).hex()
        with self.lock:
            waiting = self._taken(job)
            if waiting:
                self._asked[state] = job
        for id in waiting:
            self.peer.answer(id, protocol.input_required(forms, state))

    # --- the end -----------------------------------------------------------------------------

    @property
    def has_runtime(self) -> bool:
        return self.threads.working() > 0

    def abort_everything(self) -> None:
        self.input_ended()
        with self.lock:
            jobs = [*self._calls.values(), *self._asked.values()]
        for job in jobs:
            job.cancel()
