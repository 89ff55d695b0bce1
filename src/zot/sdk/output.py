"""Types of structured answers: the JSON Schema of a type, and an answer in that type."""

from __future__ import annotations

from typing import Any

import msgspec

from zot.errors import CommandError
from zot.provider.types import Json


def schema_of(wanted: Any) -> dict[str, Json]:
    """Return the JSON Schema of a type; a schema is returned as it is.

    Raises:
        CommandError: the type has none.
    """
    if isinstance(wanted, dict):
        return wanted
    if hasattr(wanted, "model_json_schema"):  # pydantic, which need not be installed
        made: dict[str, Json] = wanted.model_json_schema()
        return made
    try:
        schema = msgspec.json.schema(wanted)
    except TypeError as error:
        raise CommandError(f"invalid_params: {wanted!r:.80} has no JSON Schema: {error}") from error
    # Providers want the object itself at the root, not a reference to it.
    name = schema.get("$ref", "").rpartition("/")[2]
    return {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema


def converted(text: str, wanted: Any) -> Any:
    """Return an answer, which was checked, in the type that was asked for."""
    if isinstance(wanted, dict):
        return msgspec.json.decode(text)
    if hasattr(wanted, "model_validate_json"):
        return wanted.model_validate_json(text)
    return msgspec.json.decode(text, type=wanted)
