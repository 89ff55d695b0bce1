"""The implementation under test, as a process driven with bytes. Nothing is checked here."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from zot.lines import LINE_ERRORS, LineCutter, LineTooLong
from zot.rpc_process import ClientTimeoutError, RpcProcess, ServerGoneError

STOP_SECONDS = 3.0
Frame = dict[str, Any]


class Unfinished(Exception):
    """A wait failed; the text says what came instead."""


class DrivenServer:
    """The server process. All lines it writes are stored in order, parsed or not."""

    def __init__(
        self, command: Sequence[str], cwd: str, env: Mapping[str, str], seconds: float
    ) -> None:
        self._seconds = seconds
        self._condition = threading.Condition()
        self.lines: list[bytes] = []
        self.frames: list[Frame] = []
        """The lines that are JSON objects."""
        self._ended = False
        self._reading = threading.Lock()
        self._cutter = LineCutter()
        self._ids = itertools.count(1)
        try:
            self._server: RpcProcess[Frame] = RpcProcess(
                command,
                cwd=cwd,
                env=env,
                lines=self._cutter,
                on_line=self._take,
                on_end=self._end,
                own_session=True,
            )
        except ServerGoneError as error:
            raise Unfinished(str(error)) from error

    # --- sending -----------------------------------------------------------------------------

    def send(self, *commands: Frame) -> None:
        """Send commands, all in one write."""
        self.send_raw(b"".join(msgspec.json.encode(command) + b"\n" for command in commands))

    def send_raw(self, data: bytes) -> None:
        try:
            self._server.write(data, self._seconds)
        except ClientTimeoutError:
            raise Unfinished(f"it did not read its input for {self._seconds:g} s") from None

    def end_input(self) -> None:
        self._server.close_input()

    def signal(self, number: signal.Signals) -> None:
        self._server.signal(number)

    def not_reading(self) -> threading.Lock:
        """Return a lock; while it is held, the output is not read."""
        return self._reading

    # --- receiving ---------------------------------------------------------------------------

    def wait(self, what: str, holds: Callable[[list[Frame]], bool]) -> list[Frame]:
        """Wait until `holds` returns True for the frames; return all frames so far."""
        with self._condition:
            self._condition.wait_for(lambda: holds(self.frames) or self._ended, self._seconds)
            if holds(self.frames):
                return list(self.frames)
            why = "it ended" if self._ended else f"nothing within {self._seconds:g} s"
        raise Unfinished(f"waited for {what}: {why}; {self.last_words()}")

    def comes(self, holds: Callable[[list[Frame]], bool], seconds: float = 2.0) -> bool:
        """Return whether `holds` becomes True within the timeout; for frames that are optional."""
        with self._condition:
            self._condition.wait_for(lambda: holds(self.frames) or self._ended, seconds)
            return holds(self.frames)

    def response(self, id: str | int) -> Frame:
        """Wait for the response to the command with this id."""

        def is_it(frame: Frame) -> bool:
            return frame.get("type") == "response" and frame.get("id") == id

        frames = self.wait(f"the response to {id!r}", lambda frames: any(map(is_it, frames)))
        return next(frame for frame in frames if is_it(frame))

    def ask(self, type: str, **fields: Any) -> Frame:
        """Send a command; return its response."""
        id = fields.setdefault("id", f"ask-{next(self._ids)}")
        self.send({"type": type, **fields})
        return self.response(id)

    def data(self, type: str, **fields: Any) -> Frame:
        """Send a command; return the data of its response."""
        return self.ask(type, **fields).get("data") or {}

    def run(self, message: str, **fields: Any) -> list[Frame]:
        """Send a prompt; return the frames since then, up to and including its `done`."""
        before, runs = len(self.frames), count_of(self.frames, "done")
        self.send(prompt(message, **fields))
        return self.events_until_done(runs + 1)[before:]

    def events_until_done(self, count: int = 1) -> list[Frame]:
        """Return the frames since the start, up to and including `count` `done` frames."""
        frames = self.wait("done", lambda frames: count_of(frames, "done") >= count)
        at = [i for i, frame in enumerate(frames) if frame.get("type") == "done"][count - 1]
        return frames[: at + 1]

    def exit_code(self) -> int:
        code = self._server.wait(self._seconds)
        if code is None:
            raise Unfinished(f"it did not exit within {self._seconds:g} s; {self.last_words()}")
        return code

    def drained(self) -> list[Frame]:
        """Wait until the output has ended; return all frames."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._ended, self._seconds):
                raise Unfinished(f"its output did not end within {self._seconds:g} s")
            return list(self.frames)

    def last_words(self) -> str:
        shown = " ".join(str(frame.get("type")) for frame in self.frames[-6:]) or "nothing"
        said = self._server.stderr[-300:].strip()
        return f"last frames: {shown}" + (f"; stderr: {said}" if said else "")

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the process, whatever its state."""
        self._server.signal(signal.SIGTERM)
        self._server.end(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, line: bytes | LineTooLong) -> None:
        assert isinstance(line, bytes)  # a cutter has no limit
        with self._reading:
            pass
        try:
            frame = msgspec.json.decode(line)
        except LINE_ERRORS:
            frame = None
        with self._condition:
            self.lines.append(line)
            if isinstance(frame, dict):
                self.frames.append(frame)
            self._condition.notify_all()

    def _end(self) -> None:
        for rest in filter(None, self._cutter.feed(b"\n")):  # a last line without its end
            self._take(rest)
        with self._condition:
            self._ended = True
            self._condition.notify_all()


def count_of(frames: Sequence[Frame], kind: str) -> int:
    return sum(frame.get("type") == kind for frame in frames)


def prompt(text: str, id: str = "1", **fields: Any) -> Frame:
    return {"id": id, "type": "prompt", "message": text, **fields}


def of_type(frames: Sequence[Frame], kind: str) -> list[Frame]:
    return [frame for frame in frames if frame.get("type") == kind]


def last_of(frames: Sequence[Frame], kind: str) -> Frame:
    """Return the last frame of that type; an empty one if there is none."""
    return next((frame for frame in reversed(frames) if frame.get("type") == kind), {})
