"""pi's dialect: its commands with pi's own names, decoded from lines; responses; and the peer's
generation.

No I/O. Three generations of the protocol are in use, without a handshake; the peer's generation is
inferred from its commands:

    a   the document: three commands, no ids, no answers but events
    b   ids, an answer to every command, snapshots in every update; also fits generation c
    c   as b, with updates that are deltas only

The three commands of the oldest generation are a subset of the newer ones, so there is one table.
"""

from __future__ import annotations

import binascii
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from zot.core.image import checked_image
from zot.errors import CommandError
from zot.lines import decode_line
from zot.provider.types import Image, Json, Text
from zot.text import Frozen
from zot.wire.zot import Envelope, checked_id, checked_name

Generation = Literal["a", "b", "c"]
PROTOCOL_VERSION = 1
"""Version in the answer to `get_protocol`; pi itself has none."""


class Traits(Frozen):
    """Properties in which the generations differ."""

    documented: bool = False
    """Only what the document has: no answers, dialogs or queues, one tool after the other, and
    runs that go on when stdin closes."""
    snapshots: bool = True
    """Every update carries the whole message."""
    system_message: bool = False
    """A conversation begins with the system message."""
    first_stop: str = "stop"
    """Stop reason in the first frame of a message."""


TRAITS: dict[Generation, Traits] = {
    "a": Traits(documented=True),
    "b": Traits(),
    "c": Traits(snapshots=False, system_message=True, first_stop="pending"),
}


# --- commands --------------------------------------------------------------------------------

QueueMode = Literal["all", "one-at-a-time"]


class PiCommand(Frozen, tag_field="type"):
    """Base of all commands; unknown fields are ignored, as pi does."""


class ImageContent(Frozen):
    mimeType: str
    data: bytes
    """Base64 on the wire."""


class Attachment(Frozen):
    """A file sent with a generation A prompt; the raw object is echoed beside it."""

    type: Literal["image", "document"]
    fileName: str = ""
    mimeType: str = ""
    content: str = ""
    extractedText: str | None = None


class Spoken(PiCommand):
    message: str = ""
    images: tuple[ImageContent, ...] | None = None


class Prompt(Spoken, tag="prompt"):
    attachments: tuple[dict[str, Json], ...] | None = None
    streamingBehavior: Literal["steer", "followUp"] | None = None


class Steer(Spoken, tag="steer"): ...


class FollowUp(Spoken, tag="follow_up"): ...


class Abort(PiCommand, tag="abort"): ...


class ClearQueue(PiCommand, tag="clear_queue"): ...


class NewSession(PiCommand, tag="new_session"):
    parentSession: str | None = None


class GetState(PiCommand, tag="get_state"): ...


class GetMessages(PiCommand, tag="get_messages"): ...


class SetModel(PiCommand, tag="set_model"):
    provider: str
    modelId: str


class CycleModel(PiCommand, tag="cycle_model"): ...


class GetAvailableModels(PiCommand, tag="get_available_models"): ...


class SetThinkingLevel(PiCommand, tag="set_thinking_level"):
    level: str


class CycleThinkingLevel(PiCommand, tag="cycle_thinking_level"): ...


class GetAvailableThinkingLevels(PiCommand, tag="get_available_thinking_levels"): ...


class SetSteeringMode(PiCommand, tag="set_steering_mode"):
    mode: QueueMode


class SetFollowUpMode(PiCommand, tag="set_follow_up_mode"):
    mode: QueueMode


class Compact(PiCommand, tag="compact"):
    customInstructions: str | None = None


class SetAutoCompaction(PiCommand, tag="set_auto_compaction"):
    enabled: bool


class SetAutoRetry(PiCommand, tag="set_auto_retry"):
    enabled: bool


class AbortRetry(PiCommand, tag="abort_retry"): ...


class Bash(PiCommand, tag="bash"):
    command: str
    excludeFromContext: bool = False


class AbortBash(PiCommand, tag="abort_bash"): ...


class GetSessionStats(PiCommand, tag="get_session_stats"): ...


