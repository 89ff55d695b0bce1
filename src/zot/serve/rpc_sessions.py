"""The commands of `zot rpc` about sessions, each as the data of its answer.

They are answered by the thread that reads commands: a prompt that follows `load_session` must
find the session it loaded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Set
from typing import assert_never

from msgspec.structs import replace

from zot import __version__
from zot.errors import BusyError
from zot.provider.types import Block, Image, Message, Text, ToolCall, ToolResult
from zot.runtime.runtime import Runtime
from zot.sessions import library
from zot.sessions.export import export_loaded, render_loaded
from zot.sessions.files import FileStore, Loaded, load
from zot.sessions.library import Summary, describe
from zot.sessions.open import open_session, sessions_dir
from zot.sessions.rows import Meta, rfc3339, unix
from zot.wire import commands, frames

SessionCommand = (
    commands.ListSessions
    | commands.LoadSession
    | commands.ForkSession
    | commands.ExportSession
    | commands.SetMessages
)
Answer = frames.Sessions | frames.SessionLoaded | frames.SessionExported | frames.MessagesSet


def answer(runtime: Runtime, command: SessionCommand) -> Answer:
    """Do what the command asks.

    Raises:
        SessionError: there is no such session, it is in use, or cannot be read or written.
        BusyError: a run is in flight, and the command would change its session.
    """
    match command:
        case commands.ListSessions(everywhere, limit):
            found = library.summaries(None if everywhere else runtime.cwd)
            rows = (shape(summary) for summary, _ in zip(found, range(limit), strict=False))
            return frames.Sessions(tuple(rows))
        case commands.LoadSession(session):
            return use(runtime, library.find(session, runtime.cwd))
        case commands.ForkSession():
            return fork(runtime, command)
        case commands.ExportSession(session, format, target):
            path, loaded = chosen(runtime, session)
            if target:
                return frames.SessionExported(format, export_loaded(path, loaded, target, format))
            content = render_loaded(path, loaded, format).decode()
            return frames.SessionExported(format, content=content)
        case commands.SetMessages(messages):
            runtime.set_messages([message(each) for each in messages])
            return frames.MessagesSet(runtime.session.message_count())
        case _:
            assert_never(command)


def fork(runtime: Runtime, command: commands.ForkSession) -> frames.SessionLoaded:
    path, loaded = chosen(runtime, command.session)
    beside = os.path.dirname(os.path.abspath(path)) if path else sessions_dir(runtime.cwd)
    if command.load and runtime.busy:
        raise BusyError("agent is busy: fork_session has to wait for done, or load: false")
    copy = library.fork_into(beside, loaded, command.at, cwd=loaded.meta.cwd or runtime.cwd)
    if command.load:
        return use(runtime, copy)
    return frames.SessionLoaded(shape(describe(copy, load(copy))))


def use(runtime: Runtime, path: str) -> frames.SessionLoaded:
    if runtime.busy:
        raise BusyError("agent is busy: load_session has to wait for done, or abort first")
    store = runtime.session.store
    if not (isinstance(store, FileStore) and _is_same(store.path, path)):
        runtime.use_session(open_session(path, runtime.cwd))
    return frames.SessionLoaded(current(runtime))


def chosen(runtime: Runtime, session: str) -> tuple[str, Loaded]:
    """Path and content of the session a command names; an empty path for one in memory."""
    if session:
        path = library.find(session, runtime.cwd)
        return path, load(path)
    store = runtime.session.store
    entries = dict(runtime.session.entries)
    if isinstance(store, FileStore):
        return store.path, Loaded(store.meta, entries, ())
    model = runtime.agent.model
    meta = Meta(
        runtime.session.id,
        runtime.cwd,
        model.id,
        model.provider,
        rfc3339(time.time()),
        __version__,
    )
    return "", Loaded(meta, entries, ())


def current(runtime: Runtime) -> frames.SessionShape:
    path, loaded = chosen(runtime, "")
    return shape(describe(path, loaded))


def shape(summary: Summary) -> frames.SessionShape:
    return frames.SessionShape(
        id=summary.id,
        path=summary.path,
        message_count=summary.messages,
        cwd=summary.cwd,
        title=summary.title,
        first_text=summary.first_text,
        provider=summary.provider,
        model=summary.model,
        started=summary.started,
        modified=rfc3339(summary.modified) if summary.modified else "",
        cost_usd=summary.cost,
        parent=summary.parent,
    )


def with_features(state: frames.State, runtime: Runtime, features: Set[str]) -> frames.State:
    """The state, with what the client asked for in `hello`."""
    if "budgets" in features:
        limits = runtime.agent.settings.limits
        shown = frames.LimitsShape(
            limits.max_steps, limits.max_cost, limits.max_tokens, limits.max_seconds
        )
        state = replace(state, limits=shown)
    return replace(state, session=current(runtime)) if "sessions" in features else state


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


def _is_same(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False
