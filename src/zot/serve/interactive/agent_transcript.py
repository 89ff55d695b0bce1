"""Transcript blocks of a swarm agent, built from the rows of its log."""

from __future__ import annotations

from zot.observe import facts
from zot.observe.tables import facts_of
from zot.serve.interactive.view import TranscriptBlocks
from zot.swarm.rows import LogRow
from zot.tui.blocks import LinesBlock, LiveBlock, UserBlock
from zot.tui.cells import EMPTY, Line, clean
from zot.tui.markdown import MarkdownBlock

MAX_BLOCKS = 400
_STYLES = {"+": "add", "-": "del", "@": "hunk", "!": "error"}


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
