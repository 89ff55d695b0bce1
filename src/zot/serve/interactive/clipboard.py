"""Pasting and copying: files dropped on the terminal, images from a file, the clipboard.

An image appears in the text as a chip, `[image 1: 640x480]`, and is sent with every message that
has its chip. Text is copied with a desktop program if there is one, and with the terminal (OSC 52),
which works over ssh but does not confirm; pasting needs a desktop program.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import stat
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from zot.core.image import MAX_IMAGE, image_type
from zot.errors import CommandError
from zot.provider.types import Image
from zot.tui.pictures import image_size
from zot.tui.terminal import through_tmux

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

MAX_DROPPED = 20_000
"""Maximum characters of a paste that may be file names."""
MAX_FILES = 50
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
_CHIP = re.compile(r"\[image \d+: [^\]\n]*\]")


def images_in(text: str, images: dict[str, Image]) -> list[Image]:
    """Return the images whose chips are in the text, in order."""
    labels = dict.fromkeys(_CHIP.findall(text))
    return [images[label] for label in labels if label in images]


def paste(app: App, text: str) -> None:
    """Insert pasted text, or the files that were dropped."""
    if not text:  # some terminals paste an empty text for an image
        paste_clipboard(app)
        return
    paths = dropped_paths(text, app.around.user)
    if not paths:
        app.editor.paste(text)
        return
    for path in paths:
        try:
            data = read_image(path)
        except CommandError as error:
            app.note(str(error), "warning")
            data = b""
        if data:
            attach(app, data)
        else:
            app.editor.insert(mention(path, app.cwd))


def paste_clipboard(app: App) -> None:
    """Insert the image of the desktop's clipboard, or else its text."""

    def put(clipped: Clipped) -> None:
        if clipped.image:
            attach(app, clipped.image)
        elif clipped.text:
            paste(app, clipped.text)
        else:
            app.note(clipped.problem, "warning")

    app.work(lambda: native_paste(app.around.environ), put)


def attach(app: App, data: bytes) -> None:
    """Insert an image into the text.

    Raises:
        CommandError: models do not accept it.
    """
    kind = image_type(data[:16])
    if kind is None:
        raise CommandError("this is no PNG, JPEG, GIF or WebP image, and models take no other")
    if len(data) > MAX_IMAGE:
        raise CommandError(too_large("the image", len(data)))
    size = image_size(data)
    what = f"{size[0]}x{size[1]}" if size else kind.removeprefix("image/")
    label = f"[image {len(app.chat.images) + 1}: {what}]"
    app.chat.images[label] = Image(kind, data)
    app.editor.chip(label, label)
    app.editor.insert(" ")
    if app.built is not None and not app.built.models.current.images:
        app.note(f"{app.built.models.current.id} does not see images; /model has others", "warning")


def too_large(what: str, size: int) -> str:
    least = "more than " if size > MAX_READ else ""
    return f"{what} has {least}{size} bytes; models take {MAX_IMAGE}: make it smaller first"


def read_image(path: str) -> bytes:
    """Return the image in a file, or b"" if it has none or cannot be read.

    Raises:
        CommandError: the image is too large.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or image_type(head := file.read(16)) is None:
                return b""
            if info.st_size > MAX_IMAGE:
                raise CommandError(too_large(repr(path), info.st_size))
            return head + file.read(MAX_IMAGE)
    except OSError:
        return b""  # the model gets the error when it reads the file


def mention(path: str, cwd: str) -> str:
    """Return a reference to a file, as completion writes it."""
    if cwd and path.startswith(cwd.rstrip("/") + "/"):
        path = path[len(cwd.rstrip("/")) + 1 :]
    if os.path.isdir(path) and not path.endswith("/"):  # noqa: PTH112  a text, not a Path
        path += "/"
    return f'@"{path}" ' if any(char.isspace() for char in path) else f"@{path} "


def dropped_paths(text: str, home: str) -> list[str]:
    """Return the files that a terminal names when they are dropped on it: bare, quoted, escaped or
    as `file://`, one or several. Empty: the text is something else."""
    text = text.strip()
    if not text or len(text) > MAX_DROPPED:
        return []
    for words in ([text], text.split("\n"), _shell_words(text)):
        paths = [_existing(word.strip(), home) for word in words if word.strip()]
        if paths and all(paths) and len(paths) <= MAX_FILES:
            return paths
    return []


def _shell_words(text: str) -> Sequence[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _existing(word: str, home: str) -> str:
    """Return the absolute path of an existing file, else "". A relative path counts as a word."""
    if word.startswith("file://"):
        address = urlsplit(word)
        if address.netloc not in ("", "localhost", os.uname().nodename):
            return ""
        word = unquote(address.path)
    elif word.startswith("~/"):
        word = home + word[1:]
    if not word.startswith("/") or not word.strip("/") or not word.isprintable():
        return ""
    try:
        return word if os.path.exists(word) else ""  # noqa: PTH110  a text, not a Path
    except ValueError:
        return ""


# --- the clipboard ---------------------------------------------------------------------------


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
