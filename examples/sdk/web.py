"""A page that shows an agent at work: events as server-sent events, with Starlette.

pip install starlette uvicorn
PROVIDER=anthropic uvicorn web:app        then open http://127.0.0.1:8000
"""

import json
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route

from zot import AsyncRuntime

PAGE = """<!doctype html><title>zot</title>
<form><input name=prompt size=60 autofocus><button>Ask</button></form><pre id=out></pre>
<script>
document.forms[0].onsubmit = (submit) => {
  submit.preventDefault();
  const out = document.getElementById("out");
  out.textContent = "";
  const prompt = submit.target.prompt.value;
  const events = new EventSource("/ask?prompt=" + encodeURIComponent(prompt));
  events.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (event.type === "text_delta") out.textContent += event.delta;
    if (event.type === "tool_call") out.textContent += "\\n[" + event.name + "]\\n";
    if (event.type === "error") out.textContent += "\\nerror: " + event.message;
    if (event.type === "done") events.close();
  };
};
</script>"""


async def page(request: Request) -> HTMLResponse:
    return HTMLResponse(PAGE)


async def ask(request: Request) -> StreamingResponse:
    return StreamingResponse(stream(request.query_params["prompt"]), media_type="text/event-stream")


async def stream(prompt: str) -> AsyncIterator[str]:
    """One agent for each question. A reader that goes away ends it: leaving the block closes."""
    async with AsyncRuntime(provider=os.environ.get("PROVIDER", ""), no_tools=True) as runtime:
        async for event in runtime.prompt(prompt):
            yield f"data: {json.dumps(event.to_wire())}\n\n"


app = Starlette(routes=[Route("/", page), Route("/ask", ask)])
