"""Checks a tool's arguments against its JSON Schema, and reports the first problem in one line."""

from __future__ import annotations

from typing import Any

from zot.provider.types import Json

# Plain schemas (all built-in tools, most others) are checked here: the JSON Schema library needs 18
# ms and 8 MB to load, a third of a whole zot. Schemas with any other keyword go to the library.
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
_DRAFTS = [f"http://json-schema.org/draft-0{number}/schema#" for number in (6, 7)]
_DRAFTS += [f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")]
MAX_SHOWN = 200
"""Maximum characters of a value in a message: the value may be a whole file."""


class Checker:
    """Checks arguments against one schema, which is analysed once."""

    def __init__(self, schema: dict[str, Json]) -> None:
        self.schema = schema
        self._is_plain = is_plain(schema)

    def problem(self, args: Json) -> str | None:
        """Return a description of the first problem, or None."""
        if self._is_plain:
            return _plain_problem(args, self.schema, "")
        return _full_problem(args, self.schema)


def problem(args: dict[str, Json], schema: dict[str, Json]) -> str | None:
    """Return a description of the first problem, or None."""
    return Checker(schema).problem(args)


def is_plain(schema: Any) -> bool:
    """Whether the schema is well formed and has only keywords that are checked here."""
    if not isinstance(schema, dict) or not _PLAIN.issuperset(schema):
        return False
    properties = schema.get("properties", {})
    return (
        schema.get("type", "object") in _KINDS
        and isinstance(properties, dict)
        and all(is_plain(inner) for inner in properties.values())
        and isinstance(schema.get("additionalProperties", True), bool)
        and ("items" not in schema or is_plain(schema["items"]))
        and _are_texts(required := schema.get("required", []))
        and len(set(required)) == len(required)
        # Enums of other values go to the library, where 1 equals 1.0 but not true; in Python, both.
        and _are_texts(schema.get("enum", []))
        and all(type(schema.get(name, 0)) in (int, float) for name in ("minimum", "maximum"))
        and type(least := schema.get("minItems", 0)) is int
        and least >= 0
        and isinstance(schema.get("examples", []), list)
        and _are_texts([schema.get("description", ""), schema.get("title", "")])
        and schema.get("$schema", _DRAFTS[0]) in _DRAFTS
    )


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _plain_problem(value: Json, schema: dict[str, Json], at: str) -> str | None:
    where = at or "the arguments"
    if (kind := schema.get("type")) and not _is_of(value, kind):
        return f"{where} must be of type {kind}, not {_name(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {schema['enum']!r}, not {_shown(value)}"
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
        if wrong := _plain_problem(item, schema.get("items", {}), f"{at}[{index}]"):
            return wrong
    return None


def _fields_problem(value: dict[str, Json], schema: dict[str, Json], at: str) -> str | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{_join(at, name)} is missing"
    for name, item in value.items():
        if name in properties:
            if wrong := _plain_problem(item, properties[name], _join(at, name)):
                return wrong
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


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _full_problem(args: dict[str, Json], schema: dict[str, Json]) -> str | None:
    try:
        checker = validator(schema)
    except ValueError as error:
        return f"the tool's schema cannot be used: {error}"
    for wrong in checker.iter_errors(args):
        at = ""
        for part in wrong.instance_path:
            at = f"{at}[{part}]" if isinstance(part, int) else _join(at, part)
        # The message begins with the value and ends with what was expected.
        message = wrong.message
        if len(message) > 2 * MAX_SHOWN:
            message = f"{message[:MAX_SHOWN]}...{message[-MAX_SHOWN:]}"
        return f"{at or 'the arguments'}: {message}"
    return None


def validator(schema: dict[str, Json]) -> Any:
    """Return the library's validator for a schema.

    Raises:
        ValueError: the schema is not valid, or refers to another document.
    """
    import jsonschema_rs  # deferred: see above

    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except Exception as error:  # the library raises several kinds for a schema it cannot use
        raise ValueError((str(error).splitlines() or ["unknown reason"])[0]) from error


def _refuse(uri: str) -> Json:
    # By default the library would fetch it, but a schema must not trigger requests.
    raise ValueError(f"remote references are refused: {uri!r}")
