"""A table in a terminal's width: headers folded, texts cut, columns left out or continued below, cells coloured.

A number is never cut: its column is there whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trackers.analysis.tables import TextTable, plain, show

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
    """place: in the table. least: the width it needs. cells: what its cells want. natural: with its whole header."""

    place: int
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
    order = [*table.spare, *(place for place in range(len(columns) - 1, 0, -1) if place not in table.spare)]
    kept = dict(enumerate(columns))
    dropped = []
    for place in order:
        if _total(kept.values()) <= width:
            break
        dropped.append(place)
        del kept[place]
    for place in reversed(dropped):  # a narrow one may have room where a wide one, spared after it, has gone
        if _total([*kept.values(), columns[place]]) <= width:
            kept[place] = columns[place]
    kept = dict(sorted(kept.items()))
    left_out = [plain(table.headers[place]) for place in range(len(columns)) if place not in kept]
    return Fitted(_title(table) + _text(table, cells, list(kept.values()), width, colored), left_out)


def in_parts(table: TextTable, width: int, *, colored: bool = True) -> str:
    """The table with all columns: those that don't fit follow below, each part with the first column again."""
    cells = _cells(table, colored)
    first, *others = _columns(table, cells)
    parts: list[list[_Column]] = [[first]]
    for column in others:
        if len(parts[-1]) > 1 and _total([*parts[-1], column]) > width:
            parts.append([first])
        parts[-1].append(column)
    return _title(table) + "\n".join(_text(table, cells, part, width, colored) for part in parts)


def _title(table: TextTable) -> str:
    return f"{plain(table.title)}\n" if table.title else ""


def _total(columns: Iterable[_Column]) -> int:
    widths = [column.least for column in columns]
    return sum(widths) + GAP * (len(widths) - 1)


def _cells(table: TextTable, colored: bool) -> list[list[str]]:
    rows = [[plain(show(value)) for value in row] for row in table.rows]
    if not colored:
        best = {place for place, tone in table.tones.items() if tone == "best"}
        for column in {column for _, column in best}:
            for number, row in enumerate(rows):
                row[column] += "*" if (number, column) in best else " "
    return rows


def _columns(table: TextTable, cells: Sequence[Sequence[str]]) -> list[_Column]:
    found = []
    for place, header in enumerate(table.headers):
        texts = numbers = 0
        for raw, row in zip(table.rows, cells, strict=True):
            size = _width(row[place])
            if isinstance(raw[place], str):
                texts = max(texts, size)
            else:
                numbers = max(numbers, size)
        inside = max(texts, numbers, 1)
        least = inside if place in table.whole else max(numbers, min(texts, table.least.get(place, LEAST)), 1)
        natural = max(inside, _width(plain(header)))
        found.append(_Column(place, _folded_width(plain(header), least, natural), inside, natural))
    return found


def _text(
    table: TextTable, cells: Sequence[Sequence[str]], columns: Sequence[_Column], width: int, colored: bool
) -> str:
    widths = _grown(columns, width)
    headers = [_fold(plain(table.headers[column.place]), size) for column, size in zip(columns, widths, strict=True)]
    height = max(map(len, headers))
    headers = [[""] * (height - len(lines)) + lines for lines in headers]
    text = []
    for line in range(height):
        parts = [_padded(table, column.place, lines[line], size, "1" if colored else "")
                 for column, lines, size in zip(columns, headers, widths, strict=True)]  # fmt: skip
        text.append((" " * GAP).join(parts).rstrip())
    for number, row in enumerate(cells):
        parts = []
        for column, size in zip(columns, widths, strict=True):
            code = _CODES.get(table.tones.get((number, column.place), ""), "") if colored else ""
            whole = row[column.place]
            all_well = whole.endswith(DELIVERED) and ";" not in whole
            shown = cut(whole, size, middle=not column.place or all_well)
            parts.append(_padded(table, column.place, shown, size, code))
        text.append((" " * GAP).join(parts).rstrip())
    return "\n".join(text) + "\n"


def _grown(columns: Sequence[_Column], width: int) -> list[int]:
    """The columns' widths: what is left of the terminal's goes to cut texts first, then to folded headers."""
    widths = [column.least for column in columns]
    room = width - _total(columns)
    for wanted in ([column.cells for column in columns], [column.natural for column in columns]):
        while room > 0:
            short = [place for place, size in enumerate(widths) if size < wanted[place]]
            if not short:
                break
            for place in short[:room]:
                widths[place] += 1
            room -= min(room, len(short))
    return widths


def _padded(table: TextTable, place: int, text: str, size: int, code: str) -> str:
    space = " " * (size - _width(text))
    text = f"\x1b[{code}m{text}\x1b[0m" if code and text else text
    return text + space if table.is_text(place) else space + text


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
    return [cut(line.rstrip(), size, middle=True) for line in lines]


def cut(text: str, size: int, *, middle: bool = False) -> str:
    """A text in so many cells, ``…`` for what is left out.

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
