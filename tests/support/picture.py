"""What stands on the emulator as a picture, made from its cells."""

from __future__ import annotations

from html import escape
from typing import Any

WIDTH, HEIGHT, MARGIN = 8.4, 18, 12
"""Of a cell, and around all of them, in points."""
BACKGROUND, FOREGROUND = "#15181d", "#d7dae0"
COLOURS = (
    *("#3b4048", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4"),
    *("#5c6370", "#ff7b86", "#b5e08f", "#ffd68a", "#7cc3ff", "#dd93f2", "#6fd3df", "#ffffff"),
)


def svg(cells: list[list[list[Any]]], rows: int | None = None) -> str:
    """The rows of cells; blank ones at the end are left out."""
    cells = cells[:rows]
    while cells and not "".join(cell[0] for cell in cells[-1]).strip():
        cells = cells[:-1]
    columns = max((sum(cell[1] for cell in row) for row in cells), default=0)
    width, height = columns * WIDTH + 2 * MARGIN, len(cells) * HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" '
        'xml:space="preserve">',
    ]
    for number, row in enumerate(cells):
        parts += _row(row, MARGIN + number * HEIGHT)
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _row(row: list[list[Any]], top: float) -> list[str]:
    """One text for cells in a row that look alike."""
    parts: list[str] = []
    column = 0
    start, text, look = 0, "", None
    for cell in [*row, [" ", 1, None]]:
        if cell[2:] != look:
            if text.strip() or (look and (look[6] or look[8] >= 0)):
                parts += _text(text, start, column, look, top)
            start, text, look = column, "", cell[2:]
        text += cell[0]
        column += cell[1]
    return parts


def _text(text: str, start: int, end: int, look: list[Any], top: float) -> list[str]:
    colour, is_rgb, bold, dim, italic, underline, inverse, strike, ground, is_ground_rgb = look
    fill = FOREGROUND if colour < 0 else f"#{colour:06x}" if is_rgb else _of_palette(colour)
    back = BACKGROUND if ground < 0 else f"#{ground:06x}" if is_ground_rgb else _of_palette(ground)
    x, width = MARGIN + start * WIDTH, (end - start) * WIDTH
    parts = []
    if inverse or ground >= 0:
        back, fill = (fill, back) if inverse else (back, fill)
        parts.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}" fill="{back}"/>'
        )
    # Blanks are not drawn: browsers make one of many, whatever they are told.
    x += (len(text) - len(text.lstrip())) * WIDTH
    width -= (len(text) - len(text.strip())) * WIDTH
    text = text.strip().replace(" ", "\u00a0")
    if not text:
        return parts
    more = ' font-weight="bold"' * bold + ' font-style="italic"' * italic
    more += ' opacity="0.65"' * dim
    decoration = " ".join(["underline"] * underline + ["line-through"] * strike)
    more += f' text-decoration="{decoration}"' if decoration else ""
    parts.append(
        f'<text x="{x:.1f}" y="{top + 13.5}" textLength="{width:.1f}" '
        f'lengthAdjust="spacingAndGlyphs" fill="{fill}"{more}>{escape(text)}</text>'
    )
    return parts


def _of_palette(number: int) -> str:
    """Of the 256 colours: 16 of one's own, a cube of six steps, and grey."""
    if number < 16:
        return COLOURS[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    cube = number - 16
    steps = (cube // 36, cube // 6 % 6, cube % 6)
    return "#" + "".join(f"{step and 55 + 40 * step:02x}" for step in steps)
