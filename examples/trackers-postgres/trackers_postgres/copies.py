"""``trackers copy RUN postgres:URL``: what the tracker keeps, and where a copy is read back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.copying.destinations import CopyPlace, CopyTarget
from trackers.copying.verify import Capabilities
from trackers.tracker import RunInfo


class PostgresCopies(CopyTarget):
    """A database."""

    scheme = "postgres"
    form = "URL"
    keeps = Capabilities(files=False, media=frozenset())

    @classmethod
    def place(cls, where: str) -> CopyPlace:
        """The address, for the tracker's option."""
        return CopyPlace(text=f"postgres:{where}", options={"POSTGRES_URL": where})

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        """The source that names the copy."""
        return f"{place.text}#{info.id}"
