"""What happens to a bug of ours, or of a plug-in: its traceback goes to stderr, for developers.

Clients and users get one line from whoever caught it.
"""

from __future__ import annotations

from zot.errors import ZotError


def report_bug(error: BaseException) -> None:
    """Write the traceback to stderr; never fails, whatever stderr is."""
    # Deferred: a run without a bug does not pay for loading it.
    import sys
    import traceback

    try:
        traceback.print_exception(error, file=sys.stderr)
    except (OSError, ValueError):
        pass  # stderr is closed or full


def internal_error(error: BaseException) -> ZotError:
    """A bug as an error for the client; its traceback goes to stderr."""
    report_bug(error)
    return ZotError(f"internal error: {type(error).__name__}: {error}")
