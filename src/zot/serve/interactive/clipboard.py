"""Clipboard access. Copies text with a desktop program if there is one, and with the terminal (OSC
52), which works over ssh but does not confirm. Pastes images and text only with such a program.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence

from msgspec import Struct

from zot.tui.terminal import through_tmux

MAX_OSC = 100_000
"""Maximum bytes; many terminals drop longer sequences."""
PROGRAMS = (
    ("pbcopy",),
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
    ("xsel", "--clipboard", "--input"),
)
IMAGE_PROGRAMS = (
    ("pngpaste", "-"),
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
)
TEXT_PROGRAMS = (
    ("pbpaste",),
    ("wl-paste", "--no-newline", "--type", "text"),
    ("xclip", "-selection", "clipboard", "-o"),
    ("xsel", "--clipboard", "--output"),
)
SECONDS = 3.0
MAX_READ = 32_000_000
"""Maximum bytes read from the clipboard."""


class Clipped(Struct, frozen=True):
    """The clipboard's content, or why there is none."""

    image: bytes = b""
    text: str = ""
    problem: str = ""


def native_paste(environ: Mapping[str, str]) -> Clipped:
    """Return the desktop clipboard's content: an image if it has one, else text."""
    if "SSH_CONNECTION" in environ:
        return Clipped(
            problem="over ssh zot cannot read the clipboard of your own machine: paste with the "
            "terminal's key, or name a file that is here"
        )
    programs = [words for words in (*IMAGE_PROGRAMS, *TEXT_PROGRAMS) if _usable(words, environ)]
    if not programs:
        return Clipped(problem="no program here reads the clipboard: wl-paste, xclip or pngpaste")
    for words in programs:
        if data := _output(words, environ):
            if words in IMAGE_PROGRAMS:
                return Clipped(image=data)
            return Clipped(text=data.decode("utf-8", "replace"))
    return Clipped(problem="the clipboard has neither an image nor text")


def _output(words: Sequence[str], environ: Mapping[str, str]) -> bytes:
    """Return the program's output, or b"" if it fails or exceeds the timeout."""
    try:
        program = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
        )
    except OSError:
        return b""
    timer = threading.Timer(SECONDS, program.kill)
    timer.start()
    with program:
        assert program.stdout is not None
        data = program.stdout.read(MAX_READ)
        program.stdout.close()  # a program that writes more gets SIGPIPE
    timer.cancel()
    return data if program.returncode == 0 else b""


def native_copy(text: str, environ: Mapping[str, str]) -> str:
    """Copy with a desktop program and return its name; empty: there is none."""
    if "SSH_CONNECTION" in environ:
        return ""  # it would be the clipboard of the other machine
    for words in PROGRAMS:
        if not _usable(words, environ):
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


def _usable(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether the program and the desktop it needs are available."""
    if shutil.which(words[0], path=environ.get("PATH")) is None:
        return False
    match words[0]:
        case "wl-copy" | "wl-paste":
            return "WAYLAND_DISPLAY" in environ
        case "xclip" | "xsel":
            return "DISPLAY" in environ
        case _:
            return True


def terminal_copy(text: str, environ: Mapping[str, str]) -> str:
    """Return the OSC 52 sequence that copies the text; empty: the text is too long."""
    data = base64.b64encode(text.encode())
    if len(data) > MAX_OSC:
        return ""
    sequence = f"\x1b]52;c;{data.decode()}\x07"
    if "TMUX" in environ:
        return through_tmux(sequence)
    return sequence
