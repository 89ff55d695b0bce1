"""A spawned `zot acp` for tests, as a client sees it. Every line that it writes is held against the
published schema of the protocol when the test ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
from support.jsonrpc import HELLO, Frame, JsonRpcProcess
from support.npm import unpacked

SDK = "@agentclientprotocol/sdk@2.4.0"
EVERYTHING: dict[str, Any] = {
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
    "elicitation": {"form": {}},
    "auth": {"terminal": True},
}
"""A client that can do all that zot knows of."""


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


class Acp(JsonRpcProcess):
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
        self.schema = schema
        self.decide = decide
        super().__init__(folder, "acp", turns, args=args, env=env)
        if initialize:
            can = EVERYTHING if abilities is None else abilities
            self.hello = self.ok("initialize", protocolVersion=1, clientCapabilities=can)

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

    # --- frames ------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        super()._take(frame)
        if frame.get("method") == "session/request_permission" and self.decide is not None:
            answer = self.decide(frame) if callable(self.decide) else selected(self.decide)
            if answer is not None:
                self.send(id=frame["id"], result=answer)

    def check(self) -> None:
        for frame in self.frames:
            self.schema.check_frame(frame, self.asked)
        super().check()


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
