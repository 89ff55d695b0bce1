"""A canary in each field of each file that zot reads: none shows up where zot writes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from support.rpc import Zot, make_folder

from zot.mcp.config import OAuthConfig, ServerConfig
from zot.provider.auth.oauth import AuthServer
from zot.provider.auth.store import Credential, KeyCommand, Token
from zot.settings.models import ModelRow, ProviderRow

NO_SECRET = {
    Token: {"token_type", "expiry", "scope", "client_id", "account_id"},
    Credential: set(),
    KeyCommand: {"program"},
    ProviderRow: {"title", "api", "auth", "api_key_env"},
    ModelRow: {"id", "name", "api", "input"},
    AuthServer: {
        *("client_id", "scopes", "body", "callback_host", "callback_path", "redirect_param"),
        *("key_field",),
    },
    ServerConfig: {"command", "name", "origin", "folder", "tools"},
    OAuthConfig: {"client_id", "scopes", "scope", "client_metadata_url", "redirect_uri"},
}
"""Fields of texts that hold no secret; a new field needs a canary below, or a place here."""


def c(name: str) -> str:
    return f"canary-{name.replace('_', '-')}-0001"


def url(name: str) -> str:
    return f"https://user:{c(name)}@127.0.0.1:9/x"


TOKEN = {"access_token": c("access"), "refresh_token": c("refresh"), "id_token": c("identity")}
COMMAND = {"program": "/bin/echo", "args": ["--token", c("argument")]}
AUTH = {
    "anthropic": {"api_key": c("anthropic")},
    "openai": {"oauth": TOKEN},
    "mcp:https://x/": {
        "oauth": {"access_token": c("mcp-access"), "refresh_token": c("mcp-refresh")},
        "details": {"client_secret": c("mcp-client"), "deep": {"other": c("deep")}},
    },
    "additional_api_key_creds": {
        "groq": {"api_key": c("groq"), "base_url": url("auth-url")},
        "xai": {"api_key_command": COMMAND},
        "broken": {"api_key": 5, "details": [], "note": c("beside-a-broken-one")},
    },
}
MODELS = {
    "providers": {
        "mine": {
            "api": "openai-chat",
            "baseUrl": url("provider-url"),
            "apiKey": c("written-key"),
            "headers": {"Authorization": f"Bearer {c('provider-header')}", "X-Odd": c("odd")},
            "compat": {"secret": c("compat")},
            "models": [
                {
                    "id": "m",
                    "baseUrl": url("model-url"),
                    "headers": {"Cookie": f"a={c('cookie-a')}; b={c('cookie-b')}"},
                    "compat": {"token": c("model-compat")},
                }
            ],
        }
    }
}
OAUTH = {
    "mine": {
        "client_secret": c("oauth-client"),
        "params": {"secret": c("param")},
        "token_params": {"assertion_token": c("token-param")},
        **{name: url(name) for name in ("authorize_url", "token_url", "device_url", "issuer")},
        "manual_redirect": url("manual-redirect"),
    }
}
CONFIG = {"base_url": url("config-url"), "some_api_key": c("unknown-setting")}
MCP = {
    "mcpServers": {
        "near": {
            "command": sys.executable,
            "args": ["-c", "0", "--token", c("mcp-argument")],
            "env": {"ANY": c("mcp-variable")},
            "enabled": False,
        },
        "far": {
            "url": url("mcp-url"),
            "headers": {"X-A": c("mcp-header")},
            "oauth": {"client_secret": c("mcp-oauth")},
            "enabled": False,
        },
    }
}
FILES = {
    "auth.json": AUTH,
    "models.json": MODELS,
    "oauth.json": OAUTH,
    "config.json": CONFIG,
    "mcp.json": MCP,
}
ENVIRONMENT = {
    "GITHUB_TOKEN": c("github"),
    "DB_PASSWORD": c("database"),
    "AWS_SECRET_ACCESS_KEY": c("aws"),
    "DATABASE_URL": f"postgres://u:{c('in-a-url')}@h/d",
    "all_proxy": f"http://u:{c('proxy')}@127.0.0.1:9",
}
HUB = c("hub")


def canaries(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from canaries(part)
    elif isinstance(value, list):
        for part in value:
            yield from canaries(part)
    elif isinstance(value, str) and "canary-" in value:
        for part in value.split("canary-")[1:]:
            yield "canary-" + part[: part.index("-0001") + 5]


ALL = {*canaries([*FILES.values(), ENVIRONMENT]), HUB}


def test_every_field_of_every_file_has_a_canary() -> None:
    written = json.dumps([*FILES.values()])
    for struct, exempt in NO_SECRET.items():
        for field in msgspec.structs.fields(struct):
            holds_text = "str" in str(field.type) or "Json" in str(field.type)
            if holds_text and field.name not in exempt:
                assert f'"{field.encode_name}":' in written, f"{struct.__name__}.{field.name}"
    assert len(ALL) > 35


def test_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    make_folder(tmp_path)
    home = tmp_path / "zot-home"
    (home / "swarm").mkdir(parents=True)
    for name, content in FILES.items():
        (home / name).write_text(json.dumps(content))
        (home / name).chmod(0o600)
    (home / "swarm/hub.token").write_text(HUB)
    words = " ".join([*(str(home / name) for name in FILES), str(home / "swarm/hub.token")])
    # As a model that has read them elsewhere would say them, too.
    turns = [
        {"tools": [{"name": "bash", "args": {"command": f"cat {words}; env"}}]},
        {"tools": [{"name": "read", "args": {"path": str(home / "auth.json")}}]},
        {"text": "I saw " + " ".join(sorted(ALL))},
        "ok",
    ]
    args = ["--record", str(tmp_path / "run.tape"), "--durable"]
    args += ["--session", str(tmp_path / "s.jsonl")]
    features = ["mcp", "seq", "sessions", "tools"]
    with Zot(tmp_path, turns, args=args, env=dict(ENVIRONMENT), features=features) as zot:
        zot.prompt("go")
        assert "[secret removed]" in str(zot.frames)
        zot.ask("run_shell", command=f"cat {words}; env")
        for name in ("get_commands", "get_state", "get_models", "get_messages"):
            zot.ask(name)
        zot.ask("export_session", format="html", path=str(tmp_path / "page.html"))
        zot.close()
        places = {"stdout": zot.raw.decode(), "stderr": zot.stderr()}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in {*FILES, "hub.token"} and "script-" not in path.name:
            places[path.name] = path.read_text("utf-8", "replace")
    assert {"s.jsonl", "s.jsonl.events", "run.tape", "page.html"} <= places.keys()
    leaks = {(name, secret) for name, text in places.items() for secret in ALL if secret in text}
    assert leaks == set()
