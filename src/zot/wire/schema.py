"""JSON Schema of the wires, generated from the types in use, and a compatibility check.

The check compares two such documents: within one protocol version nothing may disappear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from zot.wire import commands, shapes, zot
from zot.wire.commands import AnyCommand
from zot.wire.frames import EventFrame
from zot.wire.zot import Hello, Ping

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID: Schema = {
    "description": "Echoed in the response.",
    "anyOf": [{"type": "string"}, {"type": "number"}],
}
SEQ: Schema = {
    "seq": {"type": "integer", "description": "Feature `seq`: counts the frames."},
    "prompt_id": {**ID, "description": "Feature `seq`: the id of the prompt it belongs to."},
}

AGENT: Schema = {
    "agent": {"type": "string", "description": "Feature `agents`: whose it is, or for whom."},
    "parent": {"type": "string", "description": "Feature `agents`: whose tool opened that agent."},
}

DATA: dict[type, Any] = {
    Hello: zot.HelloData,
    commands.Prompt: zot.Started,
    commands.RetryPrompt: zot.Started,
    commands.ResumeRun: None,
    commands.Events: shapes.EventsRead,
    commands.Steer: zot.Started | None,
    commands.FollowUp: zot.Started | None,
    commands.Abort: None,
    commands.Compact: zot.Started,
    commands.GetState: shapes.State,
    commands.GetMessages: shapes.Messages,
    commands.Clear: None,
    commands.SetModel: shapes.ModelSet,
    commands.SetReasoning: shapes.ReasoningSet,
    commands.SetJail: shapes.JailSet,
    commands.SetMode: shapes.ModeSet,
    commands.GetModels: shapes.Models,
    commands.GetCommands: shapes.Commands,
    commands.RunCommand: shapes.CommandRan,
    commands.ReloadExt: shapes.Reloaded,
    commands.PanelKey: None,
    commands.PanelResize: None,
    commands.PanelClose: None,
    commands.Answer: None,
    commands.RunShell: shapes.ShellRan,
    commands.AbortShell: None,
    commands.NewSession: shapes.SessionLoaded,
    commands.ListSessions: shapes.Sessions,
    commands.LoadSession: shapes.SessionLoaded,
    commands.ForkSession: shapes.SessionLoaded,
    commands.ExportSession: shapes.SessionExported,
    commands.Checkpoints: shapes.CheckpointList,
    commands.Rewind: shapes.Rewound,
    commands.GetChanges: shapes.Changes,
    commands.SetMessages: shapes.MessagesSet,
    commands.OpenAgent: shapes.AgentOpened,
    commands.CloseAgent: None,
    commands.ListAgents: shapes.AgentList,
    Ping: zot.Pong,
    commands.Approve: None,
    commands.GetApprovals: shapes.Approvals,
    commands.RemoveApproval: None,
}
"""Type of `data` in a successful response; None: it has no `data`."""


def rpc_schema() -> Schema:
    """Return the zot wire's schema; `$defs` has Command, Response, Event and all their parts."""
    kinds = [*AnyCommand.__args__, *EventFrame.__args__]
    data = [type for type in DATA.values() if type is not None]
    refs, parts = _components([*kinds, *data])
    by_type = dict(zip(kinds, refs[: len(kinds)], strict=True))
    data_refs = iter(refs[len(kinds) :])
    for kind in AnyCommand.__args__:
        part = _part(parts, by_type[kind])
        part["properties"] = AGENT | part["properties"] | {"id": ID}
    for kind in EventFrame.__args__:
        _part(parts, by_type[kind])["properties"] |= SEQ | AGENT
    responses = {
        f"{kind.__name__}Response": _response(kind, None if type is None else next(data_refs))
        for kind, type in DATA.items()
    }
    return {
        "$schema": DIALECT,
        "title": "zot wire",
        "description": "One JSON object a line on the stdin and stdout of `zot rpc`.",
        "protocol_version": zot.PROTOCOL_VERSION,
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("Command", "Response", "Event")],
        "$defs": {
            "Command": {"anyOf": [by_type[kind] for kind in AnyCommand.__args__]},
            "Event": {"anyOf": [by_type[kind] for kind in EventFrame.__args__]},
            "Response": {
                "anyOf": [{"$ref": f"#/$defs/{name}"} for name in (*responses, "FailedResponse")]
            },
            "FailedResponse": _failed_response(),
            **responses,
            **dict(sorted(parts.items())),
        },
    }


