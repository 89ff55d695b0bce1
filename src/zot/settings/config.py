"""Reads settings from flags, environment, project and user files, each with its source; writes
those files. Loaded only when such a file or variable exists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from zot.core.confinement import JailPolicy, with_words
from zot.errors import ConfigError
from zot.files import locked, read_bytes, read_own, write_atomic
from zot.provider.types import Json
from zot.settings.options import FILE_SETTINGS, Options, Setting, checked, from_text, with_defaults
from zot.settings.trust import is_trusted
from zot.text import Frozen, indented_json, nearest

MAX_BYTES = 1024 * 1024
"""Maximum size of a project's file."""
MAX_LOOKED_UP = 20
"""Maximum unknown keys of a file that are compared with all setting names, for a typo hint."""

Source = Literal["flag", "environment", "project", "user", "default"]
_OUR_NAMES = {old: setting.name for setting in FILE_SETTINGS.values() for old in setting.old}
_NOTHING_SAID = Options()
_DEFAULTS = with_defaults(_NOTHING_SAID)


class Value(Frozen):
    value: Json
    source: Source
    where: str = ""
    """Name of the variable or path of the file."""


class Configuration(Frozen):
    values: Mapping[str, Value]
    """Values of all settings that a file may contain."""
    others: Mapping[str, Json]
    """Keys of the user's file that this version does not know; they are preserved."""
    warnings: list[str]
    """Ignored values, and why."""

    def __getitem__(self, name: str) -> Json:
        return self.values[name].value


def read_configuration(
    options: Options, environ: Mapping[str, str], cwd: str, home: str
) -> Configuration:
    """Read each setting from its first source: flag, environment, project, user, default.

    Raises:
        ConfigError: a variable holds a value that cannot be used.
    """
    warnings: list[str] = []
    project, user = project_path(cwd), user_path(home)
    of_project = _usable(project, warnings, inside=cwd)
    refused = sorted(
        name for name in of_project if name in FILE_SETTINGS and FILE_SETTINGS[name].file == "user"
    )
    if refused and not (options.trust or is_trusted(cwd, home)):
        warnings.append(
            f"{project!r} sets {', '.join(refused)}, which a project may do only in a trusted "
            f"directory; it is not used (to trust it: zot config trust {cwd})"
        )
        of_project = {name: value for name, value in of_project.items() if name not in refused}
    of_user = _usable(user, warnings)
    of_project = _narrowed(of_project, of_user, project, warnings)
    layers = (
        _from_flags(options),
        _from_variables(environ),
        {name: Value(value, "project", project) for name, value in of_project.items()},
        {name: Value(value, "user", user) for name, value in of_user.items()},
        {name: Value(getattr(_DEFAULTS, name), "default") for name in FILE_SETTINGS},
    )
    return Configuration(
        {name: _strongest(name, layers) for name in FILE_SETTINGS},
        {name: value for name, value in of_user.items() if name not in FILE_SETTINGS},
        warnings,
    )


def _strongest(name: str, layers: Sequence[Mapping[str, Value]]) -> Value:
    if name in ("model", "base_url"):
        # Both count only together with the provider they were set with.
        below = [_strongest("provider", layers[start:]).value for start in range(len(layers))]
        rows = zip(layers[:-1], below, strict=False)
        layers = [*(layer for layer, provider in rows if provider == below[0]), layers[-1]]
    first = next(layer[name] for layer in layers if name in layer)
    if not FILE_SETTINGS[name].adds:
        return first
    every = dict.fromkeys(part for layer in layers if name in layer for part in layer[name].value)
    return Value(tuple(every), first.source, first.where)  # each source can only hide more


def _narrowed(
    of_project: dict[str, Json], of_user: Mapping[str, Json], path: str, warnings: list[str]
) -> dict[str, Json]:
    """Return the project's values, those of the jail only where they are stricter than the
    user's."""
    kept = dict(of_project)
    wide = [name for name in ("allow_write",) if kept.pop(name, None)]
    if "jail" in kept:
        asked = with_words(JailPolicy(), kept["jail"])
        ours = with_words(JailPolicy(), of_user.get("jail", False))
        both = JailPolicy(
            on=ours.on or asked.on,
            best=(ours.best or not ours.on) and asked.best or (ours.best and not asked.on),
            read_only=ours.read_only or asked.read_only,
        )
        wide += ["jail"] if both.words != asked.words else []
        kept["jail"] = both.words
    if kept.get("jail_read") == "all":
        wide += ["jail_read"] if of_user.get("jail_read", "all") != "all" else []
        del kept["jail_read"]
    if wide:
        warnings.append(
            f"{path!r} sets {', '.join(wide)} to something that allows more than your own"
            " settings; a project may only make them stricter, so it is not used"
        )
    return kept


