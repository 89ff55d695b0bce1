"""Every frame of generation A has the shape that its document gives it, and nothing besides."""

import base64
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Struct, UnsetType
from support.pi import Frame, PiServers

Object = dict[str, Any]


class Shape(Struct, forbid_unknown_fields=True):
    pass


class TextContent(Shape, tag_field="type", tag="text"):
    text: str
    textSignature: str | UnsetType = UNSET


class ThinkingContent(Shape, tag_field="type", tag="thinking"):
    thinking: str
    thinkingSignature: str | UnsetType = UNSET


class ImageContent(Shape, tag_field="type", tag="image"):
    data: str
    mimeType: str


class ToolCall(Shape, tag_field="type", tag="toolCall"):
    id: str
    name: str
    arguments: Object
    thoughtSignature: str | UnsetType = UNSET


class Cost(Shape):
    input: float
    output: float
    cacheRead: float
    cacheWrite: float
    total: float


class Usage(Shape):
    input: int
    output: int
    cacheRead: int
    cacheWrite: int
    cost: Cost
    totalTokens: int | UnsetType = UNSET
    """Not in the document; the program it describes sends it."""


class Attachment(Shape):
    id: str
    type: Literal["image", "document"]
    fileName: str
    mimeType: str
    size: int
    content: str
    extractedText: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET


class UserMessage(Shape, tag_field="role", tag="user"):
    content: str | list[TextContent | ImageContent]
    timestamp: int
    attachments: list[Attachment] | UnsetType = UNSET


class AssistantMessage(Shape, tag_field="role", tag="assistant"):
    content: list[TextContent | ThinkingContent | ToolCall]
    api: str
    provider: str
    model: str
    usage: Usage
    stopReason: Literal["stop", "length", "toolUse", "error", "aborted"]
    timestamp: int
    errorMessage: str | UnsetType = UNSET


class ToolResultMessage(Shape, tag_field="role", tag="toolResult"):
    toolCallId: str
    toolName: str
    content: list[TextContent | ImageContent]
    isError: bool
    timestamp: int
    details: Any = UNSET


AppMessage = UserMessage | AssistantMessage | ToolResultMessage


class Piece(Shape, tag_field="type"):
    contentIndex: int
    partial: AssistantMessage


class PieceDelta(Piece):
    delta: str


class PieceEnd(Piece):
    content: str


class TextStart(Piece, tag="text_start"): ...


class TextDelta(PieceDelta, tag="text_delta"): ...


class TextEnd(PieceEnd, tag="text_end"): ...


class ThinkingStart(Piece, tag="thinking_start"): ...


class ThinkingDelta(PieceDelta, tag="thinking_delta"): ...


class ThinkingEnd(PieceEnd, tag="thinking_end"): ...


class ToolcallStart(Piece, tag="toolcall_start"): ...


class ToolcallDelta(PieceDelta, tag="toolcall_delta"): ...


class ToolcallEnd(Piece, tag="toolcall_end"):
    toolCall: Object


AssistantMessageEvent = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolcallStart
    | ToolcallDelta
    | ToolcallEnd
)


class AgentToolResult(Shape):
    content: list[TextContent | ImageContent]
    details: Any = UNSET


class AgentStart(Shape, tag_field="type", tag="agent_start"):
    pass


class AgentEnd(Shape, tag_field="type", tag="agent_end"):
    messages: list[AppMessage]


class TurnStart(Shape, tag_field="type", tag="turn_start"):
    pass


class TurnEnd(Shape, tag_field="type", tag="turn_end"):
    message: AssistantMessage
    toolResults: list[ToolResultMessage]


class MessageStart(Shape, tag_field="type", tag="message_start"):
    message: AppMessage


class MessageUpdate(Shape, tag_field="type", tag="message_update"):
    message: AssistantMessage
    assistantMessageEvent: AssistantMessageEvent


class MessageEnd(Shape, tag_field="type", tag="message_end"):
    message: AppMessage


class ToolExecutionStart(Shape, tag_field="type", tag="tool_execution_start"):
    toolCallId: str
    toolName: str
    args: Object


