"""zot's own modules are found as Python would find them."""

import subprocess
import sys
from pathlib import Path

from support.environment import uncovered

from zot import finder

# Loads every small module twice: by Python's own way, then by ours; what they know must be equal.
SAME = """
import importlib, sys
import zot
names = ["zot.errors", "zot.core", "zot.core.agent", "zot.wire.zot", "zot.provider.data"]
def facts():
    for name in [name for name in sys.modules if name.startswith("zot.") and name != "zot.finder"]:
        del sys.modules[name]
    for name in names:
        module = importlib.import_module(name)
        spec = module.__spec__
        yield name, module.__file__, getattr(module, "__cached__", None), list(
            getattr(module, "__path__", ())
        ), spec.origin, spec.has_location, module.__package__, spec.name
plain = list(facts())
from zot import finder
finder.install()
ours = list(facts())
assert plain == ours, (plain, ours)
kinds = {name: type(sys.modules[name].__loader__).__name__ for name in names}
assert kinds["zot.core.agent"] == kinds["zot.core"] == "CachedLoader", kinds
import inspect, zot.errors
assert "class ZotError" in inspect.getsource(zot.errors.ZotError)
try:
    import zot.nowhere
except ModuleNotFoundError as error:
    assert error.name == "zot.nowhere"
"""
# A module whose source changed after it was cached, and one that was never cached.
CHANGED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import zot
assert zot.__file__.startswith(sys.argv[1])
from zot import finder
finder.install()
import zot.part
print(zot.part.WORD, type(zot.part.__loader__).__name__)
"""


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=uncovered(),
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.strip()


def test_it_finds_what_python_finds():
    run(SAME)


def test_a_changed_source_is_read_anew(tmp_path):
    package = tmp_path / "zot"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "finder.py").write_text(Path(finder.__file__).read_text())
    for word in ("first", "second and longer"):
        (package / "part.py").write_text(f"WORD = {word!r}\n")
        for _ in range(2):
            assert run(CHANGED, tmp_path) == f"{word} CachedLoader"
