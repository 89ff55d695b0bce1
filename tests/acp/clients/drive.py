"""Drives an ACP agent with the official Python SDK, as published, and prints what it saw.

Arguments: the agent's command as JSON, a working directory with a folder `other` in it, and the
command of an MCP server as JSON.
"""

import asyncio
import json
import sys
from typing import Any

import acp
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    McpServerStdio,
    RequestPermissionResponse,
    TextContentBlock,
)

COMMAND, CWD, SERVER = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])


class Editor(acp.Client):
    def __init__(self) -> None:
        self.decide = "allow_once"
        self.updates: list[Any] = []
        self.changed = asyncio.Condition()

    async def request_permission(
        self, options: Any, session_id: str, tool_call: Any, **_: Any
    ) -> RequestPermissionResponse:
        option = next(option for option in options if option.kind == self.decide)
        outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        async with self.changed:
            self.updates.append(update)
            self.changed.notify_all()

    async def seen(self, kind: str, status: str | None, start: int) -> None:
        def there() -> bool:
            return any(
                update.session_update == kind and status in (None, getattr(update, "status", None))
                for update in self.updates[start:]
            )

        async with self.changed:
            await self.changed.wait_for(there)


def text(words: str) -> list[TextContentBlock]:
    return [TextContentBlock(type="text", text=words)]


async def cancelled(agent: Any, editor: Editor, id: str, words: str, *when: Any) -> str:
    start = len(editor.updates)
    turn = asyncio.create_task(agent.prompt(session_id=id, prompt=text(words)))
    await asyncio.sleep(0)
    if when:
        await editor.seen(*when, start)
    await agent.cancel(session_id=id)
    return str((await turn).stop_reason)


async def first(agent: Any, editor: Editor, results: dict[str, Any]) -> str:
    opened = await agent.new_session(cwd=CWD, mcp_servers=[])
    id: str = opened.session_id
    results["modes"] = [mode.id for mode in opened.modes.available_modes]
    results["tool"] = (await agent.prompt(session_id=id, prompt=text("tool"))).stop_reason
    editor.decide = "reject_once"
    results["denied"] = (await agent.prompt(session_id=id, prompt=text("tool"))).stop_reason
    editor.decide = "allow_once"
    results["cancelled"] = [
        await cancelled(agent, editor, id, "slow"),
        await cancelled(agent, editor, id, "slow", "agent_message_chunk", None),
        await cancelled(agent, editor, id, "sleep", "tool_call_update", "in_progress"),
    ]
    await agent.set_session_mode(session_id=id, mode_id="yolo")
    changed = await agent.set_config_option(
        session_id=id, config_id="model", value="scripted/scripted"
    )
    results["options"] = [option.id for option in changed.config_options]
    other = (await agent.new_session(cwd=f"{CWD}/other", mcp_servers=[])).session_id
    both = await asyncio.gather(
        *(agent.prompt(session_id=session, prompt=text("hi")) for session in (id, other))
    )
    results["both"] = [turn.stop_reason for turn in both]
    try:
        await agent.prompt(session_id=other, prompt=text("break"))
    except acp.RequestError as error:
        results["failed"] = error.code
    results["listed"] = len((await agent.list_sessions()).sessions)
    await agent.close_session(session_id=other)
    results["remote"] = await remote(agent, editor)
    return id


async def remote(agent: Any, editor: Editor) -> str:
    """What a tool of an MCP server says that the client handed in."""
    server = McpServerStdio(name="other", command=SERVER[0], args=SERVER[1:], env=[])
    id = (await agent.new_session(cwd=CWD, mcp_servers=[server])).session_id
    start = len(editor.updates)
    for _ in range(5):  # a server that starts slowly comes with the next prompt
        await agent.prompt(session_id=id, prompt=text("remote"))
        for update in editor.updates[start:]:
            if getattr(update, "status", None) == "completed":
                return str(update.content)
    return ""


async def main() -> None:
    results: dict[str, Any] = {}
    editor = Editor()
    async with acp.spawn_agent_process(editor, *COMMAND) as (agent, _):
        hello = await agent.initialize(protocol_version=1, client_capabilities=ClientCapabilities())
        results["version"] = hello.protocol_version
        id = await first(agent, editor, results)
    async with acp.spawn_agent_process(editor, *COMMAND) as (agent, _):
        await agent.initialize(protocol_version=1, client_capabilities=ClientCapabilities())
        await agent.resume_session(session_id=id, cwd=CWD, mcp_servers=[])
        results["resumed"] = (await agent.prompt(session_id=id, prompt=text("hi"))).stop_reason
        start = len(editor.updates)
        await agent.load_session(session_id=id, cwd=CWD, mcp_servers=[])
        results["replayed"] = [update.session_update for update in editor.updates[start:]]
    results["kinds"] = sorted({update.session_update for update in editor.updates})
    print(json.dumps(results))


asyncio.run(main())
