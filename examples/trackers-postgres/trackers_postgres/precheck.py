"""What ``init`` asks before the first step. It imports nothing else of this distribution, and no client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from trackers.errors import UsageError
from trackers.tracker import RunInfo, Tracker


class PostgresPrecheck(Tracker):
    """Name, needs, and whether the address is one."""

    name = "postgres"
    needs = ("psycopg2",)

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See that there is an address."""
        if urlsplit(str(options.get("POSTGRES_URL") or "")).scheme not in ("postgresql", "postgres"):
            raise UsageError("tracker 'postgres' needs a database: POSTGRES_URL=postgresql://user@host/database")

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The server and the database, without a login."""
        return shown(str(info.option("POSTGRES_URL") or ""))


def shown(url: str) -> str:
    """An address without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
