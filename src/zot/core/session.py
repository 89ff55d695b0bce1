"""The transcript and its single owner. A session is a tree of entries; a plain conversation has one
branch. A Store persists the entries; this module opens no file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

from zot.core.events import Reason
from zot.provider.types import (
    Json,
    Level,
    Message,
    Plain,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from zot.text import Frozen

SUMMARY_HEADING = "## Context Summary (compacted)\n\n"
JOURNAL = "journal"
"""Kind of the Custom rows that hold the journal of durable runs (runtime/journal.py)."""


class Compaction(Plain):
    """Replaces everything before `first_kept` by the summary, in the model's view."""

    summary: str
    first_kept: str | None
    """Id of the first entry to keep (any entry, not only messages); None: keep nothing. If the
    branch lacks the id, everything is kept: better too much than a silent loss."""
    tokens_before: int = 0
    reason: Reason = "manual"
    usage: Usage | None = None
    details: dict[str, Json] | None = None


class ModelChange(Plain):
    provider: str
    model: str


class LevelChange(Plain):
    level: Level


class Title(Plain):
    title: str


class UsageNote(Plain):
    """Usage of one model call, and the sum so far."""

    usage: Usage
    cumulative: Usage


class Label(Plain):
    target: str
    label: str | None


class Cleared(Plain):
    """Start of a fresh conversation: the model sees nothing before this entry."""


class ResultNote(Plain):
    """One tool result, written as soon as it is known. The message with all results of the turn
    replaces these notes; after a crash before that, the notes stand in for the message.
    """

    result: ToolResult


class Replaced(Plain):
    """Replaces all messages before this entry by `messages`."""

    messages: tuple[Message, ...]


class Custom(Plain):
    """A row without a class of its own, or of a later version; kept verbatim."""

    kind: str
    data: dict[str, Json]


Body = (
    Message
    | Compaction
    | ModelChange
    | LevelChange
    | Title
    | UsageNote
    | Label
    | Cleared
    | ResultNote
    | Replaced
    | Custom
)


class Entry(Plain):
    id: str
    """Eight hex digits, unique in the session."""
    parent: str | None
    time: float
    """Unix seconds."""
    body: Body


class Contents(Protocol):
    """Storage for file contents beside a session, keyed by hash; bounded in size."""

    def keep(self, hash: str, content: bytes) -> None:
        """Store the content if possible; never fails."""

    def load(self, hash: str) -> bytes | None:
        """Return the content; None: never stored, or already evicted."""


class Store(Protocol):
    """Storage for entries. An entry counts as written only after `append` has returned."""

    @property
    def contents(self) -> Contents | None:
        """Storage for file contents; None: the store keeps entries only."""

    def append(self, entry: Entry) -> None:
        """Write one entry.

        Raises:
            SessionError: it could not be written; what was written before is intact.
        """

    def sync(self) -> None:
        """Flush appended entries to disk, as far as the user's settings demand."""

    def close(self) -> None: ...


@runtime_checkable
class FencedStore(Store, Protocol):
    """A store that another process may also write to."""

    def fence(self) -> None:
        """Make `append` raise SessionTaken once another process has written."""


class SessionInfo(Frozen):
    """Summary of a session, for lists."""

    path: str
    """Empty: the session is in memory only."""
    id: str
    cwd: str
    title: str
    """Title given by the user; empty: none."""
    first_text: str
    """First text of the conversation."""
    provider: str
    model: str
    started: str
    modified: float
    """Unix seconds of the last write."""
    messages: int
    cost: float
    """US dollars."""
    parent: str = ""
    """Session that this one was forked from."""
    format: str = "zot"


ExportFormat = Literal["zotsession", "json", "markdown", "html", "pi"]


class Exported(Frozen):
    """An exported session: a file, or its text."""

    path: str = ""
    content: str = ""


class ChangedFile(Frozen):
    """A file that differs from its earlier content."""

    path: str
    action: Literal["restore", "create", "remove"]
    """Action of a rewind. `create`: the file existed and is gone now."""
    state: Literal["ok", "changed", "lost", "failed"]
    """`changed`: by something else too. `lost`: old content gone. `failed`: not written."""
    diff: str
    note: str = ""
    """Explanation of the problem, if any."""


