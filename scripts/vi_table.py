"""Makes tests/tui/vi_table.json: what vim does for each sequence of keys.

    .venv/bin/python scripts/vi_table.py            # needs vim

Each row has a text, the place of the cursor, the keys, and vim's text and cursor after them (and
after Esc, as `:normal` ends).
"""

# ruff: noqa: E501
from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "tests" / "tui" / "vi_table.json"
LINE = "alpha beta gamma(x)"
CALL = 'run("a b", f(1, [2, 3]), {"k": v}) # end'
LINES = "first line\n  second one\n\nthird, last\nfourth"
CASES: list[tuple[str, int, str]] = [
    # movements: an x shows where they end
    *((LINE, 0, f"{keys}x") for keys in ("w", "2w", "3w", "e", "2e", "$", "l", "4l", "99l", "fg", "tg")),
    *((LINE, 0, f"{keys}x") for keys in ("fa", "2fa", "fa;", "fa;;", "fa;,", "ta;", "W", "E", "2W", "9w")),
    *((LINE, 12, f"{keys}x") for keys in ("b", "2b", "B", "h", "3h", "0", "^", "ge", "Fa", "Ta", "2Fa", "Fa;")),
    *((LINE, 18, f"{keys}x") for keys in ("b", "%", "ge", "gE", "F(", "B", "5|")),
    *((LINES, 0, f"{keys}x") for keys in ("j", "2j", "3j", "G", "2G", "gg", "}", "2}", "w", "2w", "3w", "4w", "5w")),
    *((LINES, 14, f"{keys}x") for keys in ("k", "j", "^", "0", "{", "b", "2b", "e", "$", "W", "gg", "G")),
    *((LINES, 24, f"{keys}x") for keys in ("k", "j", "b", "w", "ge", "{", "}")),
    # deleting
    *((LINE, 0, f"d{keys}") for keys in ("w", "2w", "e", "$", "fb", "tb", "l", "3l", "W", "d", "iw", "aw", "9w")),
    *((LINE, 7, f"d{keys}") for keys in ("w", "e", "b", "0", "^", "$", "h", "iw", "aw", "2aw", "iW", "aW", "Fa", "Ta")),
    *((LINE, 17, f"d{keys}") for keys in ("i(", "a(", "ib", "iw", "%", "w", "aw", "ge")),
    *((LINES, 0, f"d{keys}") for keys in ("d", "2d", "j", "G", "w", "3w", "}", "$", "iw")),
    *((LINES, 14, f"d{keys}") for keys in ("d", "k", "gg", "b", "0", "w", "iw", "aw")),
    *((LINES, 30, f"d{keys}") for keys in ("d", "k", "j", "iw", "aw", "w")),
    *((LINE, 5, keys) for keys in ("x", "3x", "X", "2X", "D", "rZ", "3rZ", "99rZ", "~", "6~", "99x")),
    # changing
    *((LINE, 0, f"c{keys}NEW") for keys in ("w", "2w", "e", "$", "c", "iw", "aw", "fb", "tb", "W")),
    *((LINE, 6, f"c{keys}NEW") for keys in ("w", "iw", "aw", "b", "0", "$")),
    (LINE, 5, "cwNEW"), (LINE, 5, "dw"), (LINE, 5, "sNEW"), (LINE, 5, "3sNEW"), (LINE, 5, "SNEW"),
    (LINE, 5, "CNEW"), (LINES, 14, "ccNEW"), (LINES, 14, "SNEW"), (LINES, 0, "2ccNEW"),
    # text objects
    *((CALL, 6, keys) for keys in ('di"', 'da"', "di(", "da(", 'ci"NEW', "ci(NEW", "yi(P", "diw")),
    *((CALL, 15, keys) for keys in ("di(", "da(", "2di(", "d2i(", "di[", "da[", "dib", "%x")),
    *((CALL, 26, keys) for keys in ("di{", "da{", "diB", 'di"', "di(", "diW", "daW")),
    (CALL, 0, 'di"'), (CALL, 0, 'ci"NEW'), (CALL, 0, "%x"), (CALL, 39, "daw"), (CALL, 36, "daw"),
    # inserting
    *((LINE, 6, f"{key}NEW") for key in ("i", "a", "I", "A", "o", "O", "3i", "2a", "2A")),
    (LINE, 0, "$iX"), (LINE, 0, "$aX"), (LINES, 14, "INEW"), (LINES, 14, "oNEW"), (LINES, 14, "ONEW"),
    (LINES, 21, "ax"), (LINES, 21, "iNEW"), (LINES, 21, "x"), (LINES, 21, "dd"), (LINES, 21, "D"),
    # copying and putting
    (LINE, 0, "ywP"), (LINE, 0, "ywwP"), (LINE, 0, "yw$p"), (LINE, 0, "yyp"), (LINE, 0, "yyP"),
    (LINE, 0, "yy2p"), (LINE, 0, "xp"), (LINE, 0, "x3p"), (LINE, 0, "dwp"), (LINE, 0, "dw$p"),
    (LINES, 0, "ddp"), (LINES, 0, "ddjp"), (LINES, 0, "2yyjp"), (LINES, 14, "yiwP"), (LINES, 14, "ddP"),
    (LINE, 6, "y$0P"), (LINE, 6, "ybP"), (LINE, 6, "YP"), (LINES, 30, "yykP"),
    # case, joining, undoing, repeating
    (LINE, 0, "gUw"), (LINE, 0, "gUU"), (LINE, 0, "g~~"), (LINE, 0, "guiw"), (LINE, 7, "gUiw"), (LINE, 0, "g~e"),
    (LINES, 0, "J"), (LINES, 0, "3J"), (LINES, 14, "J"), (LINES, 24, "J"), (LINES, 21, "J"),
    (LINE, 0, "xu"), (LINE, 0, "dwu"), (LINE, 0, "xxuu"), (LINE, 0, "dwu"), (LINE, 7, "ciwNEW\x1bu"),
    (LINE, 0, "x."), (LINE, 0, "dw."), (LINE, 0, "x3."), (LINE, 0, "iab\x1b."), (LINE, 0, "cwNEW\x1bw."),
    (LINE, 0, "ciwNEW\x1bw."), (LINE, 0, "rZl."), (LINES, 0, "dd."), (LINES, 0, "ANEW\x1bj."), (LINE, 0, "~."),
    (LINE, 0, "dfa."), (LINE, 0, "2dw"), (LINE, 0, "d2w"), (LINE, 0, "2x."), (LINE, 0, "ffx"), (LINE, 0, "dzx"),
]  # fmt: skip
SCRIPT = """
let cases = json_decode(join(readfile(%r), ''))
let out = []
set nocompatible noautoindent backspace=indent,eol,start nojoinspaces
for case in cases
  %%delete _
  set undolevels=-1
  call setline(1, case[0])
  set undolevels=1000
  call cursor(case[1], case[2])
  call setreg('"', '')
  exe "normal! " . case[3]
  call add(out, [getline(1, '$'), line('.'), col('.')])
endfor
call writefile([json_encode(out)], %r)
qa!
"""


def place(text: str, at: int) -> tuple[int, int]:
    """The line and the column, as vim counts."""
    before = text[:at]
    return before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        given, made, script = (Path(folder) / name for name in ("given", "made", "script.vim"))
        cases = [(text.split("\n"), *place(text, at), keys) for text, at, keys in CASES]
        given.write_text(json.dumps(cases))
        script.write_text(SCRIPT % (str(given), str(made)))
        command = ["vim", "-Nu", "NONE", "-n", "-i", "NONE", "-es", "-S", str(script)]
        subprocess.run(command, check=True, timeout=60)
        results = json.loads(made.read_text())
    rows = []
    for (text, at, keys), (lines, line, column) in zip(CASES, results, strict=True):
        cursor = sum(len(one) + 1 for one in lines[: line - 1]) + column - 1
        rows.append([text, at, keys, "\n".join(lines), cursor])
    TARGET.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(len(rows), "sequences")


if __name__ == "__main__":
    main()
