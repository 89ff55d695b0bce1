"""A small model of tmux's grid: what stands on the screen and above it, and what a resize does.

Knows the few sequences that the live area is made of, and no automatic wrapping.
"""

import re

_TOKEN = re.compile(r"\x1b\[([?>]?[\d;]*)([A-Za-z])|\x1b([78])|([\r\n])|([^\x1b\r\n]+)")


class TmuxGrid:
    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.history: list[str] = []
        self.screen = [""] * rows
        self.joined = [False] * rows
        """For each row of the history and the screen: it goes on in the next one."""
        self.row = self.column = 0
        self._saved = (0, 0)

    def write(self, text: str) -> None:
        for match in _TOKEN.finditer(text):
            numbers, final, save, control, words = match.groups()
            if words:
                self._put(words)
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self._down()
            elif save:
                if save == "7":
                    self._saved = (self.row, self.column)
                else:
                    self.row, self.column = self._saved
            elif not numbers.startswith(("?", ">")):
                self._do(final, int(numbers or 0))

    def _do(self, final: str, number: int) -> None:
        match final:
            case "A":
                self.row = max(0, self.row - max(1, number))
            case "B":
                self.row = min(self.rows - 1, self.row + max(1, number))
            case "G":
                self.column = min(self.columns, max(1, number)) - 1
            case "K":
                self._set(self.row, self.screen[self.row][: self.column])
            case "J":
                self._erase_below()
            case "m":
                pass
            case _:
                raise AssertionError(f"unknown sequence {number}{final}")

    def _erase_below(self) -> None:
        if (self.row, self.column) == (0, 0):  # the screen ends: it is kept
            used = max((at + 1 for at, line in enumerate(self.screen) if line), default=0)
            self.history += self.screen[:used]
            self.joined = [*self.joined[: len(self.history)], *[False] * self.rows]
            self.screen = [""] * self.rows
            return
        self._set(self.row, self.screen[self.row][: self.column])
        for row in range(self.row + 1, self.rows):
            self._set(row, "")

    def _set(self, row: int, text: str) -> None:
        self.screen[row] = text
        self.joined[len(self.history) + row] = False

    def _put(self, words: str) -> None:
        line = self.screen[self.row].ljust(self.column)
        words = words[: max(0, self.columns - self.column)]
        self.screen[self.row] = line[: self.column] + words + line[self.column + len(words) :]
        self.column = min(self.columns - 1, self.column + len(words))

    def _down(self) -> None:
        if self.row < self.rows - 1:
            self.row += 1
            return
        self.history.append(self.screen.pop(0))
        self.screen.append("")
        self.joined.append(False)

    def resize(self, columns: int, rows: int) -> None:
        self._resize_rows(rows)
        self._reflow(columns)

    def _resize_rows(self, rows: int) -> None:
        while len(self.screen) > rows and len(self.screen) - 1 > self.row:
            self.screen.pop()  # also what stands below the cursor
            self.joined.pop()
        while len(self.screen) > rows:
            self.history.append(self.screen.pop(0))
            self.row -= 1
        while len(self.screen) < rows:
            if self.history:
                self.screen.insert(0, self.history.pop())
                self.row += 1
            else:
                self.screen.append("")
                self.joined.append(False)
        self.rows = rows

    def _reflow(self, columns: int) -> None:
        """Break all lines anew. The screen keeps its number of rows: what is more goes up."""
        rows = [*self.history, *self.screen]
        at = len(self.history) + self.row
        lines: list[str] = []
        cursor = (0, 0)
        for index, text in enumerate(rows):
            if not (index and self.joined[index - 1]):
                lines.append("")
            if index == at:
                cursor = (len(lines) - 1, len(lines[-1]) + self.column)
            lines[-1] += text
        broken: list[str] = []
        joined: list[bool] = []
        place = (0, 0)
        for index, line in enumerate(lines):
            pieces = [line[i : i + columns] for i in range(0, len(line), columns)] or [""]
            if index == cursor[0]:
                down = min(cursor[1] // columns, len(pieces) - 1)
                place = (len(broken) + down, cursor[1] - down * columns)
            broken += pieces
            joined += [True] * (len(pieces) - 1) + [False]
        while len(broken) < self.rows:
            broken.append("")
            joined.append(False)
        cut = len(broken) - self.rows
        self.history, self.screen, self.joined = broken[:cut], broken[cut:], joined
        self.row, self.column = max(0, place[0] - cut), min(columns - 1, place[1])
        self.columns = columns

    def text(self) -> list[str]:
        """All lines with something on them, those that were broken joined again."""
        lines: list[str] = []
        for index, row in enumerate([*self.history, *self.screen]):
            if index and self.joined[index - 1]:
                lines[-1] += row
            else:
                lines.append(row)
        return [line.rstrip() for line in lines if line.strip()]