def _from_flags(options: Options) -> Mapping[str, Value]:
    return {
        name: Value(value, "flag")
        for name in FILE_SETTINGS
        if (value := getattr(options, name)) != getattr(_NOTHING_SAID, name)
    }


def _from_variables(environ: Mapping[str, str]) -> Mapping[str, Value]:
    layer = {}
    for name, setting in FILE_SETTINGS.items():
        variable = next((word for word in setting.variables if environ.get(word)), "")
        if not variable:
            continue
        try:
            layer[name] = Value(from_text(setting, environ[variable]), "environment", variable)
        except ValueError as error:
            raise ConfigError(f"{variable} {error}") from error
    return layer


def _usable(path: str, warnings: list[str], inside: str | None = None) -> dict[str, Json]:
    """Return the valid values of a file, under their current names."""
    try:
        content = read_file(path, inside)
    except ConfigError as error:
        warnings.append(str(error))
        return {}
    values: dict[str, Json] = {}
    looked_up = 0
    # Old names first, so that the current one wins where a file has both.
    for name in sorted(content, key=lambda name: name not in _OUR_NAMES):
        setting = FILE_SETTINGS.get(_OUR_NAMES.get(name, name))
        if setting is None:
            values[name] = content[name]
            looked_up += 1
            if looked_up <= MAX_LOOKED_UP and (near := _near(name)):
                warnings.append(f"{path!r}: {name} is no setting; did you mean {near}?")
            continue
        try:
            values[setting.name] = checked(setting, content[name])
        except ValueError as error:
            warnings.append(f"{path!r}: {name} {error}; it is not used")
    return values


# --- files -----------------------------------------------------------------------------------


def user_path(home: str) -> str:
    return os.path.join(home, "config.json")


def project_path(cwd: str) -> str:
    return os.path.join(cwd, ".zot", "config.json")


def read_file(path: str, inside: str | None = None) -> dict[str, Json]:
    """Return the object in a config file; empty if there is none. `inside`: the project that a
    project file, or its link target, must be in.

    Raises:
        ConfigError: it cannot be read, or is no JSON object.
    """
    try:
        data = read_bytes(path) if inside is None else read_own(path, inside, MAX_BYTES)
        if data is None or not data.strip():
            return {}
        return msgspec.json.decode(data, type=dict[str, Json])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = getattr(error, "strerror", "") or error
        raise ConfigError(f"{path!r} cannot be read and is not used: {why}") from error


def change(path: str, edit: Callable[[dict[str, Json]], None], inside: str | None = None) -> None:
    """Change a config file atomically, keeping unknown keys. `inside` as in `read_file`.

    Raises:
        ConfigError: the file is broken (it is left as it is) or cannot be written.
    """
    try:
        with locked(path):
            values = read_file(path, inside)
            edit(values)
            write_atomic(path, indented_json(values))
    except OSError as error:
        raise ConfigError(f"cannot write {path!r}: {error.strerror or error}") from error


# --- names -----------------------------------------------------------------------------------


def find_setting(name: str) -> Setting:
    """Return the setting with this current or old name. Raises ConfigError: there is none."""
    name = _OUR_NAMES.get(name, name)
    if name not in FILE_SETTINGS:
        hint = f" (did you mean {near}?)" if (near := _near(name)) else ""
        raise ConfigError(f"unknown setting {name!r}{hint}; `zot config list` shows all")
    return FILE_SETTINGS[name]


def remove(values: dict[str, Json], name: str) -> None:
    """Remove a setting from a file's values, also under its old names."""
    setting = FILE_SETTINGS.get(_OUR_NAMES.get(name, name))
    for word in (setting.name, *setting.old) if setting else (name,):
        values.pop(word, None)


def _near(name: str) -> str:
    """Return the setting that was probably meant; keys of other versions or programs match none."""
    return next(iter(nearest(name, FILE_SETTINGS, cutoff=0.8)), "")
