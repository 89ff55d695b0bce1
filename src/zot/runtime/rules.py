"""What a person allowed for a project: which calls a rule covers, and which rule to offer.

A rule for commands is a text, or words and ` *` for whatever follows them. Such a rule covers no
command in which the shell would see more than words: `git log *` is not `git log; rm -r .`.
"""

from __future__ import annotations

import os

from zot.core.rule import Rule
from zot.provider.types import ToolCall
from zot.text import compiled

ANY = "*"
SHELL_SIGNS = r"[;&|<>$`\\\n\r(){}\0]"
"""What makes a command more than one program with its words."""
GROUPS = frozenset(
    ("git", "npm", "pnpm", "yarn", "bun", "npx", "cargo", "go", "pip", "uv", "poetry", "make")
    + ("just", "docker", "kubectl", "gh", "brew", "apt", "dotnet", "mvn", "gradle", "bundle")
    + ("composer", "mix", "terraform", "python", "python3", "node", "deno", "ruby", "perl")
)
"""Programs whose second word says what they do."""
WRAPPERS = frozenset(
    ("sh", "bash", "zsh", "dash", "fish", "env", "sudo", "doas", "xargs", "nohup", "nice", "time")
    + ("timeout", "exec", "eval", "command", "ssh", "find")
)
"""Programs that run another one: no rule but for the very command."""


def offered(call: ToolCall, cwd: str) -> Rule:
    """The rule that a person most likely means by "always here"."""
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            return Rule("bash", _command_pattern(command))
        case "write" | "edit", {"path": str(path)}:
            return Rule("write", _path_pattern(path, cwd))
        case _:
            return Rule(call.name, ANY)


def covers(rule: Rule, call: ToolCall, cwd: str) -> bool:
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            return rule.tool == "bash" and _covers_command(rule.pattern, command)
        case "write" | "edit", {"path": str(path)}:
            return rule.tool == "write" and _covers_path(rule.pattern, path, cwd)
        case _:
            return rule == Rule(call.name, ANY)


def _command_pattern(command: str) -> str:
    if compiled(SHELL_SIGNS).search(command):
        return command
    words = command.split()
    if not words or words[0] in WRAPPERS or "=" in words[0]:
        return command
    if words[0] not in GROUPS:
        return f"{words[0]} {ANY}"
    named = len(words) > 1 and not words[1].startswith("-")
    return f"{words[0]} {words[1]} {ANY}" if named else command


def _covers_command(pattern: str, command: str) -> bool:
    if pattern in (command, ANY):
        return True
    if not pattern.endswith(f" {ANY}") or compiled(SHELL_SIGNS).search(command):
        return False
    wanted = pattern.split()[:-1]
    return command.split()[: len(wanted)] == wanted


def _path_pattern(path: str, cwd: str) -> str:
    inside = _inside(path, cwd)
    if inside is None:
        return os.path.realpath(os.path.join(cwd, path))
    folder = os.path.dirname(inside)
    return f"{folder}/{ANY}" if folder else inside


def _covers_path(pattern: str, path: str, cwd: str) -> bool:
    inside = _inside(path, cwd)
    if inside is None:
        return pattern == os.path.realpath(os.path.join(cwd, path))
    if pattern == ANY:
        return True
    if pattern.endswith(f"/{ANY}"):
        return inside.startswith(pattern[:-1])
    return inside == pattern


def _inside(path: str, cwd: str) -> str | None:
    """The path below the project, its links resolved; None: it is elsewhere."""
    root = os.path.realpath(cwd)
    real = os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))
    return os.path.relpath(real, root) if real.startswith(root.rstrip(os.sep) + os.sep) else None
