"""The system prompt: stable parts first, directory-specific parts last, so that prompt caches keep
matching. The date is left out, because it would change the prompt of a conversation on the next day
(provider/repair.py adds it). Paths are plain strings for speed: this runs before the first delta.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from zot.core.agent import IDENTITY
from zot.files import StrPath, read_own
from zot.text import whole_characters

CONTEXT_FILE_LIMIT = 64 * 1024
"""Maximum bytes of one AGENTS.md; the rest is cut, with a note."""


def system_prompt(
    *,
    cwd: str,
    home: StrPath,
    replacement: str | None = None,
    appended: Sequence[str] = (),
    context_files: bool = True,
    skills: str = "",
    servers: str = "",
) -> str:
    """Return the prompt for a new conversation. `servers`: instructions from MCP servers."""
    base = replacement if replacement is not None else _own_prompt(home)
    parts = [base, *(text for text in appended if text.strip())]
    if context_files:
        parts += context_blocks(context_paths(cwd, home))
    parts += [skills, servers]
    parts.append(f"Current working directory: {cwd}")
    prompt = "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
    # Paths and arguments may hold bytes that are not valid text, which no provider accepts.
    return whole_characters(prompt)


def context_paths(cwd: StrPath, home: StrPath) -> list[str]:
    """Return the user's AGENTS.md, then those from the root down to the working directory."""
    folders = [os.fspath(cwd)]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    paths: list[str] = []
    for folder in (home, *reversed(folders)):
        for name in ("AGENTS.md", "AGENTS.MD"):
            path = os.path.join(folder, name)
            # Also False for a parent folder that we may not read.
            if os.path.exists(path) and not any(os.path.samefile(path, other) for other in paths):
                paths.append(path)
    return paths


def context_blocks(paths: Iterable[str]) -> list[str]:
    blocks = []
    for path in paths:
        try:
            data = read_own(path, os.path.dirname(path), CONTEXT_FILE_LIMIT)
        except OSError as error:
            blocks.append(f"# {path}\n\n[not read: {error.strerror}]")
            continue
        text = data[:CONTEXT_FILE_LIMIT].decode("utf-8", "replace").strip()
        cut = "\n[cut: the file is longer]" if len(data) > CONTEXT_FILE_LIMIT else ""
        if text:
            blocks.append(f"# Instructions from {path}\n\n{text}{cut}")
    return blocks


def _own_prompt(home: StrPath) -> str:
    try:
        data = read_own(os.path.join(home, "SYSTEM.md"), home, CONTEXT_FILE_LIMIT)
    except OSError:
        return IDENTITY
    return data[:CONTEXT_FILE_LIMIT].decode("utf-8", "replace").strip() or IDENTITY
