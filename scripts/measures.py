"""Count what a reader of src feels: how much there is, and how far a prompt travels through it.

    python scripts/measures.py [--where]

`tests/test_measures.py` holds each number below a ceiling.
"""

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import prompt_path

SRC = Path(__file__).parent.parent / "src" / "zot"

LONG_FUNCTION = 60
LONG_FILE = 600
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def modules() -> dict[str, ast.Module]:
    """Every module of src by its dotted name, without the `zot.`."""
    trees = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTION))


def files() -> list[str]:
    return [str(path.relative_to(SRC)) for path in sorted(SRC.rglob("*.py"))]


def lines_of(name: str) -> int:
    return len((SRC / name).read_bytes().splitlines())


def long_files() -> list[str]:
    return [f"{name}: {count}" for name in files() if (count := lines_of(name)) > LONG_FILE]


def long_functions(trees: dict[str, ast.Module]) -> list[str]:
    return [
        f"{name}.{function.name}: {length}"
        for name, tree in trees.items()
        for function in functions(tree)
        if (length := (function.end_lineno or 0) - function.lineno + 1) >= LONG_FUNCTION
    ]


def public_names(tree: ast.Module, owner: str) -> list[str]:
    """Return the public methods and properties that this class defines or inherits in its file."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    names: dict[str, None] = {}
    waiting = [owner]
    while waiting:
        node = classes[waiting.pop()]
        waiting += [b.id for b in node.bases if isinstance(b, ast.Name) and b.id in classes]
        names |= {f.name: None for f in node.body if isinstance(f, FUNCTION)}
    return [name for name in names if not name.startswith("_")]


class _Nameless(ast.NodeTransformer):
    """Forgets how things are called, so that only what is done counts."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("name", node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("text") if isinstance(node.value, str) else node


def repeated_functions(trees: dict[str, ast.Module]) -> list[str]:
    """Functions that do the same as another one, whatever their variables are called."""
    candidates: dict[tuple[type, ...], list[tuple[str, list[ast.stmt]]]] = defaultdict(list)
    for name, tree in trees.items():
        for function in functions(tree):
            body = [node for node in function.body if not is_text(node)]
            kinds = tuple(type(inner) for node in body for inner in ast.walk(node))
            if function.name != "__init__" and len(kinds) >= 16:
                candidates[kinds].append((f"{name}.{function.name}", body))
    places: dict[str, list[str]] = defaultdict(list)
    for alike in candidates.values():
        for where, body in alike if len(alike) > 1 else ():
            shape = "".join(ast.dump(_Nameless().visit(deepcopy(node))) for node in body)
            places[shape].append(where)
    return [" ~ ".join(where) for where in places.values() if len(where) > 1]


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def imported_at_start(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of zot that are loaded when this one is."""
    targets: set[str] = set()
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        match waiting.pop():
            case ast.Import(names):
                targets |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                # Of a package one may ask for a module or for a name of its own.
                inside = {f"{module}.{alias.name}" for alias in names}
                modules = {name for name in inside if name.removeprefix("zot.") in known}
                targets |= modules if modules == inside else {module, *modules}
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                continue
            case ast.If(body=body, orelse=rest) | ast.Try(body=body, orelse=rest):
                waiting += [*body, *rest]
    return {target.removeprefix("zot.") for target in targets} & known


def cycles(trees: dict[str, ast.Module]) -> list[str]:
    """Groups of modules that load each other (Tarjan's strongly connected components)."""
    # `zot` itself holds the version and loads the doors lazily.
    known = set(trees) - {""}
    edges = {name: imported_at_start(trees[name], known) - {name} for name in known}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[str] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in edges[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                groups.append(" ~ ".join(sorted(stack[at:])))
            del stack[at:]

    for name in sorted(known):
        if name not in index:
            visit(name)
    return groups


def measures() -> dict[str, list[str]]:
    """Return the places behind each number, by the thing that is counted."""
    trees = modules()
    steps = prompt_path.path_of_a_prompt()
    return {
        "files": files(),
        "files above 600 lines": long_files(),
        "functions of 60 lines or more": long_functions(trees),
        "functions written twice": repeated_functions(trees),
        "import cycles": cycles(trees),
        "public names of Runtime": public_names(trees["runtime.runtime"], "Runtime"),
        "files that a prompt passes": list(dict.fromkeys(step.file for step in steps)),
        "functions that a prompt passes": [":".join(step) for step in dict.fromkeys(steps)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--where", action="store_true", help="list the places, too")
    where = parser.parse_args().where
    out = sys.stdout
    out.write(f"{sum(map(lines_of, files())):>7}  lines\n")
    for name, places in measures().items():
        out.write(f"{len(places):>7}  {name}\n")
        out.writelines(f"         {place}\n" for place in places if where)


if __name__ == "__main__":
    main()
