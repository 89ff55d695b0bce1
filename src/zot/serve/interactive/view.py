"""Turns events of a runtime into blocks of a transcript. Draws nothing and answers nothing."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from msgspec import Struct

from zot.core import events
from zot.core.events import Event
from zot.provider.types import Image, Message, Text, ToolCall, ToolResult
from zot.text import size_text
from zot.tui.blocks import (
    READING,
    Level,
    LiveBlock,
    NoteBlock,
    ReadsBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
)
from zot.tui.cells import EMPTY, Line
from zot.tui.markdown import MarkdownBlock
from zot.tui.pictures import InlineImage, image_size

TOLD_MISS = 10_000
"""Tokens from which a miss of the prompt cache is shown."""
OWN_CHANGES = ("model", "settings", "message")
"""Causes of a miss that the person knows of: another model or level, a compaction, a rewind."""
WAITING = "waiting for you"
"""Activity while a question is open."""
REPLAYED = 20
"""Messages shown when a session is resumed."""
_LEVELS: dict[str, Level] = {"warn": "warning", "warning": "warning", "error": "error"}


class ShownRetry(Struct, frozen=True):
    event: events.Retrying
    due: float
    """Time of the next attempt, on the monotonic clock."""

    def attempt(self) -> str:
        """Return the number of the next attempt, and when it is due."""
        event, left = self.event, math.ceil(self.due - time.monotonic())
        attempt = f"attempt {event.attempt + 1} of {event.max_attempts}"
        return f"{attempt} in {left} s" if left > 0 else attempt


class TranscriptBlocks:
    """Texts, thoughts, tool calls and notes, in the order in which they began; independent of the
    source of events."""

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
        self.seal_reads()
        self.record.append(block)

    def seal_reads(self) -> None:
        """End a group of calls that read: something else begins."""
        if self.record and isinstance(last := self.record[-1], ReadsBlock):
            last.seal()

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
            tool = self._tools[id] = ToolBlock(name)
            if name in READING and not self._spoken:
                self._join_reads(tool)
            else:
                self._say(tool)
        return self._tools[id]

    def _join_reads(self, tool: ToolBlock) -> None:
        """Put the call into the group of reads before it, or into a new one."""
        last = self.record[-1] if self.record else None
        if isinstance(last, ReadsBlock) and last.is_open:
            last.add(tool)
            self._turn.append(tool)
        else:
            group = ReadsBlock()
            group.add(tool)
            self._say(group)

    def _say(self, block: LiveBlock) -> None:
        self._turn.append(block)
        self.add(block)

    def _take_back(self) -> list[LiveBlock]:
        """Remove the model's blocks of this turn, which is repeated, and return them."""
        self._end_everything()
        void, self._turn = self._turn, []
        for group in self.record[-1:]:
            if isinstance(group, ReadsBlock):
                group.calls[:] = [call for call in group.calls if call not in void]
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
        self.seal_reads()
        for tool in self._tools.values():
            tool.give_up()
        self._tools.clear()


