"""The types of a conversation with a model. No wire format, no I/O.

Read this file first: everything above the providers uses these types.
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
from zot.provider.model import Rates as Rates
from zot.text import Frozen

Role = Literal["user", "assistant", "tool"]
Stop = Literal["end", "tool_use", "length", "error", "aborted"]
# --- content ---------------------------------------------------------------------------------


@final
class Text(Plain):
    """A text of a message."""

    text: str
    opaque: dict[str, Json] | None = None
    """Opaque data to send back to the provider (OpenAI's phase of an answer)."""


class Image(Plain):
    """An image, not yet encoded."""

    mime_type: str
    data: bytes

    def __post_init__(self) -> None:
        check_image(self.mime_type, self.data)


def check_image(mime_type: object, data: object) -> None:
    """Check the types, for callers without a type checker. Raises TypeError."""
    if not isinstance(mime_type, str):
        raise TypeError(f"Image: mime_type is {type(mime_type).__name__}; use text as 'image/png'")
    if not isinstance(data, bytes):
        raise TypeError(
            f"Image: data is {type(data).__name__} and must be bytes; base64.b64decode decodes text"
        )


class ToolCall(Plain):
    """The model's request to run a tool."""

    id: str
    name: str
    args: dict[str, Json] | None
    """None when the model's arguments were not a JSON object; `raw` is then the text it wrote."""
    raw: str = ""
    opaque: dict[str, Json] | None = None
    """Opaque data to send back with the call (a thought signature); only the provider reads it."""


class ToolResult(Plain):
    call_id: str
    content: tuple[Text | Image, ...]
    is_error: bool = False
    name: str = ""
    """The tool's name, for wires that repeat it."""
    details: dict[str, Json] | None = None
    """Facts for user interfaces (a diff, an exit code); the model does not see them."""


class Reasoning(Plain):
    """A thought of the model, kept so that it can be sent back to the API that made it."""

    text: str
    api: str
    opaque: dict[str, Json] | None = None
    """Signature or encrypted content; without it the block cannot be sent back."""


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
    """Part of `output`; None if the provider does not report it."""


class Usage(TokenCounts):
    """Tokens of one call, or the sum of many. `input` excludes cache reads and writes."""

    cost: Cost = Cost()
    """Set by the core from the model's price, not by providers."""
    cost_known: bool = True
    """False: some prices are unknown, and `cost` covers only the known part."""
    cache_write_long: int = 0
    """Part of `cache_write` that was written for an hour or longer."""
    service: str = ""
    """Words of the provider that change the price (flex, priority, fast, us), with spaces."""
    billed: float | None = None
    """US dollars that the provider itself says the call costs."""

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


# --- messages --------------------------------------------------------------------------------


class Origin(Plain):
    """Source of an assistant message, and how it ended."""

    provider: str
    model: str
    api: str
    stop: Stop
    usage: Usage = Usage()
    error: str | None = None


class Message(Plain):
    """One message of a transcript."""

    role: Role
    content: tuple[Block, ...]
    time: float
    """Unix seconds."""
    origin: Origin | None = None
    """Set on assistant messages."""
    extra: dict[str, Json] | None = None
    """Data that a dialect or file format stores with the message (pi's attachments, zot's meta)."""


def texts_in(blocks: Iterable[object]) -> list[str]:
    """Return the texts of the text blocks."""
    return [block.text for block in blocks if isinstance(block, Text)]


# --- models and requests ---------------------------------------------------------------------


class ToolSpec(Frozen):
    name: str
    description: str
    schema: dict[str, Json]
    grammar: str = ""
    """Lark grammar of its only argument `input`, for models that write it as plain text."""
    strict: bool = False
    """Whether to ask for arguments that always fit the schema, where a provider can."""


class Request(Frozen):
    model: Model
    system: str
    messages: Sequence[Message]
    """Valid for any provider: see provider/repair.py."""
    tools: tuple[ToolSpec, ...] = ()
    """Sorted by name: prompt caches match prefixes."""
    reasoning: Level = "off"
    max_output: int | None = None
    """Maximum output tokens; None: the model's limit."""
    cache_key: str = ""
    """Stable for one conversation, for providers that route their cache by a key."""
    cache: Literal["off", "short", "long"] = "short"
    """How long the provider should keep the prompt in its cache."""
    is_warmup: bool = False
    """Repeats the last request to keep its prompt in the cache: the shortest answer will do."""
    tool_choice: Literal["auto", "none", "required"] = "auto"
    schema: dict[str, Json] | None = None
    """JSON Schema of the answer, for providers that sample by one."""
    repaired: bool = False
    """Whether the messages were already made valid for this model and need no repair."""


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
    """Token counts so far, so that an aborted call is still counted."""

    usage: Usage


class Retrying(Frozen):
    """The call failed and will be made again after `delay` seconds."""

    attempt: int
    """Number of the failed attempt, from 1."""
    max_attempts: int
    delay: float
    reason: str
    code: str = "provider"
    """Class of the failure (`ZotError.code`)."""
    dropped: bool = False
    """Content was streamed before the failure: it is void, and the answer begins again."""


class FellBack(Frozen):
    """The model failed for good; the call continues with the next one."""

    failed: str
    """Id of the model that failed."""
    provider: str
    model: Model
    reason: str


CacheCause = Literal["model", "tools", "system", "settings", "message", "timeout", "unknown"]


class CacheMissed(Frozen):
    """The provider did not find a prefix in its cache that it should have known."""

    cause: CacheCause
    """First part that differs from the last request; `timeout`: nothing, but the entry was older
    than the cache keeps it; `unknown`: nothing, the provider dropped it."""
    expected: int
    """Tokens that should have been read from the cache."""
    read: int
    position: int | None = None
    """Index of the first different tool or message, or character of the system prompt."""
    detail: str = ""
    seconds: float = 0.0
    """Time since the last request."""


@final
class Finished(Frozen):
    """Last event of a successful call. Blocks are in the model's order."""

    content: tuple[Block, ...]
    stop: Literal["end", "tool_use", "length"]
    usage: Usage
    paused: bool = False
    """The server works on and wants the answer back to continue it; never seen above a client."""


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
    | CacheMissed
    | Finished
)


class Provider(Protocol):
    """A model client: one call of `stream` is one model call."""

    @property
    def name(self) -> str:
        """The provider's name, as in `--provider`."""

    def stream(self, request: Request, cancel: Cancel) -> Iterator[StreamEvent]:
        """Yield the events of one call; the last one is Finished.

        Raises:
            ProviderError: the call failed, before or after content was streamed.
            Cancelled: the turn was aborted; within milliseconds, whatever the server does.
        """

    def close(self) -> None:
        """Close connections; the provider can be used again."""


class Models(Protocol):
    """The models of every usable provider."""

    def find(self, name: str, provider: str) -> Model:
        """Return a model; `name` is an id of `provider`, or PROVIDER/ID.

        Raises:
            ConfigError: there is no such model.
            AuthError: its provider has no credential.
        """

    def all(self, provider: str = "") -> Sequence[Model]:
        """Return the models of one provider, or of every provider with a credential."""

    def connect(self, model: Model) -> Provider: ...

    def renew(self, provider: str) -> bool:
        """Look up the provider's credential again; return True if it changed.

        Raises:
            AuthError: there is none any more.
        """
