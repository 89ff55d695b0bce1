"""One ACP session: a runtime, its pending prompts, and its questions to the client.

Prompts run in the order of arrival. Each can be cancelled from the moment it was read, and is
answered exactly once.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec.structs import asdict

from zot.acp import calls, options, shapes
from zot.acp.shapes import AgentChunk, SessionUpdate, TextContent, fault_of
from zot.acp.updates import (
    PROGRESS_PAUSE,
    RunOutcome,
    UpdateEncoder,
    call_ids,
    history,
    new_id,
    outcome,
)
from zot.bugs import internal_error
from zot.build import Additions, approval_for, build_runtime
from zot.cancel import Cancel
from zot.core import events
from zot.core.events import Event
from zot.core.image import IMAGE_TYPES, checked_image
from zot.core.source import CANCELLED, PersonAnswer, Question
from zot.errors import Cancelled, ClosedError, CommandError, ZotError
from zot.jsonrpc import RpcAnswer, RpcId
from zot.provider.types import Image, Json, Text, ToolCall
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run
from zot.runtime.runtime import Runtime
from zot.settings.resolve import Plan
from zot.text import Frozen
from zot.wire import forms

if TYPE_CHECKING:
    from zot.acp.server import AcpServer

COMPACT = "compact"
"""The only command that this server adds: the protocol has no method for it."""
MAX_PROMPTS = 256
CLOSE_SECONDS = 3.0


class PromptContent(Frozen):
    text: str
    images: tuple[Image, ...] = ()
    documents: tuple[Text, ...] = ()
    """Resources embedded in the prompt, each with its address."""


def prompt_content(blocks: list[Any]) -> PromptContent:
    """Convert the blocks. Raises CommandError for an unusable block, with its position."""
    texts: list[str] = []
    images: list[Image] = []
    documents: list[Text] = []
    for position, block in enumerate(blocks):
        where = f"prompt[{position}]"
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image", "data": str(data), "mimeType": str(mime_type)}:
                images.append(checked_image(mime_type, _decoded(data, where), where))
            case {"type": "resource_link", "uri": str(uri)}:
                texts.append(_link(uri, str(block.get("name") or "")))
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                texts.append(_link(uri))
                documents.append(Text(f'<resource uri="{uri}">\n{text}\n</resource>'))
            case {"type": "resource", "resource": {"uri": str(uri), "blob": str(blob)}}:
                content, kind = _decoded(blob, where), str(block["resource"].get("mimeType") or "")
                texts.append(_link(uri))
                if kind in IMAGE_TYPES:
                    images.append(checked_image(kind, content, where))
                else:
                    about = f"{len(content)} bytes, {kind or 'unknown type'}"
                    documents.append(Text(f'<resource uri="{uri}">{about}</resource>'))
            case {"type": "audio"}:
                raise CommandError(f"{where}: audio cannot be used: this agent takes none")
            case {"type": kind}:
                raise CommandError(f"{where}: no content block of type {kind!r}")
            case _:
                raise CommandError(f"{where} is no content block")
    return PromptContent("".join(texts), tuple(images), tuple(documents))


def _decoded(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise CommandError(f"{where}.data is not base64: {error}") from error


def _link(uri: str, name: str = "") -> str:
    """Return the text for an address: the path of a file, else the address itself."""
    if uri.startswith("file://"):
        return unquote(uri.removeprefix("file://"))
    return f"[{name}]({uri})" if name else uri


class AcpPrompt:
    """A prompt without an answer so far; also the tag of its run."""

    def __init__(self, id: RpcId, content: PromptContent) -> None:
        self.id = id
        self.content = content
        self.cancel = Cancel()
        self.started = False
        """Whether it was passed to the runtime, or to the command that it names."""


class AcpSession(RuntimeClient):
    def __init__(self, plan: Plan, wire: AcpServer, servers: Mapping[str, Json]) -> None:
        """`servers` are MCP servers by name. Raises ZotError: the runtime cannot be built."""
        self._wire = wire
        self._lock = threading.Lock()
        """Held while updates are encoded and sent, so that the encoder sees them in order."""
        self._prompts: deque[AcpPrompt] = deque()
        self._prompts_lock = threading.Lock()
        self._command_runs = False
        self._approvals: dict[str, int] = {}
        """Request ids by approval; each is resolved once, by the client or otherwise."""
        self._ticking = False
        self._begun = False
        self._commands: list[shapes.AvailableCommand] = []
        """The commands as last sent."""
        self._servers_changed = False
        self._early: list[str] = []
        """Warnings from before the client knew the session."""
        self._closed = Cancel()
        setup_options = plan.setup.options
        approval = approval_for(setup_options, self)
        added = Additions(
            keep=True,
            approval=approval,
            warn=self.warn,
            owns_process=True,
            mcp_servers=servers,
        )
        self.runtime: Runtime = build_runtime(plan, self, added)
        if setup_options.yolo:
            self.runtime.approvals.set_mode("yolo")
        session = self.runtime.session
        self.id = session.id
        self.cwd = plan.setup.cwd
        info = self.runtime.sessions.info()
        title = info.title or info.first_text
        shown = call_ids(session.path())
        self._encoder = UpdateEncoder(self.cwd, wire.abilities.session, title, shown)
        self._encoder.window = self.runtime.models.current.context_window

    # --- updates for the client --------------------------------------------------------------

    def opened(self, *, new: bool) -> shapes.SessionOpened:
        id = self.id if new else None
        return shapes.SessionOpened(options.modes(self.runtime), self.options(), id)

    def options(self) -> tuple[shapes.AcpConfig, ...]:
        switches = self._wire.abilities.session.config_options.boolean is not None
        return options.config_options(self.runtime, switches=switches)

    def replay(self, cancel: Cancel) -> None:
        """Send the whole conversation so far. Raises Cancelled."""
        for update in history(self.runtime.session.path(), self.cwd):
            cancel.check()
            self._wire.wait(cancel)
            self._put([update])

    def begin(self, warnings: Iterable[str]) -> None:
        """Start the extensions, and send usage, warnings and commands; the client knows the session
        now."""
        state = self.runtime.state()
        with self._lock:
            self._begun = True
            self._put(self._encoder.usage(state.context_tokens, state.usage))
            for text in (*warnings, *self._early):
                self._put(self._encoder.notice(text))
        self.show_commands()

    def show_commands(self) -> None:
        """Send the slash commands, if they changed; waits until extensions are ready."""
        try:
            infos = self.runtime.commands.all(self._closed)
        except (ZotError, Cancelled):
            return
        shown = [shapes.AvailableCommand(COMPACT, "Summarise the conversation so far")]
        for info in infos:
            hint = shapes.CommandHint("arguments")
            shown.append(shapes.AvailableCommand(info.name, info.description, hint))
        if shown != self._commands and not self._closed.is_set():
            self._commands = shown
            self._put([shapes.CommandsShown(tuple(shown))])

    def warn(self, text: str) -> None:
        """Report a problem with an extension or an MCP server."""
        with self._lock:
            if self._begun:
                self._put(self._encoder.notice(text))
            else:
                self._early.append(text)

    def _put(self, updates: Iterable[SessionUpdate]) -> None:
        for update in updates:
            params = shapes.UpdateParams(self.id, update)
            self._wire.peer.notify("session/update", params)

    # --- settings ----------------------------------------------------------------------------

    def set_option(self, id: str, value: str | bool) -> tuple[shapes.AcpConfig, ...]:
        """Raises ZotError: there is no such option or value."""
        options.set_option(self.runtime, id, value)
        if id == "mode":
            self._put([shapes.ModeChanged(self.runtime.approvals.mode)])
        return self.options()

    def set_mode(self, mode: str) -> None:
        """Raises CommandError: there is no such mode."""
        options.set_mode(self.runtime, mode)
        self._put([shapes.ConfigChanged(self.options())])

    # --- prompts -----------------------------------------------------------------------------

    def prompt(self, prompt: AcpPrompt) -> None:
        """Accept a prompt without blocking the reading thread. Raises CommandError: it is empty, or
        too many are queued."""
        with self._prompts_lock:
            if len(self._prompts) >= MAX_PROMPTS:
                raise CommandError(f"queue_full: {MAX_PROMPTS} prompts wait", code="queue_full")
            if self._closed.is_set():
                raise ClosedError("the session was closed")
            self._prompts.append(prompt)
            if self._command_runs:
                return  # the thread of the command starts it
            prompt.started = True
            self._command_runs = is_command = prompt.content.text.startswith("/")
        try:
            if is_command:
                threading.Thread(
                    target=self._work, args=(prompt,), name="zot-acp-command", daemon=True
                ).start()
            else:
                self._run(prompt, prompt.content.text)
        except BaseException:
            self._forget(prompt)
            raise

    def _run(self, prompt: AcpPrompt, text: str, call: ToolCall | None = None) -> None:
        content = prompt.content
        self.runtime.prompt(
            text, content.images, tag=prompt, documents=content.documents, call=call
        )
        if prompt.cancel.is_set():  # cancelled before the prompt was accepted
            self.runtime.abort(prompt)

    def _work(self, command: AcpPrompt) -> None:
        """Run a slash command in its own thread, because an extension may be slow; then the prompts
        that arrived meanwhile."""
        prompt: AcpPrompt | None = command
        while prompt is not None:
            try:
                self._take_command(prompt)
            except Cancelled:
                self._end(prompt, RunOutcome("cancelled"))
            except ZotError as error:
                self._end(prompt, RunOutcome(fault=fault_of(error)))
            except Exception as error:  # around an extension: a bug ends this prompt only
                self._end(prompt, RunOutcome(fault=fault_of(internal_error(error))))
            prompt = self._next_prompt()

    def _next_prompt(self) -> AcpPrompt | None:
        with self._prompts_lock:
            prompt = next((prompt for prompt in self._prompts if not prompt.started), None)
            if prompt is None:
                self._command_runs = False
            else:
                prompt.started = True
            return prompt

    def _take_command(self, prompt: AcpPrompt) -> None:
        text = prompt.content.text
        if not text.startswith("/"):
            self._run(prompt, text)
            return
        name, _, rest = text.removeprefix("/").partition(" ")
        prompt.cancel.check()
        if name == COMPACT:
            self.runtime.compact(rest.strip(), tag=prompt)
            if prompt.cancel.is_set():
                self.runtime.abort(prompt)
            return
        result = self.runtime.commands.run_typed(text, prompt.cancel)
        if result is None or result.action == "prompt":
            self._run(prompt, *((text,) if result is None else (result.text, result.call)))
            return
        # A display was sent as an event; a text to insert can only be shown.
        if result.action in ("insert", "error") and result.text:
            self._put([AgentChunk(TextContent(result.text), new_id())])
        self._end(prompt, RunOutcome())

    def cancel(self, id: RpcId = None, *, every: bool = False) -> None:
        """Cancel the prompt of this request, or all accepted ones."""
        with self._prompts_lock:
            meant = [prompt for prompt in self._prompts if every or prompt.id == id]
        for prompt in reversed(meant):  # last first: no prompt may start because another one ended
            prompt.cancel.set()
            self.runtime.abort(prompt)

    def _forget(self, prompt: AcpPrompt) -> bool:
        with self._prompts_lock:
            if prompt not in self._prompts:
                return False
            self._prompts.remove(prompt)
            return True

    def _end(self, prompt: AcpPrompt, ended: RunOutcome) -> None:
        if self._forget(prompt):
            if ended.text:
                self._put([AgentChunk(TextContent(ended.text), new_id())])
            self._wire.peer.answer(prompt.id, ended.fault or {"stopReason": ended.reason})

    # --- the runtime's client ----------------------------------------------------------------

    def wait(self, cancel: Cancel) -> None:
        self._wire.wait(cancel)

    def overfull(self) -> bool:
        return self._wire.overfull()

    def can_answer(self, what: Question) -> bool:
        return not self._closed.is_set()

    def listen(self, event: Event, run: Run | None) -> None:
        with self._lock:
            self._encoder.window = self.runtime.models.in_use.context_window
            if isinstance(event, events.ToolAllowed):  # the file's new content is known only now
                change = self.runtime.history.planned_change(event.call)
                self._encoder.will_change(event.call.id, change)
            self._put(self._encoder.encode(event, time.monotonic()))
            if self._encoder.holds_back:
                self._tick_later()
        match event:
            case events.ApprovalRequest():
                self._ask_permission(event)
            case events.ApprovalResolved(id):
                if (request := self._approvals.pop(id, None)) is not None:
                    self._wire.peer.withdraw(request)
            case events.ExtensionAsk():
                self._ask_person(event)
            case events.FellBack():
                self._put([shapes.ConfigChanged(self.options())])
            case events.ServerChanged():
                self._servers_changed = True  # it may bring prompts, which are commands
            case events.RunSuspended() if run is not None and isinstance(run.tag, AcpPrompt):
                self._end(run.tag, RunOutcome("cancelled"))
            case events.Done() if run is not None and isinstance(run.tag, AcpPrompt):
                self._end(run.tag, outcome(run.stop, run.error, cut=self._encoder.cut))
                self._encoder.cut = False
                if self._servers_changed:
                    self._servers_changed = False
                    # In a thread: it may wait for an extension, and the next prompt waits for this
                    # method.
                    threading.Thread(
                        target=self.show_commands, name="zot-acp-commands", daemon=True
                    ).start()
            case _:
                pass

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            threading.Thread(target=self._tick, name="zot-acp-tick", daemon=True).start()

    def _tick(self) -> None:
        """Send held-back updates until there are none."""
        while True:
            time.sleep(PROGRESS_PAUSE)
            with self._lock:
                self._put(self._encoder.tick(time.monotonic()))
                if not self._encoder.holds_back:
                    self._ticking = False
                    return

    # --- questions ---------------------------------------------------------------------------

    def _ask_permission(self, request: events.ApprovalRequest) -> None:
        def take(answer: RpcAnswer) -> None:
            try:
                self.runtime.approve(request.id, calls.decision(answer))
            except CommandError:
                pass  # it timed out, or was aborted, meanwhile

        change = self.runtime.history.planned_change(request.call)
        wire_id = self._encoder.call_id(request.call.id)
        params = calls.permission(self.id, request, wire_id, change, self.cwd)
        self._approvals[request.id] = self._wire.peer.ask(calls.PERMISSION, params, take)

    def _ask_person(self, ask: events.ExtensionAsk) -> None:
        has_forms = self._wire.abilities.elicitation.form is not None
        read = calls.form_answer if has_forms else calls.button_answer
        make = calls.form if has_forms else calls.buttons
        params = make(self.id, ask)

        def take(answer: RpcAnswer) -> None:
            self._answer_person(ask, read(ask, answer))

        if params is None:
            self._answer_person(ask, CANCELLED)
        else:
            method = forms.CREATE if has_forms else calls.PERMISSION
            self._wire.peer.ask(method, params, take)

    def _answer_person(self, ask: events.ExtensionAsk, answer: PersonAnswer) -> None:
        try:
            self.runtime.dialogs.answer(ask.id, **asdict(answer))
        except CommandError:
            pass  # no longer needed

    # --- the end -----------------------------------------------------------------------------

    def abort(self) -> None:
        """Accept no more prompts, and cancel the accepted ones; does not wait."""
        self._closed.set()
        self.cancel(every=True)
        self.runtime.client_left()
        self.runtime.close(timeout=0)

    def close(self) -> None:
        """Cancel everything, wait for the end, and release the runtime."""
        self.abort()
        self.runtime.close(timeout=CLOSE_SECONDS)
        for prompt in list(self._prompts):  # prompts that never became a run
            self._end(prompt, RunOutcome("cancelled"))
        self.runtime.release()
