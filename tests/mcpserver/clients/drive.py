"""Drives `zot mcp-server` with the official Python SDK, as published, in both of its eras.

Arguments: the server's command, its environment and its directory as JSON.
"""

import json
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

COMMAND, ENVIRONMENT, CWD = map(json.loads, sys.argv[1:4])


async def drive(mode: Any) -> dict[str, Any]:
    forms: list[str] = []
    notes: list[str] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        forms.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "Allow"})

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        notes.append(message or "")

    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=ENVIRONMENT, cwd=CWD)
    async with Client(stdio_client(server), mode=mode, elicitation_callback=elicit) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        task = await client.call_tool("zot", {"prompt": "tool"}, progress_callback=progress)
        facts = task.structured_content
        session = {"session_id": facts["session_id"], "prompt": "more"}
        reply = await client.call_tool("zot_reply", session)
        with anyio.move_on_after(1):
            await client.call_tool("zot", {"prompt": "slow"})
        after = await client.call_tool("zot", {"prompt": "hi"})
        return {
            "version": client.protocol_version,
            "tools": tools,
            "task": facts,
            "reply": reply.structured_content,
            "after": after.structured_content,
            "forms": forms,
            "notes": notes,
        }


async def main() -> None:
    print(json.dumps({mode: await drive(mode) for mode in ("auto", "legacy")}))


anyio.run(main)
