"""Creates, installs, removes, enables and disables extensions.

Everything is checked before anything is written, and a failure changes nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from zot.errors import ExtensionError
from zot.extensions.manifest import FILE, NAME, Installed, global_dir, project_dir, read
from zot.files import ensure_dir, write_atomic
from zot.git import Git, GitError, allow
from zot.provider.providers import without_keys

TEMPLATES = Path(__file__).parent / "templates"
LANGUAGES = tuple(sorted(path.name for path in TEMPLATES.iterdir()))
BUILD_SECONDS = 120
_URL = re.compile(r"(https?|git|ssh|file)://|git@|.*\.git/?$")
_INSECURE = re.compile(r"(http|git|ftp)://", re.IGNORECASE)
_SKIPPED = shutil.ignore_patterns(".git", "__pycache__", "*.pyc", ".DS_Store")
_SAFE = ("file", "https", "ssh")
_UNAUTHENTICATED = ("ftp", "git", "http")
"""Protocols that are forbidden also after a redirect."""
_CLONE = ("clone", "--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules", "--")
_CLONE_ALL = ("clone", "--no-checkout", "--no-recurse-submodules", "--")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def install(
    source: str,
    home: Path,
    environ: Mapping[str, str],
    *,
    force: bool = False,
    insecure: bool = False,
) -> Installed:
    """Copy a folder, or clone a repository, to `$ZOT_HOME/extensions/NAME`. `URL#COMMIT` installs
    that commit and nothing else. With `force`, other files of the installed one (its state) are
    kept. `insecure`: allow http:// and git://.

    Raises:
        ExtensionError: no usable manifest, a name that is taken, a clone that failed; nothing was
            changed.
    """
    url, pin = _split(source)
    if _URL.match(url) and not Path(source).is_dir():
        if _INSECURE.match(source) and not insecure:
            raise ExtensionError(
                f"{source!r} is not encrypted: anybody on the way could put a program of theirs in "
                "its place; use https:// or ssh://, or add --insecure"
            )
        with _cloned(url, pin, environ, insecure=insecure) as folder:
            return _place(folder, home, force)
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise ExtensionError(f"{source!r} is neither a folder nor the URL of a git repository")
    return _place(folder, home, force)


def remove(extension: Path) -> None:
    """Delete an extension's folder with its content; of a link, only the link."""
    if extension.is_symlink():
        extension.unlink()
        return
    # Renamed first: if deleting fails, zot does not find half an extension.
    doomed = extension.with_name(f".removed-{os.urandom(4).hex()}")
    extension.rename(doomed)
    shutil.rmtree(doomed)


def set_enabled(extension: Path, enabled: bool) -> None:
    """Change one field of the manifest; the others keep their values, order and indent. Raises
    ExtensionError: the manifest cannot be read."""
    path = extension / FILE
    try:
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text)
        fields["enabled"] = enabled
    except (OSError, ValueError, TypeError) as error:
        raise ExtensionError(f"{path}: {error}") from error
    changed = _changed_text(text, fields, "true" if enabled else "false")
    write_atomic(path, changed.encode(), path.stat().st_mode & 0o777)


def _changed_text(text: str, fields: dict[str, object], word: str) -> str:
    """Change one word of the author's text; reformat it only if that is not enough."""
    changed = re.sub(r'("enabled"\s*:\s*)(true|false)', rf"\g<1>{word}", text, count=1)
    if changed == text and text.rstrip().endswith("}"):
        indent = re.search(r"\n([ \t]+)\"", text)
        space = f"\n{indent[1]}" if indent else " "
        head = text.rstrip()[:-1].rstrip()
        changed = f'{head},{space}"enabled": {word}' + ("\n}\n" if indent else "}\n")
    try:
        if json.loads(changed) == fields:
            return changed
    except ValueError:
        pass  # unusual layout
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def find(name: str, cwd: Path, home: Path) -> Path:
    """Return the folder of an extension, by its name or its folder's name. Raises ExtensionError:
    there is none."""
    for parent in (project_dir(cwd), global_dir(home)):
        try:
            folders = sorted(place for place in parent.iterdir() if (place / FILE).is_file())
        except OSError:
            continue
        for folder in folders:
            if name in (folder.name, _name_of(folder)):
                return folder
    raise ExtensionError(f"no extension {name!r} is installed; `zot ext list` shows them")


