"""Runs a command that the user typed, as the bash tool runs the model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zot.cancel import Cancel
from zot.core.shell import ShellOutput
from zot.tools.bash import child_env
from zot.tools.output import Capture, Decoder
from zot.tools.place import Job, Place
from zot.tools.process import Supervisor


def run_shell(
    command: str,
    place: Place,
    supervisor: Supervisor,
    *,
    hidden: frozenset[str],
    secrets: Sequence[str],
    show: Callable[[str], None],
    cancel: Cancel,
) -> ShellOutput:
    """Run it to its end. The variables `hidden` are not in its environment, and no text of
    `secrets` gets into the file with its output."""
    capture = Capture(place.temporary, secrets)
    decoder = Decoder()

    def take(data: bytes) -> None:
        capture.feed(data)
        if text := decoder.feed(data):
            show(text)

    env = child_env(place.environ, hidden)
    try:
        result = place.run(supervisor, Job(command, env, take, cancel, timeout=None))
    finally:
        capture.close()
    if text := decoder.feed(b"", final=True):
        show(text)
    return ShellOutput(
        command,
        capture.text(),
        exit_code=None if result.aborted else result.exit_code,
        aborted=result.aborted,
        truncated=capture.truncated,
        full_output="" if capture.path is None else str(capture.path),
    )
