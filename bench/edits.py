"""How many edits come out right when a model did not copy the old text exactly.

Takes hunks from the history of a git checkout, spoils old and new text the way models do, and
applies them with the code of the `edit` tool. Right: the file is what the commit made of it.

    python bench/edits.py [checkout] [--hunks 2000] [--seed 1] [--show 5]
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from zot.errors import ToolError
from zot.tools.edit import replace
from zot.tools.edit.lenient import PLAIN, plain

MAX_FILE = 200_000


class Hunk(Struct, frozen=True):
    file: str
    old: str
    new: str
    start: int
    """Where the old text is in the file."""

    def result(self, new: str) -> str:
        return self.file[: self.start] + new + self.file[self.start + len(self.old) :]


class Sent(Struct, frozen=True):
    """What the model sends, and what the hunk's new text would be if it is understood."""

    old: str
    new: str
    meant: str


Spoil = Callable[[Hunk, random.Random], Sent | None]


# --- hunks -----------------------------------------------------------------------------------


def git(checkout: str, *words: str) -> bytes:
    return subprocess.run(["git", "-C", checkout, *words], check=True, capture_output=True).stdout


def hunks(checkout: str, wanted: int, chance: random.Random) -> Iterator[Hunk]:
    commits = git(checkout, "log", "--no-merges", "--min-parents=1", "--format=%H").split()
    chance.shuffle(commits)
    for commit in commits:
        parents = git(checkout, "diff-tree", "-r", "--diff-filter=M", commit.decode() + "^!")
        rows = [row.split() for row in parents.decode("utf-8", "replace").split("\n") if row]
        blobs = [(row[2], row[3]) for row in rows if len(row) > 5 and row[0] != ":160000"]
        for before, after in chance.sample(blobs, min(3, len(blobs))):
            try:
                texts = [git(checkout, "cat-file", "blob", name) for name in (before, after)]
                old, new = (text.decode() for text in texts)
            except (UnicodeDecodeError, subprocess.CalledProcessError):
                continue
            if len(old) > MAX_FILE or "\0" in old or "\ufeff" in new or "\r" in old + new:
                continue
            taken = list(hunks_of(old, new, chance))
            for hunk in chance.sample(taken, min(3, len(taken))):
                yield hunk
                wanted -= 1
                if wanted == 0:
                    return


def hunks_of(before: str, after: str, chance: random.Random) -> Iterator[Hunk]:
    """Changes with up to three lines around them, whose old text is in the file once."""
    old, new = before.split("\n"), after.split("\n")
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line) + 1)
    matcher = difflib.SequenceMatcher(None, old, new)
    for group in matcher.get_grouped_opcodes(chance.choice((0, 1, 2, 3))):
        i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        if i2 - i1 > 200 or i1 == i2 or j1 == j2:
            continue
        end = "\n" if i2 < len(old) and j2 < len(new) and chance.random() < 0.5 else ""
        texts = "\n".join(old[i1:i2]) + end, "\n".join(new[j1:j2]) + end
        if texts[0].strip() and texts[0] != texts[1] and before.count(texts[0]) == 1:
            yield Hunk(before, *texts, starts[i1])


# --- what models do --------------------------------------------------------------------------


def by_line(change: Callable[[str], str], text: str) -> str:
    return "\n".join(map(change, text.split("\n")))


def both(hunk: Hunk, change: Callable[[str], str]) -> Sent:
    """The same change to both texts, which is to be undone in both."""
    return Sent(change(hunk.old), change(hunk.new), hunk.new)


def copied(hunk: Hunk, change: Callable[[str], str]) -> Sent:
    """A change that loses something: to the old text and to what the new text has of it. The
    rest is the model's own, and is meant as it is sent."""
    old, new = hunk.old.split("\n"), hunk.new.split("\n")
    sent = list(new)
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if tag == "equal":
            sent[j1:j2] = map(change, new[j1:j2])
        elif tag == "replace" and i2 - i1 == j2 - j1:
            sent[j1:j2] = [
                changed(change, *pair) for pair in zip(old[i1:i2], new[j1:j2], strict=True)
            ]
    return Sent(by_line(change, hunk.old), "\n".join(sent), hunk.new)


def changed(change: Callable[[str], str], old: str, new: str) -> str:
    """A changed line, of which the words at both ends are copied."""
    a, b = old.split(" "), new.split(" ")
    head = tail = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    words = [*map(change, b[:head]), *b[head : len(b) - tail], *map(change, b[len(b) - tail :])]
    return " ".join(words)


def trailing_lost(hunk: Hunk, chance: random.Random) -> Sent | None:
    """What the new text says of trailing blanks is lost with them; so only where it has none."""
    known = Counter(hunk.old.split("\n"))
    changed = list(
        (known - Counter(hunk.new.split("\n"))) | (Counter(hunk.new.split("\n")) - known)
    )
    if any(line != line.rstrip() for line in changed):
        return None
    return both(hunk, lambda text: by_line(str.rstrip, text))


def matching(old: list[str], new: list[str]) -> list[tuple[int, int, int]]:
    matcher = difflib.SequenceMatcher(None, old, new, False)
    return [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]


