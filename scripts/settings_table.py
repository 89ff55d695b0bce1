"""Writes the table of settings into docs/config.md, between its markers; a test says when to."""

from pathlib import Path

from zot.cli.help import settings_table

PAGE = Path(__file__).parent.parent / "docs" / "config.md"
START, END = "<!-- settings: made by scripts/settings_table.py -->\n", "<!-- end of settings -->\n"

if __name__ == "__main__":
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{START}{settings_table()}{END}{tail}", encoding="utf-8")
