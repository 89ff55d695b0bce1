"""Write a zot extension in Python. This file needs the standard library only: install zot and
`from zot.ext import Extension`, or copy this file next to your extension.

    from zot.ext import Extension, prompt

    ext = Extension("hello", "1.0.0")

    @ext.command("hello", "say hi")
    def hello(args):
        return prompt("Greet me in one short sentence.")

    @ext.tool
    def weather(city: str) -> str:
        "Current weather for a city."
        return f"{city}: sunny"

    ext.run()

Handlers of tools and commands each run in their own thread; events, keys and interceptions are
handled one after the other, in the order they came. Everything is in this one long file, so that an
extension can be shipped with a copy for a Python without zot.
"""

from __future__ import annotations

import binascii
import itertools
import json
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import (
    IO,
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

if TYPE_CHECKING:
    from zot.testing.harness import Harness

__all__ = [
    "Activated",
    "Block",
    "Call",
    "Event",
    "Extension",
    "Harness",
    "Host",
    "Image",
    "Markdown",
    "Panel",
    "Reply",
    "Result",
    "ToolFailed",
    "block",
    "display",
    "insert",
    "noop",
    "open_panel",
    "prompt",
    "replace_args",
    "replace_system_prompt",
    "replace_text",
    "schema_of",
    "tool_prompt",
]

MAX_LINE = 4 * 1024 * 1024
LEVELS = ("info", "success", "warn", "error")
Json = Any
Handler = Callable[..., Any]
Function = TypeVar("Function", bound=Callable[..., Any])


class ToolFailed(Exception):
    """Raise it in a tool to return the text as an error result to the model."""


class Block(Exception):
    """Raise it in an interceptor to block, with the reason; equivalent to returning `block`."""


# --- return values of handlers ---------------------------------------------------------------


class Markdown(str):
    """A tool's text that a user interface may show as Markdown."""


class Activated:
    """A tool's return value, and the names of deferred tools that the model sees from now on."""

    def __init__(self, value: Json, *tools: str) -> None:
        self.value = value
        self.tools = list(tools)


class Reply(dict[str, Json]):
    """The action that a command or an interceptor requests."""


def prompt(text: str) -> Reply:
    """Send the text to the model, as if the user had typed it."""
    return Reply(action="prompt", prompt=text)


def tool_prompt(text: str, tool: str, args: Mapping[str, Json] | None = None) -> Reply:
    """Send the text and run a tool at once, as if the model had called it; the model reads both."""
    return Reply(action="tool_prompt", prompt=text, tool_name=tool, tool_args=dict(args or {}))


def insert(text: str) -> Reply:
    """Put the text into the editor without sending it."""
    return Reply(action="insert", insert=text)


def display(text: str) -> Reply:
    """Show the text to the user; the model does not see it."""
    return Reply(action="display", display=text)


def noop() -> Reply:
    """Do nothing further: the command did everything by itself."""
    return Reply(action="noop")


def open_panel(panel: Panel) -> Reply:
    """Open the panel and give it the keyboard."""
    return Reply(action="open_panel", open_panel=panel.frame())


def block(reason: str) -> Reply:
    """Block the intercepted action."""
    return Reply(block=True, reason=reason)


def replace_args(args: Mapping[str, Json]) -> Reply:
    """Let the tool run with these arguments instead."""
    return Reply(modified_args=dict(args))


def replace_text(text: str) -> Reply:
    """Replace the text of the assistant's message."""
    return Reply(replace_text=text)


def replace_system_prompt(text: str) -> Reply:
    return Reply(system_prompt=text)


class Image:
    """An image in a tool's result."""

    def __init__(self, data: bytes, mime_type: str = "image/png") -> None:
        kinds = (type(data).__name__, type(mime_type).__name__)
        if kinds != ("bytes", "str"):
            raise TypeError(f"Image{kinds}: use Image(data, mime_type) with bytes and str")
        self.data = data
        self.mime_type = mime_type


# --- arguments of handlers -------------------------------------------------------------------


class Event(dict[str, Json]):
    """An event; its fields are items and attributes. `event.event` is its name."""

    def __getattr__(self, name: str) -> Json:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the event has no {name!r}; it has {sorted(self)}") from None


class Host:
    """The host's data from the handshake: versions, model, directories, capabilities."""

    def __init__(self, ack: Mapping[str, Json]) -> None:
        self.protocol_version: int = ack.get("protocol_version", 1)
        self.zot_version: str = ack.get("zot_version", "")
        self.provider: str = ack.get("provider", "")
        self.model: str = ack.get("model", "")
        self.cwd: str = ack.get("cwd", "")
        self.extension_dir: str = ack.get("extension_dir", "")
        self.data_dir: str = ack.get("data_dir", "") or self.extension_dir
        """Directory for the extension's files; survives updates of the extension."""
        self.capabilities: tuple[str, ...] = tuple(ack.get("capabilities") or ())


class Call:
    """A running tool call, passed to the tool's parameter that is annotated with `Call`."""

    def __init__(self, id: str, send: Callable[..., None], key: str = "") -> None:
        self.id = id
        self.key = key
        """Key of the call in a durable run, the same at every attempt."""
        self.session_id = ""
        """Id of the calling conversation: several agents may share this process."""
        self._send = send
        self._cancelled = threading.Event()

    def progress(self, text: str) -> None:
        """Show a piece of output while the tool runs."""
        self._send("tool_progress", id=self.id, text=text)

    @property
    def cancelled(self) -> bool:
        """Whether the user aborted, so that the result is no longer needed."""
        return self._cancelled.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep; return True at once when the call is cancelled."""
        return self._cancelled.wait(seconds)

    def cancel(self) -> None:
        self._cancelled.set()


class Result:
    """The result of a tool: of one of zot's, called with `call_tool`, or in a test of the
    extension's own."""

    def __init__(self, frame: Mapping[str, Json], progress: Iterable[str] = ()) -> None:
        self.content: list[dict[str, Json]] = list(frame.get("content") or [])
        self.is_error = bool(frame.get("is_error"))
        self.progress = list(progress)

    @property
    def text(self) -> str:
        return "".join(block.get("text", "") for block in self.content)

    def __repr__(self) -> str:
        return f"Result({'error: ' if self.is_error else ''}{self.text!r})"


class Panel:
    """A small window of text lines. Set its content with `render`."""

    def __init__(self, extension: Extension, id: str, title: str, footer: str) -> None:
        self.id = id
        self.title = title
        self.footer = footer
        self.lines: list[str] = []
        self._extension = extension
        self._on_key: Handler | None = None
        self._on_close: Handler | None = None

    def on_key(self, handler: Function) -> Function:
        """Decorator: call `handler(key, text)` for each key; text is the character of a `rune`."""
        self._on_key = handler
        return handler

    def on_close(self, handler: Function) -> Function:
        """Decorator: call `handler()` when the panel was closed."""
        self._on_close = handler
        return handler

    def render(self, lines: Iterable[str], title: str | None = None) -> None:
        """Show these lines, now or when the panel is opened."""
        self.lines = list(lines)
        if title is not None:
            self.title = title
        frame = self.frame()
        self._extension.send("panel_render", panel_id=frame.pop("id"), **frame)

    def close(self) -> None:
        self._extension.send("panel_close", panel_id=self.id)

    def frame(self) -> dict[str, Json]:
        return {"id": self.id, "title": self.title, "lines": self.lines, "footer": self.footer}

    def key(self, key: str, text: str) -> None:
        if self._on_key is not None:
            self._on_key(key, text)

    def closed(self) -> None:
        if self._on_close is not None:
            self._on_close()


# --- schema ----------------------------------------------------------------------------------


def schema_of(function: Handler) -> tuple[dict[str, Json], str | None]:
    """Return the JSON Schema of a function's parameters, and the name of its `Call` parameter.

    Raises:
        TypeError: a parameter has no annotation, or one without a JSON form.
    """
    hints = get_type_hints(function, include_extras=True)
    _, described = read_docstring(_clean(function.__doc__))
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    positional = names[: code.co_argcount]
    defaults = set(positional[len(positional) - len(function.__defaults__ or ()) :])
    defaults.update(function.__kwdefaults__ or {})
    properties: dict[str, Json] = {}
    call = None
    for name in names:
        if name not in hints:
            raise TypeError(f"{function.__name__}: parameter {name!r} needs an annotation")
        if hints[name] is Call:
            call = name
            continue
        try:
            properties[name] = _type_schema(hints[name], name in defaults)
            if name in described:
                properties[name].setdefault("description", described[name])
        except TypeError as error:
            raise TypeError(f"{function.__name__}: parameter {name!r}: {error}") from None
    required = [name for name in properties if name not in defaults]
    schema = {"type": "object", "properties": properties, "required": required}
    definitions: dict[str, Json] = {}
    _move_definitions(properties, definitions)
    if definitions:
        schema["$defs"] = definitions
    return {**schema, "additionalProperties": False}, call


_PLAIN = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
    Any: {},
}


