"""Tool calls of small models, as flat JSON objects: how tools are described, the grammar of an
answer (one whole call, or plain text), and how an answer is split while it streams.

Calls that a model writes into its text, in any known markup, are used when calls are allowed and
dropped when they are not. Raw markup never reaches a reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from zot.provider.types import Json, ToolCall, ToolSpec
from zot.text import Frozen

Kind = Literal["string", "integer", "number", "boolean", "json"]
KINDS: dict[Kind, tuple[str, str]] = {
    "string": ('"..."', "str"),
    "integer": ("0", "int"),
    "number": ("0.0", "num"),
    "boolean": ("true", "bool"),
    "json": ("...", "json"),
}
"""Placeholder of a value in the prompt, and the name of its grammar rule."""
HELP = {
    "bash": "runs a shell command: list, search, count, move, delete, git, tests",
    "read": "shows a file",
    "write": "creates or replaces a file",
    "edit": "replaces old text by new text in a file",
}
"""Help for zot's own tools, in the order that worked best; optional arguments are left out."""
SHELL_CAN = frozenset({"glob", "grep", "ls", "find", "skill", "task"})
"""Tools that cost more prompt than they help a small model; the shell replaces them."""
MAX_HELP = 80

GRAMMAR_BASE = r"""
str ::= "\"" ( [^"\\\x00-\x1f] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} ) )* "\""
int ::= "-"? [0-9]{1,15}
num ::= int ( "." [0-9]{1,15} )?
bool ::= "true" | "false"
json ::= str | num | bool | "null" | list | object
list ::= "[" ( json ( "," json )* )? "]"
object ::= "{" ( pair ( "," pair )* )? "}"
pair ::= str ":" json
text ::= [^{ \n] [^\x00]*
"""


class Field(Frozen):
    name: str
    kind: Kind
    required: bool = True
    choices: tuple[str, ...] = ()


class Form(Frozen):
    """A tool in its flat form."""

    name: str
    fields: tuple[Field, ...]
    help: str
    is_edit: bool = False
    """`old` and `new` replace the single entry of `edits`."""

    @property
    def start(self) -> str:
        """The text that every call of this tool begins with."""
        return f'{{"tool":{_compact(self.name)}'

    def line(self) -> str:
        """Return the tool's line in the prompt."""
        shown = "".join(f",{_compact(field.name)}:{_shape(field)}" for field in self.fields)
        return f"{self.start}{shown}}} {self.help}".rstrip()

    def args(self, flat: dict[str, Json]) -> dict[str, Json]:
        """Convert flat arguments to the tool's own."""
        rest = {key: value for key, value in flat.items() if key != "tool"}
        if self.is_edit and "old" in rest and "new" in rest:
            edit = {"oldText": rest.pop("old"), "newText": rest.pop("new")}
            rest["edits"] = [edit]
        return rest

    def flat(self, args: dict[str, Json]) -> str:
        """Return an earlier call as the model would have written it."""
        shown = dict(args)
        edits = shown.get("edits")
        if self.is_edit and isinstance(edits, list) and len(edits) == 1:
            edit = shown.pop("edits")[0]
            shown |= {"old": edit.get("oldText", ""), "new": edit.get("newText", "")}
        return _compact({"tool": self.name, **shown})

    def rule(self) -> str:
        """Return the grammar rule of one call."""
        parts = [_literal(self.start)]
        for field in self.fields:
            part = f"{_literal(f',{_compact(field.name)}:')} {_value_rule(field)}"
            parts.append(part if field.required else f"( {part} )?")
        return " ".join([*parts, _literal("}")])


def forms_for(tools: Iterable[ToolSpec]) -> dict[str, Form]:
    """Return the forms of the tools worth showing, best first."""
    specs = {spec.name: spec for spec in tools}
    own = [name for name in HELP if name in specs]
    others = [
        name for name in specs if name not in HELP and not ("bash" in specs and name in SHELL_CAN)
    ]
    return {name: _form(specs[name]) for name in (*own, *others)}


def grammar(forms: Iterable[Form], choice: Literal["auto", "none", "required"]) -> str:
    """Return the GBNF grammar of an answer: a call, a text, or either."""
    calls = [form.rule() for form in forms]
    if choice == "none" or not calls:
        return f"root ::= text{GRAMMAR_BASE}"
    root = "call" if choice == "required" else "call | text"
    return f"root ::= {root}\ncall ::= {' | '.join(calls)}{GRAMMAR_BASE}"


def flat_call(call: ToolCall, forms: Mapping[str, Form]) -> str:
    form = forms.get(call.name) or Form(call.name, (), "")
    return form.flat(call.args) if call.args is not None else call.raw


