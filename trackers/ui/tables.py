"""Logged tables for a browser: pages of one, of two side by side, and the files that their cells name."""

from __future__ import annotations

import csv
import functools
import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.analysis import table_diff, table_rows
from trackers.errors import UNDECODABLE, NotFound, UsageError
from trackers.formats import conversations
from trackers.formats.csv_cell import csv_cell
from trackers.readers import logged_tables
from trackers.records import Media, MediaFile, Record, escaped, name_floats
from trackers.ui import media
from trackers.ui.media import ServedFile

KEPT_BYTES = 256 * 1024 * 1024
"""Maximum size of all tables that are kept, as Arrow has them; those looked at longest ago are forgotten."""
MOST_ROWS = 500
"""Maximum number of rows of a page."""
MOST_CELLS = 20_000
"""Maximum number of cells of a page; a table of many columns has fewer rows on one."""
MOST_COLUMNS = 200
"""Maximum number of columns that are shown."""
MOST_SAVED = 5_000_000
"""Maximum number of cells saved as one CSV file."""
LONGEST = 2000
"""Maximum length of a text in a cell, in characters."""

MOST_MESSAGES = 100
"""Maximum number of messages of a conversation that are shown."""
LONGEST_MESSAGE = 20_000
"""Maximum length of a message, in characters."""

Whole = Callable[[Media], Media]


class TableCache:
    """A cache of what was made of tables that are looked at; used by several threads, one of which works at a time.

    Args:
        most_bytes: maximum size of all together.
    """

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most = most_bytes
        self._entries: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Any, make: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """The cached value of a key, else what ``make`` returns; ``size`` gives its bytes."""
        with self._lock:
            if key not in self._entries:
                value = make()
                self._entries[key] = value, size(value)
            self._entries.move_to_end(key)
            while sum(size_bytes for _, size_bytes in self._entries.values()) > self._most and len(self._entries) > 1:
                self._entries.popitem(last=False)
            return self._entries[key][0]


class Logged(NamedTuple):
    """A table that was logged. cache_key: differs from that of any other table. table: as Arrow has it."""

    cache_key: tuple[Any, ...]
    step: int | None
    table: Any


class RowQuery(NamedTuple):
    """Which rows of a table: see :func:`trackers.analysis.table_rows.page`."""

    where: str = ""
    sort: str = ""
    descending: bool = False
    first: int = 0
    most: int = 50


def steps(others: Iterable[Record]) -> dict[str, list[int | None]]:
    """The tables of a run: names, and the steps of each, in their order."""
    by_name: dict[str, list[int | None]] = {}
    for record in others:
        if isinstance(record, Media) and record.type == "table":
            by_name.setdefault(record.name, []).append(record.step)
    return by_name


def logged(
    cache: TableCache, run: str, others: Iterable[Record], name: str, index: int, root: Path | None, whole: Whole
) -> Logged:
    """One table of a run.

    Args:
        index: its number among those of its name; negative from the last. root, whole: see
            :func:`trackers.ui.media.items`.

    Raises:
        NotFound: there is none, its file isn't there, or is larger than 64 MiB. Damaged: it holds no table.
    """
    matching = [
        record for record in others if isinstance(record, Media) and (record.name, record.type) == (name, "table")
    ]
    if not -len(matching) <= index < len(matching):
        raise NotFound("there is no such table")
    index %= len(matching)
    record = matching[index]
    parts = matching[: index + 1] if logged_tables.is_part(record) else [record]
    cache_key = (run, name, index, record.step, record.time)

    def make() -> Any:
        tables: list[logged_tables.LoggedTable] = []
        for part in parts:
            items = whole(part).items
            content = _samples(_payload(items[0] if items else MediaFile(format="json"), root))
            tables.append(logged_tables.LoggedTable(part, functools.partial(_given, content), tables[:]))
        return tables[-1].frame().table

    return Logged(cache_key, record.step, cache.get(cache_key, make, lambda table: table.nbytes))


def _given(content: Any) -> Any:
    return content


