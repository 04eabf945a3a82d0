"""Chooses how a rank's values reach the main rank: directly in a single process, by files, or by a collective."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trackers.errors import MissingPackage, UsageError
from trackers.ranks import launch
from trackers.ranks.contribution import DisconnectedTransport, LocalTransport, Transport
from trackers.ranks.file_transport import RankStream
from trackers.support.confined import local


class RankTransport:
    """A process among the ranks of its job.

    Args:
        rank: of this process. None: the launcher's.
        options: resolved, by symbol.
        asked: the caller named a way, so that one that can't be taken is an error.

    Attributes:
        rank, ranks, main: this rank's number, how many there are, which one logs.
        folder: where the ranks' files lie; None where there are none.

    Raises:
        UsageError: the way that was asked for can't be taken.
    """

    def __init__(self, rank: int | None, options: Mapping[str, Any], *, asked: bool) -> None:
        from trackers.support import process_info

        self.rank = process_info.rank() if rank is None else rank
        self.ranks = launch.world(os.environ)
        wanted = str(options.get("TRACKER_RANK") or "0")
        self.main = self.ranks - 1 if wanted == "last" else int(wanted)
        self.folder: Path | None = None
        self.found: launch.Launch | None = None
        self._torch = options.get("TRACKER_REDUCE") == "torch"
        if self.ranks <= 1:
            return
        if self._torch:
            if importlib.util.find_spec("torch") is None:
                raise MissingPackage("reduce='torch' needs PyTorch: pip install torch, or leave reduce out")
            return
        self.found = launch.find(str(options.get("TRACKER_RUN_ID") or ""))
        if self.found is not None:
            self.folder = self.found.folder(runs_root(options))
        elif asked:
            raise UsageError(launch.LOST)

    @property
    def is_main(self) -> bool:
        """This is the rank that logs."""
        return self.rank == self.main

    def open(self, problem: Callable[[str], None]) -> Transport:
        """The way itself. Nothing is made on disk before there is something to add."""
        if self.ranks <= 1:
            return LocalTransport()
        if self._torch:
            from trackers.ranks.collective_transport import Collective

            return Collective(self.main, problem)
        if self.folder is None:
            return DisconnectedTransport(problem, launch.LOST)
        return RankStream(self.folder, self.rank, self.ranks, problem)


def runs_root(options: Mapping[str, Any]) -> Path:
    """Where runs lie."""
    return Path(local(str(options.get("TRACKER_DIR") or "runs"))).expanduser().absolute()
