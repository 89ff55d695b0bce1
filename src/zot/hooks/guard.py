"""The guard that runs the hooks of files: each moment of a run asks the commands that match it.

Commands run one after the other, in the order of the files. A command that refuses ends the
question. Where a hook guards (a tool call, a prompt), a command that cannot run, is too slow or
answers rubbish refuses too; its own exit codes other than 0 and 2 are shown and change nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core.events import ApprovalRequest, Event, ExtensionAsk, ExtensionNotify, Reason
from zot.core.hook import (
    ALLOW,
    AddText,
    Allow,
    Block,
    Hook,
    HookContext,
    ReplaceArgs,
    Wish,
)
from zot.core.session import Session
from zot.hooks import claude
from zot.hooks.config import CommandHook, HookEvent
from zot.hooks.program import (
    BLOCKS,
    MAX_TEXT,
    HookAnswer,
    HookDetails,
    HookOutput,
    HookPlace,
    answer_of,
    run_hook,
)
from zot.provider.types import Json, Text, ToolCall, ToolResult

NAME = "hooks"
"""Sender of the messages that hooks show."""
GUARDS: tuple[HookEvent, ...] = ("PreToolUse", "UserPromptSubmit")
"""Events whose hooks refuse when they cannot answer."""
TEXT_IS_CONTEXT: tuple[HookEvent, ...] = ("UserPromptSubmit", "SessionStart")
"""Events whose plain output is given to the model."""
MAX_ROUNDS = 8
"""Times that hooks may keep one run from ending."""
END_SECONDS = 5.0
"""Seconds for each hook of SessionEnd, because the process waits for it."""
Fields = dict[str, Json]


class Said(Struct):
    """Answers of all hooks of one moment, taken together."""

    refusal: str | None = None
    texts: list[str] = field(default_factory=list)
    wish: Wish = ""
    input: Fields | None = None
    """Input of the tool as a hook changed it, in Claude Code's words."""

    @property
    def text(self) -> str:
        return "\n".join(self.texts)[:MAX_TEXT]


