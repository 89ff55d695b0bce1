"""No input costs more than linear time: four times as much may cost about four times the work.

Work is the processor time of this thread, so that a busy machine does not count; the square would
be sixteen times.
"""

import gc
import re
import time

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from zot.errors import ZotError
from zot.extensions import proto
from zot.lines import LineSplitter, check_numbers, decode_line
from zot.local.form import find_call
from zot.local.prompt import _words
from zot.mcp.oauth import read_challenge
from zot.pi.stream import parsed_so_far
from zot.provider.assemble import parse_args
from zot.provider.client import load_wire
from zot.provider.http import Splitter
from zot.provider.repair import repaired
from zot.provider.types import Message, ToolCall, ToolResult
from zot.runtime.commands import _TYPED
from zot.serve.interactive.slash.work import code_blocks
from zot.skills.skill import split as split_skill
from zot.text import cookie_of
from zot.tools.process.output import Decoder, clean
from zot.tools.search.walk import IgnoreRules
from zot.tui.cells import wrap

pytestmark = pytest.mark.untraced

SMALL = 20_000
ENOUGH = 0.04
"""Seconds of work below which nobody waits, and below which a clock tells little."""


def a_line(text):
    whole = decode_line(text.encode(), bytes)
    decode_line(whole, check_numbers)
    decode_line(whole, msgspec.json.decode)


def a_string_in_a_line(text):
    a_line('{"id":"1","x":"' + text + '"}')


def bytes_few_by_few(text):
    splitter, data = LineSplitter(), text.encode()
    for at in range(0, len(data), 16):
        list(splitter.feed(data[at : at + 16]))


def an_extension_s_line(text):
    proto.id_of(text.encode())
    proto.decode(text.encode())


def an_event_stream(text):
    splitter = Splitter("test")
    data = text.encode()
    for at in range(0, len(data), 100):
        splitter.feed(data[at : at + 100])
    splitter.finish()


def a_command_s_output(text):
    decoder = Decoder()
    for at in range(0, len(text), 100):
        decoder.feed(text[at : at + 100].encode())
    clean(text)


def a_skill(text):
    split_skill("---\n" + text, [])


def the_head_of_a_skill(text):
    split_skill("---\nname: " + text[:16_000] + "\n---\n" + text, [])


def an_ignore_file(text):
    IgnoreRules(text + "\na*b\n" + text).verdict(["a", "b" * 200], is_dir=False)


READERS = [
    a_line,
    a_string_in_a_line,
    bytes_few_by_few,
    an_extension_s_line,
    an_event_stream,
    a_command_s_output,
    a_skill,
    the_head_of_a_skill,
    an_ignore_file,
    parse_args,
    parsed_so_far,
    lambda text: wrap([("", text)], 80),
    lambda text: find_call("{" + text, {}),
    _words,
    lambda text: re.match(_TYPED, "/" + text),
    lambda text: read_challenge("Bearer " + text),
    code_blocks,
    lambda text: cookie_of(f'a="{text}"; b=1', "b"),
]
PARTS = ["7" * 4299, "7", "\\ud83d", "\\ude00", "\\\\", "\\", '"', "{", "[", "}", '"a":', ","]
PARTS += ["a-", "a/", ".", "\x1b[", "\x1b]", "\x1b", ";", "\n", "\r", "`", "~~~", "*", " ", "---"]
PARTS += [
    '"id"',
    "ab",
    'a="',
    "```x\n",
    "data:",
    "é",
    "\u2028",
    "中",
    "e\u0301",
    "[a](",
    "> ",
    "- ",
    "|a",
    "<a ",
    "**a",
    "&",
]


def work(read, text):
    """The least of a few: what disturbs a measure only adds to it. Garbage of all tests is not
    looked through meanwhile."""
    costs = []
    gc.disable()
    for _ in range(3):
        before = time.thread_time()
        try:
            read(text)
        except (ZotError, proto.BadFrame, msgspec.MsgspecError):
            pass
        costs.append(time.thread_time() - before)
        if costs[-1] < ENOUGH:
            break
    gc.enable()
    return min(costs)


@pytest.mark.parametrize("read", READERS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("".join))
@example("ab")
@example("```x\n")
@example("\\")
@example("*x?\n")
@example("*x\n")
@example("!x\ny\n")
def test_nothing_that_is_read_costs_more_than_linear_time(read, part):
    small, large = (part * (size // len(part) + 1) for size in (SMALL, 4 * SMALL))
    cost = work(read, large)
    assert cost < ENOUGH or cost < 9 * work(read, small)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [("7" * 4299 + " ") * 3500, "\\ud800" * 2_500_000], ids=["digits", "halves"]
)
def test_the_lines_that_once_blocked_ping_and_abort(text):
    before = time.thread_time()
    try:
        a_string_in_a_line(text)
    except ZotError:
        pass
    assert time.thread_time() - before < 5  # 40 s and more, before


def calls(api, count):
    call = {"function": {"name": "bash", "arguments": "{}"}}
    detail = {"type": "reasoning.text", "text": "hm " * 3}
    chunk = {"choices": [{"delta": {"tool_calls": [call], "reasoning_details": [detail]}}]}
    data = msgspec.json.encode(chunk)
    reader = load_wire(api).reader("test")
    for _ in range(count):
        reader.read(data)
        reader.out.take()
    reader.read(b'{"choices":[{"finish_reason":"tool_calls"}]}')
    return reader.finish()


def transcript(count):
    made = tuple(ToolCall("x", "bash", {}) for _ in range(count))
    got = tuple(ToolResult("x", ()) for _ in range(count))
    return repaired([Message("assistant", made, 1.0), Message("tool", got, 2.0)])


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda n: calls("openai-chat", n), transcript])
def test_many_calls_cost_no_more_than_linear_time(make):
    small = work(make, 1_000)
    assert work(make, 8_000) < max(0.2, 24 * small)
