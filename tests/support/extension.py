"""Small extensions as real processes, and a host around them."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.patience import PATIENCE

from zot.cancel import Cancel
from zot.core.events import Event
from zot.core.hook import Hook, HookContext, Permission
from zot.core.source import CommandResult
from zot.core.tool import ToolContext, ToolOutput
from zot.extensions.extension import HostedExtension
from zot.extensions.guard import ExtensionHook
from zot.extensions.guest import Guest
from zot.extensions.host import ExtensionHost, HostSettings
from zot.extensions.process import ExtensionLimits
from zot.extensions.tool import ExtensionTool
from zot.provider.types import ToolCall

PRELUDE = """
import json, os, signal, subprocess, sys, threading, time
def emit(type, **fields):
    sys.stdout.write(json.dumps({"type": type, **fields}) + "\\n")
    sys.stdout.flush()
def frames():
    for line in sys.stdin:
        yield json.loads(line)
def hello(name="x"):
    emit("hello", name=name, version="1.0.0", capabilities=[])
def hello_with_tool(tool="t"):
    hello()
    emit("register_tool", name=tool, schema={"type": "object"})
    emit("ready")
def text(id, text, **more):
    emit("tool_result", id=id, content=[{"type": "text", "text": text}], **more)
"""

OBJECT = {"type": "object", "properties": {}}


def write_extension(
    root: Path, name: str, body: str, *, prelude: str = PRELUDE, **manifest: Any
) -> Path:
    """A folder with a manifest and a Python program; its directory."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "main.py").write_text(prelude + body, encoding="utf-8")
    fields = {"name": name, "version": "1.0.0", "exec": sys.executable, "args": ["main.py"]}
    (folder / "extension.json").write_text(json.dumps(fields | manifest), encoding="utf-8")
    return folder


def wait_for(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The condition's first true value; fails the test when it never comes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError("timed out waiting")


class HostOfOne:
    """A host of extensions with one guest, which is meant by every call."""

    def __init__(self, settings: HostSettings, **more: Any) -> None:
        own = ("provider", "model", "warn")
        self.host = ExtensionHost(settings, **{key: more.pop(key) for key in own if key in more})
        self.guest = Guest(**more)
        self.host.join(self.guest)
        self.attach = self.guest.attach
        self.dialogs = self.guest.dialogs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def tools(self) -> list[ExtensionTool]:
        return self.host.tools(self.guest)

    def hook(self) -> Hook:
        return ExtensionHook(self.host, self.guest)

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        return self.host.run_command(name, args, self.guest, cancel)

    def listen(self, event: Event, session_id: str) -> None:
        self.host.listen(event, session_id, self.guest)

    def tool_decided(self, call: ToolCall, permission: Permission) -> None:
        self.host.tool_decided(call, permission, self.guest)

    def session_started(self, session_id: str) -> None:
        self.host.session_started(session_id, self.guest)

    def session_ended(self, reason: Any) -> None:
        self.host.session_ended(reason, self.guest)


class Seen:
    """The events a host emitted, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type) -> list[Any]:
        with self._changed:
            return [event for event in self.events if isinstance(event, kind)]

    def wait(self, predicate: Callable[[Event], bool], seconds: float = PATIENCE) -> Any:
        with self._changed:
            found: list[Event] = []

            def seen() -> bool:
                found[:] = [event for event in self.events if predicate(event)]
                return bool(found)

            assert self._changed.wait_for(seen, seconds), f"not seen; {self.events}"
            return found[0]


def patient(**limits: Any) -> ExtensionLimits:
    """Limits that give every extension the time to start, whatever the machine does."""
    return ExtensionLimits(**{"grace": PATIENCE, "late": 2 * PATIENCE, **limits})


@contextmanager
def running_host(
    tmp_path: Path,
    *folders: Path,
    limits: ExtensionLimits | None = None,
    ready: bool = True,
    **more: Any,
) -> Iterator[tuple[HostOfOne, Seen]]:
    settings_names = HostSettings.__struct_fields__
    settings = {key: more.pop(key) for key in list(more) if key in settings_names}
    base: dict[str, Any] = {
        "cwd": tmp_path / "work",
        "home": tmp_path / "home",
        "environ": os.environ,
        "explicit": tuple(folders),
        "search": False,
        "limits": limits or patient(),
    }
    (tmp_path / "work").mkdir(exist_ok=True)
    host = HostOfOne(HostSettings(**(base | settings)), **more)
    seen = Seen()
    try:
        host.attach(seen)
        host.start()
        if ready:
            host.wait_ready()
        yield host, seen
    finally:
        host.close()


def call(
    host: HostOfOne, name: str, args: dict[str, Any] | None = None, cancel: Cancel | None = None
) -> ToolOutput:
    (tool,) = wait_for(lambda: [tool for tool in host.tools() if tool.name == name])
    return tool.run(args or {}, ToolContext("call-1", cancel or Cancel(), lambda text: None))


def text_of(output: ToolOutput) -> str:
    return "".join(getattr(block, "text", "") for block in output.content)


def hook_context(cancel: Cancel | None = None) -> HookContext:
    return HookContext(cancel or Cancel(), lambda event: None)


def only(host: HostOfOne) -> HostedExtension:
    (extension,) = host.extensions()
    return extension


def log_of(tmp_path: Path, name: str) -> str:
    path = tmp_path / "home" / "logs" / f"ext-{name}.log"
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
