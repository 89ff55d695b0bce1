"""Removes known keys from the output of tools and models: after `cat auth.json`, the model, the
client and the session file see that there is a key, but not its value. Text that is not a known key
is left alone, whatever it looks like.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zot.cancel import Cancel
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
from zot.files import read_bytes
from zot.provider import types
from zot.provider.keys import split_keys
from zot.provider.types import Models
from zot.text import Frozen, SecretFilter, compiled, mapped, url_passwords, without_secrets

if TYPE_CHECKING:
    from collections.abc import Generator

AnyStruct = TypeVar("AnyStruct", bound=Struct)
Delta = types.TextDelta | types.ReasoningDelta | types.ToolCallArgs

MIN_LENGTH = 12
"""Minimum length of a secret: shorter ones may be words (`ollama`, `none`) in ordinary text."""
MIN_MIXED = 8
"""Minimum length of a secret with letters and digits, which is not a word."""
RECHECK_SECONDS = 0.25
"""Seconds after which `recent_secrets` looks at the files again."""
SECRET_VARIABLE = compiled(
    r"(?i)token|secret|passw|credential|(^|_)(api_?|access_?|private_?)?key(_id)?$|(^|_)pat$"
)
"""Names of the user's own variables whose values no model may see."""
NOT_SECRET = ("token_type", "expiry", "scope", "client_id", "account_id", "program", "args")
"""Fields of auth.json that hold no secret; `args` may do so after a word like `--token`."""
MAX_SEEN = 500
"""Number of secrets remembered for each set of files."""
_seen: dict[tuple[str, ...], dict[str, None]] = {}
"""Secrets that files had since this process began, newest last, by the paths of the files."""
_seen_lock = threading.Lock()


# --- the secrets -----------------------------------------------------------------------------


class SecretFile(Frozen):
    """Files that hold secrets; read again when one of them changes."""

    paths: tuple[str, ...]
    read: Callable[[], Iterable[str]]
    """Reader; may raise ZotError or OSError, which counts as no secrets."""


class Redactor:
    """Known secrets: given values, and those that auth.json and other files have or had since this
    process began. A replaced token may still be valid, and stands in backups and old output."""

    def __init__(self, values: Iterable[str], home: str, files: Iterable[SecretFile] = ()) -> None:
        self._given = frozenset(filter(is_secret, _with_parts(values)))
        auth_file = SecretFile((os.path.join(home, "auth.json"),), lambda: _stored_secrets(home))
        self._files = (auth_file, *files)
        self._read: dict[SecretFile, tuple[object, frozenset[str]]] = {}
        """Fingerprint and secrets of each file, when it was read last."""
        self._known: frozenset[str] = frozenset()
        self._secrets: tuple[str, ...] = ()
        self._checked_at = 0.0

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets, longest first, so that no part of one stays behind. Always current: a
        token may be renewed while we run. The same tuple object as before if nothing changed."""
        known = self._given.union(*map(self._from_file, self._files))
        if known != self._known:
            self._secrets = tuple(sorted(known, key=len, reverse=True))
            self._known = known  # set last: threads that see it then read `_secrets`
        self._checked_at = time.monotonic()
        return self._secrets

    def recent_secrets(self) -> tuple[str, ...]:
        """Return the secrets of a moment ago, for the many events of one answer."""
        if time.monotonic() - self._checked_at < RECHECK_SECONDS:
            return self._secrets
        return self.secrets()

    def text(self, text: str) -> str:
        return without_secrets(text, self.secrets())

    def value(self, value: types.Json) -> types.Json:
        """Redact all strings in a JSON value, including field names."""
        return _value_without(value, self.secrets())

    def struct(self, thing: AnyStruct) -> AnyStruct:
        """Redact an event or another struct; return the same object if nothing changes."""
        secrets = self.secrets()
        fields = {name: getattr(thing, name) for name in thing.__struct_fields__}
        clean = {name: _field_without(value, secrets) for name, value in fields.items()}
        return thing if clean == fields else replace(thing, **clean)

    def _from_file(self, file: SecretFile) -> frozenset[str]:
        now = tuple(map(_fingerprint, file.paths))
        before, secrets = self._read.get(file, (None, frozenset()))
        if now != before:
            try:
                found = set(filter(is_secret, _with_parts(file.read()))) if any(now) else set()
            except (ZotError, OSError):
                found = set()
            secrets = _remember(file.paths, found)
            self._read[file] = now, secrets
        return secrets


def _remember(paths: tuple[str, ...], found: set[str]) -> frozenset[str]:
    """Add the secrets of these files to the ones they had before, and return all of them."""
    with _seen_lock:
        seen = _seen.setdefault(paths, {})
        for secret in found:
            seen.pop(secret, None)
            seen[secret] = None
        while len(seen) > max(MAX_SEEN, len(found)):
            del seen[next(iter(seen))]
        return frozenset(seen)


def _with_parts(values: Iterable[str]) -> Iterator[str]:
    """Yield the values, and each of several keys in one of them."""
    for value in values:
        yield value
        if "," in value:
            yield from split_keys(value)


def is_secret(text: str) -> bool:
    """Whether a value is long or odd enough to be removed wherever it occurs."""
    mixed = any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    return len(text) >= (MIN_MIXED if mixed else MIN_LENGTH)


def read_token(path: str) -> list[str]:
    """Return the words of a small file that holds only secrets. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(64 * 1024).split()


