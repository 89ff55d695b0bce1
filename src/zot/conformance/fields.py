"""Check of every received frame against the JSON Schema of the wire: one point per type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from zot.conformance.kit import Point
from zot.conformance.peer import Frame
from zot.wire.schema import Schema, rpc_schema

MAX_SHOWN = 200


def field_points(frames: Sequence[Frame]) -> list[Point]:
    """Return one point for each type of event received, and one for responses."""
    schema = rpc_schema()
    kinds = _events(schema)
    validators: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for frame in frames:
        kind = str(frame.get("type"))
        name = "Response" if kind == "response" else kinds.get(kind)
        if name is None:
            problems.setdefault(kind, "")
            continue
        if name not in validators:
            part = {**schema, "anyOf": [{"$ref": f"#/$defs/{name}"}]}
            validators[name] = jsonschema_rs.validator_for(part)
        if not problems.get(kind):
            problems[kind] = _problem(validators[name], frame)
    return [_point(kind, problem, kind in kinds) for kind, problem in sorted(problems.items())]


def _problem(validator: Any, frame: Frame) -> str:
    if validator.is_valid(frame):
        return ""
    shown = repr(frame)
    return shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "..."


def _point(kind: str, problem: str, known: bool) -> Point:
    if not known and kind != "response":
        text = f"{kind} is an addition: clients must pass over it"
        return Point(f"fields.{kind}", "should", text, True)
    text = f"{kind} has the documented fields"
    return Point(f"fields.{kind}", "must", text, not problem, problem and f"got {problem}")


def _events(schema: Schema) -> dict[str, str]:
    """Map the `type` of each event to the name of its definition."""
    names = {}
    for ref in schema["$defs"]["Event"]["anyOf"]:
        name = ref["$ref"].removeprefix("#/$defs/")
        (word,) = schema["$defs"][name]["properties"]["type"]["enum"]
        names[word] = name
    return names
