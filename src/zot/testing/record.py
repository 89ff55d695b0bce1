"""Cassettes: recordings of a run (`--record`) that can be replayed (`--replay`), so that embedders
can test with no network and no key. They hold model calls, tool results and frames, but no
credentials: every line passes the redactor, and streamed texts have passed it before (build.py).

A cassette is JSON lines: a head, then one line for each model call, tool result and frame. Replay
is strict: each request must equal a recorded one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
from msgspec.structs import replace

import zot
from zot.build import redactor_for
from zot.cancel import Cancel
from zot.core.events import Event
from zot.core.tool import Tool, ToolContext, ToolOutput, WrappedTool
from zot.errors import Cancelled, ConfigError, ProviderError, ToolError
from zot.home import Surroundings
from zot.provider.providers import ProviderInfo
from zot.provider.types import Json, Model, Models, Provider, Request, StreamEvent
from zot.settings.known import Known
from zot.settings.options import Options
from zot.settings.resolve import Plan, Setup, Wrapping, working_directory
from zot.testing.cassette import (
    Packer,
    failure_of,
    failure_shape,
    nearest,
    request_shape,
    same,
    tool_failure,
    unpacked_model,
)
from zot.text import encode_json
from zot.wire.encode import frame

VERSION = 1
Line = dict[str, Any]


class NotRecorded(ProviderError):
    """The cassette has no answer to this request."""

    code = "not_recorded"


# --- recording ---------------------------------------------------------------------------------


class Recorder(Wrapping):
    """Writer of one run's cassette, line by line."""

    def __init__(self, path: str, setup: Setup) -> None:
        self.listeners = (self.listen,)
        self.packer = Packer(setup.cwd)
        self._redactor = redactor_for(setup)
        self._path = os.path.abspath(path)  # noqa: PTH100  others open the file by the same string
        self._lock = threading.Lock()
        head = {"version": VERSION, "zot": zot.__version__, "provider": setup.info.name}
        line = {**head, "model": self.packer.pack(setup.model)}
        self._add("cassette", line, os.O_TRUNC)

    def write(self, kind: str, fields: Line) -> None:
        self._add(kind, fields, os.O_APPEND)

    def _add(self, kind: str, fields: Line, how: int) -> None:
        """Add a line. The file is closed after each, so that a killed run leaves it complete."""
        line = encode_json({"type": kind, **self._redactor.value(fields)})
        with self._lock:
            try:
                fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
                with os.fdopen(fd, "wb") as file:
                    file.write(line + b"\n")
            except OSError as error:
                raise ConfigError(f"cannot record to {self._path!r}: {error.strerror}") from error

    # --- for the plan ------------------------------------------------------------------------

    def models(self, models: Models) -> Models:
        return RecordingModels(models, self)

    def tool(self, tool: Tool) -> Tool:
        return RecordingTool(tool, self)

    def listen(self, event: Event, run: object) -> None:
        shown = frame(event)
        if shown is not None:
            self.write("frame", {"frame": self.packer.plain(shown.to_wire())})


class RecordingProvider:
    """Provider that forwards every call and records the outcome."""

    def __init__(self, provider: Provider, recorder: Recorder) -> None:
        self._provider = provider
        self._recorder = recorder
        self.name, self.close = provider.name, provider.close

    def stream(self, request: Request, cancel: Cancel) -> Iterator[StreamEvent]:
        packer = self._recorder.packer
        seen: list[Line] = []
        line: Line = {
            "model": packer.pack(request.model),
            "request": request_shape(request, packer),
            "events": seen,
        }
        stream = self._provider.stream(request, cancel)
        try:
            with closing(stream):  # type: ignore[type-var]  # a generator; closing it frees the connection
                for event in stream:
                    seen.append(packer.pack(event))
                    yield event
        except ProviderError as error:
            line["error"] = packer.plain(failure_shape(error))
            raise
        except (Cancelled, GeneratorExit):
            line["cancelled"] = True
            raise
        finally:
            self._recorder.write("call", line)


class RecordingTool(WrappedTool):
    def __init__(self, tool: Tool, recorder: Recorder) -> None:
        super().__init__(tool)
        self._recorder = recorder

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        packer = self._recorder.packer
        said: list[str] = []

        def progress(text: str) -> None:
            said.append(text)
            context.progress(text)

        line: Line = {"name": self.name, "args": packer.plain(args)}
        try:
            watched = replace(context, progress=progress)
            output = self._tool.run(args, watched)
            line["output"] = packer.pack(output)
            return output
        except ToolError as error:
            line["error"] = packer.plain(str(error))
            line["class"] = type(error).__name__
            raise
        finally:
            # A call that crashed or was aborted has no result and is not recorded.
            if "output" in line or "error" in line:
                self._recorder.write("tool", {**line, "progress": packer.plain(said)})


class RecordingModels:
    """Wrapper of models that records their answers."""

    def __init__(self, models: Models, recorder: Recorder) -> None:
        self.find, self.all, self.renew = models.find, models.all, models.renew
        self._connect = models.connect
        self._recorder = recorder

    def connect(self, model: Model) -> Provider:
        return RecordingProvider(self._connect(model), self._recorder)


# --- replay ------------------------------------------------------------------------------------


