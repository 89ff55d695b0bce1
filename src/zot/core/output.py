"""Structured answers: the last text of a run must be JSON that fits a schema. Asks for it, checks
it, and asks once more."""

from __future__ import annotations

from typing import Any

import msgspec

from zot.core.check import Checker, validator
from zot.errors import CommandError, InvalidOutput
from zot.provider.types import Json, Message, texts_in
from zot.text import encode_json

ASK = """\
The last message of your work must be nothing but JSON that fits this JSON Schema, without a code \
block and without words around it:
"""
AGAIN = "That does not fit the JSON Schema: {}. Answer with nothing but JSON that fits it."
MAX_SCHEMA = 256 * 1024


class OutputCheck:
    """Checks the last text of one run."""

    def __init__(self, schema: dict[str, Json]) -> None:
        self.schema = schema
        self._asked_again = False
        self._checker = Checker(schema)

    def check(self, answer: Message) -> str:
        """Return what to say to a model whose answer does not fit; empty: it does.

        Raises:
            InvalidOutput: it does not, for the second time.
        """
        wrong = self.problem("".join(texts_in(answer.content)))
        if wrong is None:
            return ""
        if self._asked_again:
            raise InvalidOutput(f"the answer does not fit the schema: {wrong}")
        self._asked_again = True
        return AGAIN.format(wrong)

    def problem(self, text: str) -> str | None:
        """Return what is wrong with an answer; None: nothing."""
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            return f"it is no JSON ({error})"
        wrong = self._checker.problem(value)
        return wrong and wrong.replace("the arguments", "the answer", 1)


def instruction(schema: dict[str, Json]) -> str:
    return ASK + encode_json(schema).decode()


def check_schema(schema: Any) -> None:
    """Raises CommandError: the schema cannot be used."""
    if not isinstance(schema, dict):
        raise CommandError(f"invalid_params: schema must be an object, not {schema!r:.80}")
    if len(encode_json(schema)) > MAX_SCHEMA:
        raise CommandError(f"invalid_params: schema is larger than {MAX_SCHEMA} bytes")
    try:
        validator(schema)
    except ValueError as error:
        raise CommandError(f"invalid_params: the schema cannot be used: {error}") from error
