"""pi's dialect: decode lines to commands, encode responses, and detect the peer's generation.

No I/O. Three generations of the protocol are in use, without a handshake; the peer's generation is
inferred from its commands:

    a   the document: three commands, no ids, no answers but events
    b   ids, an answer to every command, snapshots in every update; also fits generation c
    c   as b, with updates that are deltas only
"""

from __future__ import annotations

import binascii
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from zot.core.image import checked_image
from zot.errors import CommandError
from zot.lines import decode_line
from zot.pi import commands
from zot.provider.types import Image, Json, Text
from zot.text import Frozen
from zot.wire.zot import Envelope, checked_id, checked_name

Generation = Literal["a", "b", "c"]
PROTOCOL_VERSION = 1
"""Version in the answer to `get_protocol`; pi itself has none."""


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
    command: commands.AnyPiCommand | None
    error: CommandError | None = None


_envelope = msgspec.json.Decoder(Envelope).decode
_command = msgspec.json.Decoder(commands.AnyPiCommand).decode


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
        if isinstance(command, commands.NEWEST_COMMANDS):
            self.generation = "c"
        elif self.generation == "a" and _is_newer(incoming):
            self.generation = "b"

    def choose(self, generation: Generation) -> None:
        """Set the generation the peer asked for; one pinned on the command line stays."""
        if self._pinned is None:
            self.generation = generation

    def wants_answer(self, incoming: PiIncoming) -> bool:
        return self.generation != "a" or incoming.id is not UNSET


def _is_newer(incoming: PiIncoming) -> bool:
    command = incoming.command
    if incoming.id is not UNSET:
        return True
    if isinstance(command, commands.Prompt):
        return command.images is not None or command.streamingBehavior is not None
    return command is not None and not isinstance(command, commands.SPEC_COMMANDS)


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


def files(command: commands.Spoken) -> PromptFiles:
    """Return the images (newer generations) and attachments (oldest) of a prompt. Raises
    CommandError: one of them cannot be used."""
    pictures = [
        checked_image(image.mimeType, image.data, "images") for image in command.images or ()
    ]
    documents: list[Text] = []
    attached = command.attachments or () if isinstance(command, commands.Prompt) else ()
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


def _attachment(raw: dict[str, Json], where: str) -> commands.Attachment:
    try:
        return msgspec.convert(raw, commands.Attachment)
    except msgspec.ValidationError as error:
        raise CommandError(f"{where} cannot be used: {error}") from error


def _bytes(content: str, where: str) -> bytes:
    try:
        return binascii.a2b_base64(content, strict_mode=True)
    except ValueError as error:
        raise CommandError(f"{where}.content is not base64: {error}") from error
