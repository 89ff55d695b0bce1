"""When the servers of a file reach the agent, and when they leave it."""

from support.session import SmallTool

from zot.cancel import Cancel
from zot.mcp.source import McpServers
from zot.runtime.sources import Sources


class Configured:
    """Stands for the files: whether they name a server."""

    named = True

    def any(self):
        return self.named

    def jail(self):
        return None


class Served:
    tools = (SmallTool("its", lambda args, context: ""),)
    servers = ()

    def prepare(self, cancel): ...

    def close(self): ...


class Offered:
    """Stands for the agent."""

    hooks = ()
    tools = ()

    def set_tools(self, tools):
        self.tools = tools


def test_a_look_between_a_reload_and_a_prompt_does_not_leave_the_agent_tools_that_are_gone(
    monkeypatch,
):
    monkeypatch.setattr("zot.mcp.servers.McpServerSet", lambda options, host: Served())
    options, agent = Configured(), Offered()
    servers = McpServers(options)
    sources = Sources([servers], agent, object())
    sources.prepare(Cancel())
    assert [tool.name for tool in agent.tools] == ["its"]
    options.named = False
    servers.reload()
    assert servers.servers() == ()  # as `get_state` looks
    sources.prepare(Cancel())
    assert list(agent.tools) == []
