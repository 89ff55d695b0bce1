"""`zot hooks`: list the hooks of files, and try those of one event."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from zot.cancel import Cancel
from zot.cli.output import CWD, Subcommands, arg, flag, json_flag, say, say_either
from zot.errors import UsageError
from zot.home import Surroundings, of_process
from zot.hooks.config import EVENTS, CommandHook, HookFile, hook_files
from zot.hooks.program import HookPlace, run_hook
from zot.settings.known import visible_environment
from zot.settings.trust import is_trusted

SAMPLES: dict[str, dict[str, Any]] = {
    "PreToolUse": {"tool_name": "Bash", "tool_input": {"command": "ls"}},
    "PostToolUse": {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {}},
    "UserPromptSubmit": {"prompt": "a prompt"},
    "Stop": {"stop_hook_active": False},
    "SubagentStop": {"stop_hook_active": False},
    "SessionStart": {"source": "startup"},
    "SessionEnd": {"reason": "other"},
    "PreCompact": {"trigger": "manual", "custom_instructions": ""},
    "Notification": {"message": "a message", "notification_type": "permission_prompt"},
}
MATCHED = ("tool_name", "source", "reason", "trigger", "notification_type")
"""Fields that a matcher is compared with, one for each event that has matchers."""


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("hooks", "Commands that run at moments of the agent's work.")
    actions.parser.add(CWD)
    actions.add("list", _list, "list hooks with event, matcher and file", json_flag())
    # fmt: off
    actions.add("test", _test, "run the hooks of an event, and show what they answer",
                arg("event", choices=EVENTS, metavar="EVENT", help=", ".join(EVENTS)),
                arg("--input", default="", metavar="JSON",
                    help="fields of their input, e.g. '{\"tool_name\": \"Write\"}'"),
                flag("--trust", help="run those of a project that is not trusted, too"))
    # fmt: on
    return actions.run(argv[1:])


def _files(options: argparse.Namespace, around: Surroundings) -> list[HookFile]:
    cwd = around.absolute(options.cwd)
    return hook_files(around.home, cwd, trusted=is_trusted(cwd, around.home))


def _list(options: argparse.Namespace) -> None:
    files = _files(options, of_process())
    for file in files:
        for hook in file.hooks:
            row = {
                "event": hook.event,
                "matcher": hook.matcher,
                "command": hook.command,
                "timeout": hook.seconds,
                "file": file.path,
                "used": file.used,
            }
            note = "" if file.used else " (not used: the project is not trusted)"
            head = f"{hook.event} {hook.matcher or '*'} [{file.path}]{note}"
            say_either(options, row, f"{head}\n    {hook.command}")
    if not files and not options.json:
        say("no hooks; docs/hooks.md shows how a file names them")


def _test(options: argparse.Namespace) -> int:
    around = of_process()
    fields = _fields(options.event, options.input)
    value = next((str(fields[name]) for name in MATCHED if name in fields), "")
    files = [file for file in _files(options, around) if file.used or options.trust]
    hooks = [hook for file in files for hook in file.hooks]
    matching = [hook for hook in hooks if hook.event == options.event and hook.matches(value)]
    if not matching:
        say(f"no hook of {options.event} matches {value!r}; `zot hooks list` shows all")
        return 1
    cwd = around.absolute(options.cwd)
    place = HookPlace(
        cwd,
        visible_environment(around),
        lambda program, cancel, tell: contextlib.nullcontext(program),
        say,
    )
    return max([_tried(hook, fields, place) for hook in matching])


def _fields(event: str, given: str) -> dict[str, Any]:
    fields = {**SAMPLES[event], "hook_event_name": event, "session_id": "test"}
    if not given:
        return fields
    try:
        return fields | msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise UsageError(f"--input {given!r} is no JSON object: {error}") from error


def _tried(hook: CommandHook, fields: dict[str, Any], place: HookPlace) -> int:
    output = run_hook(hook, {**fields, "cwd": place.cwd, "transcript_path": ""}, place, Cancel())
    say(f"{hook.command}\n    exit code: {output.code}")
    for name in ("problem", "stdout", "stderr"):
        if text := getattr(output, name).strip():
            say(f"    {name}: {text}")
    return 1 if output.problem else 0
