"""pi's `export_html`: the session as one HTML page, even if it has no file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from zot.core.session import Session
from zot.errors import CommandError
from zot.files import write_atomic
from zot.sessions.export import export
from zot.sessions.export_html import to_html
from zot.sessions.files import Loaded
from zot.sessions.library import describe
from zot.sessions.open import path_of
from zot.sessions.rows import Meta, rfc3339


def export_file(path: str, words: Sequence[str]) -> str:
    """Export a session file as HTML, to the working directory or the first word; return the path.
    Raises ZotError: it cannot be read or written."""
    return export(path, words[0] if words else ".", "html")


def export_html(session: Session, target: str | None, cwd: Path) -> str:
    """Write the page; return its path. Raises CommandError: the session is empty, or the file
    cannot be written."""
    if session.message_count() == 0:
        raise CommandError("there is nothing to export: nothing was said yet")
    path = path_of(session)
    stem = Path(path).stem if path else f"session_{session.id}"
    out = Path(target).expanduser() if target else Path(f"zot-{stem}.html")
    out = cwd / out
    meta = Meta(session.id, str(cwd), started=rfc3339(time.time()))
    loaded = Loaded(meta, session.entries, ())
    try:
        write_atomic(out, to_html(loaded, describe(path or str(out), loaded)).encode())
    except OSError as error:
        raise CommandError(f"cannot write {str(out)!r}: {error.strerror or error}") from error
    return str(out)
