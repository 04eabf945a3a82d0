"""Reads what the tracker wrote: ``postgres:URL``, all runs of a database, or ``postgres:URL#RUN``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.errors import Damaged, NotFound, Refused, UsageError
from trackers.readers.reader import Reader, SourceRun
from trackers.records import CorruptLine, Finish, Record, decode
from trackers_postgres.precheck import shown
from trackers_postgres.tracker import translated


class PostgresReader(Reader):
    """Runs of one database."""

    scheme = "postgres"
    needs = ("psycopg2",)

    def runs(self, where: str) -> list[SourceRun]:
        """The runs of a database, the newest first, or the one behind "#"."""
        url, _, wanted = where.partition("#")
        if "://" not in url:
            raise NotFound(f"postgres: {where} is no address: postgres:postgresql://user@host/database")
        rows = _rows(url, "SELECT run, name, project, tags, created, status FROM trackers_runs ORDER BY created DESC")
        found = [
            SourceRun(
                source=f"postgres:{url}#{run}", id=run, name=name, project=project, tags=tags, created=created,
                status=status, native={"url": url},
            )
            for run, name, project, tags, created, status in rows
            if wanted in ("", run)
        ]  # fmt: skip
        if not found:
            raise NotFound(f"postgres: no run {wanted} in {shown(url)}")
        return found

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """The run's records, in the order in which they were written, and how it ended as the last one."""
        last = run.created
        for (line,) in _rows(
            run.native["url"], "SELECT line FROM trackers_records WHERE run = %s ORDER BY place", (run.id,)
        ):
            try:
                record = decode(bytes(line).rstrip(b"\n"))
            except CorruptLine as error:
                raise Damaged(f"postgres: a record of {run.id} is damaged: {error}") from error
            if record is not None:
                last = max(last, record.time)
                yield record
        if run.status in ("finished", "failed", "crashed", "preempted"):
            yield Finish(time=last, status=run.status)


def _rows(url: str, query: str, values: tuple[str, ...] = ()) -> list[Any]:
    import psycopg2

    try:
        with translated(url):
            database = psycopg2.connect(url, connect_timeout=20)
            try:
                with database, database.cursor() as at:
                    at.execute(query, values)
                    return list(at.fetchall())
            except psycopg2.errors.UndefinedTable:
                raise NotFound(f"postgres: {shown(url)} has no runs") from None
            finally:
                database.close()
    except Refused as error:
        raise UsageError(str(error)) from None