def trailing_added(hunk: Hunk, chance: random.Random) -> Sent | None:
    news = hunk.new.split("\n")
    bare = {line.rstrip() for line in hunk.old.split("\n") if line != line.rstrip()}
    if any(line != line.rstrip() for line in news) or bare.intersection(news):
        return None  # what it changes could not be told from what was spoilt
    pad = chance.choice((" ", "  ", "\t"))
    everywhere = chance.random() < 0.5

    def change(line: str) -> str:
        return line + pad if line and (everywhere or hash(line) % 3 == 0) else line

    return both(hunk, lambda text: by_line(change, text))


def typographic(hunk: Hunk, chance: random.Random) -> Sent | None:
    if set(hunk.new).intersection(PLAIN):
        return None  # what it adds could not be told from what was spoilt
    return both(hunk, chance.choice((curly, dashes, spaces)))


def curly(text: str) -> str:
    result, opened = [], False
    for char in text:
        if char == '"':
            opened = not opened
            char = "\u201c" if opened else "\u201d"
        result.append("\u2019" if char == "'" else char)
    return "".join(result)


def dashes(text: str) -> str:
    return text.replace(" - ", " \u2013 ").replace("--", "\u2014-")


def spaces(text: str) -> str:
    return text.replace(" ", "\u00a0")


def typed(hunk: Hunk, chance: random.Random) -> Sent:
    return copied(hunk, plain)


def indented(text: str, change: Callable[[str], str]) -> str:
    def line(text: str) -> str:
        rest = text.lstrip(" \t")
        return change(text[: len(text) - len(rest)]) + rest if rest else text

    return by_line(line, text)


def spaces_for_tabs(hunk: Hunk, chance: random.Random) -> Sent | None:
    old, new = (Counter(text.split("\n")) for text in (hunk.old, hunk.new))
    if any(re.match(r"\t* ", line) for line in (old - new) | (new - old)):
        return None  # what it changes could not be told from what was spoilt
    width = chance.choice((2, 4, 8))
    return both(hunk, lambda text: indented(text, lambda blanks: blanks.replace("\t", " " * width)))


def tabs_for_spaces(hunk: Hunk, chance: random.Random) -> Sent | None:
    if "\t" in hunk.old + hunk.new:
        return None
    width = chance.choice((2, 4))
    return both(hunk, lambda text: indented(text, lambda blanks: blanks.replace(" " * width, "\t")))


def margin(hunk: Hunk) -> int:
    lines = [line for line in (hunk.old + "\n" + hunk.new).split("\n") if line.strip()]
    return min(len(line) - len(line.lstrip()) for line in lines)


def dedented(hunk: Hunk, chance: random.Random) -> Sent | None:
    cut = margin(hunk)
    if len({line[:cut] for line in (hunk.old + "\n" + hunk.new).split("\n") if line.strip()}) > 1:
        return None  # tabs and spaces
    return both(hunk, lambda text: indented(text, lambda blanks: blanks[cut:]))


def deeper(hunk: Hunk, chance: random.Random) -> Sent:
    more = "\t" if "\n\t" in hunk.file else " " * chance.choice((1, 2, 4, 8))
    return both(hunk, lambda text: indented(text, lambda blanks: more + blanks))


def inner_blanks(hunk: Hunk, chance: random.Random) -> Sent | None:
    """Aligned columns lose their alignment."""
    wide = [Counter(re.findall(r"(?<=\S)\s\s+(?=\S)", text)) for text in (hunk.old, hunk.new)]
    pairs = re.findall(r"(?=(\S+)[ \t]{2,}(\S+))", hunk.old)
    if wide[0] - wide[1] or any(f"{left} {right}" in hunk.new for left, right in pairs):
        return None  # the commit did the same

    def change(line: str) -> str:
        text = line.strip()
        return line.replace(text, " ".join(text.split())) if text else line

    return copied(hunk, change)


def blank_dropped(hunk: Hunk, chance: random.Random) -> Sent | None:
    return blank_line(hunk, chance, drop=True)


def blank_added(hunk: Hunk, chance: random.Random) -> Sent | None:
    return blank_line(hunk, chance, drop=False)


def blank_line(hunk: Hunk, chance: random.Random, *, drop: bool) -> Sent | None:
    """The model remembers a blank line too few or too many, beside a line that it keeps. Now and
    then, between two such lines, only the old text has it wrong."""
    old, new = hunk.old.split("\n"), hunk.new.split("\n")
    places = [
        (a + step, b + step, step + drop < size)
        for a, b, size in matching(old, new)
        for step in range(1, size)
        if 0 < a + step < len(old) - 1 and old[a + step - 1].strip()
        if not drop or not old[a + step].strip()
        # The commit must not itself change how many blank lines there are: with one wrong in both
        # texts, the new one may say what the file has already.
        if blank_run(old, a + step) == blank_run(new, b + step)
        # Nor must the line it stands beside be there twice: then nobody knows where it was.
        if old.count(old[a + step - 1]) == new.count(old[a + step - 1]) == 1
    ]
    if not places:
        return None
    a, b, inside = chance.choice(places)
    old[a : a + drop] = [] if drop else [""]
    if not inside or chance.random() < 0.75:
        new[b : b + drop] = [] if drop else [""]
    return Sent("\n".join(old), "\n".join(new), hunk.new)


