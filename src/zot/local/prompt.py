"""Builds the prompt of a small model: identity, tools, a few examples, and the conversation as
plain turns. Short, because reading tokens is slow; stable, so that its prefix can be cached.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from zot.core.agent import IDENTITY
from zot.local.form import Form, flat_call
from zot.provider import types

WHO = """\
You are zot, a coding agent that runs on this computer. You work in the user's current directory."""
HOW = """\
To act, answer with one JSON object and nothing else:
{tools}
You then get the result. When nothing is left to do, or for questions and small talk, answer in \
plain text, short.
Do only what was asked. Do not change files for a question."""
NAMED = "Your name is zot, and no company made you."

EXAMPLES: tuple[Example, ...] = (
    ("what is in main.c?", "read", '{"tool":"read","path":"main.c"}'),
    ("make b.txt with the text ok", "write", '{"tool":"write","path":"b.txt","content":"ok\\n"}'),
    (
        "in x.py change n = 1 to n = 2",
        "edit",
        '{"tool":"edit","path":"x.py","old":"n = 1","new":"n = 2"}',
    ),
    ("who are you?", "", "I am zot, a coding agent running on your computer. What shall I do?"),
    ("count the words of a.txt", "bash", '{"tool":"bash","command":"wc -w a.txt"}'),
    ("[bash result]\n42 a.txt\n{reminder}", "bash", "a.txt has 42 words."),
)
"""Examples for a model that follows instructions; the last one shows how to use a result."""
REMINDER = "That was for: {request}\nNext step as JSON, or the answer in words if done."
MAX_REQUEST = 300
"""Characters of the request repeated after each result: small models forget it."""
MAX_EXTRA = 2_000
"""Characters of the user's own instructions (AGENTS.md, --system-prompt): about 500 tokens."""
MAX_RESULT = 3_000
"""Characters of one tool result: a small model reads slowly and forgets the middle anyway."""


def system_text(system: str, forms: Mapping[str, Form]) -> str:
    """Return the short prompt plus the user's additions to the long one."""
    tools = "\n".join(form.line() for form in forms.values())
    parts = [WHO, HOW.format(tools=tools), NAMED]
    if extra := users_part(system):
        parts.append(f"From the user:\n{extra}")
    return "\n".join(parts)


def users_part(system: str) -> str:
    """Return the system prompt without zot's identity text and the working directory line."""
    text = system.strip().removeprefix(IDENTITY.strip())
    head, mark, _ = text.rpartition("Current working directory: ")
    return shorten((head if mark else text).strip(), MAX_EXTRA)


def turns(
    messages: Iterable[types.Message], forms: Mapping[str, Form], examples: Iterable[Example] = ()
) -> tuple[types.Message, ...]:
    """Return examples and conversation as alternating user and assistant turns of plain text."""
    joined = _example_turns(examples, forms)
    request = ""
    for message in messages:
        text = _joined(message.content, forms)
        if not text:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if message.role == "tool":
            text = f"{text}\n{_reminder(request)}"
        elif role == "user":
            request = text
        if joined and joined[-1].role == role:
            before = joined[-1].content[0]
            assert isinstance(before, types.Text)
            joined[-1] = replace(joined[-1], content=(types.Text(f"{before.text}\n\n{text}"),))
        else:
            joined.append(_plain(role, text))
    return tuple(joined)


def _example_turns(examples: Iterable[Example], forms: Mapping[str, Form]) -> list[types.Message]:
    shown: list[types.Message] = []
    for request, tool, answer in examples:
        if not tool or tool in forms:
            before = shown[-2].content[0] if len(shown) > 1 else types.Text("")
            assert isinstance(before, types.Text)
            asked = request.replace("{reminder}", _reminder(before.text))
            shown += [_plain("user", asked), _plain("assistant", answer)]
    return shown


def _reminder(request: str) -> str:
    return REMINDER.format(request=shorten(request, MAX_REQUEST))


def _text(block: types.Block, forms: Mapping[str, Form]) -> str:
    match block:
        case types.Text():
            return block.text
        case types.Image():
            return "[an image; this model cannot see it]"
        case types.Reasoning():
            return ""
        case types.ToolCall():
            return flat_call(block, forms)
        case types.ToolResult():
            shown = _joined(block.content, forms)
            word = "failed" if block.is_error else "result"
            return f"[{block.name or 'tool'} {word}]\n{shorten(shown, MAX_RESULT) or '(no output)'}"


def _joined(blocks: Iterable[types.Block], forms: Mapping[str, Form]) -> str:
    return "\n".join(text for block in blocks if (text := _text(block, forms)))


def _plain(role: str, text: str) -> types.Message:
    return types.Message("assistant" if role == "assistant" else "user", (types.Text(text),), 0.0)


def shorten(text: str, limit: int) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[{len(text) - limit} characters left out]\n{text[-tail:]}"


# --- examples for tiny models -----------------------------------------------------------------
#
# Tiny models do not follow instructions; they copy the nearest example. No benchmark request is
# among the examples.

Example = tuple[str, str, str]
"""Request, tool (empty: none), and correct answer."""

SHOWN = 8


def _example(request: str, answer: str | dict[str, str]) -> Example:
    if isinstance(answer, str):
        return request, "", answer
    return request, answer["tool"], msgspec.json.encode(answer).decode()


BANK: tuple[Example, ...] = tuple(
    _example(*row)
    for row in msgspec.json.decode(Path(__file__).with_name("examples.json").read_bytes())
)


def nearest(request: str, count: int = SHOWN) -> tuple[Example, ...]:
    """Return the most similar examples, the best one last: next to the answer."""
    wanted = _words(request)
    ranked = sorted(BANK, key=lambda example: _likeness(wanted, _words(example[0])))
    return tuple(ranked[-count:])


def _likeness(wanted: Counter[str], words: Counter[str]) -> float:
    shared = sum(_rarity(word) for word in wanted if word in words)
    return shared / math.sqrt(1 + len(words))


def _rarity(word: str) -> float:
    return math.log(1 + len(BANK) / (1 + _SEEN[word]))


# Matches a file name from its start only: trying every position would take quadratic time.
_FILE = re.compile(r"(?<![\w/-])[\w/-]++(?=\.\w)")


def _words(text: str) -> Counter[str]:
    """Count words without their endings; a file name is replaced by "file", its suffix counts."""
    words = re.findall(r"\.\w+\b|[a-z]+|[0-9]+", _FILE.sub("file", text.lower()))
    return Counter("9" if word.isdigit() else word[:5] for word in words)


_SEEN: Counter[str] = Counter(word for request, _, _ in BANK for word in _words(request))
