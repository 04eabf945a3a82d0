"""SwanLab's directories as a destination of copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.copying.destinations import CopyPlace, CopyTarget
from trackers.copying.verify import Capabilities
from trackers.tracker import RunInfo


class SwanlabCopies(CopyTarget):
    """``trackers copy RUN swanlab:DIR``."""

    scheme, symbol = "swanlab", "SWANLAB_LOG_DIR"
    keeps = Capabilities(machine="apart", media=frozenset({"image", "audio", "table", "histogram", "html"}))

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        return cls.below(place, f"run-*-{info.id}", info)