def _name_of(folder: Path) -> str | None:
    try:
        return read(folder).name
    except ExtensionError:
        return None


def _split(source: str) -> tuple[str, str]:
    """Return the address and the commit of `URL#COMMIT`; "" without one."""
    address, mark, pin = source.rpartition("#")
    if not mark or Path(source).is_dir():
        return source, ""
    if not _COMMIT.fullmatch(pin):
        raise ExtensionError(
            f"{pin!r} behind # is no whole commit id, 40 or 64 hexadecimal digits: a branch or a"
            " tag can be moved, and a short id can be imitated"
        )
    return address, pin


@contextmanager
def _cloned(url: str, pin: str, environ: Mapping[str, str], *, insecure: bool) -> Iterator[Path]:
    """Yield a folder with the newest commit, or with that of `pin`, which names its content."""
    with tempfile.TemporaryDirectory(prefix="zot-ext-") as temporary:
        folder = Path(temporary) / "clone"
        git = Git(temporary, without_keys(environ))
        allowed = allow(*_SAFE, *(_UNAUTHENTICATED if insecure else ()))
        words = _CLONE_ALL if pin else _CLONE
        try:
            git.run(*words, url, str(folder), env={"GIT_CONFIG_NOSYSTEM": "1", **allowed})
            if pin:
                git.at(folder).run("reset", "--hard", pin)
        except GitError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ExtensionError(f"git clone {url!r} failed: {reason}") from error
        yield folder


def _place(folder: Path, home: Path, force: bool) -> Installed:
    checked = read(folder)
    _refuse_outside_links(folder)
    parent = global_dir(home)
    target = parent / checked.name
    if os.path.lexists(target) and not force:
        raise ExtensionError(f"{checked.name!r} is installed already in {target}; use --force")
    if target.exists() and target.resolve() == folder.resolve():
        raise ExtensionError(f"{folder} is where it would be installed to")
    ensure_dir(parent)
    fresh = parent / f".new-{os.urandom(4).hex()}"
    try:
        shutil.copytree(folder, fresh, symlinks=True, ignore=_SKIPPED)
        read(fresh)
        if target.is_dir():
            # Keep files that only the old folder has: extensions store their state there.
            newer = _taken_in(target, fresh)
            shutil.copytree(target, fresh, symlinks=True, ignore=newer, dirs_exist_ok=True)
        _swap(fresh, target)
    except (OSError, shutil.Error) as error:
        failures = error.args[0] if isinstance(error, shutil.Error) else ()
        why = failures[0][2] if isinstance(failures, list) else error.strerror or error
        raise ExtensionError(f"{str(folder)!r} could not be copied: {why}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return read(target, "global")


def _taken_in(old: Path, fresh: Path) -> Callable[[str, list[str]], set[str]]:
    def taken(folder: str, names: list[str]) -> set[str]:
        there = fresh / Path(folder).relative_to(old)
        skipped = set(_SKIPPED(folder, names))
        return skipped | {name for name in names if _differs(Path(folder, name), there / name)}

    return taken


def _differs(old: Path, fresh: Path) -> bool:
    """Whether the new version has this name, and it is not a folder in both."""
    both = old.is_dir() and fresh.is_dir() and not (old.is_symlink() or fresh.is_symlink())
    return os.path.lexists(fresh) and not both


def _swap(fresh: Path, target: Path) -> None:
    """Replace the old folder by the new one; restore the old one on failure."""
    old = target.with_name(f".old-{os.urandom(4).hex()}")
    had_old = os.path.lexists(target)
    if had_old:
        target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        if had_old:
            old.rename(target)
        raise
    if had_old:
        remove(old)


def _refuse_outside_links(folder: Path) -> None:
    root = folder.resolve()
    for path in folder.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise ExtensionError(f"{path} is a link that leaves the extension's folder")


# --- a new extension -------------------------------------------------------------------------


def create(name: str, language: str, parent: Path) -> list[Path]:
    """Write the folder `parent/name` with a small working extension, and return its files. Raises
    ExtensionError: the name is invalid, or the folder exists."""
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
