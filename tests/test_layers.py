"""Imports point one way. The order is the architecture; a violation fails here."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.untraced
SRC = Path(__file__).parent.parent / "src" / "zot"

SMALL = {"errors", "cancel", "bugs", "files", "home", "ledger", "text", "lines", "writer"}
SMALL |= {"git", "trees", "beneath", "extras", "secret_values", ""}
CORE = SMALL | {"provider", "core"}
PARTS = {"tools", "extensions", "mcp", "skills", "sessions", "local", "hooks", "telemetry"}
ALL = CORE | PARTS | {"settings", "runtime", "build", "wire"}
# What each room may import beside itself. A room that is not named here may not exist.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "extras": set(),
    "cancel": {"errors"},
    "bugs": {"errors", "text"},
    "beneath": set(),
    "files": {"errors", "beneath"},
    "git": {"errors", "text"},
    "home": {"errors", "files"},
    "text": set(),
    "ledger": {"errors", "cancel", "files"},
    "trees": set(),
    "secret_values": {"text"},
    "lines": {"errors", "text"},
    "writer": {"cancel", "lines"},
    "jsonrpc": SMALL,
    "provider": SMALL,
    "core": SMALL | {"provider"},
    "children": SMALL | {"tools.process"},
    **dict.fromkeys(PARTS, CORE),
    "extensions": CORE | {"children"},
    "mcp": CORE | {"children", "jsonrpc"},
    "hooks": CORE | {"children"},
    # The one list of formats: the store and the library know what a format is, not which.
    "formats": {"sessions", "pi"},
    "sessions": CORE | {"formats"},
    "settings": CORE | PARTS,
    "runtime": CORE,
    "build": CORE | PARTS | {"settings", "runtime", "swarm", "build_guards"},
    "build_guards": CORE | PARTS | {"settings", "runtime"},
    "wire": (ALL - {"wire"}) | {"jsonrpc"},
    # Doors and dialects do not know each other.
    "pi": ALL,
    "acp": ALL | {"jsonrpc"},
    "mcpserver": ALL | {"jsonrpc"},
    # It records and replays, for tests of an embedder's own.
    # Its tools read docstrings as those of extensions do.
    "sdk": ALL | {"testing", "ext"},
    # It draws and returns keys: what is drawn it is told.
    "tui": SMALL,
    "serve": ALL | {"tui", "swarm", "observe"},
    # Its door hands out the check of a whole server, its plug-in for pytest runtimes: both load
    # with their first use.
    "testing": ALL | {"ext", "conformance.cli", "sdk"},
    "observe": set(),
    # Agents are processes of their own: the swarm drives them by the wire, like any client.
    "swarm": CORE | {"observe", "rpc_process"},
    "glasspane": SMALL | {"observe", "swarm"},
    "rpc_process": {"errors", "lines"},
    "client": SMALL | {"wire", "provider", "client_commands", "rpc_process", "client_aio"},
    "client_aio": SMALL | {"wire", "client", "client_commands", "rpc_process"},
    "client_commands": SMALL | {"wire", "provider", "client"},
    # An extension is one small program: its door must not load the agent.
    "ext": {"", "testing.harness"},
    "conformance": SMALL | {"wire", "rpc_process", "testing.fakeserver"},
    "cli": ALL
    | {
        "acp",
        "mcpserver",
        "pi",
        "serve",
        "testing",
        "conformance",
        "observe",
        "swarm",
        "glasspane",
    },
    "__main__": {"", "cli"},
}


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path: Path) -> set[str]:
    """The modules of zot that a file imports, without the `zot.`."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("zot.") for name in names if name.startswith("zot.")}


def room_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").parts[0]


def is_allowed(target: str, allowed: set[str]) -> bool:
    room = target.partition(".")[0]
    if not (SRC / room).exists() and not (SRC / f"{room}.py").exists():
        room = ""  # a name of zot/__init__.py
    return room in allowed or any(target.startswith(f"{name}.") for name in allowed if "." in name)


def violations() -> list[str]:
    wrong = []
    for path in sorted(SRC.rglob("*.py")):
        room = room_of(path)
        if room == "__init__":
            continue  # its doors load lazily
        for target in sorted(imports(path)):
            if not is_allowed(target, ALLOWED[room] | {room}):
                wrong.append(f"{path.relative_to(SRC)} imports {target}")
    return wrong


def test_imports_point_one_way() -> None:
    assert violations() == []