def _samples(content: Any) -> Any:
    """A table's content, verl's of samples with a row for each."""
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ("columns", "rows")):
        return content
    columns, rows = conversations.unfolded(content["columns"], content["rows"])
    return {**content, "columns": columns, "rows": rows}


def _payload(item: MediaFile, root: Path | None) -> Any:
    try:
        return logged_tables.payload(item, root, media.FILE_BYTES)
    except NotFound as error:
        raise NotFound(f"the table can't be shown: {error}") from error


def page(logged: Logged, query: RowQuery) -> dict[str, Any]:
    """Rows for the browser: ``columns`` with name and kind, ``rows``, their ``places`` in the whole table, ``total`` of
    those that fit, ``size`` of the table, its ``step``.

    Raises:
        NotFound: no such column. UsageError: the search can't be understood.
    """
    columns = _columns(logged.table)
    rows = table_rows.page(logged.table, *query[:4], most=_row_limit(query.most, len(columns)))
    table = rows.table.select(range(len(columns)))
    return {
        "columns": columns,
        "rows": _rows(table),
        "places": rows.indices.tolist(),
        "total": rows.total,
        "size": logged.table.num_rows,
        "step": logged.step,
        "more": logged.table.num_columns - len(columns),
    }


def saved(logged: Logged, name: str, query: RowQuery) -> ServedFile:
    """All rows that fit as a CSV file; media are the names of their files.

    Raises:
        UsageError: they are more than :data:`MOST_SAVED` cells. NotFound: see :func:`page`.
    """
    rows = table_rows.page(logged.table, query.where, query.sort, query.descending)
    if rows.total * logged.table.num_columns > MOST_SAVED:
        raise UsageError(f"the table has more than {MOST_SAVED:,} cells: `trackers tables RUN NAME -o FILE` saves it")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(csv_cell, logged.table.column_names))
    columns = [[csv_cell(_saved(value)) for value in column.to_pylist()] for column in rows.table.columns]
    writer.writerows(zip(*columns, strict=True))
    content = out.getvalue().encode("utf-8", "backslashreplace")
    return ServedFile(content, "text/csv; charset=utf-8", media.save_as(f"{name}.csv"))


def differences(
    cache: TableCache, first: Logged, second: Logged, on: Sequence[str], query: RowQuery, *, all_rows: bool
) -> dict[str, Any]:
    """Two tables side by side, a row for each pair.

    Returns:
        ``columns``: ``name``, ``key``; ``cells``: the places of its cells in a row, of a column that is no key those of
        both tables, and of numbers that of the change; ``inside``: its place in each table. ``rows``: state, then
        cells; ``places``: the rows' numbers in each table, -1 where there is none. ``names``: of what can be sorted by.
        ``counts`` by state; ``summary``: each column's change; ``total`` of those that fit.

    Raises:
        NotFound: no such column. UsageError: the search can't be understood.
    """
    key = ("diff", first.cache_key, second.cache_key, tuple(on))
    difference: table_diff.TableDiff = cache.get(
        key, lambda: table_diff.diff(first.table, second.table, on), lambda diffed: int(diffed.rows.nbytes)
    )
    states = table_diff.STATES if all_rows else table_diff.STATES[:3]
    pairs = difference.pairs(*states)
    frame = difference.rows.take(pairs)
    keys = len(difference.on or [table_diff.ROW])
    columns: list[dict[str, Any]] = [
        {"name": _name(name), "key": True, "cells": [at]} for at, name in enumerate(frame.column_names[1 : 1 + keys], 1)
    ]
    at = 1 + keys
    for column in difference.columns[:MOST_COLUMNS]:
        wide = 2 + frame.column_names[at + 2 : at + 3].count(f"{column.name} change")
        indices = [table.table.column_names.index(column.name) for table in (first, second)]
        columns.append({"name": _name(column.name), "kind": column.kind, "key": False, "changed": column.changed,
                        "cells": list(range(at, at + wide)), "inside": indices})  # fmt: skip
        at += wide
    rows = table_rows.page(frame, *query[:4], most=_row_limit(query.most, at))
    return {
        "columns": columns,
        "names": [_name(name) for name in frame.column_names[:at]],
        "rows": _rows(rows.table.select(range(at))),
        "places": [[int(side[pair]) for side in difference.indices] for pair in pairs[rows.indices].tolist()],
        "counts": {
            "changed": difference.changed,
            "added": difference.added,
            "removed": difference.removed,
            "same": difference.same,
        },
        "summary": difference.to_dict()["columns"][:MOST_COLUMNS],
        "only": [[_name(name) for name in names[:20]] for names in (difference.only_first, difference.only_second)],
        "repeated": table_diff.repeats(difference),
        "total": rows.total,
        "steps": [first.step, second.step],
        "sizes": [first.table.num_rows, second.table.num_rows],
    }


