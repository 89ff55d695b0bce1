"""A runtime in this process, with a scripted model and small tools, for tests of the loop."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from support.patience import PATIENCE

from zot.core import events
from zot.core.agent import Agent, AgentSettings
from zot.core.session import Session
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import SessionError
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.retry import RetryPolicy
from zot.provider.scripted import ScriptedProvider
from zot.provider.types import Message, Text, ToolCall, ToolResult
from zot.runtime.client import RuntimeClient
from zot.runtime.runtime import Runtime, RuntimeParts

FAST = RetryPolicy(first_delay=0.001, max_delay=0.002)


class SmallTool:
    """A tool made of one function of its arguments and context."""

    def __init__(self, name, run, schema=None):
        self.name = name
        self.description = f"The tool {name}."
        self.schema = schema or {"type": "object"}
        self._run = run
        self.calls = []

    def run(self, args, context: ToolContext) -> ToolOutput | str:
        self.calls.append(args)
        return self._run(args, context)


class OneModel:
    """The models of a runtime that has only one."""

    def __init__(self, provider, model=MODEL):
        self.provider, self.model = provider, model

    def find(self, name, provider):
        return self.model

    def all(self, provider=""):
        return [self.model]

    def connect(self, model):
        return self.provider

    def renew(self, provider):
        return False


class Recorder(RuntimeClient):
    """A runtime, its client, and everything it told."""

    def __init__(self, turns: Sequence, *, model=MODEL, store=None, session=None, **options):
        settings = {"retry": FAST, **options.pop("settings", {})}
        listeners = tuple(options.pop("listeners", ()))
        self.provider = options.pop("provider", None) or ScriptedProvider(turns)
        self.session = session or Session(store=store)
        self.agent = Agent(
            provider=self.provider,
            model=model,
            session=self.session,
            settings=AgentSettings(**settings),
            **options,
        )
        self.events = []
        self.runs = []
        self.block_on = None
        """An event of threading that the client waits for before it takes an event."""
        self._news = threading.Condition()
        self.models = OneModel(self.provider, model)
        self.runtime = Runtime(
            self.agent,
            RuntimeParts(
                models=self.models,
                cwd="/work",
                client=self,
                listeners=listeners,
            ),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.runtime.close(timeout=PATIENCE)

    def wait(self, cancel):
        if self.block_on is not None:
            self.block_on.wait(PATIENCE)

    def listen(self, event, run):
        with self._news:
            self.events.append(event)
            self.runs.append(run)
            self._news.notify_all()

    def wait_for(self, kind, count=1):
        """Until that many events of a kind were told."""

        def there():
            return sum(isinstance(event, kind) for event in self.events) >= count

        with self._news:
            assert self._news.wait_for(there, PATIENCE), self.events[-10:]

    def prompt(self, text="go", **options):
        """Run a prompt to its end: its events, and what its run says."""
        start = len(self.events)
        run = self.runtime.prompt(text, **options)
        assert run.ended.wait(PATIENCE)
        return self.events[start:], run

    def compact(self, instructions=""):
        start = len(self.events)
        run = self.runtime.compact(instructions)
        assert run.ended.wait(PATIENCE)
        return self.events[start:], run

    @property
    def requests(self):
        return self.provider.requests


class FullDisk:
    """A store that fails at the appends of these numbers, and keeps the rest."""

    def __init__(self, *fail_at, sync_fails=False):
        self.fail_at = set(fail_at)
        self.count = 0
        self.sync_fails = sync_fails
        self.entries = []

    def append(self, entry):
        self.count += 1
        if self.count in self.fail_at:
            raise SessionError("cannot write: no space left on device")
        self.entries.append(entry)

    def sync(self):
        if self.sync_fails:
            raise SessionError("cannot sync: input/output error")

    def close(self):
        pass


def kinds(told) -> list[str]:
    return [type(event).__name__ for event in told]


def of(told, kind) -> list:
    return [event for event in told if isinstance(event, kind)]


def said(told) -> str:
    return "".join(event.text for event in told if isinstance(event, events.TextDelta))


def last_turn_end(told):
    return of(told, events.TurnEnd)[-1]


def valid(messages: Sequence[Message]) -> bool:
    """Whether a provider would take these messages: each call one result, right after it."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        calls = [b for b in message.content if isinstance(b, ToolCall)]
        results = [b.call_id for b in message.content if isinstance(b, ToolResult)]
        if message.role == "tool":
            if results != waiting or not waiting or len(results) != len(message.content):
                return False
            waiting = []
            continue
        if waiting or results or (calls and message.role != "assistant") or not message.content:
            return False
        waiting = [call.id for call in calls]
        if "" in waiting or len({*waiting}) != len(waiting) or seen & {*waiting}:
            return False
        seen |= {*waiting}
    return not waiting


def user(text: str) -> Message:
    return Message("user", (Text(text),), 1.0)


def assistant(text: str = "", *calls: ToolCall) -> Message:
    blocks = (Text(text),) if text else ()
    return Message("assistant", (*blocks, *calls), 2.0)


def results(*ids: str) -> Message:
    return Message("tool", tuple(ToolResult(id, (Text("out"),), name="tool") for id in ids), 3.0)


def call(id: str, name: str = "tool") -> ToolCall:
    return ToolCall(id, name, {})
