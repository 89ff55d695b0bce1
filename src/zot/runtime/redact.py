"""Removes known keys from the output of tools and models: after `cat auth.json`, the model, the
client and the session file see that there is a key, but not its value. Text that is not a known key
is left alone, whatever it looks like.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from msgspec import Struct
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
from zot.errors import ProviderError, ToolError, ZotError
from zot.provider import types
from zot.provider.types import Models
from zot.text import Frozen, SecretFilter, mapped, without_secrets

AnyStruct = TypeVar("AnyStruct", bound=Struct)
Delta = types.TextDelta | types.ReasoningDelta | types.ToolCallArgs

MIN_LENGTH = 12
"""Minimum length of a secret: shorter ones may be words (`ollama`, `none`) in ordinary text."""
MIN_MIXED = 8
"""Minimum length of a secret with letters and digits, which is not a word."""


class SecretFile(Frozen):
    """Files that hold secrets; read again when one of them changes."""

    paths: tuple[str, ...]
    read: Callable[[], Iterable[str]]
    """Reader; may raise ZotError or OSError, which counts as no secrets."""


class Redactor:
    """Known secrets: given values, those now in auth.json, and those of other files."""

    def __init__(self, values: Iterable[str], home: str, files: Iterable[SecretFile] = ()) -> None:
        self._given = {value for value in values if _is_secret(value)}
        self._home = home
        stored = SecretFile((os.path.join(home, "auth.json"),), self._from_auth_file)
        self._files = (stored, *files)
        self._seen: dict[SecretFile, tuple[object, frozenset[str]]] = {}
        self._known: set[str] = set()
        self._secrets: tuple[str, ...] = ()
        self._next_look = 0.0

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets, longest first, so that no part of one stays behind. The same tuple
        object as before if nothing changed."""
        secrets = self._given.union(*map(self._from_file, self._files))
        if secrets != self._known:
            self._secrets = tuple(sorted(secrets, key=len, reverse=True))
            self._known = secrets  # set last: threads that see it then read `_secrets`
        self._next_look = monotonic() + LOOK_AGAIN
        return self._secrets

    def secrets_lately(self) -> tuple[str, ...]:
        """Like secrets(), but cached for LOOK_AGAIN seconds; may miss a token renewed just now."""
        return self.secrets() if self._next_look < monotonic() else self._secrets

    def text(self, text: str) -> str:
        return without_secrets(text, self.secrets())

    def value(self, value: types.Json) -> types.Json:
        """Redact all strings in a JSON value, including field names."""
        return _value_without(value, self.secrets())

    def struct(self, thing: AnyStruct) -> AnyStruct:
        """Redact an event or another struct; return the same object if nothing changes."""
        secrets = self.secrets()
        changes: dict[str, object] = {}
        for name in thing.__struct_fields__:
            value = getattr(thing, name)
            clean = _field_without(value, secrets)
            if clean != value:
                changes[name] = clean
        return replace(thing, **changes) if changes else thing

    def _from_file(self, file: SecretFile) -> frozenset[str]:
        now = tuple(map(_state_of, file.paths))
        before, texts = self._seen.get(file, (None, frozenset()))
        if now != before:
            # Re-read only after a change: a token may be renewed while we run.
            try:
                texts = frozenset(filter(_is_secret, file.read())) if any(now) else frozenset()
            except (ZotError, OSError):
                texts = frozenset()
            self._seen[file] = now, texts
        return texts

    def _from_auth_file(self) -> set[str]:
        from zot.provider.auth import store  # only when the file exists

        return _texts(store.AuthFile(self._home).all().values())


def _state_of(path: str) -> tuple[int, ...]:
    """Return a fingerprint of a file that changes with it; empty: no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_token(path: str) -> list[str]:
    """Return the words of a small file that holds only secrets. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(64 * 1024).split()


class RedactedStream:
    """Redacts a stream of text pieces and passes the result to a callback."""

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
    """Models whose output is redacted."""

    def __init__(self, models: Models, redactor: Redactor) -> None:
        self.find, self.all, self.renew = models.find, models.all, models.renew
        self._connect = models.connect
        self._redactor = redactor

    def connect(self, model: types.Model) -> types.Provider:
        return RedactingProvider(self._connect(model), self._redactor)


class RedactingProvider:
    """A provider whose output is redacted: a server may echo a key, or the model may have read one
    where zot could not see it. Arguments of calls stay unchanged: what runs is what was requested,
    and what a person approves.
    """

    def __init__(self, provider: types.Provider, redactor: Redactor) -> None:
        self._provider = provider
        self._redactor = redactor
        self.name, self.close = provider.name, provider.close

    def stream(self, request: types.Request, cancel: Cancel) -> Iterator[types.StreamEvent]:
        answer = RedactedAnswer(self._redactor)
        try:
            stream = self._provider.stream(request, cancel)
            try:
                for event in stream:
                    yield from answer.take(event)
            finally:
                stream.close()  # type: ignore[attr-defined]  # a generator: it frees the connection
        except ProviderError as error:
            error.args = (self._redactor.text(str(error)),)
            raise


