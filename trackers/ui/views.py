"""Runs that somebody looks at: their records as far as they were read, and each metric's points by axis."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from trackers import records
from trackers.metrics.definitions import Definitions, nested
from trackers.readers.columns import STEPLESS, Block
from trackers.readers.following import FollowedRun
from trackers.readers.run_data import RunData
from trackers.records import Config, Define, Media, Record, Start
from trackers.ui.series import Series

AXES = ("step", "relative", "time")
"""Finished steps; seconds since the run began; Unix seconds."""
METRIC = "metric:"
"""Begins an axis that is another metric: its values at the steps of the one that is drawn."""


class RunContent(Protocol):
    """What was read of a run: see :class:`trackers.readers.following.FollowedRun`."""

    chunks: list[Block]
    others: list[Record]
    generation: int

    def read(self) -> bool:
        """Read on; True if there was something."""


class WholeRun:
    """A run of another source, read as a whole.

    Args:
        media: its media, where the source's files hold them; None: they are among its records.
    """

    def __init__(self, data: RunData, media: Sequence[Media] | None = None) -> None:
        self.chunks: list[Block] = data.blocks()
        self.others: list[Record] = data.records()
        if media is not None:
            self.others = [record for record in self.others if not isinstance(record, Media)] + list(media)
        self.generation = 0

    def read(self) -> bool:
        """Nothing comes after: a run that changed is read anew."""
        return False


class RunView:
    """One run. Used by several threads: each holds ``lock`` while it uses what isn't a plain number.

    Attributes:
        version: grows with what was read.
    """

    def __init__(self, content: FollowedRun | WholeRun) -> None:
        self.lock = threading.RLock()
        self.version = 0
        self._content: RunContent = content
        self._generation = content.generation
        self._series: dict[tuple[str, str], tuple[Series, int]] = {}
        self._names: dict[str, bool] = {}
        self._named_blocks = 0
        self._began: float | None = None

    def read(self) -> int:
        """Read on; returns ``version``."""
        with self.lock:
            if self._content.read() or not self.version:
                self.version += 1
            if self._content.generation != self._generation:
                self._generation = self._content.generation
                self._series.clear()
                self._names.clear()
                self._named_blocks, self._began = 0, None
            return self.version

    @property
    def others(self) -> Sequence[Record]:
        """All records but metrics."""
        return self._content.others

    def names(self) -> dict[str, bool]:
        """Names of all metrics; True for those with a value that has a step."""
        with self.lock:
            chunks = self._content.chunks
            for block in chunks[self._named_blocks :]:
                stepped = bool((block.steps != STEPLESS).any())
                for name in block.names:
                    self._names[name] = self._names.get(name, False) or stepped
            self._named_blocks = len(chunks)
            return dict(self._names)

    @property
    def began(self) -> float:
        """When the run began, Unix seconds: its first start, else its first value."""
        if self._began is None:
            starts = [record.time for record in self.others if isinstance(record, Start) and record.rank is not None]
            times = [float(block.times[0]) for block in self._content.chunks]
            self._began = min([*starts[:1], *times], default=0.0)
        return self._began

    def own_axes(self) -> dict[str, str]:
        """The axes that ``define_metric`` gave to metrics of this run, those that were logged, by the metric."""
        definitions = Definitions()
        for record in self.others:
            if isinstance(record, Define):
                definitions.define(record)
        if not definitions:
            return {}
        names = self.names()
        axes = {}
        for name in names:
            found = definitions.known(name)
            for axis in (found.step_metric, nested(found.step_metric)) if found and found.step_metric else ():
                if axis in names and axis != name:
                    axes[name] = METRIC + axis
                    break
        return axes

    def series(self, name: str, axis: str) -> Series:
        """A metric's points over one of :data:`AXES`, or over another metric, up to date with what was read.

        Empty where there are none.
        """
        import numpy as np

        with self.lock:
            chunks = self._content.chunks
            if axis.startswith(METRIC):
                return self._series_over(name, axis)
            series, done = self._series.get((name, axis)) or (Series(), 0)
            xs, ys = [], []
            for block in chunks[done:]:
                if name not in block.names:
                    continue
                y = block.values[:, block.names.index(name)]
                if axis == "step":
                    stepped = block.steps != STEPLESS
                    x, y = block.steps[stepped].astype(np.float64), y[stepped]
                else:
                    x = block.times - self.began if axis == "relative" else block.times
                finite = np.isfinite(x)
                xs.append(x if finite.all() else x[finite])
                ys.append(y if finite.all() else y[finite])
            if xs:
                series.append(np.concatenate(xs), np.concatenate(ys))
            self._series[name, axis] = series, len(chunks)
            return series

    def _series_over(self, name: str, axis: str) -> Series:
        """A metric's points over another one's last value at their steps: each may have its own calls of log."""
        import numpy as np

        known = self._series.get((name, axis))
        if known is not None and known[1] == len(self._content.chunks):
            return known[0]
        steps, values = self._stepped(name)
        at, positions = self._stepped(axis.removeprefix(METRIC))
        finite = np.isfinite(positions)
        at, positions = at[finite], positions[finite]
        series = Series()
        if len(at):
            order = np.argsort(at, kind="stable")
            at, positions = at[order], positions[order]
            place = np.searchsorted(at, steps, "right") - 1
            series.append(positions[place[place >= 0]], values[place >= 0])
        self._series[name, axis] = series, len(self._content.chunks)
        return series

    def _stepped(self, name: str) -> tuple[Any, Any]:
        """Steps and values of what was logged of a metric with a step."""
        import numpy as np

        steps: list[Any] = [np.zeros(0, np.int64)]
        values: list[Any] = [np.zeros(0)]
        for block in self._content.chunks:
            if name in block.names:
                stepped = block.steps != STEPLESS
                column = block.values[:, block.names.index(name)]
                steps.append(block.steps[stepped])
                values.append(column[stepped])
        return np.concatenate(steps), np.concatenate(values)

    def points(self, name: str) -> list[tuple[int | None, float, float]]:
        """All values of a metric: step (None: without one), time (Unix seconds), value."""
        points: list[tuple[int | None, float, float]] = []
        with self.lock:
            for block in self._content.chunks:
                if name not in block.names:
                    continue
                values = block.values[:, block.names.index(name)].tolist()
                for step, time, value in zip(block.steps.tolist(), block.times.tolist(), values, strict=True):
                    points.append((None if step == STEPLESS else step, time, value))
        return points

    def config(self) -> dict[str, Any]:
        """The configuration as records changed it, nested."""
        config: dict[str, Any] = {}
        for record in self.others:
            if isinstance(record, Config):
                records.merge(config, record.values, record.whole)
        return config
