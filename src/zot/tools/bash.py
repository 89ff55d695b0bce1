"""The `bash` tool: run a shell command and report its output and how it ended."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from zot.cancel import Cancel
from zot.core.events import ToolStatus
from zot.core.shell import ShellOutput
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import ToolError
from zot.home import RPC_TOKEN
from zot.provider.types import Json, Text
from zot.text import whole_characters
from zot.tools.place import Job, Place
from zot.tools.process.background import Background
from zot.tools.process.output import Capture, Decoder, Live
from zot.tools.process.supervisor import ProcessResult, Supervisor

MARKERS = {
    "AI_AGENT": "zot",
    "ZOT_AGENT": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Variables that signal to programs that an agent runs them, so that they wait for no person."""
NEEDS_TERMINAL = re.compile(
    r"/dev/tty|not a (?:tty|terminal)|(?:terminal|tty) is required|no tty present"
    r"|terminal prompts disabled|Inappropriate ioctl|empty commit message",
    re.IGNORECASE,
)
MAX_TIMEOUT = 86_400 * 7


def child_env(environ: Mapping[str, str], secret_names: frozenset[str]) -> dict[str, str]:
    """Return the user's environment for a command: without zot's secrets, whatever variable holds
    them, and with zot's markers."""
    hidden, environ = secret_names | {RPC_TOKEN}, dict(environ)  # a copy: os.environ is slow
    # A short value ("1", "on") is no secret; other variables often have the same value.
    values = {value for name in hidden if len(value := environ.get(name, "")) >= 8}
    return MARKERS | {
        name: value
        for name, value in environ.items()
        if name not in hidden and value not in values and name not in MARKERS
    }


class Bash:
    def __init__(
        self,
        place: Place,
        supervisor: Supervisor,
        secret_names: frozenset[str],
        secrets: Callable[[], Sequence[str]] = tuple,
        background: Background | None = None,
    ) -> None:
        """`secret_names`: variables hidden from commands; `secrets`: values removed from files."""
        self._place = place
        self._supervisor = supervisor
        self._secret_names = secret_names
        self._secrets = secrets
        self._background = background or Background()

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        command, timeout = _arguments(args)
        context.cancel.check()
        if args.get("background") is True:
            start = partial(self._decoded, command, timeout, trace=context.trace)
            return self._background.start(command, start)
        if self._background.watched:
            return self._run_detachable(command, timeout, context)
        live = Live(context.progress)
        result, capture = self._captured(command, timeout, live, context.cancel, context.trace)
        return self._reported(command, timeout, capture, result)

    def _run_detachable(
        self, command: str, timeout: float | None, context: ToolContext
    ) -> ToolOutput:
        """Run a command that a person may move to the background meanwhile."""
        captures: list[Capture] = []
        returned = Cancel()

        def progress(text: str) -> None:
            if not returned.is_set():
                context.progress(text)

        live = Live(progress)

        def start(take: Callable[[str], None], cancel: Cancel) -> ProcessResult:
            decoder = Decoder()

            def heard(data: bytes) -> None:
                take(decoder.feed(data))

            result, capture = self._captured(command, timeout, live, cancel, context.trace, heard)
            captures.append(capture)
            return result

        running = self._background.wait_for(command, start, context.cancel)
        returned.set()
        if running.id:
            seen = running.look()
            note = Text(f"[the user moved this to the background as {running.id}]")
            return ToolOutput((*seen.content, note), details=seen.details)
        result = running.finished()
        return self._reported(command, timeout, captures[0], result)

    def _reported(
        self, command: str, timeout: float | None, capture: Capture, result: ProcessResult
    ) -> ToolOutput:
        if capture.path is not None:
            self._place.offer(capture.path)
        return _report(command, timeout, capture.text(), capture.path, result)

    def run_typed(self, command: str, show: Callable[[str], None], cancel: Cancel) -> ShellOutput:
        """Run a command that the user typed to its end; `show` gets all of its output."""
        live = Live(show, sys.maxsize)
        result, capture = self._captured(command, None, live, cancel)
        return ShellOutput(
            command,
            capture.text(),
            exit_code=None if result.aborted else result.exit_code,
            aborted=result.aborted,
            truncated=capture.truncated,
            full_output="" if capture.path is None else str(capture.path),
        )

    def shorten(self, text: str) -> str:
        """Return a text that is too long with its head and its tail only, and write all of it to a
        file that the model may read."""
        capture = Capture(self._place.temporary, self._secrets())
        capture.feed(text.encode("utf-8", "replace"))
        capture.close()
        if capture.path is not None:
            self._place.offer(capture.path)
        return capture.text() if capture.truncated else text

    def _captured(
        self,
        command: str,
        timeout: float | None,
        live: Live,
        cancel: Cancel,
        trace: str = "",
        also: Callable[[bytes], None] = lambda data: None,
    ) -> tuple[ProcessResult, Capture]:
        """Run a command to its end; `also` gets its output, too."""
        capture = Capture(self._place.temporary, self._secrets())

        def take(data: bytes) -> None:
            capture.feed(data)
            live.feed(data)
            also(data)

        try:
            result = self._start(command, timeout, take, cancel, trace)
            live.end()
        finally:
            capture.close()
        return result, capture

    def _decoded(
        self,
        command: str,
        timeout: float | None,
        take: Callable[[str], None],
        cancel: Cancel,
        trace: str = "",
    ) -> ProcessResult:
        """Run a command; `take` gets its output as text."""
        decoder = Decoder()
        try:
            feed = decoder.feed
            return self._start(command, timeout, lambda data: take(feed(data)), cancel, trace)
        finally:
            take(decoder.feed(b"", final=True))

    def _start(
        self,
        command: str,
        timeout: float | None,
        take: Callable[[bytes], None],
        cancel: Cancel,
        trace: str,
    ) -> ProcessResult:
        env = child_env(self._place.environ, self._secret_names)
        if trace:
            env["TRACEPARENT"] = trace
        return self._place.run(self._supervisor, Job(command, env, take, cancel, timeout))


