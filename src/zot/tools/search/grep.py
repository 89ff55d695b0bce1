"""The `grep` tool: find lines by a regular expression, with ripgrep if it is installed."""

from __future__ import annotations

import base64
import os
import stat
from collections import Counter
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from zot.cancel import Cancel
from zot.core.tool import ToolContext
from zot.errors import ToolError
from zot.lines import LineCutter
from zot.provider.types import Json
from zot.text import Frozen
from zot.tools import paths
from zot.tools.place import Place
from zot.tools.process.output import clean
from zot.tools.process.supervisor import ProcessResult, Supervisor
from zot.tools.search import program, wildcard
from zot.tools.search.glob import compile_pattern, shown
from zot.tools.search.walk import Tree
from zot.trees import launch

LIMIT = 100
MAX_LIMIT = 2000
MAX_CONTEXT = 50
MAX_WIDTH = 500
MAX_BYTES = 51_200
MAX_COUNTED = 20_000
"""Number of matches after which the search ends."""
LISTED = 50
SECONDS = 30.0
# By default rg reads other ignore files and looks above the repository; the result must not depend
# on the program that searched.
RG = (
    *("--json", "--no-config", "--binary", "--hidden", "--no-ignore-dot", "--no-ignore-global"),
    *("--no-ignore-exclude", "--no-require-git", "--no-mmap", "--crlf", "--sort", "path"),
    *("--glob", "!.git"),
)


class Arguments(Frozen):
    pattern: str
    root: Path
    folder: Path
    """The root, or its directory if the root is a file."""
    glob: str
    ignore_case: bool
    literal: bool
    context: int
    limit: int


class Grep:
    def __init__(self, place: Place, supervisor: Supervisor) -> None:
        self._place = place
        self._supervisor = supervisor

    def run(self, args: dict[str, Json], context: ToolContext) -> str:
        wanted = self._arguments(args)
        rg = self._ripgrep(wanted)
        if rg is not None:
            matches, result = self._search(rg, wanted, context.cancel)
            if result.exit_code != 2 or matches.rows:
                return matches.report(result)
        # Without rg, and for syntax that rg does not support: look-around, back references.
        matches, result = self._search(self._python(wanted), wanted, context.cancel)
        errors = matches.errors.strip()
        if result.exit_code == 2:
            raise ToolError(f"invalid regular expression {wanted.pattern!r}: {errors}")
        if result.exit_code:  # it crashed; only rg exits with 1 when there is no match
            why = errors.rpartition("\n")[2] or f"exit code {result.exit_code}"
            raise ToolError(f"the search failed: {why}; use grep in bash")
        return matches.report(result)

    def _arguments(self, args: dict[str, Json]) -> Arguments:
        pattern = args.get("pattern")
        if not isinstance(pattern, str) or not pattern:
            raise ToolError("pattern is required")
        if "\n" in pattern or "\0" in pattern:
            raise ToolError("pattern holds a newline or NUL; grep looks at one line at a time")
        root = self._place.resolve(args.get("path") or ".")
        status = self._place.look(root)
        mode = status.st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise ToolError(f"{str(root)!r} is {paths.kind(mode)}; grep searches files")
        if stat.S_ISREG(mode) and status.st_size > program.MAX_FILE:
            raise ToolError(f"{str(root)!r} is too large for grep; use grep in bash")
        return Arguments(
            pattern=pattern,
            root=root,
            folder=root if stat.S_ISDIR(mode) else root.parent,
            glob=str(args.get("glob") or ""),
            ignore_case=bool(args.get("ignore_case")),
            literal=bool(args.get("literal")),
            context=_number(args.get("context"), 0, MAX_CONTEXT),
            limit=_number(args.get("limit"), LIMIT, MAX_LIMIT),
        )

    def _ripgrep(self, wanted: Arguments) -> list[str] | None:
        program = paths.executable("rg", self._place.cwd, self._place.environ)
        if program is None or self._place.bounds is not None:
            return None  # rg opens files by path, which may lead elsewhere by then
        options = ["--context", str(wanted.context)]
        if wanted.root == wanted.folder:
            tree = Tree(str(wanted.root), str(self._place.cwd), self._place.disk)
            if tree.repository is None:
                if tree.inherited:
                    return None  # rg cannot start its ignore rules at the working directory
                options.append("--no-ignore-parent")
        options.append("--ignore-case" if wanted.ignore_case else "--case-sensitive")
        if wanted.literal:
            options.append("--fixed-strings")
        where = "./" if wanted.root == wanted.folder else f"./{wanted.root.name}"
        return [program, *RG, *options, f"--regexp={wanted.pattern}", "--", where]

    def _python(self, wanted: Arguments) -> list[str]:
        where = {"cwd": self._place.cwd, "bounds": self._place.bounds}
        body = msgspec.json.encode({**asdict(wanted), **where}, enc_hook=str).decode()
        return launch("tools.search.program", body)

    def _search(
        self, argv: list[str], wanted: Arguments, cancel: Cancel
    ) -> tuple[GrepMatches, ProcessResult]:
        """Run a program with the output of `rg --json` until there are enough matches."""
        enough = Cancel()
        matches = GrepMatches(wanted, self._place.cwd, enough)
        env = {"PATH": os.defpath, "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"}
        with cancel.calling(enough.set):
            result = self._supervisor.run(argv, wanted.folder, env, matches.feed, enough, SECONDS)
        cancel.check()
        return matches, result


