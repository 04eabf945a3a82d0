"""A run in a lake: put in as it is now, again and again while it goes on, and at its end.

No record is taken out of the journal for it: ``trackers lake add`` reads the run, in a process of its own, so that what
the lake has is what it would have of the run afterwards, whatever was rewound or replaced meanwhile.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from trackers.backends.lake.precheck import LakePrecheck
from trackers.errors import Fatal, Refused, Unavailable
from trackers.records import ALL_KINDS, Record, escaped
from trackers.tracker import Cursor, RunInfo, State, Status

EVERY_S = 60.0
SHARE = 20.0
"""The pause is at least this often as long as the last time took: a long run is put in less often."""
MOST_S = 900.0
"""Maximum time of putting a run in, in seconds."""
WRONG_USAGE = 2


class LakeTracker(LakePrecheck):
    """Has the lake in ``TRACKER_LAKE`` hold the run, every ``TRACKER_LAKE_EVERY`` seconds and at its end."""

    accepts: ClassVar[frozenset[type[Record]]] = ALL_KINDS

    @staticmethod
    def remove(info: RunInfo, state: State) -> str:
        """Take the run out of the lake's tables: see :class:`trackers.tracker.Tracker`."""
        from trackers.lake.tables import Lake

        where, key = LakePrecheck.place(info), (escaped(info.project), escaped(info.id))
        lake = Lake(where)
        mark = lake.marks().get(key)
        if mark and mark.partition(" ")[0] != repr(info.created):
            return f"the lake in {where} has another run of that name, begun at another time"
        if not any(lake.remove([key]).values()):
            return f"the lake in {where} doesn't have it"
        return f"taken out of the lake in {where}; old files hold its rows until `trackers lake vacuum`"

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Remember where; the first time is after the first pause."""
        where = self.place(info)
        if not where:
            raise Fatal("TRACKER_LAKE is empty: there is no lake to put the run into")
        self._run, self._where = Path(info.directory).absolute(), where
        self._every = float(info.option("TRACKER_LAKE_EVERY", EVERY_S))
        self._due = time.monotonic() + self._every * random.uniform(0.5, 1.0)
        state["url"] = f"lake:{where}#{info.project}/{info.id}"
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Put the run in, if it is time."""
        self.tick()

    def tick(self) -> None:
        """Put the run in, if it is time."""
        if time.monotonic() >= self._due:
            self._add()

    def close(self, status: Status) -> None:
        """Put the run in as it is at its end."""
        self._add()

    def _add(self) -> None:
        began = time.monotonic()
        command = [sys.executable, "-m", "trackers", "lake", "add", "--dir", str(self._run.parent.parent),
                   str(self._run), self._where]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=MOST_S, check=False,
                stdin=subprocess.DEVNULL, env=_environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{self._where} didn't take the run within {MOST_S:g} s") from None
        finally:
            took = time.monotonic() - began
            self._due = time.monotonic() + max(self._every, SHARE * took) * random.uniform(0.9, 1.1)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it ended without a word"]
            said = lines[-1].removeprefix("trackers: ")[:500]
            raise Refused(said) if done.returncode == WRONG_USAGE else Unavailable(said)


def _environment() -> dict[str, str]:
    """That of this process, in which the package is found as it is here."""
    home = str(Path(__file__).resolve().parents[3])
    path = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
