"""When the sources of a runtime are asked for what is new."""

import pytest
from support.session import OneModel, SmallTool

from zot.core.agent import Agent
from zot.core.session import Session
from zot.core.source import NEVER, ReadySource
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.scripted import ScriptedProvider
from zot.runtime.client import RuntimeClient
from zot.runtime.runtime import Runtime, RuntimeParts


class Source(ReadySource):
    name = "mine"

    def __init__(self, next_look):
        self.next_look = next_look
        self.asked, self._tools = [], ()

    def start(self, host):
        self.asked.append("start")

    def prepare(self, cancel):
        self.asked.append("prepare")
        self._tools = (SmallTool("late", lambda args, context: "here"),)

    def tools(self):
        return self._tools


@pytest.fixture
def prompted(request):
    """A runtime with such a source, after two prompts; the source."""
    source = Source(request.param)
    provider = ScriptedProvider(["one", "two"])
    agent = Agent(provider=provider, model=MODEL, session=Session())
    runtime = Runtime(
        agent,
        RuntimeParts(
            models=OneModel(provider, MODEL), cwd="/work", client=RuntimeClient(), sources=(source,)
        ),
    )
    for _ in range(2):
        run = runtime.prompt("go")
        assert run.ended.wait(20)
        assert run.stop == "end"
    assert runtime.close(timeout=20)
    return source, [tool.name for request in provider.requests for tool in request.tools]


@pytest.mark.parametrize("prompted", [NEVER], indirect=True)
def test_one_that_never_changes_is_started_once(prompted):
    source, offered = prompted
    assert (source.asked, offered) == (["start"], [])


@pytest.mark.parametrize("prompted", [0.0], indirect=True)
def test_one_that_may_change_is_asked_before_each_run(prompted):
    source, offered = prompted
    assert source.asked == ["start", *["start", "prepare"] * 2]
    assert offered == ["late", "late"]


@pytest.mark.parametrize("prompted", [1e12], indirect=True)
def test_one_that_has_nothing_is_left_alone_until_it_wants_to_look(prompted):
    source, offered = prompted
    assert (source.asked, offered) == (["start"], [])
