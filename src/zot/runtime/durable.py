"""Runs that survive the process: what Runs does more where a runtime is durable.

What is written down is in journal.py, what becomes of a tool call that was cut off in recovery.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Raw
from msgspec.structs import asdict, replace

from zot.core.agent import Agent, Limits, UserInput
from zot.core.events import ApprovalRequest, ExtensionAsk, Replay, RunHeld, RunResumed
from zot.core.session import Entry, FencedStore
from zot.core.source import PersonAnswer
from zot.core.toolbox import Begun
from zot.errors import BusyError, Cancelled, CommandError, NotFoundError, ToolError
from zot.provider.types import Json, Message, ToolCall, texts_in
from zot.runtime import journal
from zot.runtime.approval import Verdict
from zot.runtime.recovery import Recovery, interrupted, open_batch
from zot.runtime.run import Run, StoredEnd

MAX_ID = 128
MOST_CRASHES = 3
"""So many at one place, and the run is held."""


class Durable:
    """The runs of one runtime, noted in its session. Runs calls it; the lock there is enough."""

    def __init__(self, agent: Agent, on_crash: journal.OnCrash) -> None:
        self._agent = agent
        self._on_crash = on_crash
        self.journal = journal.Journal(agent.session)
        if isinstance(agent.session.store, FencedStore):
            agent.session.store.fence()
        self.held: RunHeld | None = None
        """A run that waits for somebody to say how it goes on; others wait behind it."""
        self._started = False
        self._taken_up: set[str] = set()
        self._answers: dict[tuple[str, str], journal.QuestionAnswered] = {}
        """Given before a crash, to calls that are still to run."""
        self._dialog_answers: dict[str, list[journal.DialogAnswered]] = {}
        """The same of questions that are to be asked again."""
        self._released: dict[str, bool] = {}
        """Runs that were held, and whether they may go on."""

    # --- accepting ---------------------------------------------------------------------------

    def checked_id(self, id: str) -> str:
        """The name of a new run. Raises CommandError when nothing can begin under it."""
        if not self._started and self.journal.state.open:
            raise BusyError("a run was cut off: resume it first")
        if self.held is not None:
            raise CommandError(
                f"the run {self.held.run!r} is held: {self.held.reason}; say with resume_run how "
                "it goes on",
                code="held",
            )
        if len(id) > MAX_ID:
            raise CommandError(f"the name of a run may have {MAX_ID} characters, not {len(id)}")
        if id in self.journal.state.open or id in self.journal.state.ended:
            raise CommandError(f"there is a run {id!r} already", code="exists")
        return id or journal.new_id()

    def accept(
        self,
        kind: journal.DurableKind,
        id: str,
        user: UserInput,
        limits: Limits | None,
        tag: object,
    ) -> None:
        name = bytes(tag).decode() if isinstance(tag, Raw) else ""
        self.journal.note(
            journal.RunAccepted(
                id,
                self._agent.session.id,
                user.text,
                user.images,
                user.documents,
                user.extra,
                limits,
                name,
                kind,
            )
        )

    def end_of(self, id: str) -> StoredEnd | None:
        """How a run ended, if it has. Raises CommandError when it is held."""
        if self.held is not None and self.held.run == id:
            raise CommandError(f"the run {id!r} is held: {self.held.reason}", code="held")
        ended = self.journal.state.ended.get(id)
        if ended is None:
            return None
        entry = self._agent.session.entries.get(ended.answer)
        body = None if entry is None else entry.body
        blocks = body.content if isinstance(body, Message) else ()
        text = "".join(texts_in(blocks))
        return StoredEnd(ended.stop, ended.error, ended.code, text)

    def last_ended(self) -> journal.RunEnded | None:
        """The run that ended last."""
        return next(reversed(self.journal.state.ended.values()), None)

    def queue(self, name: journal.QueueName, user: UserInput) -> UserInput:
        """Note a message that is to wait; the message as it has to be said later."""
        id = journal.new_id()
        self.journal.note(journal.MessageQueued(id, name, user.text, user.images))
        return replace(user, extra={journal.QUEUED: id})

    def drop(self, users: Sequence[UserInput]) -> None:
        if ids := tuple(str(user.extra[journal.QUEUED]) for user in users if user.extra):
            self.journal.try_note(journal.MessagesDropped(ids))

    # --- working -----------------------------------------------------------------------------

    def work(self, run: Run) -> None:
        """Do what is to be done of a run: all of it, or what is left."""
        record = self.journal.state.open[run.id]
        if record.aborted:
            raise Cancelled
        if record.crashed and not self._may_go_on(record):
            raise CommandError(
                "interrupted: the process ended during this run, and it does not go on",
                code="interrupted",
            )
        recovery = Recovery(record, self._agent, run.cancel)
        before = self._agent.cumulative if record.before is None else record.before
        self.journal.note(
            journal.RunAttempted(
                run.id,
                record.attempts + 1,
                record.steps + recovery.model_was_asked,
                record.seconds,
                before,
            )
        )
        run.count_from(record.seconds)
        run.answer = recovery.answer
        self._answers = dict(self.journal.state.answers)
        if record.attempts > 1:
            answers = self.journal.state.dialog_answers
            self._dialog_answers = {asked: [*rows] for asked, rows in answers.items()}
            run.emit(RunResumed(run.id, record.attempts, recovery.away, recovery.open))
        if recovery.cost_is_unknown:
            self._agent.pay_unknown(run)
        if record.accepted.kind == "compact":
            if not record.compacted:
                self._agent.compact(run, record.accepted.text)
        elif not record.written:
            self._agent.prompt(record.user, run, record.accepted.limits)
        else:
            self._go_on(run, recovery, record.accepted.limits)

    def _go_on(self, run: Run, recovery: Recovery, limits: Limits | None) -> None:
        for event in recovery.told_again():
            run.emit(event)
        self._agent.go_on(run, recovery.progress(run.append), limits)

    def begin(self, run: Run, call: ToolCall, replay: Replay) -> Begun:
        """A tool is about to run, or to go on waiting for a person."""
        record, hashed = self.journal.state.open[run.id], journal.args_hash(call.args)
        if (state := record.paused.get(call.id)) is not None:
            effect = record.effects[call.id]
            if effect.args != hashed:  # a guard has changed its mind
                raise ToolError(interrupted(call.name, 0.0))
            return Begun(effect.key, state)
        # Not the id of the call alone: some providers give it again.
        key = f"{run.id}/{run.answer}/{call.id}"
        self.journal.note(
            journal.EffectStarted(run.id, call.id, call.name, hashed, replay, key, run.seconds)
        )
        return Begun(key)

    def pause(self, run: Run, call_id: str, state: Json) -> None:
        self.journal.note(journal.EffectPaused(run.id, call_id, state))

    # --- approvals ---------------------------------------------------------------------------

    def asked(self, question: ApprovalRequest) -> None:
        """Before anybody is asked."""
        call = question.call
        self.journal.note(journal.QuestionAsked(question.id, call.id, journal.args_hash(call.args)))

    def answered(self, question: ApprovalRequest, verdict: Verdict) -> None:
        """Before the answer counts."""
        call = question.call
        self.journal.note(
            journal.QuestionAnswered(
                question.id,
                call.id,
                journal.args_hash(call.args),
                verdict.decision,
                verdict.reason,
                call.name,
                verdict.args,
            )
        )

    def answer_to(self, call: ToolCall) -> Verdict | None:
        """What was answered about this call with these arguments, before a crash."""
        row = self._answers.pop((call.id, journal.args_hash(call.args)), None)
        return None if row is None else Verdict(row.decision, row.reason, args=row.changed)

    def answered_by_model(self, run: Run, entry: Entry) -> None:
        """What comes now was not asked before the crash."""
        run.answer = entry.id
        self._dialog_answers.clear()

    def dialog_asked(self, question: ExtensionAsk) -> PersonAnswer | None:
        """Before anybody is asked; what was answered before a crash, where it was."""
        asked = journal.question_hash(question)
        if rows := self._dialog_answers.get(asked):
            row = rows.pop(0)
            return PersonAnswer(row.value, row.confirmed, row.cancelled)
        self.journal.note(journal.DialogAsked(question.id, asked))
        return None

    def dialog_answered(self, question: ExtensionAsk, answer: PersonAnswer) -> None:
        """Before the answer counts."""
        asked = journal.question_hash(question)
        self.journal.note(journal.DialogAnswered(question.id, asked, **asdict(answer)))

    def aborted(self, run: Run) -> None:
        if run.id:
            self.journal.try_note(journal.RunAborted(run.id))

    def ended(self, run: Run) -> None:
        """Before anybody hears of it."""
        if not run.id:
            return
        if run.suspended:
            self.journal.try_note(journal.RunLeft(run.id))
            return
        error = run.error
        code = "" if error is None else error.code
        self.journal.note(journal.RunEnded(run.id, run.stop, str(error or ""), code, run.answer))

    # --- after a restart ---------------------------------------------------------------------

    def start(self, steering: deque[UserInput], follow_up: deque[UserInput]) -> bool:
        """Fill the queues with what waited; False if that was done already."""
        if self._started:
            return False
        self._started = True
        for row in self.journal.state.queued.values():
            queue = steering if row.queue == "steering" else follow_up
            queue.append(UserInput(row.text, row.images, {journal.QUEUED: row.id}))
        return True

    def to_take_up(self) -> list[journal.RunAccepted]:
        """The runs that go on now, in order; what comes behind one that is held waits."""
        rows: list[journal.RunAccepted] = []
        for record in self.journal.state.open.values():
            if reason := self._why_hold(record):
                self.held = RunHeld(record.accepted.run, record.attempts, reason)
                break
            if record.accepted.run not in self._taken_up:
                rows.append(record.accepted)
        self._taken_up.update(row.run for row in rows)
        return rows

    def release(self, id: str, *, go_on: bool) -> None:
        """Raises CommandError when no such run is held."""
        if self.held is None or self.held.run != id:
            raise NotFoundError(f"no run {id!r} is held")
        self.journal.note(journal.RunReleased(id))
        self._released[id] = go_on
        self.held = None

    def _may_go_on(self, record: journal.OpenRun) -> bool:
        return self._released.get(record.accepted.run, self._on_crash != "fail")

    def _why_hold(self, record: journal.OpenRun) -> str:
        """Why a run should not go on by itself; empty: it may."""
        if record.accepted.run in self._released or not record.crashed or record.aborted:
            return ""
        if self._on_crash == "fail":
            return ""
        if self._on_crash == "hold":
            return "the process ended during it"
        for call in open_batch(self._agent.session).open:
            if record.starts.get(call.id, 0) >= MOST_CRASHES:
                return f"the process ended {MOST_CRASHES} times during {call.name} ({call.id})"
        if record.fruitless >= MOST_CRASHES:
            return f"the process ended {MOST_CRASHES} times without getting any further"
        return ""
