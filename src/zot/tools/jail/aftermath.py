"""Reports the things that a command left and zot renamed, and watches for them while one runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from zot.core.shell import Tell
from zot.tools import paths
from zot.tools.jail.obeyed import Aftermath, Look

WATCH_AFTER = 10.0
"""Seconds before the first look: tests often make a repository for a short time."""
WATCH_EVERY = 2.0
WATCH_REST = 20.0
"""Pause after a look as a multiple of the look's duration; at least WATCH_EVERY seconds."""
MAX_NOTES = 20


def sentences(after: Aftermath, root: str) -> list[str]:
    notes = [
        f"jailed: {thing.path!r} was renamed to {name!r}: other programs would run or obey it,"
        " outside of the jail"
        for thing, name in after.renamed[:MAX_NOTES]
    ]
    if len(after.renamed) > MAX_NOTES:
        notes.append(f"jailed: {len(after.renamed) - MAX_NOTES} more were renamed likewise")
    notes += [
        f"jailed: {path!r} appeared, which other programs obey, and could not be renamed:"
        f" {paths.reason(error)}; remove it"
        for path, error in after.failed
    ]
    notes += [
        f"jailed: {path!r} could not be listed, and may be by its owner now: a directory must not"
        " hide what other programs obey"
        for path in after.opened
    ]
    notes += [
        f"jailed: {path!r} cannot be listed; check it for names that other programs obey, such as"
        " .git"
        for path in after.unseen
    ]
    if after.too_deep:
        notes.append(too_deep(after, root))
    if not after.finished:
        notes.append(too_large(root))
    return notes


def too_deep(after: Aftermath, root: str) -> str:
    outermost = after.too_deep.split("/")[0]
    return (
        f"jailed: {os.path.join(root, outermost)!r} holds too many names that other programs obey,"
        " such as .git, inside each other; some are not renamed yet, and no command runs until all"
        " are. Try again, which renames more of them, or remove it"
    )


def too_large(root: str) -> str:
    return (
        f"jailed: {root!r} is too large to be looked through for names that other programs obey,"
        " such as .git; check them before you use them"
    )


class Watch:
    """Looks periodically for new things while a command runs; pauses are much longer than looks."""

    def __init__(self, look: Callable[[], Sequence[str]], tell: Tell) -> None:
        self._look = look
        self._tell = tell
        self._over = threading.Event()
        self._told: list[str] = []
        self._thread = threading.Thread(target=self._watch, name="jail-watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = WATCH_AFTER
        while not self._over.wait(pause):
            started = time.monotonic()
            for note in self._look():
                if note not in self._told and len(self._told) < MAX_NOTES:
                    self._told.append(note)
                    self._tell(note)
            pause = max(WATCH_EVERY, WATCH_REST * (time.monotonic() - started))


class Residents:
    """Long-running programs in the jail, beside its commands; they share one Watch."""

    def __init__(self, look: Callable[[Look], list[str]]) -> None:
        """`look` renames things that appeared since the given look, and returns notes."""
        self._look = look
        self._lock = threading.Lock()
        self._count = 0
        self._before: Look | None = None
        self._watching = ExitStack()

    @contextmanager
    def one_more(self, before: Look, tell: Tell) -> Iterator[None]:
        """Count one program for the duration of the block. `before`: the look at its start, used
        only if it is the first."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._before = before
                self._watching.enter_context(Watch(lambda: self._look(before), tell))
            first = self._before or before
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if not self._count:
                    self._watching.close()
            for note in self._look(first):
                tell(note)
