"""The built-in tools' names, descriptions and schemas. Loaded before the first model call, so each
tool's implementation is in its own module, which is loaded with its first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zot.core.tool import Reconciled, ReconcilingTool, Replay, Tool, ToolContext, ToolOutput
from zot.errors import ConfigError
from zot.provider.types import Json

if TYPE_CHECKING:
    from zot.tools import place
    from zot.tools.process import background, supervisor

T = TypeVar("T")

# --- for the model: description, properties, required properties -----------------------------

TEXT = {"type": "string"}


def _told(kind: str, description: str) -> dict[str, Json]:
    return {"type": kind, "description": description}


EDIT = {
    "type": "object",
    "properties": {"oldText": TEXT, "newText": TEXT},
    "required": ["oldText", "newText"],
}
JAILED = " Jailed: only the working directory can be written, without .git; no network."
TOLD: dict[str, tuple[str, dict[str, Json], list[str]]] = {
    "read": (
        "Read a text file (at most 2000 lines or 50 KB a call; read on with offset), or view an"
        " image (png, jpeg, gif, webp).",
        {
            "path": TEXT,
            "offset": _told("integer", "first line, from 1"),
            "limit": _told("integer", "number of lines"),
        },
        ["path"],
    ),
    "write": (
        "Create a file, or replace all its content. Parent directories are created.",
        {"path": TEXT, "content": TEXT},
        ["path", "content"],
    ),
    "edit": (
        "Replace exact text in a file. Each oldText must occur exactly once in the file as it is"
        " now; edits must not overlap.",
        {"path": TEXT, "edits": {"type": "array", "items": EDIT}},
        ["path", "edits"],
    ),
    "bash": (
        "Run a shell command in the working directory. It ends when the shell exits: background"
        " processes are stopped. Long output is cut in the middle and kept in a file.",
        {
            "command": TEXT,
            "timeout": _told("number", "seconds; default none"),
            "background": _told("boolean", "for servers: do not wait"),
        },
        ["command"],
    ),
    "glob": (
        "Find files by a pattern such as *.py or src/**/*.{ts,tsx}, newest first; respects"
        " .gitignore.",
        {
            "pattern": TEXT,
            "path": _told("string", "directory to search"),
            "hidden": _told("boolean", "include dot files"),
        },
        ["pattern"],
    ),
    "grep": (
        "Search file contents by regular expression, line by line; respects .gitignore.",
        {
            "pattern": TEXT,
            "path": _told("string", "file or directory to search"),
            "glob": _told("string", "only files like this, e.g. *.py"),
            "ignore_case": {"type": "boolean"},
            "literal": {"type": "boolean"},
            "context": _told("integer", "lines around each match"),
            "limit": _told("integer", "default 100"),
        },
        ["pattern"],
    ),
}
NAMES = tuple(TOLD)
MODULES = {
    "read": "read",
    "write": "edit.edit",
    "edit": "edit.edit",
    "bash": "bash",
    "glob": "search.glob",
    "grep": "search.grep",
}
"""Module of each tool's class, below zot.tools."""
REPLAY: dict[str, Replay] = {
    **dict.fromkeys(("read", "glob", "grep"), "safe"),
    **dict.fromkeys(("write", "edit"), "reconcile"),
}
"""Replay modes: read-only tools may run again; tools that write can check whether they did."""
ONLY_READ = ("read", "glob", "grep")
BACKGROUND = {
    "bash_output": "See what a background command printed since the last look, and if it runs.",
    "bash_kill": "End a background command.",
}
"""Tools that are added with the first background command, with their descriptions."""


class Once(Generic[T]):
    """A value that is made once, when it is first needed; thread-safe."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.lock = threading.Lock()
        self.made: T | None = None

    def get(self) -> T:
        with self.lock:
            if self.made is None:
                self.made = self._make()
            return self.made


class SharedSupervisor:
    """The one Supervisor of a runtime."""

    def __init__(
        self,
        secrets: Callable[[], Sequence[str]] = tuple,
        hidden_names: frozenset[str] = frozenset(),
        hidden_values: tuple[str, ...] = (),
    ) -> None:
        """`secrets` must not get into a file with a command's output. `hidden_names` are variables
        to wipe from this process's /proc files before a command runs, `hidden_values` parts of its
        command line: only for a program that owns the process (see hide.py)."""
        self.secrets = secrets
        self._hidden = hidden_names, hidden_values
        self._once = Once(self._make)
        self.get = self._once.get
        self._closed = False

    def _make(self) -> supervisor.Supervisor:
        self.hide()
        from zot.tools.process import supervisor

        made = supervisor.Supervisor()
        if self._closed:
            made.close()
        return made

    def hide(self) -> None:
        """Wipe secrets from this process before another program is started."""
        if any(self._hidden):
            from zot.tools.process import hide

            hide.hide_process(*self._hidden)

    def close(self) -> None:
        """End the helper process and all commands that still run."""
        with self._once.lock:
            self._closed = True
        if self._once.made is not None:
            self._once.made.close()


class SharedBackground:
    """The background commands of a runtime; loaded with the first command."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self._on_first = on_first
        self._once = Once(self._make)
        self.get = self._once.get

    def _make(self) -> background.Background:
        from zot.tools.process import background

        return background.Background(self._on_first)

    @property
    def used(self) -> bool:
        return self._once.made is not None and self._once.made.used

    def end_all(self) -> None:
        if self._once.made is not None:
            self._once.made.end_all()


