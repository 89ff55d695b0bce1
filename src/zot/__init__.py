"""zot: a coding-agent runtime that other programs embed.

`from zot import Runtime` is the in-process door; the names below load on first use (PEP 562), so
that `import zot` and `import zot.ext` cost nothing.
"""

__version__ = "0.1.0"

_SDK_NAMES = frozenset({"AsyncRuntime", "BusyError", "ClosedError", "Config", "Runtime", "tool"})


def __getattr__(name: str) -> object:
    if name in _SDK_NAMES:
        from zot import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module 'zot' has no attribute {name!r}")
