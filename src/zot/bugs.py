"""Output to stderr: tracebacks of bugs, for developers, and warnings that do not stop the run.

Clients and users get one line from the code that caught a bug.
"""

from __future__ import annotations

import sys

from zot.errors import ZotError
from zot.text import for_terminal


def report_bug(error: BaseException) -> None:
    """Write the traceback to stderr; never fails, whatever stderr is."""
    import traceback  # deferred: a run without a bug does not pay for loading it

    try:
        traceback.print_exception(error, file=sys.stderr)
    except (OSError, ValueError):
        pass  # stderr is closed or full


def complain(text: str) -> None:
    """Write a line for the user to stderr, without terminal escape codes; never fails."""
    try:
        sys.stderr.write(f"zot: {for_terminal(text, 2)}\n")
    except (OSError, ValueError, AttributeError):
        pass  # stderr is closed or full, or was never there


_told: set[str] = set()


def warn_once(text: str) -> None:
    """Write a warning for the user; the same text only once per process."""
    if text not in _told:
        _told.add(text)
        complain(f"warning: {text}")


def internal_error(error: BaseException) -> ZotError:
    """Return a bug as an error for the client; its traceback goes to stderr."""
    report_bug(error)
    return ZotError(f"internal error: {type(error).__name__}: {error}")
