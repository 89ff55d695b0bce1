"""The system prompt: what is stable first, what changes between directories last, so that prompt
caches keep matching. The date is not in it: a conversation that goes on the next day would begin in
another way (provider/repair.py tells it). Plain string paths: it is made before the first delta.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from zot.core.identity import IDENTITY
from zot.files import StrPath, read_own
from zot.text import whole_characters

CONTEXT_FILE_LIMIT = 64 * 1024
"""Bytes of one AGENTS.md; more than that is cut, and said so."""


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
    """The prompt for a conversation that starts now. `servers`: what MCP servers say."""
    base = replacement if replacement is not None else _own_prompt(home)
    parts = [base, *(text for text in appended if text.strip())]
    if context_files:
        parts += context_blocks(context_paths(cwd, home))
    parts += [skills, servers]
    parts.append(f"Current working directory: {cwd}")
    prompt = "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
    # Paths and arguments may hold bytes that are no characters; no provider takes those.
    return whole_characters(prompt)


def context_paths(cwd: StrPath, home: StrPath) -> list[str]:
    """AGENTS.md of the user, then those from the root down to the working directory."""
    folders = [os.fspath(cwd)]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    paths: list[str] = []
    for folder in (home, *reversed(folders)):
        for name in ("AGENTS.md", "AGENTS.MD"):
            path = os.path.join(folder, name)
            # False also for a folder above the working directory that we may not look into.
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
