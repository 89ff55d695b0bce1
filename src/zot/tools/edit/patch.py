"""Patches in the format of `apply_patch`, which GPT models are trained with, as calls of other
tools: an update becomes an `edit`, a new file a `write`, a deleted or moved one a `bash` command.
So every guard and rule for those tools holds for a patch, too. Files are read here, not written.

    *** Begin Patch
    *** Update File: src/a.py
    @@ def main():
     context
    -old
    +new
    *** End Patch
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from zot.core.tool import Part
from zot.errors import ToolError
from zot.provider.types import Json
from zot.text import Frozen
from zot.tools.edit import files
from zot.tools.place import Place

BEGIN, END = "*** Begin Patch", "*** End Patch"
ADD, DELETE, UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"
MAX_HUNKS = 2_000
HEREDOC = re.compile(
    r"\s*(?:cd\s+(?P<folder>'[^'\n]*'|\"[^\"\n$`\\]*\"|[^\s;&|<>'\"$`\\]+)\s*&&\s*)?"
    r"(?:apply_patch|applypatch)\s*<<-?\s*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)[ \t]*\n"
    r"(?P<patch>.*\n)(?P=word)\s*",
    re.DOTALL,
)
"""A command that does nothing but apply a patch, perhaps in another directory."""


class Hunk(Frozen):
    anchors: tuple[str, ...]
    """Lines that come before the hunk, each after the one before."""
    rows: tuple[tuple[str, str], ...]
    """Sign (blank, minus or plus) and text of each line."""
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [line for sign, line in self.rows if sign != "+"]

    def new(self, have: Sequence[str]) -> list[str]:
        """Return the new lines; lines of context are those of the file."""
        rest = iter(have)
        lines: list[str] = []
        for sign, line in self.rows:
            kept = line if sign == "+" else next(rest)
            lines += [kept] if sign != "-" else []
        return lines


class FilePatch(Frozen):
    """The change of one file."""

    path: str
    kind: str
    """ADD, DELETE or UPDATE."""
    content: str = ""
    move_to: str = ""
    hunks: tuple[Hunk, ...] = ()


# --- parsing ---------------------------------------------------------------------------------


def parse(text: str) -> list[FilePatch]:
    """Return the changes in a patch.

    Raises:
        ToolError: it is not in the format; the text names the line.
    """
    lines = text.strip().replace("\r\n", "\n").split("\n")
    if lines[0].strip() != BEGIN or lines[-1].strip() != END or len(lines) < 2:
        raise ToolError(f"a patch begins with {BEGIN!r} and ends with {END!r}")
    starts = [n for n, line in enumerate(lines) if line.startswith((ADD, DELETE, UPDATE))]
    if len(lines) > 2 and starts[:1] != [1]:
        raise _wrong(lines, 1, f"expected {UPDATE!r}, {ADD!r} or {DELETE!r} and a path")
    ends = [*starts[1:], len(lines) - 1]
    patches = [_file(lines, *span) for span in zip(starts, ends[: len(starts)], strict=True)]
    named = [path for patch in patches for path in (patch.path, patch.move_to) if path]
    for path in named:
        if named.count(path) > 1:
            raise ToolError(f"the patch has {path!r} twice; put its changes into one section")
    if not patches:
        raise ToolError("the patch has no files")
    return patches


def _file(lines: list[str], start: int, end: int) -> FilePatch:
    kind = next(word for word in (ADD, DELETE, UPDATE) if lines[start].startswith(word))
    path = lines[start].removeprefix(kind).strip()
    if not path:
        raise _wrong(lines, start, "the path is missing")
    body = range(start + 1, end)
    if kind == ADD:
        for n in body:
            if not lines[n].startswith("+"):
                raise _wrong(lines, n, "each line of a new file begins with '+'")
        return FilePatch(path, kind, "".join(f"{lines[n][1:]}\n" for n in body))
    if kind == DELETE:
        if any(lines[n].strip() for n in body):
            raise _wrong(lines, start + 1, "nothing follows a deleted file")
        return FilePatch(path, kind)
    move_to = ""
    if body and lines[body[0]].startswith(MOVE):
        move_to = lines[body[0]].removeprefix(MOVE).strip()
        body = body[1:]
    hunks = tuple(_hunks(lines, body))
    if not hunks and not move_to:
        raise _wrong(lines, start, "the update has no changes")
    return FilePatch(path, kind, "", move_to, hunks)


def _hunks(lines: list[str], body: range) -> Iterator[Hunk]:
    anchors, rows, at_end = list[str](), list[tuple[str, str]](), False
    for n in (*body, None):
        line = "@@" if n is None else lines[n]
        if line.startswith("@@") or at_end:
            if rows:
                if all(sign == " " for sign, _ in rows):
                    raise _wrong(lines, body[-1] if n is None else n, "nothing changes before it")
                yield Hunk(tuple(anchors), tuple(rows), at_end)
                anchors, rows = [], []
            at_end = False
        if line.startswith("@@"):
            anchors += [anchor] if (anchor := line[2:].strip()) else []
        elif line.strip() == END_OF_FILE:
            at_end = True
        elif not line or line[0] in " +-":
            rows.append((line[:1] or " ", line[1:]))  # a blank line may have lost its blank
        else:
            assert n is not None
            raise _wrong(lines, n, "a line of a change begins with ' ', '+', '-' or '@@'")
    if anchors:
        raise _wrong(lines, body[-1], "nothing follows it")


def _wrong(lines: list[str], at: int, why: str) -> ToolError:
    return ToolError(f"line {at + 1} of the patch, {lines[at][:120]!r}: {why}")


# --- finding the places ----------------------------------------------------------------------


class Change(Frozen):
    """Lines of a file to be replaced."""

    start: int
    end: int
    new: list[str]


def changes(have: Sequence[str], hunks: Sequence[Hunk], name: str) -> list[Change]:
    """Return where each hunk applies in the lines of a file, in order.

    Raises:
        ToolError: a hunk is not there, or may be meant for several places.
    """
    if len(hunks) > MAX_HUNKS:
        raise ToolError(f"the patch of {name} has {len(hunks)} changes; at most {MAX_HUNKS} a call")
    found: list[Change] = []
    cursor = 0
    for number, hunk in enumerate(hunks, 1):
        start = _place(have, hunk, cursor, f"change {number} of {name}")
        cursor = start + len(hunk.old)
        found.append(Change(start, cursor, hunk.new(have[start:cursor])))
    return found


def _place(have: Sequence[str], hunk: Hunk, cursor: int, what: str) -> int:
    if not hunk.old:
        if hunk.at_end or not have:
            return len(have)
        raise ToolError(f"{what} only adds lines: add a line around it, so that the place is clear")
    starts = _after_anchors(have, hunk.anchors, cursor, what)
    for same in (_exactly, _without_trailing_blanks):
        places = {_first(have, hunk, start, same) for start in starts} - {-1}
        if not hunk.anchors and places and not hunk.at_end:
            again = _first(have, hunk, min(places) + 1, same)
            places |= {again} - {-1}
        if len(places) == 1:
            return places.pop()
        if places:
            lines = ", ".join(str(place + 1) for place in sorted(places)[:10])
            raise ToolError(
                f"{what} fits at lines {lines}: add more of the lines around it, or '@@' with the"
                " line of its class or function"
            )
    raise ToolError(f"{what} is not in the file after line {cursor}: {hunk.old[0][:120]!r} ...")


def _after_anchors(
    have: Sequence[str], anchors: tuple[str, ...], cursor: int, what: str
) -> list[int]:
    """Return every line after which a hunk may begin."""
    starts = [cursor]
    for anchor in anchors:
        first = min(starts)
        starts = [n + 1 for n in range(first, len(have)) if have[n].strip() == anchor]
        if not starts:
            # The line may be quoted in part, as in diffs of other tools.
            starts = [n + 1 for n in range(first, len(have)) if have[n].strip().startswith(anchor)]
        if not starts:
            raise ToolError(f"{what}: no line {anchor[:120]!r} after line {first}")
    return starts


def _first(have: Sequence[str], hunk: Hunk, start: int, same: Callable[[str, str], bool]) -> int:
    """Return the first place of a hunk from a line on; -1 if there is none."""
    old, last = hunk.old, len(have) - len(hunk.old)
    if hunk.at_end:
        start = max(start, last)
    for at in range(start, last + 1):
        if same(have[at], old[0]) and all(map(same, have[at : at + len(old)], old)):
            return at
    return -1


def _exactly(one: str, other: str) -> bool:
    return one == other


def _without_trailing_blanks(one: str, other: str) -> bool:
    return one.rstrip() == other.rstrip()


# --- calls -----------------------------------------------------------------------------------


def calls_for(place: Place, text: str, folder: str = "") -> list[Part]:
    """Return the calls that do what a patch says. Paths are relative to `folder`.

    Raises:
        ToolError: the patch is not valid, or does not fit the files.
    """
    parts: list[Part] = []
    for patch in parse(text):
        path = _below(folder, patch.path)
        before, name = _content(place, path), place.shown(place.resolve(path))
        if patch.kind == ADD:
            parts.append(Part("write", {"path": path, "content": patch.content}))
        elif before is None:
            raise ToolError(f"no such file: {name!r}")
        elif patch.kind == DELETE:
            parts.append(Part("bash", {"command": f"rm -- {shlex.quote(path)}"}))
        else:
            if patch.hunks and before:
                found = edits(before, patch.hunks, name)
                parts.append(Part("edit", {"path": path, "edits": found}))
            elif patch.hunks:
                added = changes([], patch.hunks, name)
                content = "".join(f"{line}\n" for change in added for line in change.new)
                parts.append(Part("write", {"path": path, "content": content}))
            if patch.move_to:
                parts.append(_move(place, path, patch.move_to, folder))
    return parts


def in_command(command: str) -> tuple[str, str] | None:
    """Return the patch and the directory of a command that only applies a patch; else None."""
    found = HEREDOC.fullmatch(command)
    if found is None:
        return None
    folder = found["folder"] or ""
    return found["patch"], folder[1:-1] if folder[:1] in ("'", '"') else folder


def _content(place: Place, path: str) -> bytes | None:
    full = place.resolve(path)
    if not os.path.lexists(full):
        return None
    with place.target(full, create=False) as target:
        return files.load(target)


def _move(place: Place, path: str, to: str, folder: str) -> Part:
    to = _below(folder, to)
    if _content(place, to) is not None:
        raise ToolError(f"cannot move {path!r} to {to!r}: that file exists")
    parent = to.rpartition("/")[0]
    make = f"mkdir -p -- {shlex.quote(parent)} && " if parent else ""
    return Part("bash", {"command": f"{make}mv -n -- {shlex.quote(path)} {shlex.quote(to)}"})


def _below(folder: str, path: str) -> str:
    return path if not folder or path.startswith(("/", "~")) else f"{folder}/{path}"


def edits(before: bytes, hunks: Sequence[Hunk], name: str) -> list[Json]:
    """Return a patch as edits, whose old texts are in the file once."""
    try:
        text = before.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ToolError(f"{name} is not UTF-8: change it with bash") from error
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1:] = [text.rpartition("\n")[2]] if lines[-1] != "\n" else []
    have = [line.removesuffix("\n") for line in lines]
    groups: list[tuple[int, int, list[Change]]] = []
    for change in changes(have, hunks, name):
        group = [change]
        # Without a last line that has no newline, the one before it has none.
        cuts_end = not change.new and change.end == len(lines) and not text.endswith("\n")
        low, high = _unique(text, lines, max(change.start - cuts_end, 0), change.end)
        while groups and groups[-1][1] > low:
            first, _, before_it = groups.pop()
            group = before_it + group
            low, high = _unique(text, lines, first, high)
        groups.append((low, high, group))
    return [_edit(lines, *group) for group in groups]


def _unique(text: str, lines: list[str], low: int, high: int) -> tuple[int, int]:
    """Return the range with as many lines around it as make its text the only one."""
    while True:
        part = "".join(lines[low:high])
        at = text.find(part)
        if part and text.find(part, at + 1) < 0:
            return low, high
        low, high = max(low - 1, 0), min(high + 1, len(lines))


def _edit(lines: list[str], low: int, high: int, group: list[Change]) -> Json:
    have = [line.removesuffix("\n") for line in lines[:high]]
    new: list[str] = []
    at = low
    for change in group:
        new += have[at : change.start] + change.new
        at = change.end
    new += have[at:high]
    old = "".join(lines[low:high])
    ending = "\n" if old.endswith("\n") else ""  # the last line of a file may have none
    return {"oldText": old, "newText": "\n".join(new) + ending if new else ""}
