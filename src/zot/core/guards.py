"""Consults the guards of an agent at each moment of a run, except for tool calls (toolbox.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from zot import errors
from zot.core.answer import with_text
from zot.core.events import Reason
from zot.core.hook import AddText, Block, Hook, HookContext, ReplaceText, asked, asked_for
from zot.provider.types import Message


class Guards:
    """The hooks of an agent. Each attribute holds those that see this moment."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self.hooks = tuple(hooks)
        self.prompt = asked_for("before_prompt", hooks)
        self.turn = asked_for("before_turn", hooks)
        self.reply = asked_for("before_reply", hooks)
        self.stop = asked_for("before_stop", hooks)
        self.compact = asked_for("before_compact", hooks)

    def system_prompt(self, system: str, context: HookContext) -> str:
        """Return the system prompt with the guards' changes. Raises Blocked."""
        for hook in self.hooks:
            verdict = asked(partial(hook.before_start, system, context))
            if isinstance(verdict, Block):
                raise errors.Blocked(verdict.reason or "the conversation was blocked by a guard")
            if isinstance(verdict, ReplaceText):
                system = verdict.text
        return system

    def texts_for(self, prompt: str, context: HookContext) -> list[str]:
        """Return the texts that guards add to a user message. Raises Blocked."""
        texts: list[str] = []
        for hook in self.prompt:
            verdict = asked(partial(hook.before_prompt, prompt, context))
            if isinstance(verdict, Block):
                raise errors.Blocked(verdict.reason or "the prompt was blocked by a guard")
            if isinstance(verdict, AddText):
                texts.append(verdict.text)
        return texts

    def check_turn(self, step: int, context: HookContext) -> None:
        """Raise Blocked if a guard does not allow this model call."""
        for hook in self.turn:
            if hook.idle:
                continue
            verdict = asked(partial(hook.before_turn, step, context))
            if isinstance(verdict, Block):
                raise errors.Blocked(verdict.reason or "the turn was blocked by a guard")

    def checked_reply(self, message: Message, context: HookContext) -> Message:
        """Return the message with the guards' changes."""
        for hook in self.reply:
            if hook.idle:
                continue
            verdict = asked(partial(hook.before_reply, message, context))
            if isinstance(verdict, Block):
                return with_text(message, f"[reply withheld: {verdict.reason}]")
            if isinstance(verdict, ReplaceText):
                message = with_text(message, verdict.text)
        return message

    def next_message(self, context: HookContext) -> str | None:
        """Return the message with which a guard keeps the run going; None: it may end."""
        for hook in self.stop:
            verdict = asked(partial(hook.before_stop, context))
            if isinstance(verdict, AddText):
                return verdict.text
        return None

    def check_compact(self, reason: Reason, instructions: str, context: HookContext) -> None:
        """Raise CommandError if a guard does not allow this compaction."""
        for hook in self.compact:
            verdict = asked(partial(hook.before_compact, reason, instructions, context))
            if isinstance(verdict, Block):
                raise errors.CommandError(verdict.reason, code="blocked")
