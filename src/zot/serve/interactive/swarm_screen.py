"""The swarm's dashboard on the alternate screen: all agents, those that need you first; the chosen
agent's transcript and question; and a line to write to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from zot.errors import ZotError
from zot.observe.status import OpenQuestion
from zot.serve.interactive.swarm_feed import AgentTranscript, SwarmFeed, diff_block
from zot.swarm.agent import AgentSummary, by_need, shown_age
from zot.swarm.local import LocalSwarm
from zot.swarm.rows import LogRow
from zot.tui.blocks import UserBlock
from zot.tui.cells import EMPTY, Line, clean, clip, padded, plain, visible, window, wrap
from zot.tui.editor import Editor
from zot.tui.keys import KeyPress
from zot.tui.menu import Drawn, Overlay, type_into
from zot.tui.pager import Pager

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

Purpose = Literal["", "message", "new", "deny", "answer"]
"""Purpose of the text being written; empty: keys act on the list."""
LABELS: dict[Purpose, str] = {
    "message": "a message",
    "new": "a task for a new agent",
    "deny": "why not (it is told to the agent)",
    "answer": "your answer",
}
STYLES = {
    "needs_you": "warn",
    "failed": "error",
    "lost": "error",
    "stalled": "warn",
    "working": "accent",
    "done": "ok",
}
KEYS = "n new  enter write  x stop  R retry  D diff  m merge  r remove  o all  q leave"
MAX_QUESTION = 12


class SwarmScreen(Overlay):
    """An overlay that takes the whole screen."""

    def __init__(self, app: App, swarm: LocalSwarm, start: Callable[[str], str]) -> None:
        """`start` gives a task to a new agent of this conversation."""
        self._app = app
        self._swarm = swarm
        self._start = start
        self._agents: list[AgentSummary] = []
        self._chosen = ""
        self._wanted = ""
        """Prefix of an id to choose as soon as that agent appears."""
        self._transcript = AgentTranscript()
        self._back = 0
        self._picked = False
        """True if a person chose the agent; until then it is the one that needs them most."""
        self._purpose: Purpose = ""
        self._field = Editor()
        self._said: tuple[str, str] = ("", "")
        self._pager: Pager | None = None
        self._size = (80, 24)
        self._loaded = False
        self._feed = SwarmFeed(app, swarm, self.show, self.take_rows)

    def open(self, wanted: str = "") -> None:
        self._wanted = wanted
        self._app.loop.open_full(self, self._app.theme)

    def leave(self) -> None:
        self._feed.close()
        self._app.loop.close_full()
        self._app.chat.watch_agents()

    # --- what the feed tells -----------------------------------------------------------------

    def show(self, summaries: Sequence[AgentSummary]) -> None:
        self._loaded = True
        self._agents = by_need(summaries)
        wanted = next(
            (s.id for s in self._agents if self._wanted and s.id.startswith(self._wanted)), ""
        )
        if wanted:
            self._wanted = ""
            self._picked = True
        ids = [summary.id for summary in self._agents]
        if wanted or self._chosen not in ids or not (self._picked or self._purpose):
            self._choose(wanted or (ids[0] if ids else ""))

    def take_rows(self, id: str, rows: Sequence[LogRow]) -> None:
        if id == self._chosen:
            for row in rows:
                self._transcript.take(row)

    def _choose(self, id: str) -> None:
        if id == self._chosen:
            return
        self._chosen, self._back = id, 0
        self._transcript = AgentTranscript()
        self._feed.choose(id)

    @property
    def _summary(self) -> AgentSummary | None:
        return next((summary for summary in self._agents if summary.id == self._chosen), None)

    @property
    def _works(self) -> bool:
        summary = self._summary
        return summary is not None and summary.stage in ("working", "needs_you")

    @property
    def _question(self) -> OpenQuestion | None:
        summary = self._summary
        return summary.questions[0] if summary is not None and summary.questions else None

    # --- drawing -----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> Drawn:
        self._size = (width, height)
        if self._pager is not None:
            return self._pager.draw(width, height)
        top = [self._head(width), *self._list(width, max(2, min(len(self._agents), height // 4)))]
        if self._summary is not None:
            top.append(self._bar(self._summary, width))
        field, column = self._field_line(width)
        asks = self._question_lines(width)[: max(0, height - len(top) - 4)]
        room = max(0, height - len(top) - len(asks) - 2)
        body = self._transcript.tail(width, room, self._back) if self._chosen else []
        lines = [*top, *body, *[EMPTY] * (room - len(body)), *asks, field, self._foot(width)]
        shown = [clip(line, width) for line in lines[:height]]
        return Drawn(shown, (len(shown) - 2, column) if self._purpose else (len(shown) - 1, 0))

    def _head(self, width: int) -> Line:
        counts: dict[str, int] = {}
        for summary in self._agents:
            counts[_stage(summary)] = counts.get(_stage(summary), 0) + 1
        names = {"needs_you": "need you" if counts.get("needs_you", 0) > 1 else "needs you"}
        parts = [f"{count} {names.get(stage, stage)}" for stage, count in counts.items()]
        cost = sum(summary.cost_usd for summary in self._agents)
        known = all(summary.cost_known for summary in self._agents)
        if cost or not known:
            parts.append(f"{'' if known else 'at least '}${cost:.2f}")
        if not self._agents:
            parts = ["n begins an agent" if self._loaded else "looking"]
        return (("heading", "swarm"), ("dim", f"  {', '.join(parts)}"))

    def _list(self, width: int, room: int) -> list[Line]:
        ids = [summary.id for summary in self._agents]
        at = ids.index(self._chosen) if self._chosen in ids else 0
        first = window(at, room, len(ids))
        return [self._row(summary, width) for summary in self._agents[first : first + room]]

    def _row(self, summary: AgentSummary, width: int) -> Line:
        chosen, stage = summary.id == self._chosen, _stage(summary)
        task = clean(summary.task.strip().partition("\n")[0])
        doing = f"{summary.doing} {summary.about}".strip()
        details = [clean(doing.replace("\n", " "))] if doing else []
        if summary.diff.files:
            details.append(f"+{summary.diff.added} -{summary.diff.removed}")
        if summary.cost_usd:
            details.append(f"${summary.cost_usd:.2f}")
        if summary.merged:
            details.append("merged")
        age = shown_age(time.time() - summary.since)
        line: Line = (
            ("prompt", "❯ ") if chosen else ("", "  "),
            (STYLES.get(stage, "dim"), f"{stage.replace('_', ' '):9} "),
            ("dim", f"{age:>4}  "),
            ("selected" if chosen else "", task[: max(10, width // 2)]),
            ("dim", f"  {', '.join(details)}" if details else ""),
        )
        return clip(line, width, "...")

    def _bar(self, summary: AgentSummary, width: int) -> Line:
        parts = [summary.id, summary.model, f"turn {summary.turns}"]
        if summary.branch:
            parts.append(summary.branch)
        back = f", {self._back} lines up" if self._back else ""
        text = f" {clean(', '.join(filter(None, parts)))}{back}"
        return padded(clip((("reverse", text),), width), width, "reverse")

    def _question_lines(self, width: int) -> list[Line]:
        question = self._question
        if question is None:
            return []
        lines = wrap([("warn", visible(question.title))], width)
        shown = question.preview or ("" if question.args is None else repr(question.args))
        rows = shown.split("\n") if shown else []
        body = [line for row in rows for line in wrap([_styled(row)], width)]
        lines += body[:MAX_QUESTION]
        if len(body) > MAX_QUESTION:
            lines.append((("dim", f"... {len(body) - MAX_QUESTION} more lines"),))
        for number, option in enumerate(question.options, 1):
            lines.append((("accent", f"{number} "), ("", clean(option))))
        lines.append((("accent", _question_keys(question)),))
        return lines

    def _field_line(self, width: int) -> tuple[Line, int]:
        if not self._purpose:
            return (("dim", "  enter writes to it" if self._chosen else ""),), 0
        layout = self._field.layout(max(2, width - 2), 1)
        if not self._field.text:
            return (("prompt", "❯ "), ("dim", LABELS[self._purpose])), 2
        return (("prompt", "❯ "), *layout.rows[0]), 2 + layout.column

    def _foot(self, width: int) -> Line:
        text, style = self._said
        if text:
            return clip(((style or "ok", f" {clean(text)}"),), width, "...")
        if self._purpose:
            how = "enter sends, esc leaves it" if self._purpose != "message" else self._how()
            return (("dim", f" {how}"),)
        return (("dim", f" {KEYS}"),)

    def _how(self) -> str:
        when = "after the current tool (ctrl+f: after its run)" if self._works else "now"
        return f"enter sends it: heard {when}; esc leaves it"

    def spoken(self) -> list[str]:
        """Return the list and the commands to go on with: line mode has no dashboard."""
        self._feed.close()
        agents = by_need(self._swarm.agents())
        lines = [plain(self._row(summary, 1000)) for summary in agents] or ["no agents"]
        return [
            *lines,
            "/swarm new TASK, /swarm logs ID, /swarm send ID TEXT; docs/swarm.md has more",
        ]

    # --- keys --------------------------------------------------------------------------------

    def key(self, key: KeyPress) -> None:
        for letter in key.letters():
            if self._pager is not None:
                self._pager.key(letter)
            else:
                self._take_key(letter)

    def _take_key(self, key: KeyPress) -> None:
        self._said = ("", "")
        if key.name in ("pageup", "pagedown"):
            step = max(1, self._size[1] // 2)
            self._back = max(0, self._back + (step if key.name == "pageup" else -step))
        elif self._purpose:
            self._write(key)
        else:
            self._act(key.text or key.name)

    def _write(self, key: KeyPress) -> None:
        match key.name:
            case "esc" | "ctrl+c":
                self._purpose = ""
                self._field.set("")
            case "enter" | "ctrl+s" | "ctrl+f":
                purpose, text = self._purpose, self._field.full_text.strip()
                self._purpose = ""
                self._field.set("")
                self._send(purpose, text, later=key.name == "ctrl+f")
            case "up" | "down":
                self._move(-1 if key.name == "up" else 1)
            case _:
                type_into(self._field, key)

    def _send(self, purpose: Purpose, text: str, *, later: bool) -> None:
        id, question, swarm = self._chosen, self._question, self._swarm
        if purpose == "deny" and question is not None:
            self._do(lambda: swarm.approve(id, question.id, "deny", text), "denied")
        elif not text:
            return
        elif purpose == "new":
            self._do(lambda: self._start(text), "a new agent begins")
        elif purpose == "answer" and question is not None:
            self._do(lambda: swarm.answer(id, question.id, value=text), "answered")
        elif purpose == "message":
            if self._works and not later:
                self._do(lambda: swarm.steer(id, text), "heard after the current tool")
            else:
                self._do(lambda: swarm.send(id, text), "sent")

    def _act(self, name: str) -> None:
        steps = {"up": -1, "k": -1, "ctrl+p": -1, "down": 1, "j": 1, "ctrl+n": 1}
        if name in steps:
            self._move(steps[name])
            return
        match name:
            case "q" | "esc" | "ctrl+c":
                self.leave()
            case "n":
                self._purpose = "new"
            case "g":
                self._picked = False
                self._choose(self._agents[0].id if self._agents else "")
            case _ if self._summary is not None:
                self._act_on(name, self._summary)

    def _act_on(self, name: str, summary: AgentSummary) -> None:
        id, swarm = summary.id, self._swarm
        match name:
            case "enter" | "tab" | "i":
                self._purpose = "message"
            case "x":
                self._do(lambda: swarm.cancel(id), "stopped; what it did stays")
            case "R":
                self._do(lambda: swarm.retry(id), "it goes on")
            case "m":
                self._do(lambda: swarm.merge(id), "merged into your checkout")
            case "r":
                self._do(lambda: swarm.remove(id), "removed")
            case "D":
                self._app.work(lambda: self._diff(id), self._show_diff)
            case "o":
                self._open_pager()
            case _ if self._question is not None:
                self._answer(name, id, self._question)

    def _answer(self, name: str, id: str, question: OpenQuestion) -> None:
        swarm = self._swarm
        if question.kind == "approval":
            match name:
                case "a" | "y":
                    self._do(lambda: swarm.approve(id, question.id, "allow"), "allowed")
                case "A":
                    self._do(lambda: swarm.approve(id, question.id, "allow_session"), "allowed")
                case "d":
                    self._purpose = "deny"
        elif question.method == "confirm" and name in ("y", "n"):
            self._do(lambda: swarm.answer(id, question.id, confirmed=name == "y"), "answered")
        elif question.options and name.isdecimal() and 0 < int(name) <= len(question.options):
            option = question.options[int(name) - 1]
            self._do(lambda: swarm.answer(id, question.id, value=option), "answered")
        elif name == "w" and question.method != "confirm":
            self._purpose = "answer"

    def _move(self, step: int) -> None:
        ids = [summary.id for summary in self._agents]
        if ids:
            self._picked = True
            at = ids.index(self._chosen) if self._chosen in ids else 0
            self._choose(ids[max(0, min(len(ids) - 1, at + step))])

    # --- doing -------------------------------------------------------------------------------

    def _do(self, action: Callable[[], object], said: str) -> None:
        """Run the action in a thread; show its result in the last line."""

        def run() -> tuple[str, str]:
            try:
                action()
            except ZotError as error:
                return str(error), "error"
            return said, ""

        def then(result: tuple[str, str]) -> None:
            self._said = result
            self._feed.look()

        self._app.work(run, then)

    def _diff(self, id: str) -> str:
        try:
            return self._swarm.diff(id)
        except ZotError as error:
            return f"! {error}"

    def _show_diff(self, text: str) -> None:
        self._pager = Pager([diff_block(text)], lambda _: False, leave=self._close_pager, at=0)

    def _open_pager(self) -> None:
        blocks = list(self._transcript.record)
        self._pager = Pager(blocks, lambda b: isinstance(b, UserBlock), leave=self._close_pager)

    def _close_pager(self) -> None:
        self._pager = None


def _stage(summary: AgentSummary) -> str:
    return "stalled" if summary.stalled else summary.stage


def _styled(row: str) -> tuple[str, str]:
    """Style a line of a preview, which may be a diff."""
    return {"+": "add", "-": "del"}.get(row[:1], ""), visible(row)


def _question_keys(question: OpenQuestion) -> str:
    if question.kind == "approval":
        return "a allow  A allow from now on  d deny"
    if question.method == "confirm":
        return "y yes  n no"
    return "a number chooses, w writes an answer" if question.options else "w writes an answer"
