"""A spawned `zot acp` for tests, as a client sees it. Every line that it writes is held against the
published schema of the protocol when the test ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
from support.npm import unpacked
from support.rpc import (
    CANARIES,
    PATIENCE,
    command,
    descendants,
    environment,
    make_folder,
    marked,
    still_there,
    write_script,
)

SDK = "@agentclientprotocol/sdk@2.4.0"
HELLO = {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True}
EVERYTHING: dict[str, Any] = {
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
    "elicitation": {"form": {}},
    "auth": {"terminal": True},
}
"""A client that can do all that zot knows of."""

Frame = dict[str, Any]


class AcpSchema:
    """The protocol's schema, as the npm package of its SDK has it."""

    def __init__(self, cache: Path) -> None:
        path = unpacked(SDK, cache) / "schema" / "v1" / "schema.json"
        self._schema = json.loads(path.read_text("utf-8"))
        self._checks: dict[str, Any] = {}

    def check(self, name: str, value: Any) -> None:
        """The value is what the protocol calls `name`."""
        if name not in self._checks:
            root = {"$defs": self._schema["$defs"], "$ref": f"#/$defs/{name}"}
            self._checks[name] = jsonschema_rs.validator_for(root)
        errors = [str(error) for error in self._checks[name].iter_errors(value)]
        assert errors == [], (name, value, errors[:3])

    def name_of(self, method: str, kind: str) -> str:
        """What its params (`Request`, `Notification`) or its result (`Response`) are called."""
        names = [
            name
            for name, shape in self._schema["$defs"].items()
            if shape.get("x-method") == method and name.endswith(kind)
        ]
        assert len(names) == 1, (method, kind, names)
        return names[0]

    def check_frame(self, frame: Frame, asked: dict[Any, str]) -> None:
        """One line of an agent; `asked` has the method of each request that it may answer."""
        assert frame["jsonrpc"] == "2.0"
        if "method" in frame:
            kind = "Request" if "id" in frame else "Notification"
            self.check(self.name_of(frame["method"], kind), frame["params"])
        elif "error" in frame:
            self.check("Error", frame["error"])
        else:
            self.check(self.name_of(asked[frame["id"]], "Response"), frame["result"])


class Acp:
    """One `zot acp` process, and a client that answers permissions as `decide` says."""

    def __init__(
        self,
        folder: Path,
        schema: AcpSchema,
        turns: Sequence[Any] = (HELLO,),
        *,
        args: Sequence[str] = (),
        abilities: dict[str, Any] | None = None,
        env: dict[str, str | None] | None = None,
        decide: str | Callable[[Frame], Any] | None = "allow_once",
        initialize: bool = True,
    ) -> None:
        self.folder = folder
        self.cwd = make_folder(folder)
        self.schema = schema
        self.decide = decide
        self.mark = uuid.uuid4().hex
        self._stderr = folder / f"stderr-{self.mark[:8]}.txt"
        flags = write_script(folder, list(turns)) if turns else []
        with self._stderr.open("wb") as log:
            self.process = subprocess.Popen(
                [*command(), "acp", *flags, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",  # nothing may depend on it
                env=environment(folder, self.mark, **(env or {})),
            )
        self.frames: list[Frame] = []
        self.asked: dict[Any, str] = {}
        self.raw = bytearray()
        self._ids = 0
        self._ended = False
        self._children: set[tuple[int, str]] = set()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="test-acp", daemon=True)
        self._reader.start()
        if initialize:
            can = EVERYTHING if abilities is None else abilities
            self.hello = self.ok("initialize", protocolVersion=1, clientCapabilities=can)

    def __enter__(self) -> Acp:
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
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

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

    # --- sessions ----------------------------------------------------------------------------

    def new(self, cwd: Path | None = None, **params: Any) -> str:
        params = {"cwd": str(cwd or self.cwd), "mcpServers": [], **params}
        id: str = self.ok("session/new", **params)["sessionId"]
        return id

    def prompt(self, session: str, text: str = "hi") -> Any:
        return self.ok("session/prompt", sessionId=session, prompt=[text_block(text)])

    def start_prompt(self, session: str, text: str = "hi") -> int:
        return self.start("session/prompt", sessionId=session, prompt=[text_block(text)])

    def updates(self, session: str | None = None, kind: str | None = None) -> list[Frame]:
        with self._news:
            params = [f["params"] for f in self.frames if f.get("method") == "session/update"]
        return [
            each["update"]
            for each in params
            if session in (None, each["sessionId"])
            and kind in (None, each["update"]["sessionUpdate"])
        ]

    def texts(self, session: str | None = None) -> str:
        chunks = self.updates(session, "agent_message_chunk")
        return "".join(chunk["content"]["text"] for chunk in chunks)

    def wait_for(self, kind: str, **fields: Any) -> Frame:
        """The first update of this kind with these fields."""

        def found() -> list[Frame]:
            return [u for u in self.updates(None, kind) if fields.items() <= u.items()]

        return self.wait(found, f"{kind} {fields}")[0]

    def requests(self, method: str) -> list[Frame]:
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
                    raise AssertionError(f"waited for {what}:\n{shown}\n{self.stderr()[-3000:]}")
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
        if frame.get("method") == "session/request_permission" and self.decide is not None:
            answer = self.decide(frame) if callable(self.decide) else selected(self.decide)
            if answer is not None:
                self.send(id=frame["id"], result=answer)

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
        for frame in self.frames:
            self.schema.check_frame(frame, self.asked)
        answers = [f["id"] for f in self.frames if "method" not in f and f["id"] is not None]
        assert sorted(answers, key=str) == sorted(self.asked, key=str), (
            "every request is answered once"
        )
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
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass


def text_block(text: str) -> Frame:
    return {"type": "text", "text": text}


def selected(option: str) -> Frame:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def outline(updates: list[Frame]) -> str:
    """The kinds of updates in order, repeated chunks once; calls with their status."""
    words: list[str] = []
    for update in updates:
        kind = update["sessionUpdate"].removesuffix("_update")
        if update["sessionUpdate"].startswith("tool_call"):
            content = ",".join(part["type"] for part in update.get("content", ()))
            parts = (update["toolCallId"], update.get("status", ""), content)
            kind = f"{kind}[{' '.join(filter(None, parts))}]"
        if not (words and words[-1] == kind and kind.endswith("chunk")):
            words.append(kind)
    return " ".join(words)
