"""Tables of texts and numbers, written for a terminal, Markdown, CSV or LaTeX; each with its own escapes."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from trackers.formats.csv_cell import csv_cell
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

    texts: how many columns at the left are texts, more_texts: which others are; the rest is aligned at the right.
    tones: of cells, by row and column: "best" is marked in all formats but CSV and piped tables; "good", "busy",
    "bad" and "odd" are colours on a terminal. spare: columns that a narrow terminal leaves out first. whole: those
    whose texts it must not cut. least: how many characters it must leave of the texts of others. legend: below it,
    what short labels stand for; CSV has none.
    """

    headers: list[str]
    rows: list[list[Any]]
    title: str = ""
    texts: int = 1
    more_texts: frozenset[int] = frozenset()
    tones: dict[tuple[int, int], str] = {}
    spare: list[int] = []
    whole: frozenset[int] = frozenset()
    least: dict[int, int] = {}
    legend: dict[str, str] = {}

    def is_text(self, column: int) -> bool:
        """Whether a column is aligned at the left."""
        return column < self.texts or column in self.more_texts

    def is_best(self, row: int, column: int) -> bool:
        """Whether a cell has the best value of its kind."""
        return self.tones.get((row, column)) == "best"


def render(table: TextTable, form: str) -> str:
    """The table in one of :data:`FORMATS`, with a newline at its end."""
    writers: dict[str, Callable[[TextTable], str]] = {
        "table": _text, "markdown": _markdown, "csv": _csv, "latex": _latex,
    }  # fmt: skip
    return writers[form](table)


def legend_lines(table: TextTable) -> str:
    """What short labels stand for, a line each; "" where there are none."""
    return "".join(f"{plain(label)} = {plain(meaning)}\n" for label, meaning in table.legend.items())


def html_table(table: TextTable) -> str:
    """The table for a notebook, without styles but for alignment; the best values are bold, the legend is below."""

    def cell(kind: str, column: int, text: str, bold: bool = False) -> str:
        text = html.escape(plain(text))
        side = "left" if table.is_text(column) else "right"
        return f'<{kind} style="text-align: {side}">{f"<b>{text}</b>" if bold else text}</{kind}>'

    head = "".join(cell("th", column, header) for column, header in enumerate(table.headers))
    rows = [
        "".join(
            cell("td", column, format_value(value), table.is_best(number, column)) for column, value in enumerate(row)
        )
        for number, row in enumerate(table.rows)
    ]
    title = f"<caption>{html.escape(plain(table.title))}</caption>" if table.title else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    legend = "".join(f"<p>{html.escape(line)}</p>" for line in legend_lines(table).splitlines())
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{legend}"


def format_value(value: Any) -> str:
    """A value as people read it: five digits, thousands apart, – for nothing."""
    if type(value) is str:
        return value
    if type(value) is float and -9999.95 < value < 9999.95:
        return f"{value:.5g}"
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


def format_age(seconds: float) -> str:
    """A duration, roughly: 5 s, 3 min, 2 h, 4 d."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def format_size(size: int) -> str:
    """Bytes as people read them: 512 B, 1.5 KB, 2.0 GB (of 1,000 each)."""
    value, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


_TIMES = (("Minutes", "min", 60.0, 120.0), ("Seconds", "s", 1.0, 1.0), ("Milliseconds", "ms", 1e-3, 1e-3))


def fitting_time(seconds: Iterable[float | None]) -> tuple[str, str, float]:
    """The unit in which times are short numbers: its name, its sign, and its seconds."""
    longest = max((value for value in seconds if value is not None and math.isfinite(value)), default=0.0)
    chosen = next((unit for unit in _TIMES if longest >= unit[3]), ("Microseconds", "µs", 1e-6, 0.0))
    return chosen[:3] if longest > 0 else _TIMES[1][:3]


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

    columns = []
    for column, header in enumerate(table.headers):
        values = [row[column] for row in table.rows]
        cells = [header, *(value if type(value) is str else format_value(value) for value in values)]
        if not (whole := "".join(cells)).isprintable():
            cells = list(map(plain, cells))
        widths = list(map(len if whole.isascii() else cell_len, cells))
        widest = max(widths)
        if table.is_text(column):
            columns.append([cell + " " * (widest - width) for cell, width in zip(cells, widths, strict=True)])
        else:
            columns.append([" " * (widest - width) + cell for cell, width in zip(cells, widths, strict=True)])
    lines = ("  ".join(line).rstrip() for line in zip(*columns, strict=True))
    return "\n".join([*([plain(table.title)] if table.title else []), *lines]) + "\n" + legend_lines(table)


def _markdown(table: TextTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    alignments = ["---" if table.is_text(column) else "---:" for column in range(len(table.headers))]
    text = [f"### {escape_markdown(table.title)}", ""] if table.title else []
    text += [line([escape_markdown(header) for header in table.headers]), line(alignments)]
    for number, row in enumerate(table.rows):
        cells = [
            format_value(value) if value is None or isinstance(value, (int, float)) else escape_markdown(str(value))
            for value in row
        ]
        text.append(line([f"**{cell}**" if table.is_best(number, at) else cell for at, cell in enumerate(cells)]))
    if table.legend:
        text += ["", *(f"- {escape_markdown(label)} = {escape_markdown(text)}" for label, text in table.legend.items())]
    return "\n".join(text) + "\n"


def _csv(table: TextTable) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([csv_cell(plain(header)) for header in table.headers])
    writer.writerows([_csv_cell(value) for value in row] for row in table.rows)
    return file.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return csv_cell(plain(value))  # CSV is shown on terminals, too, and read line by line
    return "" if value is None else name_floats(value)


def _latex(table: TextTable) -> str:
    columns = "".join("l" if table.is_text(column) else "r" for column in range(len(table.headers)))
    text = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    if table.title:
        text.insert(0, f"% {plain(table.title)}")
    text += [" & ".join(escape_latex(header) for header in table.headers) + r" \\", "\\midrule"]
    for number, row in enumerate(table.rows):
        cells = [_latex_cell(value) for value in row]
        shown_cells = (rf"\textbf{{{cell}}}" if table.is_best(number, at) else cell for at, cell in enumerate(cells))
        text.append(" & ".join(shown_cells) + r" \\")
    text += ["\\bottomrule", "\\end{tabular}", *(f"% {line}" for line in legend_lines(table).splitlines())]
    return "\n".join(text) + "\n"


def _latex_cell(value: Any) -> str:
    shown = format_value(value)
    if isinstance(value, float) and value < 0 and math.isfinite(value):
        return f"${shown}$"
    return escape_latex(shown)
