"""Journal of durable runs: rows in the session, written before each step, and the state they add up
to when the session is opened again. recovery.py continues runs that were cut off.

Readers of session files skip these rows: they are Custom entries of the kind JOURNAL.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from zot.bugs import warn_once
from zot.core.agent import Limits, UserInput
from zot.core.events import ExtensionAsk, Replay
from zot.core.session import JOURNAL, Compaction, Custom, Entry, ResultNote, Session
from zot.errors import JournalError, SessionError, SessionTaken
from zot.provider.types import Image, Json, Message, Stop, Text, Usage
from zot.text import Frozen, prepared

RUN = "run"
QUEUED = "queued"
"""Keys of a user message's `extra`: the run it began, or the queued message it was. They are in the
message's own row, so that it is always either queued or in the transcript."""

OnCrash = Literal["continue", "hold", "fail"]
QueueName = Literal["steering", "follow_up"]
DurableKind = Literal["prompt", "retry", "compact"]


# --- rows ------------------------------------------------------------------------------------


class Row(Frozen, tag_field="type", omit_defaults=True):
    """Base of all rows. Fields are only ever added, never removed."""


class RunRow(Row):
    run: str


class RunAccepted(RunRow, tag="run_accepted"):
    """Written before the prompt is acknowledged."""

    session: str
    """Session id. A copy of the session has another id, and does not continue its runs."""
    text: str
    images: tuple[Image, ...] = ()
    documents: tuple[Text, ...] = ()
    extra: dict[str, Json] | None = None
    limits: Limits | None = None
    tag: str = ""
    """The client's tag, as JSON."""
    kind: DurableKind = "prompt"
    """A retry has no new text; the text of a compact is its instructions."""


class RunAttempted(RunRow, tag="run_attempted"):
    """Written before the work begins, or continues in another process."""

    attempt: int
    steps: int = 0
    """Model calls so far, including those that were cut off."""
    seconds: float = 0.0
    """Seconds of work so far, as far as known."""
    before: Usage = Usage()
    """Usage of the session when the run began."""


class EffectStarted(RunRow, tag="effect_started"):
    """Written after guards and approval, before the tool runs."""

    call: str
    tool: str
    args: str
    """Hash of the final arguments."""
    replay: Replay
    key: str
    seconds: float = 0.0
    """Seconds of work so far, by the monotonic clock."""


class EffectPaused(RunRow, tag="effect_paused"):
    """Written when a call is idle and waits for a person; it can continue from `state`. Without a
    state: written before the call continues."""

    call: str
    state: Json = None


class MessageQueued(Row, tag="message_queued"):
    id: str
    queue: QueueName
    text: str
    images: tuple[Image, ...] = ()


class MessagesDropped(Row, tag="messages_dropped"):
    ids: tuple[str, ...]


class QuestionAsked(Row, tag="question_asked"):
    """Written before an approval request is sent."""

    request: str
    call: str
    args: str


class QuestionAnswered(QuestionAsked, tag="question_answered"):
    """Written before the answer takes effect. Valid for these arguments only."""

    decision: Literal["allow", "deny", "allow_session", "allow_project", "deny_project"]
    reason: str = ""
    tool: str = ""
    changed: dict[str, Json] | None = None
    """Arguments that replace the model's."""


class DialogAsked(Row, tag="dialog_asked"):
    """Written before a question of an extension or an MCP server is sent."""

    request: str
    asked: str
    """Hash of the question and its sender; see question_hash()."""


class DialogAnswered(DialogAsked, tag="dialog_answered"):
    """Written before the answer takes effect. Valid for this question only."""

    value: str | None = None
    confirmed: bool = False
    cancelled: bool = False


class RunAborted(RunRow, tag="run_aborted"):
    """Written before an abort is acknowledged."""


class RunLeft(RunRow, tag="run_left"):
    """Written at an orderly exit of the process: no crash."""


class RunReleased(RunRow, tag="run_released"):
    """Written when a held run is released."""


class RunEnded(RunRow, tag="run_ended"):
    """Written before the end is announced."""

    stop: Stop
    error: str = ""
    code: str = ""
    answer: str = ""
    """Entry id of the model's last message."""


AnyRow = (
    RunAccepted
    | RunAttempted
    | EffectStarted
    | EffectPaused
    | MessageQueued
    | MessagesDropped
    | QuestionAsked
    | QuestionAnswered
    | DialogAsked
    | DialogAnswered
    | RunAborted
    | RunLeft
    | RunReleased
    | RunEnded
)


prepared(AnyRow)


def args_hash(args: Mapping[str, Json] | None) -> str:
    """Return a hash of the arguments, independent of their order."""
    return sha256(msgspec.json.encode(args, order="deterministic")).hexdigest()[:32]


def question_hash(question: ExtensionAsk) -> str:
    """Return a stable hash of a question and its sender, ignoring its id."""
    who, what = question.extension, (question.title, question.message, question.options)
    return sha256(msgspec.json.encode((who, question.method, what))).hexdigest()[:32]


# --- what the rows add up to -----------------------------------------------------------------


