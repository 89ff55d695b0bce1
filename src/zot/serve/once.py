"""`zot -p` and `zot --json`: one prompt, then the end. The exit code says how it went."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Sequence

from zot.build import build_runtime
from zot.core import events
from zot.core.events import Event
from zot.errors import CommandError, SessionError, UsageError, ZotError
from zot.lines import LineWriter, encode_line, write_all
from zot.provider.types import Message, Text
from zot.runtime.approval import Approval, approval_for_person
from zot.runtime.run import Run
from zot.runtime.runtime import Runtime
from zot.serve.ask_terminal import ask_terminal, has_terminal
from zot.settings.resolve import Setup
from zot.text import whole_characters
from zot.wire import frames
from zot.wire.serving import finish, note_signals
from zot.wire.standard import claim_stdout, ignore_signals
from zot.wire.zot_events import frame

_COMMAND = re.compile(r"/([\w:.-]+)(?:\s+(.*))?\Z", re.S)
STOP_SECONDS = 3.0
EXIT_OK, EXIT_FAILED = 0, 1
MAX_INPUT = 16 * 1024 * 1024
"""Bytes of stdin that may become a prompt."""


def run(find_setup: Callable[[], Setup], prompt: str, *, as_json: bool) -> int:
    """Answer the prompt; 0 when it went well, 1 when it failed, 128 + N after signal N.

    Raises:
        ZotError: it could not even begin; with `as_json` the events say so too.
    """
    fd = claim_stdout()
    try:
        setup = find_setup()
        runtime = build_runtime(setup, keep=True, approval=_approval(setup), owns_process=True)
    except ZotError as error:
        if as_json:
            write_all(fd, encode_line(frames.Error(str(error))) + encode_line(frames.Done()))
        raise
    try:
        if as_json:
            return _as_json(runtime, prompt, fd)
        return _as_text(runtime, prompt, fd)
    finally:
        runtime.close()
        runtime.release()
        ignore_signals()


def _approval(setup: Setup) -> Approval | None:
    options = setup.options
    return approval_for_person(
        options.approve,
        yolo=options.yolo,
        provider=setup.info.name,
        model=setup.model.id,
        terminal=ask_terminal if has_terminal() else None,
    )


def prompt_text(words: Sequence[str]) -> str:
    """The prompt: what was piped in, then the words of the command line."""
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


def _typed(runtime: Runtime, prompt: str) -> str | None:
    """What to ask the model: `/name args` of an extension is run first. None: nothing is left.

    Raises:
        ZotError: the command failed.
    """
    extensions = runtime.extensions
    found = _COMMAND.match(prompt)
    if found is None or extensions is None:
        return prompt
    if all(command.name != found[1] for command in extensions.commands()):
        return prompt
    outcome = extensions.run_command(found[1], (found[2] or "").strip())
    if outcome.action == "error":
        raise CommandError(f"/{found[1]}: {outcome.text}", code="extension")
    return outcome.text if outcome.action in ("prompt", "insert") else None


def _as_text(runtime: Runtime, prompt: str, fd: int) -> int:
    last: list[Message] = []
    shown: list[str] = []

    def listen(event: Event, run: Run | None) -> None:
        if isinstance(event, events.AssistantMessage):
            last[:] = [event.message]
        elif isinstance(event, events.ExtensionDisplay):
            shown.append(event.text)
        elif isinstance(event, events.ExtensionNotify):
            sys.stderr.write(f"zot: [{event.extension}] {event.message}\n")

    code = _finish(runtime, prompt, fd, listen)
    if last:
        shown.append("\n".join(part.text for part in last[0].content if isinstance(part, Text)))
    if code == 0 and shown:
        text = "\n".join(shown)
        data = whole_characters(text).encode()
        try:
            write_all(fd, data if data.endswith(b"\n") else data + b"\n")
        except BrokenPipeError:
            raise  # whoever did not want to read all of it is no error
        except OSError as error:
            raise ZotError(f"the answer could not be written: {error.strerror}") from error
    return code


def _as_json(runtime: Runtime, prompt: str, fd: int) -> int:
    lost: list[bool] = []

    def reader_gone() -> None:
        lost.append(True)
        runtime.abort()

    writer = LineWriter(fd, gone=reader_gone)

    def listen(event: Event, run: Run | None) -> None:
        if (seen := frame(event)) is not None:
            writer.put(encode_line(seen))

    runtime.wait_for_listeners = writer.wait
    done = encode_line(frames.Done())
    try:
        code = _finish(runtime, prompt, fd, listen, lambda: writer.put(done))
    except ZotError as error:
        writer.put(encode_line(frames.Error(str(error))) + done)
        writer.close(STOP_SECONDS)
        raise
    writer.close(STOP_SECONDS)
    if writer.failure is not None and not isinstance(writer.failure, BrokenPipeError):
        raise ZotError(f"the events could not be written: {writer.failure.strerror}")
    # Also when the answer was complete before its loss was noticed.
    return EXIT_FAILED if lost and code == 0 else code


def _finish(
    runtime: Runtime,
    prompt: str,
    wire: int,
    listen: Callable[[Event, Run | None], None],
    say_done: Callable[[], None] = lambda: None,
) -> int:
    """Run the prompt to its end; `say_done` when a command of an extension left nothing to run."""
    runtime.listeners.append(listen)
    asked = _typed(runtime, prompt)
    if asked is None:
        say_done()
        return EXIT_OK
    stopped_by = note_signals()
    run = runtime.prompt(asked)
    finish(run, runtime, stopped_by, wire)
    if stopped_by:
        return 128 + stopped_by[0]
    if run.error is not None:
        hint = "; --no-session keeps none" if isinstance(run.error, SessionError) else ""
        sys.stderr.write(f"zot: {run.error}{hint}\n")
        return EXIT_FAILED
    return 0 if run.stop == "end" else EXIT_FAILED
