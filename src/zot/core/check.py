"""Checks a tool's arguments against its JSON Schema, and says in one line what is wrong."""

from __future__ import annotations

from typing import Any

from zot.provider.types import Json

# Plain schemas, as all built-in tools have, are checked here: loading the JSON Schema library
# takes longer than most tools run. Any other keyword hands the schema to the library.
_PLAIN = {
    "type", "properties", "required", "items", "enum", "additionalProperties", "minimum", "maximum",
    "minItems", "description", "title", "default", "examples", "$schema",
}  # fmt: skip

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}
_KINDS = [*_TYPES, "integer", "number"]


def problem(args: dict[str, Json], schema: dict[str, Json]) -> str | None:
    """What is wrong with the arguments, or None."""
    if _is_plain(schema):
        return _plain_problem(args, schema, "")
    return _full_problem(args, schema)


def _is_plain(schema: Any) -> bool:
    """Whether the schema is well formed and has only what is checked here."""
    if not isinstance(schema, dict) or not _PLAIN.issuperset(schema):
        return False
    properties = schema.get("properties", {})
    return (
        schema.get("type", "object") in _KINDS
        and isinstance(properties, dict)
        and all(_is_plain(each) for each in properties.values())
        and isinstance(schema.get("additionalProperties", True), bool)
        and ("items" not in schema or _is_plain(schema["items"]))
        and _are_texts(schema.get("required", []))
        # Other values are the library's: for it 1 is 1.0 and not true, for Python it is both.
        and _are_texts(schema.get("enum", []))
        and all(type(schema.get(name, 0)) in (int, float) for name in ("minimum", "maximum"))
        and type(schema.get("minItems", 0)) is int
    )


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _plain_problem(value: Json, schema: dict[str, Json], at: str) -> str | None:
    where = at or "the arguments"
    if (kind := schema.get("type")) and not _is_of(value, kind):
        return f"{where} must be of type {kind}, not {_name(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {schema['enum']!r}, not {value!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _range_problem(value, schema, where)
    if isinstance(value, list):
        return _items_problem(value, schema, at)
    if isinstance(value, dict):
        return _fields_problem(value, schema, at)
    return None


def _range_problem(value: float, schema: dict[str, Json], where: str) -> str | None:
    if "minimum" in schema and value < schema["minimum"]:
        return f"{where} must be at least {schema['minimum']}, not {value}"
    if "maximum" in schema and value > schema["maximum"]:
        return f"{where} must be at most {schema['maximum']}, not {value}"
    return None


def _items_problem(value: list[Json], schema: dict[str, Json], at: str) -> str | None:
    if len(value) < schema.get("minItems", 0):
        return f"{at or 'the arguments'} needs at least {schema['minItems']} item(s)"
    for index, item in enumerate(value):
        if found := _plain_problem(item, schema.get("items", {}), f"{at}[{index}]"):
            return found
    return None


def _fields_problem(value: dict[str, Json], schema: dict[str, Json], at: str) -> str | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{_join(at, name)} is missing"
    for name, item in value.items():
        if name in properties:
            if found := _plain_problem(item, properties[name], _join(at, name)):
                return found
        elif schema.get("additionalProperties") is False:
            known = ", ".join(sorted(properties)) or "none"
            return f"{_join(at, name)} is not an argument of this tool (known: {known})"
    return None


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else repr(name)


def _is_of(value: Json, kind: str) -> bool:
    if kind in ("integer", "number"):
        if isinstance(value, bool):
            return False
        return isinstance(value, int) or (
            isinstance(value, float) and (kind == "number" or value.is_integer())
        )
    return isinstance(value, _TYPES[kind])


def _name(value: Json) -> str:
    return "null" if value is None else type(value).__name__


def _full_problem(args: dict[str, Json], schema: dict[str, Json]) -> str | None:
    import jsonschema_rs  # deferred: takes 30 ms to load

    def refuse(uri: str) -> Json:
        raise ValueError(f"remote references are refused: {uri!r}")

    try:
        validator = jsonschema_rs.validator_for(schema, retriever=refuse)
    except Exception as error:  # the library raises several kinds for a schema it cannot use
        return f"the tool's schema cannot be used: {error}"
    for found in validator.iter_errors(args):
        path = ".".join(str(part) for part in found.instance_path)
        return f"{path or 'the arguments'}: {found.message}"
    return None