class View(TranscriptBlocks):
    """Blocks in order. A block leaves the view once it is settled and written."""

    def __init__(
        self, *, spoken: bool = False, pictured: Callable[[Image], InlineImage] | None = None
    ) -> None:
        """`pictured` makes an inline picture of an image; None: the terminal cannot show any."""
        super().__init__(time.monotonic, spoken=spoken)
        self._pictured = pictured
        self._open: deque[LiveBlock] = deque()
        self._begun = False
        """True if part of the first open block is already written."""
        self.activity = ""
        """Current activity; empty: none."""
        self.since = 0.0
        self._asked: LiveBlock | None = None
        """Block of a call that the open question already shows."""
        self.retry: ShownRetry | None = None
        """Set while a failed model call is to be repeated."""

    # --- drawing -----------------------------------------------------------------------------

    def settle(self, width: int) -> list[Line]:
        """Return the lines that became final since the last call."""
        lines: list[Line] = []
        for _, is_first, new in self.settled(width):
            lines += [EMPTY, *new] if is_first else new
        return lines

    def settled(self, width: int) -> Iterator[tuple[LiveBlock, bool, list[Line]]]:
        """Like settle(), but yields (block, whether these are its first lines, lines)."""
        while self._open:
            block = self._open[0]
            closed = block.closed
            if new := block.settle(width):
                yield block, not self._begun, new
                self._begun = True
            if not closed:
                break
            self._open.popleft()
            self._begun = False

    def live(self, width: int, height: int) -> list[Line]:
        """Return the lines of the blocks that still change, at most the last `height`."""
        lines: list[Line] = []
        for index, block in enumerate(self._open):
            drawn = block.live(width, height) if block is not self._asked else []
            if drawn:
                lines += drawn if index == 0 and self._begun else [EMPTY, *drawn]
        return lines[-height:] if height > 0 else []

    def follow(self, other: View | None) -> None:
        """Prepend the blocks that another view has not written yet."""
        if other is not None:
            self._open.extendleft(reversed(other._open))
            self._begun = other._begun

    def add(self, block: LiveBlock) -> None:
        super().add(block)
        self._open.append(block)

    def begin_with(self, block: LiveBlock) -> None:
        """Draw a block above all others; it is no part of the transcript."""
        self._open.appendleft(block)

    @property
    def has_prompts(self) -> bool:
        return any(isinstance(block, UserBlock) for block in self.record)

    def add_user(self, message: Message) -> None:
        self.add(UserBlock(shown_text(message), self._pictures(message.content)))

    def _pictures(self, content: Sequence[object]) -> list[InlineImage]:
        if self._pictured is None:
            return []
        return [self._pictured(part) for part in content if isinstance(part, Image)]

    # --- events ------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        match event:
            case events.TextDelta(text):
                if self._add_text(text):
                    self._does("answering")
            case events.ReasoningDelta(text):
                if self._add_thinking(text):
                    self._does("thinking")
            case events.ToolCallArgs(id, delta):
                if (tool := self._tools.get(id)) is not None:
                    tool.add_args(delta)
            case events.ToolProgress(id, text):
                if (tool := self._tools.get(id)) is not None:
                    tool.add_output(text)
            case events.UserMessage(message):
                self._end_texts()
                self.add_user(message)
            case events.ToolCallStart(id, name):
                self._tool(id, name)
                self._does(f"writing a call of {name}")
            case events.ToolCalled(call):
                self._tool(call.id, call.name).set_args(call.args, call.raw)
            case events.ToolAllowed(call):
                self._tool(call.id, call.name).begin(call.args)
                self._does(f"running {call.name}")
            case events.ToolReturned(call, result, seconds):
                self._returned(call, result, seconds)
            case events.CacheMissed(cause, expected, read) if (
                expected - read >= TOLD_MISS and cause not in OWN_CHANGES
            ):
                self.note(f"the prompt cache was missed ({cause}): {expected - read} tokens again")
            case _:
                self._take_rare(event)

    def _take_rare(self, event: Event) -> None:
        """Handle events that occur only a few times per run."""
        match event:
            case events.TurnStart():
                self._begin_turn()
            case events.AssistantStart():
                self.retry = None
            case events.TurnEnd():
                self._turn_ended(event)
            case events.ErrorRaised(message, code):
                if not self.record or not self.record[-1].source.endswith(f": {message}"):
                    hint = "; zot --no-session keeps none" if code == "session" else ""
                    self.note(message + hint, "error")  # else a compaction has said why it failed
            case events.Done() | events.RunSuspended():
                self._end_everything()
                self.activity, self._asked = "", None
            case events.ApprovalRequest(call=call):
                self._asked = self._tools.get(call.id)
                self._does(WAITING)
            case events.ApprovalResolved():
                self._asked = None
                self._does("working")
            case events.CompactStart():
                self._does("compacting")
            case events.CompactDone(tokens_before=before, tokens_after=after):
                self.note(f"compacted: {before} tokens became {after}")
            case events.CompactFailed(error=error):
                self.note(f"not compacted: {error}", "warning")
            case events.Retrying():
                self._retrying(event)
            case events.FellBack(failed, _, model, reason):
                self.note(f"{failed} failed ({reason}); {model.id} goes on", "warning")
            case events.RunResumed(attempt=attempt):
                self._end_everything()
                self.note(f"a run that was cut off goes on (attempt {attempt})")
            case events.RunHeld(reason=reason):
                self.note(f"a run that was cut off waits: {reason}", "warning")
            case events.ExtensionNotify(extension, level, message):
                self.note(f"[{extension}] {message}", _LEVELS.get(level, "info"))
            case events.ExtensionDisplay(extension, text):
                self.note(f"[{extension}] {text}")
            case events.ServerChanged(name, state, _, error):
                if state == "failed":
                    self.note(f"MCP server {name}: {error}", "warning")
            case (
                events.ToolCallEnd() | events.UsageReport() | events.CacheMissed()
                | events.AssistantMessage() | events.QueueUpdate()
                | events.ExtensionPanel() | events.ExtensionAsk()
                | events.ToolStarted()
            ):  # fmt: skip
                pass  # internal, or reported by another event
            case (
                events.TextDelta() | events.ReasoningDelta() | events.ToolCallArgs()
                | events.ToolProgress() | events.UserMessage() | events.ToolCallStart()
                | events.ToolCalled() | events.ToolAllowed() | events.ToolReturned()
            ):  # fmt: skip
                raise AssertionError("taken above")
            case _:
                assert_never(event)

    def _does(self, what: str) -> None:
        if not self.activity:
            self.since = time.monotonic()
        self.activity = what

    def _returned(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        tool = self._tools.pop(call.id, None)
        if tool is None:
            return
        details = result.details or {}
        code, diff = details.get("exit_code"), details.get("diff")
        tool.exit_code = code if isinstance(code, int) else None
        if isinstance(diff, str) and not result.is_error:
            tool.diff, tool.diff_line = diff, int(details.get("first_changed_line") or 0)
        tool.pictures = self._pictures(result.content)
        texts = [
            part.text if isinstance(part, Text) else image_line(part) for part in result.content
        ]
        tool.finish("\n".join(texts), failed=result.is_error, seconds=seconds)

    def _begin_turn(self) -> None:
        self._turn.clear()
        self._does("working")

    def _retrying(self, event: events.Retrying) -> None:
        """Show the retry, as one line that is redrawn; in line mode as a note each time."""
        self._does("working")
        self.retry = ShownRetry(event, time.monotonic() + event.delay)
        if self._spoken:
            self.note(f"{event.reason}; {self.retry.attempt()}", "warning")

    def _take_back(self) -> list[LiveBlock]:
        void = super()._take_back()
        waiting = [block for block in self._open if block not in void]
        is_written = len(waiting) + len(void) > len(self._open)
        if self._begun and self._open[0] in void:
            self._begun, is_written = False, True
        self._open = deque(waiting)
        if is_written:  # the terminal has scrolled it away, or read it out
            self.note("the answer was cut off here; it begins anew", "warning")
        return void

    def _turn_ended(self, event: events.TurnEnd) -> None:
        if event.again:
            self._take_back()
            return
        self.retry = None
        self._end_texts()
        if event.stop == "aborted":
            self._end_everything()
            self.note("stopped")
        elif event.stop == "length":
            self.note("the answer was cut off at its greatest length", "warning")
        elif event.error:
            self._end_everything()


def image_line(image: Image) -> str:
    size = image_size(image.data)
    what = f" {size[0]}x{size[1]}" if size else ""
    return f"[image{what}, {image.mime_type}, {size_text(len(image.data))}]"


def shown_text(message: Message) -> str:
    """Return the text of a user message; an image without a chip in the text gets a line."""
    text = "\n".join(part.text for part in message.content if isinstance(part, Text))
    images = [part for part in message.content if isinstance(part, Image)]
    lines = [image_line(image) for image in images[text.count("[image ") :]]
    return "\n".join([text, *lines] if text else lines)


def first_shown(messages: tuple[Message, ...]) -> int:
    """Return the index of the first message to show of a resumed session, preferably a prompt."""
    first = max(0, len(messages) - REPLAYED)
    while 0 < first < len(messages) and messages[first].role != "user":
        first += 1
    return first


def replay(view: View, messages: tuple[Message, ...]) -> None:
    """Add stored messages to the view as they looked when they arrived."""
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if message.role == "user":
            view.add_user(message)
            continue
        for part in message.content:
            match part:
                case Text(text):
                    view.add(MarkdownBlock(text, closed=True))
                case ToolCall():
                    calls[part.id] = part
                case ToolResult():
                    if (call := calls.pop(part.call_id, None)) is not None:
                        view.take(events.ToolCalled(call))
                        view.take(events.ToolReturned(call, part))
                case _:
                    pass
    view.seal_reads()
