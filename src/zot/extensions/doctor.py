"""`zot ext doctor`: starts extensions, checks their handshakes, and reports problems."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from zot.core.events import Event, ExtensionNotify
from zot.extensions import proto
from zot.extensions.extension import HostedExtension
from zot.extensions.guest import Guest
from zot.extensions.host import ExtensionHost, HostSettings
from zot.text import Frozen, compiled

LOG_LINES = 5
"""Number of log lines to show."""
LOG_READ = 65_536
_START = r"\[zot\] \S+ starting "


class Finding(Frozen, omit_defaults=True):
    """The findings about one extension."""

    name: str
    directory: str
    state: str
    version: str = ""
    hello_ms: int | None = None
    ready_ms: int | None = None
    said_ready: bool = False
    capabilities: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    intercepts: tuple[str, ...] = ()
    fail_closed: bool = False
    problems: tuple[str, ...] = ()
    """Each makes the exit code 1."""
    hints: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """The last log lines of this start: stderr, and zot's own notes."""
    log: str = ""


def examine(settings: HostSettings) -> list[Finding]:
    """Start and check all extensions of the settings. A slow one gets `limits.late`, the time after
    which a run would drop it."""
    notes: list[ExtensionNotify] = []

    def listen(event: Event) -> None:
        if isinstance(event, ExtensionNotify):
            notes.append(event)

    limits = settings.limits
    host = ExtensionHost(replace(settings, limits=replace(limits, grace=limits.late)))
    guest = Guest()
    guest.attach(listen)
    host.join(guest)
    try:
        host.start()
        host.wait_ready()
        findings = [
            _finding(extension, host, notes, limits.grace) for extension in host.extensions()
        ]
    finally:
        host.close()
    known = {finding.name for finding in findings}
    return findings + [
        Finding(note.extension, "", "not started", problems=(note.message,))
        for note in notes
        if note.extension not in known
    ]


def _finding(
    extension: HostedExtension,
    host: ExtensionHost,
    notes: Sequence[ExtensionNotify],
    grace: float,
) -> Finding:
    registered = extension.registered
    hello = extension.hello
    return Finding(
        name=extension.name,
        directory=str(extension.installed.directory),
        state=extension.state,
        version=hello.version if hello is not None else extension.installed.manifest.version,
        hello_ms=_milliseconds(extension.hello_seconds),
        ready_ms=_milliseconds(extension.ready_seconds),
        said_ready=extension.said_ready,
        capabilities=hello.capabilities if hello is not None else (),
        commands=tuple(registered.commands),
        tools=tuple(registered.tools),
        events=tuple(sorted(registered.events)),
        intercepts=tuple(sorted(registered.intercepts)),
        fail_closed=extension.fails_closed,
        problems=tuple(
            note.message
            for note in notes
            if note.extension == extension.name and note.level == "warn"
        ),
        hints=(*_slow(extension, grace), *_hints(extension, host)),
        said=_said(extension.log.path),
        log=str(extension.log.path),
    )


def _said(path: Path) -> tuple[str, ...]:
    with contextlib.suppress(OSError), path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_READ))
        lines = log.read().decode("utf-8", "replace").splitlines()
        starts = [at for at, line in enumerate(lines) if compiled(_START).match(line)]
        since = lines[starts[-1] + 1 :] if starts else lines
        report = f"(log: {path})"  # already among the problems
        since = [line for line in since if not (line.startswith("[zot]") and line.endswith(report))]
        return tuple(since[-LOG_LINES:])
    return ()


def _slow(extension: HostedExtension, grace: float) -> Iterator[str]:
    seconds = extension.ready_seconds
    if seconds is not None and seconds > grace:
        yield (
            f"needs {seconds:.1f} s to start; the first prompt waits {grace:g} s and goes on "
            "without its tools and commands (ZOT_EXT_GRACE=SECONDS gives all of them longer)"
        )


def _hints(extension: HostedExtension, host: ExtensionHost) -> list[str]:
    """Return hints about things that work, but maybe not as the author expects."""
    registered, hello = extension.registered, extension.hello
    owned = {tool.name for tool in host.tools(host.guests()[0]) if tool.extension == extension.name}
    hints = []
    if "Permission denied" in extension.reason:
        hints.append(f"make it executable: chmod +x {extension.installed.manifest.exec}")
    if hello is not None and hello.name != extension.name:
        hints.append(f"says hello as {hello.name!r}, its manifest says {extension.name!r}")
    if extension.live and not extension.said_ready:
        hints.append("never says ready; zot waits for 250 ms of silence instead")
    for name in registered.tools:
        if name in host.settings.reserved_tools:
            hints.append(f"tool {name!r} is never used: zot has one of that name")
        elif name not in owned:
            hints.append(f"tool {name!r} is never used: another extension has one of that name")
    for name in sorted(registered.events - set(proto.EVENTS)):
        hints.append(f"subscribes to {name!r}, which is never sent")
    for name in sorted(registered.intercepts - set(proto.INTERCEPTS)):
        hints.append(f"intercepts {name!r}, which is never asked")
    for name, count in extension.unknown.items():
        hints.append(f"sent {count} frame(s) of the unknown type {name!r}")
    return hints


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
