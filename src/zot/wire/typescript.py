"""TypeScript types of the wire, made from its JSON Schema: `zot schema rpc --typescript`. All names
begin with `Zot`, so that none hides a global one as `Error`, `Event` or `Response`.
"""

from __future__ import annotations

import json
from typing import Any

Schema = dict[str, Any]
PREFIX = "Zot"
PLAIN = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "Record<string, unknown>",
    "array": "unknown[]",
}
HEAD = """\
// Types of the wire of `zot rpc`, protocol version {version}.
// `zot schema rpc --typescript` makes this file.
// The server may send types of events, and fields, that are not here: ignore them.
"""


def typescript(schema: Schema) -> str:
    """Return declarations for all definitions of the schema."""
    parts: Schema = schema["$defs"]
    commands = {_name_in(part["$ref"]) for part in parts["Command"]["anyOf"]}
    blocks = [HEAD.format(version=schema["protocol_version"])]
    blocks += (_declaration(name, part, name in commands) for name, part in parts.items())
    blocks.append(_data_by_command(parts))
    return "\n".join(blocks)


def _declaration(name: str, schema: Schema, is_command: bool) -> str:
    head = _comment(schema.get("description"), "")
    if "properties" not in schema:
        return f"{head}export type {PREFIX}{name} = {_type(schema)};\n"
    fields = dict(schema["properties"])
    if is_command:
        fields.pop("parent", None)  # only frames of the server have it
    required = set(schema.get("required", ()))
    lines = "".join(_field(field, part, field in required) for field, part in fields.items())
    return f"{head}export interface {PREFIX}{name} {{\n{lines}}}\n"


def _field(name: str, schema: Schema, is_required: bool) -> str:
    optional = "" if is_required else "?"
    return f"{_comment(schema.get('description'), '  ')}  {name}{optional}: {_type(schema)};\n"


def _comment(text: str | None, indent: str) -> str:
    """Return the description as a comment, or nothing."""
    return f"{indent}/** {' '.join(text.replace('*/', '* /').split())} */\n" if text else ""


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return PREFIX + _name_in(schema["$ref"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if isinstance(schema.get("type"), list):
        return " | ".join(PLAIN[kind] for kind in schema["type"])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        item = _type(schema["items"])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if isinstance(schema.get("additionalProperties"), dict) and "properties" not in schema:
        return f"Record<string, {_type(schema['additionalProperties'])}>"
    return PLAIN[schema["type"]] if "type" in schema else "unknown"


def _data_by_command(parts: Schema) -> str:
    """Return a type that maps each command's word to the data of its response."""
    rows = []
    for part in parts["Command"]["anyOf"]:
        name = _name_in(part["$ref"])
        (word,) = parts[name]["properties"]["type"]["enum"]
        data = parts[f"{name}Response"]["properties"].get("data")
        rows.append(f"  {word}: {'undefined' if data is None else _type(data)};\n")
    comment = "/** Data of a successful response, by the word of its command. */\n"
    return f"{comment}export interface {PREFIX}Data {{\n{''.join(rows)}}}\n"


def _name_in(reference: str) -> str:
    return reference.rpartition("/")[2]