def test_the_table_in_architecture_lists_every_room() -> None:
    text = (SRC.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = set(re.findall(r"[a-z_]+", text[: text.index("## The path")]))
    assert {room for room in ALLOWED if room and not room.startswith("__")} - table == set()


def test_architecture_fits_two_screens() -> None:
    text = (SRC.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100


BY_NAME = {
    "cli/main.py": "a subcommand has a module",
    "provider/client.py": "an API has a module of its name",
    "tools/registry.py": "a tool has a module",
    "ext.py": "a door, see below",
    "testing/__init__.py": "a door, see below",
}
"""Files that load a module by its name, and why."""
PUBLIC_LATER = {"__init__.py", "sdk/__init__.py", "ext.py", "testing/__init__.py", "client.py"}
"""Doors whose names are loaded with their first use: `import zot` costs nothing, the SDK and the
client do not need asyncio, an extension not the agent."""


def test_modules_are_loaded_by_plain_imports() -> None:
    """One way to load something late is enough: an import in a function, at the door of a room."""
    wrong = []
    for path in sorted(SRC.rglob("*.py")):
        name = str(path.relative_to(SRC))
        source = path.read_text(encoding="utf-8")
        if "import_module" in source and name not in BY_NAME:
            wrong.append(f"{name}: loads modules by name")
        if re.search(r"LazyLoader|meta_path|sys\.modules", source):
            wrong.append(f"{name}: meddles with how modules are loaded")
        tree = ast.parse(source)
        top = [node for node in ast.walk(tree) if isinstance(node, ast.If) and node.orelse]
        twofold = any(ast.unparse(node.test) == "TYPE_CHECKING" for node in top)
        if twofold and name != "sdk/config.py":  # a type whose fields are made of a table
            wrong.append(f"{name}: type checkers see something else than Python")
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if "__getattr__" in defined and name not in PUBLIC_LATER:
            wrong.append(f"{name}: has names that are not there")
    assert wrong == []


def test_no_private_module_of_python_is_imported() -> None:
    wrong = []
    for path in sorted(SRC.rglob("*.py")):
        for node in nodes(path):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            private = [name for name in names if name == "posix" or re.match(r"_[a-z]", name)]
            wrong += [
                f"{path.relative_to(SRC)}: {name}" for name in private if name != "__future__"
            ]
    assert wrong == []


ROOTS = {"cli", "home.py"}
"""Rooms that may ask the process for its variables and directories."""
ASKING = {
    "sdk/config.py": "the root of an embedder's runtime",
    "client.py": "starts `zot rpc` with the environment of its caller",
    "conformance/kit.py": "starts the server that is examined",
    "conformance/escapes.py": "starts the sandbox that is examined",
    "conformance/jail.py": "puts what it makes into the user's home directory",
    "testing/harness.py": "starts the extension that is examined",
    "provider/http.py": "the proxy belongs to the machine, as the certificates do",
    "provider/connection.py": "so do the certificates: OpenSSL reads the variable itself",
    "files.py": "who called sudo is a fact of the process",
    "sessions/files.py": "how files are synced is chosen for the machine",
    "local/models.py": "memory and cores of the machine, which a variable may lower",
    "local/pull.py": "pip is started as the user would",
}
"""Others, each with its reason. Whatever is handed a Surroundings must use that instead."""


def asks_the_process(path: Path) -> bool:
    for node in nodes(path):
        match node:
            case ast.Attribute(ast.Name("os"), "environ" | "environb" | "getenv" | "getcwd"):
                return True
            case ast.Attribute(ast.Name("Path"), "cwd" | "home"):
                return True
            case ast.Call(ast.Name("of_process")):
                return True
    return False


def test_variables_and_directories_of_the_process_are_handed_in() -> None:
    asking = {str(path.relative_to(SRC)) for path in SRC.rglob("*.py") if asks_the_process(path)}
    assert {name for name in asking if name.partition("/")[0] not in ROOTS} == set(ASKING)


def test_no_program_is_started_with_modules_of_the_working_directory():
    """`python -m` looks in the working directory first, which may be a stranger's."""
    for path in sorted(SRC.rglob("*.py")):
        for at, line in enumerate(path.read_text().splitlines(), 1):
            if "sys.executable" in line and '"-m"' in line:
                assert '"-P", "-m"' in line, f"{path}:{at}: add -P"


def test_every_room_has_its_tests_in_a_folder_of_the_same_name() -> None:
    rooms = {path.parent.name for path in SRC.glob("*/__init__.py")}
    tested = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
    assert rooms - tested == set()
