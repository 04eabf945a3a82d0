"""Pictures, sounds and other files in the cells of tables on W&B's server.

The table's file in a run has but the names of their classes in such cells. They lie in an artifact of W&B's own, which
has one version for each table that was logged under a name, and none where one is the same as the one before. Nothing
says which version belongs to which table: it is the one whose other cells are the same.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from trackers.errors import UNDECODABLE, NotFound
from trackers.readers.boundary import DATA_ERRORS
from trackers.readers.wandb.fetch import FOLDER, MOST, listed, patiently
from trackers.readers.wandb.rows import KINDS, OWN
from trackers.support import confined

TYPE = "run_table"
TABLE = ".table.json"
MOST_VERSIONS = 2000
"""Of tables of one name."""
_CLASS = re.compile(r"<wandb\.[\w.]+ object at 0x[0-9a-f]+>|Image|Audio|Video|Html|Object3D|Molecule|Plotly|Bokeh")
"""What stands for media in the table's file of a run, by the client's version."""


class TableCells:
    """The files of one run's cells.

    Args:
        remote: the client's run. directory: where files are put. counts: how many tables were logged under each name.
        patience_s: see :func:`trackers.readers.wandb.fetch.patiently`.
    """

    def __init__(
        self, remote: Any, directory: Path, counts: Mapping[str, int], patience_s: float | None = None
    ) -> None:
        self._remote, self._directory, self._counts, self._patience_s = remote, directory, counts, patience_s
        self._sources: dict[str, tuple[Any, str]] = {}
        self._tables: dict[str, Any] = {}

    def filled(self, name: str, number: int, data: dict[str, Any]) -> dict[str, Any]:
        """A table with the media of its cells, named; as it is where they can't be told, or are damaged.

        Args:
            name: that was logged. number: of the table among those of this name. data: columns and rows.

        Raises:
            Unavailable: the server can't be reached.
        """
        try:
            return self._filled(name, number, data)
        except (NotFound, *DATA_ERRORS):
            return data

    def _filled(self, name: str, number: int, data: dict[str, Any]) -> dict[str, Any]:
        rows = data.get("rows")
        if not isinstance(rows, list) or not any(_stands_for_media(cell) for row in rows for cell in row):
            return data
        versions = self._versions.get(name) or self._versions.get(f"{OWN}{name}") or []
        if len(versions) == self._counts.get(name):
            versions = versions[number : number + 1]
        fitting = [(version, match) for version in versions if (match := self._cells(version, data)) is not None]
        if len(fitting) != 1:  # of several nobody knows which
            return data
        version, cells = fitting[0]
        pairs = zip(rows, cells, strict=True)
        filled = [
            [self._own_cell(version, stored) or cell for cell, stored in zip(*pair, strict=True)] for pair in pairs
        ]
        return {**data, "rows": filled}

    def fetch(self, file: str, most_bytes: int | None = None) -> bool:
        """Have the file that a cell names be there; False where it is none of a cell.

        Raises:
            NotFound: it has more than ``most_bytes``, or isn't there. Unavailable: the server can't be reached.
        """
        if file not in self._sources:
            return False
        version, path = self._sources[file]
        target = self._directory / file
        if not target.is_file():
            entry = version.manifest.entries[path]
            if most_bytes is not None and (entry.size or 0) > most_bytes:
                raise NotFound(f"wandb: {path!r:.200} has {entry.size:,} bytes, more than {most_bytes:,}")
            folder = str(self._directory / file.removesuffix(path))
            patiently(lambda: version.get_entry(path).download(root=folder), self._patience_s)
        return True

    @cached_property
    def _versions(self) -> dict[str, list[Any]]:
        """The versions of the artifact of each name, in their order."""
        collections: dict[str, list[Any]] = {}
        for logged in listed(patiently(self._remote.logged_artifacts, self._patience_s), MOST):
            if logged.type == TYPE:
                collections.setdefault(str(logged.name).rpartition(":")[0], []).append(logged)
        by_name: dict[str, list[Any]] = {}
        for versions in collections.values():
            versions.sort(key=lambda logged: int(str(logged.version).removeprefix("v") or 0))
            for path in self._entries(versions[0]):
                if path.endswith(TABLE):
                    by_name[path.removesuffix(TABLE)] = versions[:MOST_VERSIONS]
        return by_name

    def _entries(self, version: Any) -> dict[str, Any]:
        return patiently(lambda: dict(version.manifest.entries), self._patience_s)

    def _cells(self, version: Any, data: Mapping[str, Any]) -> list[list[Any]] | None:
        """The rows of a version's table, if they can be those of this table."""
        if version.name not in self._tables:
            self._tables[version.name] = self._table(version)
        table = self._tables[version.name]
        rows = table.get("data") if isinstance(table, dict) else None
        if not isinstance(rows, list) or table.get("columns") != data.get("columns") or len(rows) != len(data["rows"]):
            return None
        pairs = list(zip(data["rows"], rows, strict=True))
        if any(not isinstance(stored_row, list) or len(row) != len(stored_row) for row, stored_row in pairs):
            return None
        same = all(
            _may_be_cell(cell, stored)
            for row, stored_row in pairs
            for cell, stored in zip(row, stored_row, strict=True)
        )
        return rows if same else None

    def _table(self, version: Any) -> Any:
        paths = [path for path, entry in self._entries(version).items() if path.endswith(TABLE) and not entry.ref]
        if len(paths) != 1 or not confined.is_inside(paths[0]):
            return None
        with tempfile.TemporaryDirectory() as folder:
            patiently(lambda: version.get_entry(paths[0]).download(root=folder), self._patience_s)
            try:
                return json.loads(confined.read(Path(folder, paths[0]), root=Path(folder)))
            except (OSError, *UNDECODABLE):
                return None

    def _own_cell(self, version: Any, cell: Any) -> dict[str, Any] | None:
        """A cell of an artifact's table as a cell of ours; None for one without a file."""
        if not _is_media(cell):
            return None
        path = cell["path"]
        entry = self._entries(version).get(path)
        if entry is None or entry.ref or not confined.is_inside(path):
            return None
        file = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9._-]+', '-', str(version.name))}/{path}"
        self._sources[file] = version, path
        kind = str(cell["_type"])
        return {
            "_type": KINDS.get(kind, kind.removesuffix("-file")),
            "format": path.rpartition(".")[2].lower(),
            "file": file,
            "caption": cell.get("caption"),
        }


def files_of(data: Mapping[str, Any]) -> Iterator[str]:
    """The files that the cells of a table name."""
    for row in data["rows"]:
        yield from (cell["file"] for cell in row if isinstance(cell, dict) and isinstance(cell.get("file"), str))


def _stands_for_media(cell: Any) -> bool:
    return isinstance(cell, str) and _CLASS.fullmatch(cell) is not None


def _is_media(cell: Any) -> bool:
    return isinstance(cell, dict) and isinstance(cell.get("_type"), str) and isinstance(cell.get("path"), str)


def _may_be_cell(cell: Any, stored: Any) -> bool:
    """Whether a cell of a run's file may be the same as an artifact's; dates and others are written in two ways."""
    if _is_media(stored):
        return _stands_for_media(cell)
    return type(cell) is not type(stored) or cell == stored or cell != cell
