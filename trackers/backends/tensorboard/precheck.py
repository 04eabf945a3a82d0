"""Checks of TensorBoard that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class TensorboardPrecheck(FilePrecheck):
    """TensorBoard: its log directory."""

    name = "tensorboard"
    needs = ("tensorboard",)
    symbol = "TENSORBOARD_DIR"
