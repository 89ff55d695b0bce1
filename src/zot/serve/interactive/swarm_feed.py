"""The swarm's logs: threads that read them for the dashboard and for agents' answers, and the
transcript of an agent, built from the rows of its log.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zot.errors import Cancelled, ZotError
from zot.observe import facts
from zot.observe.tables import facts_of
from zot.serve.interactive.view import TranscriptBlocks
from zot.swarm.agent import AgentSummary
from zot.swarm.local import LocalSwarm
from zot.swarm.log import AgentAnswer, Roster, agent_folders, collect, read_log, start_of_last
from zot.swarm.rows import LogRow
from zot.tui.blocks import LinesBlock, LiveBlock, UserBlock
from zot.tui.cells import EMPTY, Line, clean
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

MAX_BLOCKS = 400
_STYLES = {"+": "add", "-": "del", "@": "hunk", "!": "error"}

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

        runtime.sessions.add_message(answer.message(), then=heard)


def diff_block(text: str) -> LinesBlock:
    """Return an agent's diff as coloured lines; a line that begins with `!` is an error."""
    lines = clean(text).rstrip("\n").split("\n") if text.strip() else ["nothing has changed"]
    return LinesBlock([((_STYLES.get(line[:1], ""), line),) for line in lines])


class AgentTranscript(TranscriptBlocks):
    def __init__(self) -> None:
        super().__init__(lambda: self._at)
        self._at = 0.0
        """Time at which the current row was written."""
        self._has_text = False
        """Whether text of the current message has arrived."""
        self._began: dict[str, float] = {}

    def take(self, row: LogRow) -> None:
        self._at = row.at
        kind = str(row.frame.get("type", ""))
        if kind.startswith("swarm_"):
            self._take_own(kind, row)
        else:
            for fact in facts_of(row.frame):
                self._take_fact(fact)
        del self.record[:-MAX_BLOCKS]

    def tail(self, width: int, height: int, back: int = 0) -> list[Line]:
        """Return the last `height` lines, or those `back` lines further up."""
        lines: list[Line] = []
        for block in reversed(self.record):
            drawn = block.lines(width) if block.closed else _open_lines(block, width, height)
            lines[:0] = [EMPTY, *drawn] if drawn else []
            if len(lines) >= height + back:
                break
        back = max(0, min(back, len(lines) - height))
        end = len(lines) - back
        return lines[max(0, end - height) : end]

    # --- rows --------------------------------------------------------------------------------

    def _take_own(self, kind: str, row: LogRow) -> None:
        fields = row.frame
        match kind:
            case "swarm_started" if fields.get("attempt") != 1:
                self.note(f"started again, attempt {fields.get('attempt')}")
            case "swarm_run_over" if fields.get("outcome") in ("failed", "limit"):
                self.note(str(fields.get("error") or "it failed"), "error")
            case "swarm_cancelled":
                self.note("stopped by a person", "warning")
            case "swarm_lost":
                self.note(str(fields.get("reason")), "error")
            case "swarm_merged":
                self.note(f"merged {str(fields.get('commit') or fields.get('tip'))[:12]}")
            case _:
                pass

    def _take_fact(self, fact: facts.Fact) -> None:
        match fact:
            case facts.TurnStarted():
                self._turn.clear()
            case facts.MessageStarted():
                self._has_text = False
            case facts.TextAdded(text):
                self._has_text = True
                self._add_text(text)
            case facts.ThoughtAdded(text):
                self._add_thinking(text)
            case facts.MessageEnded(text):
                if text and not self._has_text:
                    self._add_text(text)
                self._end_texts()
            case facts.UserSaid(text):
                self._end_texts()
                self.add(UserBlock(text))
            case facts.RunEnded():
                self._end_everything()
            case _:
                self._take_tool(fact)
                self._take_note(fact)

    def _take_note(self, fact: facts.Fact) -> None:
        match fact:
            case facts.Failed(message):
                self.note(message, "error")
            case facts.Retrying(reason, dropped):
                if dropped:
                    self._take_back()
                self.note(f"tries again: {reason}", "warning")
            case facts.CompactStarted():
                self.note("the conversation is being summarised")
            case facts.RunsModel(model, instead_of) if instead_of:
                self.note(f"{model} goes on instead of {instead_of}", "warning")
            case facts.Noted(text):
                self.note(text)
            case _:
                pass

    def _take_tool(self, fact: facts.Fact) -> None:
        match fact:
            case facts.ToolWritten(id, name, args):
                if id not in self._tools:
                    self._began[id] = self._at
                tool = self._tool(id, name)
                if args is not None:
                    tool.set_args(args)
            case facts.ToolArgsAdded(id, text) if id in self._tools:
                self._tools[id].add_args(text)
            case facts.ToolRuns(id) if id in self._tools:
                self._tools[id].begin(None)
                self._began[id] = self._at
            case facts.ToolSaid(id, text, whole) if id in self._tools:
                tool = self._tools[id]
                tool.output = "" if whole else tool.output
                tool.add_output(text)
            case facts.ToolEnded(id, failed, text) if id in self._tools:
                seconds = max(0.0, self._at - self._began.pop(id))
                self._tools.pop(id).finish(text, failed=failed, seconds=seconds)
            case _:
                pass


def _open_lines(block: LiveBlock, width: int, height: int) -> list[Line]:
    """Draw a block that still changes: a text completely, a tool in its live form."""
    return block.lines(width) if isinstance(block, MarkdownBlock) else block.live(width, height)