def _number(value: Json, default: int, most: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int | float) or value < 0:
        raise ToolError(f"context and limit must be whole numbers from 0, not {value!r}")
    return min(int(value), most)


# --- output of the search program ------------------------------------------------------------


class Bytes(Frozen):
    """UTF-8 text, or else base64."""

    text: str | None = None
    bytes: str | None = None

    def decoded(self) -> str:
        if self.text is not None:
            return self.text
        return base64.b64decode(self.bytes or "").decode("utf-8", "replace")


class Data(Frozen):
    path: Bytes = Bytes()
    lines: Bytes = Bytes()
    line_number: int = 0
    binary_offset: int | None = None
    reason: str = ""


class SearchEvent(Frozen):
    type: str
    data: Data


DECODER = msgspec.json.Decoder(SearchEvent)


class GrepMatches:
    """Collects rows, one file at a time: only at its end is it known whether a file is binary.
    Beyond the limit it keeps counting, so that the result can begin with counts per file."""

    def __init__(self, wanted: Arguments, cwd: Path, enough: Cancel) -> None:
        self._wanted = wanted
        self._cwd = cwd
        self._enough = enough
        self._globs = compile_pattern(wanted.glob) if wanted.glob else None
        self._lines = LineCutter()
        self._file: list[str] = []
        self._name = ""
        self._skip = False
        self._matches = 0
        self._counts: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()
        """Number of files that were not searched, by reason."""
        self._last = -1
        """Number of the last shown line of this file."""
        self._size = 0
        self._full = ""
        """Why no more rows are collected; empty while they are."""
        self.rows: list[str] = []
        self.errors = ""

    def feed(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if self._enough.is_set():
                return
            if line.startswith(b'{"type"'):
                self._take(DECODER.decode(line))
            elif line.startswith(b"rg: ") and b"os error" in line:
                self._left_out["unreadable"] += 1
            elif len(self.errors) < 2000:
                self.errors += line[:2000].decode("utf-8", "replace") + "\n"

    def _take(self, event: SearchEvent) -> None:
        data = event.data
        if event.type == "skipped":
            self._left_out[data.reason] += 1
        elif event.type == "begin":
            self._file, self._last = [], -1
            path = data.path.decoded()
            self._name = shown(self._wanted.folder / path, self._cwd)
            parts = path.removeprefix("./").split("/")
            self._skip = self._globs is not None and not any(
                wildcard.matches(glob, parts) for glob in self._globs
            )
        elif event.type in ("match", "context") and not self._skip:
            self._add(data.lines, data.line_number, event.type == "match")
        elif event.type == "end" and not self._skip:
            self._end(binary=data.binary_offset is not None)

    def _add(self, line: Bytes, number: int, is_match: bool) -> None:
        if is_match:
            if self._matches == self._wanted.limit:
                self._full = self._full or f"the first {self._matches} are shown"
            self._matches += 1
            self._counts[self._name] = self._counts.get(self._name, 0) + 1
            if self._matches > MAX_COUNTED:
                self._enough.set()
        if self._size > MAX_BYTES:
            self._full = self._full or f"cut at {MAX_BYTES} bytes"
        if self._full:
            return
        if self._wanted.context and number != self._last + 1 and (self.rows or self._file):
            self._file.append("--")
        self._last = number
        mark = ":" if is_match else "-"
        row = f"{self._name}{mark}{number}{mark} {_cut(line.decoded())}"
        self._size += len(row.encode("utf-8", "replace")) + 1
        self._file.append(row)

    def _end(self, *, binary: bool) -> None:
        if binary:
            self._left_out["binary with matches"] += 1
            self._matches -= self._counts.pop(self._name, 0)
        else:
            self.rows += self._file
        self._file = []

    def report(self, result: ProcessResult) -> str:
        notes = [f"{count} {why}" for why, count in sorted(self._left_out.items())]
        note = f"\n\n(not searched: {', '.join(notes)})" if notes else ""
        if result.timed_out:
            self.rows += self._file
            note += f"\n\n(stopped after {SECONDS:.0f} s; narrow the pattern, path or glob)"
        elif result.end in ("supervisor_killed", "too_many_processes") or result.signal:
            raise ToolError("the search was killed; try again")
        if not self.rows:
            return "No matches found." + note
        return self._files() + "\n".join(self.rows) + note

    def _files(self) -> str:
        """Return the files with their match counts, if not all rows are shown."""
        if not self._full:
            return ""
        more = "more than " if self._matches > MAX_COUNTED else ""
        rows = [f"{name}: {count}" for name, count in self._counts.items()]
        if len(rows) > LISTED:
            rows[LISTED:] = [f"... and {len(rows) - LISTED} more files"]
        head = f"({more}{min(self._matches, MAX_COUNTED)} matches in {len(self._counts)} files;"
        listed = "\n".join(rows)
        return f"{head} {self._full}; narrow the pattern, path or glob)\n{listed}\n\n"


def _cut(line: str) -> str:
    line = clean(line.removesuffix("\n").removesuffix("\r"))
    return line if len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}... [line cut]"
