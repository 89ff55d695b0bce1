"""The commands with which a client begins. They stand apart, because the first answer of `zot rpc`
does not wait for the others to be loaded.
"""

from typing import final

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