class ExportHtml(PiCommand, tag="export_html"):
    outputPath: str | None = None


class SwitchSession(PiCommand, tag="switch_session"):
    sessionPath: str


class Fork(PiCommand, tag="fork"):
    entryId: str


class Clone(PiCommand, tag="clone"): ...


class GetForkMessages(PiCommand, tag="get_fork_messages"): ...


class GetEntries(PiCommand, tag="get_entries"):
    since: str | None = None


class GetTree(PiCommand, tag="get_tree"): ...


class GetLastAssistantText(PiCommand, tag="get_last_assistant_text"): ...


class SetSessionName(PiCommand, tag="set_session_name"):
    name: str


class GetCommands(PiCommand, tag="get_commands"): ...


class GetProtocol(PiCommand, tag="get_protocol"):
    """Our own command, not pi's: return the protocol in use. With `generation`, select one."""

    generation: Literal["a", "b", "c"] | None = None


class ExtensionUiResponse(PiCommand, tag="extension_ui_response"):
    """The answer to a dialog; gets no response."""

    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool = False


Setting = SetSteeringMode | SetFollowUpMode | SetAutoCompaction | SetAutoRetry | SetSessionName
Control = AbortRetry | AbortBash | ClearQueue | GetProtocol
Choice = SetModel | CycleModel | SetThinkingLevel | CycleThinkingLevel
Switch = NewSession | SwitchSession | Fork | Clone
LookAtSession = GetMessages | GetSessionStats | GetForkMessages | GetEntries | GetTree
Look = (
    LookAtSession
    | GetState
    | GetAvailableModels
    | GetAvailableThinkingLevels
    | GetLastAssistantText
)
Quick = Setting | Control | Choice | Switch | Look
"""Commands that the thread which reads commands executes and answers."""
Running = Prompt | Steer | FollowUp | Abort | Compact
Slow = Bash | ExportHtml | GetCommands
"""Commands that run in their own thread."""
AnyPiCommand = Running | Slow | ExtensionUiResponse | Quick

SPEC_COMMANDS = (Prompt, Abort, Compact)
"""All commands of generation A."""
NEWEST_COMMANDS = (ClearQueue, GetAvailableThinkingLevels)
"""Commands that only clients of generation C send."""


# --- decoding --------------------------------------------------------------------------------


class PiResponse(Frozen, omit_defaults=True, kw_only=True):
    id: Raw | UnsetType = UNSET
    type: Literal["response", ""] = ""
    command: str | UnsetType = UNSET
    success: bool | UnsetType = UNSET
    data: Any = UNSET
    error: str | UnsetType = UNSET


class PiIncoming(Frozen):
    name: str
    """The command's name; `parse` for a line that is not JSON, empty for one without a type."""
    id: Raw | UnsetType
    command: AnyPiCommand | None
    error: CommandError | None = None


_envelope = msgspec.json.Decoder(Envelope).decode
_command = msgspec.json.Decoder(AnyPiCommand).decode


def decode(line: bytes) -> PiIncoming:
    """Decode a line to a command or an error; never raises."""
    name = "parse"
    id: Raw | UnsetType = UNSET
    try:
        whole = decode_line(line, bytes)
        envelope: Envelope = decode_line(whole, _envelope)
        name = ""
        id = checked_id(bytes(envelope.id), line)
        name = checked_name(envelope.type)
        return PiIncoming(name, id, decode_line(whole, _command))
    except CommandError as error:
        return PiIncoming(name, id, None, _explained(error, name))


def _explained(error: CommandError, name: str) -> CommandError:
    text = str(error).removeprefix("invalid_params: ").removeprefix("parse_error: ")
    if text.endswith("at `$.type`"):
        return CommandError(f"unknown command: {name}", code="unknown_command")
    if name == "parse":
        return CommandError(f"failed to parse the command: {text}", code="parse_error")
    return CommandError(text)


def pinned(word: str) -> Generation | None:
    """Return the generation set by `--pi-protocol`; None if empty."""
    return msgspec.convert(word, Generation) if word else None


