"""Other agents' names for the arguments of the built-in tools: a model that was trained with them
uses them here, too. An argument under its own name always wins.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from zot.core.arguments import decoded
from zot.provider.types import Json

Args = dict[str, Json]

PATHS = ("file_path", "filepath", "filePath", "absolute_path", "target_file", "file", "filename")
FOLDERS = ("dir_path", "directory", "dir", "folder")
NAMES: dict[str, dict[str, Sequence[str]]] = {
    "read": {"path": PATHS, "offset": ("start_line", "line_start"), "limit": ("num_lines",)},
    "write": {"path": PATHS, "content": ("contents", "file_text", "file_content", "text")},
    "edit": {"path": PATHS},
    "bash": {
        "command": ("cmd", "script", "shell_command"),
        "background": ("run_in_background", "is_background"),
    },
    "apply_patch": {"input": ("patch", "patchText", "diff")},
    "glob": {"pattern": ("glob", "glob_pattern", "query"), "path": FOLDERS},
    "grep": {
        "pattern": ("query", "regex", "regexp"),
        "path": (*FOLDERS, "file_path"),
        "glob": ("include", "include_pattern"),
        "ignore_case": ("-i", "case_insensitive"),
        "context": ("-C",),
        "limit": ("head_limit", "max_results"),
    },
}
"""Arguments of each tool, and their other names."""
EDIT_NAMES: dict[str, Sequence[str]] = {
    "oldText": ("old_string", "oldString", "old_str", "old_text", "old", "search"),
    "newText": ("new_string", "newString", "new_str", "new_text", "new", "replace"),
    "replaceAll": ("replace_all", "allow_multiple"),
}
FOLDER_OF_BASH = ("workdir", "cwd", "working_directory", "dir_path")
SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
SHELL_FLAGS = ("-c", "-lc", "-cl")


def renamed(tool: str, args: Args) -> tuple[Args, list[str]]:
    """Return the arguments under the names of this tool, and notes on what was changed."""
    args, notes = dict(args), list[str]()
    _rename(args, NAMES.get(tool, {}), notes, "")
    if special := SPECIAL.get(tool):
        special(args, notes)
    return args, notes


def _rename(args: Args, names: dict[str, Sequence[str]], notes: list[str], at: str) -> None:
    for name, others in names.items():
        found = [other for other in others if other in args]
        if name not in args and len(found) == 1:
            args[name] = args.pop(found[0])
            notes.append(f"{at}{found[0]} read as {name}")


def _read(args: Args, notes: list[str]) -> None:
    """The first and last line instead of a count, together or in two arguments."""
    view = args.get("view_range")
    if isinstance(view, list) and [type(line) for line in view] == [int, int]:
        args.setdefault("offset", view[0])
        args.setdefault("end_line", view[1])
        notes.append("view_range read as offset and limit")
    last, first = args.get("end_line"), args.get("offset", 1)
    if "limit" not in args and isinstance(last, int) and isinstance(first, int) and last >= first:
        args["limit"] = last - first + 1
        notes.append("end_line read as limit")


def _edit(args: Args, notes: list[str]) -> None:
    """One edit beside the path, or edits with other names."""
    _rename(args, EDIT_NAMES, notes, "")
    every = args.pop("replaceAll", None)
    edits = args.get("edits", [])
    if isinstance(edits, str):
        edits = decoded(edits)
        notes.append("edits: text read as array")
    if isinstance(edits, dict):
        edits = [edits]
        notes.append("edits: object read as array")
    if not isinstance(edits, list):
        return
    if "oldText" in args and "newText" in args:
        edits = [*edits, {"oldText": args.pop("oldText"), "newText": args.pop("newText")}]
        notes.append("oldText and newText read as one edit")
    args["edits"] = out = list[Json]()
    for number, edit in enumerate(edits):
        if isinstance(edit, dict):
            edit = dict(edit)
            _rename(edit, EDIT_NAMES, notes, f"edits[{number}].")
            if every is not None:
                edit.setdefault("replaceAll", every)
        out.append(edit)


def _bash(args: Args, notes: list[str]) -> None:
    command = args.get("command")
    if isinstance(command, list) and (words := _as_command(command)):
        args["command"] = words
        notes.append("command: list read as one command")
    if "timeout" not in args and isinstance(args.get("timeout_ms"), int | float):
        args["timeout"] = args.pop("timeout_ms") / 1000
        notes.append("timeout_ms read as timeout")
    found = [name for name in FOLDER_OF_BASH if isinstance(args.get(name), str)]
    if len(found) == 1 and isinstance(args.get("command"), str):
        folder = args.pop(found[0])
        if folder not in ("", ".", "./"):
            args["command"] = f"cd -- {shlex.quote(folder)} || exit\n{args['command']}"
            notes.append(f"{found[0]} read as a cd before the command")


def _as_command(words: list[Json]) -> str:
    """Return a program's words as a command; empty if they may be something else."""
    if not words or not all(isinstance(word, str) for word in words):
        return ""
    if len(words) == 3 and words[0] in SHELLS and words[1] in SHELL_FLAGS:
        return str(words[2])
    if len(words) == 1:
        return str(words[0])
    # A blank in the first word: rather several commands than the name of a program.
    return "" if words[0].split() != [words[0]] else shlex.join(words)


SPECIAL: dict[str, Callable[[Args, list[str]], None]] = {
    "read": _read,
    "edit": _edit,
    "bash": _bash,
}
