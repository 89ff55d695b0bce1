"""One agent on the zot wire: its commands become calls of its Runtime, its events frames."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw
from msgspec.structs import replace

from zot.errors import NotFoundError, ZotError
from zot.later import Later, later
from zot.lines import encode_line
from zot.runtime.client import RuntimeClient
from zot.text import encode_json
from zot.wire import zot
from zot.wire.first import Hello, Ping
from zot.wire.zot import Incoming
from zot.writer import Lane

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core import events
    from zot.core import image as images
    from zot.core.agent import Limits
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.runtime import run as runs
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime
    from zot.serve import rpc_commands, rpc_others
    from zot.serve.rpc import RpcServer
    from zot.serve.rpc_commands import SlowCommands
    from zot.serve.rpc_others import OtherCommands
    from zot.wire import kept, zot_events
    from zot.wire.commands import AnyCommand, OtherCommand
    from zot.wire.frames import EventFrame
    from zot.wire.kept import KeptFrames
    from zot.wire.prompt import Prompt
else:
    events, images = later("zot.core", "events", "image")
    runs = Later("zot.runtime.run")
    rpc_commands, rpc_others = later("zot.serve", "rpc_commands", "rpc_others")
    kept, zot_events = later("zot.wire", "kept", "zot_events")

LIMITS = ("max_steps", "max_cost", "max_tokens", "max_seconds")


class ServedAgent(RuntimeClient):
    """One agent as the client of the wire sees it: its commands, its answers and its events."""

    def __init__(self, server: RpcServer, signature: bytes = b"") -> None:
        """`signature`: the fields that say whose frames they are."""
        self.server = server
        self._signature = signature
        self._writer = server.writer.open_lane() if signature else server.writer
        self.built: Runtime | None = None
        self.durable = False
        """Whether runs that a crash cut off go on."""
        self._seq = 0
        self._wire_lock = allocate_lock()
        self._kept: KeptFrames | None = None
        """The frames of a durable session; None: it is not durable."""
        self._recover_lock = allocate_lock()
        self._recovered = False
        self._frame: Callable[..., EventFrame | None] = self._first_frame
        self._others: OtherCommands | None = None
        self._slow: SlowCommands | None = None

    @property
    def runtime(self) -> Runtime:
        assert self.built is not None  # a named agent is there when it can be spoken to
        return self.built

    @property
    def seq(self) -> int:
        """The number of its last frame."""
        return self._seq if self._kept is None else self._kept.seq

    def use(self, runtime: Runtime) -> None:
        """Attach the runtime before its first event."""
        if runtime.durable is not None:
            self.durable, self._kept = True, kept.KeptFrames(runtime)
        self.built = runtime

    # --- commands ----------------------------------------------------------------------------

    def handle(self, incoming: Incoming, command: AnyCommand) -> None:
        # The first ones first: the others need not be loaded yet.
        if type(command) is Ping:
            self.put(zot.encode(zot.success(incoming, zot.PONG)), UNSET)
            self.server.unnamed.warm_up()
        elif type(command) is Hello:
            self.server.unnamed.hello(incoming, command)
        elif incoming.name == "prompt":
            self._prompt(incoming, cast("Prompt", command))
        else:
            if self._others is None:
                self._others = rpc_others.OtherCommands(self)
            self._others.take(incoming, cast("OtherCommand", command))

    def _prompt(self, incoming: Incoming, command: Prompt) -> None:
        if command.run and self._repeated(incoming, command.run):
            return
        runtime, limits = self.built or self.runtime, None
        if (
            command.max_steps is not None
            or command.max_cost is not None
            or command.max_tokens is not None
            or command.max_seconds is not None
        ):
            limits = self._limits(command, runtime.settings.limits)
        runtime.prompt(
            command.message,
            images.checked_images(command.images) if command.images else (),
            tag=incoming.id,
            limits=limits,
            accepted=partial(self._accept, incoming, command.run),
            run_id=command.run,
        )

    def _repeated(self, incoming: Incoming, id: str) -> bool:
        """Answer a prompt whose run is known already; False if it is not."""

        def attached(ahead: int) -> None:
            started = zot.Started(True, ahead, run=id, resumed=True)
            self.answer(incoming, started, tag=incoming.id)

        known = self.runtime.repeated(id, incoming.id, attached)
        if isinstance(known, runs.StoredEnd):
            end = zot.RunEnd(known.stop, known.error, known.code, known.text)
            self.answer(incoming, zot.Started(False, run=id, already_done=True, end=end))
        return known is not None

    def recover(self) -> None:
        """Go on with what was cut off. Not before the client has said what it understands."""
        if not self.durable or not self.server.authenticated:
            return
        with self._recover_lock:
            if self._recovered:
                return
            runtime, self._recovered = self.runtime, True
            if (end := self.kept_frames().untold_end(runtime)) is not None:
                self.listen(end, None)
            runtime.recover(lambda text: Raw(text.encode()) if text else UNSET)

    def kept_frames(self) -> KeptFrames:
        _ = self.runtime
        if self._kept is None:
            raise NotFoundError("events are kept only with --durable")
        return self._kept

    def _limits(self, command: Prompt, usual: Limits) -> Limits:
        """The limits of a prompt that brings some of its own."""
        own = {name: value for name in LIMITS if (value := getattr(command, name)) is not None}
        return replace(usual, **own)

    def slow_commands(self) -> SlowCommands:
        if self._slow is None:
            self._slow = rpc_commands.SlowCommands(self.runtime, self.answer, self.fail)
        return self._slow

    def finish_commands(self) -> None:
        if self._slow is not None:
            self._slow.finish()

    def closing(self) -> None:
        if self._slow is not None:
            self._slow.close()

    def accepted(self, incoming: Incoming) -> Callable[[int], None]:
        return partial(self._accept, incoming, "")

    def _accept(self, incoming: Incoming, run: str, ahead: int) -> None:
        """Answers before the first event of the run can be written."""
        started = zot.Started(True, ahead, run=run)
        self.answer(incoming, started, tag=incoming.id)

    # --- the runtime's client ----------------------------------------------------------------

    def for_agent(self, name: str, parent: str) -> RuntimeClient | None:
        if "agents" not in self.server.features:
            return None
        return ServedAgent(self.server, signature_of(name, parent))

    def agent_opened(self, runtime: Runtime) -> None:
        self.use(runtime)

    def can_answer(self, what: Question) -> bool:
        return ("approvals" if what == "approval" else "dialogs") in self.server.features

    def wait(self, cancel: Cancel) -> None:
        self._writer.wait(cancel)

    def overfull(self) -> bool:
        return self.server.writer.overfull

    def listen(self, event: Event, run: Run | None) -> None:
        frame = self._frame(event, self.server.features)
        tag = UNSET if run is None else run.tag
        if self._kept is not None:
            self._put_kept(event, frame, tag)
        elif frame is not None:
            self.put(encode_line(frame), tag)

    def _first_frame(self, event: Event, features: Collection[str] = ()) -> EventFrame | None:
        """Loads what frames are with the first one: the model was asked by then."""
        self._frame = zot_events.frame
        return self._frame(event, features)

    def _put_kept(self, event: Event, frame: EventFrame | None, tag: Any) -> None:
        assert self._kept is not None
        with self._wire_lock:  # kept and written in one order, and kept first
            line = self._kept.keep(event, frame, self.server.features, tag)
            if line is not None:
                self._write(line)

    # --- frames ------------------------------------------------------------------------------

    def answer(
        self,
        incoming: Incoming,
        data: Any = UNSET,
        *,
        tag: Any = UNSET,
        limit: int | None = None,
    ) -> None:
        line = zot.encode(zot.success(incoming, data))
        if limit is not None and len(line) > limit:
            raise rpc_others.too_large(len(line))
        self.put(line, tag)

    def fail(self, incoming: Incoming, error: ZotError) -> None:
        codes = "codes" in self.server.features
        self.put(zot.encode(zot.failure(incoming, error, codes=codes)), UNSET)

    def put(self, line: bytes, tag: Any) -> None:
        if "seq" not in self.server.features:
            self._write(line)
            return
        with self._wire_lock:  # numbered in the order in which they are written
            self._seq = self._seq + 1 if self._kept is None else self._kept.number()
            self._write(zot.stamped(line, self._seq, tag))

    def _write(self, line: bytes) -> None:
        self._writer.put(zot.signed(line, self._signature) if self._signature else line)

    def agent_closed(self) -> None:
        """Its share of the output is for the others."""
        if self._kept is not None:
            self._kept.close()
        if isinstance(self._writer, Lane):
            self.server.writer.close_lane(self._writer)


def signature_of(name: str, parent: str | None = None) -> bytes:
    """The fields that say whose frames they are."""
    signature = b',"agent":' + encode_json(name)
    return signature if parent is None else signature + b',"parent":' + encode_json(parent)
