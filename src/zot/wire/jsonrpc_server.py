"""Base of the JSON-RPC line servers (`zot acp`, `zot mcp-server`): reads messages for an RpcPeer,
turns errors into responses, runs work in threads, shuts down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec import Raw

from zot.bugs import internal_error
from zot.errors import Cancelled, ZotError
from zot.home import Surroundings
from zot.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    RpcError,
    RpcFault,
    RpcGarbage,
    RpcId,
    RpcPeer,
    read_message,
)
from zot.lines import LineTooLong
from zot.settings.options import Options
from zot.wire.serving import STOP_SECONDS, LineServer, Threads


class JsonRpcServer(LineServer):
    drain = False  # a client that closes the input is gone; its requests are aborted
    join_seconds = STOP_SECONDS
    """Timeout for joining each thread at shutdown, in seconds."""

    def __init__(self, options: Options, around: Surroundings, cancel_method: str) -> None:
        super().__init__()
        self.options = options
        self.around = around
        self.peer = RpcPeer(self.writer.put, self, cancel_method)
        self.lock = threading.Lock()
        self.threads = Threads()
        """Joined at shutdown: Python may crash when it ends while a thread still imports."""

    # --- for the subclass --------------------------------------------------------------------

    def take_request(self, id: RpcId, method: str, params: Raw) -> None:
        """Answer a request, or start to; report errors as answers, too."""
        raise NotImplementedError

    def take_notification(self, method: str, params: Raw) -> None:
        raise NotImplementedError

    def fault_of(self, error: ZotError) -> RpcFault:
        """Return the error response for this error."""
        return RpcFault(INTERNAL_ERROR, str(error))

    def answering(self, id: RpcId, work: Callable[[], None]) -> None:
        """Run the work of a request; answer with an error if it raises."""
        try:
            work()
            return
        except RpcError as error:
            fault = error.fault
        except ZotError as error:
            fault = self.fault_of(error)
        except Cancelled:
            fault = RpcFault(REQUEST_CANCELLED, "the request was cancelled")
        except Exception as error:  # a bug in zot ends this request, not the process
            fault = self.fault_of(internal_error(error))
        self.peer.answer(id, fault)

    # --- lines -------------------------------------------------------------------------------

    def is_whole(self, line: bytes) -> bool:
        return not isinstance(read_message(line), RpcGarbage)

    def take_line(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            text = f"the line is longer than {line.limit} bytes; it was skipped"
            self.peer.answer(None, RpcFault(INVALID_REQUEST, text))
        else:
            self.peer.dispatch(read_message(line))

    # --- the end -----------------------------------------------------------------------------

    def input_ended(self) -> None:
        self.peer.close(RpcFault(INTERNAL_ERROR, "the client is gone"))

    def closing(self) -> None:
        self.threads.join(self.join_seconds)
