"""Text and JSON that any program can read. Texts are not interpreted here.

Half of a surrogate pair comes from models that cut an emoji in two, from clients and from files;
UTF-8 cannot represent it. It is replaced by U+FFFD, here and nowhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, AnyStr, dataclass_transform

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from re import Pattern

MAX_NESTING = 500
"""Maximum nesting of arrays and objects in one JSON text. Python's own limit depends on its
version, from a thousand levels to as many as the stack holds."""
LONGEST_INTEGER = 14_000
"""Maximum size of an integer in bits; Python writes no number of more than 4300 digits."""

_LINE_ENDS = tuple((mark.encode(), b"\\u%04x" % ord(mark)) for mark in "\u2028\u2029\u0085")
_HIGH, _LOW = rb"[89abAB][0-9a-fA-F]{2}", rb"[c-fC-F][0-9a-fA-F]{2}"
_BRACKETS_OR_STRING = rb'[\[{]+|[\]}]+|"[^"\\]*(?:\\.[^"\\]*)*"?'
_LONE_HALF = (
    rb"\\u[dD](?:" + _HIGH + rb"(?!\\u[dD]" + _LOW + rb")"
    rb"|(?<!\\u[dD]" + _HIGH + rb"\\u[dD])" + _LOW + rb")"
)
plain_json = msgspec.json.Encoder().encode
"""Like `encode_json`, but raises ValueError or OverflowError for half a surrogate pair or too long
a number."""


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Frozen(Struct, frozen=True):
    """Base of immutable structs: nearly every struct."""


def whole_characters(text: str) -> str:
    """Replace each lone half of a surrogate pair; join two that belong together."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to all scalars and field names of a JSON value."""
    if isinstance(value, dict):
        return {change(key): mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return change(value)


def whole_value(value: Any) -> Any:
    """Return a JSON value with whole characters only, and with numbers that can be written."""
    return mapped(value, _whole)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole_characters(value)
    long = isinstance(value, int) and value.bit_length() > LONGEST_INTEGER
    return hex(value) if long else value


def whole_escapes(data: bytes) -> bytes:
    """Replace each escaped lone half of a surrogate pair in JSON text (valid UTF-8)."""
    if b"\xff" in data or (b"\\ud" not in data and b"\\uD" not in data):
        return data
    # Once escaped backslashes are replaced, every \u is an escape. UTF-8 never contains 0xff.
    data = _replaced(_LONE_HALF, rb"\\ufffd", data.replace(rb"\\", b"\xff\xff"))
    return data.replace(b"\xff\xff", rb"\\")


def check_nesting(data: bytes) -> None:
    """Refuse JSON that is nested too deeply, even in unused fields.

    Raises:
        RecursionError: it has more than MAX_NESTING levels.
    """
    if len(data) <= MAX_NESTING or data.count(b"[") + data.count(b"{") <= MAX_NESTING:
        return
    depth = 0
    for part in compiled(_BRACKETS_OR_STRING).finditer(data):
        first = data[part.start()]
        if first in b"[{":
            depth += part.end() - part.start()
            if depth > MAX_NESTING:
                raise RecursionError(f"more than {MAX_NESTING} levels of arrays and objects")
        elif first in b"]}":
            depth -= part.end() - part.start()


def prepared(*types: Any) -> None:
    """Have msgspec inspect structs now, while their module loads. If it does so with the first
    value instead, two threads that are first at the same time crash the process."""
    for type in types:
        msgspec.json.Decoder(type)


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON, whatever its texts and numbers are."""
    try:
        return plain_json(value)
    except (ValueError, OverflowError):  # half a pair, or a number that is too long
        return plain_json(whole_value(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,))))


def indented_json(value: Any) -> bytes:
    """Encode a value as indented JSON, for files that people read and change."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def escaped(data: bytes) -> bytes:
    """Escape characters in JSON that some readers treat as the end of a line."""
    for mark, escape in _LINE_ENDS:
        if mark in data:
            data = data.replace(mark, escape)
    return data


def nearest(word: str, words: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the words most similar to `word`, the likeliest first."""
    import difflib  # deferred: only for a mistake

    near = difflib.get_close_matches(word, list(words), most + 2, cutoff)
    near.sort(key=lambda other: sorted(other) != sorted(word))  # swapped letters are most common
    return near[:most]


_OBEYED = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # escape codes, backspaces, a cursor that returns
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # text direction, line separators
    "\ud800-\udfff]"  # lone surrogates, which cannot be written
)


def printable(text: str) -> str:
    """Replace characters that a terminal would interpret; joined emoji and all spaces stay."""
    return _replaced(_OBEYED, "\ufffd", text.replace("\r\n", "\n"))


def _replaced(pattern: AnyStr, by: AnyStr, text: AnyStr) -> AnyStr:
    return compiled(pattern).sub(by, text)


def compiled(pattern: AnyStr) -> Pattern[AnyStr]:
    """Return the compiled regular expression, made when first needed and cached by `re`."""
    return re.compile(pattern)


def for_terminal(text: str, fd: int = 1) -> str:
    """Return untrusted text for writing to a descriptor: only printable characters for a terminal,
    unchanged for a file or a program.
    """
    return printable(text) if os.isatty(fd) else text


def position_of(text: str) -> int | None:
    """Parse a position in a file or a list; None if it is none or has more than 15 digits."""
    return int(text) if text.isdecimal() and len(text) < 16 else None


def positive(text: str) -> float:
    """Parse a number above zero; return 0 if it is none."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 < value < 1e15 else 0.0


def cookie_of(header: str, name: str) -> str:
    """Return a cookie from a Cookie header; empty if it is missing. http.cookies is not used: it
    takes quadratic time for a quoted cookie."""
    for part in header.split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""


def size_text(count: float) -> str:
    """Format a number of bytes for people."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


# --- secrets ---------------------------------------------------------------------------------

SECRET_GONE = "[secret removed]"


def url_passwords(text: str) -> Iterator[str]:
    """Yield the passwords of all addresses in a text, like `http://user:password@host`, as written
    and decoded."""
    for password in compiled(r"://[^/\s:@]*:([^/\s@]+)@").findall(text) if "://" in text else ():
        yield password
        if "%" in password:
            from urllib.parse import unquote  # slow to load

            yield unquote(password)


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, SECRET_GONE)
    return text


class SecretFilter:
    """Removes secrets from text that comes in pieces: a possible beginning of one is held back
    until the next piece.
    """

    secrets: Sequence[str] = ()
    _threes: tuple[str, ...] = ()
    _ends: tuple[str, ...] = ()
    _held = ""

    def use(self, secrets: Sequence[str]) -> None:
        if secrets is self.secrets:
            return
        self.secrets = secrets
        # Fast path: nearly every piece contains none of these and is passed on unchanged.
        self._threes = tuple({secret[:3] for secret in secrets})
        self._ends = tuple({secret[:length] for secret in secrets for length in (1, 2)})

    def feed(self, text: str) -> str:
        """Return the text that can be shown now; the same object if nothing is removed."""
        if not self._held and not text.endswith(self._ends):
            for three in self._threes:
                if three in text:
                    break
            else:
                return text
        whole = without_secrets(self._held + text, self.secrets)
        keep = max(_overlap(whole, secret) for secret in self.secrets)
        if not keep:
            self._held = ""
            return text if whole == text else whole
        self._held = whole[-keep:]
        return whole[:-keep]

    def rest(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, secret: str) -> int:
    """Return how many characters at the end of a text are the beginning of a secret."""
    at = text.find(secret[0], max(0, len(text) - len(secret) + 1))
    while at >= 0 and not secret.startswith(text[at:]):
        at = text.find(secret[0], at + 1)
    return len(text) - at if at >= 0 else 0
