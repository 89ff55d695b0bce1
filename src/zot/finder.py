"""Finds zot's own modules where they are, without asking every finder about every folder: of a
hundred small modules, that is a good part of the time to load them. For the `zot` command only.

What it finds is what Python would find; where anything is not as usual, Python's own way is taken.
"""

import marshal
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import (  # type: ignore[import-not-found, unused-ignore]
    MAGIC_NUMBER,
    SourceFileLoader,
)
from posix import stat
from types import CodeType

TYPE_CHECKING = False  # typing is loaded by lean.py
if TYPE_CHECKING:
    from collections.abc import Sequence

CACHED = f".{sys.implementation.cache_tag}.pyc"
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
        base, cached, below = f"{folder}/{last}", f"{folder}/__pycache__/{last}{CACHED}", None
        if not _exists(f"{base}.py"):
            cached, below = f"{base}/__pycache__/__init__{CACHED}", [base]
            base = f"{base}/__init__"
            if not _exists(f"{base}.py"):
                return None
        spec = ModuleSpec(name, CachedLoader(name, f"{base}.py", cached), origin=f"{base}.py")
        spec.has_location = True
        spec.cached = cached
        spec.submodule_search_locations = below
        return spec


class CachedLoader(SourceFileLoader):  # type: ignore[misc, unused-ignore]
    """Takes the cached module if it is that of the source; else all is done as ever."""

    def __init__(self, name: str, path: str, cached: str) -> None:
        super().__init__(name, path)
        self._cached = cached

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            source = stat(self.path)
            with open(self._cached, "rb", 0) as file:
                data = file.read()
        except OSError:
            return super().get_code(fullname)
        facts = (int(source.st_mtime), source.st_size)
        expected = b"".join((fact & 0xFFFFFFFF).to_bytes(4, "little") for fact in facts)
        if data[:16] != CHECKED_BY_TIME + expected:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(data)[16:])
        return code


def _exists(path: str) -> bool:
    try:
        stat(path)
    except OSError:
        return False
    return True
