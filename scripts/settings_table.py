"""Print the table of settings for docs/config.md; `--write` puts it there, a test compares."""

from __future__ import annotations

import sys
from pathlib import Path

from zot.settings.options import FILE_SETTINGS

PAGE = Path(__file__).parent.parent / "docs" / "config.md"
START, END = "<!-- settings: scripts/settings_table.py --write -->\n", "<!-- end of settings -->\n"
HEAD = "| setting | what it is | kind | default | flag | variable | a project may set it |"


def table() -> str:
    lines = [HEAD, "|" + " --- |" * 7]
    for row in FILE_SETTINGS.values():
        cells = [
            f"`{row.name}`",
            row.help,
            row.kind,
            "" if row.default is None else f"`{row.default}`".lower(),
            ", ".join(f"`{word}`" for word in (*row.words, *row.fixed)),
            f"`{row.variables[0]}`",
            {"project": "yes", "narrow": "stricter only"}.get(row.file, ""),
        ]
        lines.append("".join(f"| {cell} ".replace("  ", " ") for cell in cells) + "|")
    old = [f"`{name}` ({row.name})" for row in FILE_SETTINGS.values() for name in row.old]
    lines += ["", f"Older names are understood, in files and as variables: {', '.join(old)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
    if "--write" in sys.argv:
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        tail = rest.partition(END)[2]
        PAGE.write_text(f"{head}{START}{table()}{END}{tail}", encoding="utf-8")
