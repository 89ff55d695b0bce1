"""Rewind to an earlier prompt: the conversation, the files that tools changed, or both.

The conversation is a tree, so a rewind loses nothing. Files have one history, shared by all
branches: a rewind undoes every change written after the checkpoint. Files that something else also
changed are reported, and left alone unless forced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec.structs import replace

from zot.core.changes import (
    FileChange,
    Files,
    ShownChange,
    changes_of,
    hashed,
    kept_change,
    shown_change,
)
from zot.core.session import ChangedFile, Contents, Custom, Entry, Session
from zot.errors import NotFoundError, ToolError
from zot.provider.types import Message, Text, ToolCall, texts_in
from zot.runtime.redact import Redactor
from zot.runtime.runs import Runs
from zot.text import Frozen

MAX_SHOWN = 512 * 1024
"""Maximum bytes of a file in a shown change."""
MAX_TEXT = 500
"""Maximum characters of a prompt in the list of checkpoints."""
OTHERS = "changed since by someone else"
LOST = "what it was is not kept (too large, too long ago, or the disk was full)"


class Checkpoint(Frozen):
    """The moment before a prompt."""

    id: str
    """Entry id of the prompt."""
    time: float
    """Unix seconds."""
    text: str
    """Beginning of the prompt."""
    messages: int
    """Messages before the prompt."""
    files: tuple[str, ...]
    """Files that tools changed after it and before the next prompt."""


class Rewound(Frozen):
    """Result or preview of a rewind."""

    checkpoint: str
    text: str
    """Full text of the prompt, to be sent again or edited."""
    messages: int
    """Messages removed from the conversation."""
    files: tuple[ChangedFile, ...]
    preview: bool
    """True: nothing was changed."""


class SessionHistory:
    """The way back in one runtime's session, and the file changes of its tools."""

    def __init__(
        self,
        runs: Runs,
        files: Files | None,
        redactor: Redactor | None,
        is_tool_of: Callable[[str, object], bool],
    ) -> None:
        """`files`: access to the files that tools change; None: they change none. `is_tool_of`:
        whether a call of this name reaches a tool of that source."""
        self._runs = runs
        self._agent = runs.agent
        self._files = files
        self._redactor = redactor
        self._is_tool_of = is_tool_of

    def checkpoints(self) -> list[Checkpoint]:
        """Return the prompts of the conversation that `rewind` can go back to, oldest first."""
        session = self._agent.session
        order = {id: place for place, id in enumerate(session.entries)}
        entries = list(session.entries.values())
        path = session.path()
        prompts = [(place, entry) for place, entry in enumerate(path) if _prompt(entry) is not None]
        ends = [*(order[entry.id] for _, entry in prompts[1:]), len(entries)]
        moments = []
        for (place, entry), end in zip(prompts, ends, strict=False):
            changes = changes_of(entries[order[entry.id] : end])
            moments.append(
                Checkpoint(
                    entry.id,
                    entry.time,
                    (_prompt(entry) or "")[:MAX_TEXT],
                    sum(isinstance(before.body, Message) for before in path[:place]),
                    tuple(dict.fromkeys(change.path for change in changes)),
                )
            )
        return moments

    def rewind(
        self,
        to: str = "",
        *,
        conversation: bool = True,
        files: bool = True,
        preview: bool = False,
        force: bool = False,
    ) -> Rewound:
        """Rewind to before a prompt (default: the last one): the conversation, the files that tools
        changed since, or both. Files that something else also changed are left alone, unless
        `force`. `preview`: only report what would be done.

        Raises:
            BusyError: a run is in flight; nothing changes.
            CommandError: there is no such checkpoint, or files are not kept.
            SessionError: the session cannot be written.
        """
        with self._runs.idle("rewind"):
            session = self._agent.session
            entry = _checkpoint(session, to)
            left = len(session.context_at(entry.parent))
            lost = max(0, session.message_count() - left) if conversation else 0
            changed: tuple[ChangedFile, ...] = ()
            if files and preview:
                changed = tuple(plan.file for plan in self._plans_since(entry))
            elif files:
                changed = tuple([self._put_back(plan, force) for plan in self._plans_since(entry)])
            if not preview:
                self._note_rewind(entry, changed, conversation=conversation)
            return Rewound(entry.id, _prompt(entry) or "", lost, changed, preview=preview)

    def _note_rewind(
        self, entry: Entry, changed: tuple[ChangedFile, ...], *, conversation: bool
    ) -> None:
        """Move the conversation back, or tell the model which files were put back."""
        session = self._agent.session
        if conversation:
            session.move(entry.parent)
            # The last row of a session file determines where it continues.
            session.append(Custom("rewound", {"to": entry.id}))
        elif names := ", ".join(file.path for file in changed if file.state == "ok"):
            text = f"I took these files back to what they were before: {names}"
            session.append(Message("user", (Text(text),), time.time()))
        self._agent.forget()

    def go_to(self, entry: str) -> None:
        """Continue from any entry of the session, on any branch; files stay as they are.

        Raises:
            BusyError: a run is in flight; nothing changes.
            CommandError: there is no such entry.
        """
        session = self._agent.session
        with self._runs.idle("go_to"):
            if entry not in session.entries:
                raise NotFoundError(f"the session has no entry {entry!r}")
            session.move(entry)
            session.append(Custom("moved", {"to": entry}))
            self._agent.forget()

    def changed_files(self) -> list[ChangedFile]:
        """Return the files that tools changed in this session, with diffs from before to now."""
        session = self._agent.session
        if self._files is None or session.contents is None:
            return []
        entries = session.entries.values()
        return [plan.file for plan in _plans(entries, session.contents, self._files, forward=True)]

    def planned_change(self, call: ToolCall) -> ShownChange | None:
        """Return the file change that a call would make, without secrets. None: it changes no file,
        would fail, or a side exceeds MAX_SHOWN."""
        if self._files is None or not self._is_tool_of(call.name, self._files):
            return None
        planned = self._files.planned(call)
        if planned is None or max(len(planned.before or b""), len(planned.after)) > MAX_SHOWN:
            return None
        return shown_change(planned, str if self._redactor is None else self._redactor.text)

    def _plans_since(self, entry: Entry) -> list[FilePlan]:
        session = self._agent.session
        if self._files is None or session.contents is None:
            raise NotFoundError(
                "files are kept only with a session file: nothing is known of what they were; "
                "go back with the conversation alone"
            )
        since = [*session.entries.values()][[*session.entries].index(entry.id) :]
        return _plans(since, session.contents, self._files, forward=False)

    def _put_back(self, plan: FilePlan, force: bool) -> ChangedFile:
        """Put a file back, and record that first; return what became of it."""
        file, session = plan.file, self._agent.session
        if file.state == "lost" or (file.state == "changed" and not force):
            return file
        assert session.contents is not None
        assert self._files is not None
        session.append(kept_change(session.contents, file.path, plan.now, plan.before))
        try:
            self._files.put(file.path, plan.before, plan.now)
        except ToolError as error:
            return replace(file, state="failed", note=str(error))
        return replace(file, state="ok", note="")


