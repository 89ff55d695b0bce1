"""Repairs tool arguments that a model wrote in another form than the tool's schema asks for.

Only forms with one meaning are repaired: a number as text, a list as JSON text, null for an
optional argument. The caller checks the repaired arguments against the schema again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from zot.provider.types import Json

MAX_DEPTH = 32
"""Levels of a schema below which values are left alone."""
_MISSING = object()


def parsed(raw: str) -> dict[str, Json] | None:
    """Return the arguments in a text that is no JSON object as it stands: the object is encoded
    twice, or its texts contain line breaks that are not escaped. None: it is something else."""
    value: Json = raw
    for _ in range(2):
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return None
        if isinstance(value, dict):
            return value
        if not isinstance(value, str):
            return None
    return None


def fitted(
    args: Mapping[str, Json], schema: Mapping[str, Json]
) -> tuple[dict[str, Json], list[str]]:
    """Return the arguments in the types of the schema, and notes on what was changed."""
    notes: list[str] = []
    return _fields(dict(args), schema, "", notes, 0), notes


def _fields(
    value: dict[str, Json], schema: Mapping[str, Json], at: str, notes: list[str], depth: int
) -> dict[str, Json]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth > MAX_DEPTH:
        return value
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    out = dict(value)
    for name, shape in properties.items():
        if not isinstance(shape, dict):
            continue
        where = f"{at}.{name}" if at else str(name)
        item = out.get(name, _MISSING)
        if item is None and not _takes_null(shape):
            del out[name]
            item = _MISSING  # no note: strict sampling makes a model write it
        if item is not _MISSING:
            out[name] = _value(item, shape, where, notes, depth + 1)
        elif name in required and shape.get("default") is not None:
            out[name] = shape["default"]
            notes.append(f"{where}: default filled in")
    return out


def _takes_null(shape: Mapping[str, Json]) -> bool:
    """Whether null may be meant; a schema without a plain type is not looked into."""
    kind = shape.get("type")
    return not isinstance(kind, str) or kind == "null"


def _value(value: Json, schema: Mapping[str, Json], at: str, notes: list[str], depth: int) -> Json:
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [word for word in kind if word != "null"]
        kind = kinds[0] if len(kinds) == 1 and value is not None else None
    convert = _CONVERT.get(kind) if isinstance(kind, str) else None
    if convert is not None:
        changed = convert(value, schema)
        if changed is not _MISSING:
            notes.append(f"{at}: {_name(value)} read as {kind}")
            value = changed
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [_value(item, items, f"{at}[{n}]", notes, depth) for n, item in enumerate(value)]
    if isinstance(value, dict):
        return _fields(value, schema, at, notes, depth)
    return value


def _name(value: Json) -> str:
    names = {str: "text", bool: "boolean", dict: "object", list: "list"}
    return names.get(type(value), "number")


def _integer(value: Json, schema: Mapping[str, Json]) -> Json:
    number = _number(value, schema)
    if number is _MISSING or not float(number).is_integer():
        return _MISSING
    return int(number)


def _number(value: Json, schema: Mapping[str, Json]) -> Json:
    if not isinstance(value, str) or not value.strip().isascii() or "_" in value:
        return _MISSING
    try:
        return int(value)
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return _MISSING
    return number if math.isfinite(number) else _MISSING


def _boolean(value: Json, schema: Mapping[str, Json]) -> Json:
    words = {"true": True, "false": False}
    return words.get(value.strip().lower(), _MISSING) if isinstance(value, str) else _MISSING


def _string(value: Json, schema: Mapping[str, Json]) -> Json:
    if isinstance(value, int | float):  # also true and false
        return json.dumps(value)
    choices = schema.get("enum")
    if isinstance(value, str) and isinstance(choices, list) and value not in choices:
        near = [word for word in choices if isinstance(word, str) and word.lower() == value.lower()]
        return near[0] if len(near) == 1 else _MISSING
    return _MISSING


def _array(value: Json, schema: Mapping[str, Json]) -> Json:
    items = schema.get("items")
    if isinstance(value, str):
        value = decoded(value)
        if isinstance(value, list):
            return value
    of_objects = isinstance(items, dict) and items.get("type") == "object"
    return [value] if isinstance(value, dict) and of_objects else _MISSING


def _object(value: Json, schema: Mapping[str, Json]) -> Json:
    found = decoded(value) if isinstance(value, str) else None
    return found if isinstance(found, dict) else _MISSING


def decoded(text: str) -> Json:
    """Return the JSON value in a text; None if there is none."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


_CONVERT: dict[str, Callable[[Json, Mapping[str, Json]], Json]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "string": _string,
    "array": _array,
    "object": _object,
}
