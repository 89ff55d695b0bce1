"""Theme, keys, title and notifications of the terminal. The files are `themes/NAME.json` and
`keys.json` in zot's home directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct

from zot.errors import ConfigError
from zot.extensions.manifest import themes
from zot.text import printable
from zot.tui.cells import clean
from zot.tui.keymap import keymap_with
from zot.tui.terminal import through_tmux
from zot.tui.theme import Theme, is_light, theme_of
from zot.tui.themes import DARK, DARK_256, LIGHT, LIGHT_256

MAX_FILE = 1_000_000
MAX_NOTIFICATION = 200
FIRST_VTE_WITH_PROGRESS = 7900
DEFAULT_THEME = "auto"
_FEW_COLOURS = 256


def built_in(colours: int) -> dict[str, dict[str, object]]:
    """Return the shipped themes for a terminal with that many colours."""
    few = colours <= _FEW_COLOURS
    dark, light = DARK | (DARK_256 if few else {}), LIGHT | (LIGHT_256 if few else {})
    return {
        "terminal": {},
        "dark": {"styles": dark},
        "light": {"styles": light},
        "auto": {"dark": dark, "light": light},
    }


THEME_HELP = {
    "auto": "dark or light, as the terminal is",
    "terminal": "the terminal's own sixteen colours",
    "dark": "for a dark background",
    "light": "for a light background",
}


def theme_names(home: str) -> list[str]:
    """Return the names of all themes: shipped, the user's, and those of extensions."""
    return list(dict.fromkeys([*THEME_HELP, *sorted(_theme_files(Path(home)))]))


class ThemeChoice(Struct, frozen=True):
    """A theme's versions for a dark and for a light background."""

    dark: Theme
    light: Theme
    unknown: Theme
    """For a terminal that does not tell its background."""

    @property
    def depends(self) -> bool:
        return self.dark != self.light

    def after(self, reply: str, present: Theme) -> Theme | None:
        """Return the theme to use after a reply of the terminal, or None to keep the present one.
        The reply to the device query says that none about the background will come."""
        light = is_light(reply)
        if light is not None:
            return self.light if light else self.dark
        is_device_reply = reply.startswith("[?") and reply.endswith("c")  # all terminals send it
        return self.unknown if is_device_reply and present not in (self.dark, self.light) else None


def find_theme(name: str | None, home: str, environ: Mapping[str, str]) -> ThemeChoice:
    """Return the theme of that name. None: the default one, which keeps the terminal's own colours
    until the terminal tells whether it is dark or light.

    Raises:
        ConfigError: there is none, or its file cannot be used.
    """
    depth = colours_of(environ)
    shipped = built_in(depth)
    is_default, name = name is None, name or DEFAULT_THEME
    table = shipped.get(name)
    if table is None:
        files = _theme_files(Path(home))
        if name not in files:
            known = ", ".join([*shipped, *sorted(files)])
            raise ConfigError(f"there is no theme {name!r}; there is: {known}")
        file = files[name]
        table = _table(file) if isinstance(file, Path) else file
    styles = _part(table, "styles", name)
    colour = not environ.get("NO_COLOR")

    def made(part: str) -> Theme:
        return theme_of({**styles, **_part(table, part, name)}, colours=depth, colour=colour)

    dark, light = made("dark"), made("light")
    told = background_of(environ)
    unknown = Theme(colour=colour) if is_default else dark
    return ThemeChoice(dark, light, light if told == "light" else dark if told else unknown)


def background_of(environ: Mapping[str, str]) -> Literal["", "dark", "light"]:
    """Return the background that some terminals name in a variable; empty: unknown."""
    number = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not number.isdecimal():
        return ""
    return "light" if int(number) in (7, *range(9, 16)) else "dark"


def _theme_files(home: Path) -> dict[str, Path | dict[str, object]]:
    """Return the user's themes and those of extensions; the user's take precedence."""
    own = {path.stem: path for path in (home / "themes").glob("*.json")}
    return themes(home) | own


def _part(table: Mapping[str, object], part: str, name: str) -> Mapping[str, object]:
    value = table.get(part, {})
    if not isinstance(value, dict):
        raise ConfigError(f"the theme {name!r}: {part!r} must be an object")
    return value


def colours_of(environ: Mapping[str, str]) -> int:
    """Return how many colours the terminal can show."""
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    return 256


def find_keymap(home: str) -> dict[str, str]:
    """Return the keymap with the user's changes.

    Raises:
        ConfigError: the file cannot be used.
    """
    path = Path(home) / "keys.json"
    return keymap_with(_table(path) if path.is_file() else {})


def _table(path: Path) -> dict[str, object]:
    try:
        data = path.read_bytes()[:MAX_FILE]
        return msgspec.json.decode(data, type=dict[str, object])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} cannot be used: {error}") from error


Activity = Literal["idle", "busy", "waiting"]
_TITLE_MARKS: dict[Activity, str] = {"idle": "", "busy": "* ", "waiting": "? "}
_PROGRESS: dict[Activity, str] = {"idle": "0", "busy": "3", "waiting": "4"}


def place(cwd: str) -> str:
    """Return the sequences that set the terminal's title and its directory for new tabs."""
    return f"{title(cwd)}\x1b]7;file://{quote(cwd, safe='/')}\x1b\\"


def title(cwd: str, activity: Activity = "idle") -> str:
    """Return the sequence for the title: `* zot - name` while it works, `?` while it waits."""
    name = printable(Path(cwd).name or "/").replace("\n", " ")
    return f"\x1b]2;{_TITLE_MARKS[activity]}zot - {name}\x1b\\"


def progress(activity: Activity, environ: Mapping[str, str]) -> str:
    """Return the sequence for the progress in the terminal's tab (OSC 9;4), where it has one;
    others would take it for a message."""
    vte = environ.get("VTE_VERSION", "")
    knows = (
        "WT_SESSION" in environ
        or "ConEmuPID" in environ
        or environ.get("TERM_PROGRAM") == "ghostty"
        or (vte.isdecimal() and int(vte) >= FIRST_VTE_WITH_PROGRESS)
    )
    if not knows or "TMUX" in environ:
        return ""
    return f"\x1b]9;4;{_PROGRESS[activity]};0\x1b\\"


def notification(text: str, environ: Mapping[str, str]) -> str:
    """Return a bell to call a person back, and a message if the terminal shows such."""
    shown = clean(text).replace("\n", " ").replace(";", ",")[:MAX_NOTIFICATION]
    program = environ.get("TERM_PROGRAM", "")
    if "KITTY_WINDOW_ID" in environ:
        message = f"\x1b]99;;{shown}\x1b\\"
    elif program in ("iTerm.app", "ghostty", "WezTerm"):
        message = f"\x1b]9;{shown}\x1b\\"
    elif "VTE_VERSION" in environ:
        message = f"\x1b]777;notify;zot;{shown}\x1b\\"
    else:
        return "\a"
    if "TMUX" in environ:
        message = through_tmux(message)
    return message + "\a"
