"""Searches files for a regular expression, as a separate program with the output of `rg --json`.

Python's regular expressions can run forever and block the interpreter; in a separate process the
search can be stopped. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator

from zot.tools.disk import Disk
from zot.tools.search.walk import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_FILE = 64 << 20
"""Maximum file size in bytes; larger files are skipped."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def main() -> None:
    sys.exit(search(sys.argv[1]))


def search(request: str) -> int:
    """Search as the request says and print the matches; return 2 if the pattern is invalid."""
    options = json.loads(request)
    warnings.simplefilter("ignore")  # re warns about syntax whose meaning may change
    flags = re.IGNORECASE if options["ignore_case"] else 0
    pattern = re.escape(options["pattern"]) if options["literal"] else options["pattern"]
    try:
        compiled = re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    disk = _disk(options["bounds"])
    for name, path in _files(options["root"], options["cwd"], disk):
        data = _load(path, disk)
        if isinstance(data, str):
            _write("skipped", name, reason=data)
        elif b"\0" in data and not data.startswith(UTF16):
            if any(compiled.search(line) for line in _text(data).split("\n")):
                _write("begin", name)
                _write("end", name, binary_offset=data.index(b"\0"))
        else:
            _search(name, _text(data), compiled, options["context"])
    return 0


def _disk(bounds: dict[str, Any] | None) -> Disk:
    if bounds is None:
        return Disk()
    from zot.tools.hidden import disk_for

    return disk_for(bounds)


def _files(root: str, cwd: str, disk: Disk) -> Iterator[tuple[str, str]]:
    """Yield the name to show, relative to the root, and the path to open."""
    if not _is_dir(root, disk):
        yield os.path.basename(root), root
        return
    for path, entry in Tree(root, cwd, disk).walk(hidden=True, check=lambda: None):
        if entry.is_file(follow_symlinks=False):
            yield "/".join(path), entry.path


def _is_dir(path: str, disk: Disk) -> bool:
    try:
        return stat.S_ISDIR(disk.stat(path).st_mode)
    except OSError:
        return False


def _search(path: str, text: str, pattern: re.Pattern[str], context: int) -> None:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    shown = 0  # lines before this one are already written
    begun = False
    for number, line in enumerate(lines):
        if pattern.search(line.removesuffix("\r")) is None:
            continue
        if not begun:
            begun = True
            _write("begin", path)
        first = max(shown, number - context)
        for at in range(first, number):
            _write("context", path, at + 1, lines[at])
        _write("match", path, number + 1, line)
        shown = number + 1
        after = number + 1
        while after < min(len(lines), number + 1 + context):
            if pattern.search(lines[after].removesuffix("\r")) is not None:
                break
            _write("context", path, after + 1, lines[after])
            after += 1
            shown = after
    if begun:
        _write("end", path)


def _load(path: str, disk: Disk) -> bytes | str:
    """Return a file's content, or (as a string) why it cannot be searched."""
    try:
        fd = disk.open(path)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return "no regular file"
            if status.st_size > MAX_FILE:
                return f"larger than {MAX_FILE} bytes"
            return file.read(MAX_FILE)
    except OSError:
        return "unreadable"


def _text(data: bytes) -> str:
    encoding = "utf-16" if data.startswith(UTF16) else "utf-8-sig"
    return data.decode(encoding, "replace")


def _write(kind: str, path: str, number: int = 0, line: str = "", **more: int | str) -> None:
    shown = os.fsencode(path).decode("utf-8", "replace")
    data: dict[str, object] = {"path": {"text": shown}, **more}
    if number:
        data |= {"line_number": number, "lines": {"text": line[:2000]}}
    sys.stdout.write(json.dumps({"type": kind, "data": data}) + "\n")
