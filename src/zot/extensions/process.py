"""One process of an extension: its environment, its limits, and its frames, whose meaning is not
known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from zot.children.lineprocess import LineLimits, LineProcess
from zot.children.logfile import LogFile
from zot.children.process import ChildProcess
from zot.extensions import proto
from zot.home import RPC_TOKEN, own_environ
from zot.lines import LineTooLong

SDK = Path(__file__).parent / "sdk"
"""Holds only `zot_ext.py`, so that `import zot_ext` works in any Python."""
TakeFrame = Callable[[proto.FromExtension | proto.Unknown | LineTooLong], None]


class ExtensionLimits(LineLimits):
    """Limits that keep one extension from harming zot or another extension: times in seconds, sizes
    in bytes. The defaults are documented."""

    grace: float = 3.0
    """From the start of the process to `ready`; then zot continues without it."""
    late: float = 60.0
    """Deadline for a `hello` that comes after the grace."""
    quiet: float = 0.25
    """Silence after `hello` that counts as `ready`, for extensions that never send it."""
    guard: float = 30.0
    """Time that a guarded action waits for its guard to start; then it is blocked."""
    undecided: float = 10.0
    """Time after the start during which actions that a guard could block wait for an extension that
    has not said yet what it guards."""
    intercept: float = 5.0
    command: float = 60.0
    shutdown: float = 2.0
    notes_dropped: int = 10_000
    """Maximum number of notifications over the rate; one more stops the extension."""
    draws_per_second: float = 60
    restarts: int = 3
    restart_delays: tuple[float, ...] = (0.5, 2.0, 8.0)


def environment(
    base: Mapping[str, str], secrets: Collection[str], wanted: Collection[str] = ()
) -> dict[str, str]:
    """Return the variables of an extension: those of the user without `secrets`, and without others
    of equal value.

    `wanted` are names that the manifest requests; they are passed on, except the RPC token.
    """
    withheld = {*secrets, RPC_TOKEN}
    # A short value ("1", "on") is no secret, and would remove unrelated variables.
    values = {base[name] for name in withheld if len(base.get(name, "")) >= 8}
    environ = {
        name: value for name, value in base.items() if name not in withheld and value not in values
    }
    environ |= {
        name: base[name] for name in wanted if name in base and base[name] != base.get(RPC_TOKEN)
    }
    environ = own_environ(environ)
    path = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = f"{path}{os.pathsep}{SDK}" if path else str(SDK)
    return environ


class ExtensionProcess(LineProcess):
    """One process of an extension, from start to end."""

    def __init__(
        self,
        name: str,
        process: ChildProcess,
        log: LogFile,
        limits: ExtensionLimits,
        *,
        on_frame: TakeFrame,
        on_end: Callable[[str], None],
    ) -> None:
        """`on_frame` and `on_end` are called by the reading thread; `on_end` once, at the end."""

        def take(line: bytes | LineTooLong) -> bool:
            if isinstance(line, LineTooLong):
                on_frame(line)
                return False
            try:
                frame = proto.decode(line)
            except proto.BadFrame as error:
                log.note(f"a line was dropped: {error}: {line[:200]!r}")
                return False
            on_frame(frame)
            return True

        super().__init__(f"ext-{name}", process, log, limits, on_line=take, on_end=on_end)

    def send(self, frame: proto.ToExtension) -> bool:
        """Send a frame; False if the extension no longer reads."""
        return self.send_line(proto.encode(frame))

    def shut_down(self) -> None:
        """Send `shutdown`, then close its stdin. Nothing can be sent afterwards."""
        self.ask_to_stop(proto.encode(proto.Shutdown()))
