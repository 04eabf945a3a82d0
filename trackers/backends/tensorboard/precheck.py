"""Checks of TensorBoard that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from typing import ClassVar

from trackers.backends.shared.directory import FilePrecheck


class TensorboardPrecheck(FilePrecheck):
    """TensorBoard: its log directory."""

    name = "tensorboard"
    needs = ("tensorboard",)
    symbol = "TENSORBOARD_DIR"
    unedited: ClassVar[dict[str, str]] = {"name": "its folder keeps the first one; the text trackers/run has it"}
