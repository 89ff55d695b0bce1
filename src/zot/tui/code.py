"""Syntax highlighting, line by line as code is written. pygments is loaded with the first block."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from zot.tui.cells import Span, clean, joined

if TYPE_CHECKING:
    from pygments.lexer import Lexer

MAX_LINE = 2_000
"""Maximum characters; longer lines stay without colours."""
MAX_STATES = 100
"""Maximum nested states of a lexer carried from line to line."""
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

    def __init__(self, language: str = "", *, path: str = "") -> None:
        """`language`: a name; `path`: a file, whose name tells the language."""
        self._lexer = _lexer_for(path.rpartition("/")[2]) if path else _lexer_of(language)
        self._stack = ["root"]
        """States of the lexer at the end of the last line."""
        self._known: dict[object, str] = {}

    def line(self, text: str, *, last: bool = True) -> list[Span]:
        """Return the line in colour. Not `last`: it is incomplete and will be passed again."""
        text = clean(text)
        if self._lexer is None or len(text) > MAX_LINE:
            return [("", text)]
        stack = list(self._stack)
        spans = [(self._style(kind), value.replace("\n", "")) for kind, value in self._tokens(text)]
        if not last:
            self._stack = stack
        return list(joined(spans))

    def _tokens(self, text: str) -> list[tuple[object, str]]:
        """Run the lexer from the state in which the last line ended, if it has such states."""
        from pygments import lexer as kinds

        lexer = self._lexer
        assert lexer is not None
        text = f"{text}\n"
        is_extended = isinstance(lexer, kinds.ExtendedRegexLexer)
        if isinstance(lexer, kinds.RegexLexer) and not is_extended:
            context = kinds.LexerContext(text, 0, list(self._stack))
            try:
                # This method of the extended lexer works on the tables of every lexer of its kind.
                tokens = kinds.ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context)  # type: ignore[arg-type]
                drawn: list[tuple[object, str]] = [(kind, value) for _, kind, value in tokens]
            except (TypeError, KeyError):  # a lexer with functions or states of its own
                return list(lexer.get_tokens(text))
            self._stack = context.stack[:MAX_STATES]
            return drawn
        return list(lexer.get_tokens(text))

    def _style(self, kind: object) -> str:
        if kind not in self._known:
            self._known[kind] = _style(str(kind))
        return self._known[kind]


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
def _lexer_for(name: str) -> Lexer | None:
    """Return the lexer for a file of that name."""
    from pygments import lexers, util

    try:
        return lexers.get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except util.ClassNotFound:
        return None


def _style(kind: str) -> str:
    name = kind.removeprefix("Token.")
    while name:
        if name in _STYLES:
            return _STYLES[name]
        name = name.rpartition(".")[0]
    return ""
