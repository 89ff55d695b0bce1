"""pi's `bash` command: the user's own shell command, whose output the model sees with the next
prompt. The agent's bash tool is another thing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from zot.build import secret_names
from zot.cancel import Cancel
from zot.errors import CommandError
from zot.provider.types import Json
from zot.tools.registry import SharedSupervisor


class Shell:
    """Runs commands for the client, several at once if it asks so."""

    def __init__(
        self, cwd: str, supervisor: SharedSupervisor, pause: Callable[[Cancel], None]
    ) -> None:
        """`pause` waits for a client that does not read: the command is slowed down with it."""
        self._pause = pause
        self._cwd = Path(cwd)
        self._supervisor = supervisor
        self._lock = threading.Lock()
        self._running: set[Cancel] = set()

    def run(self, command: str, show: Callable[[str], None]) -> dict[str, Json]:
        """Run a command to its end; what pi answers. `show` gets the output as it comes.

        Raises:
            CommandError: there is nothing to run.
            ToolError: it could not be started.
        """
        if not command.strip() or "\0" in command:
            raise CommandError("the command is empty, or holds a NUL character")
        # Deferred: what commands need is loaded with the first one.
        from zot.tools import paths
        from zot.tools.bash import child_env
        from zot.tools.output import Capture, Decoder

        cancel = Cancel()
        with self._lock:
            self._running.add(cancel)
        capture = Capture(Path(os.environ.get("TMPDIR") or "/tmp"), self._supervisor.secrets())
        decoder = Decoder()

        def take(data: bytes) -> None:
            capture.feed(data)
            self._pause(cancel)
            if text := decoder.feed(data):
                show(text)

        try:
            argv = [paths.shell(self._cwd), "-c", command]
            result = self._supervisor.get().run(
                argv, self._cwd, child_env(secret_names()), take, cancel
            )
        finally:
            capture.close()
            with self._lock:
                self._running.discard(cancel)
        if text := decoder.feed(b"", final=True):
            show(text)
        answer: dict[str, Json] = {
            "output": capture.text(),
            "cancelled": result.aborted,
            "truncated": capture.truncated,
        }
        if result.exit_code is not None and not result.aborted:
            answer["exitCode"] = result.exit_code
        if capture.path is not None:
            answer["fullOutputPath"] = str(capture.path)
        return answer

    def abort(self) -> None:
        """End all that runs, without waiting for it."""
        with self._lock:
            running = list(self._running)
        for cancel in running:
            cancel.set()


def message(command: str, answer: dict[str, Json], *, hidden: bool) -> dict[str, Json]:
    """The command and its output as pi keeps them in a session."""
    kept = {"role": "bashExecution", "command": command, **answer}
    if hidden:
        kept["excludeFromContext"] = True
    return {**kept, "timestamp": round(time.time() * 1000)}