class Session:
    """The single owner of the transcript. Every method may be called from any thread."""

    def __init__(
        self,
        *,
        id: str | None = None,
        entries: Iterable[Entry] = (),
        leaf: str | None = None,
        store: Store | None = None,
        model: tuple[str, str] | None = None,
    ) -> None:
        """`model`: provider and id of the session's first model, if known."""
        self.id = id or new_session_id()
        self.damaged: frozenset[str] = frozenset()
        """Ids of entries that are followed by unreadable data."""
        self._first_model = model
        self._lock = threading.Lock()
        self._store = store
        self._random = b""
        self._entries: dict[str, Entry] = {entry.id: entry for entry in entries}
        self._leaf = leaf or next(reversed(self._entries), None)
        self._context = self.context_at(self._leaf)
        titles = (e.body.title for e in reversed(self._entries.values()) if type(e.body) is Title)
        self._title = next(titles, "")

    # --- reading -----------------------------------------------------------------------------

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All entries of the tree, in the order they were written."""
        return MappingProxyType(self._entries)

    @property
    def leaf(self) -> str | None:
        return self._leaf

    @property
    def store(self) -> Store | None:
        return self._store

    @property
    def contents(self) -> Contents | None:
        """Storage for the contents of files that tools change; None: they are not kept."""
        return None if self._store is None else self._store.contents

    @property
    def title(self) -> str:
        """Latest title, on any branch; empty: none."""
        return self._title

    def messages(self) -> tuple[Message, ...]:
        """Return the model's view: the current branch with its latest compaction applied."""
        with self._lock:
            return self._context.messages()

    def context(self) -> tuple[tuple[str, Message], ...]:
        """Return messages(), each with the id of its entry."""
        with self._lock:
            return tuple(self._context.with_ids())

    def last_message(self) -> Message:
        """Return the last of messages(), which must not be empty."""
        with self._lock:
            return self._context.messages()[-1]

    def message_count(self) -> int:
        return len(self._context)

    def path(self, leaf: str | None = None) -> list[Entry]:
        """Return the entries from the root to `leaf` (default: the current leaf)."""
        path: list[Entry] = []
        at = leaf if leaf is not None else self._leaf
        while at is not None:
            entry = self._entries[at]
            path.append(entry)
            at = entry.parent
        path.reverse()
        return path

    def context_at(self, leaf: str | None) -> Context:
        """Return the model's view of the branch that ends at `leaf`; empty if it is unknown."""
        context = Context()
        for entry in self.path(leaf) if leaf in self._entries else ():
            context.add(entry)
        return context

    @property
    def last_model(self) -> tuple[str, str] | None:
        """Provider and id of the model last used."""
        said: tuple[str, str] | None = None
        for entry in reversed(self.path()):
            body = entry.body
            if isinstance(body, ModelChange):
                return body.provider, body.model
            if said is None and isinstance(body, Message) and body.origin is not None:
                said = body.origin.provider, body.origin.model
        # The user's choice outranks an answer's origin, which may be a fallback model.
        return self._first_model or said

    @property
    def last_level(self) -> Level | None:
        """Reasoning level last used; None: never recorded."""
        changes = (entry.body for entry in reversed(self.path()))
        return next((body.level for body in changes if isinstance(body, LevelChange)), None)

    # --- writing -----------------------------------------------------------------------------

    def append(self, body: Body) -> Entry:
        """Append an entry below the leaf; it is written before it becomes visible.

        Raises:
            SessionError: the store could not write it; the session is unchanged.
        """
        with self._lock:
            entry = Entry(self._new_entry_id(), self._leaf, time.time(), body)
            if self._store is not None:
                self._store.append(entry)
            self._entries[entry.id] = entry
            self._leaf = entry.id
            self._context.add(entry)
            if type(body) is Title:
                self._title = body.title
            return entry

    def note_use(self, provider: str, model: str, level: Level, usual: Level) -> None:
        """Record the model and level in use if they differ from the last record, so that a later
        process can adopt them. A missing level means `usual`. Raises SessionError, as `append`."""
        before = self.last_model
        if before != (provider, model):
            self.append(ModelChange(provider, model))
        # A session without a recorded model has no known level either.
        if (self.last_level or (usual if before else None)) != level:
            self.append(LevelChange(level))

    def move(self, leaf: str | None) -> None:
        """Continue from another entry (None: from nothing); the old branch stays in the tree."""
        with self._lock:
            if leaf is not None and leaf not in self._entries:
                raise KeyError(leaf)
            self._leaf = leaf
            self._context = self.context_at(leaf)

    def drop_partial(self) -> bool:
        """Move before a partial last answer; return whether a message is left to answer."""
        context = self.context()
        if context and _was_cut(context[-1][1]) and context[-1][0] in self._entries:
            self.move(self._entries[context[-1][0]].parent)
            context = self.context()
        return bool(context) and not _is_answer(context[-1][1])

    def sync(self) -> None:
        if self._store is not None:
            self._store.sync()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    # --- inside ------------------------------------------------------------------------------

    def _new_entry_id(self) -> str:
        while True:
            id = self._random[-4:].hex()
            if not id:
                self._random = os.urandom(256)  # batched: a system call for each id is slower
                continue
            self._random = self._random[:-4]
            if id not in self._entries:
                return id