def cell_file(logged: Logged, row: int, column: int, root: Path | None, fetch: Callable[[str], None]) -> ServedFile:
    """The file that a cell names, of a type that a browser only shows.

    Args:
        fetch: has a file of a server be below ``root``.

    Raises:
        NotFound: there is none, it is too large, or no regular file below the run's directory.
    """
    table = logged.table
    if root is None or not (0 <= row < table.num_rows and 0 <= column < table.num_columns):
        raise NotFound("there is no such file")
    value = table.column(column)[row].as_py()
    if not isinstance(value, dict):
        raise NotFound("there is no such file")
    fetch(value.get("file") or "")
    return media.shown_file(value.get("file") or "", value.get("format") or "", value.get("type") or "", root, "cell")


def _columns(table: Any) -> list[dict[str, Any]]:
    return [
        {"name": _name(field.name), "kind": table_rows.kind(field.type)} for field in list(table.schema)[:MOST_COLUMNS]
    ]


def _name(text: str) -> str:
    return escaped(text)[:300]


def _row_limit(requested: int, columns: int) -> int:
    return max(1, min(requested, MOST_ROWS, MOST_CELLS // max(1, columns)))


def _rows(table: Any) -> list[list[Any]]:
    columns = [
        [_conversation(value) or _cell(value) for value in column.to_pylist()]
        if table_rows.kind(field.type) == "text" else [_cell(value) for value in column.to_pylist()]
        for field, column in zip(table.schema, table.columns, strict=True)
    ]  # fmt: skip
    return [list(row) for row in zip(*columns, strict=True)]


def _cell(value: Any) -> Any:
    """A cell for the page: numbers that JavaScript holds, texts cut, media as a mapping."""
    if isinstance(value, float):
        return name_floats(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else str(value)
    if isinstance(value, dict):
        kind, form = str(value.get("type") or ""), str(value.get("format") or "").lower()
        shown = bool(value.get("file")) and media.can_be_shown(kind, form)
        return {
            "media": kind[:40],
            "caption": str(value.get("caption") or "")[:LONGEST],
            "format": form[:20],
            "shown": shown,
        }
    text = value if isinstance(value, str) else str(table_rows.display_value(value))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _conversation(value: Any) -> dict[str, Any] | None:
    """A cell that is a list of messages, whatever its column is called: role, text, and calls of tools of each."""
    if not isinstance(value, str) or not value.startswith("[{") or ('"role"' not in value and '"from"' not in value):
        return None
    try:
        found = conversations.messages(msgspec.json.decode(value))
    except UNDECODABLE:
        return None
    if not found:
        return None
    shown = [
        [str(one["role"])[:40], _text(one["content"]), *map(_text, filter(None, map(one.get, conversations.KEPT)))]
        for one in found[:MOST_MESSAGES]
    ]
    return {"messages": shown, "more": max(0, len(found) - MOST_MESSAGES)}


def _text(value: Any) -> str:
    """What a message holds: text, or the texts of its parts, what isn't text as JSON."""
    if isinstance(value, list):
        value = "\n".join(
            str(part["text"]) if isinstance(part, dict) and isinstance(part.get("text"), str) else _text(part)
            for part in value
        )
    text = "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = escaped(text)
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"


def _saved(value: Any) -> Any:
    if isinstance(value, dict):
        return value.get("file")
    return "" if value is None else name_floats(value) if isinstance(value, float) else table_rows.display_value(value)
