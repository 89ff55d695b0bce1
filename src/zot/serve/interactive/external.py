"""The text in the person's own editor: $VISUAL, $EDITOR, else vi."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from zot.errors import ZotError
from zot.text import whole_characters


def edit_text(text: str, environ: Mapping[str, str]) -> str | None:
    """The text as it was left there; None when the editor failed, or was left with an error.

    Raises:
        ZotError: the editor cannot be started.
    """
    command = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="zot-") as folder:
        path = Path(folder) / "prompt.md"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(whole_characters(text))
        try:
            done = subprocess.run([*shlex.split(command), str(path)], env=environ, check=False)
        except (OSError, ValueError) as error:
            raise ZotError(f"the editor {command!r} cannot be started: {error}") from error
        if done.returncode != 0:
            return None
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
