"""The commands of `zot.client` to an agent, each as a method. The client sends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from msgspec import UNSET
from msgspec.structs import fields

from zot.provider.types import Image, Level
from zot.wire import commands as wire
from zot.wire import frames, shapes
from zot.wire.commands import ImageData
from zot.wire.frames import Response
from zot.wire.zot import Command

if TYPE_CHECKING:
    from zot.client import EventIterator


Args = ParamSpec("Args")
Answer = TypeVar("Answer")


def sends(
    command: Callable[Args, Command], doc: str
) -> Callable[Concatenate[ClientCommands, Args], None]:
    """Make a method of a command whose response has no data; its fields are the arguments."""

    def send(self: ClientCommands, /, *args: Args.args, **fields: Args.kwargs) -> None:
        self._tell(command(*args, **fields))

    send.__doc__ = doc
    return send


def asks(
    command: Callable[Args, Command], answer: type[Answer], doc: str
) -> Callable[Concatenate[ClientCommands, Args], Answer]:
    """Like sends(), for a command whose response has data."""

    def send(self: ClientCommands, /, *args: Args.args, **fields: Args.kwargs) -> Answer:
        return self._tell(command(*args, **fields)).data_as(answer)

    send.__doc__ = doc
    return send


class ClientCommands:
    """Commands to the process's own agent and to opened agents."""

    def request(self, type: str, **fields: Any) -> Response:
        """Send any command and wait for its response.

        Raises:
            CommandError: the server refused it; the text is the server's.
            ServerGoneError, ClientTimeoutError: there was no response.
        """
        raise NotImplementedError

    def _tell(self, command: Command) -> Response:
        return self.request(word(command), **changed_fields(command))

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
        """Send a prompt; return an iterator over its events, the last of which is Done.

        A second prompt is queued in the server, and its events come after the first one's.
        `timeout` limits the silence between two events, in seconds. `run`: your own name for a
        durable run; if the server knows it, nothing is run again (`resumed`, `end`).

        Raises:
            CommandError: the server refused it.
            ServerGoneError: the child has ended.
        """
        return self._run(wire.Prompt(message=text, images=pictures(images), run=run), timeout)

    def retry(self, *, timeout: float | None = None) -> EventIterator:
        """Retry the last prompt, which failed or was aborted, with the current model and
        credential, and without adding it to the conversation again."""
        return self._run(wire.RetryPrompt(), timeout)

    resume_run = sends(
        wire.ResumeRun,
        "Decide how a durable run continues that is held after a crash.",
    )
    events = asks(
        wire.Events,
        shapes.EventsRead,
        "Return the events of a durable session after a `seq`, also those of earlier servers. "
        "`parse_frame` parses them; call again with `last` while there is `more`.",
    )

    def compact(self, instructions: str = "", *, timeout: float | None = None) -> EventIterator:
        """Summarise the transcript; the CompactDone among the events has the summary."""
        return self._run(wire.Compact(instructions), timeout)

    abort = sends(wire.Abort, "Abort the current run, or the run with this id.")

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Send a message that the model gets after the current tool.

        Raises:
            BusyError: no run of this client is active.
        """
        self._add(wire.Steer(text, pictures(images)))

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> None:
        """Send a message that the model gets when it would stop. Raises BusyError like `steer`."""
        self._add(wire.FollowUp(text, pictures(images)))

    approve = sends(
        wire.Approve,
        "Answer an ApprovalRequest: allow, deny, allow_session or allow_project, optionally "
        "with other arguments than the model's.",
    )

    def approvals(self) -> tuple[shapes.ApprovalShape, ...]:
        """Return the approvals for the project or this session: these calls run unprompted."""
        return self.request("get_approvals").data_as(shapes.Approvals).approvals

    remove_approval = sends(wire.RemoveApproval, "Remove an approval: prompt again from now on.")

    # --- questions ---------------------------------------------------------------------------

    state = asks(wire.GetState, shapes.State, "Return what the agent is doing and with what.")

    def messages(self) -> tuple[frames.MessageShape, ...]:
        """Return the transcript."""
        return self.request("get_messages").data_as(shapes.Messages).messages

    def models(self, *, everywhere: bool = False) -> tuple[shapes.ModelShape, ...]:
        """Return the models of the provider, or of every provider with a credential."""
        return self._tell(wire.GetModels(everywhere)).data_as(shapes.Models).models

    clear = sends(wire.Clear, "Drop the transcript.")

    def set_model(self, model: str, provider: str = "") -> str:
        """Switch to another model (an id, or PROVIDER/ID); return its id."""
        return self._tell(wire.SetModel(model, provider)).data_as(shapes.ModelSet).model

    def set_reasoning(self, level: Level) -> str:
        """Set the reasoning level; return the one in effect, as some models
        always think."""
        return self._tell(wire.SetReasoning(level)).data_as(shapes.ReasoningSet).reasoning

    def set_jail(self, on: bool) -> None:
        """Switch the jail of the tools (the working directory) on or off."""
        self._tell(wire.SetJail(on))

    # --- sessions ----------------------------------------------------------------------------

    def sessions(
        self, *, everywhere: bool = False, limit: int = 100
    ) -> tuple[shapes.SessionShape, ...]:
        """Return the newest sessions of the directory, or of all directories."""
        return self._tell(wire.ListSessions(everywhere, limit)).data_as(shapes.Sessions).sessions

    def new_session(self) -> shapes.SessionShape:
        """Continue with a new, empty session."""
        return self._tell(wire.NewSession()).data_as(shapes.SessionLoaded).session

    def load_session(self, session: str) -> shapes.SessionShape:
        """Continue a stored session: a path, the beginning of an id, or `latest`."""
        return self._tell(wire.LoadSession(session)).data_as(shapes.SessionLoaded).session

    def fork_session(
        self, session: str = "", at: str | int | None = None, *, load: bool = True
    ) -> shapes.SessionShape:
        """Copy a session, up to an entry or a number of messages; `load`: continue with it."""
        copied = self._tell(wire.ForkSession(session, at, load))
        return copied.data_as(shapes.SessionLoaded).session

    def export_session(self, session: str = "", format: str = "zotsession", path: str = "") -> str:
        """Export a session as text, or to a file if a path is given; return the text or the
        file's path."""
        answer = self.request("export_session", session=session, format=format, path=path)
        data = answer.data_as(shapes.SessionExported)
        text = data.path if path else data.content
        return "" if text is UNSET else text

    def checkpoints(self) -> tuple[shapes.CheckpointShape, ...]:
        """Return the prompts of the conversation to which `rewind` can go back."""
        return self.request("checkpoints").data_as(shapes.CheckpointList).checkpoints

    rewind = asks(
        wire.Rewind,
        shapes.Rewound,
        "Go back to before a prompt (default: the last one): the conversation, the files that "
        "tools changed since, or both; `preview`: only report what would be done.",
    )

    def changed_files(self) -> tuple[shapes.ChangedFileShape, ...]:
        """Return the files that tools changed in this session, each with its diff."""
        return self.request("get_changes").data_as(shapes.Changes).files

    # --- commands, questions, the shell ------------------------------------------------------

    def commands(self) -> tuple[shapes.CommandShape, ...]:
        """Return the slash commands that a person can type."""
        return self.request("get_commands").data_as(shapes.Commands).commands

    def run_command(self, name: str, args: str = "") -> shapes.CommandRan:
        """Run a command. The caller passes a result with the action `prompt` on to `prompt`; a tool
        that the command wants to run before the model runs only with `submit_command`."""
        return self._tell(wire.RunCommand(name, args, submit=False)).data_as(shapes.CommandRan)

    def submit_command(
        self, name: str, args: str = "", *, timeout: float | None = None
    ) -> EventIterator:
        """Run a command as if a person had typed it; return an iterator over the events of the
        prompt it makes, including tools that run first; its `ran` is the command's result."""
        return self._run(wire.RunCommand(name, args), timeout)

    def reload_extensions(self) -> tuple[shapes.ExtensionShape, ...]:
        """Stop all extensions and start those that exist now."""
        return self.request("reload_ext").data_as(shapes.Reloaded).extensions

    panel_key = sends(
        wire.PanelKey,
        "Send a key to a panel that an ExtPanel opened: its name, or `rune` with the `text`.",
    )
    panel_resize = sends(wire.PanelResize, "Report how many columns and rows the panel has.")
    panel_close = sends(wire.PanelClose, "Close a panel.")
    run_shell = asks(
        wire.RunShell,
        shapes.ShellRan,
        "Run a shell command and add it to the transcript. Limited by the client's `timeout`.",
    )
    abort_shell = sends(wire.AbortShell, "Abort the shell command that runs.")
    answer = sends(wire.Answer, "Answer an ExtAsk (feature `dialogs`).")


def word(command: Command) -> str:
    return str(command.__struct_config__.tag)


def changed_fields(command: Command) -> dict[str, Any]:
    """Return the fields that differ from their default, so that older servers understand them."""
    return {
        field.encode_name: value
        for field in fields(type(command))
        if (value := getattr(command, field.name)) != field.default
    }


def pictures(images: Sequence[Image]) -> tuple[ImageData, ...] | None:
    return tuple(ImageData(image.mime_type, image.data) for image in images) or None
