"""Any sequence of cuts, failures, answers and calls keeps the grammar of core/events.py."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from support.session import Recorder, SmallTool

from zot.core import events
from zot.errors import BadResponse, NetworkError, Overloaded
from zot.provider import types

LETTERS = {
    "UserMessage": "u",
    "TurnStart": "(",
    "AssistantStart": "s",
    **dict.fromkeys(("TextDelta", "ReasoningDelta"), "d"),
    **dict.fromkeys(("ToolCallStart", "ToolCallArgs", "ToolCallEnd"), "d"),
    "UsageReport": "$",
    "AssistantMessage": "m",
    "ToolCalled": "c",
    "ToolStarted": "t",
    "ToolAllowed": "a",
    "ToolReturned": "r",
    "Retrying": "y",
    "ErrorRaised": "e",
    "Done": ".",
}
VOID = r"\(y*sy*d*\$?y<"
TURN = rf"(?:{VOID})*\(y*(?:sy*d*)?\$?m?c*\)(?:tar)*"
RUN = re.compile(rf"u(?:{TURN})*e?\.")

piece = st.sampled_from(
    (
        types.TextDelta("word "),
        types.ReasoningDelta("hm "),
        types.ToolCallStart("x", "t"),
        types.UsageSeen(types.Usage(7, 1)),
    )
)
cut = st.tuples(
    st.booleans(),
    st.lists(piece, max_size=4),
    st.sampled_from((NetworkError("cut"), Overloaded("busy"), BadResponse("odd"))),
)
answer = st.tuples(st.integers(0, 2), st.integers(1, 3))


def letter(event: events.Event) -> str:
    if isinstance(event, events.TurnEnd):
        return "<" if event.again else ")"
    return LETTERS[type(event).__name__]


def whole(number: int, calls: int, words: int) -> list:
    text = f"answer {number} " * words
    blocks = [types.ToolCall(f"{number}.{call}", "t", {}) for call in range(calls)]
    stop = "tool_use" if calls else "end"
    content = (types.Text(text), *blocks)
    deltas = [types.TextDelta(f"answer {number} ")] * words
    return [types.Started(), *deltas, types.Finished(content, stop, types.Usage(7, 2))]


class Playing:
    name = "playing"

    def __init__(self, streams: list) -> None:
        self.streams = streams

    def stream(self, request, cancel):
        for event in self.streams.pop(0) if self.streams else whole(99, 0, 1):
            if isinstance(event, Exception):
                raise event
            yield event

    def close(self) -> None: ...


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(cut, max_size=3), answer), min_size=1, max_size=4))
def test_whatever_a_provider_does_the_grammar_holds(turns):
    streams = []
    for number, (cuts, (calls, words)) in enumerate(turns):
        for has_begun, pieces, error in cuts:
            streams.append([*([types.Started(), *pieces] if has_begun else []), error])
        streams.append(whole(number, calls, words))
    tool = SmallTool("t", lambda args, context: "done", None)
    with Recorder([], provider=Playing(streams), tools=[tool]) as it:
        told, run = it.prompt()
        shown = "".join(map(letter, told))
        assert RUN.fullmatch(shown), shown
        kept = [m for m in it.session.messages() if m.role == "assistant"]
        if run.stop == "end":
            assert all("word" not in part for m in kept for part in types.texts_in(m.content))
        complete = [e.message for e in told if isinstance(e, events.AssistantMessage)]
        assert complete == kept
        said = said_by_turn(told)
        for message, text in zip(complete, said, strict=True):
            assert "".join(types.texts_in(message.content)) == text
        asked = [part for m in kept for part in m.content if isinstance(part, types.ToolCall)]
        assert len(tool.calls) == len(asked)


def said_by_turn(told: list) -> list[str]:
    """The deltas of each turn that has a message."""
    said, now = [], ""
    for event in told:
        match event:
            case events.TurnStart():
                now = ""
            case types.TextDelta(text):
                now += text
            case events.AssistantMessage():
                said.append(now)
    return said
