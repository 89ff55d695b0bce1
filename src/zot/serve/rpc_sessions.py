"""Commands of `zot rpc` about sessions; each returns the data of its answer.

The thread that reads commands executes them: a prompt after `load_session` must find the loaded
session.
"""

from __future__ import annotations

import time
from typing import assert_never

from zot.provider.types import Block, Image, Message, Text, ToolCall, ToolResult
from zot.runtime.runtime import Runtime
from zot.sessions.rows import unix
from zot.wire import commands, encode, shapes

Answer = (
    shapes.Sessions
    | shapes.SessionLoaded
    | shapes.SessionExported
    | shapes.CheckpointList
    | shapes.Rewound
    | shapes.Changes
    | shapes.MessagesSet
)


def answer(runtime: Runtime, command: commands.OfSession | commands.OfChanges) -> Answer:
    """Execute the command.

    Raises:
        SessionError: there is no such session, it is in use, or cannot be read or written.
        BusyError: a run is in flight, and the command would change its session.
    """
    match command:
        case commands.NewSession():
            return shapes.SessionLoaded(encode.session(runtime.sessions.new()))
        case commands.ListSessions(everywhere, limit):
            infos = runtime.sessions.list(everywhere=everywhere, limit=limit)
            return shapes.Sessions(tuple(map(encode.session, infos)))
        case commands.LoadSession(session):
            return shapes.SessionLoaded(encode.session(runtime.sessions.load(session)))
        case commands.ForkSession(session, at, load):
            return shapes.SessionLoaded(
                encode.session(runtime.sessions.fork(session, at, load=load))
            )
        case commands.ExportSession(session, format, target):
            exported = runtime.sessions.export(session, format, target)
            if target:
                return shapes.SessionExported(format, exported.path)
            return shapes.SessionExported(format, content=exported.content)
        case commands.Checkpoints():
            return shapes.CheckpointList(
                tuple(map(encode.checkpoint, runtime.history.checkpoints()))
            )
        case commands.Rewind(to, conversation, files, preview, force):
            return encode.rewound(
                runtime.history.rewind(
                    to, conversation=conversation, files=files, preview=preview, force=force
                )
            )
        case commands.GetChanges():
            return shapes.Changes(encode.changed(runtime.history.changed_files()))
        case commands.SetMessages(messages):
            runtime.sessions.set_messages([message(data) for data in messages])
            return shapes.MessagesSet(runtime.session.message_count())
        case _:
            assert_never(command)


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
