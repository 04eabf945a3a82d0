"""What runs logged beside numbers, for a report: tables summed up, pictures of the last step side by side; bounded."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trackers.analysis import table_diff
from trackers.analysis.table_rows import display_value, kind
from trackers.analysis.tables import TextTable, escape_markdown, render
from trackers.errors import TrackersError
from trackers.formats.pixels import array_as_png, open_picture, refusing
from trackers.readers import logged_tables
from trackers.readers.logged_tables import LoggedTable
from trackers.records import Media, MediaFile
from trackers.support import confined

if TYPE_CHECKING:
    from trackers.analysis.curves import PlottedRun

NAMES, RUNS = 6, 6
"""Maximum numbers of tables or of pictures' names, and of runs beside each other."""
COLUMNS, ROWS = 8, 10
"""Maximum numbers of columns and rows of a table."""
ITEMS = 4
"""Maximum number of pictures of a run under one name."""
TABLE_BYTES = 64 * 1024 * 1024
"""A table in a larger file is left out."""
PICTURE_BYTES = 16 * 1024 * 1024
PICTURE_PIXELS = 16_000_000
"""A picture in a larger file, or of more pixels, is left out."""
SIDE = 256
"""Pixels of the longer side of a picture; larger ones are made smaller."""
ID = "id"
"""The column that tells which row is which."""
WORDS = 80
"""Maximum length of a text in a cell, in characters."""
FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "gif": "GIF", "webp": "WEBP", "bmp": "BMP"}


def sections(runs: Sequence[PlottedRun], *, pictures: bool) -> Iterator[str]:
    """Markdown of tables, and of pictures.

    Args:
        pictures: put them in, as data; else they are left out.
    """
    tables = list(_tables(runs))
    if tables:
        yield "## Tables\n\n" + "\n".join(tables)
    drawn = list(_pictures(runs)) if pictures else []
    if drawn:
        yield "## Pictures\n\n" + "\n".join(drawn)


def _tables(runs: Sequence[PlottedRun]) -> Iterator[str]:
    last: dict[str, list[tuple[str, LoggedTable]]] = {}
    for run in runs:
        own = {table.name: table for table in _logged(run)}
        for name, table in own.items():
            last.setdefault(name, []).append((run.label, table))
    for name, tables in list(last.items())[:NAMES]:
        read = []
        for label, table in tables:
            try:
                read.append((label, table, table.frame().table))
            except TrackersError:
                continue
        if read:
            yield f"### {escape_markdown(name)}\n\n{_column_means(read)}"
            if len(read) == 2:
                yield _difference(read[0][2], read[1][2])
            elif len(read) == 1:
                yield _first_rows(read[0][2])
    if len(last) > NAMES:
        yield f"{len(last) - NAMES} more: `trackers tables RUN`\n"


def _logged(run: PlottedRun) -> list[LoggedTable]:
    """The logged tables whose files are on this machine."""
    directory = run.data.run.directory
    root = Path(directory) if directory else None
    small = [record for record in run.data.media() if record.type == "table" and _is_small(record, root)]
    return logged_tables.of_records(small, directory)


def _is_small(record: Media, root: Path | None) -> bool:
    try:
        return all(
            not item.file or (root is not None and confined.is_inside(item.file)
                              and (root / item.file).lstat().st_size <= TABLE_BYTES)
            for item in record.items
        )  # fmt: skip
    except (OSError, ValueError):
        return False


def _column_means(read: Sequence[tuple[str, LoggedTable, Any]]) -> str:
    """A line for each run: step, rows, means of columns of numbers and truth values, but for counts of classes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = ("integer", "number", "boolean")
    fields = (field for _, _, table in read for field in table.schema)
    names = list(dict.fromkeys(field.name for field in fields if kind(field.type) in numbers and field.name != ID))
    if all(_counts_classes(table) for _, _, table in read):
        names = []
    rows = []
    for label, logged, table in read:
        row: list[Any] = [label, logged.step, table.num_rows]
        for name in names[:COLUMNS]:
            has = name in table.column_names and kind(table.column(name).type) in numbers
            row.append(pc.mean(pc.cast(table.column(name), pa.float64(), safe=False)).as_py() if has else None)
        rows.append(row)
    heads = ["run", "step", "rows", *(f"mean {name}" for name in names[:COLUMNS])]
    return render(TextTable(heads, rows), "markdown")


def _counts_classes(table: Any) -> bool:
    """Whether it is a confusion matrix: W&B's actual, predicted, count; or a row and a column for each class."""
    named = [name.lower() for name in table.column_names]
    if {"actual", "predicted"} <= set(named):
        return True
    counted = [field.name for field in table.schema if kind(field.type) in ("integer", "number")]
    labels = [field.name for field in table.schema if field.name not in counted]
    if len(labels) > 1 or not 1 < len(counted) == table.num_rows:
        return False
    if labels:
        return bool({str(value) for value in table.column(labels[0]).to_pylist()} == set(counted))
    return all(name.isdecimal() for name in counted)


