"""Short titles of tool calls, for people; models never see them."""

from __future__ import annotations

from zot.provider.types import ToolCall

MAX_TITLE = 120


def title_of(call: ToolCall) -> str:
    """Return a one-line description of the call."""
    match call.name, call.args:
        case "bash", {"command": str(command)}:
            title = command
        case "read" | "write" | "edit", {"path": str(path)}:
            title = f"{call.name.capitalize()} {path}"
        case "glob", {"pattern": str(pattern)}:
            title = f"Find {pattern}"
        case "grep", {"pattern": str(pattern)}:
            title = f"Search for {pattern}"
        case _:
            title = call.name
    return shortened(title) or call.name


def shortened(text: str, most: int = MAX_TITLE) -> str:
    """Return the first line of a text, cut to `most` characters."""
    first, _, rest = text.strip().partition("\n")
    if len(first) > most:
        return f"{first[: most - 1]}…"
    return f"{first} …" if rest.strip() else first
