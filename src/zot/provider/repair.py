"""Makes any transcript valid for any API: it starts with the user and does not end with the model,
every tool call has a unique id and exactly one result, right after it, and no text is blank.
Changes only the request, never what is stored. The only place that repairs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import is_

from msgspec.structs import replace

from zot.provider.types import (
    Block,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)

NOT_RECORDED = "the tool call was interrupted; no result was recorded"
NO_IMAGES = "[an image was left out: this model takes no images]"
CONTINUE = "(continue)"
DATE = "(current date: {})"

Named = tuple[str, ToolCall]
"""Original id of a call, and the call as sent."""


def repaired(
    messages: Sequence[Message], images: bool = True, *, dated: bool = False
) -> tuple[Message, ...]:
    """Return the messages as any API takes them; see Repair."""
    return Repair(dated=dated).messages(tuple(messages), images)


class Repair:
    """Repairs a conversation. When more is said, only the new messages are looked at.

    A call whose id is empty or was used before gets a fresh one, and its result with it. A result
    that comes late is moved to its call, a lost one is made up, one without a call is dropped.
    """

    def __init__(self, *, dated: bool = False) -> None:
        """`dated`: put the date into the first message of the user and into the first of each
        further day. Not into the system prompt: that would change every day."""
        self._dated = dated
        self._lock = threading.Lock()
        self._images = True
        self._begin()

    def _begin(self) -> None:
        self._seen: tuple[Message, ...] = ()
        self._out: list[Message] = []
        self._ids = _Ids()
        self._asked: _Asked | None = None
        """Calls whose results are not all there yet."""
        self._day = ""
        """The last date in a message."""

    def messages(self, said: tuple[Message, ...], images: bool) -> tuple[Message, ...]:
        """Return the conversation as any API takes it; `images`: whether the model can see."""
        with self._lock:
            if images != self._images or same_start(self._seen, said) < len(self._seen):
                self._images = images
                self._begin()
            for message in said[len(self._seen) :]:
                self._add(message)
            self._seen = said
            if self._asked is not None:
                self._settle(self._asked)
            out = self._out
            if not out or out[-1].role == "assistant":
                return (*out, _continue(out[-1].time if out else 0.0))
            return tuple(out)

    def _add(self, message: Message) -> None:
        if message.role == "tool":
            if self._asked is not None and self._asked.take(message):
                self._settle(self._asked)
                self._asked = None
            return
        content = _sayable(message)
        if not content:
            return
        calls: list[Named] = []
        if message.role == "user" and self._dated:
            content = self._with_date(content, message.time)
        if message.role == "assistant":
            if self._asked is not None:
                self._settle(self._asked)
            if type(content[0]) is not Text or len(content) > 1:
                content, calls = self._ids.given_to(content)
            self._asked = None
            if not self._out:
                self._out.append(_continue(message.time))
        sent = message if content is message.content else _with(message, content)
        self._out.append(sent if self._images else self._seen_by_model(sent))
        if calls:
            self._asked = _Asked(calls, len(self._out), message.time)
            self._out.append(message)  # placeholder of the results until all are known

    def _with_date(self, content: tuple[Block, ...], seconds: float) -> tuple[Block, ...]:
        day = time.strftime("%Y-%m-%d", time.localtime(seconds)) if seconds > 0 else ""
        if not day or day == self._day:
            return content
        self._day = day
        return (Text(DATE.format(day)), *content)

    def _settle(self, asked: _Asked) -> None:
        self._out[asked.place] = self._seen_by_model(asked.settled())

    def _seen_by_model(self, message: Message) -> Message:
        return message if self._images else with_notes(message, lambda image: NO_IMAGES)


def same_start(before: tuple[Message, ...], now: tuple[Message, ...]) -> int:
    """Return how many messages at the start of two conversations are the same objects."""
    if len(before) <= len(now) and all(map(is_, before, now)):
        return len(before)
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (old, new) in pairs if old is not new), len(now))


def _continue(time: float) -> Message:
    return Message("user", (Text(CONTINUE),), time)


class _Asked:
    """The calls of one message, and their results so far."""

    def __init__(self, calls: list[Named], place: int, time: float) -> None:
        self._calls = calls
        self.place = place
        self._message: Message | None = None
        self._time = time
        self._results: dict[str, list[ToolResult]] = {}
        self._waiting = Counter(id for id, _ in calls)

    def take(self, message: Message) -> bool:
        """Add results; return True when every call has one: further results belong to none."""
        self._message = self._message or message
        for block in message.content:
            if isinstance(block, ToolResult) and self._waiting[block.call_id] > 0:
                self._waiting[block.call_id] -= 1
                self._results.setdefault(block.call_id, []).append(block)
        return not any(self._waiting.values())

    def settled(self) -> Message:
        """Return one result per call, in call order; of several with the same id, the next one."""
        waiting = {id: iter(results) for id, results in self._results.items()}
        content = tuple(_result(waiting.get(old), call) for old, call in self._calls)
        return _with(self._message or Message("tool", (), self._time), content)


def _result(waiting: Iterator[ToolResult] | None, call: ToolCall) -> ToolResult:
    result = next(waiting, None) if waiting is not None else None
    if result is None:
        return ToolResult(call.id, (Text(NOT_RECORDED),), is_error=True, name=call.name)
    if (result.call_id, result.name) == (call.id, call.name):
        return result
    return replace(result, call_id=call.id, name=call.name)


class _Ids:
    """Makes the ids of a conversation unique: servers refuse empty and repeated ones."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def given_to(self, content: tuple[Block, ...]) -> tuple[tuple[Block, ...], list[Named]]:
        """Return the content with new ids where needed, and its calls."""
        calls: list[Named] = []
        blocks: list[Block] = []
        for block in content:
            if isinstance(block, ToolCall):
                id = self._fresh(block.id)
                call = block if id == block.id else replace(block, id=id)
                calls.append((block.id, call))
                block = call
            blocks.append(block)
        return tuple(blocks), calls

    def _fresh(self, id: str) -> str:
        fresh = id
        while not fresh or fresh in self._taken:
            number = self._numbers[id] = self._numbers.get(id, 1) + 1
            fresh = f"{id or 'call'}_{number}"
        self._taken.add(fresh)
        return fresh


def _sayable(message: Message) -> tuple[Block, ...]:
    """Return the blocks that are allowed in a message of the user or the model."""
    if len(message.content) == 1 and isinstance(text := message.content[0], Text):
        return message.content if text.text.strip() else ()
    kinds = (Text, Image) if message.role == "user" else (Text, ToolCall, Reasoning)
    content = tuple(
        block
        for block in message.content
        if isinstance(block, kinds) and not (isinstance(block, Text) and not block.text.strip())
    )
    # Thoughts without an answer: no API accepts them.
    return () if all(isinstance(block, Reasoning) for block in content) else content


def _with(message: Message, content: tuple[Block, ...]) -> Message:
    return message if content == message.content else replace(message, content=content)


def with_notes(message: Message, note: Callable[[Image], str]) -> Message:
    """Return the message with each image replaced by its text from `note`, if not empty."""

    def noted(block: Block) -> Block:
        if isinstance(block, ToolResult):
            content = tuple(map(noted, block.content))
            return block if content == block.content else replace(block, content=content)
        text = note(block) if isinstance(block, Image) else ""
        return Text(text) if text else block

    return _with(message, tuple(map(noted, message.content)))
