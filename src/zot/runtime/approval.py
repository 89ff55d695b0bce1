"""Approval before a tool runs: one guard for every provider, tool and client.

The request goes to the client (an event, answered by `approve`) or to the person at the terminal.
No answer within the time limit means denial, and an abort ends the wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core.events import ApprovalRequest, ApprovalResolved
from zot.core.hook import (
    ALLOW,
    ANY,
    Allow,
    ApprovalMode,
    Block,
    Decider,
    Hook,
    HookContext,
    Project,
    ReplaceArgs,
    Rule,
    Rules,
)
from zot.errors import Cancelled, CommandError, ConfigError, NotFoundError
from zot.provider.types import Json, Model, ToolCall
from zot.runtime.client import RuntimeClient
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.core.changes import Files
    from zot.runtime.durable import Durable
    from zot.runtime.reviewer import Reviewer
    from zot.runtime.rules import Judge

DEFAULT_TOOLS = ("write", "edit", "bash")
"""Built-in tools that can change something; the default set that needs approval."""
EVERY_TOOL = "all"
AUTO = "auto"
"""A model reviews the calls that rules leave open."""
SERVER_TOOLS = "mcp"
"""All MCP tools except read-only tools of trusted servers."""
SESSION = "this session"
"""Pattern shown for tools that are allowed until the process ends."""
MAX_PREVIEW = 2_000

READING_TOOLS = frozenset(("read", "glob", "grep", "skill"))
"""Built-in tools that change nothing: all that runs in plan mode, beside read-only MCP tools."""
PLAN_REFUSAL = (
    "{name} was refused: plan mode is on, in which only tools that read may run ({reading}). "
    "Describe the steps you would take; the user switches the mode to have them carried out"
)
Decision = Literal["allow", "deny", "allow_session", "allow_project", "deny_project"]
Source = Literal["client", "remembered", "timeout", "abort", "reviewer"]


class Verdict(Frozen):
    decision: Decision
    reason: str = ""
    """Reason of a denial, shown to the model."""
    pattern: str = ""
    """Pattern of the rule that `allow_project` or `deny_project` makes; empty: the offered one."""
    args: dict[str, Json] | None = None
    """Arguments that replace the model's; None: unchanged."""


Subject = Callable[[ToolCall], str | None]
"""Callback that returns the tool name to request approval for, if the call can change something;
empty: no approval needed; None: unknown call."""
GONE = Verdict("deny", "the client is gone")


