"""Shows the progress of a download: one redrawn line, or an occasional line in a log."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from zot.text import size_text

WIDTH = 28
REDRAW_SECONDS, LINE_SECONDS = 0.1, 3.0


class Bar:
    def __init__(self, title: str, out: TextIO) -> None:
        self.title = title
        self._out = out
        self._redraws = out.isatty()
        self._began = time.monotonic()
        self._first: int | None = None
        self._shown = 0.0
        self._line = False

    def __call__(self, have: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = have
        pause = REDRAW_SECONDS if self._redraws else LINE_SECONDS
        if now - self._shown < pause and have < total:
            return
        self._shown = now
        text = self._text(have, total, now - self._began)
        if self._redraws:
            room = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be redrawn
            if len(text) > room:
                text = f"{self.title} {text.partition('] ')[2].strip()}"[:room]
            self._out.write(f"\r\x1b[K{text}")
            self._line = True
        else:
            self._out.write(f"{text}\n")
        self._out.flush()

    def close(self) -> None:
        if self._line:
            self._out.write("\n")
            self._out.flush()
            self._line = False

    def _text(self, have: int, total: int, seconds: float) -> str:
        part = have / total if total else 1.0
        filled = int(part * WIDTH)
        bar = "#" * filled + "." * (WIDTH - filled)
        text = f"{self.title} [{bar}] {part:4.0%}  {size_text(have)} of {size_text(total)}"
        new = have - (self._first or 0)
        if seconds < 1 or new <= 0:
            return text
        speed = new / seconds
        return f"{text}  {size_text(int(speed))}/s  {(total - have) / speed:.0f} s left"
