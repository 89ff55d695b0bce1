"""The model and reasoning level that a runtime uses, and how they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from zot.core.events import ExtensionNotify
from zot.core.session import LevelChange, ModelChange, Session
from zot.errors import ZotError
from zot.provider.catalog import notices
from zot.provider.model import always_thinks, cannot_be_off, clamped, default_level
from zot.provider.types import Level, Model, Models, Provider
from zot.runtime.runs import Runs


class ModelChoice:
    """The model in use, and (as provider.models.Models) those that can be."""

    def __init__(self, runs: Runs, models: Models, changed: Callable[[Model], None]) -> None:
        """`changed` is called with every new model."""
        self._runs = runs
        self._agent = runs.agent
        self._changed = changed
        self.all, self.find = models.all, models.find
        self.connect, self.renew = models.connect, models.renew
        self.initial = (self._agent.model, self._agent.settings.reasoning)
        """Model and level at the start, which new sessions get."""
        self._next: Model | None = None
        self._recorded: tuple[Session, Model, Level] | None = None
        """Last session, model and level that were recorded."""
        self._warned: set[str] = set()
        changed(self._agent.model)

    @property
    def current(self) -> Model:
        """The model of the next run."""
        return self._next or self._agent.model

    @property
    def in_use(self) -> Model:
        """The model of the current run."""
        return self._agent.model

    def set(self, name: str, provider: str = "", *, later: bool = False) -> Model:
        """Switch to another model, of this or another provider: an id, or PROVIDER/ID.

        `later`: during a prompt, the switch takes effect after it.

        Raises:
            BusyError: a run is in flight; nothing changes.
            ConfigError: there is no such model; nothing changes.
            AuthError: its provider has no credential; nothing changes.
        """
        if not later:
            self._runs.check_idle("set_model")
        model = self.find(name, provider or self.current.provider)
        same = model == self._agent.model
        connected = self._agent.provider if same else self.connect(model)

        def use() -> None:
            self._agent.session.append(ModelChange(model.provider, model.id))
            self._next = None
            self._put(connected, model)

        try:
            if later:
                self._next = model
                self._runs.when_idle(use)
            else:
                with self._runs.idle("set_model"):
                    use()
        except ZotError:
            if not same:
                connected.close()
            raise
        self._warn_once(notices(model))
        return model

    def reconnect(self) -> bool:
        """Use a new credential of the model's provider, after a login; False: it is unchanged.

        Raises:
            BusyError: a run is in flight; nothing changes.
            AuthError: there is none any more.
        """
        with self._runs.idle("reconnect"):
            model = self._agent.model
            if not self.renew(model.provider):
                return False
            self._put(self.connect(model), model)
            return True

    def set_reasoning(
        self, level: Level, *, while_busy: bool = False, clamp: bool = False
    ) -> Level:
        """Set the reasoning level from the next model call on; `clamp`: limit it to the model's
        range. Return the effective level.

        Raises:
            BusyError: a run is in flight, and not `while_busy`; nothing changes.
        """
        model = self.current
        if level == "off" and always_thinks(model):
            warnings: Sequence[str] = (cannot_be_off(model),)
        else:
            warnings = ()
        level = clamped(level, model) if clamp else level
        with self._runs.lock if while_busy else self._runs.idle("set_reasoning"):
            self._agent.session.append(LevelChange(level))
            self.change_settings(reasoning=level)
        self._warn_once(warnings)
        return clamped(level, model) if level == "off" else level

    def change_settings(self, **changes: Any) -> None:
        """Set fields of the agent's settings; effective from the next model call."""
        with self._runs.lock:
            self._agent.settings = replace(self._agent.settings, **changes)

    def record(self) -> None:
        """Record the model and level in use, however chosen. Raises SessionError."""
        agent = self._agent
        choice = agent.session, agent.model, agent.settings.reasoning
        if self._recorded != choice:
            session, model, level = choice
            session.note_use(model.provider, model.id, level, default_level(model.provider))
            self._recorded = choice

    def last_of(self, session: Session) -> Model | None:
        """Return the model that a session used last; None: none, or it no longer exists."""
        last = session.last_model
        if last is None:
            return None
        provider, id = last
        if (provider, id) == (self._agent.model.provider, self._agent.model.id):
            return self._agent.model
        try:
            return self.find(id, provider)
        except ZotError:
            return None

    def adopt(self, model: Model | None, level: Level | None) -> None:
        """Use a session's model and level; keep the current ones for None, and for a model that is
        no longer available."""
        if level is not None:
            self.change_settings(reasoning=level)
        if model is None or model == self._agent.model:
            return
        try:
            provider = self.connect(model)
        except ZotError:
            return
        with self._runs.lock:
            self._put(provider, model)

    def _put(self, provider: Provider, model: Model) -> None:
        before = self._agent.provider
        self._agent.set_model(provider, model)
        self._changed(model)
        if before is not provider:
            before.close()

    def _warn_once(self, texts: Sequence[str]) -> None:
        for text in texts:
            if text not in self._warned:
                self._warned.add(text)
                self._runs.tell(ExtensionNotify("zot", "warn", text))
