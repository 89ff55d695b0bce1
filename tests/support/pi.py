"""A spawned `zot --mode rpc` and what one wants to know of its frames."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from support.patience import patience

Frame = dict[str, Any]
WAIT = patience(30.0)


class PiProcess:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen: list[Frame] = []
        self._lines: Queue[bytes | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, type: str, **fields: Any) -> None:
        self.raw(json.dumps({"type": type, **fields}).encode() + b"\n")

    def frame(self, seconds: float = WAIT) -> Frame:
        """The next frame; fails the test when none comes."""
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"no frame came; seen: {kinds(self.seen)}") from None
        assert line is not None, f"the process ended; seen: {kinds(self.seen)}"
        frame: Frame = json.loads(line)
        self.seen.append(frame)
        return frame

    def until(self, found: str | Callable[[Frame], bool]) -> list[Frame]:
        """The frames up to one of a type, or one that satisfies a condition."""
        frames: list[Frame] = []
        while True:
            frames.append(self.frame())
            last = frames[-1]
            if last["type"] == found if isinstance(found, str) else found(last):
                return frames

    def ask(self, type: str, **fields: Any) -> Frame:
        """Send a command with an id, and wait for its response."""
        id = f"ask-{time.monotonic_ns()}"
        self.send(type, id=id, **fields)
        return self.until(lambda frame: frame.get("id") == id and frame["type"] == "response")[-1]

    def data(self, type: str, **fields: Any) -> Any:
        response = self.ask(type, **fields)
        assert response["success"], response
        return response.get("data")

    def run(self, message: str, end: str = "agent_settled", **fields: Any) -> list[Frame]:
        """A prompt and all its frames."""
        self.send("prompt", message=message, **fields)
        return self.until(end)

    def rest(self) -> list[Frame]:
        """Close stdin; the frames up to the end of the process."""
        self.close_stdin()
        frames: list[Frame] = []
        while (line := self._lines.get(timeout=WAIT)) is not None:
            frames.append(json.loads(line))
        return frames

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        return self.process.wait(WAIT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(WAIT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        self._reader.join(WAIT)


class PiServers:
    """Starts servers in a home and a working directory of the test's own."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.cwd = root / "work"
        self.agent = root / "agent"
        self.cwd.mkdir()
        self._scripts = 0
        self._root = root

    def environment(self, **more: str) -> dict[str, str]:
        names = ("PATH", "LANG", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        own = {
            "HOME": str(self._root),
            "ZOT_HOME": str(self.home),
            "PI_CODING_AGENT_DIR": str(self.agent),
        }
        return kept | own | more

    def script(self, *turns: Any) -> Path:
        self._scripts += 1
        path = self._root / f"script-{self._scripts}.json"
        path.write_text(json.dumps({"turns": list(turns)}))
        return path

    def arguments(self, turns: Sequence[Any], *args: str) -> list[str]:
        script = str(self.script(*turns))
        return ["--provider", "scripted", "--script", script, *args]

    @contextmanager
    def start(
        self,
        *turns: Any,
        args: Sequence[str] = ("--no-session",),
        env: dict[str, str] | None = None,
    ) -> Iterator[PiProcess]:
        command = [sys.executable, "-m", "zot", "--mode", "rpc", *self.arguments(turns, *args)]
        process = subprocess.Popen(
            command,
            cwd=self.cwd,
            env=self.environment(**(env or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        server = PiProcess(process)
        try:
            yield server
        finally:
            server.close()

    def files(self) -> list[Path]:
        return sorted(self.agent.glob("sessions/*/*.jsonl"))


def kinds(frames: Sequence[Frame]) -> list[str]:
    """The types of frames; an update is named after what it updates."""
    return [
        frame["assistantMessageEvent"]["type"]
        if frame["type"] == "message_update"
        else f"{frame['type']}:{frame['message']['role']}"
        if frame["type"] in ("message_start", "message_end")
        else frame["type"]
        for frame in frames
    ]


def outline(frames: Sequence[Frame]) -> str:
    """The order of frames in short words, the deltas of one block as one."""
    short = {
        "agent_start": "run",
        "agent_end": "/run",
        "turn_start": "turn",
        "turn_end": "/turn",
        "message_start:user": "user",
        "message_end:user": "/user",
        "message_start:assistant": "asst",
        "message_end:assistant": "/asst",
        "message_start:toolResult": "result",
        "message_end:toolResult": "/result",
        "tool_execution_start": "tool",
        "tool_execution_end": "/tool",
        "agent_settled": "settled",
    }
    words: list[str] = []
    for kind in kinds(frames):
        word = short.get(kind, kind)
        if not (word.endswith("_delta") and words and words[-1] == word):
            words.append(word)
    return " ".join(words)


def ended(frames: Sequence[Frame]) -> list[Frame]:
    """The messages of the message_end frames."""
    return [frame["message"] for frame in frames if frame["type"] == "message_end"]


class Grammar:
    """Checks frames one by one against the order that docs/pi.md promises."""

    def __init__(self) -> None:
        self.running = self.turn = False
        self.message: str | None = None
        self.tools: set[str] = set()
        self.runs = self.settled = 0
        self.answers: dict[str, int] = {}

    def take(self, frame: Frame) -> None:  # noqa: C901  one flat match
        match frame["type"]:
            case "agent_start":
                assert not self.running, "a run within a run"
                self.running = True
            case "agent_end":
                assert self.running, "an end without a beginning"
                assert not self.turn, "a run ended within a turn"
                self.running = False
                self.runs += 1
            case "agent_settled":
                self.settled += 1
                assert self.settled <= self.runs
            case "turn_start":
                assert self.running, "a turn without a run"
                assert not self.turn, "a turn within a turn"
                self.turn = True
            case "turn_end":
                assert self.turn, "a turn ended that was not there"
                assert self.message is None, "a turn ended within a message"
                assert not self.tools, "a turn ended before its tools"
                assert frame["message"]["role"] == "assistant"
                self.turn = False
            case "message_start":
                assert self.turn, "a message without a turn"
                assert self.message is None, "a message within a message"
                self.message = frame["message"]["role"]
            case "message_update":
                assert self.message == "assistant"
            case "message_end":
                assert self.message == frame["message"]["role"]
                self.message = None
            case "tool_execution_start":
                assert self.turn, "a tool without a turn"
                assert frame["toolCallId"] not in self.tools
                self.tools.add(frame["toolCallId"])
            case "tool_execution_update":
                assert frame["toolCallId"] in self.tools
            case "tool_execution_end":
                self.tools.remove(frame["toolCallId"])
            case "response":
                if "id" in frame:
                    self.answers[frame["id"]] = self.answers.get(frame["id"], 0) + 1
            case _:
                pass

    def at_rest(self) -> bool:
        return not (self.running or self.turn or self.message or self.tools)
