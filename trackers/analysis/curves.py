"""Runs as a picture needs them: labels that differ, and each metric's points over steps, time or tokens."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from trackers.analysis.run_stats import RunStats, facts
from trackers.analysis.tables import plain
from trackers.errors import NotFound, UsageError, did_you_mean
from trackers.metrics import roles
from trackers.metrics.styles import identity_of, styles_of
from trackers.readers.columns import STEPLESS
from trackers.readers.run_data import RunData, load_all

X_AXES = ("step", "time", "tokens")


class Points(NamedTuple):
    """A metric's points as they were logged. steps: STEPLESS where there was none. times: Unix seconds."""

    steps: Any
    times: Any
    values: Any


class PlottedRun:
    """One run. label: its name, made distinct. style: see :func:`trackers.metrics.styles.styles_of`."""

    def __init__(self, data: RunData, label: str, style: int) -> None:
        self.data, self.label, self.style = data, label, style

    @cached_property
    def keys(self) -> list[str]:
        """Names of all metrics that have points."""
        return list(dict.fromkeys(name for block in self.data.blocks() for name in block.names))

    @cached_property
    def facts(self) -> RunStats:
        """What is known of the run as a whole."""
        return facts(self.data.run, self.data.blocks(), self.data.records(), self.data.status)

    @cached_property
    def began(self) -> float:
        """When the run began, Unix seconds: its first start, else its first value."""
        starts = [float(attempt["time"]) for attempt in self.data.attempts if attempt.get("time")]
        times = [float(block.times.min()) for block in self.data.blocks() if len(block.times)]
        return min([*starts[:1], *times], default=0.0)

    def points(self, key: str) -> Points:
        """A metric's points; none where the run doesn't have it."""
        import numpy as np

        blocks = [block for block in self.data.blocks() if key in block.names]
        if not blocks:
            return Points(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        values = [block.values[:, block.names.index(key)] for block in blocks]
        if len(blocks) == 1:
            return Points(blocks[0].steps, blocks[0].times, values[0])
        order = np.argsort(np.concatenate([block.rows for block in blocks]), kind="stable")
        parts = ([block.steps for block in blocks], [block.times for block in blocks], values)
        return Points(*(np.concatenate(part)[order] for part in parts))

    def curve(self, key: str, axis: str) -> tuple[Any, Any]:
        """x and y of a metric: steps, seconds since the run began, or tokens.

        Raises:
            UsageError: tokens are asked for, and nothing says how many there were.
        """
        import numpy as np

        steps, times, values = self.points(key)
        if axis == "time":
            return times - self.began, values
        stepped = steps != STEPLESS
        steps, values = steps[stepped].astype(np.float64), values[stepped]
        return (self.tokens(steps), values) if axis == "tokens" else (steps, values)

    def stepless(self, key: str) -> bool:
        """The run has this metric, and no value of it has a step (hardware's samples)."""
        points = self.points(key)
        return len(points.steps) > 0 and bool((points.steps == STEPLESS).all())

    def of_role(self, kind: str) -> tuple[str, float] | None:
        """The first metric whose name says this, and the factor to SI units."""
        for key in self.keys:
            role = roles.role_of(key)
            if role is not None and role.kind == kind:
                return key, role.factor
        return None

    def first(self, names: Sequence[str]) -> str | None:
        """The first of these metrics that the run has."""
        return next((name for name in names if name in self.keys), None)

    def tokens(self, steps: Any) -> Any:
        """How many went through up to each of these steps.

        Raises:
            UsageError: nothing says that.
        """
        import numpy as np

        counted = self.of_role(roles.TOKENS_COUNTED)
        if counted is not None:
            at, tokens = self.curve(counted[0], "step")
            finite = np.isfinite(tokens)
            at, tokens = at[finite], tokens[finite]
            if len(at):
                order = np.argsort(at, kind="stable")
                return np.interp(steps, at[order], tokens[order])
        speed = self.facts.speed
        if speed.batch and speed.length:
            return steps * speed.batch * speed.length
        raise UsageError(
            f"run {plain(self.label)!r} doesn't say its tokens: log consumed_tokens, or set global_batch_size and "
            "sequence_length in its config; --x step works for all"
        )


def open_runs(sources: Iterable[str], root: Path | None = None) -> list[PlottedRun]:
    """Every run that the sources name, in their order, each once; of several, what can't be read is left out, and named
    in a warning.

    Raises:
        NotFound: a source names nothing, or nothing that can be read. UsageError: it can't be understood.
        MissingPackage: the extra is.
    """
    by_source: dict[str, RunData] = {}
    for source in sources:
        for entry in load_all(source, root):
            by_source.setdefault(entry.run.source, entry)
    data = list(by_source.values())
    styles = styles_of([identity_of(entry.run.id) for entry in data])
    return [PlottedRun(*parts) for parts in zip(data, _labels(data), styles, strict=True)]


def with_tokens(runs: Sequence[PlottedRun]) -> tuple[list[PlottedRun], list[str]]:
    """The runs whose tokens are known, and a line on each of the others.

    Raises:
        UsageError: none are.
    """
    import numpy as np

    known, lines = [], []
    for run in runs:
        try:
            run.tokens(np.zeros(0))
            known.append(run)
        except UsageError as error:
            if len(runs) == 1:
                raise
            lines.append(f"left out: {error}")
    if not known:
        raise UsageError("no run says its tokens: log consumed_tokens, or set global_batch_size and sequence_length")
    return known, lines


def _labels(data: Sequence[RunData]) -> list[str]:
    names = [entry.run.name or entry.run.id for entry in data]
    count = Counter(names)
    pairs = Counter((name, entry.run.id) for name, entry in zip(names, data, strict=True))
    return [
        name if count[name] == 1 else f"{name} ({entry.run.id if pairs[name, entry.run.id] == 1 else entry.run.source})"
        for name, entry in zip(names, data, strict=True)
    ]


def matching_metrics(runs: Sequence[PlottedRun], patterns: Sequence[str]) -> list[str]:
    """The metrics that match patterns, those that more runs have first.

    Raises:
        NotFound: no run has a metric that fits.
    """
    counts = Counter(key for run in runs for key in run.keys)
    keys: dict[str, None] = {}
    for pattern in patterns:
        fits = [pattern] if pattern in counts else fnmatch.filter(counts, pattern)
        if not fits:
            near = did_you_mean(pattern, counts, "; `trackers keys SOURCE` lists a run's")
            raise NotFound(f"no run has a metric {plain(pattern)!r}{near}")
        keys.update(dict.fromkeys(sorted(fits, key=lambda key: -counts[key])))
    return list(keys)