class SharedPlace:
    """The one Place of a runtime's tools. A jail keeps them inside the working directory and away
    from zot's own directory with its secrets."""

    def __init__(
        self, cwd: str, environ: Mapping[str, str], *, jail: bool = False, home: str = ""
    ) -> None:
        self.jail = jail
        self.get = Once(lambda: _place(cwd, environ, home if jail else None)).get


def _place(cwd: str, environ: Mapping[str, str], home: str | None) -> place.Place:
    """Make the Place. `home`: zot's directory, kept from a jail's tools; None: no jail."""
    if home is not None:
        from zot.tools.jail.jail import Jail

        return Jail(cwd, environ, home)
    from zot.tools.place import Place

    return Place(cwd, environ)


class Builtin:
    """A tool as the model sees it. The class that implements it is in the module of MODULES; each
    call makes a new instance with the arguments from `parts`."""

    def __init__(self, name: str, jailed: bool, parts: Callable[[], tuple[object, ...]]) -> None:
        description, properties, required = TOLD[name]
        self.name = name
        self.description = description + (JAILED if jailed and name == "bash" else "")
        self.schema: dict[str, Json] = {
            "type": "object",
            "properties": properties,
            "required": required,
        }
        self.replay: Replay = REPLAY.get(name, "never")
        self.side_by_side = name in ONLY_READ
        self._parts = parts

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        tool: Tool = self._made()
        return tool.run(args, context)

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Check whether an earlier call took effect; only for tools with `replay` "reconcile"."""
        tool: ReconcilingTool = self._made()
        return tool.reconcile(args, context)

    def _made(self) -> Any:
        module, parts = import_module(f"zot.tools.{MODULES[self.name]}"), self._parts()
        return getattr(module, self.name.capitalize())(*parts)


class BackgroundTool:
    """The tools `bash_output` and `bash_kill`."""

    def __init__(self, name: str, background: SharedBackground) -> None:
        self.name = name
        self.description = BACKGROUND[name]
        self.schema: dict[str, Json] = {
            "type": "object",
            "properties": {"id": TEXT},
            "required": ["id"],
        }
        self._background = background

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        commands, id = self._background.get(), str(args.get("id", ""))
        return commands.kill(id) if self.name == "bash_kill" else commands.output(id)


def builtin_tools(
    place: SharedPlace,
    names: Sequence[str] | None = None,
    secret_names: frozenset[str] = frozenset(),
    supervisor: SharedSupervisor | None = None,
    background: SharedBackground | None = None,
) -> list[Tool]:
    """Return the tools with these names, in the order of their definition; all of them for None.

    `secret_names` are environment variables that no command may see. The caller closes the
    `supervisor` it passes; without one, the helper process ends with this process.

    Raises:
        ConfigError: an unknown tool name, or a directory that cannot be a jail.
    """
    shared = supervisor or SharedSupervisor()
    later = background or SharedBackground()
    if place.jail:
        place.get()  # so that an unsuitable directory fails now, not at the first call

    def for_bash() -> tuple[object, ...]:
        supervisor = shared.get()
        supervisor.get_ready()  # the helper starts while the rest is loaded
        return place.get(), supervisor, secret_names, shared.secrets, later.get()

    parts: dict[str, Callable[[], tuple[object, ...]]] = {
        "bash": for_bash,
        "grep": lambda: (place.get(), shared.get()),
    }
    unknown = [name for name in names or () if name not in NAMES]
    if unknown:
        listed = ", ".join(repr(name) for name in unknown)
        raise ConfigError(f"unknown tool {listed}; the built-in tools are: {', '.join(NAMES)}")
    wanted = [name for name in NAMES if names is None or name in names]
    return [Builtin(name, place.jail, parts.get(name, lambda: (place.get(),))) for name in wanted]
