"""Tool names and arguments in the words of Claude Code, for scripts that were written for it."""

from __future__ import annotations

from pathlib import Path

from zot.provider.types import Json, ToolCall

TOOLS = {
    "bash": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "task": "Task",
}
RENAMED = {"read": {"path": "file_path"}, "write": {"path": "file_path"}}
"""Arguments with another name there, by tool."""
PROXY = "mcp"
"""The tool that stands for all tools of MCP servers where they are many."""
Args = dict[str, Json]


def tool_name(call: ToolCall) -> str:
    """Return the name that matchers and scripts know; `mcp__server__tool` for MCP tools."""
    args = call.args or {}
    if call.name == "edit" and len(_edits(args)) > 1:
        return "MultiEdit"
    if _is_proxied(call):
        return f"mcp__{str(args['tool']).replace('/', '__')}"
    return TOOLS.get(call.name, call.name)


def tool_input(call: ToolCall, cwd: str) -> Args:
    """Return the arguments as Claude Code would pass them. Paths of files are absolute."""
    args = call.args or {}
    if call.name == "edit":
        return _edit_input(args, cwd)
    if _is_proxied(call):
        return args.get("arguments") or {}
    renamed = RENAMED.get(call.name, {})
    changed = {renamed.get(name, name): value for name, value in args.items()}
    path = changed.get("file_path")
    if isinstance(path, str):
        changed["file_path"] = str(Path(cwd, path))
    return changed


def tool_args(call: ToolCall, changed: Args) -> Args:
    """Return zot's arguments for the input of a call that a hook changed."""
    if call.name == "edit":
        return _edit_args(changed, call.args or {})
    if _is_proxied(call):
        return {**(call.args or {}), "arguments": changed}
    back = {theirs: ours for ours, theirs in RENAMED.get(call.name, {}).items()}
    return {back.get(key, key): value for key, value in changed.items()}


def _is_proxied(call: ToolCall) -> bool:
    args = call.args or {}
    return call.name == PROXY and args.get("action") == "call" and "tool" in args


def _edits(args: Args) -> list[Args]:
    edits = args.get("edits")
    return [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else []


def _edit_input(args: Args, cwd: str) -> Args:
    path = str(Path(cwd, str(args.get("path", ""))))
    edits: list[Json] = [
        {"old_string": edit.get("oldText", ""), "new_string": edit.get("newText", "")}
        for edit in _edits(args)
    ]
    if len(edits) == 1:
        assert isinstance(edits[0], dict)
        return {"file_path": path, **edits[0]}
    return {"file_path": path, "edits": edits}


def _edit_args(changed: Args, before: Args) -> Args:
    theirs = _edits(changed) or [changed]
    edits: list[Json] = [
        {"oldText": edit.get("old_string", ""), "newText": edit.get("new_string", "")}
        for edit in theirs
    ]
    return {**before, "path": changed.get("file_path", before.get("path")), "edits": edits}
