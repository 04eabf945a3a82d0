"""Cells of the CSV files that are written: people open them in spreadsheets."""

from __future__ import annotations

from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\n", "\r", "\ufeff", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a text begins with that spreadsheets calculate: it could run a program, or send cells away. A mark of the byte
order is taken off a file's first cell, and the last four are the first ones in full width, which Excel knows, too."""


def csv_cell(value: Any) -> Any:
    """A value as a cell: a text that a spreadsheet would take for a formula gets an apostrophe before it, and a lone
    carriage return, which would begin another row, is a line break. Numbers stay, also as texts."""
    return guarded(value.replace("\r\n", "\n").replace("\r", "\n")) if isinstance(value, str) else value


def guarded(text: str) -> str:
    """A text that a spreadsheet would take for a formula, or that looks as one of these does here, behind an
    apostrophe; :func:`unguarded` gives it back."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULA) and not _is_number(text) else text


def unguarded(text: str) -> str:
    """The text that :func:`guarded` was given."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(FORMULA) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
