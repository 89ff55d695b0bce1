"""`zot schema [NAME]`: print a wire's JSON Schema, or what would break an older client."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from zot.cli.output import PlainParser, arg, flag, say
from zot.errors import ConfigError, UsageError
from zot.extensions import proto
from zot.pi.commands import AnyPiCommand
from zot.wire.schema import Schema, breaking_changes, commands_schema, rpc_schema, text_of
from zot.wire.typescript import typescript


def pi_schema() -> Schema:
    """Return the schema of commands of pi's protocol; its events have no types here."""
    where = "One JSON object a line on the stdin of `zot-pi --mode rpc`."
    return commands_schema(AnyPiCommand, "pi's RPC commands", where)


DOCUMENTS: dict[str, Callable[[], Schema]] = {
    "rpc": rpc_schema,
    "extensions": proto.json_schema,
    "pi": pi_schema,
}
"""Schema functions by name; docs/schema has a file of that name."""


def main(argv: Sequence[str]) -> int:
    parser = PlainParser(prog="zot schema", description="Print the JSON Schema of a wire.").add(
        arg("name", nargs="?", choices=DOCUMENTS, default="rpc", help="default: rpc"),
        flag("--typescript", help="print types for TypeScript instead (rpc only)"),
        arg(
            "--against",
            metavar="FILE",
            help="list what breaks a client of that older schema; exit code 1 if anything does",
        ),
    )
    options = parser.parse_args(argv[1:])
    schema = DOCUMENTS[options.name]()
    if options.typescript:
        if options.name != "rpc":
            raise UsageError(f"--typescript is for rpc alone, not for {options.name!r}")
        sys.stdout.write(typescript(schema))
        return 0
    if options.against is None:
        sys.stdout.write(text_of(schema))
        return 0
    problems = breaking_changes(_read(options.against), schema)
    for problem in problems:
        say(problem)
    return 1 if problems else 0


def _read(path: str) -> dict[str, object]:
    try:
        schema = msgspec.json.decode(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path!r}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path!r} is not JSON: {error}") from error
    if not isinstance(schema, dict) or "$defs" not in schema:
        raise ConfigError(f"{path!r} is no schema that `zot schema` printed")
    return schema
