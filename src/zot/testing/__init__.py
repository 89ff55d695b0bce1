"""Public API for authors of plug-ins: scripted answers, a model server that misbehaves on demand,
and checks of a model client or of a whole server. The agent loads none of it; names load on first
use (PEP 562).
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers assume True; avoids importing typing
if TYPE_CHECKING:
    from zot.conformance.cli import check_wire as check_wire
    from zot.provider.scripted import ScriptedProvider as ScriptedProvider
    from zot.provider.scripted import ScriptedTurn as ScriptedTurn
    from zot.testing.fakeserver import FakeServer as FakeServer
    from zot.testing.harness import Harness as Harness
    from zot.testing.provider_suite import run_suite as run_suite
    from zot.testing.provider_suite import stream_problems as stream_problems

_HOMES = {
    "ScriptedProvider": "zot.provider.scripted",
    "ScriptedTurn": "zot.provider.scripted",
    "FakeServer": "zot.testing.fakeserver",
    "Harness": "zot.testing.harness",
    "check_wire": "zot.conformance.cli",
    "run_suite": "zot.testing.provider_suite",
    "stream_problems": "zot.testing.provider_suite",
}
__all__ = [
    "FakeServer",
    "Harness",
    "ScriptedProvider",
    "ScriptedTurn",
    "check_wire",
    "run_suite",
    "stream_problems",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'zot.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
