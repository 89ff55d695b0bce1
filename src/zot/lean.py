"""Loads msgspec in half of its time, and httptools in two thirds, for the `zot` command.

msgspec and typing load modules for types that zot never gives them, and for schemas that hardly
anyone asks for. While they load, those are replaced; afterwards everyone who imports them gets the
real ones. httptools has a parser of URLs, which zot does not use: who does loads it then.
"""

import _operator
import sys
from types import ModuleType

Any = object  # typing is loaded below
TRIED = ((3, 11), (3, 12), (3, 13))
"""Versions of Python with which this was tried: nobody promises what typing and msgspec want of the
modules below."""

SCHEMA = "msgspec._json_schema"
SELDOM = ("inspect", "msgpack", "toml", "yaml")
"""Modules of msgspec's that come with it, and that nobody has to load before they are used."""


def lighten() -> None:
    """Load msgspec so now, and let httptools be loaded so when it is wanted."""
    load_msgspec()
    for module, it in _not_of_http().items():
        sys.modules.setdefault(module, it)


def load_msgspec() -> None:
    """Load it so. A module of which it wants more than we know of is loaded after all."""
    if "msgspec" in sys.modules or sys.version_info[:2] not in TRIED:
        return  # loaded by whoever wants it first, as usual
    replaced = {name: it for name, it in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(replaced)  # type: ignore[arg-type]  # None makes an import fail
    try:
        _load_quickly()
    finally:
        for name, stand_in in replaced.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


def _load_quickly() -> None:
    import typing

    if isinstance(sys.modules.get("contextlib"), LaterModule):
        _make_later(typing)
    forward_ref = typing.ForwardRef
    # msgspec makes one to see that it can. The first text that is compiled costs milliseconds.
    typing.ForwardRef = lambda *_, **__: None  # type: ignore[misc, assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        typing.ForwardRef = forward_ref  # type: ignore[misc]


def _make_later(typing: ModuleType) -> None:
    """Have its names for contextlib's types made when they are asked for, as newer Pythons do."""

    def made(name: str) -> Any:
        if name not in _MANAGERS:
            raise AttributeError(f"module 'typing' has no attribute {name!r}")
        alias = typing._alias(getattr(_real("contextlib"), f"Abstract{name}"), 1, name=name)
        setattr(typing, name, alias)
        return alias

    for name in _MANAGERS:
        delattr(typing, name)
    typing.__getattr__ = made  # type: ignore[method-assign]


_MANAGERS = ("ContextManager", "AsyncContextManager")


class LaterModule(ModuleType):
    """Loads the real one when something of it is first asked for that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # While msgspec loads, it wants more than we know of: from here on, all are the real ones.
        for other in [key for key, it in sys.modules.items() if isinstance(it, LaterModule)]:
            del sys.modules[other]
        return getattr(_real(self.__name__), name)


def _stand_ins() -> dict[str, ModuleType | None]:
    safe = _type("SafeUUID", unknown=None)
    stand_ins: dict[str, ModuleType | None] = {
        "typing_extensions": None,  # not needed from Python 3.11 on
        "re": _module("re", **_pattern_types(), compile=_function("re", "compile")),
        "enum": _module("enum", EnumMeta=_type("EnumMeta")),
        "uuid": _module("uuid", UUID=_type("UUID"), SafeUUID=safe),
        "decimal": _module("decimal", Decimal=_type("Decimal")),
        "operator": _operator,  # nearly all of it is written in C; the rest is for other Pythons
        "textwrap": _module("textwrap"),
        "warnings": _module("warnings"),
        SCHEMA: _module(
            SCHEMA, **{name: _function(SCHEMA, name) for name in ("schema", "schema_components")}
        ),
        **{name: _module(name) for name in map("msgspec.{}".format, SELDOM)},
    }
    if sys.version_info < (3, 13):
        managers = {f"Abstract{name}": _type(name) for name in _MANAGERS}
        stand_ins["contextlib"] = _module("contextlib", **managers)
    if sys.version_info < (3, 12):
        # Python's own version of it is read and thrown away again before this one is used.
        import _datetime  # type: ignore[import-not-found]

        stand_ins["datetime"] = _datetime
    return stand_ins


def _not_of_http() -> dict[str, ModuleType]:
    urls, protocol = "httptools.parser.url_parser", "httptools.parser.protocol"
    return {
        urls: _module(urls, parse_url=_function(urls, "parse_url")),
        protocol: _module(protocol, HTTPProtocol=_type("HTTPProtocol")),
    }


def _pattern_types() -> dict[str, type]:
    """The real types, which typing has other names for; from an expression that matches nothing."""
    import _sre  # type: ignore[import-not-found]  # what `re` stands on

    pattern = _sre.compile("", 0, [_SUCCESS], 0, {}, (None,))
    return {"Pattern": type(pattern), "Match": type(pattern.match(""))}


def _real(module: str) -> ModuleType:
    from importlib import import_module  # hardly ever needed

    if isinstance(sys.modules.get(module), LaterModule):
        del sys.modules[module]
    return import_module(module)


def _function(module: str, name: str) -> Any:
    """A function of the real module, by the time that it is called."""

    def call(*args: Any, **words: Any) -> Any:
        return getattr(_real(module), name)(*args, **words)

    return call


_SUCCESS = 1
"""The one step of that expression."""


def _module(name: str, **names: Any) -> ModuleType:
    module = LaterModule(name)
    vars(module).update(names)
    return module


def _type(name: str, **names: Any) -> type:
    """A type without values: none of zot's data has any of the real one."""
    return type(name, (), names)
