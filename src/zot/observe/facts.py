"""Facts: the common vocabulary for frames of all makes. A table per make converts frames to facts;
the observer's state and the page's transcript are built from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

MAX_TEXT = 256 * 1024
"""Maximum characters kept of one text; a frame may contain megabytes."""


class RunStarted(Struct, frozen=True): ...


class RunResumed(Struct, frozen=True):
    """Another process continues the run; whatever was open in the previous one is void."""


class UserSaid(Struct, frozen=True):
    text: str


class TurnStarted(Struct, frozen=True):
    """A model call begins."""


class MessageStarted(Struct, frozen=True): ...


class TextAdded(Struct, frozen=True):
    text: str


class ThoughtAdded(Struct, frozen=True):
    text: str


class MessageEnded(Struct, frozen=True):
    text: str | None = None
    """The whole text; None: the added pieces are the whole text."""


class ToolWritten(Struct, frozen=True):
    """The model has started or finished writing a tool call."""

    id: str
    name: str
    args: dict[str, Any] | None = None
    """None: not complete yet."""


class ToolArgsAdded(Struct, frozen=True):
    id: str
    text: str


class ToolRuns(Struct, frozen=True):
    id: str


class ToolSaid(Struct, frozen=True):
    id: str
    text: str
    whole: bool = False
    """Whether `text` is all output so far instead of the new part."""


class ToolEnded(Struct, frozen=True):
    id: str
    failed: bool = False
    text: str = ""


class TurnEnded(Struct, frozen=True):
    stop: str = ""
    """Stop reason; `tool_use`: the run continues with tools."""
    error: str = ""


class Failed(Struct, frozen=True):
    message: str
    limit: bool = False
    """Whether the agent reached its own limit of cost, steps, tokens or time."""


class RunEnded(Struct, frozen=True): ...


class PersonQuestion(Struct, frozen=True):
    """An approval or an answer that a person must give before the agent goes on."""

    id: str
    kind: Literal["approval", "answer"]
    title: str
    tool: str = ""
    preview: str = ""
    args: dict[str, Any] | None = None
    options: tuple[str, ...] = ()
    method: str = ""


class Asked(PersonQuestion, frozen=True):
    call_id: str = ""
    timeout_seconds: float | None = None


class Answered(Struct, frozen=True):
    id: str
    allowed: bool = True


class Retrying(Struct, frozen=True):
    reason: str
    dropped: bool = False
    """Whether the model's output of this turn is void and generated again."""


class CompactStarted(Struct, frozen=True): ...


class CompactEnded(Struct, frozen=True):
    summary: str = ""


class UsedTokens(Struct, frozen=True):
    """Tokens of one model call, or with `total` the sum of all so far."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None
    """None: the price is unknown."""
    total: bool = False
    message: str = ""
    """Id of the message, for makes that repeat the numbers in several frames of one message."""


class RunsModel(Struct, frozen=True):
    model: str
    instead_of: str = ""
    """The failed model that this one replaces."""


class Noted(Struct, frozen=True):
    text: str


Fact = (
    RunStarted | RunResumed | UserSaid | TurnStarted | MessageStarted | TextAdded | ThoughtAdded
    | MessageEnded | ToolWritten | ToolArgsAdded | ToolRuns | ToolSaid | ToolEnded | TurnEnded
    | Failed | RunEnded | Asked | Answered | Retrying | CompactStarted | CompactEnded | UsedTokens
    | RunsModel | Noted
)  # fmt: skip
Facts = tuple[Fact, ...]
FrameReader = Callable[[dict[str, Any]], Fact | Facts]
"""Function that converts the fields of a frame to facts."""


def shared_fields(struct: Struct, base: type[Struct]) -> dict[str, Any]:
    """Return the fields that a struct inherits from `base`, to build another subclass of it."""
    names = base.__struct_fields__
    return {name: value for name, value in asdict(struct).items() if name in names}


# --- reading fields of untrusted frames ----------------------------------------------------------


def fields_of(frame: dict[str, Any] | bytes | str) -> dict[str, Any]:
    """Decode the frame; return an empty object, which changes nothing, if it is no JSON object."""
    if not isinstance(frame, dict):
        try:
            frame = msgspec.json.decode(frame)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return {}
    return frame if isinstance(frame, dict) else {}


def text_of(fields: dict[str, Any], *names: str) -> str:
    """Return the first of these fields that is a non-empty string."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value[:MAX_TEXT]
    return ""


def dialog(fields: dict[str, Any], id: str, limit: str) -> Asked:
    """Build an extension's question; `id` and `limit` name its id and timeout (ms) fields."""
    return Asked(
        id=text_of(fields, id),
        kind="answer",
        title=text_of(fields, "title") or "an answer of the user",
        preview=text_of(fields, "message"),
        options=tuple(str(option) for option in list_of(fields, "options")[:100]),
        method=text_of(fields, "method"),
        timeout_seconds=number_of(fields, limit) / 1000 or None,
    )


def main_argument(args: dict[str, Any]) -> str:
    """Return the main argument of a call, such as its command or path, in one line."""
    named = ("command", "path", "file_path", "pattern", "query", "url", "prompt", "action")
    for value in (*(args.get(name) for name in named), *args.values()):
        if isinstance(value, str) and value.strip():
            return value.strip().partition("\n")[0][:200]
    return ""


def object_of(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def list_of(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    return value if isinstance(value, list) else []


def number_of(fields: dict[str, Any], name: str) -> float:
    """Return the field as a number; 0 if it is no number, negative, or 1e15 and above."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < 1e15 else 0.0


def count_of(fields: dict[str, Any], name: str) -> int:
    return int(number_of(fields, name))


def text_of_blocks(blocks: list[Any]) -> str:
    """Join the texts of content blocks; an image becomes `[image]`."""
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict):
            named = {"text": text_of(block, "text"), "image": "[image]"}
            texts.append(named.get(str(block.get("type")), ""))
    return "\n".join(text for text in texts if text)[:MAX_TEXT]
