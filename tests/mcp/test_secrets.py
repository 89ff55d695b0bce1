"""A canary in each field that holds a secret of a server: none shows up where zot writes."""

import base64
import sys
from pathlib import Path

import pytest
from support.mcp import configure
from support.rpc import Zot, make_folder

from zot.mcp.config import parse_server, secrets_of
from zot.provider.auth.store import AuthFile, Credential, Token

ECHO = """
import json, os, sys
names = [name for name in os.environ if "canary" in os.environ[name]]
said = " ".join([*sys.argv[1:], *(f"{name}={os.environ[name]}" for name in names)])
def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
print("log: " + said, file=sys.stderr, flush=True)
schema = {"type": "object", "properties": {"x": {"type": "string", "description": said}}}
tool = {"name": "say", "description": "Says " + said, "inputSchema": schema}
for line in sys.stdin:
    frame = json.loads(line)
    match frame.get("method"):
        case "initialize":
            answer(frame["id"], {"protocolVersion": "2025-06-18",
                   "serverInfo": {"name": said, "version": "1"},
                   "capabilities": {"tools": {}, "prompts": {}}, "instructions": "I am " + said})
        case "tools/list":
            answer(frame["id"], {"tools": [tool]})
        case "prompts/list":
            answer(frame["id"], {"prompts": [{"name": "p", "description": said}]})
        case "prompts/get":
            text = {"type": "text", "text": "prompt " + said}
            answer(frame["id"], {"messages": [{"role": "user", "content": text}]})
        case "tools/call":
            answer(frame["id"], {"content": [{"type": "text", "text": "here: " + said}]})
        case _ if "id" in frame:
            print(json.dumps({"jsonrpc": "2.0", "id": frame["id"],
                  "error": {"code": -32601, "message": "no " + said}}), flush=True)
"""

ENV = "canary-env-0001"
EXPANDED = "canary-expanded-0002"
FLAG = "canary-flag-0003"
EQUALS = "canary-equals-0004"
IN_URL = "canary-password-0005"
HEADER = "canary-header-0006"
CUSTOM = "canary-custom-0007"
BASIC = "canary-basic-0008"
QUERY = "canary-query-0009"
OAUTH = "canary-oauth-0010"
REFRESH = "canary-refresh-0011"
CLIENT = "canary-client-0012"
HUB = "canary-hub-token-0013"
PROXY = "canary-proxy-0015"
ALL = (ENV, EXPANDED, FLAG, EQUALS, IN_URL, HEADER, CUSTOM, BASIC, QUERY, OAUTH, REFRESH, CLIENT)
ALL += (HUB, PROXY)


def plant(folder: Path) -> None:
    home = folder / "zot-home"
    home.mkdir(parents=True, exist_ok=True)
    program = folder / "echo.py"
    program.write_text(ECHO)
    args = [str(program), "--token", FLAG, f"--api-key={EQUALS}", f"db://u:{IN_URL}@h/x"]
    env = {"SOME_VALUE": ENV, "SERVICE_TOKEN": "${OUTSIDE}", "MODE": "production"}
    pair = base64.b64encode(f"user:{BASIC}".encode()).decode()
    far = {
        "url": f"https://127.0.0.1:9/mcp?api_key={QUERY}",
        "headers": {
            "Authorization": f"Bearer {HEADER}",
            "X-Custom": CUSTOM,
            "X-B": f"Basic {pair}",
        },
        "oauth": {"client_secret": CLIENT},
        "enabled": True,
    }
    near = {"command": sys.executable, "args": args, "env": env}
    configure(home / "mcp.json", near=near, far=far)
    AuthFile(str(home)).put("mcp:https://x/", Credential(oauth=Token(OAUTH, REFRESH)))
    (home / "swarm").mkdir()
    (home / "swarm" / "hub.token").write_text(HUB)


def written_by_zot(folder: Path) -> dict[str, str]:
    """Every file in the folder, but for those that hold the secrets themselves."""
    own = {"mcp.json", "auth.json", "hub.token"}
    return {
        str(path): path.read_text("utf-8", "replace")
        for path in folder.rglob("*")
        if path.is_file() and path.name not in own and not path.name.startswith("script-")
    }


