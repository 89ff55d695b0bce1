"""zot: a coding-agent runtime that other programs embed.

`from zot import Runtime` is the in-process interface; the names below load on first use (PEP 562),
so that `import zot` and `import zot.ext` cost nothing. `zot.sdk` has them all, and some more.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers treat it as true, without an import of typing
if TYPE_CHECKING:
    from zot import sdk as sdk
    from zot.client import AsyncClient as AsyncClient
    from zot.client import Client as Client
    from zot.sdk import Answer as Answer
    from zot.sdk import AsyncRuntime as AsyncRuntime
    from zot.sdk import AuthError as AuthError
    from zot.sdk import BusyError as BusyError
    from zot.sdk import ClosedError as ClosedError
    from zot.sdk import CommandError as CommandError
    from zot.sdk import Config as Config
    from zot.sdk import ConfigError as ConfigError
    from zot.sdk import Decision as Decision
    from zot.sdk import EventStream as EventStream
    from zot.sdk import Hook as Hook
    from zot.sdk import Image as Image
    from zot.sdk import Level as Level
    from zot.sdk import Limits as Limits
    from zot.sdk import ProviderError as ProviderError
    from zot.sdk import Runtime as Runtime
    from zot.sdk import SessionError as SessionError
    from zot.sdk import ToolContext as ToolContext
    from zot.sdk import ToolError as ToolError
    from zot.sdk import ToolOutput as ToolOutput
    from zot.sdk import ZotError as ZotError
    from zot.sdk import events as events
    from zot.sdk import guard as guard
    from zot.sdk import parse_frame as parse_frame
    from zot.sdk import tool as tool

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncRuntime",
    "AuthError",
    "BusyError",
    "Client",
    "ClosedError",
    "CommandError",
    "Config",
    "ConfigError",
    "Decision",
    "EventStream",
    "Hook",
    "Image",
    "Level",
    "Limits",
    "ProviderError",
    "Runtime",
    "SessionError",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ZotError",
    "events",
    "guard",
    "parse_frame",
    "tool",
]


def __getattr__(name: str) -> object:
    if name in ("AsyncClient", "Client"):
        from zot import client

        return getattr(client, name)
    if name in __all__:
        from zot import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module 'zot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