class Cassette(Wrapping):
    """A recorded run, and which of its calls were used."""

    replays = True

    def __init__(self, path: str, cwd: str) -> None:
        self.packer = Packer(cwd)
        self.path = path
        lines = _read(path)
        self.head = lines[0]
        self._lock = threading.Lock()
        self._calls = [line for line in lines if line["type"] == "call"]
        self._tools = [line for line in lines if line["type"] == "tool"]
        self.model = unpacked_model(self.head["model"], self.packer)
        self.known = {self.model.id: self.model}
        for line in self._calls:
            model = unpacked_model(line["model"], self.packer)
            self.known[model.id] = model
        self._used: list[Line] = []

    def answer(self, request: Request) -> Line:
        """Return the recorded call for a request; each is used only once.

        Raises:
            NotRecorded: there is none (left); the text shows the nearest and the difference.
        """
        asked = request_shape(request, self.packer)
        with self._lock:
            for position, line in enumerate(self._calls):
                if same(line["request"], asked):
                    self._used.append(self._calls.pop(position))
                    return line
            raise NotRecorded(self._difference(asked))

    def result(self, name: str, args: dict[str, Json]) -> Line:
        wanted = self.packer.plain(args)
        with self._lock:
            for position, line in enumerate(self._tools):
                if line["name"] == name and same(line["args"], wanted):
                    return self._tools.pop(position)
        raise ToolError(f"replay: no result of {name!r} with these arguments was recorded")

    # --- for the plan ------------------------------------------------------------------------

    def models(self, models: Models) -> Models:
        return ReplayModels(self)

    def tool(self, tool: Tool) -> Tool:
        return ReplayTool(tool, self)

    # --- inside ------------------------------------------------------------------------------

    def _difference(self, asked: Line) -> str:
        file = f"in {self.path!r}"
        if any(same(line["request"], asked) for line in self._used):
            return f"replay: the request was recorded {file}, but not so many times"
        recorded = [line["request"] for line in (*self._calls, *self._used)]
        if not recorded:
            return f"replay: no request was recorded {file}"
        return f"replay: this request was not recorded {file}; {nearest(asked, recorded)}"


class ReplayProvider:
    """Provider that answers from a cassette."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self.name = str(cassette.head["provider"])

    def stream(self, request: Request, cancel: Cancel) -> Iterator[StreamEvent]:
        line = self._cassette.answer(request)
        for event in line["events"]:
            cancel.check()
            yield self._cassette.packer.unpack(event)
        if "error" in line:
            raise failure_of(line["error"])
        if line.get("cancelled"):
            cancel.wait()  # as recorded: the client aborted
            raise Cancelled

    def close(self) -> None:
        """Do nothing: there are no resources."""


class ReplayTool(WrappedTool):
    """Tool that returns the recorded result; the real tool does not run."""

    def __init__(self, tool: Tool, cassette: Cassette) -> None:
        super().__init__(tool)
        self._cassette = cassette

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        line = self._cassette.result(self.name, args)
        packer = self._cassette.packer
        for text in packer.filled(line["progress"]):
            context.progress(text)
        if "error" in line:
            raise tool_failure(line.get("class", ""), packer.filled(line["error"]))
        output: ToolOutput | str = packer.unpack(line["output"])
        return output


class ReplayModels:
    """The recorded models."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette

    def find(self, name: str, provider: str) -> Model:
        known = self._cassette.known
        id = name if name in known else name.partition("/")[2]
        if id not in known:
            listed = ", ".join(sorted(known))
            raise ConfigError(f"unknown model {name!r}: {self._cassette.path!r} has {listed}")
        return known[id]

    def all(self, provider: str = "") -> Sequence[Model]:
        return tuple(self._cassette.known.values())

    def connect(self, model: Model) -> Provider:
        return ReplayProvider(self._cassette)

    def renew(self, provider: str) -> bool:
        return False


# --- both --------------------------------------------------------------------------------------


def recorded(plan: Plan) -> Plan:
    """Return the plan with recording added (`--record`).

    Raises:
        ConfigError: the file cannot be written.
    """
    return replace(plan, wrapping=Recorder(plan.setup.options.record, plan.setup))


def replayed(options: Options, around: Surroundings) -> Plan:
    """Return a plan that answers from the cassette (`--replay`), without key and network.

    Raises:
        ConfigError: the file cannot be read, or is not a cassette.
    """
    if options.record:
        raise ConfigError("--record and --replay contradict each other: leave one of them out")
    cwd = working_directory(options.cwd, around)
    cassette = Cassette(options.replay, cwd)
    info = ProviderInfo(name=str(cassette.head["provider"]), api=cassette.model.api, auth="none")
    known = Known(around.home)
    setup = Setup(options, info, cassette.model, "", "", cwd, known, around, flags=options)
    return Plan(setup, wrapping=cassette)


def _read(path: str) -> list[Line]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  same style as the descriptor above
            lines = [msgspec.json.decode(line) for line in file if line.strip()]
    except OSError as error:
        raise ConfigError(f"cannot replay {path!r}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"cannot replay {path!r}: it is no cassette: {error}") from error
    head = lines[0] if lines else None
    if not isinstance(head, dict) or head.get("type") != "cassette":
        raise ConfigError(
            f"cannot replay {path!r}: it is no cassette; `zot rpc --record` makes one"
        )
    if head.get("version") != VERSION:
        raise ConfigError(
            f"cannot replay {path!r}: it has version {head.get('version')!r}, this zot reads "
            f"version {VERSION}; record it again"
        )
    return lines
