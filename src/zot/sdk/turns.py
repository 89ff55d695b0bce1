"""Queue for the calls of an AsyncRuntime that have to wait: they run in threads, in call order.
Nothing here depends on what a call does.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from zot.runtime.run import Run, StoredEnd
from zot.sdk.stream import Channel

Result = TypeVar("Result")
Started = tuple[Run | StoredEnd, Channel]


class Reply(Awaitable[Result]):
    """Awaitable result of a call that waits in a thread. The work is done even if the reply is not
    awaited; dropping it then emits a RuntimeWarning."""

    def __init__(self, name: str, task: asyncio.Task[Result]) -> None:
        self._name = name
        self._task = task
        self._awaited = False

    def __await__(self) -> Generator[Any, Any, Result]:
        self._awaited = True
        return asyncio.shield(self._task).__await__()

    def __del__(self) -> None:
        if not self._awaited:
            text = f"{self._name}() was not awaited: it goes on in a thread"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)


class Made(Awaitable[Result]):
    """Awaitable result of a call that did not have to wait."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, Any, Result]:
        yield from ()  # waits for nothing
        return self._result


class Start:
    """Start of a run, in a thread or at once. If it is cancelled before the run exists, the run is
    aborted as soon as it does, and its events end with Done."""

    def __init__(
        self, start: Callable[[Callable[[], None]], Started], notify: Callable[[], None]
    ) -> None:
        self._start = start
        self._notify = notify
        self._lock = threading.Lock()
        self._cancelled = False
        self._run: Run | None = None

    def begin(self) -> Started:
        run, channel = self._start(self._notify)
        if isinstance(run, Run):
            with self._lock:
                self._run, cancelled = run, self._cancelled
            if cancelled:
                run.cancel.set()
        return run, channel

    def cancel(self) -> None:
        with self._lock:
            self._cancelled, run = True, self._run
        if run is not None:
            run.cancel.set()


class Turns:
    """Queue of one runtime's waiting calls, run one at a time. Use it in one loop at a time."""

    def __init__(self) -> None:
        self._last: asyncio.Task[Any] | None = None
        self._starts: set[Start] = set()

    @property
    def busy(self) -> bool:
        return self._last is not None and not self._last.done()

    def take(self, work: Callable[[], Result]) -> asyncio.Task[Result]:
        """Run the work in a thread, after the work queued before."""
        before = self._last if self.busy else None

        async def go() -> Result:
            if before is not None:
                await asyncio.wait([before])
            return await asyncio.to_thread(work)

        self._last = task = asyncio.get_running_loop().create_task(go())
        return task

    def take_start(self, start: Start) -> asyncio.Task[Started]:
        """Queue the start of a run; until it has started, `cancel_starts` can cancel it."""
        self._starts.add(start)
        task = self.take(start.begin)
        task.add_done_callback(lambda _: self._starts.discard(start))
        return task

    def cancel_starts(self) -> bool:
        """Cancel the runs that wait to start; return False if there are none."""
        starts = list(self._starts)
        for start in starts:
            start.cancel()
        return bool(starts)


def in_loop() -> bool:
    """Return whether this thread runs an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
