"""Where the tools work: from a path argument to an open file, and from a command to its process.

A Place reaches everything that the user can. jail.Jail is the narrow one; a tool does not know
which of them it has.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.errors import NotStarted, ToolError
from zot.provider.types import Json
from zot.text import Frozen, nearest
from zot.tools import paths
from zot.tools.disk import FOLDER, Disk
from zot.tools.files import Target, load
from zot.tools.program import program_of

if TYPE_CHECKING:  # a tool that only looks at files does not load it
    from zot.tools.process import ProcessResult, Supervisor


class Job(Frozen):
    """A command that is about to run."""

    command: str
    env: dict[str, str]
    on_output: Callable[[bytes], None]
    cancel: Cancel
    timeout: float | None


class Place:
    bounds: dict[str, Json] | None = None
    """What the searching process must know to stay inside; None: there is no inside."""
    keeps_links = True
    """Whether a file with several names is written so that all of them see it."""

    def __init__(self, cwd: str, environ: Mapping[str, str]) -> None:
        """`environ`: what commands get, but for secrets."""
        self.cwd = Path(cwd)
        self.environ = environ
        self.disk = Disk()

    @property
    def temporary(self) -> Path:
        """Where the full output of a command goes."""
        return Path(self.environ.get("TMPDIR") or "/tmp")

    def resolve(self, argument: object, *, name: str = "path") -> Path:
        """The absolute path that an argument means. Raises ToolError: it means none."""
        return paths.resolve(self.cwd, argument, self.environ, name=name)

    def shown(self, path: Path) -> str:
        """The path as a model should repeat it."""
        return paths.shown(path, self.cwd)

    def look(self, path: Path) -> os.stat_result:
        """What is at the path, symlinks followed.

        Raises:
            ToolError: nothing is there, or nothing that may be seen.
        """
        try:
            return self.disk.stat(str(path))
        except FileNotFoundError:
            raise ToolError(f"no such file or directory: {str(path)!r}") from None
        except OSError as error:
            raise paths.failed(f"cannot look at {str(path)!r}", error) from error

    @contextmanager
    def target(self, path: Path, *, create: bool) -> Iterator[Target]:
        """The file that a write means: symlinks are written through. `create` also makes the
        directories above it.

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
            _check_kind(folder, name, path)
            yield Target(folder, name, path, self.keeps_links)
        finally:
            os.close(folder)

    def _folder(self, path: Path, create: bool) -> tuple[int, str]:
        real = Path(os.path.realpath(path))
        if create:
            missing = []
            folder = real.parent
            while not os.path.lexists(folder):  # not mkdir(parents=True): it calls itself a part
                missing.append(folder)
                folder = folder.parent
            for folder in reversed(missing):
                folder.mkdir(exist_ok=True)
        return os.open(real.parent, FOLDER), real.name

    def missing(self, path: Path) -> str:
        """What to say of a file that is not there: with names that are like it."""
        said = f"no such file: {str(path)!r}"
        if path.is_symlink():
            return f"{said} (a symlink to {os.readlink(path)!r}, which does not exist)"  # noqa: PTH115 (the raw target)
        parent = path.parent
        if not parent.is_dir():
            while not parent.exists():
                parent = parent.parent
            return f"{said}; {self.shown(parent)!r} is the last part of it that exists"
        with os.scandir(parent) as entries:
            names = [entry.name for _, entry in zip(range(5000), entries, strict=False)]
        folded = {name.lower(): name for name in names}
        near = nearest(path.name.lower(), folded, most=3)
        if not near:
            return said
        hints = ", ".join(repr(self.shown(parent / folded[name])) for name in near)
        return f"{said}; did you mean {hints}?"

    def run(self, supervisor: Supervisor, job: Job) -> ProcessResult:
        """Run a command to its end; see Supervisor.run."""
        rest = job.on_output, job.cancel, job.timeout
        if (program := program_of(job.command, str(self.cwd), job.env)) is not None:
            try:
                return supervisor.run(
                    program.argv, self.cwd, program.env, *rest, program=program.path
                )
            except NotStarted:
                pass  # say, a script that does not name its interpreter: the shell reads it
        return supervisor.run(self.shell(job.command), self.cwd, job.env, *rest)

    def shell(self, command: str) -> list[str]:
        """What runs a command that may be anything."""
        return [paths.shell(self.cwd, self.environ), "-c", command]

    def offer(self, path: Path) -> None:
        """Let the model read a file of ours, wherever it is."""


class PlacedTool:
    """A tool that needs nothing but a place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def _content_now(self, args: dict[str, Json]) -> tuple[str, bytes | None]:
        """The file that a call names, as it is shown, and what is in it; None: it is not there."""
        path = self._place.resolve(args.get("path"))
        with self._place.target(path, create=False) as target:
            return self._place.shown(path), load(target)


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
