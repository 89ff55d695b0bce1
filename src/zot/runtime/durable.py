"""Durable runs, which survive the process: the additions to Runs, and the recovery of a run that
was cut off. journal.py defines the records.

A tool call that had not begun runs now. A call that had begun may have taken effect: its tool's
declared replay mode decides whether to run it again, ask the tool, or report it to the model.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Raw
from msgspec.structs import asdict, replace

from zot.bugs import report_bug
from zot.cancel import Cancel
from zot.core.agent import Agent, Limits, Progress, UserInput
from zot.core.events import (
    ApprovalRequest,
    AssistantMessage,
    ExtensionAsk,
    OpenCall,
    Replay,
    RunHeld,
    RunResumed,
    ToolCalled,
)
from zot.core.session import Body, Entry, FencedStore, ResultNote, Session
from zot.core.source import PersonAnswer
from zot.core.tool import (
    REPLAYS,
    Reconciled,
    ToolContext,
    as_output,
    can_reconcile,
    failed,
    replay_of,
)
from zot.core.toolbox import Begun
from zot.errors import BusyError, Cancelled, CommandError, NotFoundError, ToolError
from zot.provider.types import Json, Message, ToolCall, ToolResult, texts_in
from zot.runtime import journal
from zot.runtime.agents import TASK
from zot.runtime.approval import Verdict
from zot.runtime.run import Run, StoredEnd
from zot.text import Frozen

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
            self._dialog_answers = {question: [*rows] for question, rows in answers.items()}
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
        hashed = journal.question_hash(question)
        if rows := self._dialog_answers.get(hashed):
            row = rows.pop(0)
            return PersonAnswer(row.value, row.confirmed, row.cancelled)
        self.journal.note(journal.DialogAsked(question.id, hashed))
        return None

    def dialog_answered(self, question: ExtensionAsk, answer: PersonAnswer) -> None:
        """Record an answer, before it takes effect."""
        hashed = journal.question_hash(question)
        self.journal.note(journal.DialogAnswered(question.id, hashed, **asdict(answer)))

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


# --- recovery --------------------------------------------------------------------------------


class OpenBatch(Frozen):
    """Unfinished work at the end of the transcript."""

    calls: tuple[ToolCall, ...] = ()
    """Calls of the last answer, if some have no result yet."""
    results: dict[str, ToolResult] = {}
    answered: bool = False
    """The model stopped without calling a tool."""
    answer: Message | None = None
    """Message with these calls, or the final answer."""
    id: str = ""
    """Entry id of that message."""

    @property
    def open(self) -> list[ToolCall]:
        return [call for call in self.calls if call.id not in self.results]


def open_batch(session: Session) -> OpenBatch:
    """Find the unfinished work at the end of the transcript: the last answer and its results."""
    results: dict[str, ToolResult] = {}
    settled: set[str] = set()
    for id, message in reversed(session.context()):
        if message.role == "user":
            break
        if message.role == "assistant":
            return replace(_batch(message, results, settled), id=id)
        entry = session.entries.get(id)
        for block in message.content:
            if isinstance(block, ToolResult):
                results.setdefault(block.call_id, block)
                if entry is None or not isinstance(entry.body, ResultNote):
                    settled.add(block.call_id)
    return OpenBatch()


def _batch(message: Message, results: dict[str, ToolResult], settled: set[str]) -> OpenBatch:
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    if not calls:
        stop = "end" if message.origin is None else message.origin.stop
        answered = stop in ("end", "length")
        return OpenBatch(answered=answered, answer=message if answered else None)
    if all(call.id in results for call in calls):
        return OpenBatch()
    # Results in a message of their own are not written again; results from notes are.
    left = tuple(call for call in calls if call.id not in settled)
    known = {call.id: results[call.id] for call in left if call.id in results}
    return OpenBatch(left, known, answer=message)


class Recovery:
    """One run that continues; created once the tools are known."""

    def __init__(self, record: journal.OpenRun, agent: Agent, cancel: Cancel) -> None:
        self.away = max(0.0, time.time() - record.last) if record.last else 0.0
        """Seconds since the run's last row; 0 if the clock was set back."""
        self._record = record
        self._agent = agent
        self._cancel = cancel
        self._batch = open_batch(agent.session) if record.written else OpenBatch()
        self.open = tuple(self._described(call) for call in self._batch.open)
        nothing_open = not (self._batch.calls or self._batch.answered)
        summing = record.accepted.kind == "compact" and not record.compacted
        calling = summing or (record.written and nothing_open)
        self.model_was_asked = record.attempts > 0 and calling
        """A model call may have been cut off; its cost is unknown."""
        tasks = any(call.started and call.name == TASK for call in self.open)
        self.cost_is_unknown = self.model_was_asked or tasks

    @property
    def answer(self) -> str:
        """Entry id of the model's last message."""
        return self._batch.id

    def told_again(self) -> list[AssistantMessage | ToolCalled]:
        """Return events that may not have been sent: the last answer and its calls. The toolbox
        sends the results again."""
        if self._batch.answer is None:
            return []
        calls = [ToolCalled(call) for call in self._batch.calls]
        return [AssistantMessage(self._batch.answer), *calls]

    def progress(self, append: Callable[[Body], Entry]) -> Progress:
        """Return where the loop continues. Reconciling tools are called here, and results now
        certain are recorded."""
        record, results = self._record, dict(self._batch.results)
        for call in self.open:
            if call.started and (result := self._decided(call)) is not None:
                append(ResultNote(result))
                results[call.id] = result
        return Progress(
            record.steps,
            record.seconds,
            record.before,
            self._batch.calls,
            results,
            self._batch.answered,
        )

    # --- one call ----------------------------------------------------------------------------

    def _described(self, call: ToolCall) -> OpenCall:
        effect = self._record.effects.get(call.id)
        tool = self._agent.toolbox.get(call.name)
        declared = "never" if tool is None else replay_of(tool)
        if effect is None and self._record.uncertain:
            # Its key for reconciling is unknown, too.
            known: Replay = "never" if declared == "reconcile" else declared
            return OpenCall(call.id, call.name, started=True, replay=known)
        if effect is None:
            return OpenCall(call.id, call.name, started=False, replay=declared)
        # The guards may have changed the arguments: then the effect is unknown here. A replay mode
        # declared before the run is never widened.
        same = effect.args == journal.args_hash(call.args)
        if same and call.id in self._record.paused:  # the person will be asked again
            return OpenCall(call.id, call.name, started=False, replay=declared)
        replay = min(declared, effect.replay, key=REPLAYS.index)
        if replay == "reconcile" and not same:
            replay = "never"
        return OpenCall(call.id, call.name, started=True, replay=replay)

    def _decided(self, described: OpenCall) -> ToolResult | None:
        """Return the result of a call that had begun; None: run it again."""
        if described.replay in ("safe", "idempotent"):
            return None
        call = next(call for call in self._batch.calls if call.id == described.id)
        outcome = Reconciled("unknown")
        if described.replay == "reconcile":
            outcome = self._reconciled(call)
        match outcome.state:
            case "not_done":
                return None
            case "done":
                return as_output(outcome.output or "done before the interruption").as_result(call)
            case "unknown":
                note = "\n".join(texts_in(as_output(outcome.output).content))
                return failed(interrupted(call.name, self.away, note)).as_result(call)

    def _reconciled(self, call: ToolCall) -> Reconciled:
        tool: object = self._agent.toolbox.get(call.name)
        if not can_reconcile(tool):
            return Reconciled("unknown")
        key = self._record.effects[call.id].key
        context = ToolContext(call.id, self._cancel, lambda text: None, key=key)
        try:
            return tool.reconcile(call.args or {}, context)
        except ToolError as error:
            return Reconciled("unknown", str(error))
        except Exception as error:
            # A bug in a tool: the model gets the known facts, stderr the traceback.
            report_bug(error)
            return Reconciled("unknown")


def interrupted(name: str, seconds: float, note: str = "") -> str:
    """Return the message to the model about a call whose outcome is unknown."""
    text = (
        f"interrupted: the process that ran this {name} call ended before it did, "
        f"{duration(seconds)} ago. It may have taken effect, in whole or in part, and it was not "
        "run again. Look at what is there before you repeat it; files may have changed meanwhile."
    )
    return f"{text}\n{note}" if note else text


def duration(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds:.0f} seconds"
