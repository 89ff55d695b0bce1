"""Questions of servers, and about servers, to the user.

They use ExtensionAsk, like those of extensions, and are answered by `answer`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core import check
from zot.core.events import ExtensionAsk
from zot.core.source import CANCELLED, PersonAnswer, SourceHost, UnansweredQuestions
from zot.errors import ConfigError
from zot.mcp.config import check_address
from zot.mcp.protocol import visible_text
from zot.provider.types import Json
from zot.text import printable

SECONDS = 300.0
MAX_FIELDS = 30
MAX_OPEN = 32
MAX_TRIES = 3
Method = Literal["confirm", "select", "input"]


class McpDialogs(UnansweredQuestions[Callable[[PersonAnswer], None]]):
    """The open questions; those that nobody can answer, or answers in time, are cancelled."""

    def __init__(self, host: SourceHost | None = None) -> None:
        """Without a host nobody can be asked."""
        super().__init__()
        self._host = host
        self._ids = count(1 if host is None else host.questions_before + 1)

    def can_ask(self) -> bool:
        return self._host is not None and self._host.can_answer("dialog")

    def open(self, question: ExtensionAsk, take: Callable[[PersonAnswer], None]) -> str:
        """Ask without waiting; `take` receives the answer in the thread that delivers it. Return
        the id of the question; empty when it cannot be asked."""
        host, id = self._host, f"mcp-ask-{next(self._ids)}"
        with self._lock:
            if host is None or not self.can_ask() or len(self._open) >= MAX_OPEN:
                return ""
            self._open[id] = take
        host.show(replace(question, id=id))
        return id

    def ask(self, question: ExtensionAsk, cancel: Cancel) -> PersonAnswer:
        """Ask, and wait for the answer. Raises Cancelled."""
        answered = threading.Event()
        answers: list[PersonAnswer] = []

        def take(answer: PersonAnswer) -> None:
            answers.append(answer)
            answered.set()

        id = self.open(question, take)
        if not id:
            return CANCELLED
        with cancel.calling(answered.set):
            answered.wait(SECONDS)
        with self._lock:
            self._open.pop(id, None)
        cancel.check()
        return answers[0] if answers else CANCELLED

    def close(self) -> None:
        with self._lock:
            waiting, self._open = self._open, {}
        for take in waiting.values():
            take(CANCELLED)


def question_of(
    server: str, method: Method, title: str, message: str, field: FormField | None = None
) -> ExtensionAsk:
    """Build a question of a server, or about one; optionally for a form field."""
    shown = printable(visible_text(message))[:4_000]
    name = f"mcp:{server}"
    ask = ExtensionAsk(title, shown, id="", extension=name, method=method, timeout=SECONDS)
    return ask if field is None else replace(ask, options=field.options, prefill=field.prefill)


class ServerDialogs:
    """The questions of one server."""

    def __init__(self, dialogs: McpDialogs, server: str) -> None:
        self._dialogs = dialogs
        self._server = server

    def can_ask(self) -> bool:
        return self._dialogs.can_ask()

    def elicit(self, params: Json, cancel: Cancel) -> dict[str, Json]:
        """Return the answer to `elicitation/create`, whatever the user does."""
        request = params if isinstance(params, dict) else {}
        message = str(request.get("message", ""))
        if request.get("mode") == "url":
            return self._open_page(message, str(request.get("url", "")), cancel)
        schema = request.get("requestedSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict) or not properties:
            confirmed = self._ask("confirm", message, cancel)
            return _action(confirmed, {})
        required = schema.get("required") if isinstance(schema, dict) else ()
        needed = required if isinstance(required, list) else []
        return self._fields(message, properties, needed, cancel)

    def _open_page(self, message: str, url: str, cancel: Cancel) -> dict[str, Json]:
        try:
            check_address("/".join(url.split("/", 3)[:3]))  # only scheme and host
        except ConfigError:
            return {"action": "decline"}
        answer = self._ask("confirm", f"{message}\nOpen this page to go on: {url}", cancel)
        return _action(answer, None)

    def _fields(
        self, message: str, properties: dict[str, Json], required: list[Json], cancel: Cancel
    ) -> dict[str, Json]:
        content: dict[str, Json] = {}
        for name, raw in list(properties.items())[:MAX_FIELDS]:
            field = FormField(name, raw if isinstance(raw, dict) else {}, name in required)
            try:
                value = self._field(message, field, cancel)
            except ValueError:
                return {"action": "cancel"}
            if value is not None:
                content[name] = value
        return {"action": "accept", "content": content}

    def _field(self, message: str, field: FormField, cancel: Cancel) -> Json:
        """Ask for one field, and again while the value is invalid. Raises ValueError: no answer."""
        question = f"{message}\n{field.label}"
        for _ in range(MAX_TRIES):
            answer = self._ask(field.method, question, cancel, field)
            if answer.cancelled:
                break
            try:
                return field.value(answer)
            except ValueError as error:
                question = f"{message}\n{field.label}\n{error}"
        raise ValueError("no answer")

    def _ask(
        self, method: Method, message: str, cancel: Cancel, field: FormField | None = None
    ) -> PersonAnswer:
        title = f"The MCP server {self._server!r} asks"
        return self._dialogs.ask(question_of(self._server, method, title, message, field), cancel)


def _action(answer: PersonAnswer, content: dict[str, Json] | None) -> dict[str, Json]:
    if answer.cancelled:
        return {"action": "cancel"}
    if not answer.confirmed:
        return {"action": "decline"}
    return {"action": "accept"} if content is None else {"action": "accept", "content": content}


class FormField:
    """A form field: how to ask for it, and how to parse the answer."""

    def __init__(self, name: str, schema: dict[str, Json], required: bool) -> None:
        self._schema = schema
        self._required = required
        self._kind = schema.get("type", "string")
        choices = _choices(schema)
        self._values = dict(choices)
        self.options = tuple(label for label, _ in choices)
        self.method: Method = "input"
        if self.options and self._kind != "array":
            self.method = "select"
        elif self._kind == "boolean":
            self.method = "confirm"
        about = [str(schema[key]) for key in ("title", "description") if schema.get(key)]
        if self._kind == "array":
            about.append(f"some of, with commas: {', '.join(self.options)}")
        self.label = f"{name}: {' - '.join(about)}" if about else name
        self.label += "" if required else " (may be left empty)"
        default = schema.get("default")
        self.prefill = "" if default is None else str(default)

    def value(self, answer: PersonAnswer) -> Json:
        """Return the field's value; None: leave it out. Raises ValueError, which says what is
        wrong."""
        if self._kind == "boolean":
            return answer.confirmed
        text = (answer.value or "").strip()
        if not text:
            default = self._schema.get("default")
            if self._required and default is None:
                raise ValueError("it is needed")
            return default
        value = self._parsed(text)
        schema: dict[str, Any] = {"type": "object", "properties": {"it": self._schema}}
        if wrong := check.problem({"it": value}, schema):
            raise ValueError(wrong)
        return value

    def _parsed(self, text: str) -> Json:
        match self._kind:
            case "integer" | "number":
                try:
                    return msgspec.json.decode(text)
                except msgspec.DecodeError:
                    raise ValueError(f"{text!r:.80} is no number") from None
            case "array":
                words = [word.strip() for word in text.split(",") if word.strip()]
                return [self._values.get(word, word) for word in words]
            case _:
                return self._values.get(text, text)


def _choices(schema: dict[str, Json]) -> list[tuple[str, str]]:
    """Return the choices as (label, value) pairs."""
    inner = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(inner, dict):
        return []
    titled = inner.get("oneOf") or inner.get("anyOf")
    if isinstance(titled, list):
        pairs = [item for item in titled if isinstance(item, dict) and "const" in item]
        return [(str(item.get("title") or item["const"]), str(item["const"])) for item in pairs]
    values = inner.get("enum")
    if not isinstance(values, list):
        return []
    names = inner.get("enumNames")
    labels = names if isinstance(names, list) and len(names) == len(values) else values
    return [(str(label), str(value)) for label, value in zip(labels, values, strict=True)]
