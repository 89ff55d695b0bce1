"""Requests and clients for tests of the model clients."""

from __future__ import annotations

from contextlib import contextmanager

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.provider import catalog
from zot.provider.client import connect
from zot.provider.providers import PROVIDERS
from zot.provider.types import Message, Model, Origin, Request, Text, ToolSpec, Usage

BASH = ToolSpec(
    "bash",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
READ = ToolSpec(
    "read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)
# One provider for each API, as a user would choose it.
BY_API = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai-responses",
    "google": "google",
}
KEY = "sk-canary-0123456789"


def model_of(provider: str, **changes) -> Model:
    model = catalog.default_model(provider) or catalog.find(provider, "some-model")
    return replace(model, **changes) if changes else model


def user(*blocks) -> Message:
    return Message("user", tuple(Text(b) if isinstance(b, str) else b for b in blocks), 0.0)


def assistant(model: Model, *blocks, stop="end") -> Message:
    origin = Origin(model.provider, model.id, model.api, stop, Usage())
    return Message("assistant", tuple(blocks), 0.0, origin)


def tool(*results) -> Message:
    return Message("tool", tuple(results), 0.0)


def ask(model: Model, *messages, tools=(BASH, READ), **fields) -> Request:
    said = tuple(user(m) if isinstance(m, str) else m for m in messages)
    return Request(model, "be brief", said, tools, **fields)


@contextmanager
def client(provider: str, url: str, key: str = KEY, **options):
    made = connect(PROVIDERS[provider], model_of(provider), key, url, **options)
    try:
        yield made
    finally:
        made.close()


def run(made, request, cancel=None):
    """All events of a call, as far as it came, and the error that ended it."""
    events = []
    try:
        for event in made.stream(request, cancel or Cancel()):
            events.append(event)
    except Exception as error:
        return events, error
    return events, None
