"""The commands with which a client begins. They stand apart, because neither the first answer of
`zot rpc` nor the first prompt waits for the others to be loaded.
"""

from typing import Annotated, final

from msgspec import Meta

from zot.text import Frozen

FEATURES = (
    "agents",
    "approvals",
    "budgets",
    "codes",
    "dialogs",
    "mcp",
    "queue",
    "retries",
    "seq",
    "sessions",
    "thinking",
    "tools",
)
"""What a client may ask for in `hello`; without asking it sees only documented frames."""


class Command(Frozen, tag_field="type"):
    """Base of all commands; unknown fields are ignored, so old servers survive new clients."""


@final
class Hello(Command, tag="hello"):
    token: str = ""
    features: tuple[str, ...] | None = None


@final
class Ping(Command, tag="ping"): ...


Whole = Annotated[int, Meta(gt=0)]
Amount = Annotated[float, Meta(gt=0)]


class ImageData(Frozen):
    mime_type: str
    data: bytes
    """Base64 on the wire."""


class LimitsData(Frozen):
    """What each prompt may use up, where it does not say itself."""

    max_steps: Whole | None = None
    max_cost: Amount | None = None
    """US dollars."""
    max_tokens: Whole | None = None
    max_seconds: Amount | None = None


@final
class Prompt(Command, LimitsData, tag="prompt"):
    message: str = ""
    images: tuple[ImageData, ...] | None = None
    run: str = ""
    """With --durable: the client's own name for the run. The same one again is not run twice."""
