"""Splits a small model's answer while it streams: text for people, a call for the agent loop.

Calls that the model writes into its text, in any known markup, are used when calls are allowed and
dropped when they are not. Raw markup never reaches a reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from zot.local.form import Form
from zot.provider.types import Json
from zot.text import Frozen

MARKERS = (
    "```json",
    "```JSON",
    "[TOOL]",
    "<tool_call>",
    "<tools>",
    "<|im_start|>",
    '{"',
    "{ ",
    "{\n",
)
"""Texts that may begin a call inside an answer."""
CALL_STARTS = ('{"tool":"', '{"name":"')
_LEAD = re.compile(r"(?:```(?:json|JSON)|\[TOOL\]|<tool_call>|<tools>|<\|im_start\|>)?\s*")


class SpokenCall(Frozen):
    """A call in its flat form."""

    name: str
    args: dict[str, Json]


class Speech:
    """Parser of one answer. `feed` returns text that may be shown at once; `finish` the rest."""

    def __init__(self, forms: Mapping[str, Form]) -> None:
        self._forms = forms
        self._held = ""
        self._empty = True

    @property
    def is_call(self) -> bool:
        """Whether the whole answer is one call: it began with a brace."""
        return self._empty and self._held.lstrip().startswith("{")

    @property
    def held(self) -> str:
        return self._held

    def feed(self, delta: str) -> str:
        self._held += delta
        if self._empty and (not self._held.strip() or self.is_call):
            return ""
        shown = ""
        while self._held:
            at = _first_marker(self._held)
            shown += self._held[:at]
            self._held = self._held[at:]
            if not self._held or _could_be_call(self._held):
                break
            shown += self._held[0]
            self._held = self._held[1:]
        if shown:
            self._empty = False
        return shown

    def finish(self) -> tuple[str, SpokenCall | None]:
        """Return the text held back, or the call in it."""
        held, self._held = self._held, ""
        call = find_call(held, self._forms)
        if call is not None:
            return "", call
        return held, None


def find_call(text: str, forms: Mapping[str, Form]) -> SpokenCall | None:
    """Return the call in a piece of markup: zot's form, or the usual name and arguments."""
    lead = _LEAD.match(text)
    body = text[lead.end() if lead else 0 :]
    flat = _first_object(body)
    if flat is None:
        return None
    name = flat.get("tool", flat.get("name"))
    if not isinstance(name, str) or name not in forms:
        return None
    arguments = flat.get("arguments", flat.get("parameters"))
    if "tool" not in flat and isinstance(arguments, dict):
        return SpokenCall(name, forms[name].args(arguments))
    if "tool" in flat:
        return SpokenCall(name, forms[name].args(flat))
    return None


def _first_object(text: str) -> dict[str, Json] | None:
    """Return the JSON object at the start of a text."""
    if not text.startswith("{"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _first_marker(text: str) -> int:
    """Return the first position of a marker, or of one cut off at the end; else the length."""
    places = [at for marker in MARKERS if (at := text.find(marker)) >= 0]
    if places:
        return min(places)
    longest = max(len(marker) for marker in MARKERS)
    for at in range(max(0, len(text) - longest), len(text)):
        if any(marker.startswith(text[at:]) for marker in MARKERS):
            return at
    return len(text)


def _could_be_call(text: str) -> bool:
    if any(marker.startswith(text) for marker in MARKERS):
        return True
    lead = _LEAD.match(text)
    body = re.sub(r"\s", "", text[lead.end() if lead else 0 :])
    return any(body.startswith(start[: len(body)]) for start in CALL_STARTS)
