"""``trackers postgres …``."""

from __future__ import annotations

import typer

app = typer.Typer(help="What a PostgreSQL database holds of runs.")


@app.callback()
def program() -> None:
    """What a PostgreSQL database holds of runs."""


@app.command()
def count(url: str) -> None:
    """Count the records of each run.

    Example: trackers postgres count postgresql://user@host/database
    """
    from trackers_postgres.reader import _rows

    for run, number in _rows(url, "SELECT run, count(*) FROM trackers_records GROUP BY run ORDER BY run"):
        print(run, number)