class OpenApproval(Struct):
    """A request to a client, and its answer once there is one."""

    request: ApprovalRequest
    answered: threading.Event
    verdict: Verdict | None = None

    def answer(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.answered.set()


AskTerminal = Callable[[ApprovalRequest, Cancel], Verdict | None]
"""Callback that asks a person, for at most the request's timeout; None: no answer."""


class Approval(Hook):
    """The approval policy and the open request. The client may answer from any thread."""

    def __init__(
        self,
        tools: Collection[str] | None = None,
        *,
        client: RuntimeClient | None = None,
        terminal: AskTerminal | None = None,
        seconds: float = 0.0,
        off: bool = False,
    ) -> None:
        """`tools`: names that need approval; None: the default ones, where the client or the model
        wants it. `seconds`: how long a request waits; 0: for ever. `off`: nobody is ever asked."""
        self._is_auto = tools is not None and AUTO in tools
        self._tools = None if self._is_auto else tools
        self._reviewer: Reviewer | None = None
        self._client = client or RuntimeClient()
        self._terminal = terminal
        self._seconds = seconds
        self._off = off
        self.mode: ApprovalMode = "yolo" if off else "ask"
        """Read before each call; may change at any time."""
        self._model_asks: Literal["", "person", "always"] = ""
        self._gone = False
        self._remembered: set[str] = set()
        self._subjects: list[Subject] = []
        self._rules: Rules | None = None
        self._files: Files | None = None
        self._project = Project("", {})
        self._lock = threading.Lock()
        self._count = 0
        self._open: OpenApproval | None = None
        self._durable: Durable | None = None
        self._suspend: Callable[[], None] | None = None

    # --- for the runtime ---------------------------------------------------------------------

    def set_mode(self, mode: ApprovalMode) -> None:
        """Set the mode, from the next tool call on. Raises ConfigError: there is nobody to ask."""
        if self._off and mode not in ("yolo", "plan"):
            raise ConfigError("this runtime has nobody to ask before a tool runs")
        self.mode = mode

    def use_model(self, model: Model) -> None:
        """Set the model that makes the calls."""
        self._model_asks = model.ask

    def use_project(self, project: Project, rules: Rules, files: Files | None) -> None:
        """Set the project: where it is, its permanent rules, and access to files for diffs."""
        self._project, self._rules, self._files = project, rules, files

    def use_reviewer(self, reviewer: Reviewer) -> None:
        """Set the model that reviews calls, if the settings want that (AUTO)."""
        self._reviewer = reviewer if self._is_auto else None

    def also_ask(self, subject: Subject) -> None:
        """Add a classifier for calls of tools that are not built in."""
        self._subjects.append(subject)

    def and_also(self, tools: Collection[str] | None) -> tuple[str, ...] | None:
        """Return the tools that need approval, plus these; None: neither is set."""
        own = (AUTO,) if self._is_auto else self._tools
        both = [names for names in (own, tools) if names is not None]
        return tuple(name for names in both for name in names) if both else None

    def another(self, tools: Collection[str] | None, client: RuntimeClient) -> Approval:
        """Create the guard for another agent, whose own client gets the requests."""
        guard = Approval(tools, client=client, terminal=self._terminal, seconds=self._seconds)
        guard._gone = self._gone
        return guard

    def asked_tools(self) -> tuple[str, ...]:
        """Return the tools that need approval now, for an agent that works elsewhere."""
        if self.mode in ("ask_all", "plan"):
            return (EVERY_TOOL,)
        if self.mode == "yolo":
            return ()
        if self._is_auto:
            return (AUTO,)
        if self._tools is not None:
            return tuple(self._tools)
        asks = self._client.can_answer("approval") or self._model_asks == "always"
        return (*DEFAULT_TOOLS, SERVER_TOOLS) if asks else ()

    def answer(self, request_id: str, verdict: Verdict) -> None:
        """Answer the open request.

        Raises:
            CommandError: no such question is open, or the pattern does not fit the call.
            ConfigError: what is allowed for the project cannot be kept.
            SessionError: the answer to a durable run cannot be kept, so it does not count.
        """
        with self._lock:
            question = self._waiting()
            if question is None or question.request.id != request_id:
                raise NotFoundError(
                    f"no approval {request_id!r} is waiting: it was answered, timed out or aborted"
                )
            self._keep_rule(question.request.call, verdict)
            if self._durable is not None:  # recorded before the answer is acknowledged
                self._durable.answered(question.request, verdict)
            question.answer(verdict)

    def rules(self) -> list[Rule]:
        """Return the rules that allow or deny calls, of the project and this session."""
        for_session = [Rule(tool, SESSION) for tool in sorted(self._remembered)]
        return [*(self._rules.all() if self._rules is not None else ()), *for_session]

    def remove_rule(self, tool: str, pattern: str) -> None:
        """Remove a rule. Raises CommandError when there is no such rule."""
        if pattern == SESSION and tool in self._remembered:
            self._remembered.discard(tool)
            return
        allowing, denying = Rule(tool, pattern), Rule(tool, pattern, deny=True)
        rules = self._rules
        if rules is None or not (rules.remove(allowing) | rules.remove(denying)):
            raise NotFoundError(f"there is no approval of {pattern!r} for {tool!r} in this project")

    def use_durable(self, durable: Durable) -> None:
        """Use a journal so that requests and answers survive the process."""
        self._durable = durable
        self._count = durable.journal.state.questions
        self._remembered |= durable.journal.state.allowed

    def open_requests(self) -> list[ApprovalRequest]:
        """Return the open requests."""
        with self._lock:
            question = self._waiting()
            return [] if question is None else [question.request]

    def _waiting(self) -> OpenApproval | None:
        """Return the request without an answer, if any."""
        return self._open if self._open is not None and self._open.verdict is None else None

    def client_gone(self, suspend: Callable[[], None] | None = None) -> None:
        """Deny open and future requests, because the client is gone; with `suspend`, stop the run
        instead, and the next process continues it."""
        with self._lock:
            self._gone, self._suspend = True, suspend
            question = self._waiting()
            if question is not None and suspend is None:
                question.answer(GONE)
        if question is not None and suspend is not None:
            suspend()

    # --- the guard ---------------------------------------------------------------------------

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        if self.mode == "plan":
            reading = ", ".join(sorted(READING_TOOLS))
            refusal = Block(PLAN_REFUSAL.format(name=call.name, reading=reading))
            return ALLOW if self._only_reads(call) else refusal
        if not self._must_ask(call) and context.wish != "ask":
            return ALLOW
        if context.wish == "allow" and self.mode in ("ask", "edits"):
            return Allow("policy")
        if context.wish != "ask" and self._asks_for_some() and self._judge().reads(call):
            return Allow("policy")
        id = self._next_id()
        if context.wish != "ask" and self._is_allowed(call):
            context.emit(ApprovalResolved(id, call.id, "allow", "remembered"))
            return Allow("remembered")
        if self._durable is not None and (answer := self._durable.answer_to(call)) is not None:
            return self._settle(self._question(id, call), answer, context, "remembered")
        decided, note = self._reviewed(id, call, context)
        if decided is not None:
            return decided
        if self._client.can_answer("approval"):
            return self._ask_client(self._question(id, call, note), context)
        if self._terminal is not None:
            question = self._question(id, call, note)
            context.cancel.check()
            context.emit(question)
            verdict = self._terminal(question, context.cancel)
            context.cancel.check()
            if verdict is not None:
                self._keep_rule(call, verdict)
            return self._settle(question, verdict, context)
        return Block(
            f"{call.name} needs an approval and nobody can give it: use the feature `approvals` "
            "of hello, run zot at a terminal, or pass --yolo"
        )

    def _reviewed(
        self, id: str, call: ToolCall, context: HookContext
    ) -> tuple[Allow | Block | None, str]:
        """Return what the reviewer decided; None: a person decides, who sees the note."""
        if self._reviewer is None or context.wish == "ask":
            return None, ""
        try:
            rules = self._all_rules()
        except ConfigError as error:
            return None, str(error)
        review = self._reviewer.review(call, rules, self._project.cwd, context)
        if review.decision == "ask":
            return None, review.reason
        context.emit(ApprovalResolved(id, call.id, review.decision, "reviewer", review.reason))
        if review.decision == "allow":
            return Allow("policy"), ""
        return Block(f"the reviewer did not allow this: {review.reason}"), ""

    def _subject(self, call: ToolCall) -> str:
        """Return the tool name that needs approval; empty: the call changes nothing."""
        if call.name in DEFAULT_TOOLS:
            return call.name
        return next((name for ask in self._subjects if (name := ask(call)) is not None), "")

    def _only_reads(self, call: ToolCall) -> bool:
        """Whether the call is known to change nothing; tools of extensions are not."""
        answers = [ask(call) for ask in self._subjects]
        return call.name in READING_TOOLS or "" in answers or self._judge().reads(call)

    def _counted(self, call: ToolCall) -> ToolCall:
        """Return the call under the name used for approval: one tool may represent many."""
        return replace(call, name=self._subject(call) or call.name)

    def _is_allowed(self, call: ToolCall) -> bool:
        call = self._counted(call)
        if call.name in self._remembered:
            return True
        try:
            return self._judge().allowed(call, self._all_rules())
        except ConfigError:
            return False  # a broken guard must not allow calls

    def _all_rules(self) -> list[Rule]:
        """Return the rules of the project, and what a person allowed to be written for the session:
        commands with redirections need it. Raises ConfigError: they cannot be read."""
        may_write = not self._remembered.isdisjoint(("write", "edit"))
        own = [Rule("write", ANY)] if may_write else []
        return [*own, *(self._rules.all() if self._rules is not None else ())]

    def _keep_rule(self, call: ToolCall, verdict: Verdict) -> None:
        """Add the rule that an answer makes for the project, if it makes one."""
        denies = verdict.decision == "deny_project"
        if not denies and verdict.decision != "allow_project":
            return
        if self._rules is None:
            raise NotFoundError("this runtime keeps no approvals for a project")
        call, pattern = self._counted(call), verdict.pattern
        tool = "write" if call.name == "edit" else call.name
        offer = self._offer(call)
        rule = Rule(tool, pattern) if pattern else offer
        if rule is not None and denies:
            rule = replace(rule, deny=True)
        if rule is None or not self._applies(rule, call):
            better = "say which" if offer is None else f"{offer.pattern!r} would"
            raise CommandError(
                f"the pattern {pattern!r} does not cover this call; {better}",
                code="invalid_params",
            )
        self._rules.add(rule)

    def _applies(self, rule: Rule, call: ToolCall) -> bool:
        if rule.deny:
            return self._judge().denying(call, [rule]) is not None
        allowing = [old for old in self._all_rules() if not old.deny]
        return self._judge().allowed(call, [*allowing, rule])

    def _judge(self) -> Judge:
        from zot.runtime.rules import Judge

        return Judge(self._project)

    def _offer(self, call: ToolCall) -> Rule | None:
        return self._judge().offered(call, self._all_rules())

    def _question(self, id: str, call: ToolCall, note: str = "") -> ApprovalRequest:
        planned = None if self._files is None else self._files.planned(call)
        return ApprovalRequest(
            id,
            call,
            preview(call),
            self._seconds,
            self._offered_pattern(call),
            "" if planned is None else planned.diff,
            0 if planned is None else planned.line,
            note,
        )

    def _offered_pattern(self, call: ToolCall) -> str:
        if self._rules is None:
            return ""
        try:
            offer = self._offer(self._counted(call))
        except ConfigError:
            return ""  # a broken file cannot take another rule
        return "" if offer is None else offer.pattern

    def _asks_for_some(self) -> bool:
        """Whether calls are asked about by what they do, not by names in the settings."""
        return self.mode in ("ask", "edits") and self._tools is None

    def _must_ask(self, call: ToolCall) -> bool:
        if self.mode in ("ask_all", "yolo"):
            return self.mode == "ask_all"
        if self.mode == "edits" and self._judge().edits_project(call):
            return False
        subject = self._subject(call)
        if self._model_asks == "always" and subject:
            return True
        if self._is_auto and subject:
            return True
        if self._tools is not None:
            return not self._names(call, subject).isdisjoint(self._tools)
        wanted = self._client.can_answer("approval")
        wanted = wanted or (self._terminal is not None and self._model_asks == "person")
        return wanted and bool(subject)

    def _names(self, call: ToolCall, subject: str) -> set[str]:
        """Return all names by which the settings may refer to a call."""
        names = {call.name, subject, EVERY_TOOL} - {SERVER_TOOLS}  # one tool stands for all of them
        is_servers = bool(subject) and call.name not in DEFAULT_TOOLS
        return names | {SERVER_TOOLS} if is_servers else names

    def _next_id(self) -> str:
        with self._lock:
            self._count += 1
            return f"approval-{self._count}"

    def _ask_client(
        self, question: ApprovalRequest, context: HookContext
    ) -> Allow | Block | ReplaceArgs:
        waiting = OpenApproval(question, threading.Event())
        context.cancel.check()
        if self._durable is not None:
            self._durable.asked(question)
        with self._lock:
            self._open, suspend = waiting, self._suspend
            if self._gone and suspend is None:
                waiting.answer(GONE)
        if suspend is not None:
            suspend()
        try:
            context.cancel.check()  # no request after an abort
            context.emit(question)
            with context.cancel.calling(waiting.answered.set):
                waiting.answered.wait(self._seconds or None)
        finally:
            with self._lock:
                self._open = None
        if context.cancel.is_set():
            context.emit(ApprovalResolved(question.id, question.call.id, "deny", "abort"))
            raise Cancelled
        return self._settle(question, waiting.verdict, context)

    def _settle(
        self,
        question: ApprovalRequest,
        verdict: Verdict | None,
        context: HookContext,
        source: Source = "client",
    ) -> Allow | Block | ReplaceArgs:
        id, call = question.id, question.call
        if verdict is None:
            context.emit(ApprovalResolved(id, call.id, "deny", "timeout"))
            return Block(f"not allowed: nobody answered within {self._seconds:g} s", "policy")
        denies = verdict.decision in ("deny", "deny_project")
        decision: Literal["allow", "deny"] = "deny" if denies else "allow"
        context.emit(ApprovalResolved(id, call.id, decision, source))
        if decision == "deny":
            because = verdict.reason or "no reason given"
            decider: Decider = "policy" if verdict is GONE else "user"
            return Block(f"the user did not allow this: {because}", decider)
        if verdict.decision == "allow_session":
            self._remembered.add(self._counted(call).name)
        if verdict.args is None or verdict.args == call.args:
            return Allow("user")
        shown = preview(replace(call, args=verdict.args))
        note = f"[the user changed the call before it ran, to: {shown}]"
        return ReplaceArgs(verdict.args, note, "user")


def preview(call: ToolCall) -> str:
    """Return a readable form of the call, shown before approval."""
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            text = command
        case "write", {"path": str(path), "content": str(content)}:
            text = f"{path} ({len(content.encode('utf-8', 'replace'))} bytes)\n{content}"
        case "edit", {"path": str(path), "edits": list(edits)}:
            changes = [edit for edit in edits if isinstance(edit, dict)]
            text = "\n".join([path, *(_change(edit) for edit in changes)])
        case _:
            text = msgspec.json.encode(args).decode()
    return text if len(text) <= MAX_PREVIEW else f"{text[:MAX_PREVIEW]}\n[and more]"


def _change(edit: dict[str, object]) -> str:
    removed = (f"- {line}" for line in str(edit.get("oldText", "")).split("\n"))
    added = (f"+ {line}" for line in str(edit.get("newText", "")).split("\n"))
    everywhere = ["(every occurrence)"] if edit.get("replaceAll") is True else []
    return "\n".join([*everywhere, *removed, *added])