def _type_schema(kind: Any, optional: bool = False) -> dict[str, Json]:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        schema = _type_schema(args[0], optional)
        for note in args[1:]:
            schema.update({"description": note} if isinstance(note, str) else note)
        return schema
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (list, tuple, set, frozenset):
        items = [member for member in args if member is not Ellipsis]
        if len(items) != 1:
            raise TypeError(f"{kind!r} has more than one kind of item")
        return {"type": "array", "items": _type_schema(items[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type_schema(args[1])}
    if origin is Union or type(kind).__name__ == "UnionType":
        # `x: str | None = None` may be left out, so the schema need not offer null.
        kinds = [member for member in args if not (optional and member is type(None))]
        schemas = [_type_schema(member) for member in kinds]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if hasattr(kind, "model_json_schema"):  # pydantic's, or any class with its methods
        return dict(kind.model_json_schema())
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass_schema(kind)
    raise TypeError(
        f"{kind!r} has no JSON form; use str, int, float, bool, list, dict, Literal, a dataclass "
        "or a pydantic model"
    )


def _dataclass_schema(kind: Any) -> dict[str, Json]:
    from dataclasses import MISSING, fields  # loaded already, by the one who made the class

    hints = get_type_hints(kind, include_extras=True)
    optional = {
        field.name
        for field in fields(kind)
        if field.default is not MISSING or field.default_factory is not MISSING
    }
    names = [field.name for field in fields(kind) if field.init]
    return {
        "type": "object",
        "properties": {name: _type_schema(hints[name], name in optional) for name in names},
        "required": [name for name in names if name not in optional],
        "additionalProperties": False,
    }


def _move_definitions(schema: Json, into: dict[str, Json]) -> None:
    """Move the `$defs` of models to the root of the schema, where their references point."""
    for item in schema if isinstance(schema, list) else ():
        _move_definitions(item, into)
    if isinstance(schema, dict):
        into.update(schema.pop("$defs", {}))
        for item in schema.values():
            _move_definitions(item, into)


def _as_annotated(kind: Any, value: Json) -> Any:
    """Make the dataclass or model that the annotation names of the model's arguments."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _as_annotated(args[0], value)
    if origin in (list, tuple) and isinstance(value, list):
        return [_as_annotated(args[0], item) for item in value]
    if origin is Union or type(kind).__name__ == "UnionType":
        kinds = [member for member in args if member is not type(None)]
        return _as_annotated(kinds[0], value) if len(kinds) == 1 and value is not None else value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if hasattr(kind, "__dataclass_fields__") and isinstance(value, dict):
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{name: _as_annotated(hints[name], item) for name, item in value.items()})
    return value


_ARGS_HEADING = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_NEXT_HEADING = re.compile(r"^[A-Z][a-z]+:\s*$")
_ARGUMENT = re.compile(r"^(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its main text and the arguments of its `Args:` section."""
    text_lines: list[str] = []
    arguments: dict[str, str] = {}
    inside, last = False, ""
    for line in text.split("\n"):
        if _ARGS_HEADING.match(line):
            inside = True
        elif inside and _NEXT_HEADING.match(line):
            inside = False
            text_lines.append(line)
        elif not inside:
            text_lines.append(line)
        elif argument := _ARGUMENT.match(line.strip()):
            last = argument[1]
            arguments[last] = argument[2]
        elif last and line.strip():
            arguments[last] += " " + line.strip()
    return "\n".join(text_lines).strip(), arguments


def _clean(text: str | None) -> str:
    """Remove the indentation of a docstring."""
    first, *rest = (text or "").strip().split("\n")
    indents = [len(line) - len(line.lstrip()) for line in rest if line.strip()]
    return "\n".join([first, *(line[min(indents, default=0) :] for line in rest)])


# --- the extension ---------------------------------------------------------------------------


class Extension:
    """An extension: register handlers with the decorators, then `run()`."""

    def __init__(self, name: str, version: str = "0.0.0", *, fail_closed: bool = False) -> None:
        """`fail_closed`: block intercepted actions whenever this extension cannot answer."""
        self.name = name
        self.version = version
        self.host = Host({})
        self._fail_closed = fail_closed
        self._commands: dict[str, tuple[str, Handler]] = {}
        self._tools: dict[str, tuple[dict[str, Json], str | None, Handler]] = {}
        self._reconcile: dict[str, Callable[[dict[str, Json], str], Any]] = {}
        self._events: dict[str, list[Handler]] = {}
        self._interceptors: dict[str, list[Handler]] = {}
        self._panels: dict[str, Panel] = {}
        self._hello: list[Handler] = []
        self._shutdown: list[Handler] = []
        self._calls: dict[str, Call] = {}
        self._answers: dict[str, queue.SimpleQueue[dict[str, Json]]] = {}
        self._course = threading.local()
        """Id of the request that the current thread handles, so that the thread's own requests go
        to the same agent."""
        self._ids = itertools.count(1)
        self._out: IO[bytes] | None = None
        self._out_lock = threading.Lock()

    # --- registering -------------------------------------------------------------------------

    def command(self, name: str, description: str = "") -> Callable[[Function], Function]:
        """Decorator: run `handler(args)` when the user types `/name args`.

        The handler returns `prompt`, `insert`, `display`, `open_panel` or `noop`; a plain text is
        displayed.
        """

        def register(handler: Function) -> Function:
            self._commands[name] = (description or _summary(handler), handler)
            return handler

        return register

    @overload
    def tool(self, name: Function, /) -> Function: ...
    @overload
    def tool(
        self,
        name: str | None = None,
        description: str = "",
        *,
        schema: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
        interactive: bool = False,
        deferred: bool = False,
        replay: str = "never",
        reconcile: Callable[[dict[str, Json], str], Any] | None = None,
    ) -> Callable[[Function], Function]: ...
    def tool(
        self,
        name: Any = None,
        description: str = "",
        *,
        schema: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
        interactive: bool = False,
        deferred: bool = False,
        replay: str = "never",
        reconcile: Callable[[dict[str, Json], str], Any] | None = None,
    ) -> Any:
        """Decorator: make a typed function a tool that the model can call.

        Its docstring is the description, its annotations are the schema: plain types, dataclasses,
        pydantic models. `Annotated[str, "..."]` or the section `Args:` describes a parameter. With
        `schema`, the function gets one dict. It returns text, an `Image`, a list of those, or data
        that is sent as JSON. A `deferred` tool is not shown to the model before another one returns
        `Activated`.

        `replay` says what may be done with a call that a crash interrupted in a durable run:
        `never`, `idempotent` (run again, with the same `Call.key`) or `safe` (run again).
        `reconcile(args, key)`, if given, is called instead and returns False if the call was not
        done and may run, None if that is unknown, or else the call's result.
        """

        def register(handler: Handler) -> Handler:
            own = handler.__name__ if name is None or callable(name) else name
            call: str | None = None
            if schema is None:
                parameters, call = schema_of(handler)
            else:
                parameters = dict(schema)
            frame = {
                "name": own,
                "description": description or read_docstring(_clean(handler.__doc__))[0],
                "schema": parameters,
                "timeout": timeout,
                "interactive": interactive,
            }
            if deferred:
                frame["deferred"] = True
            if reconcile is not None:
                self._reconcile[own] = reconcile
            if reconcile is not None or replay != "never":
                frame["replay"] = replay if reconcile is None else "reconcile"
            run = _converting(handler) if schema is None else lambda **args: handler(args)
            self._tools[own] = (frame, call, run)
            return handler

        return register(name) if callable(name) else register

    def on(self, *events: str) -> Callable[[Function], Function]:
        """Decorator: call `handler(event)` after one of these events."""
        return _adding_to(self._events, events)

    def intercept(self, *events: str) -> Callable[[Function], Function]:
        """Decorator: call `handler(event)` before one of these events; an exception blocks it.

        The handler returns None to allow it, or `block`, `replace_args`, `replace_text`,
        `replace_system_prompt`.
        """
        return _adding_to(self._interceptors, events)

    def panel(self, id: str, title: str = "", footer: str = "") -> Panel:
        panel = self._panels[id] = Panel(self, id, title, footer)
        return panel

    def on_hello(self, handler: Function) -> Function:
        """Decorator: call `handler(host)` before anything is registered; it may register more."""
        self._hello.append(handler)
        return handler

    def on_shutdown(self, handler: Function) -> Function:
        """Decorator: call `handler()` when zot ends the extension."""
        self._shutdown.append(handler)
        return handler

    # --- talking -----------------------------------------------------------------------------

    def notify(self, message: str, level: str = "info") -> None:
        """Show a message to the user, with the level info, success, warn or error."""
        if level not in LEVELS:
            raise ValueError(f"unknown level {level!r}; use one of {LEVELS}")
        self.send("notify", level=level, message=message)

    def log(self, *parts: object) -> None:
        """Write to the extension's log (`zot ext logs NAME`)."""
        sys.stderr.write(" ".join(map(str, parts)) + "\n")
        sys.stderr.flush()

    def confirm(self, title: str, message: str = "", *, timeout: float = 300) -> bool:
        """Ask the user a yes-or-no question; return False without an answer."""
        return bool(self._ask("confirm", timeout, title=title, message=message).get("confirmed"))

    def select(self, title: str, options: Iterable[str], *, timeout: float = 300) -> str | None:
        """Let the user choose an option; return None without an answer."""
        answer = self._ask("select", timeout, title=title, options=list(options))
        return None if answer.get("cancelled") else answer.get("value")

    def input(self, title: str, placeholder: str = "", *, timeout: float = 300) -> str | None:
        """Let the user type a line; return None without an answer."""
        answer = self._ask("input", timeout, title=title, placeholder=placeholder)
        return None if answer.get("cancelled") else answer.get("value")

    def _ask(self, method: str, timeout: float, **fields: Json) -> dict[str, Json]:
        if "ask" not in self.host.capabilities:  # an older zot cannot prompt
            return {"cancelled": True}
        return self._request("ask", timeout + 5, method=method, timeout=timeout, **fields)

    def submit(self, text: str) -> None:
        """Request a run with this text, if the host allows that."""
        self.send("submit", text=text)

    def submit_slash(self, text: str) -> None:
        """Request a slash command, as if the user had typed it; works at a terminal only."""
        self.send("submit_slash", text=text)

    def call_tool(self, name: str, args: Mapping[str, Json], *, call: Call | None = None) -> Result:
        """Run one of zot's own tools and wait for its result."""
        parent = {} if call is None else {"parent_id": call.id}
        return Result(self._request("call_tool", 65, name=name, args=dict(args), **parent))

    def _request(self, type: str, seconds: float, /, **fields: Json) -> dict[str, Json]:
        """Send a request to zot and wait for the answer. Do not call it in `on_hello`: the answer
        is read only after that returns."""
        if course := getattr(self._course, "id", ""):
            fields = {"parent_id": course, **fields}
        id = f"{self.name}-{next(self._ids)}"
        answers = self._answers[id] = queue.SimpleQueue()
        self.send(type, id=id, **fields)
        try:
            return answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"zot did not answer {type!r} within {seconds:g} s") from None
        finally:
            del self._answers[id]

    def send(self, type: str, **fields: Json) -> None:
        """Write one frame. Before `run`, nothing is sent: registering is enough."""
        if self._out is None:
            return
        line = json.dumps({"type": type, **fields}, default=_plain).encode() + b"\n"
        if len(line) > MAX_LINE:
            raise ValueError(f"a {type!r} frame of {len(line)} bytes is over the limit of 4 MiB")
        with self._out_lock:
            self._out.write(line)
            self._out.flush()

    # --- running -----------------------------------------------------------------------------

    def run(self, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> None:
        """Serve zot until it sends `shutdown` or is gone."""
        if stdout is None:
            # Only frames may go to zot: redirect the output of libraries to the log.
            stdout = os.fdopen(os.dup(1), "wb")
            os.dup2(2, 1)
        self._out = stdout
        workers = [_worker("events"), _worker("interceptors")]
        try:
            self._speak(stdin or sys.stdin.buffer, *workers)
        except BrokenPipeError:
            pass  # zot is gone, so stop
        finally:
            for handler in self._shutdown:
                _guarded(handler)
            for call in list(self._calls.values()):
                call.cancel()
            for worker in workers:
                worker.put(None)
            self._out = None

    def _speak(
        self,
        stdin: IO[bytes],
        events: queue.SimpleQueue[Any],
        interceptions: queue.SimpleQueue[Any],
    ) -> None:
        self.send("hello", name=self.name, version=self.version, capabilities=self._capabilities())
        for line in stdin:
            frame = json.loads(line)
            kind = frame["type"]
            if kind == "hello_ack":
                self._register_all(Host(frame))
            elif kind == "shutdown":
                self.send("shutdown_ack")
                return
            elif kind == "event":
                for handler in self._events.get(frame["event"], ()):
                    events.put((handler, Event(frame)))
            elif kind == "event_intercept":
                interceptions.put((self._intercept, Event(frame)))
            elif kind in ("panel_key", "panel_close") and frame["panel_id"] in self._panels:
                panel = self._panels[frame["panel_id"]]
                if kind == "panel_close":
                    events.put((panel.closed,))
                else:
                    events.put((panel.key, frame["key"], frame.get("text", "")))
            elif kind == "tool_cancel" and frame["id"] in self._calls:
                self._calls[frame["id"]].cancel()
            elif kind in ("tool_result", "answer") and frame["id"] in self._answers:
                self._answers[frame["id"]].put(frame)
            elif kind in ("tool_call", "command_invoked", "tool_reconcile"):
                run = self._run_tool if kind == "tool_call" else self._run_command
                run = self._run_reconcile if kind == "tool_reconcile" else run
                threading.Thread(target=run, args=(frame,), daemon=True).start()

    def _capabilities(self) -> list[str]:
        offered = {"commands": self._commands, "tools": self._tools, "events": self._events}
        return [name for name, handlers in offered.items() if handlers]

    def _register_all(self, host: Host) -> None:
        self.host = host
        for handler in self._hello:
            handler(host)
        for name, (description, _) in self._commands.items():
            self.send("register_command", name=name, description=description)
        for frame, _, _ in self._tools.values():
            self.send("register_tool", **frame)
        if self._events or self._interceptors:
            self.send(
                "subscribe",
                events=list(self._events),
                intercept=list(self._interceptors),
                fail_closed=self._fail_closed,
            )
        self.send("ready")

    def _run_command(self, frame: dict[str, Json]) -> None:
        self._course.id = frame["id"]
        try:
            _, handler = self._commands[frame["name"]]
            answer = handler(frame.get("args", ""))
            if answer is None:
                answer = noop()
            elif not isinstance(answer, Reply):
                answer = display(str(answer))
            self.send("command_response", id=frame["id"], **answer)
        except Exception as error:
            _log_failure()
            self.send("command_response", id=frame["id"], action="noop", error=_said(error))

    def _run_tool(self, frame: dict[str, Json]) -> None:
        self._course.id = frame["id"]
        call = self._calls[frame["id"]] = Call(frame["id"], self.send, frame.get("key", ""))
        call.session_id = frame.get("session_id", "")
        try:
            _, parameter, handler = self._tools[frame["name"]]
            args = dict(frame.get("args") or {})
            if parameter is not None:
                args[parameter] = call
            self.send("tool_result", id=call.id, **_content(handler(**args)))
        except Exception as error:
            if not isinstance(error, ToolFailed):
                _log_failure()
            self.send("tool_result", id=call.id, is_error=True, **_content(_said(error)))
        finally:
            del self._calls[call.id]

    def _run_reconcile(self, frame: dict[str, Json]) -> None:
        answer: dict[str, Json] = {"state": "unknown"}
        try:
            result = self._reconcile[frame["name"]](dict(frame["args"]), frame["key"])
            if result is False:
                answer = {"state": "not_done"}
            elif result is not None:
                answer = {"state": "done", **_content(result)}
        except Exception:
            _log_failure()
        self.send("tool_result", id=frame["id"], **answer)

    def _intercept(self, event: Event) -> None:
        answer: dict[str, Json] = {}
        self._course.id = event["id"]
        try:
            for handler in self._interceptors.get(event["event"], ()):
                reply = handler(event) or {}
                answer.update(reply)
                if reply.get("block"):
                    break
                if "modified_args" in reply:
                    event["tool_args"] = reply["modified_args"]
                if "replace_text" in reply:
                    event["text"] = reply["replace_text"]
        except Block as error:
            answer = block(str(error))
        except Exception as error:  # a guard that fails must block
            _log_failure()
            answer = block(f"the guard failed: {_said(error)}")
        self.send("event_intercept_response", id=event["id"], **answer)


def _adding_to(
    handlers: dict[str, list[Handler]], events: Iterable[str]
) -> Callable[[Function], Function]:
    """Return a decorator that adds its function to the handlers of these events."""

    def register(handler: Function) -> Function:
        for event in events:
            handlers.setdefault(event, []).append(handler)
        return handler

    return register


def _converting(handler: Handler) -> Handler:
    """Return the handler, called with the types of its annotations instead of plain JSON."""
    hints = get_type_hints(handler, include_extras=True)

    def run(**args: Json) -> Json:
        return handler(**{name: _as_annotated(hints.get(name), args[name]) for name in args})

    return run


def _plain(value: Any) -> Json:
    """Return the JSON form of a model or a dataclass; of anything else its text."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    fields = getattr(value, "__dataclass_fields__", None)
    return str(value) if fields is None else {name: getattr(value, name) for name in fields}


def _worker(job: str) -> queue.SimpleQueue[Any]:
    """Start a thread that runs the jobs of a queue one after the other; return the queue."""
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_work, args=(jobs,), name=f"zot-{job}", daemon=True).start()
    return jobs


def _work(jobs: queue.SimpleQueue[Any]) -> None:
    while (job := jobs.get()) is not None:
        _guarded(*job)


def _guarded(handler: Handler, *args: Json) -> None:
    try:
        handler(*args)
    except Exception:  # an event has no response, so the failure is only logged
        _log_failure()


def _log_failure() -> None:
    sys.__excepthook__(*sys.exc_info())  # to stderr, the log; `traceback` is slow to load


def _content(value: Json) -> dict[str, Json]:
    """Convert a tool's return value to the fields of a `tool_result`."""
    if isinstance(value, Activated):
        return {**_content(value.value), "activate_tools": value.tools}
    if isinstance(value, Markdown):
        return {"content": [{"type": "text", "text": str(value), "format": "markdown"}]}
    if value is None:
        return {"content": []}
    if isinstance(value, (str, Image)):
        value = [value]
    elif not isinstance(value, list) or not all(isinstance(part, (str, Image)) for part in value):
        text = json.dumps(value, ensure_ascii=False, default=_plain)
        return {"content": [{"type": "text", "text": text}], "structured_content": value}
    return {"content": [_block(part) for part in value]}


def _block(value: str | Image) -> dict[str, Json]:
    if isinstance(value, str):
        return {"type": "text", "text": value}
    data = binascii.b2a_base64(value.data, newline=False).decode("ascii")
    return {"type": "image", "mime_type": value.mime_type, "data": data}


def _said(error: BaseException) -> str:
    if isinstance(error, ToolFailed):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _summary(function: Handler) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0].strip()


def __getattr__(name: str) -> Any:
    """Load `Harness`, which simulates zot in a test, on demand: it needs zot to be installed."""
    if name != "Harness":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module("zot.testing.harness").Harness
