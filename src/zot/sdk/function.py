"""Decorators that make a tool from a typed function, and a guard from a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from zot.cancel import Cancel
from zot.core.hook import ALLOW, Allow, Block, Hook, HookContext, ReplaceArgs
from zot.core.tool import REPLAYS, Reconciled, Replay, ToolContext, ToolOutput
from zot.errors import ToolError
from zot.ext import read_docstring as read_docstring
from zot.provider.types import Json, ToolCall

Function = Callable[..., Any]
Reconcile = Callable[[dict[str, Json], str], Any]
Guard = Callable[[ToolCall], Allow | Block | ReplaceArgs | str | bool | dict[str, Json] | None]


class FunctionTool:
    """A function as a Tool; it can still be called as a function."""

    def __init__(
        self,
        function: Function,
        name: str = "",
        description: str = "",
        replay: Replay = "never",
        reconcile: Reconcile | None = None,
    ) -> None:
        if replay not in REPLAYS:
            raise TypeError(f"replay must be one of {', '.join(REPLAYS)}, not {replay!r}")
        self.replay: Replay = replay if reconcile is None else "reconcile"
        self._reconcile = reconcile
        self.name: str = name or function.__name__
        documented, arguments = read_docstring(inspect.getdoc(function) or "")
        self.description: str = description or documented
        if not self.description:
            raise TypeError(f"{self.name!r} needs a docstring: it tells the model what it is for")
        self.is_async = inspect.iscoroutinefunction(function)
        self.run_async: Callable[[Any, Cancel], Any] | None = None
        """Runner for coroutines; None: use a new loop."""
        self._function = function
        self._context_name = ""
        self._arguments = self._argument_struct(function, arguments)
        self.schema: dict[str, Json] = object_schema(self._arguments)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        """Call the function with the model's arguments, and wait for its result."""
        result = self.started(args, context)
        if self.is_async:
            from zot.sdk import coroutine

            result = (self.run_async or coroutine.run_alone)(result, context.cancel)
        return as_output(result)

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Find out with the `reconcile` function whether the call was done."""
        result = None if self._reconcile is None else self._reconcile(args, context.key)
        if result is None:
            return Reconciled("unknown")
        return Reconciled("not_done") if result is False else Reconciled("done", as_output(result))

    def started(self, args: dict[str, Json], context: ToolContext) -> Any:
        """Call the function with these arguments; return its result or, if async, the coroutine."""
        try:
            converted = msgspec.convert(args, self._arguments, dec_hook=model_from)
            values = msgspec.structs.asdict(converted)
        except msgspec.ValidationError as error:
            raise ToolError(f"invalid arguments for {self.name!r}: {error}") from error
        if self._context_name:
            values[self._context_name] = context
        return self._function(**values)

    def _argument_struct(self, function: Function, described: dict[str, str]) -> type[Struct]:
        """Return a struct of the arguments, from which msgspec makes the schema and validates."""
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError as error:
            raise TypeError(f"{self.name!r}: an annotation cannot be resolved: {error}") from error
        fields: list[tuple[str, Any, Any]] = []
        for name, parameter in inspect.signature(function).parameters.items():
            hint = hints.get(name)
            if hint is ToolContext:
                self._context_name = name
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{self.name!r}: *{name} cannot be described to a model")
            if hint is None:
                raise TypeError(f"{self.name!r}: the argument {name!r} needs a type annotation")
            shown = with_description(hint, described.get(name, ""))
            fields.append((name, shown, field_default(parameter)))
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def function_tool(function: Function) -> FunctionTool:
    """Return the function as a tool.

    Raises:
        TypeError: it has no docstring, or an argument whose type is missing or not in JSON.
    """
    return function if isinstance(function, FunctionTool) else FunctionTool(function)


@overload
def tool(function: Function, /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    replay: Replay = "never",
    reconcile: Reconcile | None = None,
) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    replay: Replay = "never",
    reconcile: Reconcile | None = None,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool of a typed function with a docstring.

    The docstring describes the tool to the model, its `Args:` section the arguments. An argument
    of type ToolContext is not shown to the model; it provides progress and cancel.

    `replay` says whether a call that a crash interrupted in a durable run is repeated: `never`,
    `idempotent` (yes, with the same `ToolContext.key`) or `safe` (yes). If given,
    `reconcile(args, key)` decides instead. It returns False if the call was not done and may run,
    None if that is unknown, else the result of the call.
    """
    if function is None:
        return lambda decorated: FunctionTool(decorated, name, description, replay, reconcile)
    return FunctionTool(function, name, description, replay, reconcile)


