"""Attachments: files dropped on the terminal, images from a file or the clipboard. An image appears
in the text as a chip, `[image 1: 640x480]`, and is sent with every message that has its chip.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from zot.core.image import MAX_IMAGE, image_type
from zot.errors import CommandError
from zot.provider.types import Image
from zot.serve.interactive.clipboard import MAX_READ, Clipped, native_paste
from zot.tui.pictures import image_size

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

MAX_DROPPED = 20_000
"""Maximum characters of a paste that may be file names."""
MAX_FILES = 50
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
