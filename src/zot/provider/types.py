"""The vocabulary of a conversation with a model. No wire shape, no input or output.

Read this file first: everything above the providers speaks in these types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, final

from zot.cancel import Cancel
from zot.provider.model import LEVELS as LEVELS
from zot.provider.model import Api as Api
from zot.provider.model import Json as Json
from zot.provider.model import Level as Level
from zot.provider.model import Model as Model
from zot.provider.model import Plain as Plain
from zot.provider.model import Price as Price
from zot.text import Frozen

Role = Literal["user", "assistant", "tool"]
Stop = Literal["end", "tool_use", "length", "error", "aborted"]
# --- content ---------------------------------------------------------------------------------


@final
class Text(Plain):
    text: str
    opaque: dict[str, Json] | None = None
    """What the provider wants back with it (OpenAI's phase of an answer)."""


class Image(Plain):
    mime_type: str
    data: bytes


class ToolCall(Plain):
    id: str
    name: str
    args: dict[str, Json] | None
    """None when the model's arguments were not a JSON object; `raw` is then what it wrote."""
    raw: str = ""
    opaque: dict[str, Json] | None = None
    """What the provider wants back with the call (a thought signature); nobody else reads it."""


class ToolResult(Plain):
    call_id: str
    content: tuple[Text | Image, ...]
    is_error: bool = False
    name: str = ""
    """The tool's name, for wires that repeat it."""
    details: dict[str, Json] | None = None
    """Facts for user interfaces (a diff, an exit code); the model does not see them."""


class Reasoning(Plain):
    """What the model thought, kept so that it can be replayed to the API that made it."""

    text: str
    api: str
    opaque: dict[str, Json] | None = None
    """Signature or encrypted content; without it the block cannot be replayed."""


Block = Text | Image | ToolCall | ToolResult | Reasoning


# --- money -----------------------------------------------------------------------------------


class Cost(Plain):
    """US dollars."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0

    @property
    def total(self) -> float:
        return self.input + self.output + self.cache_read + self.cache_write


class TokenCounts(Plain):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int | None = None
    """Part of `output`, where the provider says so."""


class Usage(TokenCounts):
    """Tokens of one call, or the sum of many. `input` excludes what came from the cache."""

    cost: Cost = Cost()
    """Filled by the core from the model's price, not by providers."""
    cost_known: bool = True
    """False: the price of some of it is not known, and `cost` is what is known."""

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


# --- messages --------------------------------------------------------------------------------


class Origin(Plain):
    """Where an assistant message came from, and how it ended."""

    provider: str
    model: str
    api: str
    stop: Stop
    usage: Usage = Usage()
    error: str | None = None


class Message(Plain):
    role: Role
    content: tuple[Block, ...]
    time: float
    """Unix seconds."""
    origin: Origin | None = None
    """Set on assistant messages."""
    extra: dict[str, Json] | None = None
    """What a dialect or file format keeps with the message (pi's attachments, zot's meta)."""


def texts_in(blocks: Iterable[object]) -> list[str]:
    """What the texts among these blocks say."""
    return [block.text for block in blocks if isinstance(block, Text)]


# --- models and requests ---------------------------------------------------------------------


class ToolSpec(Frozen):
    name: str
    description: str
    schema: dict[str, Json]


class Request(Frozen):
    model: Model
    system: str
    messages: Sequence[Message]
    """Valid for any provider: see provider/repair.py."""
    tools: tuple[ToolSpec, ...] = ()
    """Sorted by name: prompt caches match prefixes."""
    reasoning: Level = "off"
    max_output: int | None = None
    """None: what the model allows."""
    cache_key: str = ""
    """Stable for one conversation, for providers that route their cache by a key."""
    tool_choice: Literal["auto", "none", "required"] = "auto"
    repaired: bool = False
    """The messages were made valid for this very model: nobody has to look at them again."""


# --- the stream ------------------------------------------------------------------------------


@final
class Started(Frozen):
    """The server accepted the request; content will follow."""


@final
class TextDelta(Frozen):
    text: str


class ReasoningDelta(Frozen):
    text: str


class ToolCallStart(Frozen):
    id: str
    name: str


class ToolCallArgs(Frozen):
    id: str
    delta: str
    """A fragment of the arguments' JSON text."""


class ToolCallEnd(Frozen):
    id: str


@final
class UsageSeen(Frozen):
    """What is known so far, so that an aborted call is still counted."""

    usage: Usage


class Retrying(Frozen):
    """The call failed and will be made again after `delay` seconds."""

    attempt: int
    """The one that failed; 1 is the first."""
    max_attempts: int
    delay: float
    reason: str
    code: str = "provider"
    """The class of the failure (`ZotError.code`)."""
    dropped: bool = False
    """Content was streamed before the failure: it is void, and the answer begins anew."""


class FellBack(Frozen):
    """The model failed for good; the call goes on with the next one."""

    failed: str
    """Id of the model that failed."""
    provider: str
    model: Model
    reason: str


@final
class Finished(Frozen):
    """The last event of a call that ended well. Blocks are in the model's order."""

    content: tuple[Block, ...]
    stop: Literal["end", "tool_use", "length"]
    usage: Usage


StreamEvent = (
    Started
    | TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallArgs
    | ToolCallEnd
    | UsageSeen
    | Retrying
    | FellBack
    | Finished
)


class Provider(Protocol):
    """A model client: one call of `stream` is one model call."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request, cancel: Cancel) -> Iterator[StreamEvent]:
        """Yield the events of one call; the last one is Finished.

        Raises:
            ProviderError: the call failed, before or after content was streamed.
            Cancelled: the turn was aborted; within milliseconds, whatever the server does.
        """

    def close(self) -> None:
        """Let go of connections; the provider can be used again."""
