"""Stand-in for zot in tests of extensions, so that a test needs no model and no second program."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from zot.ext import Extension, Handler, Json, Result

MAX_STDERR = 64 * 1024
"""Characters of an extension's stderr that are kept."""


class Harness:
    """Stand-in for zot in a test of an extension.

    with Harness(ext) as zot:                          # or Harness(["./my-extension"])
        assert zot.call("weather", city="Berlin").text == "Berlin: sunny"
        assert zot.command("hello")["action"] == "prompt"
        assert zot.intercept("tool_call", tool_name="bash", tool_args={})["block"]
    """

    def __init__(
        self,
        extension: Extension | list[str],
        *,
        cwd: str = ".",
        data_dir: str | None = None,
        tools: Mapping[str, Handler] | None = None,
        answer: Callable[[dict[str, Json]], dict[str, Json]] | None = None,
        timeout: float = 10.0,
    ) -> None:
        """Start the extension. `tools` are available to `call_tool`: functions of the arguments
        that return text. `answer` acts as the user: it gets an `ask` frame and returns the
        fields of the answer."""
        self.hello: dict[str, Json] = {}
        self.commands: dict[str, dict[str, Json]] = {}
        self.tools: dict[str, dict[str, Json]] = {}
        self.subscribed: dict[str, Json] = {"events": [], "intercept": [], "fail_closed": False}
        self.frames: list[dict[str, Json]] = []
        """All frames that the extension sent, in order."""
        self.stderr = ""
        """The end of what the extension's process wrote to stderr, or the traceback of an Extension
        whose `run` failed. It goes to the stderr of the test, too."""
        self._ack: dict[str, Json] = {
            "protocol_version": 1,
            **dict.fromkeys(("zot_version", "provider", "model"), "test"),
            **dict.fromkeys(("cwd", "extension_dir"), cwd),
            "capabilities": ["ask", "call_tool", "tool_cancel", "tool_progress"],
        }
        self._user = answer or (lambda ask: {"cancelled": True})
        self._host_tools = dict(tools or {})
        self._timeout = timeout
        self._changed = threading.Condition()
        self._ended = False
        self._ids = itertools.count(1)
        self._sequence = itertools.count(1)
        self._temporary: Any = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="zot-ext-")
            data_dir = self._temporary.name
        self._ack["data_dir"] = data_dir
        self._start(extension)

    def _start(self, extension: Extension | list[str]) -> None:
        self._process: Any = None
        if isinstance(extension, Extension):
            to_read, to_write = os.pipe()
            from_read, from_write = os.pipe()
            self._in, self._out = os.fdopen(to_write, "wb"), os.fdopen(from_read, "rb")
            files = os.fdopen(to_read, "rb"), os.fdopen(from_write, "wb")
            self._runner = threading.Thread(target=self._run_extension, args=(extension, *files))
            self._runner.start()
        else:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                extension, stdin=pipe, stdout=pipe, stderr=pipe, env=_environment()
            )
            self._in, self._out = self._process.stdin, self._process.stdout
            self._runner = threading.Thread(target=self._read_stderr, daemon=True)
            self._runner.start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._wait(lambda: self._seen("ready"), "the extension did not say ready")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for the test ------------------------------------------------------------------------

    def command(self, name: str, args: str = "") -> dict[str, Json]:
        """Run a command; return its `command_response`."""
        return self._ask("command_response", "command_invoked", name=name, args=args)

    def call(self, name: str, /, **args: Json) -> Result:
        """Call a tool; return its result and progress."""
        frame = self._ask("tool_result", "tool_call", name=name, args=args)
        pieces = [
            progress for progress in self._seen("tool_progress") if progress["id"] == frame["id"]
        ]
        return Result(frame, [progress["text"] for progress in pieces])

    def event(self, name: str, /, **fields: Json) -> None:
        """Send an event."""
        self.send("event", **self._event(name, fields))

    def intercept(self, name: str, /, **fields: Json) -> dict[str, Json]:
        """Send an `event_intercept`; return the `event_intercept_response`."""
        return self._ask("event_intercept_response", "event_intercept", **self._event(name, fields))

    def key(self, panel_id: str, key: str, text: str = "") -> None:
        """Send a key to a panel: its name, or `rune` with the `text`."""
        self.send("panel_key", panel_id=panel_id, key=key, text=text)

    def wait_for(self, type: str, **fields: Json) -> dict[str, Json]:
        """Return the first frame of this type with these fields, waiting for it if needed."""

        def matching() -> list[dict[str, Json]]:
            frames = self._seen(type)
            return [frame for frame in frames if fields.items() <= frame.items()]

        first: dict[str, Json] = self._wait(matching, f"no {type!r} with {fields}")[0]
        return first

    @property
    def notes(self) -> list[str]:
        """Messages of `notify`, in order."""
        return [frame["message"] for frame in self._seen("notify")]

    def send(self, type: str, **fields: Json) -> None:
        """Send any frame to the extension."""
        self._in.write(json.dumps({"type": type, **fields}).encode() + b"\n")
        self._in.flush()

    def close(self) -> int:
        """Send shutdown and wait for the end; return the exit code of a process, else 0."""
        code = 0
        try:
            self.send("shutdown")
        except (BrokenPipeError, ValueError):
            pass  # ended already, or closed before
        try:
            self._in.close()
        except BrokenPipeError:
            pass  # the shutdown that could not be sent above
        if self._process is not None:
            try:
                code = self._process.wait(self._timeout)
            finally:
                self._process.kill()
                self._process.wait()
        self._runner.join(self._timeout)
        self._reader.join(self._timeout)
        self._out.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        return code

    # --- inside ------------------------------------------------------------------------------

    def _event(self, name: str, fields: dict[str, Json]) -> dict[str, Json]:
        base = {"event": name, "session_id": "test", "cwd": self._ack["cwd"]}
        return {**base, "sequence": next(self._sequence), **fields}

    def _ask(self, answer: str, type: str, **fields: Json) -> dict[str, Json]:
        id = str(next(self._ids))
        self.send(type, id=id, **fields)
        return self.wait_for(answer, id=id)

    def _seen(self, type: str) -> list[dict[str, Json]]:
        with self._changed:
            return [frame for frame in self.frames if frame["type"] == type]

    def _wait(self, seen: Callable[[], list[Any]], failure: str) -> list[Any]:
        with self._changed:
            if not self._changed.wait_for(lambda: seen() or self._ended, self._timeout):
                raise TimeoutError(f"{failure} within {self._timeout:g} s")
            if seen():
                return seen()
        self._runner.join(self._timeout)  # it has read all of stderr when it ends
        said = f"; its stderr:\n{self.stderr}" if self.stderr else ", and wrote nothing to stderr"
        raise EOFError(f"{failure}: the extension ended{said}")

    def _read_stderr(self) -> None:
        with self._process.stderr as stderr:
            for line in stderr:
                self._keep(line.decode(errors="replace"))

    def _run_extension(self, extension: Extension, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        with stdin, stdout:
            try:
                extension.run(stdin, stdout)
            except Exception:
                self._keep(traceback.format_exc())

    def _keep(self, text: str) -> None:
        self.stderr = (self.stderr + text)[-MAX_STDERR:]
        sys.stderr.write(text)

    def _read(self) -> None:
        try:
            for line in self._out:
                self._take(json.loads(line))
        except (ValueError, OSError):
            traceback.print_exc()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _take(self, frame: dict[str, Json]) -> None:
        kind = frame["type"]
        if kind == "hello":
            self.hello = frame
            self.send("hello_ack", **self._ack)
        elif kind == "register_command":
            self.commands[frame["name"]] = frame
        elif kind == "register_tool":
            self.tools[frame["name"]] = frame
        elif kind == "subscribe":
            self.subscribed.update(frame)
        elif kind == "call_tool":
            self._answer_call(frame)
        elif kind == "ask":
            self.send("answer", id=frame["id"], **self._user(frame))
        with self._changed:
            self.frames.append(frame)
            self._changed.notify_all()

    def _answer_call(self, call: dict[str, Json]) -> None:
        tool = self._host_tools.get(call["name"])
        text = f"unknown tool {call['name']!r}" if tool is None else str(tool(**call["args"]))
        answer = {"content": [{"type": "text", "text": text}], "is_error": tool is None}
        self.send("tool_result", id=call["id"], name=call["name"], **answer)


def _environment() -> dict[str, str]:
    """Return the environment with `zot_ext` on Python's path, as zot itself sets it."""
    sdk = Path(__file__).absolute().parent.parent / "extensions" / "sdk"
    path = [os.environ.get("PYTHONPATH", ""), str(sdk)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