class OpenRun(Struct):
    """An accepted run that has not ended, as described by its rows."""

    accepted: RunAccepted
    attempts: int = 0
    steps: int = 0
    seconds: float = 0.0
    before: Usage | None = None
    written: bool = False
    """The run's prompt is in the transcript."""
    effects: dict[str, EffectStarted] = {}
    """Last start of each call, by call id."""
    starts: dict[str, int] = {}
    """Number of starts of each call."""
    uncertain: bool = False
    """A row since the last answer is unreadable: any call of that answer may have begun."""
    paused: dict[str, Json] = {}
    """State of each call that only waits for a person."""
    fruitless: int = 0
    """Attempts since the last progress, without those that ended in an orderly exit."""
    compacted: bool = False
    """The last progress written is a summary."""
    aborted: bool = False
    left: bool = False
    """The last process that worked on it exited in an orderly way."""
    last: float = 0.0
    """Unix time of its last row, in seconds."""

    @property
    def crashed(self) -> bool:
        """Whether the last process that worked on it ended unexpectedly."""
        return self.attempts > 0 and not self.left

    @property
    def user(self) -> UserInput:
        accepted = self.accepted
        extra = {**(accepted.extra or {}), RUN: accepted.run}
        return UserInput(accepted.text, accepted.images, extra, accepted.documents)


class JournalState:
    """State derived from a session's rows: open runs, queued messages, answers."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self.open: dict[str, OpenRun] = {}
        self.ended: dict[str, RunEnded] = {}
        self.queued: dict[str, MessageQueued] = {}
        self.answers: dict[tuple[str, str], QuestionAnswered] = {}
        """Keyed by call id and hash of the arguments."""
        self.allowed: set[str] = set()
        """Tools allowed for the session."""
        self.questions = 0
        self.dialogs = 0
        self.dialog_answers: dict[str, list[DialogAnswered]] = {}
        """Keyed by question hash; only answers since the last model message."""
        self._current: OpenRun | None = None

    def read(self, entry: Entry) -> None:
        body = entry.body
        if isinstance(body, Custom) and body.kind == JOURNAL:
            try:
                row = msgspec.convert(body.data, AnyRow)
            except msgspec.ValidationError:
                return  # a row of a later version
            self._take(row)
        elif isinstance(body, Message):
            self._said(body)
        elif isinstance(body, ResultNote | Compaction) and self._current is not None:
            self._current.fruitless = 0
            self._current.compacted = isinstance(body, Compaction)
        if self._current is not None:
            self._current.last = entry.time

    def lost_row(self) -> None:
        """Handle an unreadable row: it may have recorded the start of a call."""
        for run in self.open.values():
            run.uncertain = True

    def _said(self, message: Message) -> None:
        extra = message.extra or {}
        self.queued.pop(str(extra.get(QUEUED)), None)
        if (run := self.open.get(str(extra.get(RUN)))) is not None:
            run.written = True
        if (current := self._current) is not None:
            current.fruitless = 0
            if message.role == "assistant":
                current.steps += 1
                # Some providers reuse call ids; those of the new message are different calls.
                current.effects, current.starts, current.paused = {}, {}, {}
                current.uncertain = False
                self.answers.clear()
                self.dialog_answers.clear()

    def _take(self, row: AnyRow) -> None:
        match row:
            case RunAccepted():
                if row.session == self._session:
                    self.open[row.run] = OpenRun(row, written=row.kind == "retry")
            case MessageQueued():
                self.queued[row.id] = row
            case MessagesDropped(ids):
                for id in ids:
                    self.queued.pop(id, None)
            case DialogAnswered():  # must come before DialogAsked, its base class
                self.dialog_answers.setdefault(row.asked, []).append(row)
            case QuestionAnswered():
                self.answers[row.call, row.args] = row
                if row.decision == "allow_session":
                    self.allowed.add(row.tool)
            case QuestionAsked():
                self.questions += 1
            case DialogAsked():
                self.dialogs += 1
            case _:
                if (run := self.open.get(row.run)) is not None:
                    self._take_of(run, row)

    def _take_of(self, run: OpenRun, row: RunRow) -> None:
        match row:
            case RunAttempted():
                run.attempts, run.steps, run.seconds = row.attempt, row.steps, row.seconds
                run.before = row.before
                run.fruitless += 1
                run.left = False
                self._current = run
            case EffectStarted():
                run.effects[row.call] = row
                run.starts[row.call] = run.starts.get(row.call, 0) + 1
                run.seconds = max(run.seconds, row.seconds)
                run.fruitless = 0
            case EffectPaused():
                run.paused.pop(row.call, None)
                if row.state is not None:
                    run.paused[row.call] = row.state
            case RunAborted():
                run.aborted = True
            case RunLeft():
                run.left = True
                run.fruitless = max(0, run.fruitless - 1)
                run.starts = {call: count - 1 for call, count in run.starts.items()}
            case RunReleased():
                run.fruitless = 0
                run.starts.clear()
            case RunEnded():
                self.ended[row.run] = row
                del self.open[row.run]
                self.dialog_answers.clear()
                self._current = None


# --- writing ---------------------------------------------------------------------------------


class Journal:
    """The journal of one session. Rows are written and synced before `note` returns."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self.state = JournalState(session.id)
        for entry in session.entries.values():
            self.state.read(entry)
            if entry.id in session.damaged:
                self.state.lost_row()

    def note(self, row: AnyRow) -> None:
        """Write a row. Raises JournalError or SessionTaken when that fails: then the recorded
        action must not happen."""
        with self._lock:
            try:
                entry = self._session.append(Custom(JOURNAL, msgspec.to_builtins(row)))
                self._session.sync()
            except SessionTaken:
                raise
            except SessionError as error:
                raise JournalError(f"the run cannot be kept durable: {error}") from error
            self.state.read(entry)

    def try_note(self, row: AnyRow) -> None:
        """Write a row whose loss does less harm than a failure; only warn if that fails."""
        try:
            self.note(row)
        except SessionError as error:
            warn_once(str(error))


def new_id() -> str:
    return os.urandom(8).hex()
