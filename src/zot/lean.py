"""Loads msgspec in two thirds of its time, for the `zot` command.

msgspec loads modules for types that zot never gives it, and for schemas that hardly anyone asks
for. While it loads they are replaced; afterwards everyone who imports them gets the real ones.
"""

import sys
from types import ModuleType
from typing import Any


def load_msgspec() -> None:
    """Load it so; as it is where it turns out to want more of these modules."""
    if "msgspec" in sys.modules:
        return
    replaced = {name: it for name, it in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(replaced)  # type: ignore[arg-type]  # None makes an import fail
    try:
        import msgspec
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "msgspec"]:
            if name not in replaced:
                del sys.modules[name]
    finally:
        for name in replaced:
            del sys.modules[name]
    import msgspec  # noqa: F401  as it is, where the above failed


class LaterModule(ModuleType):
    """Loads the real one when something of it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib import import_module  # hardly ever needed

        return getattr(import_module(self.__name__), name)


def _stand_ins() -> dict[str, ModuleType | None]:
    stand_ins: dict[str, ModuleType | None] = {
        "typing_extensions": None,  # not needed from Python 3.11 on
        "uuid": _module("uuid", UUID=_type("UUID"), SafeUUID=_type("SafeUUID", unknown=None)),
        "decimal": _module("decimal", Decimal=_type("Decimal")),
        "textwrap": LaterModule("textwrap"),
        "msgspec.inspect": LaterModule("msgspec.inspect"),
    }
    if sys.version_info < (3, 12):
        # Python's own version of it is read and thrown away again before this one is used.
        import _datetime  # type: ignore[import-not-found]

        stand_ins["datetime"] = _datetime
    return stand_ins


def _module(name: str, **names: type) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(names)
    return module


def _type(name: str, **names: Any) -> type:
    """A type without values: none of zot's data has any of the real one."""
    return type(name, (), names)
