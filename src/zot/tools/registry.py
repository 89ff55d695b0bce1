"""The built-in tools' names, descriptions and schemas. Loaded before the first model call, so each
tool's implementation is in its own module, which is loaded with its first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from zot.core.confinement import JailPolicy
from zot.core.tool import (
    Part,
    Reconciled,
    ReconcilingTool,
    Replay,
    Tool,
    ToolContext,
    ToolOutput,
)
from zot.errors import ConfigError
from zot.provider.types import Json
from zot.tools.process.background import Background

if TYPE_CHECKING:
    from zot.tools import place
    from zot.tools.process import supervisor

T = TypeVar("T")

# --- for the model: description, properties, required properties -----------------------------

TEXT = {"type": "string"}


def _property(kind: str, description: str) -> dict[str, Json]:
    return {"type": kind, "description": description}


EDIT = {
    "type": "object",
    "properties": {"oldText": TEXT, "newText": TEXT, "replaceAll": {"type": "boolean"}},
    "required": ["oldText", "newText"],
}
JAILED = " Jailed: only {} can be written{}; no network."
SPECS: dict[str, tuple[str, dict[str, Json], list[str]]] = {
    "read": (
        "Read a text file (at most 2000 lines or 50 KB a call; read on with offset), or view an"
        " image (png, jpeg, gif, webp).",
        {
            "path": TEXT,
            "offset": _property("integer", "first line, from 1"),
            "limit": _property("integer", "number of lines"),
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
        " now, except with replaceAll; edits must not overlap.",
        {"path": TEXT, "edits": {"type": "array", "items": EDIT}},
        ["path", "edits"],
    ),
    "bash": (
        "Run a shell command in the working directory. It ends when the shell exits: background"
        " processes are stopped. Long output is cut in the middle and kept in a file.",
        {
            "command": TEXT,
            "timeout": _property("number", "seconds; default none"),
            "background": _property("boolean", "for servers: do not wait"),
        },
        ["command"],
    ),
    "glob": (
        "Find files by a pattern such as *.py or src/**/*.{ts,tsx}, newest first; respects"
        " .gitignore.",
        {
            "pattern": TEXT,
            "path": _property("string", "directory to search"),
            "hidden": _property("boolean", "include dot files"),
        },
        ["pattern"],
    ),
    "grep": (
        "Search file contents by regular expression, line by line; respects .gitignore.",
        {
            "pattern": TEXT,
            "path": _property("string", "file or directory to search"),
            "glob": _property("string", "only files like this, e.g. *.py"),
            "ignore_case": {"type": "boolean"},
            "literal": {"type": "boolean"},
            "context": _property("integer", "lines around each match"),
            "limit": _property("integer", "default 100"),
        },
        ["pattern"],
    ),
}
NAMES = tuple(SPECS)
STRICT = ("read", "write", "edit", "bash")
"""Tools whose arguments are sampled by their schema where a provider can do that."""
PATCH_GRAMMAR = r"""
start: "*** Begin Patch" LF file+ "*** End Patch" LF?
file: new | gone | changed
new: "*** Add File: " PATH LF ("+" TEXT? LF)+
gone: "*** Delete File: " PATH LF
changed: "*** Update File: " PATH LF ("*** Move to: " PATH LF)? change*
change: ("@@" (" " TEXT)? LF)* (("+" | "-" | " ") TEXT? LF)+ ("*** End of File" LF)?
PATH: /[^\n]+/
TEXT: /[^\n]+/
LF: "\n"
"""
PATCH = """\
Change files by a patch. Each change shows a few unchanged lines around it, exactly as in the file.
Places that look alike are told apart by "@@ " and the line of the class or function. Example:
*** Begin Patch
*** Update File: src/app.py
@@ def greet():
-print("Hi")
+print("Hello")
*** Add File: notes.txt
+a line
*** Delete File: old.txt
*** End Patch"""
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


class SharedPlace:
    """The one Place of a runtime's tools, made when one of them is first called. A jail keeps them
    inside the working directory and away from zot's own directory `home` with its secrets."""

    def __init__(
        self,
        cwd: str,
        environ: Mapping[str, str],
        *,
        jail: bool = False,
        home: str = "",
        policy: JailPolicy | None = None,
    ) -> None:
        """`policy`: the jail's; None: the usual one if `jail`."""
        self.policy = JailPolicy(on=jail) if policy is None else policy
        self.jail = self.policy.on
        self._parts = cwd, environ
        self._home = home
        self.get = Once(self._make).get

    def _make(self) -> place.Place:
        if self.jail:
            from zot.tools.jail.jail import Jail

            return Jail(*self._parts, self._home, self.policy)
        from zot.tools.place import Place

        return Place(*self._parts, self.policy.deny_read)


