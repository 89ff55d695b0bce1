"""Base of the JSON-RPC line servers (`zot acp`, `zot mcp-server`): dispatches messages, sends
requests to the client, runs work in threads, shuts down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, assert_never

from msgspec import Raw

from zot import jsonrpc
from zot.bugs import internal_error
from zot.errors import Cancelled, ZotError
from zot.home import Surroundings
from zot.lines import LineTooLong
from zot.settings.options import Options
from zot.wire.serving import STOP_SECONDS, LineServer


class JsonRpcServer(LineServer):
    drain = False  # a client that closes the input is gone; its requests are aborted
    join_seconds = STOP_SECONDS
    """Timeout for joining each thread at shutdown, in seconds."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        super().__init__()
        self.options = options
        self.around = around
        self.questions = jsonrpc.OpenRequests()
        self.lock = threading.Lock()
        self.threads: set[threading.Thread] = set()

    # --- for the subclass --------------------------------------------------------------------

    def take_request(self, id: jsonrpc.RpcId, method: str, params: Raw) -> None:
        """Answer a request, or start to; report errors as answers, too."""
        raise NotImplementedError

    def take_notification(self, method: str, params: Raw) -> None:
        raise NotImplementedError

    def fault_of(self, error: ZotError) -> jsonrpc.RpcFault:
        """Return the error response for this error."""
        return jsonrpc.RpcFault(jsonrpc.INTERNAL_ERROR, str(error))

    def put(self, line: bytes) -> None:
        self.writer.put(line)

    def answer(self, id: jsonrpc.RpcId, result: Any) -> None:
        self.put(jsonrpc.result_line(id, result))

    def answering(self, id: jsonrpc.RpcId, work: Callable[[], None]) -> None:
        """Run the work of a request; answer with an error if it raises."""
        try:
            work()
            return
        except jsonrpc.RpcError as error:
            fault = error.fault
        except ZotError as error:
            fault = self.fault_of(error)
        except Cancelled:
            fault = jsonrpc.RpcFault(jsonrpc.REQUEST_CANCELLED, "the request was cancelled")
        except Exception as error:  # a bug in zot ends this request, not the process
            fault = self.fault_of(internal_error(error))
        self.put(jsonrpc.fault_line(id, fault))

    def in_thread(self, name: str, work: Callable[[], None]) -> None:
        """Run work in a thread, which is joined at shutdown. Raises RuntimeError: the system
        allows no more threads."""

        def run() -> None:
            work()
            with self.lock:
                self.threads.discard(thread)

        thread = threading.Thread(target=run, name=name, daemon=True)
        with self.lock:
            self.threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            with self.lock:
                self.threads.discard(thread)
            raise

    # --- lines -------------------------------------------------------------------------------

    def is_whole(self, line: bytes) -> bool:
        return not isinstance(jsonrpc.read_message(line), jsonrpc.RpcGarbage)

    def take_line(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            text = f"the line is longer than {line.limit} bytes; it was skipped"
            self.put(jsonrpc.fault_line(None, jsonrpc.RpcFault(jsonrpc.INVALID_REQUEST, text)))
            return
        message = jsonrpc.read_message(line)
        match message:
            case jsonrpc.RpcRequest(id, method, params):
                self.take_request(id, method, params)
            case jsonrpc.RpcNotification(method, params):
                self.take_notification(method, params)
            case jsonrpc.RpcAnswer():
                self.questions.settle(message)
            case jsonrpc.RpcGarbage(fault):
                self.put(jsonrpc.fault_line(None, fault))
            case _:
                assert_never(message)

    # --- the end -----------------------------------------------------------------------------

    def input_ended(self) -> None:
        self.questions.close(jsonrpc.RpcFault(jsonrpc.INTERNAL_ERROR, "the client is gone"))

    def closing(self) -> None:
        with self.lock:
            threads = list(self.threads)
        for thread in threads:  # Python may crash when it ends while a thread still imports
            thread.join(self.join_seconds)
