"""A running extension as a source and sink of frames, whose meaning is not known here."""

from __future__ import annotations

from collections.abc import Callable

from zot.children.lineprocess import LineProcess
from zot.children.logfile import LogFile
from zot.children.process import ChildProcess
from zot.extensions import proto
from zot.extensions.limits import ExtensionLimits
from zot.lines import LineTooLong

TakeFrame = Callable[[proto.FromExtension | proto.Unknown | LineTooLong], None]


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
