"""One-time warnings about the selected model: it will be retired soon, is unknown to zot, or always
thinks.
"""

from __future__ import annotations

from collections.abc import Callable

from zot.core.events import Event, ExtensionNotify
from zot.provider.catalog import notices
from zot.provider.model import Level, Model, always_thinks, cannot_be_off


class Notices:
    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def about_model(self, model: Model) -> None:
        for text in notices(model):
            self._once(text)

    def about_level(self, wanted: Level, model: Model) -> None:
        if wanted == "off" and always_thinks(model):
            self._once(cannot_be_off(model))

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(ExtensionNotify("zot", "warn", text))
