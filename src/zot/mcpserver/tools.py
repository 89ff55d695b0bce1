"""The two tools of `zot mcp-server`: descriptions, arguments and results.

Needed for the answer to `tools/list`, so it imports little.
"""

from __future__ import annotations

import msgspec

from zot.errors import CommandError
from zot.mcpserver.protocol import JsonObject
from zot.provider.types import LEVELS, Level
from zot.text import Frozen, prepared

START, REPLY = "zot", "zot_reply"


class LimitArguments(Frozen, kw_only=True):
    """Limits of a call: the fields of `Limits`, which is not imported here."""

    max_steps: int | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None


class TaskArguments(LimitArguments, forbid_unknown_fields=True):
    """Arguments of any call."""

    prompt: str
    model: str = ""
    reasoning: Level | None = None
    tools: tuple[str, ...] | None = None


class StartArguments(TaskArguments, forbid_unknown_fields=True, kw_only=True):
    cwd: str = ""


class ReplyArguments(TaskArguments, forbid_unknown_fields=True, kw_only=True):
    session_id: str


AnyArguments = StartArguments | ReplyArguments
prepared(StartArguments, ReplyArguments)

_TEXT = {"type": "string"}
_CHOICES: JsonObject = {
    "model": {"type": "string", "description": "a model, or PROVIDER/MODEL"},
    "reasoning": {"type": "string", "enum": list(LEVELS)},
    "tools": {"type": "array", "items": _TEXT, "description": "the only tools it may use"},
}
_LIMITS: JsonObject = {
    "max_steps": {"type": "integer", "minimum": 1, "description": "model calls"},
    "max_cost": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars"},
    "max_tokens": {"type": "integer", "minimum": 1},
    "max_seconds": {"type": "number", "exclusiveMinimum": 0},
}
_RESULT: JsonObject = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string", "description": "for zot_reply"},
        "text": {"type": "string", "description": "the answer"},
        "stop": {"type": "string", "description": "end, length, aborted or error"},
        "error": {"type": "string", "description": "the class of the error, if it failed"},
        "model": _TEXT,
        "cost_usd": {"type": "number", "description": "of this call; absent: not known"},
        "session_cost_usd": {"type": "number"},
        "input_tokens": {"type": "integer"},
        "output_tokens": {"type": "integer"},
    },
    "required": ["session_id", "text", "stop"],
}


def tool_list() -> list[JsonObject]:
    """Return the tools for `tools/list`."""
    start: JsonObject = {
        "prompt": {"type": "string", "description": "the task, with all that it needs to know"},
        "cwd": {"type": "string", "description": "an absolute directory to work in"},
        **_CHOICES,
        **_LIMITS,
    }
    reply: JsonObject = {
        "session_id": {"type": "string", "description": "as a call of zot returned it"},
        "prompt": _TEXT,
        **_CHOICES,
        **_LIMITS,
    }
    what = "Give a task to zot, a coding agent that reads and changes files and runs commands."
    return [
        _tool(START, "Start a task", what, start, ["prompt"]),
        _tool(REPLY, "Go on", "Go on with a session of zot.", reply, ["session_id", "prompt"]),
    ]


def _tool(name: str, title: str, text: str, fields: JsonObject, needed: list[str]) -> JsonObject:
    return {
        "name": name,
        "title": title,
        "description": text,
        "inputSchema": {
            "type": "object",
            "properties": fields,
            "required": needed,
            "additionalProperties": False,
        },
        "outputSchema": _RESULT,
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    }


def arguments_of(name: str, arguments: JsonObject) -> AnyArguments | None:
    """Parse the arguments of a call; None: there is no such tool. Raises CommandError: they are
    invalid."""
    kinds: dict[str, type[AnyArguments]] = {START: StartArguments, REPLY: ReplyArguments}
    if name not in kinds:
        return None
    try:
        parsed = msgspec.convert(arguments, kinds[name])
    except msgspec.ValidationError as error:
        raise CommandError(f"invalid arguments for {name!r}: {error}") from error
    for limit in LimitArguments.__struct_fields__:
        value = getattr(parsed, limit)
        if value is not None and not 0 < value < 1e15:
            raise CommandError(f"invalid arguments for {name!r}: {limit} must be positive")
    return parsed
