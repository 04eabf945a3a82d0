"""Writes a run's records to a PostgreSQL database, a row each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from trackers.errors import Refused, Rejected, Unavailable
from trackers.records import Config, Metrics, Record, Summary, Text, encode
from trackers.tracker import Cursor, RunInfo, State, Status
from trackers_postgres.precheck import PostgresPrecheck, shown

TABLES = """
SELECT pg_advisory_xact_lock(7243001);
CREATE TABLE IF NOT EXISTS trackers_runs (run TEXT PRIMARY KEY, name TEXT, project TEXT, tags TEXT[],
    created DOUBLE PRECISION, status TEXT);
CREATE TABLE IF NOT EXISTS trackers_records (place BIGSERIAL, run TEXT, record TEXT, line BYTEA,
    PRIMARY KEY (run, record));
"""
"""Of two that make the tables at once, one waits: IF NOT EXISTS alone isn't safe then."""
LOGINS = ("28000", "28P01", "3D000")
"""https://www.postgresql.org/docs/current/errcodes-appendix.html: a login, or a database that isn't there."""


def preload() -> None:
    """Import what deliveries need, in the process that forks them."""
    import psycopg2.extras  # noqa: F401


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """The client's errors as those that a delivery understands."""
    import psycopg2

    try:
        yield
    except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
        text = " ".join(str(error).split())
        refused = (
            getattr(error, "pgcode", None) in LOGINS or "authentication failed" in text or "does not exist" in text
        )
        raise (Refused if refused else Unavailable)(f"{shown(url)}: {text}") from error
    except (psycopg2.DataError, UnicodeError) as error:
        raise Rejected(" ".join(str(error).split())) from error


class PostgresTracker(PostgresPrecheck):
    """Rows of ``trackers_records``, under the record's id: one that comes again changes nothing."""

    accepts = frozenset({Config, Metrics, Summary, Text})
    common = True

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Make the tables and the run's row."""
        import psycopg2

        self._url, self._run = str(info.option("POSTGRES_URL")), info.id
        state["url"] = f"{shown(self._url)}#{info.id}"
        with translated(self._url):
            self._db: Any = psycopg2.connect(self._url, connect_timeout=20)
            with self._db, self._db.cursor() as at:
                at.execute(TABLES)
                at.execute(
                    "INSERT INTO trackers_runs VALUES (%s, %s, %s, %s, %s, 'running') ON CONFLICT (run) DO UPDATE "
                    "SET name = EXCLUDED.name, tags = EXCLUDED.tags, status = 'running'",
                    (info.id, info.name, info.project, list(info.tags), info.created),
                )
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Store a batch in one transaction: after a kill, all of it is there or none."""
        from psycopg2.extras import execute_values

        rows = [(self._run, record.id, encode(record)) for record in records]
        with translated(self._url), self._db, self._db.cursor() as at:
            if rows:
                execute_values(
                    at, "INSERT INTO trackers_records (run, record, line) VALUES %s ON CONFLICT DO NOTHING", rows
                )

    def close(self, status: Status) -> None:
        """Note how the run ended."""
        with translated(self._url):
            with self._db, self._db.cursor() as at:
                at.execute("UPDATE trackers_runs SET status = %s WHERE run = %s", (status.name, self._run))
            self._db.close()
