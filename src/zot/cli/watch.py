"""`zot watch [FILE|-]`: show the state of one stream of frames. `zot follow PATH`: print the frames
of a durable session as they are written.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zot.bugs import complain
from zot.cli.output import PlainParser, arg, flag, say_now
from zot.errors import ConfigError, UsageError
from zot.files import ensure_dir
from zot.home import home_dir
from zot.lines import LineSplitter, LineTooLong, ready
from zot.observe import Observer, Status
from zot.observe.facts import fields_of
from zot.swarm import log as swarm_log
from zot.wire.eventlog import follow_lines, log_path, tick

if TYPE_CHECKING:
    from zot.swarm.log import LogWriter

DESCRIPTION = (
    "Show the state of one agent from its frames: thinking, running a tool, waiting, failed, idle."
)
EXAMPLE = 'zot --json "fix the test" | tee run.jsonl | zot watch'
FOLLOW = """\
Print the frames of a session that runs with --durable: the stored ones after SEQ, then new ones as
they come. Reads only: any number of readers may follow at the same time.
"""
TICK = 0.25
"""Seconds between checks of the clock, or of a file that may have grown."""
COLORS = {
    "idle": "32",
    "thinking": "36",
    "compacting": "36",
    "tool": "33",
    "waiting": "35",
    "failed": "31",
    "gone": "31",
}


def watch(argv: Sequence[str]) -> int:
    parser = PlainParser(prog="zot watch", description=DESCRIPTION, epilog=EXAMPLE).add(
        flag("-f", help="go on with lines that are added to the file"),
        arg(
            "--share",
            type=_name,
            metavar="NAME",
            help="also show it on the page of `zot glasspane`, under this name",
        ),
        arg(
            "file",
            nargs="?",
            default="-",
            help="lines of `zot rpc`, `zot --json`, pi, Claude Code (stream-json) or codex "
            "(--json); - or nothing: standard input",
        ),
    )
    options = parser.parse_args(argv[1:])
    fd = _open(options.file)
    try:
        return watch_stream(fd, follow=options.f, share=options.share)
    finally:
        if fd != 0:
            os.close(fd)


def _name(word: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", word):
        raise ArgumentTypeError(f"give a name of letters, digits, - and _, not {word!r}")
    return word


def watch_stream(fd: int, *, follow: bool, share: str | None) -> int:
    """Show the stream to its end; return 1 if the agent failed or its frames stopped, else 0."""
    if not share:
        return _watch(fd, follow, None)
    folder = ensure_dir(swarm_log.shared_streams(Path(home_dir(os.environ))))
    log = swarm_log.LogWriter(folder / f"{share}.jsonl")
    try:
        return _watch(fd, follow, log)
    finally:
        log.frame(swarm_log.STREAM_OVER)
        log.close()


def _watch(fd: int, follow: bool, log: LogWriter | None) -> int:
    live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    screen = Screen(live, color=live and not os.environ.get("NO_COLOR"))
    observer = Observer()
    frames = others = 0
    for line in _lines(fd, follow):
        if line is not None:
            fields = fields_of(line)
            if "type" not in fields:  # no frame, so no evidence of an agent
                others += bool(line.strip())
                continue
            frames += 1
            observer.feed(fields)
            if log is not None:
                log.frame(line)
        screen.show(observer.status())
    observer.end()
    if others and not frames:
        screen.finish()
        complain("no line is a frame of zot, pi, Claude Code or codex; see zot watch --help")
        return 1
    screen.show(observer.status())
    screen.finish()
    return 1 if observer.status().state in ("failed", "gone") else 0


class Screen:
    """A status line that is redrawn in a terminal; elsewhere one line per change."""

    def __init__(self, live: bool, color: bool) -> None:
        self._live = live
        self._color = color
        self._shown = ""
        self._last: tuple[str, ...] = ()

    def show(self, status: Status) -> None:
        if self._live:
            text = describe(status)
            code = COLORS[status.state]
            self._write(f"\r\x1b[K\x1b[{code}m{text}\x1b[0m" if self._color else f"\r\x1b[K{text}")
            return
        now = (status.state, status.tool, status.waiting_for, status.error)
        if now != self._last:
            self._last = now
            self._write(describe(status, clock=False) + "\n")

    def finish(self) -> None:
        if self._live:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            sys.stdout.write(text)
            sys.stdout.flush()


def describe(status: Status, *, clock: bool = True) -> str:
    """Return the status as one line without control characters."""
    what: str = status.state
    if status.state == "tool":
        what = f"running {status.tool or 'a tool'}"
    elif status.state == "waiting":
        what = f"waiting for {status.waiting_for}"
    elif status.state == "failed":
        what = f"failed: {status.error}"
    elif status.state == "gone":
        what = f"gone: {status.error}"
    elif status.state == "idle" and status.outcome == "aborted":
        what = "idle (aborted)"
    parts = [_plain(what)]
    if clock:
        parts.append(f"{status.seconds:.0f} s")
    if status.turns:
        parts.append(f"turn {status.turns}")
    if status.tool_calls:
        parts.append(f"{status.tool_calls} tool call{'s' if status.tool_calls > 1 else ''}")
    if status.cost_usd or not status.cost_known:
        parts.append(f"{'' if status.cost_known else 'at least '}${status.cost_usd:.4f}")
    return " | ".join(parts)


def _plain(text: str) -> str:
    """Drop line ends and control codes: a stream must not control the terminal."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= 200 else shown[:197] + "..."


def _lines(fd: int, follow: bool) -> Iterator[bytes | None]:
    """Yield the lines of the stream, and None after each TICK without data."""
    splitter = LineSplitter()
    pipe = not stat.S_ISREG(os.fstat(fd).st_mode)
    while True:
        if pipe and not ready(fd, timeout=TICK):
            yield None
            continue
        data = os.read(fd, 65536)
        if not data and follow and not pipe:
            time.sleep(TICK)
            yield None
            continue
        if not data:
            break
        for line in splitter.feed(data):
            if not isinstance(line, LineTooLong):
                yield line
    last = splitter.finish()
    if last is not None and not isinstance(last, LineTooLong):
        yield last


def _open(path: str) -> int:
    if path == "-":
        return 0
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot read {path!r}: {error.strerror}") from error
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise ConfigError(f"cannot read {path!r}: it is a directory")
    return fd


# --- zot follow ------------------------------------------------------------------------------


def follow(argv: Sequence[str]) -> int:
    parser = PlainParser(prog="zot follow", description=FOLLOW).add(
        arg("session", help="the session file, as in `zot rpc --session`"),
        arg(
            "--from",
            dest="after",
            type=int,
            default=0,
            metavar="SEQ",
            help="print frames after this `seq`",
        ),
        flag("--once", help="end after the last frame"),
    )
    options = parser.parse_args(argv[1:])
    if not Path(log_path(options.session)).exists():
        nothing = f"no frames of {options.session!r}: only a run with --durable keeps its frames"
        if options.once:
            raise UsageError(f"zot follow: {nothing}")
        complain(f"{nothing}; waiting for one")
    for line in follow_lines(
        options.session, options.after, (lambda: False) if options.once else tick
    ):
        say_now(line.decode().rstrip("\n"))
    return 0