def _difference(left: Any, right: Any) -> str:
    """How many rows differ, by the column called id where both have one, else by their number."""
    on = [ID] if ID in left.column_names and ID in right.column_names else []
    difference = table_diff.diff(left, right, on)
    by = f"by {ID}" if on else "by their number"
    counts = (
        f"{difference.changed:,} changed, {difference.added:,} added, {difference.removed:,} removed, "
        f"{difference.same:,} the same"
    )
    changed = [f"{escape_markdown(column.name)} {column.changed:,}" for column in difference.columns if column.changed][
        :COLUMNS
    ]
    columns = f"; {', '.join(changed)}" if changed else ""
    return f"Rows {by}: {counts}{columns}.\n"


def _first_rows(table: Any) -> str:
    part = table.select(range(min(COLUMNS, table.num_columns))).slice(0, ROWS)
    columns = [[_truncate(display_value(value)) for value in column.to_pylist()] for column in part.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    texts = frozenset(k for k, field in enumerate(part.schema) if kind(field.type) not in ("integer", "number"))
    more = table.num_rows - len(rows)
    text = render(TextTable(part.column_names, rows, texts=0, more_texts=texts), "markdown") if rows else ""
    return text + (f"\n{more:,} more rows\n" if more > 0 else "")


def _truncate(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= WORDS else value[: WORDS - 1] + "…"


def _pictures(runs: Sequence[PlottedRun]) -> Iterator[str]:
    last: dict[str, dict[str, tuple[PlottedRun, Media]]] = {}
    for run in runs:
        for record in run.data.media():
            if record.type == "image" and run.data.run.directory:
                last.setdefault(record.name, {})[run.label] = (run, record)
    for name, by_run in list(last.items())[:NAMES]:
        chosen = list(by_run.items())[:RUNS]
        drawn = [
            [_as_markdown(item, Path(run.data.run.directory)) for item in record.items[:ITEMS]]
            for _, (run, record) in chosen
        ]
        if not any(any(column) for column in drawn):
            continue
        heads = [label if record.step is None else f"{label}, step {record.step}" for label, (_, record) in chosen]
        lines = [
            heads,
            *([column[k] if k < len(column) else "" for column in drawn] for k in range(max(map(len, drawn)))),
        ]
        cells = [
            " | ".join(map(escape_markdown, lines[0])),
            " | ".join("---" for _ in heads),
            *map(" | ".join, lines[1:]),
        ]
        yield f"### {escape_markdown(name)}\n\n" + "".join(f"| {line} |\n" for line in cells)


def _as_markdown(item: MediaFile, root: Path) -> str:
    """A picture as Markdown; "" where it can't be shown."""
    try:
        content = _png(item, root.absolute())
    except (ImportError, OSError, ValueError):
        return ""
    address = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    caption = escape_markdown((item.caption or "")[:WORDS])
    return f"![{caption}]({address})" + (f" {caption}" if caption else "")


def _png(item: MediaFile, root: Path) -> bytes:
    if not confined.is_inside(item.file):
        raise ValueError("no file of the run")
    content = confined.read(root / item.file, root=root, most=PICTURE_BYTES)
    form = item.format.lower()
    if form == "npy":
        content, form = array_as_png(content, 1), "png"
    if form not in FORMATS:
        raise ValueError("no picture")
    picture = open_picture(content, [FORMATS[form]], PICTURE_PIXELS)
    with refusing():
        small = picture.convert("RGBA" if "A" in picture.getbands() or "transparency" in picture.info else "RGB")
        small.thumbnail((SIDE, SIDE))
        out = io.BytesIO()
        small.save(out, format="PNG")
        return out.getvalue()
