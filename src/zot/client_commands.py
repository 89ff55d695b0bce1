"""The commands of `zot.client` to an agent, each as a method. The client sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import UNSET
from msgspec.structs import fields

from zot.provider.types import Image, Json, Level
from zot.wire import commands as wire
from zot.wire import frames, shapes
from zot.wire.commands import ApprovalMode, ImageData
from zot.wire.frames import Response
from zot.wire.zot import Command

if TYPE_CHECKING:
    from zot.client import EventIterator

Decision = Literal["allow", "deny", "allow_session", "allow_project", "deny_project"]


class AnyLimits(Protocol):
    """Limits of one prompt: a `zot.Limits`, or any object with these attributes."""

    @property
    def max_steps(self) -> int | None: ...
    @property
    def max_cost(self) -> float | None: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def max_seconds(self) -> float | None: ...


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
        limits: AnyLimits | None = None,
        timeout: float | None = None,
        run: str = "",
        schema: dict[str, Any] | None = None,
    ) -> EventIterator:
        """Send a prompt; return an iterator over its events, the last of which is Done.

        A second prompt is queued in the server, and its events come after the first one's.
        `limits` (a `zot.Limits`) replace those the server was started with. `timeout` limits the
        silence between two events, in seconds. `run`: your own name for a durable run; if the
        server knows it, nothing is run again (`resumed`, `end`). `schema`: JSON Schema that the
        model's last text must fit; else the run fails with the code `invalid_output`.

        Raises:
            CommandError: the server refused it.
            ServerGoneError: the child has ended.
        """
        bounds = {name: getattr(limits, name) for name in LIMITS} if limits is not None else {}
        command = wire.Prompt(
            message=text, images=pictures(images), run=run, schema=schema, **bounds
        )
        return self._run(command, timeout)

    def retry(self, *, timeout: float | None = None) -> EventIterator:
        """Retry the last prompt, which failed or was aborted, with the current model and
        credential, and without adding it to the conversation again."""
        return self._run(wire.RetryPrompt(), timeout)

    def resume_run(self, run: str, decision: Literal["continue", "fail"] = "continue") -> None:
        """Decide how a durable run goes on that is held after a crash."""
        self._tell(wire.ResumeRun(run, decision))

    def events(self, after: int = 0, limit: int = 1000) -> shapes.EventsRead:
        """Return the events of a durable session after a `seq`, also those of earlier servers.
        `parse_frame` parses them; call again with `last` while there is `more`."""
        return self._tell(wire.Events(after, limit)).data_as(shapes.EventsRead)

    def compact(self, instructions: str = "", *, timeout: float | None = None) -> EventIterator:
        """Summarise the transcript; the CompactDone among the events has the summary."""
        return self._run(wire.Compact(instructions), timeout)

    def abort(self, target: str | None = None) -> None:
        """Abort the current run, or the run with this id (`EventIterator.id`)."""
        self._tell(wire.Abort(target))

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Send a message that the model gets after the current tool.

        Raises:
            BusyError: no run of this client is active.
        """
        self._add(wire.Steer(text, pictures(images)))

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> None:
        """Send a message that the model gets when it would stop. Raises BusyError like `steer`."""
        self._add(wire.FollowUp(text, pictures(images)))

    def approve(
        self,
        request_id: str,
        decision: Decision,
        reason: str = "",
        pattern: str = "",
        args: dict[str, Json] | None = None,
    ) -> None:
        """Answer an ApprovalRequest. `reason` tells the model why a call is denied; `pattern` is
        the rule that decisions for the project store; `args` replace the arguments of the model."""
        self._tell(wire.Approve(request_id, decision, reason, pattern, args))

    def approvals(self) -> tuple[shapes.ApprovalShape, ...]:
        """Return the approvals for the project or this session: these calls run unprompted."""
        return self.request("get_approvals").data_as(shapes.Approvals).approvals

    def remove_approval(self, tool: str, pattern: str) -> None:
        """Remove an approval: prompt again from now on."""
        self._tell(wire.RemoveApproval(tool, pattern))

    # --- questions ---------------------------------------------------------------------------

    def state(self) -> shapes.State:
        """Return the state: whether the agent is busy, its model, its session, what it cost."""
        return self._tell(wire.GetState()).data_as(shapes.State)

    def messages(self) -> tuple[frames.MessageShape, ...]:
        """Return the transcript."""
        return self.request("get_messages").data_as(shapes.Messages).messages

    def models(self, *, everywhere: bool = False) -> tuple[shapes.ModelShape, ...]:
        """Return the models of the provider, or of every provider with a credential."""
        return self._tell(wire.GetModels(everywhere)).data_as(shapes.Models).models

    def clear(self) -> None:
        """Drop the transcript."""
        self._tell(wire.Clear())

    def set_model(self, model: str, provider: str = "") -> str:
        """Switch to another model (an id, or PROVIDER/ID); return its id."""
        return self._tell(wire.SetModel(model, provider)).data_as(shapes.ModelSet).model

    def set_reasoning(self, level: Level) -> str:
        """Set the reasoning level; return the one in effect, as some models
        always think."""
        return self._tell(wire.SetReasoning(level)).data_as(shapes.ReasoningSet).reasoning

    def set_jail(self, words: bool | str) -> None:
        """Switch the jail of the tools (the working directory) on or off, or set it by words such
        as `read-only`."""
        self._tell(wire.SetJail(words))

    def set_mode(self, mode: ApprovalMode) -> None:
        """Choose what runs without approval: `ask`, `ask_all`, `edits`, `plan` or `yolo`."""
        self._tell(wire.SetMode(mode))

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

    def rewind(
        self,
        to: str = "",
        conversation: bool = True,
        files: bool = True,
        preview: bool = False,
        force: bool = False,
    ) -> shapes.Rewound:
        """Go back to before a prompt (default: the last one): the conversation, the files that
        tools changed since, or both. `preview`: only report the changes; `force`: restore also
        files that somebody else changed."""
        command = wire.Rewind(to, conversation, files, preview, force)
        return self._tell(command).data_as(shapes.Rewound)

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

    def panel_key(self, extension: str, panel_id: str, key: str, text: str = "") -> None:
        """Send a key to a panel that an ExtPanel opened: its name, or `rune` with the `text`."""
        self._tell(wire.PanelKey(extension, panel_id, key, text))

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> None:
        """Report how many columns and rows the panel has."""
        self._tell(wire.PanelResize(extension, panel_id, width, height))

    def panel_close(self, extension: str, panel_id: str) -> None:
        """Close a panel."""
        self._tell(wire.PanelClose(extension, panel_id))

    def run_shell(self, command: str, hidden: bool = False) -> shapes.ShellRan:
        """Run a shell command and add it to the transcript; `hidden`: not for the model. Limited by
        the client's `timeout`."""
        return self._tell(wire.RunShell(command, hidden)).data_as(shapes.ShellRan)

    def abort_shell(self) -> None:
        """Abort the shell commands that run."""
        self._tell(wire.AbortShell())

    def answer(
        self,
        request_id: str,
        value: str | None = None,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> None:
        """Answer an ExtAsk (feature `dialogs`)."""
        self._tell(wire.Answer(request_id, value, confirmed, cancelled))


LIMITS = tuple(field.name for field in fields(wire.LimitsData))


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
