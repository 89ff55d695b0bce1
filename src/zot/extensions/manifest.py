"""Which extensions there are: folders with an `extension.json`. Nothing is started here."""

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
"""Names end up in file names (the log, the data directory), so they are kept plain."""
MAX_BYTES = 1024 * 1024
MAX_FOLDERS = 200
"""Extensions in one place; more of them are not looked at."""
MAX_ENTRIES = 2000
"""Files and folders that are looked at for them."""
MAX_NAMED = 10
"""Names in one message."""

Scope = Literal["explicit", "project", "global"]


class Manifest(Frozen):
    """What `extension.json` says. Unknown fields are kept in the file and ignored here."""

    name: str
    version: str = ""
    exec: str = ""
    args: tuple[str, ...] = ()
    language: str = ""
    description: str = ""
    enabled: bool = True
    skills: tuple[str, ...] = ()
    """Folders (or SKILL.md files) inside the extension; with them `exec` may be missing."""
    theme: str | dict[str, Json] = ""
    """A theme of the terminal by the extension's name, or a file inside it with one; likewise."""
    env: tuple[str, ...] = ()
    """Variables to pass on although zot withholds them; the RPC token is never passed."""
    fail_closed: bool = False
    """Tool calls are blocked as long as this extension does not run."""
    guard: bool = False
    """Tool calls wait for its start, however slow; an earlier run that saw it guard says so too."""


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
        """What to run. Raises ExtensionError: the program is not there."""
        program = self.manifest.exec
        if "/" in program:  # ./x, ../x, a/b: relative to the folder; absolute: as it is
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
    """A folder that cannot be used; the message names the file and the reason."""

    name: str
    message: str


class Discovery(Frozen):
    extensions: tuple[Installed, ...]
    """In load order, each name once, the disabled ones included."""
    problems: tuple[Problem, ...]


def read(directory: Path, scope: Scope = "explicit") -> Installed:
    """The extension in a folder. Raises ExtensionError: names the file and the reason."""
    path = directory / FILE
    try:
        # Of a project: <project>/.zot/extensions/<name>.
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
    """Where extensions are looked for."""

    cwd: Path
    home: Path
    explicit: tuple[Path, ...] = ()
    """Folders given with `--ext`; loaded first, and also when `search` is off."""
    search: bool = True
    """Look for extensions in the project and in the home; off with `--no-ext`."""
    trusted: bool = True
    """The user trusts this project: its extensions may run."""


def discover(places: ExtensionPlaces) -> Discovery:
    """All extensions: `explicit` folders, then the project's, then the user's.

    The first one with a name wins; so does the first one with a folder name outside `explicit`.
    Those of a project that is not trusted do not count: they could run a program of somebody
    else's, or take the name of one of the user's guards.
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
    """The themes of the user's extensions, by the names of these: what they are, or their file."""
    extensions = discover(ExtensionPlaces(home, home, trusted=False)).extensions
    return {
        extension.name: extension.directory / theme if isinstance(theme, str) else theme
        for extension in extensions
        if extension.manifest.enabled and (theme := extension.manifest.theme)
    }


def _subfolders(directory: Path) -> list[Path]:
    """Folders with a manifest, in a stable order. Anything else lying there is not ours."""
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
