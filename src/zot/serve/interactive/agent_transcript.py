"""What an agent of the swarm said and did, from the rows of its log, as blocks of a transcript."""

from __future__ import annotations

from zot.observe.facts import (
    CompactStarted,
    Fact,
    Failed,
    MessageEnded,
    MessageStarted,
    Noted,
    Retrying,
    RunEnded,
    RunsModel,
    TextAdded,
    ThoughtAdded,
    ToolArgsAdded,
    ToolEnded,
    ToolRuns,
    ToolSaid,
    ToolWritten,
    UserSaid,
)
from zot.observe.observer import facts_of
from zot.swarm.task import LogRow
from zot.tui.blocks import Level, LiveBlock, NoteBlock, ThinkingBlock, ToolBlock, UserBlock
from zot.tui.cells import EMPTY, Line
from zot.tui.markdown import MarkdownBlock

MAX_BLOCKS = 400


class AgentTranscript:
    def __init__(self) -> None:
        self.blocks: list[LiveBlock] = []
        self._text: MarkdownBlock | None = None
        self._thinking: ThinkingBlock | None = None
        self._has_text = False
        """The message that is being said has some."""
        self._tools: dict[str, tuple[ToolBlock, float]] = {}

    def take(self, row: LogRow) -> None:
        kind = str(row.frame.get("type", ""))
        if kind.startswith("swarm_"):
            self._take_own(kind, row)
        else:
            for fact in facts_of(row.frame):
                self._take_fact(fact, row.at)
        del self.blocks[:-MAX_BLOCKS]

    def tail(self, width: int, height: int, back: int = 0) -> list[Line]:
        """The last lines, or those so many lines further up."""
        lines: list[Line] = []
        for block in reversed(self.blocks):
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
                self._note(f"started again, attempt {fields.get('attempt')}")
            case "swarm_run_over" if fields.get("outcome") in ("failed", "limit"):
                self._note(str(fields.get("error") or "it failed"), "error")
            case "swarm_cancelled":
                self._note("stopped by a person", "warning")
            case "swarm_lost":
                self._note(str(fields.get("reason")), "error")
            case "swarm_merged":
                self._note(f"merged {str(fields.get('commit') or fields.get('tip'))[:12]}")
            case _:
                pass

    def _take_fact(self, fact: Fact, at: float) -> None:
        match fact:
            case MessageStarted():
                self._has_text = False
            case TextAdded(text):
                self._open_text().add(text)
            case ThoughtAdded(text):
                self._open_thinking(at).add(text)
            case MessageEnded(text):
                if text and not self._has_text:
                    self._open_text().add(text)
                self._end_texts(at)
            case UserSaid(text):
                self._end_texts(at)
                self.blocks.append(UserBlock(text))
            case RunEnded():
                self._end_texts(at)
                for tool, _ in self._tools.values():
                    tool.give_up()
                self._tools.clear()
            case _:
                self._take_tool(fact, at)
                self._take_note(fact)

    def _take_note(self, fact: Fact) -> None:
        match fact:
            case Failed(message):
                self._note(message, "error")
            case Retrying(reason):
                self._note(f"tries again: {reason}", "warning")
            case CompactStarted():
                self._note("the conversation is being summarised")
            case RunsModel(model, instead_of) if instead_of:
                self._note(f"{model} goes on instead of {instead_of}", "warning")
            case Noted(text):
                self._note(text)
            case _:
                pass

    def _take_tool(self, fact: Fact, at: float) -> None:
        match fact:
            case ToolWritten(id, name, args):
                if id not in self._tools:
                    self._end_texts(at)
                    self._tools[id] = (ToolBlock(name), at)
                    self.blocks.append(self._tools[id][0])
                if args is not None:
                    self._tools[id][0].set_args(args)
            case ToolArgsAdded(id, text) if id in self._tools:
                self._tools[id][0].add_args(text)
            case ToolRuns(id) if id in self._tools:
                tool = self._tools[id][0]
                tool.begin(None)
                self._tools[id] = (tool, at)
            case ToolSaid(id, text, whole) if id in self._tools:
                tool = self._tools[id][0]
                tool.output = "" if whole else tool.output
                tool.add_output(text)
            case ToolEnded(id, failed, text) if id in self._tools:
                tool, began = self._tools.pop(id)
                tool.finish(text, failed=failed, seconds=max(0.0, at - began))
            case _:
                pass

    def _note(self, text: str, level: Level = "info") -> None:
        self.blocks.append(NoteBlock(text, level))

    def _open_text(self) -> MarkdownBlock:
        self._has_text = True
        if self._text is None:
            self._text = MarkdownBlock()
            self.blocks.append(self._text)
        return self._text

    def _open_thinking(self, at: float) -> ThinkingBlock:
        if self._thinking is None:
            self._thinking = ThinkingBlock(at)
            self.blocks.append(self._thinking)
        return self._thinking

    def _end_texts(self, at: float) -> None:
        if self._text is not None:
            self._text.close()
        if self._thinking is not None:
            self._thinking.close(at)
        self._text = self._thinking = None


def _open_lines(block: LiveBlock, width: int, height: int) -> list[Line]:
    """One that still changes: a text is drawn whole, a tool as it runs."""
    return block.lines(width) if isinstance(block, MarkdownBlock) else block.live(width, height)
