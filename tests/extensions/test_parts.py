"""The small parts of the host, without processes."""

import os
import threading
import time

import pytest
from support.extension import wait_for
from support.patience import PATIENCE

from zot.cancel import Cancel
from zot.core.events import (
    ApprovalRequest,
    CompactFailed,
    CompactStart,
    Done,
    ToolReturned,
    UserMessage,
)
from zot.core.tool import ToolOutput
from zot.errors import Cancelled, ToolError
from zot.extensions import deliver, proto
from zot.extensions.guest import MAX_CALLS, Guest, HostCalls, NoAnswer, Question, TimedOut
from zot.extensions.process import SDK, environment
from zot.provider.types import Image, Message, Text, ToolCall, ToolResult

# --- zot's tools for extensions --------------------------------------------------------------


class Caller:
    name = "x"

    def __init__(self) -> None:
        self.sent: list[proto.HostToolResult] = []

    def send(self, frame) -> bool:
        self.sent.append(frame)
        return True

    def answer(self) -> proto.HostToolResult:
        return wait_for(lambda: self.sent and self.sent.pop(0))


def text(frame: proto.HostToolResult) -> str:
    return "".join(block.text for block in frame.content)


@pytest.mark.parametrize(
    ("outcome", "said", "is_error"),
    [
        ("plain", "plain", False),
        (ToolOutput((Text("a"), Text("b"))), "ab", False),
        (ToolError("no such file"), "no such file", True),
        (KeyError("bug"), "KeyError: 'bug'", True),
        (Cancelled(), "the call was cancelled", True),
    ],
)
def test_a_call_of_an_extension_is_always_answered(outcome, said, is_error):
    def run(name, args, context):
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    caller = Caller()
    HostCalls(run).start(caller, proto.CallTool("1", "read"))
    answer = caller.answer()
    assert (answer.id, answer.name, text(answer), answer.is_error) == ("1", "read", said, is_error)


def test_calls_are_bounded_and_can_be_cancelled():
    started = threading.Semaphore(0)

    def run(name, args, context):
        started.release()
        context.progress("ignored")
        context.cancel.wait(30)
        raise Cancelled

    caller = Caller()
    calls = HostCalls(run)
    for number in range(MAX_CALLS):
        calls.start(caller, proto.CallTool(str(number), "read"))
    for _ in range(MAX_CALLS):
        assert started.acquire(timeout=PATIENCE)
    calls.start(caller, proto.CallTool("one more", "read"))
    assert "8 calls are running already" in text(caller.answer())
    calls.cancel(caller, "3")
    calls.cancel(caller, "unknown")
    assert caller.answer().id == "3"
    calls.start(caller, proto.CallTool("4", "read"))
    assert "the id is in use" in text(caller.answer())
    calls.close()
    wait_for(lambda: len(caller.sent) == MAX_CALLS - 1)


# --- events as extensions see them -----------------------------------------------------------


def test_results_are_cut_to_the_budget():
    small, whole = Image("image/png", b"x" * 30), Text("y" * deliver.MAX_RESULT_BYTES)
    content, truncated = deliver.content_of((small, whole))
    assert truncated
    assert content[0].data == "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
    assert len(content[1].text) == deliver.MAX_RESULT_BYTES - 40
    content, truncated = deliver.content_of((Image("image/png", b"x" * 300_000), Text("after")))
    assert (content, truncated) == ((), True)
    content, truncated = deliver.content_of((Text("z"),) * 200)
    assert (len(content), truncated) == (128, True)
    assert deliver.content_of((Text("z"),)) == ((proto.Content("text", text="z"),), False)


def test_a_failed_compaction_says_how_it_failed():
    failed = deliver.fields(CompactFailed("manual", "no model"), "s-1")
    assert (failed["status"], failed["error"]) == ("failed", "no model")
    aborted = deliver.fields(CompactFailed("overflow", "aborted", aborted=True), "s-1")
    assert (aborted["status"], aborted["compaction_id"]) == ("cancelled", "s-1")


def test_every_named_event_has_fields_and_others_have_none():
    call = ToolCall("1", "bash", None, raw="{")
    result = ToolResult("1", (Text("x"),), is_error=True)
    fields = deliver.fields(ToolReturned(call, result, 1.0, "failed", False), "")
    assert (fields["status"], fields["executed"]) == ("failed", False)
    assert fields["tool_args_raw"] == "{"
    assert "tool_args" not in fields
    message = Message("user", (Text("a"), Text("b")), 0.0)
    assert deliver.fields(UserMessage(message), "") == {"text": "ab", "image_count": 0}
    assert deliver.fields(UserMessage(message, queued=True), "")["queued"] is True
    asked = deliver.fields(ApprovalRequest("a", call, "rm x", 1.0), "")
    assert asked == {"tool_id": "1", "tool_name": "bash", "tool_preview": "rm x"}
    counts = deliver.fields(CompactStart("manual", 12, 3000), "s-1")
    assert (counts["message_count"], counts["token_estimate"]) == (12, 3000)
    with pytest.raises(TypeError, match="is not for extensions"):
        deliver.fields(Done(), "")


# --- waiting ---------------------------------------------------------------------------------


def test_a_question_has_an_answer_a_time_limit_or_an_abort():
    question = Question("1", Guest())
    question.put(NoAnswer("dead"))
    assert question.wait(None, Cancel()) == NoAnswer("dead")
    assert question.wait(time.monotonic() + 0.01, Cancel()) == TimedOut()
    cancel = Cancel()
    threading.Timer(0.05, cancel.set).start()
    with pytest.raises(Cancelled):
        question.wait(time.monotonic() + 30, cancel)
    with pytest.raises(Cancelled):
        question.wait(time.monotonic() - 1, cancel)


def test_progress_that_waits_is_joined_and_bounded():
    question = Question("1", Guest())
    for text in ("a", "b", "c" * 70_000):
        question.put(proto.ToolProgress("1", text))
    question.put(proto.ToolResult("1"))
    joined = question.wait(None, Cancel())
    assert isinstance(joined, proto.ToolProgress)
    assert joined.text == "c" * 65_536
    assert question.wait(None, Cancel()) == proto.ToolResult("1")


def test_the_sdk_is_put_at_the_end_of_the_python_path():
    assert environment({}, ())["PYTHONPATH"] == str(SDK)
    assert environment({"PYTHONPATH": "/a"}, ())["PYTHONPATH"] == f"/a{os.pathsep}{SDK}"
    assert (SDK / "zot_ext.py").is_file()
    assert [path.name for path in SDK.iterdir() if path.suffix] == ["zot_ext.py"]


def test_short_values_hide_nothing():
    base = {"KEY": "1", "DEBUG": "1", "ZOTCORE_RPC_TOKEN": ""}
    kept = environment(base, {"KEY"})
    assert kept["DEBUG"] == "1"
    assert "KEY" not in kept
    assert "ZOTCORE_RPC_TOKEN" not in kept
