"""The zot dialect: encodes runtime state as the data of responses. No input or output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from zot.provider.types import Block, Message, Model, Text, ToolResult
from zot.text import encode_json, escaped
from zot.wire import shapes
from zot.wire.zot_events import message_shape, timestamp, usage_shape

if TYPE_CHECKING:
    from zot.core.hook import Rule
    from zot.core.session import ChangedFile
    from zot.core.source import ServerState
    from zot.runtime.rewind import Checkpoint, Rewound
    from zot.runtime.runtime import State


def state(state: State) -> shapes.State:
    return shapes.State(
        state.provider,
        state.model.id,
        state.cwd,
        state.message_count,
        state.busy,
        usage_shape(state.usage),
    )


def servers(servers: Iterable[ServerState]) -> tuple[shapes.McpServerShape, ...]:
    return tuple(
        shapes.McpServerShape(
            server.name, server.state, server.origin, server.tools, server.changed, server.error
        )
        for server in servers
    )


def models(models: Iterable[Model]) -> shapes.Models:
    return shapes.Models(
        tuple(
            shapes.ModelShape(
                model.id, model.provider, model.context_window, model.max_output, model.reasoning
            )
            for model in models
        )
    )


def approvals(rules: Iterable[Rule]) -> shapes.Approvals:
    return shapes.Approvals(tuple(shapes.ApprovalShape(rule.tool, rule.pattern) for rule in rules))


class KeptMessages:
    """Encoder of `shapes.Messages` that caches each message of the last answer: the next answer
    encodes only new ones.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Message, bytes]] = {}
        """Message and bytes by `id(message)`, which is unique while the message is held here."""

    def least_size(self, messages: Sequence[Message]) -> int:
        """Return a lower bound of the answer's size in bytes; cheap."""
        kept = self._kept
        known = sum([len(kept[id(message)][1]) for message in messages if id(message) in kept])
        return known + least_size(message for message in messages if id(message) not in kept)

    def answer(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the data of the answer, in pieces."""
        before, self._kept = self._kept, {}
        pieces: list[bytes] = []
        for message in messages:
            pair = before.get(id(message)) or (message, _encoded(message))
            self._kept[id(message)] = pair
            pieces += (b",", pair[1])
        return [b'{"messages":[', *pieces[1:], b"]}"]


def _encoded(message: Message) -> bytes:
    return escaped(encode_json(message_shape(message)))


def checkpoints(checkpoints: Iterable[Checkpoint]) -> shapes.CheckpointList:
    return shapes.CheckpointList(
        tuple(
            shapes.CheckpointShape(
                moment.id, timestamp(moment.time), moment.text, moment.messages, moment.files
            )
            for moment in checkpoints
        )
    )


def rewound(rewound: Rewound) -> shapes.Rewound:
    return shapes.Rewound(
        rewound.checkpoint,
        rewound.text,
        rewound.messages,
        changed(rewound.files),
        rewound.preview,
    )


def changed(files: Iterable[ChangedFile]) -> tuple[shapes.ChangedFileShape, ...]:
    return tuple(shapes.ChangedFileShape(**asdict(file)) for file in files)


def least_size(messages: Iterable[Message]) -> int:
    """Return a lower bound of the messages' size on the wire in bytes; cheap."""
    texts = (block for message in messages for block in message.content)
    return sum(_least(block) for block in texts)


def _least(block: Block) -> int:
    if isinstance(block, Text):
        return len(block.text)
    if isinstance(block, ToolResult):
        return sum(map(_least, block.content))
    return 0
