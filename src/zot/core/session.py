"""The transcript and its one owner. A session is a tree of entries; a plain conversation is its
one branch. Where entries are kept is a Store's business; this file opens no file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

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
"""Kind of the Custom rows that let a run survive its process (runtime/journal.py)."""


class Compaction(Plain):
    """Everything before `first_kept` is replaced by the summary, in what the model sees."""

    summary: str
    first_kept: str | None
    """Id of any entry, message or not: what comes from there on is kept. None: nothing is. An id
    that the branch does not have keeps everything: rather too much than a loss nobody sees."""
    tokens_before: int = 0
    reason: Literal["manual", "threshold", "overflow"] = "manual"
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
    """Tokens of one model call, and the sum so far."""

    usage: Usage
    cumulative: Usage


class Label(Plain):
    target: str
    label: str | None


class Cleared(Plain):
    """The conversation starts afresh after this entry."""


class ResultNote(Plain):
    """A tool's result, noted as soon as it is there. The message with all results of the turn
    follows and takes its place; if a crash comes first, the notes stand in for that message.
    """

    result: ToolResult


class Replaced(Plain):
    """The messages before this entry are replaced by these."""

    messages: tuple[Message, ...]


class Custom(Plain):
    """A row this version does not know, kept verbatim."""

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
    """Keeps contents of files beside a session, each under its hash; as many as there is room."""

    def keep(self, hash: str, content: bytes) -> None:
        """Keep it if that can be done; never fails."""

    def load(self, hash: str) -> bytes | None:
        """None: it is not kept, or not any more."""


class Store(Protocol):
    """Keeps entries. Nothing is acknowledged before `append` has returned."""

    @property
    def contents(self) -> Contents | None:
        """None: it keeps entries only."""

    def append(self, entry: Entry) -> None:
        """Write one entry.

        Raises:
            SessionError: it could not be written; what was written before is intact.
        """

    def sync(self) -> None:
        """Make what was appended survive a power cut, as far as the user asked for that."""

    def close(self) -> None: ...


@runtime_checkable
class FencedStore(Store, Protocol):
    """A store that another process could write to."""

    def fence(self) -> None:
        """From now on `append` raises SessionTaken once another process has written."""


class SessionInfo(Frozen):
    """A session at a glance."""

    path: str
    """Empty: it is kept in memory only."""
    id: str
    cwd: str
    title: str
    """What the user called it; empty: nothing."""
    first_text: str
    """How it began."""
    provider: str
    model: str
    started: str
    modified: float
    """Unix seconds of the last write."""
    messages: int
    cost: float
    """US dollars."""
    parent: str = ""
    """The session it was forked from."""
    format: str = "zot"


ExportFormat = Literal["zotsession", "json", "markdown", "html", "pi"]


class Exported(Frozen):
    """A session for people and other programs: a file, or a text."""

    path: str = ""
    content: str = ""


class ChangedFile(Frozen):
    """A file that differs from what it was."""

    path: str
    action: Literal["restore", "create", "remove"]
    """What going back does to it; `create`: it was there, and is gone."""
    state: Literal["ok", "changed", "lost", "failed"]
    """`changed`: by someone else too. `lost`: it cannot be put back. `failed`: it could not be."""
    diff: str
    note: str = ""
    """What is wrong with it."""


class Session:
    """The only owner of the transcript. Every method may be called from any thread."""

    def __init__(
        self,
        *,
        id: str | None = None,
        entries: Iterable[Entry] = (),
        leaf: str | None = None,
        store: Store | None = None,
        model: tuple[str, str] | None = None,
    ) -> None:
        """`model`: the provider and the id of the model it began with, if that is known."""
        self.id = id or new_session_id()
        self.damaged: frozenset[str] = frozenset()
        """The entries behind which something was written that cannot be read any more."""
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
        """Where the files that its tools change are kept; None: nowhere."""
        return None if self._store is None else self._store.contents

    @property
    def title(self) -> str:
        """The name it was given last, on whatever branch; empty: none."""
        return self._title

    def messages(self) -> tuple[Message, ...]:
        """What the model sees: the current branch, with the latest compaction applied."""
        with self._lock:
            return self._context.messages()

    def context(self) -> tuple[tuple[str, Message], ...]:
        """The same, each message with the id of the entry it came from."""
        with self._lock:
            return tuple(self._context.with_ids())

    def last_message(self) -> Message:
        """The newest of `messages`, of which there must be one."""
        with self._lock:
            return self._context.messages()[-1]

    def message_count(self) -> int:
        return len(self._context)

    def path(self, leaf: str | None = None) -> list[Entry]:
        """The entries from the root to `leaf` (default: the current one)."""
        path: list[Entry] = []
        at = leaf if leaf is not None else self._leaf
        while at is not None:
            entry = self._entries[at]
            path.append(entry)
            at = entry.parent
        path.reverse()
        return path

    def context_at(self, leaf: str | None) -> Context:
        """What the model sees of the branch that ends with an entry; of none: nothing."""
        context = Context()
        for entry in self.path(leaf) if leaf in self._entries else ():
            context.add(entry)
        return context

    @property
    def last_model(self) -> tuple[str, str] | None:
        """Provider and id of the model it was last used with."""
        said: tuple[str, str] | None = None
        for entry in reversed(self.path()):
            body = entry.body
            if isinstance(body, ModelChange):
                return body.provider, body.model
            if said is None and isinstance(body, Message) and body.origin is not None:
                said = body.origin.provider, body.origin.model
        # An answer says less than the user's choice: it may be that of a fallback.
        return self._first_model or said

    @property
    def last_level(self) -> Level | None:
        """How much its model was last asked to think."""
        changes = (entry.body for entry in reversed(self.path()))
        return next((body.level for body in changes if isinstance(body, LevelChange)), None)

    # --- writing -----------------------------------------------------------------------------

    def append(self, body: Body) -> Entry:
        """Add an entry below the leaf; it is written before it is visible.

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
        """Say what it is used with, unless it does: whoever goes on with it takes that up. A level
        that is not said is the usual one. Raises SessionError, as `append`."""
        before = self.last_model
        if before != (provider, model):
            self.append(ModelChange(provider, model))
        # Of one that says nothing yet, not even the model, nothing is known of its level either.
        if (self.last_level or (usual if before else None)) != level:
            self.append(LevelChange(level))

    def move(self, leaf: str | None) -> None:
        """Go on from another entry (or from nothing); the branch left behind stays in the tree."""
        with self._lock:
            if leaf is not None and leaf not in self._entries:
                raise KeyError(leaf)
            self._leaf = leaf
            self._context = self.context_at(leaf)

    def drop_partial(self) -> bool:
        """Go on from before an answer that was cut short; whether there is something to answer."""
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
                self._random = os.urandom(256)  # for many: asking the system takes longer
                continue
            self._random = self._random[:-4]
            if id not in self._entries:
                return id


