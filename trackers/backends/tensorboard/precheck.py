"""What ``init`` asks of TensorBoard before the first step. Loads nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.file_precheck import FilePrecheck


class TensorboardPrecheck(FilePrecheck):
    """TensorBoard: its log directory."""

    name = "tensorboard"
    needs = ("tensorboard",)
    symbol = "TENSORBOARD_DIR"
