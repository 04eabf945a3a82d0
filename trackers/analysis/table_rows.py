"""Logged tables as people look at them: rows that fit a search, sorted, a page of them; and as texts and JSON."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trackers.errors import NotFound, UsageError, did_you_mean, examples
from trackers.records import name_floats

_WORD = re.compile(r'(?P<no>[-!])?(?:(?P<name>"[^"]*"|[^\s<>=:"!]+)(?P<sign><=|>=|!=|<|>|=|:))?(?P<value>"[^"]*"|\S+)')


class TablePage(NamedTuple):
    """Part of a table. table: its rows, an Arrow table. indices: their numbers in the whole table, from 0, shape
    ``(rows,)``. total: how many rows fit."""

    table: Any
    indices: Any
    total: int


def page(
    table: Any, where: str = "", sort: str = "", descending: bool = False, first: int = 0, most: int | None = None
) -> TablePage:
    """Rows of an Arrow table.

    Args:
        where: words that all must fit: ``cat`` in any column; ``answer:cat`` in one; ``loss>0.5`` (also <, <=, >=, =,
            !=); with ``-`` before it, the opposite. A name or a value with blanks stands in quotes.
        sort: a column; "": as logged. What has no value, and NaN, comes last either way.
        first, most: which of the rows that fit; most None: all.

    Raises:
        NotFound: no such column. UsageError: a comparison has no number.
    """
    import numpy as np
    import pyarrow.compute as pc

    indices = np.arange(table.num_rows)
    for match in _WORD.finditer(where):
        indices = indices[_word_mask(table, match)[indices]]
    if sort:
        column = comparable(table.column(column_index(table, sort)))
        order = "descending" if descending else "ascending"
        chosen = column.take(indices) if len(indices) < table.num_rows else column
        indices = indices[pc.sort_indices(chosen, sort_keys=[("", order)]).to_numpy()]
    total = len(indices)
    indices = indices[max(0, first) : None if most is None else max(0, first) + max(0, most)]
    return TablePage(table.take(indices), indices, total)


def column_index(table: Any, name: str) -> int:
    """The index of a column.

    Raises:
        NotFound: there is none of this name; the message names the nearest, or all.
    """
    names = table.column_names
    if name not in names:
        raise NotFound(f"no column {name!r}{did_you_mean(name, names, f'; there are {examples(names)}')}")
    return int(names.index(name))


def kind(type_: Any) -> str:
    """What an Arrow column holds: boolean, integer, number, text, media or list."""
    import pyarrow.types as types

    if types.is_boolean(type_):
        return "boolean"
    if types.is_integer(type_):
        return "integer"
    if types.is_floating(type_):
        return "number"
    return "media" if types.is_struct(type_) else "list" if types.is_list(type_) else "text"


def comparable(column: Any) -> Any:
    """A column that can be sorted and compared: media by their files, lists by how they are written."""
    import pyarrow as pa

    what = kind(column.type)
    return column if what not in ("media", "list") else pa.chunked_array([texts(column)])


def texts(column: Any) -> Any:
    """An Arrow array of what a search looks through; of media kind, file and caption. Null stays null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    what = kind(column.type)
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if values.type == pa.string():
        return values
    if what not in ("media", "list"):
        with contextlib.suppress(pa.ArrowException):  # what Arrow can't write is written by Python
            return pc.cast(values, pa.string())
    return pa.array([None if value is None else _searched_text(value) for value in values.to_pylist()], pa.string())


def display_value(value: Any) -> Any:
    """A cell as a text table shows it: numbers stay, media are their kind and their caption, or file."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return " ".join(str(word) for word in (value.get("type"), value.get("caption") or value.get("file")) if word)
    if isinstance(value, list):
        return json.dumps(name_floats(value), ensure_ascii=False, default=str)
    return str(value)


def _searched_text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(str(word) for word in (value.get("type"), value.get("file"), value.get("caption")) if word)
    return str(display_value(value))


def to_json(table: Any) -> list[dict[str, Any]]:
    """Rows as JSON values, a mapping for each; NaN and infinities are named."""
    names = table.column_names
    columns = [[_json(value) for value in column.to_pylist()] for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _json(value: Any) -> Any:
    if isinstance(value, (float, list, dict)):
        return name_floats(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _word_mask(table: Any, match: re.Match[str]) -> Any:
    """Which rows a word of the search matches, truth values of shape (rows,)."""
    import numpy as np

    sign, no, value = match["sign"], bool(match["no"]), match["value"].strip('"')
    if sign is None:
        mask = np.zeros(table.num_rows, bool)
        for column in table.columns:
            mask |= _with(column, value)
    else:
        column = table.column(column_index(table, match["name"].strip('"')))
        mask = _with(column, value) if sign == ":" else _compared(column, sign, value, match[0])
    return ~mask if no else mask


def _with(column: Any, word: str) -> Any:
    import pyarrow.compute as pc

    return _as_mask(pc.match_substring(texts(column), word, ignore_case=True))


def _compared(column: Any, sign: str, text: str, word: str) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    number = number_of(text)
    if number is None or kind(column.type) not in ("integer", "number"):
        if sign not in ("=", "!="):
            if number is None:
                raise UsageError(f"{word!r}: {sign} needs a number after it, as in loss{sign}0.1")
            raise UsageError(f"{word!r}: {sign} compares numbers, and this column holds others")
        lowered = text.lower()
        equal = _as_mask(pc.equal(pc.utf8_lower(texts(column)), lowered))
        if not lowered:
            equal = equal | np.asarray(column.is_null())
        return equal if sign == "=" else ~equal
    if math.isnan(number):
        equal = _as_mask(pc.is_nan(pc.cast(column, pa.float64())))
        return {"=": equal, "!=": ~equal}.get(sign, np.zeros(len(column), bool))
    values = pc.cast(column, pa.float64(), safe=False)
    compare: dict[str, Callable[..., Any]] = {
        "<": pc.less, ">": pc.greater, "<=": pc.less_equal, ">=": pc.greater_equal, "=": pc.equal, "!=": pc.not_equal,
    }  # fmt: skip
    return _as_mask(compare[sign](values, number))


def _as_mask(mask: Any) -> Any:
    """Truth values for NumPy; null is false."""
    import numpy as np
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(mask, False))


def number_of(text: str) -> float | None:
    """What a text says as a number; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def one_kind(columns: Sequence[Any]) -> list[Any]:
    """Columns of several tables, so that their values can be compared: numbers as doubles where they aren't all
    integers, all as texts where kinds differ."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = {kind(column.type) for column in columns if column.null_count < len(column)} or {"text"}
    if len(kinds) == 1:
        (only,) = kinds
        if only in ("boolean", "integer", "number"):
            target = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}[only]
            return [
                pa.nulls(len(column), target) if column.null_count == len(column) else _combine(column)
                for column in columns
            ]
    elif kinds == {"integer", "number"}:
        return [
            pa.nulls(len(column), pa.float64()) if column.null_count == len(column)
            else _combine(pc.cast(column, pa.float64(), safe=False))
            for column in columns
        ]  # fmt: skip
    return [texts(column) for column in columns]


def _combine(column: Any) -> Any:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
