"""Copies text: by a program of the desktop where there is one, and by the terminal itself (OSC 52),
which also works over ssh. Nobody can say whether the terminal did it.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Mapping

MAX_OSC = 100_000
"""Bytes; many terminals drop longer ones."""
PROGRAMS = (
    ("pbcopy",),
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
    ("xsel", "--clipboard", "--input"),
)
SECONDS = 3.0


def native_copy(text: str, environ: Mapping[str, str]) -> str:
    """The program that took the text; empty: there is none here."""
    if "SSH_CONNECTION" in environ:
        return ""  # it would be the clipboard of the other machine
    for words in PROGRAMS:
        if shutil.which(words[0]) is None or not _fits(words[0], environ):
            continue
        try:
            subprocess.run(
                words,
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
                check=True,
                env=dict(environ),
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return words[0]
    return ""


def _fits(program: str, environ: Mapping[str, str]) -> bool:
    if program == "wl-copy":
        return "WAYLAND_DISPLAY" in environ
    return program == "pbcopy" or "DISPLAY" in environ


def terminal_copy(text: str, environ: Mapping[str, str]) -> str:
    """What to write to the terminal; empty: the text is too long for it."""
    data = base64.b64encode(text.encode())
    if len(data) > MAX_OSC:
        return ""
    sequence = f"\x1b]52;c;{data.decode()}\x07"
    if "TMUX" in environ:
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return sequence
