"""Syntax highlighting, line by line as code is written. pygments is loaded with the first block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from zot.tui.cells import Span, clean, joined

if TYPE_CHECKING:
    from pygments.lexer import Lexer

MAX_LINE = 2_000
"""Maximum characters; longer lines stay without colours."""
_STYLES = {
    "Keyword.Type": "tok.type",
    "Keyword": "tok.keyword",
    "Literal.String": "tok.string",
    "Literal.Number": "tok.number",
    "Comment": "tok.comment",
    "Name.Builtin": "tok.type",
    "Name.Class": "tok.name",
    "Name.Decorator": "tok.name",
    "Name.Function": "tok.name",
    "Name.Tag": "tok.keyword",
    "Name.Attribute": "tok.name",
    "Operator.Word": "tok.keyword",
    "Generic.Inserted": "add",
    "Generic.Deleted": "del",
    "Generic.Subheading": "hunk",
    "Generic.Heading": "hunk",
    "Generic.Prompt": "tok.comment",
}


class Highlighter:
    """Colours one line after the other; open constructs continue in the next line."""

    def __init__(self, language: str) -> None:
        self._lexer = _lexer_of(language)
        self._stack: tuple[str, ...] = ("root",)
        self._known: dict[object, str] = {}

    def line(self, text: str, *, last: bool = True) -> list[Span]:
        """Return the line in colour. Not `last`: it is incomplete and will be passed again."""
        text = clean(text)
        if self._lexer is None or len(text) > MAX_LINE:
            return [("", text)]
        stack = self._stack
        spans = list(joined(self._spans(text)))
        if not last:
            self._stack = stack
        return spans

    def _spans(self, text: str) -> Iterator[Span]:
        for kind, value in self._tokens(text + "\n"):
            value = value.replace("\n", "")
            if value:
                style = self._known.get(kind)
                if style is None:
                    style = self._known[kind] = _style(str(kind))
                yield style, value

    def _tokens(self, text: str) -> Iterator[tuple[object, str]]:
        states = getattr(self._lexer, "_tokens", None)
        if not isinstance(states, dict) or "root" not in states or _is_extended(self._lexer):
            assert self._lexer is not None
            yield from self._lexer.get_tokens(text)
            return
        walk = _Walk(self._lexer, states, self._stack)
        yield from walk.tokens(text)
        self._stack = tuple(walk.stack)


class _Walk:
    """pygments' own state machine, but one that exposes its final stack, so that the next line can
    continue in the middle of a comment or a long string."""

    def __init__(self, lexer: Any, states: dict[str, Any], stack: tuple[str, ...]) -> None:
        self._lexer = lexer
        self._states = states
        self.stack = [name for name in stack if name in states] or ["root"]

    def tokens(self, text: str) -> Iterator[tuple[object, str]]:
        position = 0
        while position < len(text):
            match, action, change = self._rule(text, position)
            if match is None:
                if text[position] == "\n":
                    self.stack = ["root"]
                yield "Text", text[position]
                position += 1
                continue
            if action is not None:
                yield from self._act(action, match)
            position = match.end()
            if change is not None:
                self._change(change)

    def _rule(self, text: str, position: int) -> tuple[Any, Any, Any]:
        for matches, action, change in self._states[self.stack[-1]]:
            match: Any = matches(text, position)
            if match and (match.end() > position or change is not None or action is not None):
                return match, action, change
        return None, None, None

    def _act(self, action: Any, match: Any) -> Iterator[tuple[object, str]]:
        if isinstance(action, Callable):  # type: ignore[arg-type]  # a token type is none
            for _, kind, value in action(self._lexer, match):
                yield kind, value
        else:
            yield action, match.group()

    def _change(self, change: Any) -> None:
        if isinstance(change, tuple):
            for state in change:
                self._change(state)
        elif isinstance(change, int):
            del self.stack[change if abs(change) < len(self.stack) else 1 :]
        elif change == "#pop":
            del self.stack[max(1, len(self.stack) - 1) :]
        elif change == "#push":
            self.stack.append(self.stack[-1])
        else:
            self.stack.append(change)
        del self.stack[100:]


@lru_cache(maxsize=32)  # lookup takes longer than colouring a line
def _lexer_of(language: str) -> Lexer | None:
    if not language:
        return None
    from pygments import lexers, util  # few texts have code to colour

    try:
        return lexers.get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except util.ClassNotFound:
        return None


@lru_cache(maxsize=32)
def _is_extended(lexer: object) -> bool:
    from pygments import lexer as kinds

    is_plain = isinstance(lexer, kinds.RegexLexer)
    return isinstance(lexer, kinds.ExtendedRegexLexer) or not is_plain


def _style(kind: str) -> str:
    name = kind.removeprefix("Token.")
    while name:
        if name in _STYLES:
            return _STYLES[name]
        name = name.rpartition(".")[0]
    return ""