class ToolExecutionEnd(Shape, tag_field="type", tag="tool_execution_end"):
    toolCallId: str
    toolName: str
    result: AgentToolResult | str
    isError: bool


class Compaction(Shape, tag_field="type", tag="compaction"):
    summary: str
    tokensBefore: int
    auto: Literal[True] | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    """As totalTokens."""


class Error(Shape, tag_field="type", tag="error"):
    error: str


Event = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionEnd
    | Compaction
    | Error
)

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 16).decode()
TURNS = (
    {"match": "<conversation>", "text": "a summary", "repeat": True},
    {
        "match": "tools",
        "thinking": ["h", "m"],
        "text": ["loo", "king"],
        "tools": [
            {"name": "bash", "args": {"command": "echo out"}},
            {"name": "write", "args": {"path": "a.txt", "content": "x\n"}},
            {
                "name": "edit",
                "args": {"path": "a.txt", "edits": [{"oldText": "x", "newText": "y"}]},
            },
            {"name": "nope"},
            {"name": "bash", "raw_args": "[1"},
        ],
        "usage": {"input": 10, "output": 5, "cache_read": 3, "cache_write": 1},
    },
    {"match": "fail", "error": {"status": 401, "message": "bad key"}},
    {"match": "cut", "text": ["half", "gone"], "cut_after": 1},
    {"match": "slow", "text": ["a"] * 50, "delay_ms": 100},
    {"match": "full", "text": "much", "usage": {"input": 190_000, "output": 10}},
    {"text": ["Hel", "lo"], "repeat": True},
)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[Frame]:
    """What a client of generation A hears in a session with all that can happen."""
    servers = PiServers(tmp_path_factory.mktemp("shapes"))
    sent = {"id": "1", "type": "image", "fileName": "a.png", "mimeType": "image/png", "size": 24}
    words = {"id": "2", "type": "document", "fileName": "a.txt", "mimeType": "text/plain"}
    with servers.start(*TURNS) as server:
        for message in ("hi", "tools", "fail", "cut", "full"):
            server.run(message, end="agent_end")
        server.until("compaction")
        files = [sent | {"content": PNG}, words | {"size": 3, "content": "", "extractedText": "x"}]
        server.run("look", end="agent_end", attachments=files)
        server.send("prompt", message="slow")
        server.until("message_update")
        server.send("abort")
        server.until("agent_end")
        server.send("compact")
        server.until("compaction")
        server.send("compact")
        server.until("error")
        server.raw(b"garbage\n")
        server.until("error")
        return [*server.seen, *server.rest()]


def test_every_frame_has_its_documented_shape(frames: list[Frame]) -> None:
    for frame in frames:
        msgspec.convert(frame, Event)


def test_all_eleven_events_and_nine_updates_were_seen(frames: list[Frame]) -> None:
    assert {frame["type"] for frame in frames} == {
        "agent_start",
        "agent_end",
        "turn_start",
        "turn_end",
        "message_start",
        "message_update",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
        "compaction",
        "error",
    }
    pieces = [f["assistantMessageEvent"]["type"] for f in frames if f["type"] == "message_update"]
    kinds = ("text", "thinking", "toolcall")
    assert set(pieces) == {f"{kind}_{part}" for kind in kinds for part in ("start", "delta", "end")}


def test_errors_of_tools_are_strings_and_only_those(frames: list[Frame]) -> None:
    ends = [frame for frame in frames if frame["type"] == "tool_execution_end"]
    assert [frame["isError"] for frame in ends] == [False, False, False, True, True]
    assert all(isinstance(frame["result"], str) == frame["isError"] for frame in ends)


def test_every_way_to_stop_was_seen(frames: list[Frame]) -> None:
    stops = {f["message"]["stopReason"] for f in frames if f["type"] == "turn_end"}
    assert stops == {"stop", "toolUse", "error", "aborted"}
    automatic = [frame.get("auto") for frame in frames if frame["type"] == "compaction"]
    assert automatic == [True, None]
