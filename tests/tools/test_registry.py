import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.tools import call, none_left, text

from tests.support.around import tools_at
from zot.core.check import problem
from zot.errors import ConfigError, ToolError
from zot.runtime.prompt import system_prompt
from zot.tools.registry import SharedSupervisor

ALL = ["read", "write", "edit", "bash", "glob", "grep"]


def test_all_tools_in_the_order_of_their_definition() -> None:
    assert [tool.name for tool in tools_at("/")] == ALL


def test_chosen_tools_keep_that_order() -> None:
    assert [tool.name for tool in tools_at("/", ["grep", "read"])] == ["read", "grep"]
    assert tools_at("/", []) == []


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown tool 'reed'; the built-in tools are: read, wri"):
        tools_at("/", ["read", "reed"])


def test_every_schema_is_a_plain_object_and_every_description_short() -> None:
    for tool in tools_at("/"):
        assert tool.schema["type"] == "object"
        assert set(tool.schema["required"]) <= set(tool.schema["properties"])
        assert len(tool.description) < 220
        assert problem({}, tool.schema) is not None


def test_each_tool_works_from_the_registry(tmp_path: Path) -> None:
    supervisor = SharedSupervisor()
    tools = {tool.name: tool for tool in tools_at(str(tmp_path), supervisor=supervisor)}
    try:
        assert "created f" in text(call(tools["write"], path="f", content="hello\n"))
        assert text(call(tools["read"], path="f")) == "hello\n"
        assert "+bye" in text(
            call(tools["edit"], path="f", edits=[{"oldText": "hello", "newText": "bye"}])
        )
        assert "\nbye\n" in text(call(tools["bash"], command="cat f"))
        assert text(call(tools["glob"], pattern="*")) == "f"
        assert text(call(tools["grep"], pattern="b.e")) == "f:1: bye"
    finally:
        supervisor.close()


def test_after_closing_no_command_runs() -> None:
    supervisor = SharedSupervisor()
    supervisor.close()
    [bash] = tools_at("/", ["bash"], supervisor=supervisor)
    with pytest.raises(ToolError, match="closed"):
        call(bash, command="true")


def test_the_registry_loads_no_tool_and_nothing_heavy() -> None:
    code = (
        "import sys; from zot.tools.registry import SharedPlace, builtin_tools\n"
        "builtin_tools(SharedPlace('/', {}))\n"
        "print(*sorted(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(said.stdout.split())
    heavy = {"subprocess", "socket", "difflib", "pathlib", "tempfile", "ctypes", "asyncio", "json"}
    bare = subprocess.run(
        [sys.executable, "-c", "import sys, msgspec; print(*sorted(sys.modules))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not loaded & heavy - set(bare.stdout.split())
    assert {name for name in loaded if name.startswith("zot.tools.")} == {
        "zot.tools.registry",
        "zot.tools.process",
        "zot.tools.process.background",
    }


def test_the_helper_ends_with_a_host_that_never_closes_it() -> None:
    marker = f"zot-test-{os.urandom(6).hex()}"
    code = (
        "import sys\nfrom pathlib import Path\nfrom zot.cancel import Cancel\n"
        "from zot.tools.process.supervisor import Supervisor\n"
        "Supervisor().run(['/bin/sh', '-c', 'echo $PPID; sleep 300 &'], Path('/'),"
        "{'PATH': '/bin:/usr/bin', 'M': sys.argv[1]}, lambda data: print(data.decode()), Cancel())"
    )
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, marker], capture_output=True, timeout=60
    )
    assert said.stdout.strip()
    assert none_left(marker)


def test_the_documentation_names_every_tool_and_argument() -> None:
    page = (Path(__file__).parents[2] / "docs/tools.md").read_text().partition("\n## ")[0]
    rows = {line.split("`")[1]: line for line in page.split("\n") if line.startswith("| `")}
    assert list(rows) == ALL
    for tool in tools_at("/"):
        for name in tool.schema["properties"]:
            required = name in tool.schema["required"]
            assert f"`{name}`{'*' if required else ''}" in rows[tool.name]
            assert required == (f"`{name}`*" in rows[tool.name])


def test_prompt_and_tools_stay_below_five_kilobytes(tmp_path: Path) -> None:
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in tools_at("/")
    ]
    prompt = system_prompt(cwd="/work", home=tmp_path, context_files=False)
    assert len(json.dumps([prompt, tools])) < 5000