def given_secrets(key: str, names: Iterable[str], environ: Mapping[str, str]) -> set[str]:
    """Return the key in use, and the secrets in the environment: variables of these names, and
    others whose names say so; passwords in addresses."""
    secrets = {key, *(environ.get(name, "").strip() for name in names)}
    for name, value in environ.items():
        if "://" in value:
            secrets |= set(url_passwords(value))
        elif SECRET_VARIABLE.search(name) and not value.startswith(("/", "~", ".")):
            secrets.add(value.strip())
    return secrets


def _fingerprint(path: str) -> tuple[int, ...]:
    """Return numbers that change with the file; empty: no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _stored_secrets(home: str) -> set[str]:
    """Read auth.json as it is: one credential that zot cannot use does not hide the others."""
    data = read_bytes(os.path.join(home, "auth.json"))
    try:
        return set(_secrets_of(msgspec.json.decode(data) if data else None, ""))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return set()


def _secrets_of(value: types.Json, name: str) -> Iterator[str]:
    """Yield every text of a part of auth.json, except those that are known to be no secret."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _secrets_of(part, key)
    elif isinstance(value, list):
        from zot.secret_values import argument_secrets  # only of a command that prints the key

        yield from argument_secrets([part for part in value if isinstance(part, str)])
    elif isinstance(value, str) and "://" in value:
        yield from url_passwords(value)
    elif isinstance(value, str) and name not in NOT_SECRET:
        yield value


def _value_without(value: types.Json, secrets: Sequence[str]) -> types.Json:
    return mapped(value, lambda leaf: without_secrets(leaf, secrets) if type(leaf) is str else leaf)


def _field_without(value: object, secrets: Sequence[str]) -> object:
    """Redact a struct's field: unlike in JSON, its tuples stay tuples."""
    if isinstance(value, tuple):
        return tuple([_field_without(part, secrets) for part in value])
    return _value_without(value, secrets)


class RedactedStream:
    """Redacts a stream of text pieces and passes the result to a callback."""

    def __init__(self, redactor: Redactor, out: Callable[[str], None]) -> None:
        self._redactor = redactor
        self._out = out
        self._filter = SecretFilter()

    def feed(self, text: str) -> None:
        self._filter.use(self._redactor.secrets())
        if shown := self._filter.feed(text):
            self._out(shown)

    def finish(self) -> None:
        if rest := self._filter.rest():
            self._out(rest)


# --- models ----------------------------------------------------------------------------------


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
            events = cast(
                "Generator[types.StreamEvent]", self._provider.stream(request, cancel)
            )  # closing it frees the connection
            with closing(events):
                for event in events:
                    yield from answer.take(event)
        except ProviderError as error:
            error.args = (self._redactor.text(str(error)),)
            raise


class RedactedAnswer:
    """The events of one answer, without secrets.

    A secret may be split over several deltas. The end of a delta that may be the start of a secret
    is held back until the next delta of its kind, or until an event of another kind.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._filter = SecretFilter()
        self._begun = False
        self._last: Delta | None = None
        """The last delta, if the filter may hold back a part of it."""

    def take(self, event: types.StreamEvent) -> list[types.StreamEvent]:
        """Return the events that can be shown now."""
        shown: list[types.StreamEvent] = []
        if self._last is None or not _continues(self._last, event):
            if self._last is not None and (rest := self._filter.rest()):
                shown.append(_with_text(self._last, rest))
            self._last = None
            # The request may have renewed a token, so the first look is a real one.
            redactor = self._redactor
            self._filter.use(redactor.recent_secrets() if self._begun else redactor.secrets())
            self._begun = True
        if isinstance(event, Delta):
            self._last = event
            text = event.delta if isinstance(event, types.ToolCallArgs) else event.text
            clean = self._filter.feed(text)
            if clean or not text:
                shown.append(event if clean is text else _with_text(event, clean))
        else:
            shown.append(self._finished(event) if isinstance(event, types.Finished) else event)
        return shown

    def _finished(self, event: types.Finished) -> types.Finished:
        content = list(event.content)
        for place, block in enumerate(content):
            if isinstance(block, types.Text | types.Reasoning):
                text = without_secrets(block.text, self._filter.secrets)
                if text != block.text:
                    # The text no longer matches the server's signature; unsigned reasoning is left
                    # out of requests.
                    content[place] = replace(block, text=text, opaque=None)
        return event if tuple(content) == event.content else replace(event, content=tuple(content))


def _continues(last: Delta, event: types.StreamEvent) -> bool:
    """Whether the event adds to the text of the last delta."""
    if isinstance(event, types.ToolCallArgs):
        return isinstance(last, types.ToolCallArgs) and last.id == event.id
    return type(event) is type(last)


def _with_text(delta: Delta, text: str) -> Delta:
    if isinstance(delta, types.ToolCallArgs):
        return types.ToolCallArgs(delta.id, text)
    return type(delta)(text)


# --- tools -----------------------------------------------------------------------------------


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
        if isinstance(output, str):
            return self._redactor.text(output)
        return replace(
            output,
            content=tuple([self._redactor.struct(part) for part in output.content]),
            details=self._redactor.value(output.details),
        )
