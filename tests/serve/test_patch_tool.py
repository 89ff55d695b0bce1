"""GPT models are offered `apply_patch` as a custom tool; all models get strict tools where the
provider has them."""

import json

import pytest
from support.rpc import Zot

from zot.testing.fakeserver import FakeServer
from zot.testing.rules import problems

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch"


@pytest.fixture
def server():
    with FakeServer() as made:
        yield made


def zot(folder, server, provider, *args):
    return Zot(folder, args=["--provider", provider, "--base-url", server.url, *args])


def test_a_patch_is_a_custom_call_and_its_result_says_so(tmp_path, server):
    session = tmp_path / "s.jsonl"
    env = {"AZURE_OPENAI_API_KEY": "sk-canary-0123456789"}
    flags = ["--provider", "azure", "--base-url", server.url, "--session", str(session)]
    script = f"tool:apply_patch:{json.dumps({'input': PATCH})}\nthen\nsay:done"
    with Zot(tmp_path, args=flags, env=env) as process:
        process.prompt(script)
        assert (process.cwd / "a.txt").read_text() == "one\n"
        process.prompt("say:more")
    bodies = [seen.body for seen in server.requests]
    for body in bodies:
        assert problems("responses", body) == []
        tools = {tool["name"]: tool for tool in body["tools"]}
        assert tools["apply_patch"]["type"] == "custom" and "edit" not in tools
        assert tools["apply_patch"]["format"]["syntax"] == "lark"
        assert [name for name in tools if tools[name].get("strict")] == ["bash", "read", "write"]
    (call,) = [item for item in bodies[-1]["input"] if item["type"] == "custom_tool_call"]
    assert call["input"] == PATCH and call["call_id"].startswith("call_")
    # Another model gets it as an ordinary call.
    with zot(tmp_path, server, "anthropic", "--session", str(session)) as process:
        process.prompt("say:of claude")
    body = server.requests[-1].body
    assert problems("anthropic", body) == []
    tools = {tool["name"]: tool for tool in body["tools"]}
    assert [n for n in tools if tools[n].get("strict")] == ["bash", "edit", "read", "write"]
    assert "apply_patch" not in tools


def test_null_for_an_optional_argument_of_a_strict_tool(tmp_path, server):
    env = {"AZURE_OPENAI_API_KEY": "sk-canary-0123456789"}
    flags = ["--provider", "azure", "--base-url", server.url]
    args = {"command": "echo hi", "timeout": None, "background": None}
    with Zot(tmp_path, args=flags, env=env) as process:
        frames = process.prompt(f"tool:bash:{json.dumps(args)}\nthen\nsay:done")
        (result,) = [frame for frame in frames if frame["type"] == "tool_result"]
        assert not result["is_error"]
