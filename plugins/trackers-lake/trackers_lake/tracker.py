"""Adds a run to a lake, repeatedly while the run goes on and once at its end.

The records that are delivered aren't used: ``trackers lake add`` reads the run's directory, in a process of its own. So
the lake has the same rows as if the finished run had been added, whatever was rewound or replaced meanwhile. With
``TRACKER_LAKE_WRITER=node`` one process does so for all runs of the node (:mod:`trackers_lake.node`).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trackers.errors import Fatal, Refused, Unavailable
from trackers.records import ALL_KINDS, Record, escaped
from trackers.tracker import Cursor, RunInfo, State, Status
from trackers_lake.precheck import LakePrecheck

if TYPE_CHECKING:
    from trackers_lake.node import Member

INTERVAL_S = 60.0
KEEP_DAYS = 7.0
PAUSE_RATIO = 20.0
"""Minimum pause, as a multiple of the time that the last addition took: a long run is added less often."""
ADD_TIMEOUT_S = 900.0
"""Maximum time of adding a run, in seconds."""
USAGE_EXIT_CODE = 2


class LakeTracker(LakePrecheck):
    """Adds the run to the lake in ``TRACKER_LAKE`` every ``TRACKER_LAKE_EVERY`` seconds and at the run's end."""

    accepts = ALL_KINDS

    @staticmethod
    def remove(info: RunInfo, state: State) -> str:
        """Take the run out of the lake's tables: see :class:`trackers.tracker.Tracker`."""
        from trackers_lake.tables import Lake

        location, key = LakePrecheck.place(info), (escaped(info.project), escaped(info.id))
        lake = Lake(location)
        fingerprint = lake.fingerprints().get(key)
        if fingerprint and fingerprint.partition(" ")[0] != repr(info.created):
            return f"the lake in {location} has another run of that name, begun at another time"
        if not any(lake.remove([key]).values()):
            return f"the lake in {location} doesn't have it"
        return f"taken out of the lake in {location}; old files hold its rows until `trackers lake vacuum`"

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Take the lake's location and the interval from the options; the run is first added after one interval."""
        location = self.place(info)
        if not location:
            raise Fatal("TRACKER_LAKE is empty: there is no lake to put the run into")
        self._run_directory, self._location = Path(info.directory).absolute(), location
        self._interval_s = float(info.option("TRACKER_LAKE_EVERY", INTERVAL_S))
        self._keep_days = float(info.option("TRACKER_LAKE_KEEP", KEEP_DAYS))
        self._next_add = time.monotonic() + self._interval_s * random.uniform(0.5, 1.0)
        self._member = self._join(info)
        state["url"] = f"lake:{location}#{info.project}/{info.id}"
        return None

    def _join(self, info: RunInfo) -> Member | None:
        if self.ended is not None or info.option("TRACKER_LAKE_WRITER", "run") != "node":
            return None
        try:
            from trackers_lake import node

            lakes = node.Lakes(self._location, self._interval_s, self._keep_days)
            return node.Member(self._run_directory, lakes, _environment())
        except (OSError, ImportError):  # a machine without such locks, or without a place for them
            return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Add the run if its next addition is due."""
        self.tick()

    def tick(self) -> None:
        """Add the run if its next addition is due, and nobody else does."""
        if (self._member is None or not self._member.is_served()) and time.monotonic() >= self._next_add:
            self._add()

    def close(self, status: Status) -> None:
        """Add the run as it is at its end; one that goes on is left to who serves the node's runs."""
        if self._member is None:
            self._add()
        elif status.name == "running":
            if not self._member.is_served():
                self._add()
        elif not self._member.finish():
            self._add()
            self._member.leave()

    def _add(self) -> None:
        began = time.monotonic()
        command = [sys.executable, "-m", "trackers", "lake", "add", "--keep", f"{self._keep_days:g}", "--dir",
                   str(self._run_directory.parent.parent), str(self._run_directory), self._location]  # fmt: skip
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=ADD_TIMEOUT_S, check=False,
                stdin=subprocess.DEVNULL, env=_environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{self._location} didn't take the run within {ADD_TIMEOUT_S:g} s") from None
        finally:
            duration_s = time.monotonic() - began
            self._next_add = time.monotonic() + max(self._interval_s, PAUSE_RATIO * duration_s) * random.uniform(
                0.9, 1.1
            )
        if result.returncode:
            lines = [line for line in result.stderr.splitlines() if line.strip()] or ["it ended without a word"]
            message = lines[-1].removeprefix("trackers: ")[:500]
            raise Refused(message) if result.returncode == USAGE_EXIT_CODE else Unavailable(message)


def _environment() -> dict[str, str]:
    """This process's environment, with this copy of the package first on ``PYTHONPATH``."""
    home = str(Path(__file__).resolve().parents[3])
    path = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