class Context:
    """The model's view of a branch, built entry by entry, both live and from a file."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        """Append-only, because views share it; other changes assign a new list."""
        self._ids: list[str] = []
        """Entry ids of the messages in `said`."""
        self._places: dict[str, int] = {}
        """Index of each entry in `said`, or of the summary that replaced it."""
        self.notes: list[ToolResult] = []
        """Tool results whose message has not come yet."""
        self._noted = ("", 0.0)
        """Id and time of the last note."""

    def __len__(self) -> int:
        return len(self.said) + bool(self.notes)

    def messages(self) -> tuple[Message, ...]:
        """Return the messages; pending result notes form the last one."""
        if not self.notes:
            return tuple(self.said)
        return (*self.said, self._from_notes())

    def with_ids(self) -> list[tuple[str, Message]]:
        """Return each message with the id of its entry."""
        ids = [*self._ids, self._noted[0]] if self.notes else self._ids
        return list(zip(ids, self.messages(), strict=True))

    def kept(self, body: Compaction) -> list[tuple[str, Message]]:
        """Return the messages that stay verbatim after the summary of this new compaction."""
        if body.first_kept is None:
            return []
        return self.with_ids()[self._places.get(body.first_kept, 0) :]

    def add(self, entry: Entry) -> None:
        if type(entry.body) is UsageNote:  # frequent (one per answer), and invisible to the model
            self._places[entry.id] = len(self.said) + bool(self.notes)
            return
        match entry.body:
            case Message(role="tool") as message:
                self.notes = []
                self._append(entry.id, message)
            case Message() as message:
                if self.notes:
                    self._settle_notes()
                self._append(entry.id, message)
            case ResultNote(result):
                self.notes.append(result)
                self._noted = (entry.id, entry.time)
                self._places[entry.id] = len(self.said)
            case Compaction():
                if self.notes:
                    self._settle_notes()
                self._compact(entry, entry.body)
            case Cleared():
                self.said, self._ids, self.notes, self._places = [], [], [], {}
            case Replaced(messages):
                self.said, self._ids, self.notes = [], [], []
                self._places = {entry.id: 0}
                for number, message in enumerate(messages):
                    # A separate id for each, because a compaction names the first message it keeps.
                    self._append(f"{entry.id}.{number}", message)
            case _:
                self._places[entry.id] = len(self.said) + bool(self.notes)

    def _append(self, id: str, message: Message) -> None:
        self._places[id] = len(self.said)
        self.said.append(message)
        self._ids.append(id)

    def _compact(self, entry: Entry, body: Compaction) -> None:
        kept = self.kept(body)
        start = len(self.said) - len(kept)
        self.said = [summary_message(body, entry.time), *(message for _, message in kept)]
        self._ids = [entry.id, *(id for id, _ in kept)]
        # Summarised entries now point to the summary.
        self._places = {id: max(at - start + 1, 0) for id, at in self._places.items()}
        self._places[entry.id] = 0

    def _settle_notes(self) -> None:
        """Turn the pending notes into a message, because theirs never came."""
        self.said.append(self._from_notes())
        self._ids.append(self._noted[0])
        self.notes = []

    def _from_notes(self) -> Message:
        return Message("tool", tuple(self.notes), self._noted[1])


def _was_cut(message: Message) -> bool:
    return message.origin is not None and message.origin.stop in ("error", "aborted")


def _is_answer(message: Message) -> bool:
    calls = any(isinstance(block, ToolCall) for block in message.content)
    return message.role == "assistant" and not calls


def summary_message(body: Compaction, time: float) -> Message:
    """Return a compaction as the model sees it: one synthetic user message."""
    extra = {"compaction": True, "tokens_before": body.tokens_before}
    return Message("user", (Text(SUMMARY_HEADING + body.summary),), time, extra=extra)


def new_session_id() -> str:
    """Return a version 7 UUID (sorts by time), without importing uuid at start-up."""
    milliseconds = int(time.time() * 1000)
    random = bytearray(os.urandom(10))
    random[0] = random[0] & 0x0F | 0x70
    random[2] = random[2] & 0x3F | 0x80
    text = milliseconds.to_bytes(6, "big").hex() + random.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
