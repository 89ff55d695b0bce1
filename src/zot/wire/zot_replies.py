"""The zot dialect: what the runtime knows, as the data of responses. No input or output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from zot.provider.types import Block, Message, Model, Text, ToolResult
from zot.wire import frames
from zot.wire.zot_events import message_shape, timestamp, usage_shape

if TYPE_CHECKING:
    from zot.core.rule import Rule
    from zot.runtime.rewind import ChangedFile, Checkpoint, Rewound
    from zot.runtime.runtime import State


def state(state: State) -> frames.State:
    return frames.State(
        state.provider,
        state.model.id,
        state.cwd,
        state.message_count,
        state.busy,
        usage_shape(state.usage),
    )


def models(models: Iterable[Model]) -> frames.Models:
    return frames.Models(
        tuple(
            frames.ModelShape(
                model.id, model.provider, model.context_window, model.max_output, model.reasoning
            )
            for model in models
        )
    )


def approvals(rules: Iterable[Rule]) -> frames.Approvals:
    return frames.Approvals(tuple(frames.ApprovalShape(rule.tool, rule.pattern) for rule in rules))


def checkpoints(checkpoints: Iterable[Checkpoint]) -> frames.CheckpointList:
    return frames.CheckpointList(
        tuple(
            frames.CheckpointShape(
                moment.id, timestamp(moment.time), moment.text, moment.messages, moment.files
            )
            for moment in checkpoints
        )
    )


def rewound(rewound: Rewound) -> frames.Rewound:
    return frames.Rewound(
        rewound.checkpoint,
        rewound.text,
        rewound.messages,
        changed(rewound.files),
        rewound.preview,
    )


def changed(files: Iterable[ChangedFile]) -> tuple[frames.ChangedFileShape, ...]:
    return tuple(frames.ChangedFileShape(**asdict(file)) for file in files)


def messages(messages: Iterable[Message]) -> frames.Messages:
    return frames.Messages(tuple(message_shape(message) for message in messages))


def least_size(messages: Iterable[Message]) -> int:
    """Bytes these messages need on the wire at the very least; quick to say."""
    texts = (block for message in messages for block in message.content)
    return sum(_least(block) for block in texts)


def _least(block: Block) -> int:
    if isinstance(block, Text):
        return len(block.text)
    if isinstance(block, ToolResult):
        return sum(map(_least, block.content))
    return 0
