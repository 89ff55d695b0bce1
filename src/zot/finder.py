"""Finds zot's own modules where they are, without asking every finder about every folder: of a
hundred small modules, that is a good part of the time to load them. For the `zot` command only.

What it finds is what Python would find; where anything is not as usual, Python's own way is taken.
"""

import marshal
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
from posix import O_CLOEXEC, O_RDONLY, close, open, read, stat, stat_result
from types import CodeType

TYPE_CHECKING = False  # typing is not loaded yet
if TYPE_CHECKING:
    from collections.abc import Sequence

CACHED = f".{sys.implementation.cache_tag}.pyc"
PIECE = 64 * 1024
"""Bytes; few cached modules have as many."""
CHECKED_BY_TIME = MAGIC_NUMBER + bytes(4)
"""How a cached module begins that is good while its source has the time and size it names."""


def install() -> None:
    """From now on, where the cached modules are beside their sources."""
    if sys.implementation.cache_tag and not sys.pycache_prefix:
        sys.meta_path.insert(0, ZotFinder())


class ZotFinder:
    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: object = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith("zot."):
            return None
        folder, last = path[0], name.rpartition(".")[2]
        base, below = f"{folder}/{last}", None
        path_of_source, cached = f"{base}.py", f"{folder}/__pycache__/{last}{CACHED}"
        source = _facts(path_of_source)
        if source is None:
            below = [base]
            path_of_source, cached = f"{base}/__init__.py", f"{base}/__pycache__/__init__{CACHED}"
            source = _facts(path_of_source)
            if source is None:
                return None
        loader = CachedLoader(name, path_of_source, cached, source)
        spec = ModuleSpec(name, loader, origin=path_of_source)
        spec.has_location = True
        spec.cached = cached
        spec.submodule_search_locations = below
        return spec


class CachedLoader(SourceFileLoader):  # type: ignore[misc, unused-ignore]
    """Takes the cached module if it is that of the source; else all is done as ever."""

    def __init__(self, name: str, path: str, cached: str, source: stat_result) -> None:
        super().__init__(name, path)
        self._cached = cached
        self._source = source

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            data = _content(self._cached)
        except OSError:
            return super().get_code(fullname)
        facts = (int(self._source.st_mtime), self._source.st_size)
        expected = b"".join((fact & 0xFFFFFFFF).to_bytes(4, "little") for fact in facts)
        if data[:16] != CHECKED_BY_TIME + expected:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(data)[16:])
        return code


def _facts(path: str) -> stat_result | None:
    try:
        return stat(path)
    except OSError:
        return None


def _content(path: str) -> bytes:
    fd = open(path, O_RDONLY | O_CLOEXEC)
    try:
        data = read(fd, PIECE)
        while len(data) % PIECE == 0 and (more := read(fd, PIECE)):
            data += more
        return data
    finally:
        close(fd)
