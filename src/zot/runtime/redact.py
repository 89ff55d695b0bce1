"""Keeps known keys out of what tools and models say: `cat auth.json` shows the model, the client
and the session file that there is a key, not which. What is not a known key, whatever it looks
like, is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core.source import LOOK_AGAIN
from zot.core.tool import (
    Reconciled,
    Tool,
    ToolContext,
    ToolOutput,
    WrappedTool,
    can_reconcile,
    is_side_by_side,
    replay_of,
)
from zot.errors import AuthError, ProviderError, ToolError
from zot.provider import types
from zot.provider.models import Models
from zot.text import SecretFilter, mapped, without_secrets

Delta = types.TextDelta | types.ReasoningDelta | types.ToolCallArgs
_DELTAS = (types.TextDelta, types.ReasoningDelta, types.ToolCallArgs)
_LOOKED_BEFORE = (types.Started, types.Finished)
"""Beside deltas. When a call starts, all is known that its request could make the server say; the
look is taken while it thinks."""

MIN_LENGTH = 12
"""Shorter ones may be words (`ollama`, `none`), which would be found in honest text."""
MIN_MIXED = 8
"""For what has letters and digits: that is no word."""


class Redactor:
    """Knows the keys: those it was given, and those in auth.json now."""

    def __init__(self, values: Iterable[str], home: str) -> None:
        self._given = {value for value in values if _is_secret(value)}
        self._path = os.path.join(home, "auth.json")
        self._home = home
        self._changed = 0
        self._stored: set[str] = set()
        self._known: set[str] = set()
        self._secrets: tuple[str, ...] = ()
        self._next_look = 0.0

    def secrets(self) -> tuple[str, ...]:
        """The longest first, so that no part of one stays behind. The very same as the last time
        if nothing changed."""
        secrets = self._given | self._from_file()
        if secrets != self._known:
            self._secrets = tuple(sorted(secrets, key=len, reverse=True))
            self._known = secrets  # last: who finds it here finds the others too
        self._next_look = monotonic() + LOOK_AGAIN
        return self._secrets

    def secrets_lately(self) -> tuple[str, ...]:
        """The same, as they were a moment ago: for who asks often. A token may just have been
        renewed."""
        return self.secrets() if self._next_look < monotonic() else self._secrets

    def text(self, text: str) -> str:
        return without_secrets(text, self.secrets())

    def value(self, value: types.Json) -> types.Json:
        """Texts anywhere inside a JSON value, the names of fields too."""
        return _value_without(value, self.secrets())

    def _from_file(self) -> set[str]:
        try:
            changed = os.stat(self._path).st_mtime_ns
        except OSError:
            return set()
        if changed != self._changed:
            # Deferred, and only again when it changed: a token may be renewed while we run.
            self._changed = changed
            try:
                from zot.provider.auth import store

                self._stored = _texts(store.AuthFile(self._home).all().values())
            except AuthError:
                self._stored = set()
        return self._stored


class RedactedStream:
    """The same for whoever has a function to call with what can be shown."""

    def __init__(self, redactor: Redactor, out: Callable[[str], None]) -> None:
        self._redactor = redactor
        self._out = out
        self._pieces = SecretFilter()

    def feed(self, text: str) -> None:
        self._pieces.use(self._redactor.secrets())
        if shown := self._pieces.feed(text):
            self._out(shown)

    def finish(self) -> None:
        if rest := self._pieces.rest():
            self._out(rest)


class RedactingModels:
    """The same models; what they say passes the redactor."""

    def __init__(self, models: Models, redactor: Redactor) -> None:
        self.find, self.all, self.renew = models.find, models.all, models.renew
        self._connect = models.connect
        self._redactor = redactor

    def connect(self, model: types.Model) -> types.Provider:
        return RedactingProvider(self._connect(model), self._redactor)


class RedactingProvider:
    """A model whose words pass the redactor: a key that a server echoes, or that the model read
    where zot could not see it. The arguments of a call stay as they are: what runs is what was
    asked for, and what a person is asked about.
    """

    def __init__(self, provider: types.Provider, redactor: Redactor) -> None:
        self._provider = provider
        self._redactor = redactor
        self.name, self.close = provider.name, provider.close

    def look_ahead(self, request: types.Request) -> None:
        if (ahead := getattr(self._provider, "look_ahead", None)) is not None:
            ahead(request)

    def stream(self, request: types.Request, cancel: Cancel) -> Iterator[types.StreamEvent]:
        pieces, look = SecretFilter(), self._redactor.secrets
        kind: type[types.StreamEvent] | None = None
        told: Delta | None = None
        try:
            stream = self._provider.stream(request, cancel)
            try:
                for event in stream:
                    if type(event) is not kind:
                        if told is not None and (rest := pieces.rest()):
                            yield _with_text(told, rest)
                        kind = type(event)
                        told = event if kind in _DELTAS else None  # type: ignore[assignment]
                        if told is not None or kind in _LOOKED_BEFORE:
                            pieces.use(look())
                            # The first look is a real one: the key of this very request may be new.
                            look = self._redactor.secrets_lately
                    if told is None:
                        if kind is types.Finished and pieces.secrets:
                            event = _redacted(event, pieces.secrets)  # type: ignore[arg-type]
                        yield event
                        continue
                    told = event  # type: ignore[assignment]  # of the same kind; a cast is a call
                    text = told.delta if kind is types.ToolCallArgs else told.text  # type: ignore[union-attr]
                    shown = pieces.feed(text)
                    if shown is text:
                        yield event
                    elif shown:
                        yield _with_text(told, shown)
            finally:
                stream.close()  # type: ignore[attr-defined]  # a generator: it frees the connection
        except ProviderError as error:
            error.args = (self._redactor.text(str(error)),)
            raise


def _redacted(event: types.Finished, secrets: Sequence[str]) -> types.Finished:
    content = tuple([_redacted_block(block, secrets) for block in event.content])
    return event if content == event.content else replace(event, content=content)


def _redacted_block(block: types.Block, secrets: Sequence[str]) -> types.Block:
    if not isinstance(block, types.Text | types.Reasoning):
        return block
    text = without_secrets(block.text, secrets)
    if text == block.text:
        return block
    # What the server signed is not what it gets back: without a signature, it is left out.
    return (
        types.Text(text)
        if isinstance(block, types.Text)
        else replace(block, text=text, opaque=None)
    )


def _with_text(delta: Delta, text: str) -> Delta:
    if isinstance(delta, types.ToolCallArgs):
        return types.ToolCallArgs(delta.id, text)
    return type(delta)(text)


class RedactingTool(WrappedTool):
    """A tool whose output passes the redactor."""

    def __init__(self, tool: Tool, redactor: Redactor) -> None:
        super().__init__(tool)
        self.replay, self.side_by_side = replay_of(tool), is_side_by_side(tool)
        self._redactor = redactor

    def run(self, args: dict[str, types.Json], context: ToolContext) -> ToolOutput | str:
        stream = RedactedStream(self._redactor, context.progress)
        try:
            output = self._tool.run(args, replace(context, progress=stream.feed))
        except ToolError as error:
            raise type(error)(self._redactor.text(str(error))) from error
        finally:
            stream.finish()
        return self._redacted(output)

    def reconcile(self, args: dict[str, types.Json], context: ToolContext) -> Reconciled:
        if not can_reconcile(self._tool):
            return Reconciled("unknown")
        outcome = self._tool.reconcile(args, context)
        return replace(outcome, output=self._redacted(outcome.output))

    def _redacted(self, output: ToolOutput | str) -> ToolOutput | str:
        secrets = self._redactor.secrets()
        if isinstance(output, str):
            return without_secrets(output, secrets)
        content = tuple(
            types.Text(without_secrets(part.text, secrets))
            if isinstance(part, types.Text)
            else part
            for part in output.content
        )
        details = None if output.details is None else _value_without(output.details, secrets)
        return replace(output, content=content, details=details)


def given_secrets(key: str, names: Iterable[str], environ: Mapping[str, str]) -> set[str]:
    """The key in use, and those in the environment."""
    return {key, *(environ.get(name, "").strip() for name in names)}


def _texts(credentials: Iterable[object]) -> set[str]:
    secrets: set[str] = set()
    for credential in credentials:
        token = getattr(credential, "oauth", None)
        values = [getattr(credential, "api_key", "")]
        values += [
            getattr(token, name, "") for name in ("access_token", "refresh_token", "id_token")
        ]
        secrets |= {value for value in values if _is_secret(value)}
    return secrets


def _is_secret(text: str) -> bool:
    if len(text) >= MIN_LENGTH:
        return True
    mixed = any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    return mixed and len(text) >= MIN_MIXED


def _value_without(value: types.Json, secrets: Sequence[str]) -> types.Json:
    return mapped(value, lambda leaf: without_secrets(leaf, secrets) if type(leaf) is str else leaf)
