"""Settings from flags, environment, project and user, each with where it came from.

On the start-up path: a file is read only if it exists, and nothing but msgspec is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from zot.errors import ConfigError
from zot.files import locked, read_bytes, write_atomic
from zot.home import home_dir
from zot.provider.types import Json
from zot.settings.flags import LEVEL_WORDS
from zot.settings.trust import is_trusted

Kind = Literal["text", "number", "whole", "switch", "list"]
Source = Literal["flag", "environment", "project", "user", "default"]


class Setting(Struct, frozen=True):
    """One key of config.json."""

    name: str
    kind: Kind
    help: str
    default: Json = None
    env: str = ""
    """Variable that sets it; empty: none does."""
    project: bool = False
    """A project may set it without being trusted."""
    words: tuple[str, ...] = ()
    """The values it may have; empty: any of its kind."""


class Value(Struct, frozen=True):
    value: Json
    source: Source
    where: str = ""
    """The variable or file."""


_SETTINGS = (
    Setting("provider", "text", "Model provider.", "", "ZOT_PROVIDER", True),
    Setting("model", "text", "Model id.", "", "ZOT_MODEL", True),
    Setting("reasoning", "text", "Reasoning level.", "", "ZOT_REASONING", True, ("", *LEVEL_WORDS)),
    Setting("base_url", "text", "Where the provider's API is.", "", "ZOT_BASE_URL"),
    Setting(
        "auto_compact_threshold",
        "whole",
        "Percent of the window that starts a compaction; 0: never.",
        85,
        "ZOT_AUTO_COMPACT_THRESHOLD",
        True,
    ),
    Setting("max_steps", "whole", "Model calls of one prompt.", None, "ZOT_MAX_STEPS"),
    Setting("max_cost", "number", "US dollars of one run.", None, "ZOT_MAX_COST"),
    Setting("max_tokens", "whole", "Tokens of one run.", None, "ZOT_MAX_TOKENS"),
    Setting("max_seconds", "number", "Seconds of one run.", None, "ZOT_MAX_SECONDS"),
    Setting("fallback_models", "list", "Models to try when the first one fails.", []),
    Setting("idle_timeout", "number", "Seconds of silence that end a stream.", None),
    Setting("approve", "list", "Tools that ask before they run.", []),
    Setting("jail", "switch", "Keep tools in the working directory.", False, "ZOT_JAIL"),
    Setting("context_files", "switch", "Read AGENTS.md files.", True),
    Setting("skills", "switch", "Offer skills.", True),
    Setting("extensions", "switch", "Load extensions.", True),
)
SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _SETTINGS}
GO_NAMES = {"jail_by_default": "jail"}
"""What the Go program calls a setting; ours wins where a file has both."""


class Config:
    """The layers of settings, the strongest first. `warnings` says what was not used, and why."""

    def __init__(
        self, cwd: str, flags: Mapping[str, Json] | None = None, *, trusted: bool = False
    ) -> None:
        self.cwd = cwd
        self._trusted = trusted
        self.warnings: list[str] = []
        self._flags = {name: value for name, value in (flags or {}).items() if value is not None}
        self._project = self._read(project_path(cwd), project=True)
        self._user = self._read(user_path())

    def find(self, name: str) -> Value:
        """The value of a setting, and who set it."""
        setting = SETTINGS[name]
        if name in self._flags:
            return Value(self._flags[name], "flag")
        if setting.env and (text := os.environ.get(setting.env)):
            try:
                return Value(parse(setting, text), "environment", setting.env)
            except ConfigError as error:
                raise ConfigError(f"{setting.env}: {error}") from error
        if name in self._project:
            return Value(self._project[name], "project", project_path(self.cwd))
        if name in self._user:
            return Value(self._user[name], "user", user_path())
        return Value(setting.default, "default")

    def __getitem__(self, name: str) -> Json:
        return self.find(name).value

    def others(self) -> Mapping[str, Json]:
        """Keys of the user's file that this version does not know; they are kept as they are."""
        return {name: value for name, value in self._user.items() if name not in SETTINGS}

    def _read(self, path: str, project: bool = False) -> dict[str, Json]:
        try:
            values = _with_our_names(read_file(path))
        except ConfigError as error:
            self.warnings.append(str(error))
            return {}
        if project and values:
            values = self._allowed(path, values)
        kept = {}
        for name, value in values.items():
            if name not in SETTINGS and (near := _near(name)):
                self.warnings.append(f"{path!r}: {name} is no setting; did you mean {near}?")
            if name in SETTINGS and (wrong := mismatch(SETTINGS[name], value)):
                self.warnings.append(f"{path!r}: {name} {wrong}; it is not used")
            else:
                kept[name] = value
        return kept

    def _allowed(self, path: str, values: dict[str, Json]) -> dict[str, Json]:
        refused = [name for name in values if name in SETTINGS and not SETTINGS[name].project]
        if not refused or self._trusted or is_trusted(self.cwd):
            return values
        self.warnings.append(
            f"{path!r} sets {', '.join(sorted(refused))}, which a project may do only in a trusted "
            f"directory; it is not used (to trust it: zot config trust {self.cwd})"
        )
        return {name: value for name, value in values.items() if name not in refused}


