"""Files that the model must not see: the setting `deny_read`, and `.zotignore` of the project."""

from __future__ import annotations

import os
from collections.abc import Sequence

from zot.errors import ConfigError
from zot.files import read_own

FILE = ".zotignore"
MAX_BYTES = 64 * 1024


def hidden_patterns(cwd: str, deny_read: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of both. A line of the file is a pattern, empty, or a comment with `#`.

    Raises:
        ConfigError: the file cannot be read, is too long, or takes a pattern back with `!`.
    """
    path = os.path.join(cwd, FILE)
    if not os.path.lexists(path):
        return tuple(deny_read)
    try:
        data = read_own(path, cwd, MAX_BYTES)
        lines = [line.strip() for line in data.decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path!r} cannot be read: {error}; repair or remove it") from error
    patterns = [line for line in lines if line and not line.startswith("#")]
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path!r} is longer than {MAX_BYTES} bytes; shorten it")
    if any(line.startswith("!") for line in patterns):
        raise ConfigError(f"{path!r} has a line with `!`, which would show files again; remove it")
    own = (f".{line}" if line.startswith("/") else line for line in patterns)
    return (*deny_read, *own)
