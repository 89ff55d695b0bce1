"""The `glob` tool: find files by a pattern over their paths."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from zot.core.tool import ToolContext
from zot.errors import ToolError
from zot.home import expand_user
from zot.provider.types import Json
from zot.tools import paths
from zot.tools.place import Place, PlacedTool
from zot.tools.process.output import clean
from zot.tools.search import wildcard
from zot.tools.search.walk import Tree

if TYPE_CHECKING:
    from zot.tools.disk import DiskEntry

MAX_MATCHES = 500
SECONDS = 20.0
META = frozenset("*?[{\\")


class _TimeOver(Exception):
    pass


class Glob(PlacedTool):
    def run(self, args: dict[str, Json], context: ToolContext) -> str:
        pattern = args.get("pattern")
        if not isinstance(pattern, str) or not pattern:
            raise ToolError("pattern is required")
        root = self._place.resolve(args.get("path") or ".")
        if not stat.S_ISDIR(self._place.look(root).st_mode):
            raise ToolError(f"{str(root)!r} is not a directory")
        root, rest = split_base(root, expand_user(pattern, self._place.environ))
        search = Search(root, rest, pattern, hidden=bool(args.get("hidden")))
        deadline = time.monotonic() + SECONDS

        def check() -> None:
            context.cancel.check()
            if time.monotonic() > deadline:
                raise _TimeOver

        return search.run(self._place, check)


def split_base(root: Path, pattern: str) -> tuple[Path, str]:
    """Split into the directory to start from and the pattern below it. Leading names without
    wildcards ignore .gitignore, like a path requested by name."""
    if pattern.startswith("/"):
        root = Path("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    names = 0
    while names < len(parts) - 1 and not META.intersection(parts[names]):
        names += 1
    tail = "/".join(parts[names:]) + ("/" if pattern.endswith("/") else "")
    base = Path(os.path.normpath(root.joinpath(*parts[:names]))) if names else root
    return base, f"/{tail}" if names or pattern.startswith(("/", "./")) else tail


class Search:
    def __init__(self, root: Path, rest: str, pattern: str, *, hidden: bool) -> None:
        self.root = root
        self.only_dirs = rest.endswith("/")
        self.patterns = compile_pattern(rest, pattern)
        # A pattern that names a dot file includes hidden files.
        self.hidden = hidden or any(mark in f"/{rest}" for mark in ("/.", "{.", ",."))
        fixed = all(wildcard.DEEP not in segments for segments in self.patterns)
        self.max_depth = max(map(len, self.patterns)) if fixed else None

    def run(self, place: Place, check: Callable[[], None]) -> str:
        matches: list[tuple[int, int, tuple[str, ...]]] = []
        note = ""
        try:
            tree = Tree(str(self.root), str(place.cwd), place.disk)
            for path, entry in tree.walk(hidden=self.hidden, check=check, max_depth=self.max_depth):
                if self._matches(path, entry):
                    matches.append((-_changed(place, entry), len(matches), path))
                    if len(matches) % 1000 == 0:
                        check()
        except OSError as error:
            raise paths.failed(f"cannot search {str(self.root)!r}", error) from error
        except _TimeOver:
            note = f"\n\n(Stopped after {SECONDS:.0f} s; there may be more matches)"
        if not matches:
            return "No files matched the pattern." + note
        if len(matches) > MAX_MATCHES:
            note = f"\n\n(The newest {MAX_MATCHES} of {len(matches)} matches)" + note
        mark = "/" if self.only_dirs else ""
        newest = [path for _, _, path in sorted(matches)[:MAX_MATCHES]]
        return (
            "\n".join(shown(self.root.joinpath(*path), place.cwd) + mark for path in newest) + note
        )

    def _matches(self, path: tuple[str, ...], entry: DiskEntry) -> bool:
        if not any(wildcard.matches(segments, path) for segments in self.patterns):
            return False
        try:
            return entry.is_dir() == self.only_dirs
        except OSError:
            return not self.only_dirs  # a dangling symlink


def compile_pattern(pattern: str, original: str = "") -> list[wildcard.Segments]:
    """Compile a pattern; `original`: its original form. Raises ToolError if it is invalid."""
    try:
        return [_compile(alternative) for alternative in wildcard.braces(pattern)]
    except wildcard.BadPattern as error:
        raise ToolError(f"invalid glob pattern {original or pattern!r}: {error}") from error


def _compile(pattern: str) -> wildcard.Segments:
    """Compile one alternative; without a slash it matches names at any depth."""
    segments = wildcard.compile_segments(pattern)
    if "/" in pattern.rstrip("/") or not segments or segments[0] is wildcard.DEEP:
        return segments
    return (wildcard.DEEP, *segments)


def _changed(place: Place, entry: DiskEntry) -> int:
    """Return the modification time in nanoseconds; 0 for a dangling symlink."""
    try:
        return place.disk.stat(entry.path).st_mtime_ns
    except OSError:
        return 0


def shown(path: Path, cwd: Path) -> str:
    """Return a printable form of the path that, whatever bytes it has, stays on one line."""
    name = os.fsencode(paths.shown(path, cwd)).decode("utf-8", "replace")
    return clean(name).replace("\n", "\ufffd").replace("\r", "\ufffd")
