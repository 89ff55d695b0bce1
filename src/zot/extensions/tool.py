"""A tool of an extension, as the loop sees it: an ordinary Tool."""

from __future__ import annotations

import binascii
import time
from collections.abc import Callable

from msgspec import UNSET

from zot.core.image import checked_image
from zot.core.tool import Reconciled, Replay, ToolContext, ToolOutput
from zot.errors import Cancelled, CommandError, ToolError, ToolTimedOut
from zot.extensions import proto
from zot.extensions.extension import HostedExtension
from zot.extensions.guest import Guest, NoAnswer, TimedOut
from zot.extensions.registered import ToolInfo
from zot.provider.types import Image, Json, Text

NO_CONTENT = "(extension returned no content)"
MAX_TEXT = 256 * 1024
"""Maximum number of characters of a tool's text that reach the model."""


class ExtensionTool:
    def __init__(self, extension: HostedExtension, info: ToolInfo, guest: Guest) -> None:
        self._extension = extension
        self._guest = guest
        self._info = info
        self.extension = extension.name
        self.name = info.name
        self.description = info.description
        self.schema = info.schema
        self.replay: Replay = info.replay

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        if self._info.interactive and not self._guest.can_answer():
            raise self._failed("interactive extension tools require an interactive host")
        key, session = context.key or UNSET, self._guest.session_id or UNSET
        return self._output(
            self._asked(lambda id: proto.ToolCall(id, self.name, args, key, session), context)
        )

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Ask what became of a call; only if the extension supports that."""
        answer = self._asked(
            lambda id: proto.ToolReconcile(id, self.name, args, context.key), context
        )
        output = self._output(answer) if answer.content else ""
        match answer.state:
            case "done" | "not_done":
                return Reconciled(answer.state, output)
            case _:
                return Reconciled("unknown", output)

    def _asked(
        self, frame: Callable[[str], proto.ToExtension], context: ToolContext
    ) -> proto.ToolResult:
        """Send a frame and return the answer. Raises ToolError when there is none."""
        timeout = None if self._info.interactive else self._info.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._extension.wait_live(time.monotonic() + 5, context.cancel):
            raise self._failed(self._extension.unavailable())
        with self._extension.question(self._guest) as question:
            line = proto.encode(frame(question.id))
            if not self._extension.send_line(line):
                raise self._failed(self._not_sent(len(line)))
            try:
                answer = question.wait(deadline, context.cancel)
                while isinstance(answer, proto.ToolProgress):
                    context.progress(answer.text)
                    answer = question.wait(deadline, context.cancel)
            except Cancelled:
                self._extension.send(proto.ToolCancel(question.id))
                raise
            match answer:
                case proto.ToolResult():
                    return answer
                case TimedOut():
                    self._extension.send(proto.ToolCancel(question.id))
                    raise ToolTimedOut(str(self._failed(f"no result within {timeout} s")))
                case NoAnswer(reason=reason):
                    raise self._failed(reason)
                case _:
                    raise self._failed("it sent another kind of answer")

    def _not_sent(self, size: int) -> str:
        if size > self._extension.limits.line:
            return "the arguments are too long for one line (4 MiB)"
        return self._extension.unavailable()

    def _failed(self, reason: str) -> ToolError:
        return ToolError(f"extension {self._extension.name}/{self.name} failed: {reason}")

    def _output(self, result: proto.ToolResult) -> ToolOutput:
        content: list[Text | Image] = []
        is_error = result.is_error
        for block in result.content:
            try:
                content.append(self._block(block))
            except (ValueError, CommandError) as error:
                content.append(Text(f"[bad image from extension {self._extension.name}: {error}]"))
                is_error = True
        details: dict[str, Json] = {"extension": self._extension.name, "tool": self.name}
        if result.structured_content is not None:
            details["structured_content"] = result.structured_content
        if any(block.format == "markdown" for block in result.content):
            details["format"] = "markdown"
        self._extension.activate(result.activate_tools)
        return ToolOutput(tuple(_cut(content)) or (Text(NO_CONTENT),), is_error, details)

    def _block(self, block: proto.Content) -> Text | Image:
        match block.type:
            case "text":
                return Text(block.text)
            case "image":
                data = binascii.a2b_base64(block.data, strict_mode=True)
                return checked_image(block.mime_type, data, "it")
            case _:
                kind = block.type[:80]
                return Text(f'[unknown block type "{kind}" from extension {self._extension.name}]')


def _cut(content: list[Text | Image]) -> list[Text | Image]:
    """Cut the texts at the limit in total, with a note."""
    blocks: list[Text | Image] = []
    left = MAX_TEXT
    for block in content:
        if isinstance(block, Text):
            if len(block.text) > left:
                blocks.append(Text(f"{block.text[:left]}\n[cut after {MAX_TEXT} characters]"))
                return blocks
            left -= len(block.text)
        blocks.append(block)
    return blocks
