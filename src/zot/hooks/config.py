"""Reads the files that name hooks, and finds the hooks of an event. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from zot.errors import ConfigError
from zot.files import read_own
from zot.text import Frozen

HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "Stop",
    "SubagentStop",
    "SessionStart",
    "SessionEnd",
    "PreCompact",
    "Notification",
]
EVENTS: tuple[HookEvent, ...] = HookEvent.__args__  # type: ignore[attr-defined]
USER_FILE = "hooks.json"
PROJECT_FILES = (".zot/hooks.json", ".claude/settings.json", ".claude/settings.local.json")
MAX_BYTES = 1024 * 1024
MAX_HOOKS = 200
DEFAULT_SECONDS = 60.0
LONGEST = 600.0
PLAIN_NAMES = re.compile(r"[\w ,|-]*")
"""Matchers that are names, or lists of names, and no regular expression."""


class CommandHook(Frozen):
    """One command of one event."""

    event: HookEvent
    command: str
    file: str
    """File that names the command."""
    matcher: str = ""
    seconds: float = DEFAULT_SECONDS

    def matches(self, value: str) -> bool:
        """Return whether the hook is for this tool, or this kind of event."""
        if self.matcher in ("", "*"):
            return True
        if PLAIN_NAMES.fullmatch(self.matcher):
            return value in re.split(r"[|, ]+", self.matcher)
        return re.fullmatch(self.matcher, value) is not None


class _Command(Frozen):
    type: str = "command"
    command: str = ""
    timeout: float = DEFAULT_SECONDS


class _Group(Frozen):
    hooks: tuple[_Command, ...]
    matcher: str = ""


class HookFile(Frozen):
    """A file of hooks, whether it is used or not."""

    path: str
    hooks: tuple[CommandHook, ...]
    used: bool
    """False: it belongs to a project that the user does not trust."""


def hook_files(home: str, project: str, *, trusted: bool) -> list[HookFile]:
    """Return the files that name hooks: the user's own first, then the project's.

    Raises:
        ConfigError: a file that would be used is broken. A broken guard must not be ignored.
    """
    found = [HookFile(path, hooks, used) for path, hooks, used in _found(home, project, trusted)]
    return [file for file in found if file.hooks]


def _found(
    home: str, project: str, trusted: bool
) -> Iterator[tuple[str, tuple[CommandHook, ...], bool]]:
    path = f"{home}/{USER_FILE}"
    yield path, read_hooks(path, None), True
    for name in PROJECT_FILES:
        path = f"{project}/{name}"
        try:
            yield path, read_hooks(path, project), trusted
        except ConfigError:
            if trusted:
                raise


def read_hooks(path: str, inside: str | None) -> tuple[CommandHook, ...]:
    """Read one file; a missing file has no hooks. `inside`: directory the file must lie in.

    Raises:
        ConfigError: the file cannot be read, or holds something that is no hook.
    """
    try:
        data = read_own(path, inside, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path!r} is larger than {MAX_BYTES} bytes: no hooks are read from it")
    try:
        content = msgspec.json.decode(data, type=dict[str, Any])
        block = msgspec.convert(content.get("hooks") or {}, dict[str, tuple[_Group, ...]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path!r}: the block `hooks` cannot be read: {error}; correct or remove it"
        ) from error
    hooks = tuple(_hooks(path, block))
    if len(hooks) > MAX_HOOKS:
        raise ConfigError(f"{path!r} names {len(hooks)} hooks; at most {MAX_HOOKS} are allowed")
    return hooks


def _hooks(path: str, block: dict[str, tuple[_Group, ...]]) -> Iterator[CommandHook]:
    for name, groups in block.items():
        event = next((event for event in EVENTS if event == name), None)
        for group in groups if event else ():  # events of later versions do not concern zot
            assert event is not None
            _check_matcher(path, group.matcher)
            for hook in group.hooks:
                if hook.type != "command":
                    continue  # prompts to a model: `zot hooks list` shows what is used
                if not hook.command.strip():
                    raise ConfigError(f"{path!r}: a hook of {name} has no command")
                seconds = min(max(hook.timeout, 0.1), LONGEST)
                yield CommandHook(event, hook.command, path, group.matcher, seconds)


def _check_matcher(path: str, matcher: str) -> None:
    if matcher == "*":
        return
    try:
        re.compile(matcher)
    except re.error as error:
        raise ConfigError(
            f"{path!r}: the matcher {matcher!r} is no regular expression: {error}"
        ) from error