class RedactedAnswer:
    """The events of one answer, without secrets.

    A secret may be split over several deltas. The end of a delta that may be the start of a secret
    is held back until the next delta of its kind, or until an event of another kind.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._look = redactor.secrets  # the first look is a real one: this request's key may be new
        self._look_again = redactor.secrets_lately
        self._filter = SecretFilter()
        self._last: Delta | None = None
        """The last delta, if the filter may hold back a part of it."""

    def take(self, event: types.StreamEvent) -> Iterator[types.StreamEvent]:
        """Return the events that can be shown now."""
        last = self._last
        if last is None or not _continues(last, event):
            if last is not None and (rest := self._filter.rest()):
                yield _with_text(last, rest)
            self._last = None
            self._filter.use(self._look())
            self._look = self._look_again
        match event:
            case types.TextDelta() | types.ReasoningDelta():
                yield from self._delta(event, event.text)
            case types.ToolCallArgs():
                yield from self._delta(event, event.delta)
            case types.Finished():
                yield _redacted(event, self._filter.secrets)
            case _:
                yield event

    def _delta(self, delta: Delta, text: str) -> Iterator[types.StreamEvent]:
        self._last = delta
        shown = self._filter.feed(text)
        if shown is text:
            yield delta
        elif shown:
            yield _with_text(delta, shown)


def _continues(last: Delta, event: types.StreamEvent) -> bool:
    """Whether the event adds to the text of the last delta."""
    if isinstance(event, types.ToolCallArgs):
        return isinstance(last, types.ToolCallArgs) and last.id == event.id
    return type(event) is type(last)


def _redacted(event: types.Finished, secrets: Sequence[str]) -> types.Finished:
    content = tuple([_redacted_block(block, secrets) for block in event.content])
    return event if content == event.content else replace(event, content=content)


def _redacted_block(block: types.Block, secrets: Sequence[str]) -> types.Block:
    if not isinstance(block, types.Text | types.Reasoning):
        return block
    text = without_secrets(block.text, secrets)
    if text == block.text:
        return block
    # The text no longer matches the server's signature; unsigned reasoning is left out of requests.
    return replace(block, text=text, opaque=None)


def _with_text(delta: Delta, text: str) -> Delta:
    if isinstance(delta, types.ToolCallArgs):
        return types.ToolCallArgs(delta.id, text)
    return type(delta)(text)


class RedactingTool(WrappedTool):
    """A tool whose output is redacted."""

    def __init__(self, tool: Tool, redactor: Redactor) -> None:
        super().__init__(tool)
        self.replay, self.side_by_side = replay_of(tool), is_side_by_side(tool)
        self._redactor = redactor

        # A server's tool descriptions go into every request.
        self.description = redactor.text(tool.description)
        schema = redactor.value(tool.schema)
        self.schema = schema if schema != tool.schema else tool.schema

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


def password_in(url: str) -> str:
    """Return the password of a URL like `http://user:password@host`; empty: none."""
    user = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return user.partition(":")[2]


def given_secrets(key: str, names: Iterable[str], environ: Mapping[str, str]) -> set[str]:
    """Return the key in use, and those in the environment."""
    return {key, *(environ.get(name, "").strip() for name in names)}


def _texts(credentials: Iterable[object]) -> set[str]:
    secrets: set[str] = set()
    for credential in credentials:
        token = getattr(credential, "oauth", None)
        values = [getattr(credential, "api_key", "")]
        values += [
            getattr(token, name, "") for name in ("access_token", "refresh_token", "id_token")
        ]
        details = getattr(credential, "details", {})
        values += [text for text in (details.get("client_secret"),) if isinstance(text, str)]
        secrets |= {value for value in values if _is_secret(value)}
    return secrets


def _is_secret(text: str) -> bool:
    if len(text) >= MIN_LENGTH:
        return True
    mixed = any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    return mixed and len(text) >= MIN_MIXED


def _field_without(value: object, secrets: Sequence[str]) -> object:
    if isinstance(value, str):
        return without_secrets(value, secrets)
    if isinstance(value, tuple):
        return tuple(_field_without(part, secrets) for part in value)
    return _value_without(value, secrets) if isinstance(value, dict | list) else value


def _value_without(value: types.Json, secrets: Sequence[str]) -> types.Json:
    return mapped(value, lambda leaf: without_secrets(leaf, secrets) if type(leaf) is str else leaf)
