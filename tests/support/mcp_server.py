"""A small MCP server over stdio for tests, of either era, that misbehaves when it is told to.

Run as a program with one word of JSON: {"era": ..., "start": ..., "tools": {...}}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def tool(name: str, about: str, schema: dict | None = None, **more: object) -> dict:
    return {"name": name, "description": about, "inputSchema": schema or {"type": "object"}, **more}


TOOLS = [
    tool(
        "echo", "Says it back", {**TEXT, "required": ["text"]}, annotations={"readOnlyHint": True}
    ),
    tool("write", "Changes something", TEXT),
    tool("image", "A picture"),
    tool("structured", "Facts"),
    tool(
        "slow", "Takes its time", {"type": "object", "properties": {"steps": {"type": "integer"}}}
    ),
    tool("ask", "Asks the user"),
    tool("environ", "Names of its variables"),
    tool("hang", "Never answers"),
    tool("die", "Ends the server"),
    tool("fork", "Leaves processes behind"),
    tool("flood", "Sends many notifications"),
    tool("long", "Sends a line of 100 MB"),
    tool("big", "Prints a lot"),
    tool("fail", "Says that it failed"),
    tool("fault", "Answers with an error"),
    tool("change", "Changes the list of tools"),
    tool("cancelled", "What was cancelled"),
    tool("where", "Its working directory"),
]


class Server:
    def __init__(self, options: dict) -> None:
        self.options = options
        self.era = options.get("era", "legacy")
        self.tools = options.get("tools", TOOLS)
        if "tools_file" in options:  # another list without another configuration
            self.tools = json.loads(Path(options["tools_file"]).read_text())
        self.cancelled: list = []
        self.answers: dict[object, dict] = {}
        self.asked = 0
        self.lines = iter(sys.stdin)

    def send(self, **message: object) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def run(self) -> None:
        for line in self.lines:
            self.handle(json.loads(line))

    def handle(self, message: dict) -> None:
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method is None:
            self.answers[id] = message
        elif method == "notifications/cancelled":
            self.cancelled.append(params["requestId"])
        elif id is not None:
            answer = self.answer(id, method, params)
            if answer is not None:
                self.send(id=id, **answer)

    def answer(self, id: object, method: str, params: dict) -> dict | None:
        if method == "server/discover":
            return self.discover(params)
        if method == "initialize":
            return self.initialize(params)
        if method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            return self.listed(method, params)
        if method == "tools/call":
            return self.call(id, params)
        if method == "prompts/get":
            words = params.get("arguments", {})
            text = f"Prompt with {json.dumps(words, sort_keys=True)}"
            content = {"type": "text", "text": text}
            return {"result": {"messages": [{"role": "user", "content": content}]}}
        if method == "resources/read":
            uri = params["uri"]
            return {"result": {"contents": [{"uri": uri, "text": f"content of {uri}"}]}}
        return {"error": {"code": -32601, "message": f"no {method}"}}

    def discover(self, params: dict) -> dict | None:
        if self.era == "silent":
            return None
        if self.era == "legacy":
            return {"error": {"code": -32601, "message": "Method not found"}}
        if self.era == "newer":
            data = {"supported": ["2999-01-01"]}
            return {"error": {"code": -32022, "message": "Unsupported", "data": data}}
        assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        return {
            "result": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {
                    "tools": {"listChanged": True},
                    "prompts": {},
                    "resources": {},
                },
                "ttlMs": 0,
            }
        }

    def initialize(self, params: dict) -> dict:
        if self.era == "modern":
            return {"error": {"code": -32022, "message": "no handshake", "data": {}}}
        self.dialogs = "elicitation" in params["capabilities"]
        version = self.options.get("version", params["protocolVersion"])
        capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
        info = {"name": "test", "version": "1"}
        return {
            "result": {
                "protocolVersion": version,
                "capabilities": capabilities,
                "serverInfo": info,
                "instructions": self.instructions(),
            }
        }

    def instructions(self) -> str:
        """Given as a word, or in a file that a test changes."""
        path = self.options.get("instructions_file")
        return Path(path).read_text() if path else self.options.get("instructions", "be kind")

    def listed(self, method: str, params: dict) -> dict:
        if method == "tools/list":
            return {"result": self.page(params)}
        if method == "prompts/list":
            arguments = [{"name": "who", "required": True}, {"name": "how"}]
            prompt = {"name": "greet", "description": "Greets", "arguments": arguments}
            return {"result": {"prompts": [prompt]}}
        if method == "resources/list":
            return {"result": {"resources": [{"uri": "test://one", "name": "one"}]}}
        return {"error": {"code": -32601, "message": "no templates"}}

    def page(self, params: dict) -> dict:
        """All in one, one by one, or for ever the same."""
        paging = self.options.get("paging")
        if paging == "one":
            at = int(params.get("cursor", 0))
            more = {"nextCursor": str(at + 1)} if at + 1 < len(self.tools) else {}
            return {"tools": self.tools[at : at + 1], **more}
        if paging == "same":
            return {"tools": self.tools, "nextCursor": "again"}
        if paging == "endless":
            at = int(params.get("cursor", 0))
            return {"tools": [tool(f"t{at}", "x")], "nextCursor": str(at + 1)}
        return {"tools": self.tools}

    def call(self, id: object, params: dict) -> dict | None:
        name, args = params["name"], params.get("arguments") or {}
        work = getattr(self, f"do_{name}", None)
        if work is None:
            return {"error": {"code": -32602, "message": f"Unknown tool: {name}"}}
        result = work(args, id, params)
        if result is None or "error" in result:
            return result
        return {"result": {"resultType": "complete", **result}}

    def do_echo(self, args: dict, id: object, params: dict) -> dict:
        return text(f"you said {args['text']}")

    def do_write(self, args: dict, id: object, params: dict) -> dict:
        return text("written")

    def do_image(self, args: dict, id: object, params: dict) -> dict:
        picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
        bad = {"type": "image", "data": "bm90IGFuIGltYWdl", "mimeType": "image/png"}
        link = {"type": "resource_link", "uri": "test://one", "name": "one"}
        inside = {"type": "resource", "resource": {"uri": "test://two", "text": "two's text"}}
        audio = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
        return {"content": [picture, bad, link, inside, audio, {"type": "new"}, 7]}

    def do_structured(self, args: dict, id: object, params: dict) -> dict:
        return {"content": [], "structuredContent": {"n": 1}}

    def do_meta(self, args: dict, id: object, params: dict) -> dict:
        return text(json.dumps(params.get("_meta", {})))

    def do_slow(self, args: dict, id: object, params: dict) -> dict:
        token = params.get("_meta", {}).get("progressToken")
        for step in range(1, args.get("steps", 3) + 1):
            told = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
            self.send(method="notifications/progress", params=told)
            time.sleep(0.01)
        return text("done")

    def do_ask(self, args: dict, id: object, params: dict) -> dict:
        schema = {
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "Your name"},
                "age": {"type": "integer", "minimum": 1},
                "colour": {"type": "string", "enum": ["red", "green"]},
                "sure": {"type": "boolean"},
                "note": {"type": "string", "default": "none"},
            },
            "required": ["name", "age"],
        }
        question = {"mode": "form", "message": "Who are you?", "requestedSchema": schema}
        if self.era == "modern":
            if "inputResponses" not in params:
                request = {"method": "elicitation/create", "params": question}
                return {
                    "resultType": "input_required",
                    "inputRequests": {"who": request},
                    "requestState": "opaque-7",
                }
            answers = {"state": params["requestState"], **params["inputResponses"]["who"]}
            return text(json.dumps(answers, sort_keys=True))
        if not self.dialogs:
            return text("nobody can be asked")
        self.asked += 1
        self.send(id=f"q{self.asked}", method="elicitation/create", params=question)
        for line in self.lines:
            self.handle(json.loads(line))
            if f"q{self.asked}" in self.answers:
                result = self.answers[f"q{self.asked}"]["result"]
                return text(json.dumps(result, sort_keys=True))
        return text("no answer")

    def do_environ(self, args: dict, id: object, params: dict) -> dict:
        return text(" ".join(sorted(os.environ)))

    def do_where(self, args: dict, id: object, params: dict) -> dict:
        return text(str(Path.cwd()))

    def do_hang(self, args: dict, id: object, params: dict) -> None:
        if token := params.get("_meta", {}).get("progressToken"):
            told = {"progressToken": token, "progress": 0, "message": "it hangs"}
            self.send(method="notifications/progress", params=told)

    def do_die(self, args: dict, id: object, params: dict) -> None:
        sys.stderr.write("first words\nI am dying of thirst\n")
        sys.stderr.flush()
        os._exit(3)

    def do_fork(self, args: dict, id: object, params: dict) -> dict:
        for _ in range(2):
            subprocess.Popen(
                ["sh", "-c", "trap '' TERM; sleep 300"],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        return text("forked")

    def do_run(self, args: dict, id: object, params: dict) -> dict:
        """A command of the shell; not listed unless a test asks for it."""
        words = ["sh", "-c", args["command"]]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return text(f"{done.stdout}{done.stderr}[{done.returncode}]")

    def do_flood(self, args: dict, id: object, params: dict) -> dict:
        for number in range(4_000):
            told = {"level": "info", "data": f"noise {number}"}
            self.send(method="notifications/message", params=told)
        return text("flooded")

    def do_long(self, args: dict, id: object, params: dict) -> None:
        for _ in range(100):
            sys.stdout.write("x" * 1_000_000)
        sys.stdout.write("\n")
        sys.stdout.flush()

    def do_big(self, args: dict, id: object, params: dict) -> dict:
        return text("".join(f"line {number}\n" for number in range(50_000)))

    def do_fail(self, args: dict, id: object, params: dict) -> dict:
        return {**text("it did not work"), "isError": True}

    def do_fault(self, args: dict, id: object, params: dict) -> dict:
        return {"error": {"code": -32000, "message": "broken inside"}}

    def do_cancelled(self, args: dict, id: object, params: dict) -> dict:
        return text(str(len(self.cancelled)))

    def do_change(self, args: dict, id: object, params: dict) -> dict:
        self.tools = [*self.tools, tool("fresh", "Was not there before")]
        self.tools[1] = tool("write", "Changes everything", TEXT)
        self.send(method="notifications/tools/list_changed", params={})
        return text("changed")


def text(words: str) -> dict:
    return {"content": [{"type": "text", "text": words}]}


def main() -> None:
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    match options.get("start"):
        case "hang":
            time.sleep(300)
        case "die":
            sys.stderr.write("cannot find my configuration\n")
            sys.exit(4)
        case "banner":
            print("Welcome to the test server")
        case "noise":
            while True:
                print("this is not JSON")
        case "slow":
            time.sleep(options.get("seconds", 6.0))
    Server(options).run()


if __name__ == "__main__":
    main()
