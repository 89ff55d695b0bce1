"""A home of the tests' own, so that nothing they start sees or changes the user's.

The first process of a session makes it; its workers, and all that they start, inherit the
variables. At the end the user's folders must be as they were.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from zot.home import home_dir

MADE = "ZOT_TEST_HOME"
"""The variable that tells workers that there is one."""
USER_HOME = "ZOT_TEST_USER_HOME"
"""The variable with the home of whoever runs the tests."""
FOREIGN = ("ZOT_HOME", "PI_CODING_AGENT_DIR")
CACHE = Path(__file__).parents[2] / ".cache"
Files = dict[str, tuple[int, int]]


def user_home() -> Path:
    return Path(os.environ.get(USER_HOME) or Path.home())


class OwnHome:
    """Made before the first test, and taken away after the last one."""

    def __init__(self) -> None:
        self._user_folders = user_folders(os.environ)
        self._before = files_below(*self._user_folders)
        self.folder = Path(tempfile.mkdtemp(prefix="zot-"))
        self.folder.chmod(0o711)  # tests as root start programs as another user, too
        (self.folder / "home").mkdir(0o700)
        (self.folder / "tmp").mkdir()
        (self.folder / "tmp").chmod(0o1777)
        variables = tool_variables(Path.home())
        variables[USER_HOME] = str(Path.home())
        variables["PYTEST_DEBUG_TEMPROOT"] = tempfile.gettempdir()  # what failed stays to be seen
        for name, value in variables.items():
            os.environ.setdefault(name, value)
        for name in [*FOREIGN, *(name for name in os.environ if name.startswith("XDG_"))]:
            os.environ.pop(name, None)
        os.environ["HOME"] = str(self.folder / "home")
        os.environ["TMPDIR"] = str(self.folder / "tmp")
        os.environ[MADE] = str(self.folder)
        tempfile.tempdir = None  # found anew

    def changed(self) -> list[str]:
        """What is new, gone or different in the user's folders."""
        after = files_below(*self._user_folders)
        return sorted(
            path
            for path in self._before.keys() | after.keys()
            if self._before.get(path) != after.get(path)
        )

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def user_folders(environ: Mapping[str, str]) -> list[Path]:
    """Where zot, and the programs whose files it shares, keep what is the user's."""
    return [Path(home_dir(environ)), Path.home() / ".zot", Path.home() / ".pi"]


def tool_variables(home: Path) -> dict[str, str]:
    """What lets package managers and compilers work as they do in the user's home, with their
    caches beside the project."""
    pip = (home / ".config/pip/pip.conf", home / ".pip/pip.conf")
    settings = {
        "PIP_CONFIG_FILE": next((file for file in pip if file.exists()), None),
        "NPM_CONFIG_USERCONFIG": home / ".npmrc",
        "PYENV_ROOT": home / ".pyenv",
    }
    found = {name: str(path) for name, path in settings.items() if path and path.exists()}
    caches = {"GOCACHE": "go-build", "GOMODCACHE": "go-mod", "NPM_CONFIG_CACHE": "npm"}
    return found | {name: str(CACHE / folder) for name, folder in caches.items()}


def files_below(*folders: Path) -> Files:
    """Each file and folder with its size and the time of its last change."""
    found: Files = {}
    for top in folders:
        for folder, _, names in os.walk(top):
            for path in (folder, *(os.path.join(folder, name) for name in names)):  # noqa: PTH118
                try:
                    info = os.lstat(path)
                except OSError:
                    continue  # it ended meanwhile
                found[path] = info.st_size, info.st_mtime_ns
    return found
