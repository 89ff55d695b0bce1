"""Says what was done about the things that a command left, and looks for them while one runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from zot.core.shell import Tell
from zot.obeyed import Aftermath, Look
from zot.tools import paths

WATCH_AFTER = 10.0
"""Seconds that a command may have a repository of its own: a test that makes one is common."""
WATCH_EVERY = 2.0
WATCH_REST = 20.0
"""A look that takes so long is followed by a pause of so many times its length."""
MAX_NOTES = 20


def sentences(after: Aftermath, root: str) -> list[str]:
    notes = [
        f"jailed: {thing.path!r} was renamed to {name!r}: other programs would run or obey it,"
        " outside of the jail"
        for thing, name in after.renamed
    ]
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
    if not after.finished:
        notes.append(too_large(root))
    return notes


def too_large(root: str) -> str:
    return (
        f"jailed: {root!r} is too large to be looked through for names that other programs obey,"
        " such as .git; check them before you use them"
    )


class Watch:
    """Looks at what appears while a command runs; the pause is long beside what a look costs."""

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
    """Programs that stay in the jail for long, beside its commands: one look at what appears serves
    all of them."""

    def __init__(self, look: Callable[[Look], list[str]]) -> None:
        """`look` renames what appeared since, and tells of it."""
        self._look = look
        self._lock = threading.Lock()
        self._count = 0
        self._before: Look | None = None
        self._watching = ExitStack()

    @contextmanager
    def one_more(self, before: Look, tell: Tell) -> Iterator[None]:
        """While one of them lives; `before`: what is there as it begins, which counts if it is the
        first."""
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
