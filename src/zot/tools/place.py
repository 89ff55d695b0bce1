"""Place: turns a tool's path argument into an open file, and a command into its process.

A Place reaches everything that the user can. jail.Jail is the sandboxed one; a tool does not know
which of the two it has.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.errors import ConfigError, ToolError
from zot.home import expand_user
from zot.provider.types import Json
from zot.text import Frozen, nearest
from zot.tools import paths
from zot.tools.disk import FOLDER, Disk
from zot.tools.edit.files import Target

if TYPE_CHECKING:  # a tool that only looks at files does not load it
    from zot.tools.hidden import HiddenPaths, HidingDisk
    from zot.tools.process.supervisor import ProcessResult, Supervisor


class Job(Frozen):
    """A command that is about to run."""

    command: str
    env: dict[str, str]
    on_output: Callable[[bytes], None]
    cancel: Cancel
    timeout: float | None


class Place:
    bounds: dict[str, Json] | None = None
    """The limits passed to the search process; None if there are none."""
    keeps_links = True
    """Whether a file with several hard links is written in place, so that all of them change."""

    def __init__(self, cwd: str, environ: Mapping[str, str], deny_read: Sequence[str] = ()) -> None:
        """`environ`: the environment of commands, which get it without secrets; `deny_read`:
        patterns of files that no tool may read (hidden.py).

        Raises:
            ConfigError: a pattern is not valid.
        """
        self.cwd = Path(cwd)
        self.environ = environ
        self.hidden = hidden_paths(deny_read, cwd, environ) if deny_read else None
        self.use_disk(Disk())

    def use_disk(self, disk: Disk, roots: Sequence[tuple[str, str]] = ()) -> None:
        """Let the file tools use this disk, which is limited to `roots`: paths, and the same
        without symlinks."""
        self.disk = disk
        self._hiding: HidingDisk | None = None
        if self.hidden is not None:
            from zot.tools.hidden import HidingDisk

            self.disk = self._hiding = HidingDisk(disk, self.hidden)
        if roots or self.hidden is not None:
            real, deny = os.path.realpath(self.cwd), self.hidden.patterns if self.hidden else ()
            self.bounds = {"roots": list(roots), "deny": list(deny), "cwd": real}

    @property
    def temporary(self) -> Path:
        """Directory for the full output of commands."""
        return Path(self.environ.get("TMPDIR") or "/tmp")

    def resolve(self, argument: object, *, name: str = "path") -> Path:
        """Return the absolute path of an argument. Raises ToolError: it is not a valid path."""
        return paths.resolve(self.cwd, argument, self.environ, name=name)

    def shown(self, path: Path) -> str:
        """Return the path in the form that a model should repeat."""
        return paths.shown(path, self.cwd)

    def look(self, path: Path) -> os.stat_result:
        """Return the status of the path, with symlinks followed.

        Raises:
            ToolError: it does not exist, or must not be seen.
        """
        try:
            return self.disk.stat(str(path))
        except FileNotFoundError:
            raise ToolError(f"no such file or directory: {str(path)!r}") from None
        except OSError as error:
            raise paths.failed(f"cannot look at {str(path)!r}", error) from error

    @contextmanager
    def target(self, path: Path, *, create: bool) -> Iterator[Target]:
        """Yield the file to write, with symlinks followed. `create` also makes the directories
        above it.

        Raises:
            ToolError: it is a directory, a device, or cannot be reached.
        """
        try:
            folder, name = self._folder(path, create)
        except FileNotFoundError as error:
            if create:
                raise paths.failed(f"cannot write {str(path)!r}", error) from error
            raise ToolError(f"no such file: {str(path)!r}; create it with write") from None
        except (FileExistsError, NotADirectoryError):
            raise ToolError(f"cannot write {str(path)!r}: a part of the path is a file") from None
        except OSError as error:
            raise paths.failed(f"cannot write {str(path)!r}", error) from error
        try:
            if self._hiding is not None:
                self._check_hidden(folder, name, path)
            _check_kind(folder, name, path)
            yield Target(folder, name, path, self.keeps_links)
        finally:
            os.close(folder)

    def _check_hidden(self, folder: int, name: str, path: Path) -> None:
        from zot.tools.jail.disk import path_of

        assert self._hiding is not None
        try:
            self._hiding.check(f"{path_of(folder)}/{name}", str(path))
        except OSError as error:
            raise paths.failed(f"cannot write {str(path)!r}", error) from error

    def _folder(self, path: Path, create: bool) -> tuple[int, str]:
        real = Path(os.path.realpath(path))
        if create:
            missing = []
            folder = real.parent
            while not os.path.lexists(folder):  # mkdir(parents=True) would recurse for each part
                missing.append(folder)
                folder = folder.parent
            for folder in reversed(missing):
                folder.mkdir(exist_ok=True)
        return os.open(real.parent, FOLDER), real.name

    def missing(self, path: Path) -> str:
        """Return the error message for a missing file, with similar names."""
        text = f"no such file: {str(path)!r}"
        if path.is_symlink():
            return f"{text} (a symlink to {os.readlink(path)!r}, which does not exist)"  # noqa: PTH115 (the raw target)
        parent = path.parent
        if not parent.is_dir():
            while not parent.exists():
                parent = parent.parent
            return f"{text}; {self.shown(parent)!r} is the last part of it that exists"
        with os.scandir(parent) as entries:
            names = [entry.name for _, entry in zip(range(5000), entries, strict=False)]
        folded = {name.lower(): name for name in names}
        near = nearest(path.name.lower(), folded, most=3)
        if not near:
            return text
        hints = ", ".join(repr(self.shown(parent / folded[name])) for name in near)
        return f"{text}; did you mean {hints}?"

    def run(self, supervisor: Supervisor, job: Job) -> ProcessResult:
        """Run a command to its end; see Supervisor.run."""
        argv = self.shell(job.command)
        return supervisor.run(argv, self.cwd, job.env, job.on_output, job.cancel, job.timeout)

    def shell(self, command: str) -> list[str]:
        """Return the argv that runs a command in a shell."""
        return [paths.shell(self.cwd, self.environ), "-c", command]

    def offer(self, path: Path) -> None:
        """Let the model read a file of zot's, wherever it is."""


class PlacedTool:
    """A tool that needs nothing but a place."""

    def __init__(self, place: Place) -> None:
        self._place = place


def hidden_paths(patterns: Sequence[str], cwd: str, environ: Mapping[str, str]) -> HiddenPaths:
    from zot.tools.hidden import HiddenPaths
    from zot.tools.search.wildcard import BadPattern

    try:
        expanded = [expand_user(pattern, environ) for pattern in patterns]
        return HiddenPaths(expanded, os.path.realpath(cwd))
    except BadPattern as error:
        raise ConfigError(f"deny_read has a pattern that cannot be used: {error}") from error


def _check_kind(folder: int, name: str, path: Path) -> None:
    try:
        mode = os.stat(name or ".", dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise paths.failed(f"cannot write {str(path)!r}", error) from error
    if stat.S_ISLNK(mode):
        raise ToolError(f"cannot write {str(path)!r}: its symlinks lead in a circle")
    if not stat.S_ISREG(mode):
        raise ToolError(f"cannot write {str(path)!r}: it is {paths.kind(mode)}")
