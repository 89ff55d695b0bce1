"""Calls of zot's own tools by an extension, with `call_tool`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import Cancelled, ZotError
from zot.extensions import proto
from zot.extensions.deliver import content_of
from zot.provider.types import Json, Text

if TYPE_CHECKING:
    from zot.extensions.extension import HostedExtension

MAX_AT_ONCE = 8
TIMEOUT = 60.0

RunTool = Callable[[str, dict[str, Json], ToolContext], ToolOutput | str]
"""Runs one of zot's tools, with all its guards. Raises ToolError."""


class HostCalls:
    """The running calls, each in its own thread."""

    def __init__(self, run_tool: RunTool | None) -> None:
        self._run_tool = run_tool
        self._lock = threading.Lock()
        self._running: dict[tuple[str, str], Cancel] = {}

    def start(self, caller: HostedExtension, call: proto.CallTool) -> None:
        key = (caller.name, call.id)
        if self._run_tool is None:
            refuse(caller, call, "this host does not run tools for extensions")
            return
        with self._lock:
            busy = sum(name == caller.name for name, _ in self._running)
            accepted = busy < MAX_AT_ONCE and key not in self._running
            cancel = Cancel()
            if accepted:
                self._running[key] = cancel
        if not accepted:
            refuse(caller, call, f"the id is in use, or {MAX_AT_ONCE} calls are running already")
            return
        threading.Thread(
            target=self._run,
            args=(caller, call, cancel, self._run_tool),
            name=f"ext-{caller.name}-call",
            daemon=True,
        ).start()

    def cancel(self, caller: HostedExtension, id: str) -> None:
        with self._lock:
            cancel = self._running.get((caller.name, id))
        if cancel is not None:
            cancel.set()

    def close(self) -> None:
        with self._lock:
            running = list(self._running.values())
        for cancel in running:
            cancel.set()

    def _run(
        self, caller: HostedExtension, call: proto.CallTool, cancel: Cancel, run: RunTool
    ) -> None:
        timer = threading.Timer(TIMEOUT, cancel.set)
        timer.start()
        try:
            context = ToolContext(f"{caller.name}/{call.id}", cancel, lambda text: None)
            output = run(call.name, call.args, context)
        except Cancelled:
            output = ToolOutput((Text("the call was cancelled"),), is_error=True)
        except ZotError as error:
            output = ToolOutput((Text(str(error)),), is_error=True)
        except Exception as error:  # around a tool: its failure is the extension's answer
            output = ToolOutput((Text(f"{type(error).__name__}: {error}"),), is_error=True)
        finally:
            timer.cancel()
            with self._lock:
                self._running.pop((caller.name, call.id), None)
        if isinstance(output, str):
            output = ToolOutput((Text(output),))
        content, truncated = content_of(output.content)
        caller.send(proto.HostToolResult(call.id, call.name, content, output.is_error, truncated))


def refuse(caller: HostedExtension, call: proto.CallTool, reason: str) -> None:
    content = (proto.Content("text", text=reason),)
    caller.send(proto.HostToolResult(call.id, call.name, content, is_error=True))
