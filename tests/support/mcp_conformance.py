"""The client that the official conformance suite drives: zot's own, with a person who says yes.

Run by the suite with the address of its server as the last word; see tests/mcp/test_conformance.py.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import urllib.request

from zot.cancel import Cancel
from zot.core.tool import ToolContext
from zot.errors import McpError, ToolError
from zot.mcp.config import parse_server
from zot.mcp.dialogs import McpDialogs, PersonAnswer
from zot.mcp.server import McpServer, ServerParts
from zot.mcp.store import ServerStore
from zot.mcp.tool import McpTool

METADATA = "https://conformance-test.local/client-metadata.json"


class Person(McpDialogs):
    """Accepts every question as it stands."""

    def can_ask(self) -> bool:
        return True

    def ask(self, question, cancel):
        first = question.options[0] if question.options else ""
        return PersonAnswer(value=question.prefill or first, confirmed=True)


def browse(url: str) -> None:
    """What a browser does: ask for the page, and follow it back to us."""

    def visit() -> None:
        try:
            urllib.request.urlopen(url, timeout=10).read()
        except OSError as error:
            sys.stderr.write(f"browser: {error}\n")

    threading.Thread(target=visit, daemon=True).start()


def main() -> int:
    url, scenario = sys.argv[-1], os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    home = tempfile.mkdtemp()
    own = {"client_metadata_url": METADATA}
    if "client_id" in context and "private_key_pem" not in context:
        own = {"client_id": context["client_id"], "client_secret": context.get("client_secret", "")}
    config = parse_server("test", {"url": url, "timeout": 20, "oauth": own}, "user", home)
    parts = ServerParts(home, os.environ, (), ServerStore(home), Person(), show_page=browse)
    server = McpServer(config, parts)
    try:
        return drive(server, scenario)
    except (McpError, ToolError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        server.close()


def drive(server: McpServer, scenario: str) -> int:
    server.connection(Cancel())
    server.wait_done(time.monotonic() + 30, Cancel())
    if server.error:
        raise McpError(server.error)
    tools = {info.name: info for info in server.tools()}
    for name, args in calls(tools, scenario):
        context = ToolContext("1", Cancel(), lambda text: None)
        output = McpTool(server, tools[name], lambda text: text).run(args, context)
        sys.stderr.write(f"{name}: {output}\n")
    return 0


def calls(tools: dict, scenario: str) -> list[tuple[str, dict]]:
    """What the suite wants to be called: what it says, or every tool with some arguments."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if scenario == "json-schema-ref-no-deref":
        return []
    if scenario == "json-schema-2020-12-preservation":
        return [("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].schema})]
    if "toolCalls" in context:
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    return [(name, arguments(info.schema)) for name, info in tools.items()]


def arguments(schema: dict) -> dict:
    """Values for every argument of a schema."""
    values = {"string": "text", "integer": 5, "number": 3, "boolean": True}
    made = {}
    for name, part in schema.get("properties", {}).items():
        kind = part.get("type")
        made[name] = arguments(part) if kind == "object" else values.get(kind)
    return {name: value for name, value in made.items() if value is not None}


if __name__ == "__main__":
    sys.exit(main())
