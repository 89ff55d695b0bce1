"""Many agents at once in one asyncio program: each with its own transcript, all side by side.

many_agents.py PROMPT...        PROVIDER: the provider, default what is found
"""

import asyncio
import os
import sys

from zot import AsyncRuntime, events


async def work(number: int, prompt: str) -> str:
    """One agent; cancelling the task stops it and leaves nothing behind."""
    text = ""
    async with AsyncRuntime(provider=os.environ.get("PROVIDER", ""), no_tools=True) as runtime:
        async for event in runtime.prompt(prompt):
            if isinstance(event, events.TextDelta):
                text += event.delta
            elif isinstance(event, events.Error):
                text += f" (error: {event.message})"
    return f"{number}: {text}"


async def main() -> None:
    tasks = [work(number, prompt) for number, prompt in enumerate(sys.argv[1:], 1)]
    for finished in asyncio.as_completed(tasks):
        print(await finished, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: many_agents.py PROMPT...")
    asyncio.run(main())