def commands_schema(commands: Any, title: str, description: str) -> Schema:
    """Return the schema of another dialect's commands, a union of structs."""
    (command,), parts = _components([commands])
    return {
        "$schema": DIALECT,
        "title": title,
        "description": description,
        **command,
        "$defs": dict(sorted(parts.items())),
    }


def text_of(schema: Schema) -> str:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _components(types: Sequence[Any]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """Return a reference for each type, and the parts they name. A description is one line: how
    Python indents the lines of a docstring depends on its version."""
    refs, parts = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    for part in parts.values():
        if "description" in part:
            part["description"] = " ".join(part["description"].split())
    return refs, parts


def _part(parts: dict[str, Schema], ref: Schema) -> Schema:
    return parts[ref["$ref"].removeprefix("#/$defs/")]


def _response(kind: type, data: Schema | None) -> Schema:
    command = {"const": kind.__struct_config__.tag}  # type: ignore[attr-defined]  # a Struct
    if data is None:
        return _any_response(command, {}, success=True)
    if data.get("anyOf", [{}])[-1] == {"type": "null"}:  # sent only sometimes
        return _any_response(command, {"data": data["anyOf"][0]}, success=True)
    return _any_response(command, {"data": data}, "data", success=True)


def _failed_response() -> Schema:
    text = {"type": "string"}
    code = {**text, "description": "Feature `codes`."}
    return _any_response(text, {"error": text, "code": code}, "error", success=False)


def _any_response(command: Schema, own: Schema, *required: str, success: bool) -> Schema:
    common = {"type": {"const": "response"}, "command": command, "success": {"const": success}}
    return {
        "type": "object",
        "properties": {**common, "id": ID, **own, **SEQ, **AGENT},
        "required": [*common, *required],
    }


# --- compatibility -------------------------------------------------------------------------------

Direction = Literal["to_server", "to_client"]


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """Return what breaks a client written for `old` when it meets `new`, in sentences."""
    sent = _reachable(old, "Command")
    problems: list[str] = []
    for name, before in old["$defs"].items():
        after = new["$defs"].get(name)
        if after is None:
            problems.append(f"{name} has disappeared")
        elif "anyOf" in before and "properties" not in before:
            problems += _members(name, before, after)
        else:
            direction: Direction = "to_server" if name in sent else "to_client"
            problems += _fields(name, before, after, direction)
    return problems


def _members(name: str, before: Schema, after: Schema) -> Iterator[str]:
    now = [_signature(member) for member in after.get("anyOf", [])]
    for member in before["anyOf"]:
        if _signature(member) not in now:
            yield f"{name} no longer includes {_signature(member)}"


def _fields(name: str, before: Schema, after: Schema, direction: Direction) -> Iterator[str]:
    now = after.get("properties", {})
    for field, schema in before.get("properties", {}).items():
        if field not in now:
            yield f"{name}.{field} has disappeared"
        elif not _is_compatible(schema, now[field]):
            yield f"{name}.{field} was {_signature(schema)}, is {_signature(now[field])}"
    needed, needed_now = set(before.get("required", ())), set(after.get("required", ()))
    if direction == "to_server":
        for field in sorted(needed_now - needed):
            yield f"{name}.{field} must be sent now"
    else:
        for field in sorted(needed - needed_now):
            yield f"{name}.{field} is not always sent any more"


def _is_compatible(before: Schema, after: Schema) -> bool:
    """Return whether the type is the same; an enum may gain values."""
    if "enum" in before and "enum" in after:
        return set(map(str, before["enum"])) <= set(map(str, after["enum"]))
    return _signature(before) == _signature(after)


def _signature(schema: Schema) -> str:
    """Return the type in a schema as text, without descriptions, defaults and limits."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix("#/$defs/")
    if "anyOf" in schema:
        return " | ".join(sorted(_signature(member) for member in schema["anyOf"]))
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(sorted(map(str, schema["enum"])))
    kind = str(schema.get("type", "anything"))
    if isinstance(schema.get("items"), dict):
        return f"{kind} of {_signature(schema['items'])}"
    return kind


def _reachable(schema: Schema, name: str) -> set[str]:
    """Return the names of all definitions that `name` refers to, itself included."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        at = waiting.pop()
        if at not in reached and at in schema["$defs"]:
            reached.add(at)
            waiting += [ref.removeprefix("#/$defs/") for ref in _refs(schema["$defs"][at])]
    return reached


def _refs(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from _refs(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _refs(value)