def _arguments(args: dict[str, Json]) -> tuple[str, float | None]:
    command, timeout = args.get("command"), args.get("timeout")
    if not isinstance(command, str) or not command.strip():
        raise ToolError("command is required")
    if "\0" in command:
        raise ToolError("command holds a NUL character, which no program can be given")
    command = whole_characters(command)
    if timeout is None or timeout == 0:
        return command, None
    if not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        raise ToolError(f"timeout must be seconds between 0 and {MAX_TIMEOUT}, not {timeout!r}")
    return command, float(timeout)


def _report(
    command: str, timeout: float | None, output: str, path: Path | None, result: ProcessResult
) -> ToolOutput:
    code = -1 if result.exit_code is None else result.exit_code
    body = f"$ {command}\n"
    if output:
        body += "\n" + output + ("" if output.endswith("\n") else "\n")
    notes = _notes(result, timeout)
    if code > 0 and NEEDS_TERMINAL.search(output[-2000:]):
        notes.append("there is no terminal and nobody to type: use flags that ask nothing")
    for note in notes:
        body += f"\n[{note}]"
    body += f"\n[exit {code}]"
    if path is not None:
        body += f" (full output: {path})"
    body += f"  Took {duration(result.seconds)}"
    details: dict[str, Json] = {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "end": result.end,
        "seconds": round(result.seconds, 3),
        "full_output": None if path is None else str(path),
        "stopped_processes": len(result.leftovers),
    }
    status: ToolStatus | None = "timed_out" if result.end == "timed_out" else None
    return ToolOutput((Text(body),), is_error=code != 0, details=details, status=status)


def _notes(result: ProcessResult, timeout: float | None) -> list[str]:
    by_end = {
        "exited": "",
        "timed_out": f"timed out after {timeout:g} s; it was stopped" if timeout else "",
        "aborted": "aborted; it was stopped",
        "supervisor_killed": "its supervisor was killed, so it was stopped",
        "too_many_processes": "it started too many processes (a fork bomb?) and was stopped",
    }
    notes = [by_end[result.end]]
    if result.signal:
        notes.append(f"killed by {result.signal}")
    if result.leftovers:
        notes.append(
            _counted(result.leftovers, "background process", "stopped: the shell had exited")
        )
    if result.survivors:
        notes.append(_counted(result.survivors, "process", "not possible to kill"))
    return [note for note in (*notes, *result.notes) if note]


def _counted(names: tuple[str, ...], noun: str, what: str) -> str:
    count = len(names)
    verb = f"{noun} was" if count == 1 else f"{noun}es were"
    named = [name for name in names if name]
    more = ", ..." if len(named) < count else ""
    return f"{count} {verb} {what} ({', '.join(named)}{more})"


def duration(seconds: float) -> str:
    """`0.1s`, `1m5s`, `1h2m`."""
    if seconds < 60:
        return f"{int(seconds * 10) / 10:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m"
