"""Going back to an earlier prompt: the conversation, the files that tools changed, or both.

The conversation is a tree, so going back loses nothing. Files have one past, whatever branch the
conversation was on: to go back is to undo every change that was written after a moment. A file
that somebody else changed too is named, and left alone unless it is forced.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from zot.core.changes import FileChange, Files, changes_of, hashed, kept_change
from zot.core.session import ChangedFile, Contents, Custom, Entry, Session
from zot.errors import NotFoundError, ToolError
from zot.provider.types import Message, Text, texts_in
from zot.text import Frozen

MAX_TEXT = 500
"""Characters of a prompt in the list of checkpoints."""
OTHERS = "changed since by someone else"
LOST = "what it was is not kept (too large, too long ago, or the disk was full)"


class Checkpoint(Frozen):
    """The moment before a prompt."""

    id: str
    """Of the prompt's entry."""
    time: float
    """Unix seconds."""
    text: str
    """How the prompt begins."""
    messages: int
    """How many came before it."""
    files: tuple[str, ...]
    """What tools changed after it and before the next one."""


class Rewound(Frozen):
    """What going back does, or did."""

    checkpoint: str
    text: str
    """The prompt that it goes back to, whole: to be sent again, or changed."""
    messages: int
    """How many the conversation loses."""
    files: tuple[ChangedFile, ...]
    preview: bool
    """Nothing was done."""


def checkpoints(session: Session) -> list[Checkpoint]:
    """Of the current branch, oldest first."""
    order = {id: place for place, id in enumerate(session.entries)}
    entries = list(session.entries.values())
    path = session.path()
    prompts = [(place, entry) for place, entry in enumerate(path) if _prompt(entry) is not None]
    moments = []
    for number, (place, entry) in enumerate(prompts):
        following = prompts[number + 1][1] if number + 1 < len(prompts) else None
        end = len(entries) if following is None else order[following.id]
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


def changed_files(session: Session, files: Files | None) -> list[ChangedFile]:
    """All that tools changed in the session, as a diff from what it was to what it is now."""
    if files is None or session.contents is None:
        return []
    return [file for file, *_ in _undone(session.entries.values(), session.contents, files, True)]


class Rewind:
    """One way back, looked at first and then gone."""

    def __init__(self, session: Session, files: Files | None, to: str) -> None:
        """Raises CommandError when there is no such checkpoint; an empty id is the last one."""
        self._session = session
        self._files = files
        self._entry = _found(session, to)

    def look(self, *, conversation: bool, files: bool) -> Rewound:
        return Rewound(
            self._entry.id,
            _prompt(self._entry) or "",
            self._messages() if conversation else 0,
            tuple(file for file, *_ in self._plan()) if files else (),
            preview=True,
        )

    def go(self, *, conversation: bool, files: bool, force: bool) -> Rewound:
        """Raises SessionError when the session cannot be written."""
        lost = self._messages() if conversation else 0
        done = tuple(self._put_back(force)) if files else ()
        if conversation:
            self._session.move(self._entry.parent)
            # The last row of a session file says where it goes on.
            self._session.append(Custom("rewound", {"to": self._entry.id}))
        elif names := ", ".join(file.path for file in done if file.state == "ok"):
            text = f"I took these files back to what they were before: {names}"
            self._session.append(Message("user", (Text(text),), time.time()))
        return Rewound(self._entry.id, _prompt(self._entry) or "", lost, done, preview=False)

    def _messages(self) -> int:
        left = len(self._session.context_at(self._entry.parent))
        return max(0, self._session.message_count() - left)

    def _plan(self) -> list[tuple[ChangedFile, bytes | None, bytes | None]]:
        if self._files is None or self._session.contents is None:
            raise NotFoundError(
                "files are kept only with a session file: nothing is known of what they were; "
                "go back with the conversation alone"
            )
        entries = list(self._session.entries.values())
        since = entries[list(self._session.entries).index(self._entry.id) :]
        return _undone(since, self._session.contents, self._files, False)

    def _put_back(self, force: bool) -> Iterable[ChangedFile]:
        contents, files = self._session.contents, self._files
        for file, now, wanted in self._plan():
            if file.state == "lost" or (file.state == "changed" and not force):
                yield file
                continue
            assert contents is not None
            assert files is not None
            self._session.append(kept_change(contents, file.path, now, wanted))
            try:
                files.put(file.path, wanted, now)
            except ToolError as error:
                yield replace(file, state="failed", note=str(error))
            else:
                yield replace(file, state="ok", note="")


def _undone(
    entries: Iterable[Entry], contents: Contents, files: Files, forward: bool
) -> list[tuple[ChangedFile, bytes | None, bytes | None]]:
    """Each file that differs from what it was before these entries, what it is and what it was."""
    histories: dict[str, list[FileChange]] = {}
    for change in changes_of(entries):
        histories.setdefault(change.path, []).append(change)
    plans = (
        _plan_of(path, history, contents, files, forward) for path, history in histories.items()
    )
    return [plan for plan in plans if plan is not None]


def _plan_of(
    path: str, history: list[FileChange], contents: Contents, files: Files, forward: bool
) -> tuple[ChangedFile, bytes | None, bytes | None] | None:
    first = history[0].before
    action: Literal["restore", "remove"] = "remove" if first is None else "restore"
    try:
        now = files.content(path)
    except ToolError as error:
        return ChangedFile(path, action, "lost", "", str(error)), None, None
    if hashed(now) == first:
        return None
    was = None if first is None else contents.load(first)
    if first is not None and was is None:
        return ChangedFile(path, action, "lost", "", LOST), now, None
    diff = files.diff(was, now) if forward else files.diff(now, was)
    file = ChangedFile(path, "create" if now is None else action, "ok", diff)
    if _by_others(history, now):
        file = replace(file, state="changed", note=OTHERS)
    return file, now, was


def _by_others(history: list[FileChange], now: bytes | None) -> bool:
    """Whether the file was ever something that no change of ours left behind. One that was noted
    and then failed left it as it was."""
    known = {history[0].before}
    for change in history:
        if change.before not in known:
            return True
        known = {change.before, change.after}
    return hashed(now) not in known


def _found(session: Session, to: str) -> Entry:
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
    """What the user said there; None: it is something else."""
    body = entry.body
    if not isinstance(body, Message) or body.role != "user":
        return None
    return "\n".join(texts_in(body.content))
