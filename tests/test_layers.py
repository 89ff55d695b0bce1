"""Imports point one way. The order is the architecture; a violation fails here."""

import ast
from pathlib import Path

SRC = Path(__file__).parent.parent / "src" / "zot"

# Each layer may import itself and those before it in its row of `ALLOWED`.
ALLOWED = {
    "zot": set(),
    "zot.errors": set(),
    "zot.bugs": {"zot.errors"},
    "zot.cancel": {"zot.errors"},
    "zot.files": {"zot.errors"},
    "zot.provider": {"zot.errors", "zot.cancel", "zot.files", "zot"},
    "zot.core": {"zot.bugs", "zot.errors", "zot.cancel", "zot.provider"},
    "zot.observe": set(),
    # An extension is one small program: its door must not load the agent.
    "zot.ext": {"zot", "zot.agent.wire.ndjson", "zot.agent.extensions.proto"},
}
# Inside `agent`, these rooms do not know each other.
APART = ("zot.agent.tools", "zot.agent.wire", "zot.agent.skills", "zot.agent.extensions")
# The doors stand above the agent: it must not know them (the command line loads by name).
DOORS = ("zot.sdk", "zot.client", "zot.testing", "zot.conformance", "zot.ext")


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "zot"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "zot":
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def inside(name: str, layer: str) -> bool:
    return name == layer or name.startswith(layer + ".")


def layer_of(name: str, layers: list[str]) -> str | None:
    return next(
        (layer for layer in sorted(layers, key=len, reverse=True) if inside(name, layer)), None
    )


def violations() -> list[str]:
    modules = {module_name(path): path for path in sorted(SRC.rglob("*.py"))}
    wrong = []
    for name, path in modules.items():
        layer = layer_of(name, [layer for layer in ALLOWED if layer != "zot"])
        if layer is None and name == "zot":
            continue  # its doors load lazily
        for target in imports(path):
            if layer is not None and not any(
                inside(target, ok)
                if ok != "zot"
                else target.count(".") == 1 and target not in modules
                for ok in {layer, *ALLOWED[layer]}
            ):
                wrong.append(f"{name} imports {target}")
            if layer is None and name.startswith("zot.agent"):
                wrong += apart(name, target)
                if layer_of(target, list(DOORS)) is not None:
                    wrong.append(f"{name} imports {target}: the doors are above the agent")
    return wrong


def apart(name: str, target: str) -> list[str]:
    wrong = []
    room = layer_of(name, list(APART))
    other = layer_of(target, list(APART))
    if room and other and room != other and not target.startswith("zot.agent.wire.ndjson"):
        wrong.append(f"{name} imports {target}: {room} and {other} stay apart")
    return wrong


def test_imports_point_one_way() -> None:
    assert violations() == []