class FunctionGuard(Hook):
    """Hook that calls a function before each tool call."""

    def __init__(self, function: Guard) -> None:
        self._function = function

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        verdict = self._function(call)
        match verdict:
            case None | True:
                return ALLOW
            case False:
                return Block(f"the call of {call.name!r} was refused")
            case str():
                return Block(verdict)
            case dict():
                return ReplaceArgs(verdict)
            case Allow() | Block() | ReplaceArgs():
                return verdict
            case _:
                raise TypeError(f"a guard answered {verdict!r}: use None, a reason, or arguments")


def guard(function: Guard) -> FunctionGuard:
    """Make a guard: the function gets the call and returns None (allow), a text (block, with this
    reason), or a dict (run it with these arguments instead). A guard that raises blocks the call.
    """
    return FunctionGuard(function)


def object_schema(struct: type[Struct]) -> dict[str, Json]:
    """Return the JSON Schema of the arguments: one object, with referenced types in `$defs`."""
    (root,), parts = msgspec.json.schema_components(
        [struct], schema_hook=model_schema, ref_template="#/$defs/{name}"
    )
    schema: dict[str, Json] = parts.pop(root["$ref"].removeprefix("#/$defs/"))
    schema.pop("title", None)
    move_definitions(schema, parts)
    if parts:
        schema["$defs"] = parts
    return schema


def field_default(parameter: inspect.Parameter) -> Any:
    default = parameter.default
    if default is parameter.empty:
        return NODEFAULT
    if isinstance(default, list | dict | set):  # a fresh one for each call
        return msgspec.field(default_factory=lambda: copy(default))
    return default


def with_description(hint: Any, description: str) -> Any:
    """Add a description to the type; a text in `Annotated[str, "text"]` takes precedence."""
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        for note in notes:
            if isinstance(note, str):
                description = note
            else:
                hint = Annotated[hint, note]
    return Annotated[hint, Meta(description=description)] if description else hint


def as_output(value: Any) -> ToolOutput | str:
    if isinstance(value, str | ToolOutput):
        return value
    if value is None:
        return "done"
    return msgspec.json.encode(value, enc_hook=model_data).decode()


# --- pydantic's models, and any class with the same three methods --------------------------------


def model_schema(kind: type) -> dict[str, Json]:
    """Return the JSON Schema of a model. Raises TypeError: the class is none."""
    if not hasattr(kind, "model_json_schema") or not hasattr(kind, "model_validate"):
        raise TypeError(
            f"{kind.__name__!r} has no JSON form: use str, int, float, bool, list, dict, Literal, "
            "a dataclass, a msgspec struct or a pydantic model"
        )
    schema: dict[str, Json] = kind.model_json_schema()
    return schema


def model_from(kind: Any, value: Any) -> Any:
    return kind.model_validate(value)


def model_data(value: Any) -> Any:
    if not hasattr(value, "model_dump"):
        raise ToolError(f"the result of the tool has no JSON form: {value!r:.80}")
    return value.model_dump(mode="json")


def move_definitions(schema: Json, into: dict[str, Json]) -> None:
    """Move the `$defs` of models to the root of the schema, where their references point."""
    if isinstance(schema, list):
        for item in schema:
            move_definitions(item, into)
    if isinstance(schema, dict):
        for name, part in schema.pop("$defs", {}).items():
            if into.setdefault(name, part) != part:
                raise TypeError(f"two models of the arguments have the name {name!r}")
        for item in schema.values():
            move_definitions(item, into)
