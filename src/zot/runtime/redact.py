"""Keeps known keys out of what tools bring back: `cat auth.json` shows the model, the client and
the session file that there is a key, not which.

A tool's output is the only way a key could get into a conversation: models never see one. What is
not a known key, whatever it looks like, is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from zot.core.tool import Tool, ToolContext, ToolOutput
from zot.errors import AuthError, ToolError
from zot.provider.types import Image, Json, Text

MARK = "[secret removed]"
MIN_LENGTH = 12
"""Shorter ones are no secrets (`ollama`, `none`), and would be found in honest text."""


class Redactor:
    """Knows the keys: those it was given, and those in auth.json now."""

    def __init__(self, given: Iterable[str], home: str) -> None:
        self._given = {value for value in given if len(value) >= MIN_LENGTH}
        self._path = os.path.join(home, "auth.json")
        self._home = home
        self._changed = 0
        self._stored: set[str] = set()

    def secrets(self) -> list[str]:
        """The longest first, so that no part of one stays behind."""
        return sorted(self._given | self._from_file(), key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self.secrets():
            if secret in text:
                text = text.replace(secret, MARK)
        return text

    def value(self, value: Json) -> Json:
        """Texts anywhere inside a JSON value."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {key: self.value(each) for key, each in value.items()}
            case list() | tuple():
                return [self.value(each) for each in value]
            case _:
                return value

    def _from_file(self) -> set[str]:
        try:
            changed = os.stat(self._path).st_mtime_ns
        except OSError:
            return set()
        if changed != self._changed:
            # Deferred, and only again when it changed: a token may be renewed while we run.
            from zot.provider.auth.store import AuthFile

            self._changed = changed
            try:
                self._stored = _texts(AuthFile(self._home).all().values())
            except AuthError:
                self._stored = set()
        return self._stored


class Stream:
    """The same for text that comes in pieces: what may be the beginning of a key is held back."""

    def __init__(self, redactor: Redactor, out: Callable[[str], None]) -> None:
        self._redactor = redactor
        self._out = out
        self._held = ""

    def feed(self, text: str) -> None:
        whole = self._redactor.text(self._held + text)
        keep = max((_overlap(whole, secret) for secret in self._redactor.secrets()), default=0)
        self._held = whole[len(whole) - keep :] if keep else ""
        if shown := whole[: len(whole) - keep]:
            self._out(shown)

    def finish(self) -> None:
        if self._held:
            self._out(self._held)
        self._held = ""


class RedactingTool:
    """A tool whose output passes the redactor."""

    def __init__(self, tool: Tool, redactor: Redactor) -> None:
        self._tool = tool
        self._redactor = redactor

    @property
    def name(self) -> str:
        return self._tool.name

    @property
    def description(self) -> str:
        return self._tool.description

    @property
    def schema(self) -> dict[str, Json]:
        return self._tool.schema

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        stream = Stream(self._redactor, context.progress)
        try:
            output = self._tool.run(args, replace(context, progress=stream.feed))
        except ToolError as error:
            raise ToolError(self._redactor.text(str(error))) from error
        finally:
            stream.finish()
        if isinstance(output, str):
            return self._redactor.text(output)
        content = tuple(self._part(part) for part in output.content)
        details = None if output.details is None else self._redactor.value(output.details)
        return replace(output, content=content, details=details)

    def _part(self, part: Text | Image) -> Text | Image:
        if isinstance(part, Text):
            return replace(part, text=self._redactor.text(part.text))
        return part


def given_secrets(key: str, names: Iterable[str], environ: Mapping[str, str]) -> set[str]:
    """The key in use, and those in the environment."""
    return {key, *(environ.get(name, "").strip() for name in names)}


def _texts(credentials: Iterable[object]) -> set[str]:
    found = set()
    for each in credentials:
        token = getattr(each, "oauth", None)
        values = [getattr(each, "api_key", "")]
        values += [
            getattr(token, name, "") for name in ("access_token", "refresh_token", "id_token")
        ]
        found |= {value for value in values if len(value) >= MIN_LENGTH}
    return found


def _overlap(text: str, secret: str) -> int:
    """How many letters at the end of a text are the beginning of a secret."""
    for length in range(min(len(text), len(secret) - 1), 0, -1):
        if text.endswith(secret[:length]):
            return length
    return 0
