"""Prompts of servers as commands: `/mcp:SERVER:PROMPT`."""

from __future__ import annotations

import re
import shlex

from zot.cancel import Cancel
from zot.core.source import CommandInfo, CommandResult
from zot.core.tool import ToolContext
from zot.errors import CommandError
from zot.mcp.content import block_of
from zot.mcp.protocol import PromptInfo
from zot.mcp.server import McpServer
from zot.provider.types import Json, Text

PREFIX = "mcp:"


def command_name(server: str, prompt: PromptInfo) -> str:
    """Return a command name that can be typed."""
    return f"{PREFIX}{server}:{re.sub(r'[^A-Za-z0-9._-]', '_', prompt.name)}"


def command_info(server: str, prompt: PromptInfo) -> CommandInfo:
    words = (name if name in prompt.required else f"[{name}]" for name in prompt.arguments)
    about = f"{prompt.description} ({' '.join(words)})" if prompt.arguments else prompt.description
    return CommandInfo(command_name(server, prompt), about, f"mcp:{server}", "prompt")


def run(server: McpServer, prompt: PromptInfo, args: str, cancel: Cancel) -> CommandResult:
    """Get the prompt from the server. Raises CommandError, McpError, Cancelled."""
    params = {"name": prompt.name, "arguments": arguments(prompt, args)}
    context = ToolContext(prompt.name, cancel, lambda text: None)
    result = server.call(
        lambda connection, patience: connection.call("prompts/get", params, patience, context),
        cancel,
    )
    return CommandResult(f"mcp:{server.name}", "prompt", text_of(result))


def arguments(prompt: PromptInfo, args: str) -> dict[str, str]:
    """Parse typed arguments of a prompt: `name=value`, or by position; the last one takes the rest
    of the line. Raises CommandError: a required one is missing."""
    try:
        words = shlex.split(args)
    except ValueError:
        words = args.split()
    values: dict[str, str] = {}
    plain: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in prompt.arguments:
            values[name] = value
        else:
            plain.append(word)
    free = [name for name in prompt.arguments if name not in values]
    for position, name in enumerate(free):
        if plain:
            last = position == len(free) - 1
            values[name] = " ".join(plain) if last else plain.pop(0)
    if missing := [name for name in prompt.required if name not in values]:
        raise CommandError(f"the prompt {prompt.name!r} needs {', '.join(missing)}")
    return values


def text_of(result: dict[str, Json]) -> str:
    """Join the messages of a prompt; images are replaced by a note."""
    messages = result.get("messages")
    texts = []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        block = block_of(content)
        text = block.text if isinstance(block, Text) else "[an image]"
        role = message.get("role") if isinstance(message, dict) else ""
        texts.append(f"(as the assistant:)\n{text}" if role == "assistant" else text)
    return "\n\n".join(texts)
