"""Modules that are loaded when they are first used, because the first answer does not need them.

    if TYPE_CHECKING:
        from zot.tools import output, restore
    else:
        output, restore = later("zot.tools", "output", "restore")

Type checkers and readers see an import at the top; a test compares the two.
"""

import sys
from types import ModuleType
from typing import Any


class Later:
    """Stands for a module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            __import__(self._name)  # also waits for a thread that is loading it
            self._module = sys.modules[self._name]
        return getattr(self._module, attribute)


def later(room: str, *names: str) -> list[Later]:
    return [Later(f"{room}.{name}") for name in names]
