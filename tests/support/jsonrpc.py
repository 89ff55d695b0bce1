"""A spawned program that speaks JSON-RPC over stdin and stdout, as its client sees it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from support.patience import PATIENCE
from support.rpc import (
    CANARIES,
    close_pipes,
    command,
    descendants,
    environment,
    make_folder,
    marked,
    still_there,
    write_script,
)

HELLO = {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True}
Frame = dict[str, Any]


class JsonRpcProcess:
    """`frames` holds all that it said. At the end every request was answered once, and nothing of
    the process is left."""

    def __init__(
        self,
        folder: Path,
        word: str,
        turns: Sequence[Any],
        *,
        args: Sequence[str] = (),
        env: dict[str, str | None] | None = None,
    ) -> None:
        self.folder = folder
        self.cwd = make_folder(folder)
        self.mark = uuid.uuid4().hex
        self._stderr = folder / f"stderr-{self.mark[:8]}.txt"
        flags = write_script(folder, list(turns)) if turns else []
        with self._stderr.open("wb") as log:
            self.process = subprocess.Popen(
                [*command(), word, *flags, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",  # nothing may depend on it
                env=environment(folder, self.mark, **(env or {})),
            )
        self.frames: list[Frame] = []
        self.asked: dict[Any, str] = {}
        """The method of each request."""
        self.unanswered: set[Any] = set()
        """Requests that need no answer."""
        self.on_request: Callable[[Frame], Frame] | None = None
        """What the client says to a request of the program."""
        self.raw = bytearray()
        self._together: bytearray | None = None
        self._ids = 0
        self._ended = False
        self._children: set[tuple[int, str]] = set()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="test-stdout", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if exc[0] is None:
                assert self.close() == 0, self.stderr()
        finally:
            self.kill()

    # --- asking ------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        if self._together is None:
            self.write(line)
        else:
            self._together += line

    @contextmanager
    def in_one_write(self) -> Iterator[None]:
        """Send all lines of the block at once."""
        self._together = bytearray()
        try:
            yield
            self.write(bytes(self._together))
        finally:
            self._together = None

    def start(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._ids += 1
        self.asked[self._ids] = method
        self.send(id=self._ids, method=method, params=params)
        return self._ids

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def answer(self, id: int) -> Frame:
        found = self.wait(
            lambda: [f for f in self.frames if "method" not in f and f.get("id") == id],
            f"the answer to {self.asked.get(id)} {id}",
        )
        return found[0]

    def ask(self, method: str, **params: Any) -> Frame:
        return self.answer(self.start(method, **params))

    def ok(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "result" in answer, (answer, self.stderr())
        return answer["result"]

    def fails(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "error" in answer, answer
        return answer["error"]

    def requests(self, method: str) -> list[Frame]:
        """What it asked of its client."""
        with self._news:
            return [f for f in self.frames if f.get("method") == method and "id" in f]

    # --- waiting -----------------------------------------------------------------------------

    def wait(self, found: Callable[[], Any], what: str = "frames") -> Any:
        end = time.monotonic() + PATIENCE
        with self._news:
            while not (result := found()):
                left = end - time.monotonic()
                if left <= 0 or self._ended:
                    shown = "\n".join(json.dumps(frame)[:300] for frame in self.frames[-20:])
                    code = self.process.poll()
                    said = f"{shown}\n{self.stderr()[-3000:]}"
                    raise AssertionError(f"waited for {what}; exit code {code}:\n{said}")
                self._news.wait(left)
            return result

    def _read(self) -> None:
        assert self.process.stdout is not None
        rest = b""
        while data := os.read(self.process.stdout.fileno(), 1 << 20):
            *lines, rest = (rest + data).split(b"\n")
            with self._news:
                self.raw += data
                for line in lines:
                    self._take(json.loads(line))
                self._news.notify_all()
        with self._news:
            assert rest == b""
            self._ended = True
            self._news.notify_all()

    def _take(self, frame: Frame) -> None:
        self.frames.append(frame)
        if self.on_request is not None and "method" in frame and "id" in frame:
            self.send(id=frame["id"], result=self.on_request(frame))

    def stderr(self) -> str:
        return self._stderr.read_text("utf-8", "replace")

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> int:
        """End the input: the exit code. Every request was answered once, nothing is left."""
        self._children |= descendants(self.process.pid)
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.check()
        return code

    def check(self) -> None:
        answers = [f["id"] for f in self.frames if "method" not in f and f["id"] is not None]
        expected = sorted(set(self.asked) - self.unanswered, key=str)
        assert sorted(answers, key=str) == expected, "every request is answered once"
        assert marked(self.mark) == [], "processes were left behind"
        assert still_there(self._children) == set()
        for mark in ("\u2028", "\u2029", "\u0085"):
            assert mark.encode() not in self.raw
        for canary in CANARIES:
            assert canary.encode() not in self.raw
            assert canary not in self.stderr()
        assert "Traceback" not in self.stderr()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE)
        close_pipes(self.process)
