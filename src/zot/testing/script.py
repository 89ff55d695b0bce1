"""Script language of the fake model server: the text of a prompt determines the answer.

A line of the last user message is a script line when every word on it is a directive; other lines
are prose and are ignored. Without a script line the server repeats the message.

Content, in order:
    text:N           N small text deltas
    say:WORDS        the words as text (to the end of the line)
    big:BYTES        one text delta of that size
    unicode          text with multi-byte, astral and U+2028 characters
    surrogate        half of a surrogate pair in an escape
    think:N          N reasoning deltas, signed where the API signs them
    tool:NAME:ARG    a tool call (to the end of the line); ARG goes into the parameter that the
                     offered schema has, or is the raw arguments when it starts with `{`
    read:PATH        the same as tool:read:PATH
    tools:K[:CMD]    K parallel bash calls of `true`, or of CMD (to the end of the line)
    badargs          a bash call whose arguments are not JSON
    empty            a proper answer without content

Shape of the answer:
    delay:MS         pause before each delta           ttft:MS    pause before the first one
    size:CHARS       characters of a text: delta       chop:N     write N bytes at a time
    drip:MS          pause after each write of chop:
    pings            keep-alive comments               crlf       lines end with CRLF
    stop:REASON      another reason to stop            usage:I,O,R,W   other token counts
    nousage          no token counts                   noindex, noid, whole   calls as some servers
    toolid:KIND      empty, long, lf or same: ids of calls that cannot be used
    phase:WORD       responses: commentary or final_answer, beside each text
    nodone           chat: no [DONE] at the end        close      ends with the connection
    rounds:N, loop   take this turn N times, or for ever

Faults:
    status:CODE[:N]  an HTTP error, for the first N attempts   retry-after:V   with that header
    overflow         the error says that the prompt is too long
    echo-key         the error repeats the key it was sent
    hang             never answer                      hang:headers, hang:N   after head, N deltas
    tries:N          faults strike in the first N attempts only
    cut[:N]          close after N deltas, or in the middle; cut:0 before the head
    cut:head         close in the middle of the head
    reset[:N]        the same with a TCP reset
    error[:TYPE]     an error event in the middle      garbage    lines that are not events
    nostop           omit the end of the answer        refuse     the model refuses
    html, blank, json   200 with a page, with nothing, with a JSON document
    type:MIME        another content type              gzip       a compressed body nobody asked for
    redirect:URL     302 to there                      junk       an answer that is not HTTP

A line with only `then` starts the next turn: the server counts the assistant turns after the
last user message. When the script is used up the answer is "done".
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

Content = tuple[Literal["text", "think"], tuple[str, ...]] | tuple[Literal["tool"], str, str | None]

TO_END_OF_LINE = frozenset({"say", "tool", "read", "tools", "redirect"})
NUMBER = r"\d+"
FORMS = {
    **dict.fromkeys(("text", "think", "big", "delay", "ttft", "size", "chop", "drip"), NUMBER),
    **dict.fromkeys(("unicode", "surrogate", "empty", "pings", "crlf", "loop", "garbage"), ""),
    **dict.fromkeys(("nostop", "badargs", "html", "blank", "json", "gzip", "junk", "nousage"), ""),
    **dict.fromkeys(("noindex", "noid", "whole", "nodone", "close", "overflow", "echo-key"), ""),
    "refuse": "",
    "rounds": NUMBER,
    **dict.fromkeys(("cut", "reset"), r"|\d+|head"),
    "tries": NUMBER,
    "hang": r"|\d+|headers",
    "error": r"|\w+",
    "status": r"[1-5]\d\d(:\d+)?",
    "retry-after": r"\S+",
    "stop": r"\w+",
    "usage": r"\d+(,\d+){0,3}",
    "toolid": r"empty|long|lf|same",
    "type": r"\S+",
    "phase": r"\w+",
}
WORD = re.compile(r"([a-z][a-z-]*)(?::(.*))?\Z", re.DOTALL)
UNICODE = (
    *("naïve ", "日本語 ", "🙂👩‍👩‍👧 ", "a\u2028b ", "tab\there "),
    *('quo"te ', "back\\slash ", "\x00 ", "end"),
)


class FakeTurn(Struct):
    """Behaviour of the server for one model call."""

    content: list[Content] = []
    options: dict[str, str] = {}
    rounds: int | None = 1
    """Number of times that the turn is used; None: for ever."""


def parse_script(text: str) -> list[FakeTurn] | None:
    """Return the turns that a prompt scripts; None: it has no script line."""
    groups: list[list[tuple[str, str]]] = [[]]
    named = False
    for line in text.splitlines():
        if line.strip() == "then":
            if named:
                groups.append([])
            continue
        words = parse_line(line)
        if words:
            named = True
            groups[-1] += words
    return [build_turn(words) for words in groups] if named else None


def parse_line(line: str) -> list[tuple[str, str]] | None:
    """Return the directives of a line; None: it is prose."""
    words: list[tuple[str, str]] = []
    rest = line.strip()
    while rest:
        word, _, tail = rest.partition(" ")
        match = WORD.match(word)
        if match is None:
            return None
        name, value = match.group(1), match.group(2) or ""
        if name in TO_END_OF_LINE and not (name == "tools" and value.isdigit()):
            if not value or (name == "tools" and not re.match(r"\d+:", value)):
                return None
            return [*words, (name, rest[len(name) + 1 :].strip())]
        form = NUMBER if name == "tools" else FORMS.get(name)
        if form is None or not re.fullmatch(form, value):
            return None
        words.append((name, value))
        rest = tail.strip()
    return words or None


def build_turn(words: list[tuple[str, str]]) -> FakeTurn:
    turn = FakeTurn()
    size = next((int(value) for name, value in words if name == "size"), 5)
    for name, value in words:
        content = build_content(name, value, size)
        if content is not None:
            turn.content += content
        elif name == "rounds":
            turn.rounds = int(value)
        elif name == "loop":
            turn.rounds = None
        else:
            turn.options[name] = value
    if turn.rounds is None and not turn.content:
        turn.content.append(("tool", "bash", "true"))
    return turn


def build_content(name: str, value: str, size: int) -> list[Content] | None:
    """Return the content that a directive adds to the answer; None: it adds none."""
    match name:
        case "text" | "think":
            return [(name, (delta_of(size),) * int(value))]
        case "say":
            return [("text", tuple(re.findall(r"\S+\s*", value)))]
        case "big":
            return [("text", ("x" * int(value),))]
        case "unicode":
            return [("text", UNICODE)]
        case "surrogate":
            return [("text", ("a\ud83db",))]
        case "tool":
            tool, _, arg = value.partition(":")
            return [("tool", tool, arg)]
        case "read":
            return [("tool", "read", value)]
        case "tools":
            count, _, command = value.partition(":")
            return [("tool", "bash", command or "true")] * int(count)
        case "badargs":
            return [("tool", "bash", None)]
        case "empty":
            return []
        case _:
            return None


def delta_of(size: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return (letters * (size // 26 + 1))[: max(size - 1, 0)] + " "


def pick_turn(turns: list[FakeTurn], index: int) -> FakeTurn:
    """Return the turn for the model call with that index after the user message."""
    for turn in turns:
        if turn.rounds is None or index < turn.rounds:
            return turn
        index -= turn.rounds
    return FakeTurn(content=[("text", ("done",))])


def turn_for(prompt: str, index: int) -> FakeTurn:
    """Return the scripted turn for a prompt; without script, repeat the prompt, then "done"."""
    turns = parse_script(prompt)
    if turns is not None:
        return pick_turn(turns, index)
    words = tuple(re.findall(r"\S+\s*|\s+", prompt)) or ("(empty)",)
    return FakeTurn(content=[("text", words if index == 0 else ("done",))])
