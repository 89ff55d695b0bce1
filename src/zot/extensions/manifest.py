"""Discovery of extensions: folders with an `extension.json`. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from zot.errors import ExtensionError
from zot.files import read_own
from zot.provider.types import Json
from zot.text import Frozen, prepared

FILE = "extension.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Extension names, kept plain because they become file names (the log, the data directory)."""
MAX_BYTES = 1024 * 1024
MAX_FOLDERS = 200
"""Maximum number of extensions in one place; others are ignored."""
MAX_ENTRIES = 2000
"""Maximum number of directory entries to examine."""
MAX_NAMED = 10
"""Maximum number of names in one message."""

Scope = Literal["explicit", "project", "global"]


class Manifest(Frozen):
    """The content of `extension.json`. Unknown fields are ignored here, and kept in the file."""

    name: str
    version: str = ""
    exec: str = ""
    args: tuple[str, ...] = ()
    language: str = ""
    description: str = ""
    enabled: bool = True
    skills: tuple[str, ...] = ()
    """Folders (or SKILL.md files) inside the extension; with them `exec` is optional."""
    theme: str | dict[str, Json] = ""
    """A terminal theme with the extension's name, inline or as a file inside it; makes `exec`
    optional."""
    env: tuple[str, ...] = ()
    """Withheld variables to pass on nevertheless; the RPC token is never passed."""
    fail_closed: bool = False
    """Tool calls are blocked while this extension does not run."""
    guard: bool = False
    """Tool calls wait for its start, up to the `guard` limit; also if it guarded in an earlier
    run."""


prepared(Manifest)


class Installed(Frozen):
    """An extension on disk."""

    manifest: Manifest
    directory: Path
    scope: Scope

    @property
    def name(self) -> str:
        return self.manifest.name

    def command(self) -> list[str]:
        """Return the command line. Raises ExtensionError: the program does not exist."""
        program = self.manifest.exec
        if "/" in program:  # ./x, ../x, a/b: relative to the folder; absolute: unchanged
            path = self.directory / program
            if not path.is_file():
                raise ExtensionError(f"exec {program!r}: no file {path}")
            return [str(path), *self.manifest.args]
        from shutil import which  # deferred: loads compression, on the way to the first delta

        executable = which(program)
        if executable is None:
            raise ExtensionError(f"exec {program!r} is not on the PATH; write './{program}'?")
        return [executable, *self.manifest.args]

    def skill_paths(self) -> list[Path]:
        return [self.directory / path for path in self.manifest.skills]


class Problem(Frozen):
    """An unusable folder; the message names the file and the reason."""

    name: str
    message: str


class Discovery(Frozen):
    extensions: tuple[Installed, ...]
    """In load order, with unique names, including disabled ones."""
    problems: tuple[Problem, ...]


