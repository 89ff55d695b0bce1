"""Every error zot raises on purpose, in one tree. Nothing here knows how an error is shown.

ZotError
├── ConfigError            a flag, variable or file that cannot be used; says what to do
│   ├── UsageError         the command line cannot be understood; exit code 2
│   └── AuthError          no credential for the provider, or one that was refused
│       └── NoModelError   nothing is set up at all; the text lists the ways to a model
├── ProviderError          a model call failed (status, retryable, retry_after, request_id)
│   ├── RateLimited        429
│   ├── Overloaded         5xx, 529, 408, 409
│   ├── NetworkError       no connection, or it broke
│   ├── StreamIdle         not a byte within the idle limit
│   ├── ContextTooLong     the prompt does not fit the model's window
│   ├── Rejected           any other 4xx: asking again will not help
│   ├── Refused            the model or a filter refused to answer
│   └── BadResponse        an answer that is not one: HTML, cut, empty, garbage
├── ToolError              a tool failed; the text goes to the model
│   ├── ToolBlocked        a guard, a person or the jail did not allow it
│   └── ToolTimedOut       it took longer than it may
├── CommandError           a client's command cannot be carried out
│   ├── NotFoundError      what it names is not there
│   ├── BusyError          a run is in flight
│   └── ClosedError        the runtime was closed
├── LimitError             a run went past a limit the user set (steps, cost, tokens, seconds)
├── InvalidOutput          the answer does not fit the schema that was asked for
├── Blocked                a guard did not allow the turn
├── ExtensionError         an extension misbehaved
├── McpError               an MCP server failed, or cannot be had
└── SessionError           a session file cannot be read or written
    ├── JournalError       a durable run cannot note what it is about to do, so it does not
    └── SessionTaken       another process went on with a durable session: this one stops

Cancelled stands apart: it is not a failure, and no `except ZotError` may swallow it.
"""


class ZotError(Exception):
    """Base of all errors; `code` is a stable word for programs, `str()` a sentence for people."""

    code = "error"

    def __init_subclass__(cls, code: str = "") -> None:
        if code:
            cls.code = code


class ConfigError(ZotError, code="config"):
    """A flag, variable or file cannot be used; the text says what to do."""


class UsageError(ConfigError, code="usage"): ...


class AuthError(ConfigError, code="auth"):
    """There is no credential for the provider, or it was refused."""


class NoModelError(AuthError): ...


class ProviderError(ZotError, code="provider"):
    """A model call failed."""

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        """Seconds to wait as requested by the server; None if it did not."""
        self.request_id = request_id


class RateLimited(ProviderError, code="rate_limited"):
    retryable = True


class Overloaded(ProviderError, code="overloaded"):
    retryable = True


class NetworkError(ProviderError, code="network"):
    retryable = True


class StreamIdle(ProviderError, code="idle"):
    """No data within the idle limit. Not retried, so that the user who set it learns of it."""


class ContextTooLong(ProviderError, code="too_large"): ...


class Rejected(ProviderError, code="invalid_request"): ...


class Refused(ProviderError, code="refused"): ...


class BadResponse(ProviderError, code="bad_response"): ...


class ToolError(ZotError, code="tool"):
    """A tool failed; the text goes to the model."""


class ToolBlocked(ToolError): ...


class ToolTimedOut(ToolError): ...


class NotStarted(ToolError):
    """A program could not be started; nothing has run."""


class CommandError(ZotError, code="invalid_params"):
    """A client's command cannot be carried out; `code` says why."""

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class NotFoundError(CommandError, code="not_found"): ...


class BusyError(CommandError, code="busy"):
    """A run is in flight."""


class ClosedError(CommandError, code="closed"):
    """The runtime was closed."""


class LimitError(ZotError, code="limit"):
    def __init__(self, message: str, *, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit
        """Name of the limit: steps, seconds, tokens or cost."""


class InvalidOutput(ZotError, code="invalid_output"):
    """The model's answer does not fit the schema, not even at the second try."""


class Blocked(ZotError, code="blocked"): ...


class ExtensionError(ZotError, code="extension"): ...


class McpError(ZotError, code="mcp"): ...


class SessionError(ZotError, code="session"):
    """A session file cannot be read or written."""


class JournalError(SessionError): ...


class SessionTaken(SessionError, code="session_taken"): ...


class Cancelled(BaseException):
    """The turn was aborted. A BaseException, so that handlers of failures do not catch it."""
