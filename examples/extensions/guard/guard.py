#!/usr/bin/env python3
"""A guard: every tool call goes to an audit log, and dangerous shell commands are blocked.

It fails closed: `fail_closed` in the manifest and here means that no tool runs while this guard
cannot answer. Patterns stop accidents, not a determined attacker; for that, use a sandbox.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from zot_ext import Event, Extension, Reply, block

ext = Extension("guard", "1.0.0", fail_closed=True)

DANGEROUS = {
    r"\brm\s+(-\w+\s+)*-\w*[rR]\w*\s+(-\w+\s+)*[\"']?(/|~|\$HOME)[\"']?(\s|$|\*)": "deletes it all",
    r"\bmkfs(\.\w+)?\b|\bdd\b.*\bof=/dev/": "overwrites a disk",
    r"\b(curl|wget)\b[^|;&]*\|\s*(sudo\s+)?(ba|z|da)?sh\b": "runs what it downloads",
    r":\(\)\s*\{\s*:\s*\|\s*:\s*&\s*\}": "is a fork bomb",
    r"\bgit\s+push\b.*(\s--force\b(?!-with-lease)|\s-f\b)": "overwrites a remote branch",
    r"\bchmod\s+(-\w+\s+)*777\s+/": "opens the file system to everybody",
}


def audit(kind: str, event: Event, **more: Any) -> None:
    entry = {"time": time.time(), "kind": kind, "session": event.session_id, **more}
    with open(f"{ext.host.data_dir}/audit.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


@ext.intercept("tool_call")
def check(event: Event) -> Reply | None:
    args: dict[str, Any] = event.tool_args or {}
    command = str(args.get("command", ""))
    for pattern, reason in DANGEROUS.items():
        if re.search(pattern, command):
            audit("blocked", event, tool=event.tool_name, command=command, reason=reason)
            ext.notify(f"blocked: {command}", "warn")
            return block(f"this command {reason}; ask the user to run it")
    audit("allowed", event, tool=event.tool_name, args=event.tool_args)
    return None


@ext.on("tool_result")
def result(event: Event) -> None:
    audit("result", event, tool=event.tool_name, status=event.status)


@ext.command("audit", "show the last entries of the audit log")
def show(args: str) -> str:
    try:
        with open(f"{ext.host.data_dir}/audit.jsonl", encoding="utf-8") as file:
            return "".join(file.readlines()[-int(args or 10) :])
    except FileNotFoundError:
        return "nothing happened yet"


ext.run()
