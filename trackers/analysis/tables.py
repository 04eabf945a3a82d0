"""Tables of texts and numbers, written for a terminal, Markdown, CSV or LaTeX; each with its own escapes."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from trackers.records import name_floats

MISSING = "–"
"""Shown for a missing value."""

FORMATS = ("table", "markdown", "csv", "latex")

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\symbol{34}", "–": "--", "±": r"$\pm$", "×": r"$\times$", "∞": r"$\infty$",
    "[": "{[}", "]": "{]}",
}  # fmt: skip
_MARKDOWN = re.compile(r"([\\`*{}\[\]()#+!|~$]|(?<![^\W_])_|_(?![^\W_]))")  # inside a word _ is nothing special
_MARKDOWN_START = re.compile(r"^(\s*)([-=]|\d+\.(?=\s))")


class TextTable(msgspec.Struct):
    """headers: one for each column. rows: numbers, texts or None, as they are. title: above it, "" for none.

    texts: how many columns at the left are texts; the others are aligned at the right.
    """

    headers: list[str]
    rows: list[list[Any]]
    title: str = ""
    texts: int = 1


def render(table: TextTable, form: str) -> str:
    """The table in one of :data:`FORMATS`, with a newline at its end."""
    writers: dict[str, Callable[[TextTable], str]] = {
        "table": _text, "markdown": _markdown, "csv": _csv, "latex": _latex,
    }  # fmt: skip
    return writers[form](table)


def show(value: Any) -> str:
    """A value as people read it: five digits, thousands apart, – for nothing."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}" if value.bit_length() < 200 else f"{float(value):.5g}" if value.bit_length() < 1000 else "…"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if value != value else "∞" if value > 0 else "-∞"
        return f"{value:,.0f}" if 9999.95 <= abs(value) < 1e15 else f"{value:.5g}"
    return str(value)


def plain(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """A text that Markdown and HTML show as it is, in a cell of a table too."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKDOWN.sub(r"\\\1", text)
    return _MARKDOWN_START.sub(r"\1\\\2", text)


def escape_latex(text: str) -> str:
    """A text that LaTeX prints as it is; what it has no letter for stays, for an engine that reads UTF-8."""
    return "".join(_LATEX.get(char, char) for char in plain(text))


def _text(table: TextTable) -> str:
    from rich.cells import cell_len

    def width(text: str) -> int:
        return len(text) if text.isascii() else cell_len(text)

    lines = [[plain(cell) for cell in row] for row in (table.headers, *map(_shown, table.rows))]
    widths = [max(width(line[place]) for line in lines) for place in range(len(table.headers))]
    text = [plain(table.title)] if table.title else []
    for line in lines:
        cells = []
        for place, cell in enumerate(line):
            space = " " * (widths[place] - width(cell))
            cells.append(cell + space if place < table.texts else space + cell)
        text.append("  ".join(cells).rstrip())
    return "\n".join(text) + "\n"


def _markdown(table: TextTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    marks = ["---" if place < table.texts else "---:" for place in range(len(table.headers))]
    text = [f"### {escape_markdown(table.title)}", ""] if table.title else []
    text += [line([escape_markdown(header) for header in table.headers]), line(marks)]
    text += [line([_markdown_cell(value) for value in row]) for row in table.rows]
    return "\n".join(text) + "\n"


def _markdown_cell(value: Any) -> str:
    return show(value) if value is None or isinstance(value, (int, float)) else escape_markdown(str(value))


def _csv(table: TextTable) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([plain(header) for header in table.headers])
    writer.writerows([_csv_cell(value) for value in row] for row in table.rows)
    return file.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)  # CSV is shown on terminals, too, and read line by line
    return "" if value is None else name_floats(value)


def _latex(table: TextTable) -> str:
    columns = "l" * table.texts + "r" * (len(table.headers) - table.texts)
    text = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    if table.title:
        text.insert(0, f"% {plain(table.title)}")
    text += [" & ".join(escape_latex(header) for header in table.headers) + r" \\", "\\midrule"]
    text += [" & ".join(_latex_cell(value) for value in row) + r" \\" for row in table.rows]
    text += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(text) + "\n"


def _latex_cell(value: Any) -> str:
    shown = show(value)
    if isinstance(value, float) and value < 0 and math.isfinite(value):
        return f"${shown}$"
    return escape_latex(shown)


def _shown(row: Sequence[Any]) -> list[str]:
    return [show(value) for value in row]
