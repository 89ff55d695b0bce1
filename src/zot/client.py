"""A typed client for `zot rpc`, or for any command that speaks the wire. Knows no agent: only
frames, ids and a child process.

    with Client(["zot", "rpc", "--provider", "anthropic"]) as client:
        for event in client.prompt("what does this project do?"):
            ...
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from msgspec import UNSET

from zot.errors import BusyError, ClosedError, CommandError, ZotError
from zot.home import RPC_TOKEN
from zot.lines import LineSplitter, LineTooLong, encode_line, ready
from zot.provider.types import Image, Level
from zot.wire import frames
from zot.wire.frames import (
    ApprovalShape,
    ChangedFileShape,
    CheckpointShape,
    CommandRan,
    CommandShape,
    EventFrame,
    MessageShape,
    ModelShape,
    Rewound,
    SessionShape,
    ShellRan,
    State,
)
from zot.wire.parse import FrameError, Response, Unknown, parse_frame
from zot.wire.zot import HelloData, ModelSet, ReasoningSet, RunEnd, Started

MAX_FRAME = 256 * 1024 * 1024
STDERR_KEPT = 64 * 1024
STOP_SECONDS = 5.0

Event = EventFrame | Unknown
T = TypeVar("T")


class ServerGone(ZotError):
    """The child has ended, or wrote something that is no frame. `returncode` is None if it runs."""

    code = "server_gone"

    def __init__(self, message: str, returncode: int | None) -> None:
        super().__init__(message)
        self.returncode = returncode


class ClientTimeout(ZotError):
    """The child did not answer in time."""

    code = "timeout"


class EventIterator(Iterator[Event]):
    """The events of one prompt or compact, up to and including Done. Closing it early aborts."""

    def __init__(self, client: Client, id: str, timeout: float | None) -> None:
        self.id = id
        self.queued = 0
        """Runs that were ahead of this one."""
        self.resumed = False
        """The server knew a durable run of this name: it goes on."""
        self.end: RunEnd | None = None
        """How a durable run ended that had ended before: then no event comes."""
        self._client = client
        self._timeout = timeout
        self._condition = client._condition
        self._waiting: deque[Event] = deque()
        self._last_taken = False
        self.ended = False
        """Done was received, though perhaps not read yet."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        """Raises ServerGone when the child dies, ClientTimeout when it is silent for too long."""
        with self._condition:
            self._wait()
            if not self._waiting:
                raise StopIteration
            return self._waiting.popleft()

    def close(self) -> None:
        """Abort what still runs, and wait until it has stopped."""
        with self._condition:
            over = self.ended or self._client._gone is not None
        if not over:
            self._client.abort(self.id)
            for _ in self:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, event: Event) -> None:
        self._waiting.append(event)
        self.ended = isinstance(event, frames.Done | frames.RunSuspended)

    def _wait(self) -> None:
        def ready() -> bool:
            return bool(self._waiting) or self.ended or self._client._gone is not None

        if not self._condition.wait_for(ready, self._timeout):
            raise ClientTimeout(
                f"no event for {self._timeout:g} s; the run goes on: abort it, or read on"
            )
        if not self._waiting and not self.ended and self._client._gone is not None:
            raise self._client._gone


class Client:
    """One child process. Safe to use from any thread."""

    def __init__(
        self,
        command: Sequence[str] = ("zot", "rpc"),
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        token: str = "",
        features: Sequence[str] = (),
        timeout: float = 60.0,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """Start the command. A token or features are sent in a `hello` and must be accepted.

        `env` replaces the environment; `timeout` is the limit for each answer, in seconds;
        `on_event` hears, in the reading thread, of events that belong to no run.

        Raises:
            ServerGone: it cannot be started, or ended at once.
            CommandError: the token was refused.
        """
        if isinstance(command, str):
            raise TypeError(f"command must be a list of words, not {command!r}")
        self.timeout = timeout
        self._on_event = on_event
        self._condition = threading.Condition()
        self._write_lock = threading.Lock()
        self._answers: dict[str, Response | None] = {}
        self._starting: dict[str, EventIterator] = {}
        self._runs: deque[EventIterator] = deque()
        self._gone: ServerGone | None = None
        self._closed = False
        self._next_id = 0
        self._stderr = bytearray()
        self._process = _spawn(command, cwd, env, token)
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for work, name in ((self._read, "client-read"), (self._read_stderr, "client-stderr"))
        ]
        for thread in self._threads:
            thread.start()
        if token or features:
            try:
                self.hello(token, features)
            except BaseException:
                self.close()
                raise

    # --- runs --------------------------------------------------------------------------------

    def prompt(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        timeout: float | None = None,
        run: str = "",
    ) -> EventIterator:
        """Send a prompt; the iterator gives its events, last of all Done.

        A second prompt queues in the server, and its events come after the first one's.
        `timeout` limits the silence between two events, in seconds. `run`: your own name for a
        durable run; under one that the server knows nothing is run again (`resumed`, `end`).

        Raises:
            CommandError: it was refused.
            ServerGone: the child has ended.
        """
        fields: dict[str, Any] = {"message": text, **({"run": run} if run else {})}
        if images:
            fields["images"] = [_image(image) for image in images]
        return self._run("prompt", fields, timeout)

    def retry(self, *, timeout: float | None = None) -> EventIterator:
        """Have the last prompt answered once more, which failed or was aborted: with the model and
        the credential of now, and without saying it again."""
        return self._run("retry_prompt", {}, timeout)

    def resume_run(self, run: str, decision: Literal["continue", "fail"] = "continue") -> None:
        """Say how a durable run goes on that is held after a crash."""
        self.request("resume_run", run=run, decision=decision)

    def compact(self, instructions: str = "", *, timeout: float | None = None) -> EventIterator:
        """Have the transcript summarised; the summary is in the CompactDone among the events."""
        fields = {"instructions": instructions} if instructions else {}
        return self._run("compact", fields, timeout)

    def abort(self, target: str | None = None) -> None:
        """Abort what runs, or the run with this id."""
        self.request("abort", **({} if target is None else {"target": target}))

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Have a message heard after the current tool.

        Raises:
            BusyError: nothing of this client's runs that could hear it.
        """
        self._add("steer", text, images)

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> None:
        """Have a message heard when the model would stop. Raises BusyError as `steer`."""
        self._add("follow_up", text, images)

    def approve(
        self,
        request_id: str,
        decision: str,
        reason: str = "",
        *,
        pattern: str = "",
        args: dict[str, Any] | None = None,
    ) -> None:
        """Answer an ApprovalRequest: allow, deny, allow_session or allow_project, perhaps with
        other arguments than the model's."""
        more: dict[str, Any] = {"pattern": pattern} if pattern else {}
        more |= {} if args is None else {"args": args}
        self.request("approve", request_id=request_id, decision=decision, reason=reason, **more)

    def approvals(self) -> tuple[ApprovalShape, ...]:
        """What runs without a question, because it was allowed for the project or this session."""
        return self.request("get_approvals").data_as(frames.Approvals).approvals

    def remove_approval(self, tool: str, pattern: str) -> None:
        """Ask again from now on."""
        self.request("remove_approval", tool=tool, pattern=pattern)

    # --- questions ---------------------------------------------------------------------------

    def hello(self, token: str = "", features: Sequence[str] = ()) -> HelloData:
        fields: dict[str, Any] = {}
        if token:
            fields["token"] = token
        if features:
            fields["features"] = list(features)
        return self.request("hello", **fields).data_as(HelloData)

    def ping(self) -> None:
        self.request("ping")

    def state(self) -> State:
        return self.request("get_state").data_as(State)

    def messages(self) -> tuple[MessageShape, ...]:
        return self.request("get_messages").data_as(frames.Messages).messages

    def models(self, *, everywhere: bool = False) -> tuple[ModelShape, ...]:
        """Those of the provider, or of every one with a credential."""
        more = {"all": True} if everywhere else {}
        return self.request("get_models", **more).data_as(frames.Models).models

    def clear(self) -> None:
        self.request("clear")

    def set_model(self, model: str, provider: str = "") -> str:
        """Go on with another model: an id, or PROVIDER/ID; its id."""
        more = {"provider": provider} if provider else {}
        return self.request("set_model", model=model, **more).data_as(ModelSet).model

    def set_reasoning(self, level: Level) -> str:
        return self.request("set_reasoning", reasoning=level).data_as(ReasoningSet).reasoning

    def set_jail(self, on: bool) -> None:
        """Keep the tools inside the working directory, or let them out."""
        self.request("set_jail", jail=on)

    # --- sessions ----------------------------------------------------------------------------

    def sessions(self, *, everywhere: bool = False, limit: int = 100) -> tuple[SessionShape, ...]:
        answer = self.request("list_sessions", all=everywhere, limit=limit)
        return answer.data_as(frames.Sessions).sessions

    def new_session(self) -> SessionShape:
        return self.request("new_session").data_as(frames.SessionLoaded).session

    def load_session(self, session: str) -> SessionShape:
        """Go on with a kept session: a path, the beginning of an id, or `latest`."""
        answer = self.request("load_session", session=session)
        return answer.data_as(frames.SessionLoaded).session

    def fork_session(
        self, session: str = "", at: str | int | None = None, *, load: bool = True
    ) -> SessionShape:
        """Copy a session, up to an entry or so many messages, and go on there."""
        answer = self.request("fork_session", session=session, at=at, load=load)
        return answer.data_as(frames.SessionLoaded).session

    def export_session(self, session: str = "", format: str = "zotsession", path: str = "") -> str:
        """A session as text, or as a file where a path is given; the text, or the file's path."""
        answer = self.request("export_session", session=session, format=format, path=path)
        data = answer.data_as(frames.SessionExported)
        text = data.path if path else data.content
        return "" if text is UNSET else text

    def checkpoints(self) -> tuple[CheckpointShape, ...]:
        """The prompts of the conversation: where `rewind` can go back to."""
        return self.request("checkpoints").data_as(frames.CheckpointList).checkpoints

    def rewind(
        self,
        to: str = "",
        *,
        conversation: bool = True,
        files: bool = True,
        preview: bool = False,
        force: bool = False,
    ) -> Rewound:
        """Go back to before a prompt (the last one), with the conversation, with the files that
        tools changed since, or both; `preview`: only say what would be done."""
        answer = self.request(
            "rewind",
            to=to,
            conversation=conversation,
            files=files,
            preview=preview,
            force=force,
        )
        return answer.data_as(frames.Rewound)

    def changed_files(self) -> tuple[ChangedFileShape, ...]:
        """What tools changed in this session, each file with its diff from before to now."""
        return self.request("get_changes").data_as(frames.Changes).files

    # --- commands, questions, the shell ------------------------------------------------------

    def commands(self) -> tuple[CommandShape, ...]:
        """What a person can type after a slash."""
        return self.request("get_commands").data_as(frames.Commands).commands

    def run_command(self, name: str, args: str = "") -> CommandRan:
        """Run a command. A result with the action `prompt` is for you to pass on to `prompt`."""
        answer = self.request("run_command", name=name, args=args, submit=False)
        return answer.data_as(frames.CommandRan)

    def run_shell(self, command: str, *, hidden: bool = False) -> ShellRan:
        """Run a shell command; it goes into the transcript. Limited by the client's `timeout`."""
        answer = self.request("run_shell", command=command, hidden=hidden)
        return answer.data_as(frames.ShellRan)

    def abort_shell(self) -> None:
        self.request("abort_shell")

    def answer(
        self,
        request_id: str,
        value: str | None = None,
        *,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> None:
        """Answer an ExtAsk (feature `dialogs`)."""
        self.request(
            "answer",
            request_id=request_id,
            value=value,
            confirmed=confirmed,
            cancelled=cancelled,
        )

    def request(self, type: str, **fields: Any) -> Response:
        """Send any command and wait for its response.

        Raises:
            CommandError: it was refused; the text is the server's.
            ServerGone, ClientTimeout: there was no response.
        """
        return self._answer(self._send(type, fields))

    # --- the child ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """The end of what the child wrote to stderr."""
        return bytes(self._stderr).decode("utf-8", "replace")

    def close(self) -> int:
        """End the child, by the end of its input or by signals; its exit code. May be repeated."""
        with self._condition:
            self._closed = True
            running = bool(self._runs)
        if running:
            self._process.terminate()  # the end of input alone would let it finish its work
        assert self._process.stdin is not None
        with self._write_lock:
            self._process.stdin.close()
        for stop in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                stop()
        code = self._process.wait()
        for thread in self._threads:
            thread.join(STOP_SECONDS)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside: sending ---------------------------------------------------------------------

    def _run(self, type: str, fields: dict[str, Any], timeout: float | None) -> EventIterator:
        # Known before the answer comes: the reading thread puts it in line when it is accepted.
        with self._condition:
            id = self._new_id()
            self._starting[id] = run = EventIterator(self, id, timeout)
        # When the wait for the answer is given up it stays known: a late answer still has to
        # put it in line, or its events would go to another run.
        self._send(type, fields, id)
        started = self._answer(id).data_as(Started)
        run.queued, run.resumed, run.end = started.queued, started.resumed, started.end
        return run

    def _add(self, type: str, text: str, images: Sequence[Image]) -> None:
        with self._condition:
            if not self._runs:
                raise BusyError(f"there is nothing to {type}: no prompt of this client runs")
        fields: dict[str, Any] = {"message": text}
        if images:
            fields["images"] = [_image(image) for image in images]
        self.request(type, **fields)

    def _send(self, type: str, fields: dict[str, Any], id: str = "") -> str:
        with self._condition:
            if self._closed:
                raise ClosedError("the client was closed")
            if self._gone is not None:
                raise self._gone
            id = id or self._new_id()
            self._answers[id] = None
        try:
            self._write(encode_line({"id": id, "type": type, **fields}))
        except BaseException:
            with self._condition:
                self._answers.pop(id, None)
            raise
        return id

    def _new_id(self) -> str:
        self._next_id += 1
        return str(self._next_id)

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        deadline = time.monotonic() + self.timeout
        with self._write_lock:
            fd = self._process.stdin.fileno()
            view = memoryview(line)
            while view:
                if not ready(writing=(fd,), timeout=deadline - time.monotonic()):
                    if len(view) < len(line):
                        self._process.terminate()  # half a line: nothing can be sent after it
                    raise ClientTimeout(f"the child did not read its input for {self.timeout:g} s")
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:
                    continue
                except OSError:
                    return  # it has ended: waiting for the answer will say so

    def _answer(self, id: str) -> Response:
        with self._condition:
            arrived = self._condition.wait_for(
                lambda: self._answers[id] is not None or self._gone is not None, self.timeout
            )
            response = self._answers.pop(id)
            if response is None:
                if self._gone is not None:
                    raise self._gone
                assert not arrived
                raise ClientTimeout(f"no answer within {self.timeout:g} s")
        if not response.success:
            error = "refused" if response.error is UNSET else response.error
            raise CommandError(error, code=None if response.code is UNSET else response.code)
        return response

    # --- inside: reading ---------------------------------------------------------------------

    def _read(self) -> None:
        assert self._process.stdout is not None
        splitter = LineSplitter(MAX_FRAME)
        problem = ""
        with self._process.stdout as stdout:
            try:
                while data := os.read(stdout.fileno(), 65536):
                    for line in splitter.feed(data):
                        self._line(line)
            except FrameError as error:
                problem = str(error)
                self._process.terminate()
        self._end(problem)

    def _line(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            raise FrameError(f"a frame is longer than {line.limit} bytes")
        frame = parse_frame(line)
        with self._condition:
            if isinstance(frame, Response):
                self._response(frame)
                return
            if self._runs:
                self._runs[0]._put(frame)
                if self._runs[0].ended:
                    self._runs.popleft()
                self._condition.notify_all()
                return
        self._on_event(frame)

    def _response(self, response: Response) -> None:
        id = response.id if isinstance(response.id, str) else ""
        run = self._starting.pop(id, None)
        if run is not None and response.success:
            if isinstance(response.data, dict) and response.data.get("already_done"):
                run.ended = True
            else:
                self._runs.append(run)
        if id in self._answers:  # otherwise its sender has stopped waiting
            self._answers[id] = response
            self._condition.notify_all()

    def _end(self, problem: str) -> None:
        try:
            code: int | None = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if code is not None:  # its last words belong into the error
            self._threads[1].join(STOP_SECONDS)
        how = "closed its output" if code is None else f"ended with exit code {code}"
        said = self.stderr.strip()
        text = problem or f"the server {how}"
        with self._condition:
            self._gone = ServerGone(f"{text}; stderr: {said}" if said else text, code)
            self._condition.notify_all()

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            while data := os.read(stderr.fileno(), 65536):
                self._stderr += data
                del self._stderr[:-STDERR_KEPT]


def _spawn(
    command: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    token: str,
) -> subprocess.Popen[bytes]:
    environment = dict(os.environ if env is None else env)
    if token:
        environment[RPC_TOKEN] = token
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            bufsize=0,
        )
    except OSError as error:
        raise ServerGone(f"cannot start {list(command)!r}: {error}", None) from error
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def _image(image: Image) -> dict[str, str]:
    return {"mime_type": image.mime_type, "data": b64encode(image.data).decode()}