def _with_our_names(values: dict[str, Json]) -> dict[str, Json]:
    renamed = {GO_NAMES[name]: value for name, value in values.items() if name in GO_NAMES}
    return renamed | {name: value for name, value in values.items() if name not in GO_NAMES}


# --- files -----------------------------------------------------------------------------------


def user_path() -> str:
    return os.path.join(home_dir(), "config.json")


def project_path(cwd: str) -> str:
    return os.path.join(cwd, ".zot", "config.json")


def read_file(path: str) -> dict[str, Json]:
    """The object in a config file; empty if there is none.

    Raises:
        ConfigError: it cannot be read, or is no JSON object.
    """
    try:
        data = read_bytes(path)
        if data is None or not data.strip():
            return {}
        return msgspec.json.decode(data, type=dict[str, Json])
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"{path!r} cannot be read and is not used: {why}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path!r} cannot be read and is not used: {error}") from error


def change(path: str, edit: Callable[[dict[str, Json]], None]) -> None:
    """Change a config file in one step; keys nobody knows stay.

    Raises:
        ConfigError: the file is broken (it is left as it is) or cannot be written.
    """
    try:
        with locked(path):
            values = read_file(path)
            edit(values)
            data = msgspec.json.format(msgspec.json.encode(values), indent=2)
            write_atomic(path, data + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path!r}: {error.strerror or error}") from error


# --- values ----------------------------------------------------------------------------------


def known(name: str) -> Setting:
    """The setting of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in SETTINGS:
        hint = f" (did you mean {near}?)" if (near := _near(name)) else ""
        raise ConfigError(f"unknown setting {name!r}{hint}; `zot config list` shows all")
    return SETTINGS[name]


def _near(name: str) -> str:
    """The setting that was meant; a key of another version or program is like none of them."""
    import difflib  # deferred: only for a mistake

    return next(iter(difflib.get_close_matches(name, list(SETTINGS), n=1, cutoff=0.8)), "")


def parse(setting: Setting, text: str) -> Json:
    """A value from a command line or variable.

    Raises:
        ConfigError: the text is no such value.
    """
    value: Json = text
    match setting.kind:
        case "text":
            pass
        case "list":
            value = [part.strip() for part in text.split(",") if part.strip()]
        case "switch":
            words = {"true": True, "on": True, "1": True, "yes": True}
            words |= {"false": False, "off": False, "0": False, "no": False}
            value = words.get(text.lower(), text)
        case "number" | "whole":
            try:
                value = msgspec.json.decode(text)
            except (msgspec.MsgspecError, UnicodeEncodeError):
                pass
    if wrong := mismatch(setting, value):
        raise ConfigError(f"{setting.name} {wrong}")
    return value


def mismatch(setting: Setting, value: Json) -> str:
    """Why a value does not fit; empty if it does."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "text": isinstance(value, str),
        "number": number,
        "whole": isinstance(value, int) and not isinstance(value, bool),
        "switch": isinstance(value, bool),
        "list": isinstance(value, list) and all(isinstance(each, str) for each in value),
    }[setting.kind]
    if not fits:
        word = {"whole": "whole number", "switch": "true or false"}.get(setting.kind, setting.kind)
        return f"is {value!r}, not a {word}".replace("a true", "true")
    if number and value < 0:
        return f"is {value!r}, less than nothing"
    if setting.words and value not in setting.words:
        return f"is {value!r}; use {', '.join(word for word in setting.words if word)}"
    return ""
