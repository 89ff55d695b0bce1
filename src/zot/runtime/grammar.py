"""Parses a command line as bash does, with the grammar of tree-sitter.

The result is a flat list: simple commands, and the signs between them. Anything that is more than
words, quotes, redirections and lists (substitutions, variables, loops, functions, here-documents)
has no result, and neither has a text that the grammar and bash might read differently. So a result
means: bash runs these programs with these words, and nothing else.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from zot.text import Frozen, compiled

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_COMMAND = 10_000
"""Longest command in characters that is parsed; nobody reads a longer one before allowing it."""
SIGNS = frozenset(("&&", "||", "|", "|&", ";", "&", "(", ")"))
WRITES = frozenset((">", ">>", ">|", "&>", "&>>"))
DUPLICATES = frozenset((">&", "<&"))
WORDS = frozenset(("word", "number", "string", "raw_string", "concatenation", "simple_expansion"))
TEST_WORDS = frozenset(("test_operator", "[", "]", "!", "=", "==", "!="))
GLOB = "*?["
SPECIAL = "$`;&|<>()\"'\\"
"""Characters that need quotes, a backslash or the grammar's attention to be part of a word."""
RESERVED = frozenset(
    "if then else elif fi case esac for select while until do done in function time coproc "
    "{ } ! [[ ]]".split()
)
"""Words that are no program where a command begins."""


class Word(Frozen):
    """A word after the removal of quotes."""

    text: str
    source: str
    glob: str = ""
    """Pattern for fnmatch; set if bash replaces the word by names of files."""
    tilde: bool = False
    """Bash replaces a `~` in it by a home directory."""


class Redirection(Frozen):
    sign: str
    target: Word


class Simple(Frozen):
    """A simple command."""

    words: tuple[Word, ...]
    assigned: tuple[Word, ...] = ()
    """Assignments before the program, `NAME=VALUE`."""
    redirections: tuple[Redirection, ...] = ()

    @property
    def text(self) -> str:
        """The command without redirections, one space between words."""
        return " ".join(word.source for word in (*self.assigned, *self.words))


Item = Simple | str
"""A simple command, or one of SIGNS."""


class _Unknown(Exception):
    """The command is more than simple commands."""


