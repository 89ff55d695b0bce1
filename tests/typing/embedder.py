"""What a user's type checker sees. Checked by mypy in test_typing.py; never run."""

from collections.abc import Iterator
from typing import Any, assert_type

from zot import (
    AsyncClient,
    AsyncRuntime,
    Config,
    Decision,
    Limits,
    Runtime,
    events,
    guard,
    parse_frame,
    tool,
)
from zot.client import (
    AsyncEventIterator,
    BusyError,
    Client,
    ClosedError,
    CommandError,
    EventIterator,
)
from zot.observe import Observer, Status, normalize
from zot.sdk import (
    AnyFrame,
    CompactResult,
    EventFrame,
    EventStream,
    FunctionTool,
    MessageShape,
    ModelShape,
    State,
    ToolCall,
    UsageShape,
)


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool(name="sub")
def subtract(a: int, b: int) -> int:
    """Subtract."""
    return a - b


def no_shell(call: ToolCall) -> str | None:
    return "no shell" if call.name == "bash" else None


assert_type(add, FunctionTool)
assert_type(subtract, FunctionTool)


def in_process() -> Iterator[str]:
    with Runtime(provider="anthropic", tools=["read", add], hooks=[no_shell]) as runtime:
        stream = runtime.prompt("hi")
        assert_type(stream, EventStream)
        for event in stream:
            assert_type(event, EventFrame)
            if isinstance(event, events.TextDelta):
                yield event.delta
            assert_type(event.to_wire(), dict[str, Any])
        assert_type(runtime.state(), State)
        assert_type(runtime.messages(), tuple[MessageShape, ...])
        assert_type(runtime.cost(), UsageShape)
        assert_type(runtime.compact(), CompactResult)
        assert_type(runtime.list_models(), tuple[ModelShape, ...])
    Runtime(Config(provider="anthropic", hooks=[guard(no_shell)])).close()


async def in_a_loop() -> None:
    async with AsyncRuntime(provider="anthropic", max_steps=3) as runtime:
        async for event in runtime.prompt("hi"):
            assert_type(event, EventFrame)
        assert_type(await runtime.compact(), CompactResult)


def out_of_process() -> None:
    with Client(["zot", "rpc"], token="x", features=["thinking"]) as client:
        assert_type(client.prompt("hi"), EventIterator)
        assert_type(client.state(), State)
        client.set_reasoning("high")
        client.prompt("hi", limits=Limits(max_steps=3))
        client.open_agent("a", tools=["read"], limits=Limits(max_cost=1.0))


async def out_of_process_in_a_loop() -> None:
    async with AsyncClient(["zot", "rpc"]) as client:
        assert_type(client.prompt("hi"), AsyncEventIterator)
        async for event in client.prompt("hi", limits=Limits(max_cost=0.1)):
            if isinstance(event, events.ApprovalRequest):
                decision: Decision = "deny"
                await client.approve(event.request_id, decision)
        assert_type(await client.state(), State)
        async with await client.open_agent("a", jail=True) as agent:
            assert_type(await agent.messages(), tuple[MessageShape, ...])


def watching(frame: dict[str, Any]) -> None:
    assert_type(Observer().status(), Status)
    assert_type(parse_frame(frame), AnyFrame)
    state = normalize(frame)
    if state is not None:
        print(state.upper())


def refused(client: Client) -> str:
    try:
        client.clear()
    except (BusyError, ClosedError, CommandError) as error:
        return error.code
    return ""
