"""Decodes bytes of a terminal into keys, without I/O: any split of the bytes gives the same keys,
except that `flush` (after a pause) decides that an escape character was the Esc key.
"""

from __future__ import annotations

import codecs

from msgspec import Struct

MAX_SEQUENCE = 4096
"""Maximum bytes of a reply of the terminal; longer ones are dropped."""
MAX_PASTE = 16 * 1024 * 1024
PASTE_END = b"\x1b[201~"


class KeyPress(Struct, frozen=True):
    """One key: `ctrl+a`, `alt+enter`, `up`. `text` and `paste` carry typed and pasted text, `reply`
    a reply of the terminal; `focus` and `blur` report its focus."""

    name: str
    text: str = ""

    def letters(self) -> list[KeyPress]:
        """Return one key per letter: those typed fast arrive together."""
        return [KeyPress("text", letter) for letter in self.text] if self.name == "text" else [self]


_CONTROL = {
    0x00: "ctrl+space", 0x08: "ctrl+h", 0x09: "tab", 0x0A: "ctrl+j", 0x0D: "enter",
    0x1C: "ctrl+\\", 0x1D: "ctrl+]", 0x1E: "ctrl+^", 0x1F: "ctrl+_", 0x7F: "backspace",
}  # fmt: skip
_FINAL = {
    "A": "up", "B": "down", "C": "right", "D": "left", "E": "begin", "F": "end", "H": "home",
    "P": "f1", "Q": "f2", "R": "f3", "S": "f4", "Z": "shift+tab",
}  # fmt: skip
_TILDE = {
    1: "home", 2: "insert", 3: "delete", 4: "end", 5: "pageup", 6: "pagedown", 7: "home", 8: "end",
    11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5", 17: "f6", 18: "f7", 19: "f8", 20: "f9",
    21: "f10", 23: "f11", 24: "f12",
}  # fmt: skip
_NAMED = {9: "tab", 13: "enter", 27: "esc", 32: "space", 127: "backspace", 57414: "enter"}