class FileHooks(Hook):
    """The hooks of one runtime. Safe to call from any thread."""

    def __init__(
        self,
        hooks: Sequence[CommandHook],
        place: HookPlace,
        session: Callable[[], Session],
        transcript: Callable[[Session], str],
        *,
        subagent: bool = False,
    ) -> None:
        """`transcript` returns the file of a session, or an empty text. `subagent`: another agent
        started this one; prompts and sessions are not told then."""
        self._hooks = hooks
        self._place = place
        self._session = session
        self._transcript = transcript
        self._subagent = subagent
        self._started = ""
        """Id of the session that SessionStart was told of."""
        self._rounds = 0
        self._stop: str | None = None
        """Reason why the run must stop; set by `continue: false`."""

    # --- moments of a run --------------------------------------------------------------------

    def before_prompt(self, text: str, context: HookContext) -> Allow | Block | AddText:
        self._rounds, self._stop = 0, None
        if self._subagent:
            return ALLOW
        texts = self._session_start(context)
        said = self._ask("UserPromptSubmit", "", {"prompt": text}, context)
        if said.refusal is not None:
            return Block(f"a hook did not allow the prompt: {said.refusal}")
        added = "\n".join(part for part in (texts, said.text) if part)
        return AddText(added) if added else ALLOW

    def before_turn(self, step: int, context: HookContext) -> Allow | Block:
        return ALLOW if self._stop is None else Block(f"stopped by a hook: {self._stop}")

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        given = claude.tool_input(call, self._place.cwd)
        name = claude.tool_name(call)
        said = self._ask("PreToolUse", name, _call_fields(call, name, given), context)
        if said.refusal is not None:
            return Block(f"blocked by a hook: {said.refusal}")
        if said.input is not None and said.input != given:
            note = f"[a hook changed the call before it ran]\n{said.text}".rstrip()
            return ReplaceArgs(claude.tool_args(call, said.input), note, wish=said.wish)
        return Allow(wish=said.wish, note=said.text)

    def after_tool(
        self, call: ToolCall, result: ToolResult, context: HookContext
    ) -> Allow | AddText:
        given = claude.tool_input(call, self._place.cwd)
        name = claude.tool_name(call)
        fields = {**_call_fields(call, name, given), "tool_response": _response(name, result)}
        said = self._ask("PostToolUse", name, fields, context)
        texts = [] if said.refusal is None else [f"[a hook says: {said.refusal}]"]
        texts += said.texts
        return AddText("\n".join(texts)[:MAX_TEXT]) if texts else ALLOW

    def before_stop(self, context: HookContext) -> Allow | AddText:
        event: HookEvent = "SubagentStop" if self._subagent else "Stop"
        fields: Fields = {"stop_hook_active": self._rounds > 0}
        said = self._ask(event, "", fields, context)
        if said.refusal is None or self._stop is not None:
            return ALLOW
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            self._show(context, f"hooks kept the run from ending {MAX_ROUNDS} times; it ends now")
            return ALLOW
        return AddText(said.refusal)

    def before_compact(
        self, reason: Reason, instructions: str, context: HookContext
    ) -> Allow | Block:
        trigger = "manual" if reason == "manual" else "auto"
        fields: Fields = {"trigger": trigger, "custom_instructions": instructions}
        said = self._ask("PreCompact", trigger, fields, context)
        return ALLOW if said.refusal is None else Block(f"blocked by a hook: {said.refusal}")

    # --- the session -------------------------------------------------------------------------

    def _session_start(self, context: HookContext) -> str:
        """Tell hooks of a session that this process has not used yet; return their text."""
        session = self._session()
        if session.id == self._started:
            return ""
        source = "resume" if session.message_count() else "clear" if self._started else "startup"
        self._started = session.id
        return self._ask("SessionStart", source, {"source": source}, context).text

    def closed(self) -> None:
        if self._started:
            quick = HookContext(Cancel(), _ignore)
            self._ask("SessionEnd", "other", {"reason": "other"}, quick)

    def listen(self, event: Event, run: object) -> None:
        """Tell hooks of Notification that a person is needed; never blocks the run."""
        if isinstance(event, ApprovalRequest):
            kind = "permission_prompt"
            text = f"zot needs your permission to use {claude.tool_name(event.call)}"
        elif isinstance(event, ExtensionAsk):
            kind, text = "elicitation_dialog", f"zot has a question: {event.title}"
        else:
            return
        if not self._matching("Notification", kind):
            return
        fields: Fields = {"message": text, "notification_type": kind}
        context = HookContext(Cancel(), _ignore)
        threading.Thread(
            target=self._ask, args=("Notification", kind, fields, context), daemon=True
        ).start()

    # --- asking ------------------------------------------------------------------------------

    def _matching(self, event: HookEvent, value: str) -> list[CommandHook]:
        return [hook for hook in self._hooks if hook.event == event and hook.matches(value)]

    def _ask(self, event: HookEvent, value: str, fields: Fields, context: HookContext) -> Said:
        """Run the hooks that match, until one refuses. Raises Cancelled."""
        said, session = Said(), self._session()
        for hook in self._matching(event, value):
            if event == "SessionEnd":
                hook = replace(hook, seconds=min(hook.seconds, END_SECONDS))
            common: Fields = {
                "session_id": session.id,
                "transcript_path": self._transcript(session),
                "cwd": self._place.cwd,
                "permission_mode": "default",
                "hook_event_name": event,
            }
            output = run_hook(hook, {**common, **fields}, self._place, context.cancel)
            self._take(hook, output, said, context)
            if said.refusal is not None:
                break
            if said.input is not None:
                fields = {**fields, "tool_input": said.input}
        return said

    def _take(
        self, hook: CommandHook, output: HookOutput, said: Said, context: HookContext
    ) -> None:
        if output.problem:
            self._failed(hook, output.problem, said, context)
        elif output.code == BLOCKS:
            said.refusal = output.stderr.strip()[:MAX_TEXT] or "no reason given"
        elif output.code:
            because = output.stderr.strip()[:500]
            self._show(context, f"the hook {hook.command!r} exited with {output.code}: {because}")
        else:
            try:
                answer = answer_of(output)
            except ValueError as error:
                self._failed(hook, str(error), said, context)
                return
            if isinstance(answer, HookAnswer):
                self._take_answer(answer, said, context)
            elif answer and hook.event in TEXT_IS_CONTEXT:
                said.texts.append(answer)

    def _failed(self, hook: CommandHook, problem: str, said: Said, context: HookContext) -> None:
        text = f"the hook {hook.command!r} of {hook.file} failed: {problem}"
        if hook.event in GUARDS:
            said.refusal = f"{text}; `zot hooks test {hook.event}` shows more"
        else:
            self._show(context, text)

    def _take_answer(self, answer: HookAnswer, said: Said, context: HookContext) -> None:
        details = answer.hook_specific_output or HookDetails()
        if answer.system_message:
            self._show(context, answer.system_message)
        if details.additional_context:
            said.texts.append(details.additional_context)
        if details.updated_input is not None:
            said.input = details.updated_input
        if answer.continue_ is False:
            self._stop = said.refusal = answer.stop_reason or "no reason given"
        elif answer.decision == "block" or details.permission_decision == "deny":
            said.refusal = details.permission_decision_reason or answer.reason or "no reason given"
        elif details.permission_decision == "ask":
            said.wish = "ask"
        elif "allow" in (details.permission_decision, *_old_words(answer)) and not said.wish:
            said.wish = "allow"

    def _show(self, context: HookContext, text: str) -> None:
        context.emit(ExtensionNotify(NAME, "warning", text))


def _old_words(answer: HookAnswer) -> tuple[str, ...]:
    return ("allow",) if answer.decision == "approve" else ()


def _call_fields(call: ToolCall, name: str, given: Fields) -> Fields:
    return {"tool_name": name, "tool_input": given, "tool_use_id": call.id}


def _response(name: str, result: ToolResult) -> Fields:
    text = "\n".join(block.text for block in result.content if isinstance(block, Text))
    response: Fields = {"content": text, "is_error": result.is_error}
    if name == "Bash":
        response |= {"stdout": text, "stderr": "", "interrupted": False}
    return response


def _ignore(event: Event) -> None:
    """Drop an event outside a run, which has no listener."""
