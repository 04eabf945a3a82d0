"""Checks of TensorBoard that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from typing import ClassVar

from trackers.backends.shared.directory import FilePrecheck
from trackers.support.client_versions import ClientVersions

VERSIONS = ClientVersions(
    distribution="tensorboard",
    module="tensorboard",
    oldest="2.17.1",
    why="2.16 has no hparams page with protobuf 5 or newer, 2.17.0 doesn't start with NumPy 2",
    tested=("2.17.1", "2.21.0"),
)


class TensorboardPrecheck(FilePrecheck):
    """TensorBoard: its log directory."""

    name = "tensorboard"
    needs = ("tensorboard",)
    versions = VERSIONS
    symbol = "TENSORBOARD_DIR"
    unedited: ClassVar[dict[str, str]] = {"name": "its folder keeps the first one; the text trackers/run has it"}