class KeyDecoder:
    """Converts bytes to keys as they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._paste: bytearray | None = None
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def waits(self) -> bool:
        """True after an escape character whose meaning depends on the next bytes."""
        return bool(self._held) and self._paste is None

    def feed(self, data: bytes) -> list[KeyPress]:
        keys: list[KeyPress] = []
        self._held += data
        while self._held:
            used = self._take(keys)
            if not used:
                break
            del self._held[:used]
        return _together(keys)

    def flush(self) -> list[KeyPress]:
        """Return the key that the held bytes are by themselves, if any; call after a pause."""
        if self._paste is not None or not self._held:
            return []
        held = bytes(self._held)
        self._held.clear()
        if held == b"\x1b":
            return [KeyPress("esc")]
        if held == b"\x1b\x1b":
            return [KeyPress("alt+esc")]
        if len(held) == 2:
            return [KeyPress(f"alt+{chr(held[1])}")]
        return []  # a reply that was cut off

    # --- one key: the bytes it took, 0 when it is not whole ----------------------------------

    def _take(self, keys: list[KeyPress]) -> int:
        if self._paste is not None:
            return self._take_paste(keys)
        if self._held[0] == 0x1B:
            return self._take_escape(keys)
        if self._held[0] < 0x20 or self._held[0] == 0x7F:
            self._end_letters(keys)
            keys.append(KeyPress(_control(self._held[0])))
            return 1
        end = next((i for i, byte in enumerate(self._held) if byte < 0x20 or byte == 0x7F), None)
        text = self._letters.decode(bytes(self._held[:end]), final=end is not None)
        if text:
            keys.append(KeyPress("text", text))
        return len(self._held) if end is None else end

    def _end_letters(self, keys: list[KeyPress]) -> None:
        if torn := self._letters.decode(b"", final=True):
            keys.append(KeyPress("text", torn))

    def _take_paste(self, keys: list[KeyPress]) -> int:
        assert self._paste is not None
        end = self._held.find(PASTE_END)
        if end < 0:
            # The end may have arrived in part: keep what could be its beginning.
            used = max(0, len(self._held) - len(PASTE_END) + 1)
            self._keep_paste(used)
            return used
        self._keep_paste(end)
        text = self._paste.decode("utf-8", "replace")
        keys.append(KeyPress("paste", text.replace("\r\n", "\n").replace("\r", "\n")))
        self._paste = None
        return end + len(PASTE_END)

    def _keep_paste(self, size: int) -> None:
        assert self._paste is not None
        self._paste += self._held[: min(size, MAX_PASTE - len(self._paste))]

    def _take_escape(self, keys: list[KeyPress]) -> int:
        self._end_letters(keys)
        held = self._held
        if len(held) < 2:
            return 0
        match held[1]:
            case 0x5B:  # [
                return self._take_csi(keys)
            case 0x4F:  # O
                if len(held) < 3:
                    return 0
                if name := _FINAL.get(chr(held[2])):
                    keys.append(KeyPress(name))
                return 3
            case 0x5D | 0x50 | 0x5F:  # ] P _
                return self._take_string(keys)
            case 0x1B:
                if len(held) < 3:
                    return 0
                keys.append(KeyPress("esc"))
                return 1
            case byte if byte < 0x20 or byte == 0x7F:
                keys.append(KeyPress(f"alt+{_control(byte)}"))
                return 2
            case byte:
                return self._take_alt(keys, byte)

    def _take_alt(self, keys: list[KeyPress], byte: int) -> int:
        size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        if len(self._held) < 1 + size:
            return 0
        letter = self._held[1 : 1 + size].decode("utf-8", "replace")
        keys.append(KeyPress(f"alt+{letter}"))
        return 1 + size

    def _take_string(self, keys: list[KeyPress]) -> int:
        """Take an OSC, DCS or APC sequence up to its end, BEL or ST."""
        ends = ((self._held.find(b"\x07"), 1), (self._held.find(b"\x1b\\", 2), 2))
        end, size = min((place for place in ends if place[0] >= 0), default=(-1, 0))
        if end >= 0:
            keys.append(KeyPress("reply", self._held[1:end].decode("latin-1")))
            return end + size
        if len(self._held) > MAX_SEQUENCE:
            return len(self._held)
        return 0

    def _take_csi(self, keys: list[KeyPress]) -> int:
        for end in range(2, len(self._held)):
            byte = self._held[end]
            if 0x40 <= byte <= 0x7E:
                body = self._held[2:end].decode("latin-1")
                self._csi(keys, body, chr(byte))
                return end + 1
            if not 0x20 <= byte <= 0x3F:
                return end  # interrupted by another character
        return len(self._held) if len(self._held) > MAX_SEQUENCE else 0

    def _csi(self, keys: list[KeyPress], body: str, final: str) -> None:
        if final == "~" and body == "200":
            self._paste = bytearray()
        elif not body and final in "IO":
            keys.append(KeyPress("focus" if final == "I" else "blur"))
        elif body[:1] in ("?", ">", "<", "="):
            keys.append(KeyPress("reply", f"[{body}{final}"))
        elif (key := _csi_key(body, final)) is not None:
            keys.append(key)


def _control(byte: int) -> str:
    return _CONTROL.get(byte) or f"ctrl+{chr(byte + 0x60)}"


def _csi_key(body: str, final: str) -> KeyPress | None:
    groups = [group.split(":") for group in body.split(";")]
    numbers = [int(group[0]) if group[0].isdecimal() else 1 for group in groups]
    modifiers = numbers[1] if len(numbers) > 1 else 1
    if len(groups) > 1 and len(groups[1]) > 1 and groups[1][1] == "3":
        return None  # a key was released
    if final == "u":
        return _code_key(numbers[0], modifiers)
    if final == "~":
        if numbers[0] == 27 and len(numbers) > 2:  # modifyOtherKeys
            return _code_key(numbers[2], modifiers)
        name = _TILDE.get(numbers[0])
    else:
        name = _FINAL.get(final)
    return KeyPress(_with_modifiers(name, modifiers)) if name else None


def _code_key(code: int, modifiers: int) -> KeyPress | None:
    bits = max(0, modifiers - 1)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000 or 57344 <= code <= 63743 and code not in _NAMED:
        return None
    name = _NAMED.get(code) or chr(code)
    if not bits & ~1:  # nothing, or Shift alone
        if name == "space":
            return KeyPress("text", " ")
        if code not in _NAMED:
            return KeyPress("text", name.upper() if bits else name) if name.isprintable() else None
    if code not in _NAMED:
        name = name.lower()
    return KeyPress(_with_modifiers(name, modifiers))


def _with_modifiers(name: str, modifiers: int) -> str:
    bits = max(0, modifiers - 1) & 0b111
    words = [word for bit, word in ((4, "ctrl"), (2, "alt"), (1, "shift")) if bits & bit]
    return "+".join([*words, name])


def _together(keys: list[KeyPress]) -> list[KeyPress]:
    """Merge adjacent text keys, as a fast typist or an old terminal's paste sends them."""
    merged: list[KeyPress] = []
    for key in keys:
        if key.name == "text" and merged and merged[-1].name == "text":
            merged[-1] = KeyPress("text", merged[-1].text + key.text)
        else:
            merged.append(key)
    return merged
