"""What a frame of any make says, in one vocabulary. A table per make turns frames into these; the
observer and a page's transcript are folded from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

MAX_TEXT = 256 * 1024
"""Characters of one text that are kept; a frame may bring megabytes."""


class RunStarted(Struct, frozen=True): ...


class RunResumed(Struct, frozen=True):
    """Another process goes on with the run: what was open in the one before is void."""


class UserSaid(Struct, frozen=True):
    text: str


class TurnStarted(Struct, frozen=True):
    """A call of the model begins."""


class MessageStarted(Struct, frozen=True): ...


class TextAdded(Struct, frozen=True):
    text: str


class ThoughtAdded(Struct, frozen=True):
    text: str


class MessageEnded(Struct, frozen=True):
    text: str | None = None
    """All of it; None: what was added is all there is."""


class ToolWritten(Struct, frozen=True):
    """The model has begun to write a call, or has ended."""

    id: str
    name: str
    args: dict[str, Any] | None = None
    """None: not all of them are there yet."""


class ToolArgsAdded(Struct, frozen=True):
    id: str
    text: str


class ToolRuns(Struct, frozen=True):
    id: str


class ToolSaid(Struct, frozen=True):
    id: str
    text: str
    whole: bool = False
    """All that it said so far, instead of what is new."""


class ToolEnded(Struct, frozen=True):
    id: str
    failed: bool = False
    text: str = ""


class TurnEnded(Struct, frozen=True):
    stop: str = ""
    """`tool_use`: the run goes on with tools."""
    error: str = ""


class Failed(Struct, frozen=True):
    message: str
    limit: bool = False
    """It came to a limit of its own: of cost, steps, tokens or time."""


class RunEnded(Struct, frozen=True): ...


class PersonQuestion(Struct, frozen=True):
    """An approval or an answer that somebody has to give before the agent goes on."""

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
    """What the model said in this turn is void; it is said anew."""


class CompactStarted(Struct, frozen=True): ...


class CompactEnded(Struct, frozen=True):
    summary: str = ""


class UsedTokens(Struct, frozen=True):
    """One model call's tokens, or with `total` the sum of all so far."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None
    """None: its price is not known."""
    total: bool = False
    message: str = ""
    """Id of the message these are of, where frames of one message repeat them."""


class RunsModel(Struct, frozen=True):
    model: str
    instead_of: str = ""
    """The model that failed, where this one took over."""


class Noted(Struct, frozen=True):
    text: str


Fact = (
    RunStarted
    | RunResumed
    | UserSaid
    | TurnStarted
    | MessageStarted
    | TextAdded
    | ThoughtAdded
    | MessageEnded
    | ToolWritten
    | ToolArgsAdded
    | ToolRuns
    | ToolSaid
    | ToolEnded
    | TurnEnded
    | Failed
    | RunEnded
    | Asked
    | Answered
    | Retrying
    | CompactStarted
    | CompactEnded
    | UsedTokens
    | RunsModel
    | Noted
)
Facts = tuple[Fact, ...]
FrameReader = Callable[[dict[str, Any]], Fact | Facts]
"""What a frame says, by its fields."""


def shared_fields(struct: Struct, base: type[Struct]) -> dict[str, Any]:
    """What a struct has of its base, for another struct with the same base."""
    names = base.__struct_fields__
    return {name: value for name, value in asdict(struct).items() if name in names}


# --- reading fields of a stranger's frame --------------------------------------------------------


def fields_of(frame: dict[str, Any] | bytes | str) -> dict[str, Any]:
    """The frame as an object; an empty one for what is none, which then changes nothing."""
    if not isinstance(frame, dict):
        try:
            frame = msgspec.json.decode(frame)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return {}
    return frame if isinstance(frame, dict) else {}


def text_of(fields: dict[str, Any], *names: str) -> str:
    """The first of these fields that holds a text."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value[:MAX_TEXT]
    return ""


def dialog(fields: dict[str, Any], id: str, limit: str) -> Asked:
    """A question of an extension; `id` and `limit` are the fields with its id and its time."""
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
    """What a call is about, in one line: its command, its path."""
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
    """A sum that only grows: what is no number, or not one of this world, counts as nothing."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < 1e15 else 0.0


def count_of(fields: dict[str, Any], name: str) -> int:
    return int(number_of(fields, name))


def text_of_blocks(blocks: list[Any]) -> str:
    """The texts among content blocks; an image is named."""
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict):
            named = {"text": text_of(block, "text"), "image": "[image]"}
            texts.append(named.get(str(block.get("type")), ""))
    return "\n".join(text for text in texts if text)[:MAX_TEXT]
