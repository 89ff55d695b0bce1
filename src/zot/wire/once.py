"""What the modes share that answer one prompt and end (`-p`, `--json`, pi's): from what was typed
to an exit code. How an answer is shown is their own business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from zot.bugs import complain
from zot.cancel import Cancel
from zot.core.source import CommandResult
from zot.errors import Cancelled, CommandError, SessionError
from zot.runtime.runtime import Runtime
from zot.wire.serving import finish, note_signals, wait_or_abort

EXIT_OK, EXIT_FAILED = 0, 1


class OnceClient(Protocol):
    """Who shows the answer."""

    @property
    def wire(self) -> int:
        """Where it is written to."""

    @property
    def lost(self) -> bool:
        """Nobody reads any more."""

    def nothing_runs(self) -> None:
        """A command was all there was."""


def answer_once(runtime: Runtime, typed: str, client: OnceClient) -> int:
    """Run the prompt, or the command that was typed, to its end: 0 when it went well, 1 when it
    failed, 128 + N after signal N.

    Raises:
        ZotError: it could not even begin.
    """
    stopped_by = note_signals()

    def is_over() -> bool:
        return bool(stopped_by) or client.lost

    try:
        result = _command(runtime, typed, is_over, client.wire)
    except Cancelled:
        return 128 + stopped_by[0] if stopped_by else EXIT_FAILED
    prompt, call = typed, None
    if result is not None:
        if result.action == "error":
            raise CommandError(f"{typed.split()[0]}: {result.text}", code="extension")
        if result.action not in ("prompt", "insert"):
            client.nothing_runs()
            return EXIT_OK
        prompt, call = result.text, result.call
    else:
        runtime.check_typed(typed)
    run = runtime.prompt(prompt, call=call)
    finish(run, runtime, is_over, client.wire)
    if stopped_by:
        return 128 + stopped_by[0]
    if run.error is not None:
        hint = "; --no-session keeps none" if isinstance(run.error, SessionError) else ""
        complain(f"{run.error}{hint}")
        return EXIT_FAILED
    return EXIT_OK if run.stop == "end" else EXIT_FAILED


def _command(
    runtime: Runtime, typed: str, stop: Callable[[], bool], wire: int
) -> CommandResult | None:
    """What came of `/name args`; None where it is no such command. Raises Cancelled: there is
    nobody left to hear of it."""
    if not typed.startswith("/"):
        return None
    cancel, over = Cancel(), threading.Event()
    watcher = threading.Thread(
        target=wait_or_abort,
        args=(over.wait, cancel.set, stop, wire),
        name="zot-watch",
        daemon=True,
    )
    watcher.start()
    try:
        return runtime.run_typed(typed, cancel)
    finally:
        over.set()
        watcher.join()
