"""Links that log a browser in: printed for a person, or passed to the browser in a private file.
Links are never put on a command line, which every process of the machine can read."""

from __future__ import annotations

import html
import os
import secrets
import signal
import sys
import threading
import time
import webbrowser
from pathlib import Path

from zot.files import ensure_dir
from zot.glasspane.guard import LINK_SECONDS, ORDER, Guard

FILE_SECONDS = 60.0
"""Seconds until the file is removed; the browser has read it by then."""
PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}">
<title>Glasspane</title>
<a href="{link}" rel="noreferrer">Open Glasspane</a>
"""


class Links:
    def __init__(self, guard: Guard, address: str, folder: Path) -> None:
        self._guard = guard
        self._address = address
        self._folder = folder
        self._path: Path | None = None

    def print(self) -> None:
        """Print a one-time link for a person to click."""
        minutes = LINK_SECONDS / 60
        how = "Enter prints" if sys.stdin.isatty() else f"kill -USR1 {os.getpid()} prints"
        sys.stdout.write(
            f"{self._new()}\nthis link works once, for {minutes:.0f} min; {how} another\n"
        )
        sys.stdout.flush()

    def print_when_asked(self) -> None:
        """Print another link on Enter in the terminal and on SIGUSR1."""
        signal.signal(signal.SIGUSR1, lambda number, frame: self.print())
        if sys.stdin.isatty():
            # Otherwise a background job that reads the terminal would be stopped.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
            threading.Thread(target=self._read_enter, name="links", daemon=True).start()

    def _read_enter(self) -> None:
        try:
            while os.read(0, 4096):
                self.print()
        except OSError:
            pass  # another program has the terminal

    def open_browser(self) -> None:
        """Open the browser with a file that redirects to the page."""
        ensure_dir(self._folder)
        self._remove_old()
        self._path = self._folder / f"open-{secrets.token_hex(8)}.html"
        link = html.escape(self._new())
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(PAGE.format(link=link))
        webbrowser.open(self._path.as_uri())
        timer = threading.Timer(FILE_SECONDS, self.close)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _new(self) -> str:
        return f"{self._address}/#code={self._guard.new_code(ORDER[-1])}"

    def _remove_old(self) -> None:
        """Remove files of killed servers; their codes are invalid."""
        for path in self._folder.glob("open-*.html"):
            try:
                if time.time() - path.stat().st_mtime > FILE_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                pass
