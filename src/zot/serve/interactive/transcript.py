"""A transcript as blocks: texts, thoughts, tool calls and notes, in the order in which they began.
Independent of the source of events; draws nothing itself."""

from __future__ import annotations

from collections.abc import Callable

from zot.tui.blocks import Level, LiveBlock, NoteBlock, ThinkingBlock, ToolBlock
from zot.tui.markdown import MarkdownBlock


class TranscriptBlocks:
    def __init__(self, clock: Callable[[], float], *, spoken: bool = False) -> None:
        self._clock = clock
        self._spoken = spoken
        self.record: list[LiveBlock] = []
        self._text: MarkdownBlock | None = None
        self._thinking: ThinkingBlock | None = None
        self._tools: dict[str, ToolBlock] = {}
        self._turn: list[LiveBlock] = []
        """Blocks of the model in this turn."""

    def add(self, block: LiveBlock) -> None:
        self.record.append(block)

    def note(self, text: str, level: Level = "info") -> None:
        self.add(NoteBlock(text, level))

    def _add_text(self, text: str) -> bool:
        """Add to the answer; return whether this begins a new block."""
        begins = self._text is None
        if self._text is None:
            self._end_texts()
            self._text = MarkdownBlock(spoken=self._spoken)
            self._say(self._text)
        self._text.add(text)
        return begins

    def _add_thinking(self, text: str) -> bool:
        begins = self._thinking is None
        if self._thinking is None:
            self._end_texts()
            self._thinking = ThinkingBlock(self._clock())
            self._say(self._thinking)
        self._thinking.add(text)
        return begins

    def _tool(self, id: str, name: str) -> ToolBlock:
        """Return the block of a call; a new one ends the text before it."""
        if id not in self._tools:
            self._end_texts()
            self._tools[id] = ToolBlock(name)
            self._say(self._tools[id])
        return self._tools[id]

    def _say(self, block: LiveBlock) -> None:
        self._turn.append(block)
        self.add(block)

    def _take_back(self) -> list[LiveBlock]:
        """Remove the model's blocks of this turn, which is repeated, and return them."""
        self._end_everything()
        void, self._turn = self._turn, []
        self.record[:] = [block for block in self.record if block not in void]
        return void

    def _end_texts(self) -> None:
        if self._text is not None:
            self._text.close()
        if self._thinking is not None:
            self._thinking.close(self._clock())
        self._text = self._thinking = None

    def _end_everything(self) -> None:
        self._end_texts()
        for tool in self._tools.values():
            tool.give_up()
        self._tools.clear()