def read(directory: Path, scope: Scope = "explicit") -> Installed:
    """Read the extension in a folder. Raises ExtensionError, which names the file and the
    reason."""
    path = directory / FILE
    try:
        # A project's extension is in <project>/.zot/extensions/<name>.
        inside = directory.parents[2] if scope == "project" else None
        if inside is None:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        else:
            data = read_own(path, inside, MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise ExtensionError(f"{path}: larger than 1 MiB")
        manifest = _parse(data)
    except OSError as error:
        raise ExtensionError(f"{path}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ExtensionError(f"{path}: {error}") from error
    _check(path, manifest)
    return Installed(manifest, directory, scope)


def _parse(data: bytes) -> Manifest:
    value: Json = msgspec.json.decode(data)
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if item is not None}
    return msgspec.convert(value, Manifest)


def _check(path: Path, manifest: Manifest) -> None:
    if not NAME.fullmatch(manifest.name):
        raise ExtensionError(
            f"{path}: name {manifest.name!r} must be 1 to 64 letters, digits, '.', '_' or '-'"
        )
    if not manifest.exec and not manifest.skills and not manifest.theme:
        raise ExtensionError(f"{path}: 'exec' is missing")
    if any("\0" in text for text in (manifest.exec, *manifest.args)):
        raise ExtensionError(f"{path}: NUL in 'exec' or 'args'")
    root = path.parent.resolve()
    theme = (manifest.theme,) if isinstance(manifest.theme, str) else ()
    for inside in (*manifest.skills, *theme):
        if not (root / inside).resolve().is_relative_to(root):
            raise ExtensionError(f"{path}: {inside!r} is outside of the extension's folder")


def global_dir(home: Path) -> Path:
    return home / "extensions"


def project_dir(cwd: Path) -> Path:
    return cwd / ".zot" / "extensions"


def log_path(home: Path, name: str) -> Path:
    return home / "logs" / f"ext-{name}.log"


class ExtensionPlaces(Frozen):
    """The places to search for extensions."""

    cwd: Path
    home: Path
    explicit: tuple[Path, ...] = ()
    """Folders given with `--ext`; loaded first, and also when `search` is off."""
    search: bool = True
    """Search the project and the home; off with `--no-ext`."""
    trusted: bool = True
    """The user trusts this project: its extensions may run."""


def discover(places: ExtensionPlaces) -> Discovery:
    """Return all extensions: `explicit` folders, then the project's, then the user's.

    The first one with a name wins; so does the first one with a folder name outside `explicit`.
    Extensions of an untrusted project are ignored: they could run foreign programs, or take the
    name of one of the user's guards.
    """
    extensions: dict[str, Installed] = {}
    problems: list[Problem] = []
    folders: list[tuple[Path, Scope]] = [(path, "explicit") for path in places.explicit]
    if places.search:
        project = _subfolders(project_dir(places.cwd))
        if project and not places.trusted:
            problems.append(_not_trusted(places.cwd, project))
            project = []
        folders += _unique_names(
            [
                *((path, "project") for path in project),
                *((path, "global") for path in _subfolders(global_dir(places.home))),
            ]
        )
    for folder, scope in folders:
        try:
            extension = read(folder, scope)
        except ExtensionError as error:
            problems.append(Problem(folder.name, str(error)))
            continue
        if extension.name not in extensions:
            extensions[extension.name] = extension
        elif scope == extensions[extension.name].scope:
            other = extensions[extension.name].directory
            message = f"{folder / FILE}: the name {extension.name!r} is taken by {other}"
            problems.append(Problem(extension.name, message))
    return Discovery(tuple(extensions.values()), tuple(problems))


def _not_trusted(cwd: Path, folders: Sequence[Path]) -> Problem:
    names = ", ".join(repr(folder.name) for folder in folders[:MAX_NAMED])
    names += ", ..." if folders[MAX_NAMED:] else ""
    return Problem(
        folders[0].name,
        f"{project_dir(cwd)} has extensions ({names}) that were not started, because the directory "
        f"is not trusted; read them, then: zot config trust {cwd} (or --trust for one run)",
    )


def themes(home: Path) -> dict[str, Path | dict[str, Json]]:
    """Return the themes of the user's extensions by extension name: the theme, or its file."""
    extensions = discover(ExtensionPlaces(home, home, trusted=False)).extensions
    return {
        extension.name: extension.directory / theme if isinstance(theme, str) else theme
        for extension in extensions
        if extension.manifest.enabled and (theme := extension.manifest.theme)
    }


def _subfolders(directory: Path) -> list[Path]:
    """Return the folders with a manifest, in a stable order; ignore everything else."""
    try:
        folders = sorted(directory.iterdir())[:MAX_ENTRIES]
        return [folder for folder in folders if (folder / FILE).is_file()][:MAX_FOLDERS]
    except OSError:
        return []


def _unique_names(folders: Iterable[tuple[Path, Scope]]) -> list[tuple[Path, Scope]]:
    seen: dict[str, tuple[Path, Scope]] = {}
    for folder, scope in folders:
        seen.setdefault(folder.name, (folder, scope))
    return list(seen.values())
