"""Common part of the modes that answer one prompt and exit (`-p`, `--json`, pi's): from the typed
text to an exit code. Each mode prints the answer itself.
"""

from __future__ import annotations

import select
import signal
import threading
from collections.abc import Callable
from typing import Protocol

from zot.bugs import complain
from zot.cancel import Cancel
from zot.core.source import CommandResult
from zot.errors import Cancelled, CommandError, SessionError
from zot.provider.types import Json
from zot.runtime.runtime import Runtime
from zot.wire.serving import SIGNALS

EXIT_OK, EXIT_FAILED = 0, 1


class OnceClient(Protocol):
    """The part of a mode that shows the answer."""

    @property
    def wire(self) -> int:
        """Descriptor that the answer is written to."""

    @property
    def lost(self) -> bool:
        """Whether the reader of the output is gone."""

    def nothing_runs(self) -> None:
        """Called when a command has ended without a prompt to run."""


def answer_once(
    runtime: Runtime, typed: str, client: OnceClient, schema: dict[str, Json] | None = None
) -> int:
    """Run the typed prompt or command to its end. Return 0 on success, 1 on failure, 128 + N after
    signal N.

    Raises:
        ZotError: the run could not start.
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
        runtime.commands.check_typed(typed)
    run = runtime.prompt(prompt, call=call, schema=schema)
    wait_or_abort(run.ended.wait, runtime.abort, is_over, client.wire)
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
    """Run `/name args` and return its result; None: no such command. Raises Cancelled: a signal
    came or the reader is gone."""
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
        return runtime.commands.run_typed(typed, cancel)
    finally:
        over.set()
        watcher.join()


def note_signals() -> list[int]:
    """Handle termination signals by adding them to the returned list."""
    noted: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: noted.append(number))
    return noted


def wait_or_abort(
    ended: Callable[[float], bool], abort: Callable[[], object], stop: Callable[[], bool], wire: int
) -> None:
    """Wait until `ended`; call `abort`, once, when `stop` returns True or nobody reads `wire`.

    The signal handler must not abort: it may run while this thread holds a lock that the abort
    needs, or, at a second signal, while the first one's abort is half done and holds its lock.
    """
    aborted = False
    poll = select.poll()
    poll.register(wire, 0)
    while not ended(0.1):
        if not aborted and (stop() or poll.poll(0)):
            aborted = True
            abort()
