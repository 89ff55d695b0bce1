"""`zot -p` and `zot --json`: run one prompt and exit with a code that tells the outcome."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from zot.bugs import complain
from zot.build import Additions, approval_for, build_runtime
from zot.cancel import Cancel
from zot.core import events
from zot.core.events import Event
from zot.errors import UsageError, ZotError
from zot.lines import encode_line, write_all
from zot.provider.types import Json, Message, Text
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run
from zot.serve.ask_terminal import ask_terminal, has_terminal
from zot.settings.resolve import Plan
from zot.text import for_terminal, whole_characters
from zot.wire import frames
from zot.wire.encode import frame
from zot.wire.once import EXIT_FAILED, EXIT_OK, answer_once
from zot.wire.serving import claim_stdout, ignore_signals
from zot.writer import LineWriter

STOP_SECONDS = 3.0
MAX_INPUT = 16 * 1024 * 1024
"""Maximum bytes of stdin as a prompt."""


def run(find_plan: Callable[[], Plan], prompt: str, *, as_json: bool) -> int:
    """Answer the prompt; return 0 on success, 1 on failure, 128 + N after signal N.

    Raises:
        ZotError: the run could not begin; with `as_json` an error event is written too.
    """
    fd = claim_stdout()
    client: AsText | AsJson = AsJson(fd) if as_json else AsText(fd)
    try:
        plan = find_plan()
        options = plan.setup.options
        terminal = ask_terminal if has_terminal() else None
        approval = None
        if not options.yolo:
            approval = approval_for(options, client, terminal=terminal)
        runtime = build_runtime(
            plan, client, Additions(keep=True, approval=approval, owns_process=True)
        )
    except ZotError as error:
        client.failed(error)
        raise
    try:
        code = answer_once(runtime, prompt, client, output_schema(options.output_schema))
    except ZotError as error:
        client.failed(error)
        raise
    finally:
        runtime.close()
        runtime.release()
        ignore_signals()
    return client.finish(code)


def output_schema(path: str) -> dict[str, Json] | None:
    """Return the JSON Schema in a file; None: there is no path. Raises UsageError."""
    if not path:
        return None
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Json])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"--output-schema {path!r}: {error}; give a file with a JSON Schema"
        ) from error


def prompt_text(words: Sequence[str]) -> str:
    """Return the prompt: piped text, then the words of the command line."""
    piped = ""
    if _is_piped(0):
        data = sys.stdin.buffer.read(MAX_INPUT + 1)
        if len(data) > MAX_INPUT:
            raise UsageError(f"stdin is longer than {MAX_INPUT} bytes: put it into a file instead")
        piped = data.decode("utf-8", "replace")
    typed = whole_characters(" ".join(words))
    return "\n".join(part for part in (piped.strip(), typed.strip()) if part)


def _is_piped(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


class AsText(RuntimeClient):
    """Prints the last answer, and text displayed by extensions."""

    lost = False

    def __init__(self, fd: int) -> None:
        self.wire = fd
        self._shown: list[str] = []
        self._last: Message | None = None

    def listen(self, event: Event, run: Run | None) -> None:
        if isinstance(event, events.AssistantMessage):
            self._last = event.message
        elif isinstance(event, events.Retrying):
            again = f"trying again in {event.delay:.0f} s"
            complain(f"{event.reason}; {again} ({event.attempt} of {event.max_attempts})")
        elif isinstance(event, events.ExtensionDisplay):
            self._shown.append(event.text)
        elif isinstance(event, events.ExtensionNotify):
            complain(f"[{event.extension}] {event.message}")

    def failed(self, error: ZotError) -> None:
        """Do nothing: the error goes to stderr."""

    def nothing_runs(self) -> None:
        """Do nothing: there is no answer to wait for."""

    def finish(self, code: int) -> int:
        if self._last is not None:
            texts = (part.text for part in self._last.content if isinstance(part, Text))
            self._shown.append("\n".join(texts))
        if code == EXIT_OK and self._shown:
            text = for_terminal("\n".join(self._shown), self.wire)
            data = whole_characters(text).encode()
            try:
                write_all(self.wire, data if data.endswith(b"\n") else data + b"\n")
            except BrokenPipeError:
                raise  # a reader that stops early is no error
            except OSError as error:
                raise ZotError(f"the answer could not be written: {error.strerror}") from error
        return code


class AsJson(RuntimeClient):
    """Writes every event as a JSON line."""

    def __init__(self, fd: int) -> None:
        self.lost = False
        """True once the reader has gone."""
        self.wire = fd
        self._writer = LineWriter(fd, gone=self._reader_gone)

    def _reader_gone(self) -> None:
        self.lost = True

    def listen(self, event: Event, run: Run | None) -> None:
        if (shown := frame(event)) is not None:
            self._writer.put(encode_line(shown))

    def wait(self, cancel: Cancel) -> None:
        self._writer.wait(cancel)

    def failed(self, error: ZotError) -> None:
        self._writer.put(encode_line(frames.Error(str(error))) + encode_line(frames.Done()))
        self._writer.close(STOP_SECONDS)

    def nothing_runs(self) -> None:
        self._writer.put(encode_line(frames.Done()))

    def finish(self, code: int) -> int:
        self._writer.close(STOP_SECONDS)
        failure = self._writer.failure
        if failure is not None and not isinstance(failure, BrokenPipeError):
            raise ZotError(f"the events could not be written: {failure.strerror}")
        # A lost reader is a failure even if the run had succeeded before it was noticed.
        return EXIT_FAILED if self.lost and code == EXIT_OK else code
