"""Aim's stores as a destination of copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.copying.destinations import CopyPlace, CopyTarget
from trackers.copying.verify import Capabilities
from trackers.tracker import RunInfo


class AimCopies(CopyTarget):
    """``trackers copy RUN aim:DIR``."""

    scheme, symbol = "aim", "AIM_DIR"
    keeps = Capabilities(machine="apart", last=True, media=frozenset({"image", "audio"}))

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        return f"aim:{place.options['AIM_DIR']}/{state.get('native_id')}"