def test_no_secret_of_a_server_is_written_anywhere(tmp_path: Path) -> None:
    make_folder(tmp_path)
    plant(tmp_path)
    home, tape = tmp_path / "zot-home", tmp_path / "run.tape"
    files = " ".join(str(home / name) for name in ("mcp.json", "auth.json"))
    # As a model that has read them elsewhere would say them, too.
    turns = [
        {"tools": [{"name": "mcp__near__say", "args": {}}]},
        {"tools": [{"name": "bash", "args": {"command": f"cat {files} {home}/swarm/hub.token"}}]},
        {"text": "I saw " + " ".join(ALL)},
        "ok",
    ]
    env = {"OUTSIDE": EXPANDED, "HTTPS_PROXY": f"http://u:{PROXY}@127.0.0.1:9"}
    args = ["--record", str(tape), "--durable", "--session", str(tmp_path / "s.jsonl")]
    features = ["mcp", "seq", "sessions", "tools"]
    with Zot(tmp_path, turns, args=args, env=env, features=features) as zot:
        zot.prompt("go")
        result = next(f for f in zot.frames if f["type"] == "tool_result")
        assert "here: --token [secret removed]" in str(result)
        zot.ask("run_shell", command=f"cat {files}; echo {' '.join(ALL)}")
        zot.ask("get_commands")
        zot.ask("run_command", name="mcp:near:p", args="")
        zot.ask("get_messages")
        zot.ask("export_session", format="html", path=str(tmp_path / "page.html"))
        zot.close()
        shown = zot.raw.decode()
    assert "production" in shown
    places = {"stdout": shown, **written_by_zot(tmp_path)}
    places.pop(str(tmp_path / "echo.py"))
    leaks = {(name, secret) for name, text in places.items() for secret in ALL if secret in text}
    assert leaks == set()


@pytest.mark.parametrize(
    ("entry", "secrets"),
    [
        ({"headers": {"Authorization": "Bearer abc", "Accept": "x"}}, {"Bearer abc", "abc"}),
        ({"env": {"NODE_ENV": "production", "AWS_REGION": "eu-central-1", "HOME": "/a"}}, set()),
        ({"env": {"LOG_LEVEL": "debug,info", "DATA": "/srv/data", "A_URL": "http://h/"}}, set()),
        ({"env": {"GH_PAT": "x y", "DSN": "pg://u:p%40w@h/d"}}, {"x y", "p%40w", "p@w"}),
        ({"env": {"ANY": "v"}}, {"v"}),
        ({"args": ["--token", "t", "--verbose", "-p", "8", "--key=k"]}, {"t", "k"}),
        ({"args": ["-H", "X-A: one", "--header=X-B: two", "pkg@1.2.3"]}, {"one", "two"}),
        ({"args": ["--password", "--verbose", "ab12cd34ef56gh78"]}, {"ab12cd34ef56gh78"}),
        ({"url": "https://h/s/aB3dE5gH7jK9mN1p/m?q=1&sig=s"}, {"aB3dE5gH7jK9mN1p", "s"}),
        ({"oauth": {"client_secret": "c"}}, {"c"}),
        ({"headers": {"Cookie": "a=1; b=2"}}, {"a=1; b=2", "b=2", "1", "2"}),
        ({"headers": {"X": 'Digest u="x", r="y"'}}, {'Digest u="x", r="y"', 'u="x", r="y"', *"xy"}),
        ({"args": ["--cookie", "a=1;b=2"]}, {"a=1;b=2", "1", "2"}),
        ({"env": {"DB_NAME": "Server=h;Password=p"}}, {"p"}),
    ],
)
def test_a_value_is_a_secret_by_where_it_stands(entry: dict, secrets: set[str]) -> None:
    whole = {} if "url" in entry else {"command": "x"}
    server = parse_server("a", {**whole, **entry}, "user", "/")
    assert secrets_of(server) - {""} == secrets


def test_a_short_or_ordinary_value_stays_in_honest_text(tmp_path: Path) -> None:
    env = {"FLAG": "1", "STAGE": "production", "PLACE": "eu-west"}
    near = {"command": sys.executable, "env": env, "args": ["-c", "0"]}
    make_folder(tmp_path)
    configure(tmp_path / "zot-home" / "mcp.json", near=near)
    turns = [{"tools": [{"name": "bash", "args": {"command": "echo 1 production eu-west"}}]}, "ok"]
    with Zot(tmp_path, turns) as zot:
        result = next(f for f in zot.prompt() if f["type"] == "tool_result")
        assert "1 production eu-west" in str(result)