class FilePlan(Frozen):
    """A file to put back."""

    file: ChangedFile
    now: bytes | None = None
    before: bytes | None = None


def _plans(
    entries: Iterable[Entry], contents: Contents, files: Files, *, forward: bool
) -> list[FilePlan]:
    """Return each file that differs from before these entries; `forward`: with a diff from then to
    now, else from now to then."""
    histories: dict[str, list[FileChange]] = {}
    for change in changes_of(entries):
        histories.setdefault(change.path, []).append(change)
    plans = (_plan(history, contents, files, forward=forward) for history in histories.values())
    return [plan for plan in plans if plan is not None]


def _plan(
    history: list[FileChange], contents: Contents, files: Files, *, forward: bool
) -> FilePlan | None:
    path, first = history[0].path, history[0].before
    action: Literal["restore", "remove"] = "remove" if first is None else "restore"
    try:
        now = files.content(path)
    except ToolError as error:
        return FilePlan(ChangedFile(path, action, "lost", "", str(error)))
    if hashed(now) == first:
        return None
    before = None if first is None else contents.load(first)
    if first is not None and before is None:
        return FilePlan(ChangedFile(path, action, "lost", "", LOST), now)
    diff = files.diff(before, now) if forward else files.diff(now, before)
    file = ChangedFile(path, "create" if now is None else action, "ok", diff)
    if _by_others(history, now):
        file = replace(file, state="changed", note=OTHERS)
    return FilePlan(file, now, before)


def _by_others(history: list[FileChange], now: bytes | None) -> bool:
    """Whether something else than our changes modified the file. A recorded change whose write
    failed left the file as it was."""
    known = {history[0].before}
    for change in history:
        if change.before not in known:
            return True
        known = {change.before, change.after}
    return hashed(now) not in known


def _checkpoint(session: Session, to: str) -> Entry:
    """Return the prompt of a checkpoint; an empty id: the last one. Raises CommandError."""
    prompts = [entry for entry in session.path() if _prompt(entry) is not None]
    if not prompts:
        raise NotFoundError("there is no prompt to go back to yet")
    if not to:
        return prompts[-1]
    for entry in prompts:
        if entry.id == to:
            return entry
    raise NotFoundError(
        f"there is no checkpoint {to!r} in this conversation; `checkpoints` lists them"
    )


def _prompt(entry: Entry) -> str | None:
    """Return the user's text in this entry; None: it is not a user message."""
    body = entry.body
    if not isinstance(body, Message) or body.role != "user":
        return None
    return "\n".join(texts_in(body.content))
