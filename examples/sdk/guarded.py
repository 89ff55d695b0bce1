"""Decide about each tool call: allow it, block it with a reason, or change it.

guarded.py PROMPT [PROVIDER]
"""

import sys

from zot import Runtime, events
from zot.sdk import ToolCall


def careful(call: ToolCall) -> str | dict[str, object] | None:
    """None lets a call run, a text blocks it, a dict runs it with other arguments."""
    args = call.args or {}
    if call.name == "bash" and "rm " in str(args.get("command")):
        return "nothing is deleted here; move it to trash/ instead"
    if call.name == "bash":
        return {**args, "timeout": 60}
    if call.name in ("write", "edit") and not str(args.get("path")).startswith("notes/"):
        return "only files below notes/ may be changed"
    return None


def main(prompt: str, provider: str = "") -> None:
    with Runtime(provider=provider, hooks=[careful]) as runtime:
        for event in runtime.prompt(prompt):
            if isinstance(event, events.TextDelta):
                print(event.delta, end="", flush=True)
            elif isinstance(event, events.ToolResult) and event.is_error:
                print(f"[refused: {event.content[0]}]", file=sys.stderr)
    print()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: guarded.py PROMPT [PROVIDER]")
    main(*sys.argv[1:])
