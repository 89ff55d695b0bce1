"""Turns addresses and file positions (`src/app.py:12`) into terminal links (OSC 8).

A style's word `href:ADDRESS` is a link; `file:PATH:LINE` becomes one if the file exists when it is
painted. Terminals without links show the text alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

from zot.errors import ConfigError
from zot.tui.cells import Span

EDITORS = {
    "file": "file://{host}{path}",
    "kitty": "file://{host}{path}#{line}",
    "vscode": "vscode://file{path}:{line}",
    "cursor": "cursor://file{path}:{line}",
    "zed": "zed://file{path}:{line}",
    "idea": "idea://open?file={path}&line={line}",
}
"""Address templates by the program that opens a clicked file."""
MAX_KNOWN = 1_000
"""Maximum cached results of looking for a file."""
_TEMPLATE = re.compile(r"[a-z][a-z0-9+.-]*:[!-~]*")
_LINKS = re.compile(
    r"(?P<url>https?://[^\s<>\"'`|\\^{}\[\]]+)"
    r"|(?<![\w./~@+-])(?P<path>[\w./~@+-]*[\w./-]\.\w{1,12}|[\w./~@+-]+/[\w.@+-]+)"
    r":(?P<line>\d{1,7})(?![\w.])"
)
_TRAILING = ".,;:!?)*_~'\""
"""Trailing characters that belong to the sentence, not to the address."""


class FileLinks:
    """Finds the address of a file position, if the file exists."""

    def __init__(self, cwd: str, host: str, template: str) -> None:
        self._cwd = cwd
        self._host = host
        self._template = template
        self._known: dict[str, str] = {}

    def address(self, word: str) -> str:
        """Return the address for a style's word `file:PATH:LINE`; empty: there is no such file."""
        path, _, line = unquote(word.removeprefix("file:")).rpartition(":")
        full = self._known.get(path)
        if full is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            full = self._known[path] = self._found(path)
        if not full:
            return ""
        filled = {"{path}": quote(full), "{line}": line or "1", "{host}": quote(self._host)}
        address = self._template
        for name, value in filled.items():
            address = address.replace(name, value)
        return address

    def _found(self, path: str) -> str:
        path = os.path.expanduser(path) if path.startswith("~/") else path  # noqa: PTH111
        full = os.path.normpath(os.path.join(self._cwd, path))  # noqa: PTH118  texts, not Paths
        try:
            return full if os.path.exists(full) else ""  # noqa: PTH110
        except ValueError:
            return ""


def template_of(wanted: str) -> str:
    """Return the address template of a setting: a name of `EDITORS`, or
    `scheme:...{path}...{line}`; empty for `off`.

    Raises:
        ConfigError: the setting is neither.
    """
    if wanted == "off":
        return ""
    template = EDITORS.get(wanted, wanted)
    if not _TEMPLATE.fullmatch(template) or "{path}" not in template:
        known = ", ".join(("off", *EDITORS))
        raise ConfigError(
            f"file_links: {wanted!r} is none of {known}, and no address with {{path}} in it"
        )
    return template


def linked(style: str, text: str, *, shown: str = "") -> list[Span]:
    """Return the text with addresses and file positions as links; `shown` is an address's style."""
    if ":" not in text:
        return [(style, text)]
    return [span for span in _spans(style, text, shown) if span[1]]


def _spans(style: str, text: str, shown: str) -> Iterator[Span]:
    end = 0
    for match in _LINKS.finditer(text):
        yield style, text[end : match.start()]
        end = match.end()
        if match["url"] is None:
            yield _styled(style, file_word(match["path"], match["line"])), match[0]
            continue
        address = match[0].rstrip(_TRAILING)
        end = match.start() + len(address)
        if address.isascii() and address.isprintable():
            yield _styled(style, shown, f"href:{address}"), address
        else:
            yield style, address
    yield style, text[end:]


def file_word(path: str, line: object = "") -> str:
    """Return the style word for a file position."""
    return f"file:{quote(path)}:{line}"


def _styled(*words: str) -> str:
    return " ".join(word for word in words if word)
