"""What `zot.client` can ask of an agent, each command a method. How it is sent is the client's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from msgspec import UNSET
from msgspec.structs import fields

from zot.provider.types import Image, Level
from zot.wire import commands as wire
from zot.wire import frames, shapes
from zot.wire.commands import ImageData
from zot.wire.parse import Response
from zot.wire.zot import Command

if TYPE_CHECKING:
    from zot.client import EventIterator


Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def told(command: Callable[Asked, Command]) -> Callable[Concatenate[ClientCommands, Asked], None]:
    """The command as a method: its fields are the arguments, and the answer says nothing."""

    def send(self: ClientCommands, /, *args: Asked.args, **fields: Asked.kwargs) -> None:
        self._tell(command(*args, **fields))

    return send


def asked(
    command: Callable[Asked, Command], answer: type[Answer]
) -> Callable[Concatenate[ClientCommands, Asked], Answer]:
    """The same for a command whose answer has data."""

    def send(self: ClientCommands, /, *args: Asked.args, **fields: Asked.kwargs) -> Answer:
        return self._tell(command(*args, **fields)).data_as(answer)

    return send


class ClientCommands:
    """The same words for the process's own agent and for those that were opened."""

    def request(self, type: str, **fields: Any) -> Response:
        """Send any command and wait for its response.

        Raises:
            CommandError: it was refused; the text is the server's.
            ServerGone, ClientTimeout: there was no response.
        """
        raise NotImplementedError

    def _tell(self, command: Command) -> Response:
        return self.request(word(command), **said(command))

    def _run(self, command: Command, timeout: float | None) -> EventIterator:
        raise NotImplementedError

    def _add(self, command: wire.AddedMessage) -> None:
        raise NotImplementedError

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
        return self._run(wire.Prompt(message=text, images=pictures(images), run=run), timeout)

    def retry(self, *, timeout: float | None = None) -> EventIterator:
        """Have the last prompt answered once more, which failed or was aborted: with the model and
        the credential of now, and without saying it again."""
        return self._run(wire.RetryPrompt(), timeout)

    resume_run = told(wire.ResumeRun)
    """Say how a durable run goes on that is held after a crash."""
    events = asked(wire.Events, shapes.EventsRead)
    """The events of a durable session behind a `seq`, also those of servers before this one.
    `parse_frame` makes events of them; ask again from `last` while there is `more`."""

    def compact(self, instructions: str = "", *, timeout: float | None = None) -> EventIterator:
        """Have the transcript summarised; the summary is in the CompactDone among the events."""
        return self._run(wire.Compact(instructions), timeout)

    abort = told(wire.Abort)
    """Abort what runs, or the run with this id."""

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Have a message heard after the current tool.

        Raises:
            BusyError: nothing of this client's runs that could hear it.
        """
        self._add(wire.Steer(text, pictures(images)))

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> None:
        """Have a message heard when the model would stop. Raises BusyError as `steer`."""
        self._add(wire.FollowUp(text, pictures(images)))

    approve = told(wire.Approve)
    """Answer an ApprovalRequest: allow, deny, allow_session or allow_project, perhaps with
    other arguments than the model's."""

    def approvals(self) -> tuple[shapes.ApprovalShape, ...]:
        """What runs without a question, because it was allowed for the project or this session."""
        return self.request("get_approvals").data_as(shapes.Approvals).approvals

    remove_approval = told(wire.RemoveApproval)
    """Ask again from now on."""

    # --- questions ---------------------------------------------------------------------------

    state = asked(wire.GetState, shapes.State)

    def messages(self) -> tuple[frames.MessageShape, ...]:
        return self.request("get_messages").data_as(shapes.Messages).messages

    def models(self, *, everywhere: bool = False) -> tuple[shapes.ModelShape, ...]:
        """Those of the provider, or of every one with a credential."""
        return self._tell(wire.GetModels(everywhere)).data_as(shapes.Models).models

    clear = told(wire.Clear)

    def set_model(self, model: str, provider: str = "") -> str:
        """Go on with another model: an id, or PROVIDER/ID; its id."""
        return self._tell(wire.SetModel(model, provider)).data_as(shapes.ModelSet).model

    def set_reasoning(self, level: Level) -> str:
        return self._tell(wire.SetReasoning(level)).data_as(shapes.ReasoningSet).reasoning

    def set_jail(self, on: bool) -> None:
        """Keep the tools inside the working directory, or let them out."""
        self._tell(wire.SetJail(on))

    # --- sessions ----------------------------------------------------------------------------

    def sessions(
        self, *, everywhere: bool = False, limit: int = 100
    ) -> tuple[shapes.SessionShape, ...]:
        return self._tell(wire.ListSessions(everywhere, limit)).data_as(shapes.Sessions).sessions

    def new_session(self) -> shapes.SessionShape:
        return self._tell(wire.NewSession()).data_as(shapes.SessionLoaded).session

    def load_session(self, session: str) -> shapes.SessionShape:
        """Go on with a kept session: a path, the beginning of an id, or `latest`."""
        return self._tell(wire.LoadSession(session)).data_as(shapes.SessionLoaded).session

    def fork_session(
        self, session: str = "", at: str | int | None = None, *, load: bool = True
    ) -> shapes.SessionShape:
        """Copy a session, up to an entry or so many messages, and go on there."""
        copied = self._tell(wire.ForkSession(session, at, load))
        return copied.data_as(shapes.SessionLoaded).session

    def export_session(self, session: str = "", format: str = "zotsession", path: str = "") -> str:
        """A session as text, or as a file where a path is given; the text, or the file's path."""
        answer = self.request("export_session", session=session, format=format, path=path)
        data = answer.data_as(shapes.SessionExported)
        text = data.path if path else data.content
        return "" if text is UNSET else text

    def checkpoints(self) -> tuple[shapes.CheckpointShape, ...]:
        """The prompts of the conversation: where `rewind` can go back to."""
        return self.request("checkpoints").data_as(shapes.CheckpointList).checkpoints

    rewind = asked(wire.Rewind, shapes.Rewound)
    """Go back to before a prompt (the last one), with the conversation, with the files that
    tools changed since, or both; `preview`: only say what would be done."""

    def changed_files(self) -> tuple[shapes.ChangedFileShape, ...]:
        """What tools changed in this session, each file with its diff from before to now."""
        return self.request("get_changes").data_as(shapes.Changes).files

    # --- commands, questions, the shell ------------------------------------------------------

    def commands(self) -> tuple[shapes.CommandShape, ...]:
        """What a person can type after a slash."""
        return self.request("get_commands").data_as(shapes.Commands).commands

    def run_command(self, name: str, args: str = "") -> shapes.CommandRan:
        """Run a command. A result with the action `prompt` is for you to pass on to `prompt`; a
        tool that the command wants to run before the model runs with `submit_command` only."""
        return self._tell(wire.RunCommand(name, args, submit=False)).data_as(shapes.CommandRan)

    def submit_command(
        self, name: str, args: str = "", *, timeout: float | None = None
    ) -> EventIterator:
        """Run a command as if a person had typed it: the iterator gives the events of the prompt
        that it makes, tools that it wants to run first included; `ran` is what it did."""
        return self._run(wire.RunCommand(name, args), timeout)

    def reload_extensions(self) -> tuple[shapes.ExtensionShape, ...]:
        """Stop all extensions and start those that are there now."""
        return self.request("reload_ext").data_as(shapes.Reloaded).extensions

    panel_key = told(wire.PanelKey)
    """A key for a panel that an ExtPanel opened: its name, or `rune` with the `text`."""
    panel_resize = told(wire.PanelResize)
    """Say how many columns and rows the panel has."""
    panel_close = told(wire.PanelClose)
    run_shell = asked(wire.RunShell, shapes.ShellRan)
    """Run a shell command; it goes into the transcript. Limited by the client's `timeout`."""
    abort_shell = told(wire.AbortShell)
    answer = told(wire.Answer)
    """Answer an ExtAsk (feature `dialogs`)."""


def word(command: Command) -> str:
    return str(command.__struct_config__.tag)


def said(command: Command) -> dict[str, Any]:
    """Only what differs from the default is said, so that older servers understand it."""
    return {
        field.encode_name: value
        for field in fields(type(command))
        if (value := getattr(command, field.name)) != field.default
    }


def pictures(images: Sequence[Image]) -> tuple[ImageData, ...] | None:
    return tuple(ImageData(image.mime_type, image.data) for image in images) or None
