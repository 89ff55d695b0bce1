"""State of a pi assistant message while it streams: the open block, its content, and the updates to
send. Pure: the caller passes the time.

Generations A and B want the whole message in every update, which is quadratic. Therefore snapshots
have a budget in bytes per second: while it lasts, every delta is sent as an update; when it is used
up, deltas are joined until it has grown again. Nothing is lost, and every snapshot is correct.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from zot.lines import encode_line
from zot.pi.frames import MessageUpdate, Piece
from zot.pi.messages import CallPart, Part, PiAssistant, TextPart, ThinkingPart, usage_to_pi
from zot.provider.types import Json, Usage

BYTES_A_SECOND = 1_000_000
BURST = 500_000
OVERHEAD = 700
"""Bytes of a snapshot besides its text."""

Kind = Literal["text", "thinking", "toolcall"]
_NO_USAGE = Raw(msgspec.json.encode(usage_to_pi(Usage())))


class Budget:
    """Byte budget for snapshots; refilled over time, up to BURST."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = 0.0

    def allows(self, size: int, now: float) -> bool:
        """Whether `size` bytes may be sent; sizes above BURST need a full budget."""
        self._left = min(float(BURST), self._left + max(0.0, now - self._at) * BYTES_A_SECOND)
        self._at = now
        return min(size, BURST) <= self._left

    def spend(self, size: int) -> None:
        self._left -= size


class GrowingBlock:
    def __init__(self, kind: Kind, id: str = "", name: str = "") -> None:
        self.kind = kind
        self.id = id
        self.name = name
        self.parts: list[str] = []
        self.open = True
        self._args: dict[str, Json] = {}

    @property
    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    def shown(self) -> Part:
        if self.kind != "toolcall":
            return TextPart(self.text) if self.kind == "text" else ThinkingPart(self.text)
        self._args = parsed_so_far(self.text) or self._args
        return CallPart(self.id, self.name, self._args)


class PiStream:
    """An assistant message. Every method returns the updates that are due."""

    def __init__(
        self, head: PiAssistant, budget: Budget | None, *, as_documented: bool = False
    ) -> None:
        """`head` is the message without content; no `budget` means deltas only.

        `as_documented` omits additions of newer generations.
        """
        self._usage: Raw | UnsetType = UNSET if as_documented else _NO_USAGE
        self._named = not as_documented
        self._head = head
        self._budget = budget
        self._blocks: list[GrowingBlock] = []
        self._calls: dict[str, int] = {}
        self._size = OVERHEAD
        self._waiting: list[str] = []
        self._waiting_for = -1

    @property
    def waiting(self) -> bool:
        """Whether deltas are held back."""
        return bool(self._waiting)

    def content(self) -> list[Part]:
        return [block.shown() for block in self._blocks]

    # --- output of the model -----------------------------------------------------------------

    def say(self, kind: Literal["text", "thinking"], delta: str, now: float) -> list[MessageUpdate]:
        last = self._blocks[-1] if self._blocks else None
        if last is not None and last.open and last.kind == kind:
            return self._delta(len(self._blocks) - 1, delta, now)
        out = self._end_prose()
        out += self._start(GrowingBlock(kind))
        return out + self._delta(len(self._blocks) - 1, delta, now)

    def call(self, id: str, name: str) -> list[MessageUpdate]:
        out = self._end_prose()
        self._calls[id] = len(self._blocks)
        return out + self._start(GrowingBlock("toolcall", id, name))

    def call_args(self, id: str, delta: str, now: float) -> list[MessageUpdate]:
        index = self._calls.get(id)
        return [] if index is None else self._delta(index, delta, now)

    def call_end(self, id: str) -> list[MessageUpdate]:
        index = self._calls.get(id)
        return [] if index is None else self._end(index)

    def tick(self, now: float) -> list[MessageUpdate]:
        """Send held-back deltas, if the budget allows it now."""
        assert self._budget is not None
        if self._waiting and self._budget.allows(2 * self._size, now):
            return self.flush()
        return []

    def flush(self) -> list[MessageUpdate]:
        """Send held-back deltas regardless of the budget."""
        if not self._waiting:
            return []
        index, delta = self._waiting_for, "".join(self._waiting)
        self._waiting = []
        kind = self._blocks[index].kind
        return [self._update(Piece(type=f"{kind}_delta", contentIndex=index, delta=delta))]

    def finish(self) -> list[MessageUpdate]:
        """Close all open blocks: the message is complete."""
        out: list[MessageUpdate] = []
        for index, block in enumerate(self._blocks):
            if block.open:
                out += self._end(index)
        return out

    # --- updates -----------------------------------------------------------------------------

    def _start(self, block: GrowingBlock) -> list[MessageUpdate]:
        out = self.flush()
        self._blocks.append(block)
        index = len(self._blocks) - 1
        if block.kind == "toolcall" and self._named:
            piece = Piece(
                type="toolcall_start", contentIndex=index, id=block.id, toolName=block.name
            )
        else:
            piece = Piece(type=f"{block.kind}_start", contentIndex=index)
        return [*out, self._update(piece)]

    def _delta(self, index: int, delta: str, now: float) -> list[MessageUpdate]:
        block = self._blocks[index]
        block.parts.append(delta)
        self._size += len(delta)
        if self._budget is None:
            piece = Piece(type=f"{block.kind}_delta", contentIndex=index, delta=delta)
            return [MessageUpdate(piece, self._usage)]
        out = self.flush() if self._waiting and self._waiting_for != index else []
        self._waiting.append(delta)
        self._waiting_for = index
        return out + self.tick(now)

    def _end_prose(self) -> list[MessageUpdate]:
        """End a text or thinking block, as another begins; calls end when the model ends them."""
        if self._blocks and self._blocks[-1].open and self._blocks[-1].kind != "toolcall":
            return self._end(len(self._blocks) - 1)
        return []

    def _end(self, index: int) -> list[MessageUpdate]:
        block = self._blocks[index]
        if not block.open:
            return []
        out = self.flush()
        block.open = False
        if block.kind == "toolcall":
            piece = Piece(type="toolcall_end", contentIndex=index, toolCall=block.shown())
        else:
            piece = Piece(type=f"{block.kind}_end", contentIndex=index, content=block.text)
        return [*out, self._update(piece)]

    def _update(self, piece: Piece) -> MessageUpdate:
        if self._budget is None:
            return MessageUpdate(piece, self._usage)
        message = msgspec.structs.replace(self._head, content=self.content())
        snapshot = Raw(encode_line(message)[:-1])
        self._budget.spend(2 * len(bytes(snapshot)))  # the frame contains it twice
        piece = msgspec.structs.replace(piece, partial=snapshot)
        return MessageUpdate(piece, self._usage, snapshot)


_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


def parsed_so_far(raw: str) -> dict[str, Json] | None:
    """Return the arguments that an unfinished JSON text already holds; None: none yet."""
    in_string = escaped = False
    closers: list[str] = []
    comma = -1
    for position, letter in enumerate(raw):
        if in_string:
            in_string = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            in_string = True
        elif letter in "{[":
            closers.append("}" if letter == "{" else "]")
        elif letter in "}]":
            del closers[-1:]
        elif letter == "," and len(closers) == 1:
            comma = position
    open_text = _CUT_ESCAPE.sub("", raw) + '"' if in_string else raw
    candidates = [open_text + "".join(reversed(closers))]
    if comma > 0:
        candidates.append(raw[:comma] + "}")
    for text in candidates:
        try:
            return msgspec.json.decode(text, type=dict[str, Json])
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            continue
    return None
