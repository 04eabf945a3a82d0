"""A table in a terminal's width: headers folded, texts cut, columns left out or continued below, cells coloured.

A number is never cut: its column is there whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trackers.analysis.tables import TextTable, format_value, legend_lines, plain

LEAST = 12
"""Default minimum width of a column whose texts are cut, in cells."""
HEADER_LINES = 3
LONGEST_PIECE = 20
"""Maximum width that a folded header keeps whole, in cells; longer words are cut."""
GAP = 2
DELIVERED = "✓"
"""A sign at the end of a text that a cut leaves: trackers that have everything."""
_PIECES = re.compile(r"[^/_\-. ]*[/_\-. ]|[^/_\-. ]+")
_CODES = {"best": "1;32", "good": "32", "busy": "36", "bad": "31", "odd": "33"}
"""ANSI codes by tone (:attr:`TextTable.tones`)."""


class Fitted(NamedTuple):
    """text: lines, each with a newline. left_out: headers of the columns that had no room."""

    text: str
    left_out: list[str]


class _Column(NamedTuple):
    """A column's widths in terminal cells.

    ``number``: index of the column in the table. ``least``: minimum width. ``cells``: width of its longest cell.
    ``natural``: width with its whole header.
    """

    number: int
    least: int
    cells: int
    natural: int


def fitted(table: TextTable, width: int, *, colored: bool = True) -> Fitted:
    """The table with the columns that fit; :attr:`TextTable.spare` are left out first, then those at the right.

    Args:
        width: of the terminal, in cells. colored: False: the best values are marked ``*``.
    """
    cells = _cells(table, colored)
    columns = _columns(table, cells)
    order = [*table.spare, *(index for index in range(len(columns) - 1, 0, -1) if index not in table.spare)]
    shown = dict(enumerate(columns))
    dropped = []
    for index in order:
        if _total(shown.values()) <= width:
            break
        dropped.append(index)
        del shown[index]
    for index in reversed(dropped):  # a narrow one may have room where a wide one, spared after it, has gone
        if _total([*shown.values(), columns[index]]) <= width:
            shown[index] = columns[index]
    shown = dict(sorted(shown.items()))
    left_out = [plain(table.headers[index]) for index in range(len(columns)) if index not in shown]
    text = _text(table, cells, list(shown.values()), width, colored)
    return Fitted(_title(table) + text + legend_lines(table), left_out)


def in_parts(table: TextTable, width: int, *, colored: bool = True) -> str:
    """The table with all columns: those that don't fit follow below, each part with the first column again."""
    cells = _cells(table, colored)
    first, *others = _columns(table, cells)
    parts: list[list[_Column]] = [[first]]
    for column in others:
        if len(parts[-1]) > 1 and _total([*parts[-1], column]) > width:
            parts.append([first])
        parts[-1].append(column)
    text = "\n".join(_text(table, cells, part, width, colored) for part in parts)
    return _title(table) + text + legend_lines(table)


def _title(table: TextTable) -> str:
    return f"{plain(table.title)}\n" if table.title else ""


def _total(columns: Iterable[_Column]) -> int:
    widths = [column.least for column in columns]
    return sum(widths) + GAP * (len(widths) - 1)


def _cells(table: TextTable, colored: bool) -> list[list[str]]:
    rows = [[plain(format_value(value)) for value in row] for row in table.rows]
    if not colored:
        best = {cell for cell, tone in table.tones.items() if tone == "best"}
        for column in {column for _, column in best}:
            for number, row in enumerate(rows):
                row[column] += "*" if (number, column) in best else " "
    return rows


def _columns(table: TextTable, cells: Sequence[Sequence[str]]) -> list[_Column]:
    columns = []
    for index, header in enumerate(table.headers):
        texts = numbers = 0
        for raw, row in zip(table.rows, cells, strict=True):
            size = _width(row[index])
            if isinstance(raw[index], str):
                texts = max(texts, size)
            else:
                numbers = max(numbers, size)
        longest = max(texts, numbers, 1)
        least = longest if index in table.whole else max(numbers, min(texts, table.least.get(index, LEAST)), 1)
        natural = max(longest, _width(plain(header)))
        columns.append(_Column(index, _folded_width(plain(header), least, natural), longest, natural))
    return columns


def _text(
    table: TextTable, cells: Sequence[Sequence[str]], columns: Sequence[_Column], width: int, colored: bool
) -> str:
    widths = _grown(columns, width)
    headers = [_fold(plain(table.headers[column.number]), size) for column, size in zip(columns, widths, strict=True)]
    height = max(map(len, headers))
    headers = [[""] * (height - len(lines)) + lines for lines in headers]
    text = []
    for line in range(height):
        parts = [_padded(table, column.number, lines[line], size, "1" if colored else "")
                 for column, lines, size in zip(columns, headers, widths, strict=True)]  # fmt: skip
        text.append((" " * GAP).join(parts).rstrip())
    for number, row in enumerate(cells):
        parts = []
        for column, size in zip(columns, widths, strict=True):
            code = _CODES.get(table.tones.get((number, column.number), ""), "") if colored else ""
            whole = row[column.number]
            all_well = whole.endswith(DELIVERED) and ";" not in whole
            shown = truncate(whole, size, middle=not column.number or all_well)
            parts.append(_padded(table, column.number, shown, size, code))
        text.append((" " * GAP).join(parts).rstrip())
    return "\n".join(text) + "\n"


def _grown(columns: Sequence[_Column], width: int) -> list[int]:
    """The columns' widths: spare width goes to cut texts first, then to folded headers."""
    widths = [column.least for column in columns]
    room = width - _total(columns)
    for targets in ([column.cells for column in columns], [column.natural for column in columns]):
        while room > 0:
            short = [index for index, size in enumerate(widths) if size < targets[index]]
            if not short:
                break
            for index in short[:room]:
                widths[index] += 1
            room -= min(room, len(short))
    return widths


def _padded(table: TextTable, index: int, text: str, size: int, code: str) -> str:
    space = " " * (size - _width(text))
    text = f"\x1b[{code}m{text}\x1b[0m" if code and text else text
    return text + space if table.is_text(index) else space + text


def _folded_width(header: str, least: int, natural: int) -> int:
    """The smallest width, from ``least`` up, at which a header takes few lines, and no word of it is cut."""
    pieces = _PIECES.findall(header)
    size = max(least, min(LONGEST_PIECE, max((_width(piece.rstrip()) for piece in pieces), default=0)))
    while size < natural and len(_fold(header, size)) > HEADER_LINES:
        size += 1
    return size


def _fold(header: str, size: int) -> list[str]:
    lines = [""]
    for piece in _PIECES.findall(header):
        if not lines[-1] or _width((lines[-1] + piece).rstrip()) <= size:
            lines[-1] += piece
        else:
            lines.append(piece)
    return [truncate(line.rstrip(), size, middle=True) for line in lines]


def truncate(text: str, size: int, *, middle: bool = False) -> str:
    """A text cut to a number of cells, with ``…`` for what is left out.

    Args:
        middle: leave out the middle: names often differ at their ends.
    """
    if _width(text) <= size:
        return text
    from rich.cells import set_cell_size

    if size < 2:
        return "…"[:size]
    end = (size - 1) // 2 if middle else 0
    tail = ""
    for char in reversed(text[len(text) - end :] if end else ""):
        if _width(char + tail) > end:
            break
        tail = char + tail
    return set_cell_size(text, size - 1 - _width(tail)).rstrip() + "…" + tail


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
