"""Threads that read the swarm's logs for the dashboard, and for agents' answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zot.errors import Cancelled, ZotError
from zot.swarm.agent import AgentSummary
from zot.swarm.local import LocalSwarm
from zot.swarm.log import AgentAnswer, Roster, agent_folders, collect, read_log, start_of_last
from zot.swarm.rows import LogRow
from zot.tui.markdown import MarkdownBlock

if TYPE_CHECKING:
    from zot.serve.interactive.app import App
    from zot.tui.blocks import Level

LOOK_SECONDS = 0.2
WAIT_SECONDS = 0.5
CLOCK_SECONDS = 1.0
"""Seconds between redraws of ages."""
FIRST_BYTES = 512 * 1024
"""Bytes shown from the end of a log when an agent is chosen."""

Shows = Callable[[Sequence[AgentSummary]], None]
TakesRows = Callable[[str, Sequence[LogRow]], None]


def the_swarm(app: App) -> LocalSwarm:
    return LocalSwarm(Path(app.around.home), app.around.environ)


class SwarmFeed:
    """Reports the state of all agents and the rows of the chosen one to the dashboard."""

    def __init__(self, app: App, swarm: LocalSwarm, show: Shows, take: TakesRows) -> None:
        self._app = app
        self._swarm = swarm
        self._show = show
        self._take = take
        self._over = threading.Event()
        self._look = threading.Event()
        self._chosen = ""
        threading.Thread(target=self._run, name="zot-swarm-feed", daemon=True).start()

    def choose(self, id: str) -> None:
        """Report the rows of this agent, from near the end of its log on."""
        self._chosen = id
        self._look.set()

    def look(self) -> None:
        """Refresh at once, after an action."""
        self._look.set()

    def close(self) -> None:
        self._over.set()
        self._look.set()

    def _run(self) -> None:
        roster = Roster(self._swarm.folder)
        chosen, position, waited = "", 0, CLOCK_SECONDS
        while not self._over.is_set():
            try:
                changed = roster.refresh()
                if waited >= CLOCK_SECONDS:
                    self._swarm.keep_going(roster)
            except (ZotError, OSError) as error:
                self._app.post_error(error)
                return
            if changed or waited >= CLOCK_SECONDS:
                summaries = tuple(agent.summary() for agent in roster.agents.values())
                self._app.loop.post(partial(self._show, summaries))
                waited = 0.0
            if self._chosen != chosen:
                chosen, position = self._chosen, 0
                if chosen in roster.agents:
                    position = start_of_last(roster.agents[chosen].log, FIRST_BYTES)
            if chosen in roster.agents:
                position = self._tell_rows(chosen, roster.agents[chosen].log, position)
            self._look.wait(LOOK_SECONDS)
            self._look.clear()
            waited += LOOK_SECONDS

    def _tell_rows(self, id: str, log: Path, position: int) -> int:
        rows = []
        for after, row in read_log(log, position):
            position = after
            rows.append(row)
        if rows:
            self._app.loop.post(partial(self._take, id, rows))
        return position


class AnswerWatch:
    """Adds agents' answers to the conversation that started them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._swarm = the_swarm(app)
        self._thread: threading.Thread | None = None
        self._told: set[tuple[str, str]] = set()
        """Answers on their way into the session."""

    def begin(self) -> None:
        """Watch until every agent of this conversation has ended and its answer was delivered."""
        if self._thread is not None and self._thread.is_alive():
            return
        if agent_folders(self._swarm.folder):
            self._thread = threading.Thread(target=self._run, name="zot-swarm-answers", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        parent, roster = "", Roster(self._swarm.folder)
        while not self._app.ending.is_set():
            runtime = self._app.built
            if runtime is None:
                return
            if runtime.session.id != parent:
                parent = runtime.session.id
                roster = Roster(self._swarm.folder, parent)
            try:
                answers = collect(self._swarm, roster)
            except (ZotError, OSError) as error:
                self._app.post_error(error)
                return
            fresh = [answer for answer in answers if (answer.id, answer.run) not in self._told]
            for answer in fresh:
                self._told.add((answer.id, answer.run))
                self._app.loop.post(partial(self._deliver, answer, parent))
            if not roster.is_busy() and not fresh:
                return
            with contextlib.suppress(Cancelled):
                self._app.ending.sleep(WAIT_SECONDS)

    def _deliver(self, answer: AgentAnswer, parent: str) -> None:
        runtime = self._app.built
        if runtime is None or runtime.session.id != parent:
            self._told.discard((answer.id, answer.run))  # the conversation was left: next time
            return
        level: Level = "info" if answer.stage == "done" else "warning"
        self._app.note(f"{answer.id} is {answer.stage}", level)
        if answer.text:
            self._app.show(MarkdownBlock(answer.text, closed=True))
        self._app.chat.call_back(f"{answer.id} is {answer.stage}")

        def heard() -> None:
            self._app.work(lambda: self._swarm.collected(answer.id, answer.run))

        runtime.sessions.add_message(answer.told(), then=heard)
