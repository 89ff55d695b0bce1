"""Check of the schema that an extension gives for its tool, before a model gets it."""

from __future__ import annotations

import re

import msgspec

from zot.core.check import is_plain, validator
from zot.errors import ExtensionError
from zot.provider.types import Json

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tool names that every provider accepts."""
COMMAND_NAME = re.compile(r"[A-Za-z0-9_:.-]{1,64}")
MAX_BYTES = 256 * 1024
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check(schema: Json) -> dict[str, Json]:
    """Return the schema, completed to an object schema. Raises ExtensionError: no object schema,
    invalid, too large, or with a remote reference."""
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        raise ExtensionError(f"its schema is no JSON object but {type(schema).__name__}")
    kind = schema.get("type", "object")
    if kind != "object":
        raise ExtensionError(f"its schema has type {kind!r}, not 'object'")
    if len(msgspec.json.encode(schema)) > MAX_BYTES:
        raise ExtensionError("its schema is larger than 256 KiB")
    _refuse_remote(schema)
    complete = {"type": "object", "properties": {}, **schema}
    if not is_plain(complete):
        try:
            validator(complete)
        except ValueError as error:
            raise ExtensionError(f"its schema is not valid: {error}") from error
    return complete


def _refuse_remote(value: Json) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _REFERENCES and isinstance(item, str) and not item.startswith("#"):
                raise ExtensionError(f"its schema refers to {item!r}; only '#...' is allowed")
            if key in ("$id", "id") and isinstance(item, str) and "://" in item:
                raise ExtensionError(f"its schema has the remote {key} {item!r}; remove it")
            _refuse_remote(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_remote(item)
