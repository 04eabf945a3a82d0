"""Cells of the CSV files that commands and pages write for people, who open them in spreadsheets."""

from __future__ import annotations

from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\n")
"""What a text begins with that spreadsheets calculate: it could run a program, or send cells away."""


def csv_cell(value: Any) -> Any:
    """A value as a cell: a text that a spreadsheet would take for a formula gets an apostrophe before it, and a lone
    carriage return, which would begin another row, is a line break. Numbers stay, also as texts."""
    if isinstance(value, str):
        value = value.replace("\r\n", "\n").replace("\r", "\n")
    if not isinstance(value, str) or not value.startswith(FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
