"""SQLite databases that others wrote: read with a vendor's own client only where its tables are plain ones.

A view can have endless rows, a computed column values of any size, a virtual table code behind it, a trigger work that
nobody asked for: what a file of a few kilobytes claims then has no bound.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sqlite3
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import quote

from trackers.errors import Damaged, NotFound, TrackersError, Unavailable
from trackers.support import confined

VALUE_BYTES = 64 * 1024 * 1024
"""Maximum length of a value that is read."""
HELD_BYTES = 256 * 1024 * 1024
"""Maximum length of all values of tables that are read as a whole."""
_JOURNAL = bytes.fromhex("d9d505f920a163d7")
BUSY_S = 30.0
MESSAGE_CHARACTERS = 200
STEPS = 10_000_000
STEPS_BYTE = 10
"""Steps of SQLite's machine, for a database and for each of its bytes. A scan takes about 20 for each row."""
STEPS_CALL = 100_000
"""Steps between two looks at the count: about a millisecond."""


def need_own_files(path: Path, refusal: type[TrackersError] = Damaged) -> None:
    """See that a database and the files beside it are its own: SQLite writes through links, and deletes the file that a
    journal names as that of several databases (https://www.sqlite.org/fileformat2.html#the_rollback_journal); trackio
    empties its lock.

    Raises:
        refusal: one leads to another file, which no tracker's does. Unavailable: that can't be told.
    """
    for name in (path.name, *(path.name + ending for ending in ("-journal", "-wal", "-shm")), f"{path.stem}.lock"):
        beside = path.with_name(name)
        try:
            with confined.open_file(beside, root=path.parent) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - len(_JOURNAL)))
                leads = name.endswith("-journal") and file.read() == _JOURNAL
        except (FileNotFoundError, PermissionError):  # SQLite has no more rights
            continue
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EINVAL):
                raise Unavailable(f"{beside}: {error.strerror}") from None
            raise refusal(f"{beside}: {error.strerror}: remove it") from None
        if leads:
            raise refusal(f"{beside} names another file, which SQLite would delete: remove it")


def check(path: Path, tables: Collection[str], held: Collection[str] = ()) -> set[str]:
    """Check that the named tables are plain tables, and return the names of those that exist.

    Args:
        held: those of them that are read as a whole. What a database claims can be far more than it has: its rows may
            share their pages, or the file be of holes.

    Raises:
        Damaged: it is no database, one of them is something else, or those that are held have more than memory should
            hold. Unavailable: it is locked.
    """
    need_own_files(path)
    address = f"file:{quote(str(path))}?mode=ro"
    existing = set()
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as opened:
            opened.execute("PRAGMA trusted_schema=OFF")
            bound_values(opened)
            for kind, name, table, text in opened.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"):
                if str(table).lower() not in tables or kind == "index":
                    continue
                what = "virtual table" if str(text).upper().startswith("CREATE VIRTUAL") else str(kind)
                if what != "table":
                    raise Damaged(f"{path} is damaged: its {what[:20]} {str(name)[:80]!r} isn't one that trackers make")
                for column in opened.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (name,)):
                    if column[1] not in (0, 1, 3):  # 3: stored, as any other
                        raise Damaged(f"{path} is damaged: column {str(column[0])[:80]!r} of {name!r:.100} is computed")
                existing.add(str(name).lower())
            _check_held(opened, path, existing & set(held))
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise Unavailable(f"{path} can't be read now: {error}") from None
        if "unable to open" in str(error):
            raise NotFound(f"{path} can't be read: {error}") from None
        raise _damaged(path, error) from None
    except (sqlite3.Error, UnicodeError) as error:
        raise _damaged(path, error) from None
    return existing


def _check_held(opened: sqlite3.Connection, path: Path, tables: Collection[str]) -> None:
    """Sum up the lengths of all values of some tables, row by row, until they are too long."""
    most = left = min(HELD_BYTES, size(path))
    for table in sorted(tables):
        columns = [
            name.replace('"', '""') for (name,) in opened.execute("SELECT name FROM pragma_table_info(?)", (table,))
        ]
        lengths = " + ".join(f'coalesce(length(CAST("{column}" AS BLOB)), 0)' for column in columns)
        for (length,) in opened.execute(f'SELECT {lengths} FROM "{table}"'):  # noqa: S608 - quoted
            left -= length
            if left < 0:
                raise Damaged(f"{path} is damaged: its tables of runs have more than {most:,} bytes")


def size(path: Path) -> int:
    """The length of a database with what isn't in its main file yet, in bytes."""
    return sum(file.stat().st_size for end in ("", "-wal") if (file := Path(f"{path}{end}")).exists())


def bound_values(connection: sqlite3.Connection, most: int | None = None) -> None:
    """Have a longer value end a query of this connection before it takes memory (from Python 3.11 on)."""
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most or VALUE_BYTES)


@contextlib.contextmanager
def limited(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """End a query of this connection that takes more steps than any of a database of this size.

    A damaged index can lead a recursive query back to rows where it has been.

    Raises:
        Damaged: a query was ended.
    """
    bound_values(connection)
    most = STEPS + STEPS_BYTE * path.stat().st_size
    calls = itertools.count(1)
    connection.set_progress_handler(lambda: next(calls) * STEPS_CALL > most, STEPS_CALL)
    try:
        yield
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise Damaged(f"{path} is damaged: its index leads round in circles") from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


def _damaged(path: Path, error: Exception) -> Damaged:
    """SQLite's message as one line; it may quote text of any length with line ends."""
    return Damaged(f"{path} is damaged: {' '.join(str(error).split())[:MESSAGE_CHARACTERS]}")
