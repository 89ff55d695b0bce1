"""Hook through which extensions allow, change or block actions, in load order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from zot.core.hook import ALLOW, Allow, Block, Hook, HookContext, ReplaceArgs, ReplaceText
from zot.extensions import proto
from zot.extensions.deliver import call_fields, text_of
from zot.extensions.extension import HostedExtension
from zot.extensions.guest import Guest, NoAnswer, TimedOut
from zot.extensions.manifest import Installed
from zot.files import write_atomic
from zot.provider.types import Json, Message, ToolCall

if TYPE_CHECKING:
    from zot.extensions.host import ExtensionHost

MAX_SYSTEM_PROMPT = 1024 * 1024
MAX_PATIENCE = 60.0


GUARDED = frozenset({"tool_call", "turn_start", "assistant_message"})
"""Events that must wait until their guard has started."""


class GuardMemory:
    """The events that each extension guarded in its last run, so that a slow guard is waited for.
    Stored in zot's own files, because an extension can change its own directory."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "guards"

    def expected(self, installed: Installed) -> frozenset[str] | None:
        """Return the events it will guard; None: unknown, it has never run here."""
        try:
            events = (self._folder / installed.name).read_text("utf-8").split()
        except (OSError, UnicodeDecodeError):
            return frozenset({"tool_call"}) if installed.manifest.guard else None
        if installed.manifest.guard:
            events.append("tool_call")
        return GUARDED & set(events)

    def remember(self, extension: HostedExtension) -> None:
        """Store the events it guards; called after it registered them, and again when it adds
        some."""
        events = GUARDED & extension.registered.intercepts
        try:
            if self.expected(extension.installed) != events:
                path = self._folder / extension.name
                write_atomic(path, " ".join(sorted(events)).encode())
        except OSError as error:
            extension.log.note(f"what it guards could not be remembered: {error.strerror}")


class ExtensionHook(Hook):
    """Gives each extension 5 s to answer, more if several agents ask it. No answer allows the
    action, or blocks it if the extension requested that."""

    def __init__(self, host: ExtensionHost, guest: Guest) -> None:
        self._host = host
        self._guest = guest

    def before_start(self, system: str, context: HookContext) -> Allow | Block | ReplaceText:
        fields: dict[str, Json] = {"system_prompt": system}
        for answer in self._answers("before_agent_start", fields, context):
            if isinstance(answer, Block):
                return answer
            prompt = answer.system_prompt
            if prompt is not None and len(prompt) <= MAX_SYSTEM_PROMPT:
                fields["system_prompt"] = prompt
        changed = fields["system_prompt"] != system
        return ReplaceText(fields["system_prompt"]) if changed else ALLOW

    def before_turn(self, step: int, context: HookContext) -> Allow | Block:
        for answer in self._answers("turn_start", {"step": step}, context):
            if isinstance(answer, Block):
                return answer
        return ALLOW

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        fields = call_fields(call)
        for answer in self._answers("tool_call", fields, context):
            if isinstance(answer, Block):
                return answer
            if answer.modified_args is not None:
                fields["tool_args"] = answer.modified_args
        changed = fields["tool_args"] is not call.args
        return ReplaceArgs(fields["tool_args"]) if changed else ALLOW

    def before_reply(self, message: Message, context: HookContext) -> Allow | Block | ReplaceText:
        original = text_of(message)
        fields: dict[str, Json] = {"text": original}
        for answer in self._answers("assistant_message", fields, context):
            if isinstance(answer, Block):
                return answer
            if answer.replace_text is not None:
                fields["text"] = answer.replace_text
        return ALLOW if fields["text"] == original else ReplaceText(fields["text"])

    def _answers(
        self, event: str, fields: dict[str, Json], context: HookContext
    ) -> Iterator[Block | proto.EventInterceptResponse]:
        """Ask the extensions in order; changes by the caller to `fields` are seen by the next
        one."""
        for extension in self._host.interceptors(event):
            yield self._ask(extension, event, fields, context)

    def _ask(
        self, extension: HostedExtension, event: str, fields: dict[str, Json], context: HookContext
    ) -> Block | proto.EventInterceptResponse:
        limits, cancel = extension.limits, context.cancel
        if event not in extension.expected and extension.undecided:
            extension.wait_decided(cancel)
        if event in extension.expected and not extension.wait_guard(
            event, time.monotonic() + limits.guard, cancel
        ):
            because = extension.unavailable()
            extension.log.note(f"not there for {event}: {because}; blocked, because it is a guard")
            return Block(
                f"blocked: the extension {extension.name} guards this, and {because} after waiting"
                f" {limits.guard:g} s; see `zot ext doctor`, then reload or disable it"
            )
        deadline = time.monotonic() + self._patience(extension)
        may_wait = extension.fails_closed and not extension.live
        if not (extension.live or (may_wait and extension.wait_live(deadline, cancel))):
            return self._missing(extension, event, extension.unavailable())
        if event not in extension.registered.intercepts:
            return proto.EventInterceptResponse("")  # running, but not interested in this event
        with extension.question(self._guest) as question:
            frame = self._host.intercept_frame(question.id, event, fields, self._guest)
            if not extension.send(frame):
                return self._missing(extension, event, "it could not be asked")
            answer = question.wait(deadline, context.cancel)
        if isinstance(answer, NoAnswer | TimedOut):
            return self._missing(extension, event, answer.reason)
        if not isinstance(answer, proto.EventInterceptResponse):
            return self._missing(extension, event, "it sent another kind of answer")
        if answer.block:
            because = answer.reason or "no reason given"
            return Block(f"blocked by extension {extension.name}: {because}")
        return answer

    def _patience(self, extension: HostedExtension) -> float:
        """Return the timeout of one answer, in seconds. Questions of other agents extend it: a
        guard that is busy must not allow everything."""
        ahead = sum(guest is not self._guest for guest in extension.asking())
        once = extension.limits.intercept
        return max(once, min(once * (1 + ahead), MAX_PATIENCE))

    def _missing(
        self, extension: HostedExtension, event: str, reason: str
    ) -> Block | proto.EventInterceptResponse:
        if extension.fails_closed:
            extension.log.note(f"no answer to {event}: {reason}; blocked (fail closed)")
            return Block(
                f"blocked: the guard extension {extension.name} must agree, and {reason}; "
                "reload or disable it"
            )
        extension.log.note(f"no answer to {event}: {reason}; allowed")
        return proto.EventInterceptResponse("")
