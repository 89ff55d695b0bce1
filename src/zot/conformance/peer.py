"""The implementation under test, as a process driven with bytes. Nothing is checked here."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from zot.lines import ready

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
        self._stderr = bytearray()
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise Unfinished(f"cannot start {list(command)!r}: {error}") from error
        self._threads = [
            threading.Thread(target=self._read_stdout, name="peer-stdout", daemon=True),
            threading.Thread(target=self._read_stderr, name="peer-stderr", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # --- sending -----------------------------------------------------------------------------

    def send(self, *commands: Frame) -> None:
        """Send commands, all in one write."""
        self.send_raw(b"".join(msgspec.json.encode(command) + b"\n" for command in commands))

    def send_raw(self, data: bytes) -> None:
        assert self._process.stdin is not None
        fd = self._process.stdin.fileno()
        os.set_blocking(fd, False)
        deadline = time.monotonic() + self._seconds
        while data:
            if not ready(writing=(fd,), timeout=deadline - time.monotonic()):
                raise Unfinished(f"it did not read its input for {self._seconds:g} s")
            try:
                data = data[os.write(fd, data[:65536]) :]
            except BlockingIOError:
                continue
            except OSError:
                return  # it has ended; the next check sees its last output

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

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

    def data(self, id: str | int) -> Frame:
        """Return the data of the response to the command with this id."""
        return self.response(id).get("data") or {}

    def events_until_done(self, count: int = 1) -> list[Frame]:
        """Return the frames since the start, up to and including `count` `done` frames."""
        frames = self.wait("done", lambda frames: count_of(frames, "done") >= count)
        at = [i for i, frame in enumerate(frames) if frame.get("type") == "done"][count - 1]
        return frames[: at + 1]

    def exit_code(self) -> int:
        try:
            return self._process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            raise Unfinished(
                f"it did not exit within {self._seconds:g} s; {self.last_words()}"
            ) from None

    def drained(self) -> list[Frame]:
        """Wait until the output has ended; return all frames."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._ended, self._seconds):
                raise Unfinished(f"its output did not end within {self._seconds:g} s")
            return list(self.frames)

    def last_words(self) -> str:
        if self._ended:  # the reason may reach stderr shortly after stdout ended
            self._threads[1].join(1.0)
        shown = " ".join(str(frame.get("type")) for frame in self.frames[-6:]) or "nothing"
        said = bytes(self._stderr[-300:]).decode("utf-8", "replace").strip()
        return f"last frames: {shown}" + (f"; stderr: {said}" if said else "")

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the process, whatever its state."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        for thread in self._threads:
            thread.join(3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                with self._reading:
                    pass
                try:
                    frame = msgspec.json.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    frame = None
                with self._condition:
                    self.lines.append(line)
                    if isinstance(frame, dict):
                        self.frames.append(frame)
                    self._condition.notify_all()
        with self._condition:
            self._ended = True
            self._condition.notify_all()

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            while data := os.read(stderr.fileno(), 65536):
                self._stderr += data


def count_of(frames: Sequence[Frame], kind: str) -> int:
    return sum(frame.get("type") == kind for frame in frames)
