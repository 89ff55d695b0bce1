"""What a durable run notes before it happens, as rows in its session, and what they add up to
when the session is opened again. How a run that was cut off goes on is said in recovery.py.

Readers of session files pass over these rows: they are Custom entries of the kind JOURNAL.
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
"""Keys of a user message's extra: the run it began, or the queued message it was. In the row of
the message itself, so that there is no moment in which it is neither waiting nor said."""

OnCrash = Literal["continue", "hold", "fail"]
QueueName = Literal["steering", "follow_up"]
DurableKind = Literal["prompt", "retry", "compact"]


# --- rows ------------------------------------------------------------------------------------


class Row(Frozen, tag_field="type", omit_defaults=True):
    """Base of all rows. Fields are only ever added."""


class RunRow(Row):
    run: str


class RunAccepted(RunRow, tag="run_accepted"):
    """Before the client hears that its prompt was taken."""

    session: str
    """A copy of the session has another id, and does not go on with its runs."""
    text: str
    images: tuple[Image, ...] = ()
    documents: tuple[Text, ...] = ()
    extra: dict[str, Json] | None = None
    limits: Limits | None = None
    tag: str = ""
    """What the client calls it, as JSON."""
    kind: DurableKind = "prompt"
    """A retry says nothing new; the text of a compact are its instructions."""


class RunAttempted(RunRow, tag="run_attempted"):
    """Before the work on it begins, or goes on in another process."""

    attempt: int
    steps: int = 0
    """Model calls so far, those that were cut off included."""
    seconds: float = 0.0
    """Time it was worked on so far, as far as is known."""
    before: Usage = Usage()
    """What the session had used up when the run began."""


class EffectStarted(RunRow, tag="effect_started"):
    """After guards and approval, before the tool."""

    call: str
    tool: str
    args: str
    """Hash of the arguments it runs with."""
    replay: Replay
    key: str
    seconds: float = 0.0
    """Time the run was worked on so far, by a clock that does not jump."""


class EffectPaused(RunRow, tag="effect_paused"):
    """Nothing of a call is under way: it waits for a person, and can go on from `state`. Without
    one: before it goes on."""

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
    """Before anybody is asked whether a tool may run."""

    request: str
    call: str
    args: str


class QuestionAnswered(QuestionAsked, tag="question_answered"):
    """Before the answer counts. It is one to these arguments and no others."""

    decision: Literal["allow", "deny", "allow_session", "allow_project"]
    reason: str = ""
    tool: str = ""
    changed: dict[str, Json] | None = None
    """Other arguments to run the tool with."""


class DialogAsked(Row, tag="dialog_asked"):
    """Before a person is asked what an extension or an MCP server wants to know."""

    request: str
    asked: str
    """Hash of who asks what."""


class DialogAnswered(DialogAsked, tag="dialog_answered"):
    """Before the answer counts. It is one to this question and no other."""

    value: str | None = None
    confirmed: bool = False
    cancelled: bool = False


class RunAborted(RunRow, tag="run_aborted"):
    """Before the client hears that it is being aborted."""


class RunLeft(RunRow, tag="run_left"):
    """The process ended in an orderly way: no crash."""


class RunReleased(RunRow, tag="run_released"):
    """Somebody said that a run that was held goes on."""


class RunEnded(RunRow, tag="run_ended"):
    """Before anybody hears of the end."""

    stop: Stop
    error: str = ""
    code: str = ""
    answer: str = ""
    """The entry with the model's last message."""


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
    """The same for the same arguments, in whatever order they stand."""
    return sha256(msgspec.json.encode(args, order="deterministic")).hexdigest()[:32]


def question_hash(question: ExtensionAsk) -> str:
    """The same for the same question of the same one who asks, whatever its number."""
    who, what = question.extension, (question.title, question.message, question.options)
    return sha256(msgspec.json.encode((who, question.method, what))).hexdigest()[:32]


# --- what the rows add up to -----------------------------------------------------------------


class OpenRun(Struct):
    """A run that was accepted and has not ended, as its rows tell."""

    accepted: RunAccepted
    attempts: int = 0
    steps: int = 0
    seconds: float = 0.0
    before: Usage | None = None
    written: bool = False
    """Its message is in the transcript."""
    effects: dict[str, EffectStarted] = {}
    """The last start of each call."""
    starts: dict[str, int] = {}
    """How often each call was started."""
    uncertain: bool = False
    """A row since the last answer cannot be read: any call of it may have begun."""
    paused: dict[str, Json] = {}
    """From where the calls go on that only wait for a person."""
    fruitless: int = 0
    """Attempts since anything was written, other than those that ended in an orderly way."""
    compacted: bool = False
    """The last thing of it that was written is a summary."""
    aborted: bool = False
    left: bool = False
    """The last process that worked on it ended in an orderly way."""
    last: float = 0.0
    """Unix seconds of its last row."""

    @property
    def crashed(self) -> bool:
        """The last process that worked on it ended, and nobody had asked it to."""
        return self.attempts > 0 and not self.left

    @property
    def user(self) -> UserInput:
        accepted = self.accepted
        extra = {**(accepted.extra or {}), RUN: accepted.run}
        return UserInput(accepted.text, accepted.images, extra, accepted.documents)


class JournalState:
    """What the rows of a session say: the runs that are open, what waits, what was answered."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self.open: dict[str, OpenRun] = {}
        self.ended: dict[str, RunEnded] = {}
        self.queued: dict[str, MessageQueued] = {}
        self.answers: dict[tuple[str, str], QuestionAnswered] = {}
        """By call and hash of its arguments."""
        self.allowed: set[str] = set()
        """Tools that were allowed for the session."""
        self.questions = 0
        self.dialogs = 0
        self.dialog_answers: dict[str, list[DialogAnswered]] = {}
        """By the hash of the question; those since the model was last heard."""
        self._current: OpenRun | None = None

    def read(self, entry: Entry) -> None:
        body = entry.body
        if isinstance(body, Custom) and body.kind == JOURNAL:
            try:
                row = msgspec.convert(body.data, AnyRow)
            except msgspec.ValidationError:
                return  # of a later version
            self._take(row)
        elif isinstance(body, Message):
            self._said(body)
        elif isinstance(body, ResultNote | Compaction) and self._current is not None:
            self._current.fruitless = 0
            self._current.compacted = isinstance(body, Compaction)
        if self._current is not None:
            self._current.last = entry.time

    def lost_row(self) -> None:
        """Here a row cannot be read: it may have told that a call began."""
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
                # Some providers give the ids of calls again: these are other ones.
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
            case DialogAnswered():  # before the question, which is its base
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
    """The journal of one session. Everything is written and synced before `note` returns."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self.state = JournalState(session.id)
        for entry in session.entries.values():
            self.state.read(entry)
            if entry.id in session.damaged:
                self.state.lost_row()

    def note(self, row: AnyRow) -> None:
        """Raises JournalError or SessionTaken when it cannot be written: then what it tells of must
        not happen."""
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
        """Where a row that is missing does little harm, and a failure would do more."""
        try:
            self.note(row)
        except SessionError as error:
            warn_once(str(error))


def new_id() -> str:
    return os.urandom(8).hex()
