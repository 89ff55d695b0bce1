"""`zot ext new`: creates a folder with a small working extension, in one of four languages."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from zot.errors import ExtensionError
from zot.extensions.manifest import NAME

TEMPLATES = Path(__file__).parent / "templates"
LANGUAGES = tuple(sorted(path.name for path in TEMPLATES.iterdir()))
BUILD_SECONDS = 120


def create(name: str, language: str, parent: Path) -> list[Path]:
    """Write the folder `parent/name`, and return its files. Raises ExtensionError: the name is
    invalid, or the folder exists."""
    if not NAME.fullmatch(name):
        raise ExtensionError(
            f"the name {name!r} cannot be used: 1 to 64 letters, digits, '.', '_' or '-'"
        )
    folder = parent / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise ExtensionError(
            f"{str(folder)!r} is there already: choose another name, or another place with --dir"
        ) from error
    except OSError as error:
        raise ExtensionError(f"cannot make {str(folder)!r}: {error.strerror}") from error
    tool = re.sub(r"\W", "_", name) + "_reverse"
    if tool[0].isdigit():
        tool = "_" + tool
    for template in sorted((TEMPLATES / language).iterdir()):
        text = template.read_text(encoding="utf-8").replace("NAME", name).replace("TOOL", tool)
        path = folder / template.stem
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)
    if language == "go":
        _build(folder, name)
    return sorted(folder.iterdir())


def _build(folder: Path, name: str) -> None:
    """Compile it if Go is installed; otherwise the README says how."""
    go = shutil.which("go")
    if go is not None:
        subprocess.run(
            [go, "build", "-o", name, "."],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