def parsed(command: str) -> list[Item] | None:
    """Return simple commands and signs in their order; None: bash may do more than they say."""
    if len(command) > MAX_COMMAND or not compiled(r"[\t\n]").sub("", command).isprintable():
        return None  # other blanks and controls: the grammar splits words at some of them
    source = command.encode()
    tree = _parser().parse(source)
    if tree.root_node.has_error:
        return None
    try:
        return _Reader(source).items(tree.root_node)
    except _Unknown:
        return None


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Reader:
    """Turns a tree into the flat list. The nesting of lists, pipelines and redirections in the tree
    differs from bash's; the order of words and signs does not."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._end = 0
        self._items: list[Item] = []
        self._words: list[Word] = []
        self._assigned: list[Word] = []
        self._redirections: list[Redirection] = []

    def items(self, root: Node) -> list[Item]:
        self._walk(root)
        self._gap(len(self._source), is_word=False)
        self._finish()
        return self._items

    def _walk(self, node: Node) -> None:
        match node.type:
            case "program" | "list" | "pipeline" | "redirected_statement" | "command" | "subshell":
                for child in node.children:
                    self._walk(child)
            case "command_name" if node.child_count == 1 and node.children[0].type in WORDS:
                self._walk(node.children[0])
            case "file_redirect":
                self._redirect(node)
            case "variable_assignment" if not self._words:
                self._gap(node.start_byte, is_word=True)
                self._assigned.append(self._assignment(node))
                self._end = node.end_byte
            case "test_command":
                self._test(node)
            case "comment":
                self._comment(node)
            case sign if sign in SIGNS:
                self._gap(node.start_byte, is_word=False)
                self._sign(sign)
                self._end = node.end_byte
            case kind if kind in WORDS:
                self._word(node)
            case _:
                raise _Unknown

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def _gap(self, start: int, *, is_word: bool) -> None:
        """Check the bytes between two tokens; a line end there separates commands."""
        gap = self._source[self._end : start].decode()
        self._end = start
        rest = compiled(r"[ \t]\\\n").sub(" ", gap)
        if rest.strip(" \t\n"):
            raise _Unknown
        if "\n" in rest:
            self._newline()
        elif is_word and not gap and (self._words or self._assigned):
            raise _Unknown  # two words that touch are one for bash

    def _newline(self) -> None:
        if self._words or self._assigned or self._redirections:
            self._sign(";")
        elif self._items and self._items[-1] == ")":
            self._items.append(";")

    def _sign(self, sign: str) -> None:
        self._finish()
        self._items.append(sign)

    def _finish(self) -> None:
        if not (self._words or self._assigned or self._redirections):
            return
        if not self._words or self._words[0].source in RESERVED:
            raise _Unknown
        self._items.append(
            Simple(tuple(self._words), tuple(self._assigned), tuple(self._redirections))
        )
        self._words, self._assigned, self._redirections = [], [], []

    def _comment(self, node: Node) -> None:
        if node.start_byte and self._source[node.start_byte - 1 : node.start_byte] not in (
            b" ", b"\t", b"\n",
        ):  # fmt: skip
            raise _Unknown
        self._gap(node.start_byte, is_word=False)
        self._end = node.end_byte

    def _redirect(self, node: Node) -> None:
        """Read a redirection; the grammar adds the words that follow it to its targets."""
        children = list(node.children)
        self._gap(node.start_byte, is_word=False)
        if children[0].type == "file_descriptor":
            if not self._text(children[0]).isdecimal():
                raise _Unknown
            self._end = children.pop(0).end_byte
        sign, *targets = children
        if sign.type not in WRITES | DUPLICATES | {"<"} or not targets:
            raise _Unknown
        if self._end not in (sign.start_byte, node.start_byte):
            raise _Unknown
        self._end = sign.end_byte
        target = self._value(targets[0])
        if "\n" in self._source[self._end : targets[0].start_byte].decode():
            raise _Unknown
        self._gap(targets[0].start_byte, is_word=False)
        self._end = targets[0].end_byte
        if sign.type in DUPLICATES and not target.text.isdecimal():
            raise _Unknown
        self._redirections.append(Redirection(sign.type, target))
        for word in targets[1:]:
            self._word(word)

    def _test(self, node: Node) -> None:
        """Read `[ ... ]` as the words of the program `[`."""
        if node.children[0].type != "[":
            raise _Unknown
        leaves = list(_test_leaves(node))
        if leaves[-1].type != "]":
            raise _Unknown
        for leaf in leaves:
            self._gap(leaf.start_byte, is_word=True)
            text = self._text(leaf)
            self._words.append(self._value(leaf) if leaf.type in WORDS else Word(text, text))
            self._end = leaf.end_byte

    # --- words -------------------------------------------------------------------------------

    def _word(self, node: Node) -> None:
        self._gap(node.start_byte, is_word=True)
        self._words.append(self._value(node))
        self._end = node.end_byte

    def _assignment(self, node: Node) -> Word:
        """Read `NAME=VALUE` with a plain value; no arrays, no `+=`."""
        source = self._text(node)
        if not compiled(r"[A-Za-z_][A-Za-z0-9_]*=[A-Za-z0-9_.,+-]*").fullmatch(source):
            raise _Unknown
        return Word(source, source)

    def _value(self, node: Node) -> Word:
        if node.type not in WORDS:
            raise _Unknown
        source = self._text(node)
        if compiled(r"\{.*(,|\.\.)").search(source) and "{" in self._bare(node):
            raise _Unknown  # bash may make several words of it
        letters = self._letters(node)
        text = "".join(letter for letter, _ in letters)
        bare = [letter for letter, is_bare in letters if is_bare]
        tilde = bool(compiled(r"(^|[=:])~").search(text)) and "~" in bare
        return Word(text, source, _pattern(letters) if set(GLOB) & set(bare) else "", tilde)

    def _bare(self, node: Node) -> str:
        return "".join(letter for letter, is_bare in self._letters(node) if is_bare)

    def _letters(self, node: Node) -> list[tuple[str, bool]]:
        """Return the letters of a word without quotes, each with whether it was unquoted."""
        text = self._text(node)
        match node.type:
            case "word" | "number":
                return _unquoted(text)
            case "raw_string":
                if len(text) < 2 or "'" in text[1:-1]:
                    raise _Unknown
                return [(letter, False) for letter in text[1:-1]]
            case "string":
                return self._quoted(node)
            case "simple_expansion" if text == "$?":
                return [("0", False)]  # always digits
            case "concatenation":
                return self._joined(node.children)
            case _:
                raise _Unknown

    def _quoted(self, node: Node) -> list[tuple[str, bool]]:
        """Return the letters between double quotes."""
        text = self._text(node)
        inner = compiled(r"\\[\"\\$`]|\$\?|[^\"\\$`]|\\(?![\n\"\\$`])")
        pieces = inner.findall(text[1:-1])
        if len(text) < 2 or text[-1] != '"' or "".join(pieces) != text[1:-1]:
            raise _Unknown
        plain = ("0" if piece == "$?" else piece[-1] for piece in pieces)
        return [(letter, False) for letter in plain]

    def _joined(self, parts: list[Node]) -> list[tuple[str, bool]]:
        letters: list[tuple[str, bool]] = []
        for before, part in zip([None, *parts], parts, strict=False):
            if before is not None and before.end_byte != part.start_byte:
                raise _Unknown
            letters += self._letters(part)
        return letters


def _unquoted(text: str) -> list[tuple[str, bool]]:
    letters: list[tuple[str, bool]] = []
    rest = iter(text)
    for letter in rest:
        if letter == "\\":
            escaped = next(rest, "\n")
            if escaped == "\n":
                raise _Unknown
            letters.append((escaped, False))
        elif letter in SPECIAL or letter.isspace():
            raise _Unknown
        else:
            letters.append((letter, True))
    if text.startswith("#"):
        raise _Unknown
    return letters


def _pattern(letters: list[tuple[str, bool]]) -> str:
    escaped = (f"[{x}]" if x in GLOB and not is_bare else x for x, is_bare in letters)
    return "".join(escaped)


def _test_leaves(node: Node) -> list[Node]:
    if node.type in WORDS | TEST_WORDS:
        return [node]
    if node.type not in ("test_command", "unary_expression", "binary_expression"):
        raise _Unknown
    return [leaf for child in node.children for leaf in _test_leaves(child)]