def blank_run(lines: list[str], at: int) -> int:
    """How many blank lines there are around a place."""
    before = next((n for n, line in enumerate(lines[:at][::-1]) if line.strip()), at)
    after = next((n for n, line in enumerate(lines[at:]) if line.strip()), len(lines) - at)
    return before + after


def escaped(hunk: Hunk, chance: random.Random) -> Sent:
    return both(hunk, lambda text: json.dumps(text, ensure_ascii=False)[1:-1])


def quotes_escaped(hunk: Hunk, chance: random.Random) -> Sent:
    return both(hunk, lambda text: text.replace('"', '\\"'))


def two_at_once(hunk: Hunk, chance: random.Random) -> Sent | None:
    """Another indent, and another character or blank."""
    first = chance.choice((dedented, deeper, spaces_for_tabs))(hunk, chance)
    if first is None or first.old in hunk.file:
        return None
    second = Hunk(hunk.file, first.old, first.new, 0)
    after = chance.choice((typographic, trailing_added))(second, chance)
    if after is None or after.old == first.old:
        return None
    return Sent(after.old, after.new, hunk.new)


SPOILS: dict[str, Spoil] = {
    "trailing blanks lost": trailing_lost,
    "trailing blanks added": trailing_added,
    "typographic for plain characters": typographic,
    "plain for typographic characters": typed,
    "spaces for tabs": spaces_for_tabs,
    "tabs for spaces": tabs_for_spaces,
    "all lines at the margin": dedented,
    "all lines deeper": deeper,
    "several blanks as one": inner_blanks,
    "a blank line dropped": blank_dropped,
    "a blank line added": blank_added,
    "escaped as in JSON": escaped,
    "quotes escaped": quotes_escaped,
    "indent and another": two_at_once,
}


# --- the outcome -----------------------------------------------------------------------------


def outcome(hunk: Hunk, sent: Sent, crlf: bool) -> tuple[str, str]:
    """right, refused or wrong, with what was said or made."""

    def file(text: str) -> bytes:
        return (text.replace("\n", "\r\n") if crlf else text).encode()

    try:
        edits = replace.parse({"edits": [{"oldText": sent.old, "newText": sent.new}]})
        after = replace.apply(file(hunk.file), edits, "file").content
    except ToolError as error:
        return "refused", str(error)
    if after == file(hunk.result(sent.meant)):
        return "right", ""
    return "wrong", after.decode("utf-8", "replace")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", nargs="?", default=str(Path(__file__).parent.parent))
    parser.add_argument("--hunks", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="cases that went wrong, to print")
    parser.add_argument("--refused", default="", help="print refused cases of this kind instead")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    counts: dict[str, Counter[str]] = {name: Counter() for name in SPOILS}
    left, slowest, number = options.show, 0.0, 0
    until = time.monotonic() + options.seconds
    for number, hunk in enumerate(hunks(options.checkout, options.hunks, chance), 1):
        if time.monotonic() > until:
            break
        for name, spoil in SPOILS.items():
            sent = spoil(hunk, chance)
            if sent is None or sent.old == hunk.old or sent.old == sent.new:
                continue
            if sent.old in hunk.file:
                counts[name]["still exact"] += 1
                continue
            started = time.perf_counter()
            # A file without a line end does not say which one it has.
            verdict, said = outcome(hunk, sent, crlf=number % 5 == 0 and "\n" in hunk.file)
            slowest = max(slowest, time.perf_counter() - started)
            counts[name][verdict] += 1
            wanted = name == options.refused if verdict == "refused" else verdict == "wrong"
            if left and wanted:
                left -= 1
                show(name, hunk, sent, said)
    report(counts, number, slowest)


def show(name: str, hunk: Hunk, sent: Sent, said: str) -> None:
    meant = hunk.result(sent.meant).split("\n")
    print(f"--- {name}\nOLD {hunk.old!r}\nSENT {sent.old!r}\nNEW {sent.new!r}")
    rows = difflib.unified_diff(
        meant, said.replace("\r\n", "\n").split("\n"), "meant", "made", "", "", 1
    )
    print("\n".join(rows) if said.count("\n") > len(meant) // 2 else said, "\n")


def report(counts: dict[str, Counter[str]], hunks: int, slowest: float) -> None:
    total: Counter[str] = Counter()
    print("| what was wrong with the old text | edits | right | refused | wrong | still exact |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, count in [*counts.items(), ("**all**", total)]:
        tried = count["right"] + count["refused"] + count["wrong"]
        total.update(count if count is not total else {})
        shares = [f"{100 * count[word] / max(1, tried):.1f} %" for word in ("right", "refused")]
        rest = f"{count['wrong']} | {count['still exact']}"
        print(f"| {name} | {tried} | {' | '.join(shares)} | {rest} |")
    print(f"\n{hunks} hunks; the slowest edit took {slowest * 1000:.0f} ms.")


if __name__ == "__main__":
    main()
