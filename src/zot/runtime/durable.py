"""Durable runs, which survive the process: the additions to Runs.

journal.py defines the records, recovery.py the treatment of tool calls that were cut off.
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
"""Crashes at one place after which the run is held."""


class Durable:
    """Durable runs of one runtime, recorded in its session. Protected by the lock of Runs."""

    def __init__(self, agent: Agent, on_crash: journal.OnCrash) -> None:
        self._agent = agent
        self._on_crash = on_crash
        self.journal = journal.Journal(agent.session)
        if isinstance(agent.session.store, FencedStore):
            agent.session.store.fence()
        self.held: RunHeld | None = None
        """Run that waits for a client's decision; later runs wait behind it."""
        self._started = False
        self._taken_up: set[str] = set()
        self._answers: dict[tuple[str, str], journal.QuestionAnswered] = {}
        """Approval answers from before a crash, for calls that are still to run."""
        self._dialog_answers: dict[str, list[journal.DialogAnswered]] = {}
        """Dialog answers from before a crash, for questions that will be asked again."""
        self._released: dict[str, bool] = {}
        """Formerly held runs, and whether each may continue."""

    # --- accepting ---------------------------------------------------------------------------

    def checked_id(self, id: str) -> str:
        """Return the id for a new run. Raises CommandError when no run can start under it."""
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
        """Return the outcome of a run, if it has ended. Raises CommandError when it is held."""
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
        """Return the run that ended last."""
        return next(reversed(self.journal.state.ended.values()), None)

    def queue(self, name: journal.QueueName, user: UserInput) -> UserInput:
        """Record a queued message; return it with its id attached."""
        id = journal.new_id()
        self.journal.note(journal.MessageQueued(id, name, user.text, user.images))
        return replace(user, extra={journal.QUEUED: id})

    def drop(self, users: Sequence[UserInput]) -> None:
        if ids := tuple(str(user.extra[journal.QUEUED]) for user in users if user.extra):
            self.journal.try_note(journal.MessagesDropped(ids))

    # --- working -----------------------------------------------------------------------------

    def work(self, run: Run) -> None:
        """Execute a run, or what is left of it."""
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
        """Record that a tool is about to run, or resume its wait for a person."""
        record, hashed = self.journal.state.open[run.id], journal.args_hash(call.args)
        if (state := record.paused.get(call.id)) is not None:
            effect = record.effects[call.id]
            if effect.args != hashed:  # a guard changed the arguments this time
                raise ToolError(interrupted(call.name, 0.0))
            return Begun(effect.key, state)
        # The call id alone is not unique: some providers reuse ids.
        key = f"{run.id}/{run.answer}/{call.id}"
        self.journal.note(
            journal.EffectStarted(run.id, call.id, call.name, hashed, replay, key, run.seconds)
        )
        return Begun(key)

    def pause(self, run: Run, call_id: str, state: Json) -> None:
        self.journal.note(journal.EffectPaused(run.id, call_id, state))

    # --- approvals ---------------------------------------------------------------------------

    def asked(self, question: ApprovalRequest) -> None:
        """Record a request, before it is sent."""
        call = question.call
        self.journal.note(journal.QuestionAsked(question.id, call.id, journal.args_hash(call.args)))

    def answered(self, question: ApprovalRequest, verdict: Verdict) -> None:
        """Record an answer, before it takes effect."""
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
        """Return the answer given before a crash for this call with these arguments."""
        row = self._answers.pop((call.id, journal.args_hash(call.args)), None)
        return None if row is None else Verdict(row.decision, row.reason, args=row.changed)

    def answered_by_model(self, run: Run, entry: Entry) -> None:
        """Note a new model message; stored dialog answers no longer apply after it."""
        run.answer = entry.id
        self._dialog_answers.clear()

    def dialog_asked(self, question: ExtensionAsk) -> PersonAnswer | None:
        """Record a question before it is sent, or return its answer from before a crash."""
        asked = journal.question_hash(question)
        if rows := self._dialog_answers.get(asked):
            row = rows.pop(0)
            return PersonAnswer(row.value, row.confirmed, row.cancelled)
        self.journal.note(journal.DialogAsked(question.id, asked))
        return None

    def dialog_answered(self, question: ExtensionAsk, answer: PersonAnswer) -> None:
        """Record an answer, before it takes effect."""
        asked = journal.question_hash(question)
        self.journal.note(journal.DialogAnswered(question.id, asked, **asdict(answer)))

    def aborted(self, run: Run) -> None:
        if run.id:
            self.journal.try_note(journal.RunAborted(run.id))

    def ended(self, run: Run) -> None:
        """Record the end of a run, before it is announced."""
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
        """Refill the queues with recorded messages; False: already done."""
        if self._started:
            return False
        self._started = True
        for row in self.journal.state.queued.values():
            queue = steering if row.queue == "steering" else follow_up
            queue.append(UserInput(row.text, row.images, {journal.QUEUED: row.id}))
        return True

    def to_take_up(self) -> list[journal.RunAccepted]:
        """Return the runs to continue now, in order, up to a held one."""
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
        """Release a held run. Raises CommandError when no such run is held."""
        if self.held is None or self.held.run != id:
            raise NotFoundError(f"no run {id!r} is held")
        self.journal.note(journal.RunReleased(id))
        self._released[id] = go_on
        self.held = None

    def _may_go_on(self, record: journal.OpenRun) -> bool:
        return self._released.get(record.accepted.run, self._on_crash != "fail")

    def _why_hold(self, record: journal.OpenRun) -> str:
        """Return the reason to hold a run; empty: it may continue."""
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
