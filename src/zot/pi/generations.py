"""The encoders for the generations of pi's protocol, and the choice of the current one."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from zot.core import events
from zot.core.events import Event
from zot.pi import frames
from zot.pi.dialect import Generation, PiPeer
from zot.pi.events import Encoder, PiTurn, RunKind
from zot.pi.frames import CompactionResult, PiFrame, PiToolOutput
from zot.pi.messages import PiAssistant, PiResult, TextPart
from zot.pi.stream import PiStream
from zot.provider.types import ToolCall
from zot.wire.encode import timestamp

NEWER = (
    frames.CompactionStart,
    frames.AutoRetryStart,
    frames.AutoRetryEnd,
    frames.QueueChanged,
)
"""Frames that generation A does not have."""


class EncoderA(Encoder):
    """The documented protocol: one tool after the other, and nothing added later."""

    generation = "a"

    def encode(self, event: Event, kind: RunKind | None, now: float) -> Sequence[PiFrame]:
        told = super().encode(event, kind, now)
        return [frame for frame in told if not isinstance(frame, NEWER)]

    def settled(self, *, aborted: bool) -> list[PiFrame]:
        return []

    def compacted(self, event: events.CompactDone, result: CompactionResult) -> PiFrame:
        told = frames.SpecCompaction(event.summary, event.tokens_before, timestamp(time.time()))
        return told if event.reason == "manual" else msgspec.structs.replace(told, auto=True)

    def _compaction_failed(self, event: events.CompactFailed) -> PiFrame:
        what = "Compaction" if event.reason == "manual" else "Auto-compaction"
        return frames.SpecError(f"{what} failed: {event.error}")

    def _new_stream(self, head: PiAssistant) -> PiStream:
        return PiStream(head, self._budget, as_documented=True)

    def _agent_end(self) -> PiFrame:
        return frames.AgentEnd(self._messages)

    def _tools_called(self, turn: PiTurn) -> list[PiFrame]:
        return []  # each is reported when it runs

    def _tool_progress(self, id: str, text: str, now: float) -> list[PiFrame]:
        return []

    def _tool_ended(self, call: ToolCall, shown: PiResult, seconds: float) -> list[PiFrame]:
        output: PiToolOutput | str = PiToolOutput(shown.content, shown.details)
        if shown.isError:
            output = "\n".join(part.text for part in shown.content if isinstance(part, TextPart))
        end = frames.ToolExecutionEnd(call.id, call.name, output, shown.isError)
        return [end, *self._pair(shown)]

    def _tools_done(self, turn: PiTurn) -> list[PiFrame]:
        return self._close_turn()


class EncoderB(Encoder):
    """Sends the whole message in every update."""

    generation = "b"


class EncoderC(Encoder):
    """Sends deltas only."""

    generation = "c"
    first_stop = "pending"

    def _new_stream(self, head: PiAssistant) -> PiStream:
        return PiStream(head, None)


ENCODERS: dict[Generation, type[Encoder]] = {"a": EncoderA, "b": EncoderB, "c": EncoderC}


class Encoders:
    """Selects the encoder for the peer's generation."""

    def __init__(self, peer: PiPeer) -> None:
        self._peer = peer
        self._current = ENCODERS[peer.generation](peer)

    @property
    def current(self) -> Encoder:
        """The encoder to use now; a run keeps its own, even if the peer's generation changes."""
        before = self._current
        if not before.running and before.generation != self._peer.generation:
            self._current = ENCODERS[self._peer.generation](self._peer, before)
        return self._current
