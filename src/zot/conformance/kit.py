"""Tools for scenarios: start a fresh peer, and record which points hold."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal

import jsonschema_rs

from zot.conformance.peer import DrivenServer, Frame, Unfinished, count_of, last_of
from zot.home import RPC_TOKEN
from zot.testing.fakeserver import FakeServer
from zot.text import Frozen
from zot.wire.schema import rpc_schema

Level = Literal["must", "should"]
"""must: the documented wire; should: zot's choice where the documents say nothing."""

KEY = "conformance-key"
FLAGS = ("--provider", "anthropic", "--base-url", "{url}", "--api-key", "{key}")
REPEATED = frozenset({"text_delta", "tool_use_args", "tool_progress"})
ORDERED = REPEATED | {
    *("user_message", "turn_start", "assistant_start", "tool_use_start", "tool_use_end", "usage"),
    *("assistant_message", "tool_call", "turn_end", "tool_result", "error", "done", "compact_done"),
}
"""Events whose order is checked; others may come at any time."""
MAX_SHOWN = 200
"""Characters shown of a frame that has other fields than documented."""


class Point(Frozen):
    """Result of one check."""

    id: str
    level: Level
    text: str
    holds: bool
    detail: str = ""


class Kit:
    """Runner of scenarios against one command, one after the other."""

    def __init__(
        self,
        command: Sequence[str],
        server: FakeServer,
        seconds: float,
        tell: Callable[[Point], None] = lambda point: None,
    ) -> None:
        self.server = server
        self.points: list[Point] = []
        self._tell = tell
        self.seen: list[Frame] = []
        """All frames of all peers, for the field checks at the end."""
        self._command = command
        self.seconds = seconds
        self._scenario = ""
        self.cwd = ""

    def run(self, scenario: Callable[[Kit], None]) -> None:
        """Run one scenario in its own directory."""
        self._scenario = scenario.__name__
        with tempfile.TemporaryDirectory(prefix="zot-conformance-") as self.cwd:
            try:
                scenario(self)
            except Unfinished as error:
                self.check("completes", "the scenario runs to its end", False, str(error))

    @contextmanager
    def peer(self, token: str = "", flags: Sequence[str] = ()) -> Iterator[DrivenServer]:
        home = os.path.join(self.cwd, "home")  # noqa: PTH118  plain strings for a child
        os.makedirs(home, exist_ok=True)  # noqa: PTH103
        environment = {
            **os.environ,
            "HOME": home,
            "ZOT_HOME": home,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.server.url,
        }
        environment.pop(RPC_TOKEN, None)
        if token:
            environment[RPC_TOKEN] = token
        command = [*self._filled(), *flags]
        with DrivenServer(command, self.cwd, environment, self.seconds) as peer:
            try:
                yield peer
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                # The scenario could not use the frames: report that and continue.
                reason = f"{type(error).__name__}: {error}"
                raise Unfinished(
                    f"a frame is missing or not as documented ({reason}); {peer.last_words()}"
                ) from error
            finally:
                self.seen += peer.frames

    def check(
        self, id: str, text: str, holds: bool, detail: object = "", level: Level = "must"
    ) -> bool:
        shown = "" if holds else str(detail)
        self.add(Point(f"{self._scenario}.{id}", level, text, holds, shown))
        return holds

    def add(self, point: Point) -> None:
        self.points.append(point)
        self._tell(point)

    def equal(self, id: str, text: str, got: Any, expected: Any, level: Level = "must") -> bool:
        return self.check(id, text, got == expected, f"expected {expected!r}, got {got!r}", level)

    def order(self, id: str, frames: Sequence[Frame], expected: str) -> bool:
        """Check the order of the events; repeated deltas count once."""
        text = f"the events come in the order: {expected}"
        return self.check(id, text, *compared(order_of(frames), expected.split()))

    def ends_well(self, id: str, text: str, frames: Sequence[Frame]) -> bool:
        stop = last_of(frames, "turn_end").get("stop")
        return self.check(id, text, stop in ("end", "end_turn"), stop)

    def one_done(self, peer: DrivenServer, runs: int = 1) -> None:
        """Check that exactly `runs` `done` frames have come when a later ping is answered."""
        peer.ask("ping")
        got = count_of(peer.frames, "done")
        self.equal("one_done", f"{runs} run(s) end in exactly {runs} done", got, runs)

    def _filled(self) -> list[str]:
        command = list(self._command)
        if not any("{url}" in word for word in command):
            command += FLAGS
        values = {"{url}": self.server.url, "{key}": KEY, "{cwd}": self.cwd}
        for name, value in values.items():
            command = [word.replace(name, value) for word in command]
        return command


def one_server(scenario: Callable[[Kit, DrivenServer], None]) -> Callable[[Kit], None]:
    """Wrap a scenario that drives one server, started with default flags."""

    @wraps(scenario)
    def run(kit: Kit) -> None:
        with kit.peer() as peer:
            scenario(kit, peer)

    return run


def order_of(frames: Sequence[Frame]) -> list[str]:
    order: list[str] = []
    for frame in frames:
        kind = frame.get("type")
        if kind in ORDERED and not (kind in REPEATED and order[-1:] == [kind]):
            order.append(str(kind))
    return order


def compared(got: Sequence[str], expected: Sequence[str]) -> tuple[bool, str]:
    for position, (one, other) in enumerate(zip(got, expected, strict=False)):
        if one != other:
            return False, f"event {position + 1}: expected {other}, got {one}; all: {' '.join(got)}"
    if len(got) < len(expected):
        return False, f"missing at the end: {' '.join(expected[len(got) :])}"
    if len(got) > len(expected):
        return False, f"too much at the end: {' '.join(got[len(expected) :])}"
    return True, ""


def field_points(frames: Sequence[Frame]) -> list[Point]:
    """Check every frame against the JSON Schema of the wire; return one point per type."""
    schema = rpc_schema()
    definitions = {"response": "Response"}
    for ref in schema["$defs"]["Event"]["anyOf"]:
        name = ref["$ref"].removeprefix("#/$defs/")
        (word,) = schema["$defs"][name]["properties"]["type"]["enum"]
        definitions[word] = name
    validators: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for frame in frames:
        kind = str(frame.get("type"))
        if kind in definitions and kind not in validators:
            part = {**schema, "anyOf": [{"$ref": f"#/$defs/{definitions[kind]}"}]}
            validators[kind] = jsonschema_rs.validator_for(part)
        problems.setdefault(kind, "")
        if kind in validators and not problems[kind] and not validators[kind].is_valid(frame):
            shown = repr(frame)
            problems[kind] = f"got {shown[:MAX_SHOWN]}{'...' if len(shown) > MAX_SHOWN else ''}"
    return [
        Point(f"fields.{kind}", "must", f"{kind} has the documented fields", not problem, problem)
        if kind in definitions
        else Point(f"fields.{kind}", "should", f"{kind} is an addition: clients must skip it", True)
        for kind, problem in sorted(problems.items())
    ]
