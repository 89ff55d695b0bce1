"""Public API for embedders: the agent in your process, its events as types.

    from zot import Runtime

    with Runtime(provider="anthropic") as runtime:
        for event in runtime.prompt("what does this project do?"):
            ...

Names that need asyncio load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zot.core.agent import Limits
from zot.core.hook import ALLOW, Allow, Block, Hook, HookContext, ReplaceArgs, ReplaceText, Rule
from zot.core.session import ChangedFile, SessionInfo
from zot.core.shell import ShellOutput
from zot.core.source import CommandInfo, CommandResult
from zot.core.tool import Tool, ToolContext, ToolOutput
from zot.errors import (
    AuthError,
    BusyError,
    ClosedError,
    CommandError,
    ConfigError,
    InvalidOutput,
    ProviderError,
    SessionError,
    ToolError,
    ZotError,
)
from zot.provider.types import Image, Level, Message, Model, Provider, Text, ToolCall
from zot.runtime.agents import AgentInfo
from zot.runtime.approval import Decision
from zot.runtime.rewind import Checkpoint, Rewound
from zot.sdk.config import Config
from zot.sdk.function import FunctionTool, guard, tool
from zot.sdk.listener import AgentOptions
from zot.sdk.runtime import Runtime
from zot.sdk.stream import AgentEvent, Answer, CompactResult, EventStream
from zot.wire import frames as events
from zot.wire.eventlog import KeptEvent, follow
from zot.wire.frames import (
    AnyFrame,
    ContentBlock,
    EventFrame,
    FrameError,
    ImageBlock,
    MessageShape,
    Response,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Unknown,
    UsageShape,
    parse_frame,
)
from zot.wire.shapes import EventsRead, McpServerShape, ModelShape, State

if TYPE_CHECKING:
    from zot.sdk.aio import AsyncEventStream, AsyncRuntime, follow_async

__all__ = [
    "ALLOW",
    "AgentEvent",
    "AgentInfo",
    "AgentOptions",
    "Allow",
    "Answer",
    "AnyFrame",
    "AsyncEventStream",
    "AsyncRuntime",
    "AuthError",
    "Block",
    "BusyError",
    "ChangedFile",
    "Checkpoint",
    "ClosedError",
    "CommandError",
    "CommandInfo",
    "CommandResult",
    "CompactResult",
    "Config",
    "ConfigError",
    "ContentBlock",
    "Decision",
    "EventFrame",
    "EventStream",
    "EventsRead",
    "FrameError",
    "FunctionTool",
    "Hook",
    "HookContext",
    "Image",
    "ImageBlock",
    "InvalidOutput",
    "KeptEvent",
    "Level",
    "Limits",
    "McpServerShape",
    "Message",
    "MessageShape",
    "Model",
    "ModelShape",
    "Provider",
    "ProviderError",
    "ReplaceArgs",
    "ReplaceText",
    "Response",
    "Rewound",
    "Rule",
    "Runtime",
    "SessionError",
    "SessionInfo",
    "ShellOutput",
    "State",
    "Text",
    "TextBlock",
    "Tool",
    "ToolCall",
    "ToolCallBlock",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolResultBlock",
    "Unknown",
    "UsageShape",
    "ZotError",
    "events",
    "follow",
    "follow_async",
    "guard",
    "parse_frame",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in ("AsyncEventStream", "AsyncRuntime", "follow_async"):
        from zot.sdk import aio

        return getattr(aio, name)
    raise AttributeError(f"module 'zot.sdk' has no attribute {name!r}")