def _form(spec: ToolSpec) -> Form:
    fields = _fields(spec.schema)
    known = spec.name in HELP
    if spec.name == "edit" and any(field.name == "edits" for field in fields):
        flat = tuple(Field(name, "string") for name in ("path", "old", "new"))
        return Form("edit", flat, HELP["edit"], is_edit=True)
    if known:
        return Form(
            spec.name, tuple(needed for needed in fields if needed.required), HELP[spec.name]
        )
    first = spec.description.strip().split("\n", 1)[0].split(". ", 1)[0]
    return Form(spec.name, fields, first[:MAX_HELP])


def _fields(schema: dict[str, Json]) -> tuple[Field, ...]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return ()
    required = schema.get("required") or ()
    fields = [_field(name, shape, name in required) for name, shape in properties.items()]
    # Optional fields last: the grammar requires this order.
    return tuple(sorted(fields, key=lambda field: not field.required))


def _field(name: str, shape: Json, required: bool) -> Field:
    if not isinstance(shape, dict):
        return Field(name, "json", required)
    choices = shape.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        return Field(name, "string", required, tuple(choices))
    kind: Kind = next((known for known in KINDS if known == shape.get("type")), "json")
    return Field(name, kind, required)


def _shape(field: Field) -> str:
    """Return the placeholder of a value in the prompt."""
    if field.choices:
        return "|".join(_compact(choice) for choice in field.choices)
    return KINDS[field.kind][0] + ("" if field.required else "?")


def _value_rule(field: Field) -> str:
    if field.choices:
        return "( " + " | ".join(_literal(_compact(choice)) for choice in field.choices) + " )"
    return KINDS[field.kind][1]


def _compact(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _literal(text: str) -> str:
    """Quote text as a GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- answers ----------------------------------------------------------------------------------

MARKERS = (
    "```json",
    "```JSON",
    "[TOOL]",
    "<tool_call>",
    "<tools>",
    "<|im_start|>",
    '{"',
    "{ ",
    "{\n",
)
"""Texts that may begin a call inside an answer."""
CALL_STARTS = ('{"tool":"', '{"name":"')
_LEAD = re.compile(r"\A(?:```(?:json|JSON)|\[TOOL\]|<tool_call>|<tools>|<\|im_start\|>)?\s*")


class SpokenCall(Frozen):
    """A call in its flat form."""

    name: str
    args: dict[str, Json]


class Speech:
    """Parser of one answer. `feed` returns text that may be shown at once; `finish` the rest."""

    def __init__(self, forms: Mapping[str, Form]) -> None:
        self._forms = forms
        self.held = ""
        """Text that may become a call."""
        self._empty = True

    @property
    def is_call(self) -> bool:
        """Whether the whole answer is one call: it began with a brace."""
        return self._empty and self.held.lstrip().startswith("{")

    def feed(self, delta: str) -> str:
        self.held += delta
        if self._empty and (not self.held.strip() or self.is_call):
            return ""
        shown = ""
        while self.held:
            at = _first_marker(self.held)
            shown += self.held[:at]
            self.held = self.held[at:]
            if not self.held or _could_be_call(self.held):
                break
            shown += self.held[0]
            self.held = self.held[1:]
        if shown:
            self._empty = False
        return shown

    def finish(self) -> tuple[str, SpokenCall | None]:
        """Return the text held back, or the call in it."""
        held, self.held = self.held, ""
        call = find_call(held, self._forms)
        return ("" if call else held), call


def find_call(text: str, forms: Mapping[str, Form]) -> SpokenCall | None:
    """Return the call in a piece of markup: zot's form, or the usual name and arguments."""
    flat = _first_object(_LEAD.sub("", text, count=1))
    if flat is None:
        return None
    name = flat.get("tool", flat.get("name"))
    if not isinstance(name, str) or name not in forms:
        return None
    args = flat if "tool" in flat else flat.get("arguments", flat.get("parameters"))
    return SpokenCall(name, forms[name].args(args)) if isinstance(args, dict) else None


def _first_object(text: str) -> dict[str, Json] | None:
    """Return the JSON object at the start of a text."""
    if not text.startswith("{"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _first_marker(text: str) -> int:
    """Return the first position of a marker, or of one cut off at the end; else the length."""
    places = [at for marker in MARKERS if (at := text.find(marker)) >= 0]
    if places:
        return min(places)
    longest = max(len(marker) for marker in MARKERS)
    for at in range(max(0, len(text) - longest), len(text)):
        if any(marker.startswith(text[at:]) for marker in MARKERS):
            return at
    return len(text)


def _could_be_call(text: str) -> bool:
    if any(marker.startswith(text) for marker in MARKERS):
        return True
    body = re.sub(r"\s", "", _LEAD.sub("", text, count=1))
    return any(body.startswith(start[: len(body)]) for start in CALL_STARTS)