class Builtin:
    """A tool as the model sees it. The class that implements it is in the module of MODULES; each
    call makes a new instance with the arguments from `parts`."""

    def __init__(self, name: str, policy: JailPolicy, parts: Callable[[], tuple[Any, ...]]) -> None:
        description, properties, required = SPECS[name]
        self.name = name
        self.description = description + (_jailed(policy) if name == "bash" else "")
        self.schema: dict[str, Json] = {
            "type": "object",
            "properties": properties,
            "required": required,
        }
        self.replay: Replay = REPLAY.get(name, "never")
        self.side_by_side = name in ONLY_READ
        self.strict = name in STRICT
        self._parts = parts
        self.parts = self._patch_in_command if name == "bash" else None
        self.companion = ApplyPatch(parts) if name == "edit" else None

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        tool: Tool = self._made()
        return tool.run(args, context)

    def renamed(self, args: dict[str, Json]) -> tuple[dict[str, Json], list[str]]:
        """Return the arguments under the names of the schema, and notes on what was changed."""
        from zot.tools import arguments  # a room that few runs need

        return arguments.renamed(self.name, args)

    def _patch_in_command(self, args: dict[str, Json]) -> list[Part] | None:
        """Return the calls for a command that only applies a patch; no program does that here."""
        command = args.get("command", "")
        if not isinstance(command, str) or "*** Begin Patch" not in command:
            return None
        from zot.tools.edit import patch  # a room that few runs need

        found = patch.in_command(command)
        return patch.calls_for(self._parts()[0], *found) if found else None

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Check whether an earlier call took effect; only for tools with `replay` "reconcile"."""
        tool: ReconcilingTool = self._made()
        return tool.reconcile(args, context)

    def _made(self) -> Any:
        module, parts = import_module(f"zot.tools.{MODULES[self.name]}"), self._parts()
        return getattr(module, self.name.capitalize())(*parts)


class ApplyPatch:
    """The tool `apply_patch` of GPT models, in the place of `edit`. Never runs by itself: its calls
    stand for calls of `edit`, `write` and `bash`."""

    name = "apply_patch"
    description = PATCH
    grammar = PATCH_GRAMMAR
    schema: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {"input": _property("string", "the patch")},
        "required": ["input"],
    }

    def __init__(self, parts: Callable[[], tuple[Any, ...]]) -> None:
        self._parts = parts

    def renamed(self, args: dict[str, Json]) -> tuple[dict[str, Json], list[str]]:
        from zot.tools import arguments  # a room that few runs need

        return arguments.renamed(self.name, args)

    def parts(self, args: dict[str, Json]) -> list[Part]:
        from zot.tools.edit import patch  # a room that few runs need

        text = str(args["input"])
        found = patch.in_command(text) or (text, "")
        return patch.calls_for(self._parts()[0], *found)

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        raise AssertionError("a patch is run as calls of other tools")


class BackgroundTool:
    """The tools `bash_output` and `bash_kill`."""

    def __init__(self, name: str, background: Background) -> None:
        self.name = name
        self.description = BACKGROUND[name]
        self.schema: dict[str, Json] = {
            "type": "object",
            "properties": {"id": TEXT},
            "required": ["id"],
        }
        self._background = background

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        id = str(args.get("id", ""))
        kills = self.name == "bash_kill"
        return self._background.kill(id) if kills else self._background.output(id)


def _jailed(policy: JailPolicy) -> str:
    """Return the sentence that tells the model about the jail; empty without one."""
    if not policy.on:
        return ""
    if policy.read_only:
        return JAILED.format(" and ".join(("$TMPDIR or /tmp", *policy.allow_write)), "")
    return JAILED.format(
        " and ".join(("the working directory", *policy.allow_write)), ", without .git"
    )


def builtin_tools(
    place: SharedPlace,
    names: Sequence[str] | None = None,
    secret_names: frozenset[str] = frozenset(),
    supervisor: SharedSupervisor | None = None,
    background: Background | None = None,
) -> list[Tool]:
    """Return the tools with these names, in the order of their definition; all of them for None.

    `secret_names` are environment variables that no command may see. The caller closes the
    `supervisor` it passes; without one, the helper process ends with this process.

    Raises:
        ConfigError: an unknown tool name, or a directory that cannot be a jail.
    """
    shared = supervisor or SharedSupervisor()
    later = background or Background()
    if place.jail:
        place.get()  # so that an unsuitable directory fails now, not at the first call

    def for_bash() -> tuple[object, ...]:
        supervisor = shared.get()
        supervisor.get_ready()  # the helper starts while the rest is loaded
        return place.get(), supervisor, secret_names, shared.secrets, later

    parts: dict[str, Callable[[], tuple[object, ...]]] = {
        "bash": for_bash,
        "grep": lambda: (place.get(), shared.get()),
    }
    unknown = [name for name in names or () if name not in NAMES]
    if unknown:
        listed = ", ".join(repr(name) for name in unknown)
        raise ConfigError(f"unknown tool {listed}; the built-in tools are: {', '.join(NAMES)}")
    wanted = [name for name in NAMES if names is None or name in names]
    return [Builtin(name, place.policy, parts.get(name, lambda: (place.get(),))) for name in wanted]
