"""Report of a bug in the terminal."""

from __future__ import annotations

import traceback
from pathlib import Path

from zot.errors import ZotError
from zot.files import ensure_dir, write_atomic


def crashed(error: Exception, home: str) -> ZotError:
    """Return one line for the person; write the traceback to a file for developers."""
    path = Path(home) / "crash.log"
    try:
        ensure_dir(path.parent)
        write_atomic(path, "".join(traceback.format_exception(error)).encode("utf-8", "replace"))
        where = f"{str(path)!r} says where"
    except OSError as failure:
        where = f"{str(path)!r} cannot be written: {failure.strerror}"
    return ZotError(
        f"internal error: {type(error).__name__}: {error}; {where}. What was said is in the "
        "session (zot -c goes on), what was written comes back at the next start"
    )
