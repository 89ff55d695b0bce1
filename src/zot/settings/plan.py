"""The inputs of a runtime's start: the setup, a session to resume, and an optional wrapping.

Part of stage one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.home import Surroundings
from zot.settings.options import Options
from zot.settings.resolve import Setup, resolve, working_directory
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.core.events import Event
    from zot.core.session import Session
    from zot.core.tool import Tool
    from zot.provider.models import Models

HOLDER_SECONDS = 5.0
"""Seconds a durable runtime's start waits for a process that still holds the session."""


class Wrapping:
    """Layer between an agent and its models and tools. Does nothing by default; testing/record.py
    records their answers, or replays them.
    """

    replays = False
    """Whether answers are replayed: no tool runs."""
    listeners: tuple[Callable[[Event, object], None], ...] = ()
    """Callbacks that receive every event."""

    def models(self, models: Models) -> Models:
        return models

    def tool(self, tool: Tool) -> Tool:
        return tool


BARE = Wrapping()


class Plan(Frozen):
    setup: Setup
    session: Session | None = None
    """The session to resume; None: start a new one."""
    wrapping: Wrapping = BARE


def plan(options: Options, around: Surroundings) -> Plan:
    """Resolve the setup. The session is looked up once, so that model and transcript come from one
    file.

    Raises:
        ConfigError, AuthError: as `resolve`.
        SessionError: the session cannot be used.
    """
    session = resumed_by(options, around)
    if session is None:
        return Plan(resolve(options, around))
    try:
        return Plan(resolve(options, around, session.last_model), session)
    except BaseException:
        session.close()
        raise


def resumed_by(options: Options, around: Surroundings) -> Session | None:
    """Return the session that the flags resume, if it exists. Raises SessionError."""
    if options.no_session or not (options.session or options.continue_):
        return None
    wait = HOLDER_SECONDS if options.durable else 0.0
    cwd = working_directory(options.cwd, around)
    from zot.sessions import kept

    return kept.resumed(options.session, cwd, around.home, wait=wait)