class Context:
    """What the model sees of a branch, built entry by entry: the same live and from a file."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        """Only grows: when it is to say something else, it is another list."""
        self._ids: list[str] = []
        """Of the entries they came from."""
        self._places: dict[str, int] = {}
        """Where in the messages an entry stands, or stood before it was summarised."""
        self.notes: list[ToolResult] = []
        """Results that came without their message so far."""
        self._noted = ("", 0.0)
        """Id and time of the last note."""

    def __len__(self) -> int:
        return len(self.said) + bool(self.notes)

    def messages(self) -> tuple[Message, ...]:
        """The messages; results without their message stand in for it."""
        if not self.notes:
            return tuple(self.said)
        return (*self.said, self._from_notes())

    def with_ids(self) -> list[tuple[str, Message]]:
        """Each message with the id of its entry."""
        ids = [*self._ids, self._noted[0]] if self.notes else self._ids
        return list(zip(ids, self.messages(), strict=True))

    def kept(self, body: Compaction) -> list[tuple[str, Message]]:
        """The messages that stay verbatim behind the summary of a compaction that comes next."""
        if body.first_kept is None:
            return []
        return self.with_ids()[self._places.get(body.first_kept, 0) :]

    def add(self, entry: Entry) -> None:
        if type(entry.body) is UsageNote:  # one with every answer, and nothing to see of it
            self._places[entry.id] = len(self.said) + bool(self.notes)
            return
        match entry.body:
            case Message(role="tool") as message:
                self.notes = []
                self._append(entry.id, message)
            case Message() as message:
                if self.notes:
                    self._settle_notes()
                self._places[entry.id] = len(self.said)
                self.said.append(message)
                self._ids.append(entry.id)
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
                    # One id each: a compaction names the first message it keeps.
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
        # What was summarised is found in the summary from now on.
        self._places = {id: max(at - start + 1, 0) for id, at in self._places.items()}
        self._places[entry.id] = 0

    def _settle_notes(self) -> None:
        """Their message never came: they take its place."""
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
    """A compaction as the model sees it: one synthetic user message."""
    extra = {"compaction": True, "tokens_before": body.tokens_before}
    return Message("user", (Text(SUMMARY_HEADING + body.summary),), time, extra=extra)


def new_session_id() -> str:
    """A UUID of version 7 (it sorts by time), without importing uuid at start-up."""
    milliseconds = int(time.time() * 1000)
    random = bytearray(os.urandom(10))
    random[0] = random[0] & 0x0F | 0x70
    random[2] = random[2] & 0x3F | 0x80
    text = milliseconds.to_bytes(6, "big").hex() + random.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
