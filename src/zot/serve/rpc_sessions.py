"""Commands of `zot rpc` about sessions; each returns the data of its answer.

The thread that reads commands executes them: a prompt after `load_session` must find the loaded
session.
"""

from __future__ import annotations

import time
from collections.abc import Set
from typing import assert_never

from msgspec.structs import replace

from zot.core.session import SessionInfo
from zot.provider.types import Block, Image, Message, Text, ToolCall, ToolResult
from zot.runtime.runtime import Runtime
from zot.sessions.rows import rfc3339, unix
from zot.wire import commands, shapes, zot_replies
from zot.wire.zot_events import approval_request, extension_ask

SessionCommand = (
    commands.NewSession
    | commands.ListSessions
    | commands.LoadSession
    | commands.ForkSession
    | commands.ExportSession
    | commands.Checkpoints
    | commands.Rewind
    | commands.GetChanges
    | commands.SetMessages
)
Answer = (
    shapes.Sessions
    | shapes.SessionLoaded
    | shapes.SessionExported
    | shapes.CheckpointList
    | shapes.Rewound
    | shapes.Changes
    | shapes.MessagesSet
)


def answer(runtime: Runtime, command: SessionCommand) -> Answer:
    """Execute the command.

    Raises:
        SessionError: there is no such session, it is in use, or cannot be read or written.
        BusyError: a run is in flight, and the command would change its session.
    """
    match command:
        case commands.NewSession():
            return shapes.SessionLoaded(shape(runtime.sessions.new()))
        case commands.ListSessions(everywhere, limit):
            infos = runtime.sessions.list(everywhere=everywhere, limit=limit)
            return shapes.Sessions(tuple(map(shape, infos)))
        case commands.LoadSession(session):
            return shapes.SessionLoaded(shape(runtime.sessions.load(session)))
        case commands.ForkSession(session, at, load):
            return shapes.SessionLoaded(shape(runtime.sessions.fork(session, at, load=load)))
        case commands.ExportSession(session, format, target):
            exported = runtime.sessions.export(session, format, target)
            if target:
                return shapes.SessionExported(format, exported.path)
            return shapes.SessionExported(format, content=exported.content)
        case commands.Checkpoints():
            return zot_replies.checkpoints(runtime.history.checkpoints())
        case commands.Rewind(to, conversation, files, preview, force):
            return zot_replies.rewound(
                runtime.history.rewind(
                    to, conversation=conversation, files=files, preview=preview, force=force
                )
            )
        case commands.GetChanges():
            return shapes.Changes(zot_replies.changed(runtime.history.changed_files()))
        case commands.SetMessages(messages):
            runtime.sessions.set_messages([message(data) for data in messages])
            return shapes.MessagesSet(runtime.session.message_count())
        case _:
            assert_never(command)


def shape(info: SessionInfo) -> shapes.SessionShape:
    return shapes.SessionShape(
        id=info.id,
        path=info.path,
        message_count=info.messages,
        cwd=info.cwd,
        title=info.title,
        first_text=info.first_text,
        provider=info.provider,
        model=info.model,
        started=info.started,
        modified=rfc3339(info.modified) if info.modified else "",
        cost_usd=info.cost,
        parent=info.parent,
    )


def with_features(state: shapes.State, runtime: Runtime, features: Set[str]) -> shapes.State:
    """Return the state with the features that the client requested in `hello`."""
    if "budgets" in features:
        limits = runtime.agent.settings.limits
        shown = shapes.LimitsShape(
            limits.max_steps, limits.max_cost, limits.max_tokens, limits.max_seconds
        )
        state = replace(state, limits=shown)
    if "approvals" in features:
        state = replace(
            state, questions=tuple(map(approval_request, runtime.approvals.open_requests()))
        )
    if "dialogs" in features:
        state = replace(state, dialogs=tuple(map(extension_ask, runtime.dialogs.open())))
    if "mcp" in features:
        state = replace(state, mcp=zot_replies.servers(runtime.sources.servers()))
    return (
        replace(state, session=shape(runtime.sessions.info())) if "sessions" in features else state
    )


def message(data: commands.MessageData) -> Message:
    when = unix(data.time) if data.time else time.time()
    return Message(data.role, tuple(map(_block, data.content)), when)


def _block(
    data: commands.TextData
    | commands.ImageBlockData
    | commands.ToolCallData
    | commands.ToolResultData,
) -> Block:
    match data:
        case commands.TextData(text):
            return Text(text)
        case commands.ImageBlockData(mime_type, content):
            return Image(mime_type, content)
        case commands.ToolCallData(id, name, args):
            return ToolCall(id, name, args)
        case commands.ToolResultData(call_id, parts, is_error):
            inner = tuple(
                Text(part.text)
                if isinstance(part, commands.TextData)
                else Image(part.mime_type, part.data)
                for part in parts
            )
            return ToolResult(call_id, inner, is_error)
        case _:
            assert_never(data)
