"""Runners for coroutine tools: in the embedder's loop if there is one, else in a new loop. Loaded
when first needed, because it imports asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any

from zot.cancel import Cancel
from zot.errors import Cancelled

Work = Coroutine[Any, Any, Any]


def run_alone(work: Work, cancel: Cancel) -> Any:
    """Run the coroutine to its end in this thread; an abort cancels it. Raises Cancelled: the run
    was aborted."""

    async def main() -> Any:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        with cancel.calling(lambda: _call_soon(loop, task.cancel)):
            return await task

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise Cancelled from None


def run_in(loop: asyncio.AbstractEventLoop, work: Work, cancel: Cancel) -> Any:
    """Run the coroutine in the loop and wait for its end. Raises Cancelled: the run was aborted."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    with cancel.calling(future.cancel):
        try:
            return future.result()
        except CancelledError:
            raise Cancelled from None


def _call_soon(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass  # the loop has ended, and the work with it