class PiPeer:
    """The generation of the client, as far as it is known."""

    def __init__(self, pinned: Generation | None = None) -> None:
        self._pinned = pinned
        self.generation: Generation = pinned or "a"

    def learn(self, incoming: PiIncoming) -> None:
        """Infer the generation from a command, before it is executed."""
        if self._pinned is not None:
            return
        command = incoming.command
        if isinstance(command, NEWEST_COMMANDS):
            self.generation = "c"
        elif self.generation == "a" and _is_newer(incoming):
            self.generation = "b"

    def choose(self, generation: Generation) -> None:
        """Set the generation the peer asked for; one pinned on the command line stays."""
        if self._pinned is None:
            self.generation = generation

    @property
    def traits(self) -> Traits:
        return TRAITS[self.generation]

    def wants_answer(self, incoming: PiIncoming) -> bool:
        return not self.traits.documented or incoming.id is not UNSET


def _is_newer(incoming: PiIncoming) -> bool:
    command = incoming.command
    if incoming.id is not UNSET:
        return True
    if isinstance(command, Prompt):
        return command.images is not None or command.streamingBehavior is not None
    return command is not None and not isinstance(command, SPEC_COMMANDS)


# --- answers ---------------------------------------------------------------------------------


def success(incoming: PiIncoming, data: Json = UNSET) -> PiResponse:
    return PiResponse(
        id=incoming.id, type="response", command=incoming.name, success=True, data=data
    )


def failure(incoming: PiIncoming, error: Exception) -> PiResponse:
    command = incoming.name or UNSET
    return PiResponse(
        id=incoming.id, type="response", command=command, success=False, error=str(error)
    )


def protocol(peer: PiPeer, version: str) -> dict[str, Json]:
    """Return the data for `get_protocol`."""
    return {
        "protocol": "pi-rpc",
        "version": PROTOCOL_VERSION,
        "server": "zot",
        "serverVersion": version,
        "generation": peer.generation,
        "generations": ["a", "b", "c"],
        "features": [
            "agent_settled",
            "attachments",
            "bash_updates",
            "disposition",
            "entries",
            "extension_ui",
            "images",
            "one_agent_end",
        ],
    }


# --- files of a prompt -----------------------------------------------------------------------


class PromptFiles(Frozen):
    """The images and documents of a prompt, in the form the model gets."""

    images: tuple[Image, ...] = ()
    documents: tuple[Text, ...] = ()
    echoed: tuple[dict[str, Json], ...] = ()
    """The attachments as the client sent them."""


def files(command: Spoken) -> PromptFiles:
    """Return the images (newer generations) and attachments (oldest) of a prompt. Raises
    CommandError: one of them cannot be used."""
    pictures = [
        checked_image(image.mimeType, image.data, "images") for image in command.images or ()
    ]
    documents: list[Text] = []
    attached = command.attachments or () if isinstance(command, Prompt) else ()
    for position, raw in enumerate(attached):
        where = f"attachments[{position}]"
        attachment = _attachment(raw, where)
        if attachment.type == "image":
            data = _bytes(attachment.content, where)
            pictures.append(checked_image(attachment.mimeType, data, where))
        elif attachment.extractedText is not None:
            documents.append(document(attachment.fileName, attachment.extractedText))
    return PromptFiles(tuple(pictures), tuple(documents), attached)


def document(name: str, text: str) -> Text:
    """Return a text block with the document and its name."""
    return Text(f"\n\n[Document: {name}]\n{text}")


def _attachment(raw: dict[str, Json], where: str) -> Attachment:
    try:
        return msgspec.convert(raw, Attachment)
    except msgspec.ValidationError as error:
        raise CommandError(f"{where} cannot be used: {error}") from error


def _bytes(content: str, where: str) -> bytes:
    try:
        return binascii.a2b_base64(content, strict_mode=True)
    except ValueError as error:
        raise CommandError(f"{where}.content is not base64: {error}") from error
