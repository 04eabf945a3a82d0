"""Runs summed up by their group, tag or setting, or over their seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from trackers.analysis.comparison import differing_settings
from trackers.analysis.figures import FIGURES, SPEEDS, TITLES, best_of, goals_of, is_ranked, titled
from trackers.analysis.run_stats import RunStats
from trackers.analysis.statistics import Spread, spread
from trackers.analysis.tables import MISSING, TextTable, format_value
from trackers.errors import UsageError, did_you_mean
from trackers.records import double, plain_name

SEEDS = frozenset({"seed", "random_seed", "rng_seed", "manual_seed", "data_seed", "torch_seed", "np_seed"})
"""Settings, by the last part of their names, that are chance and nothing else."""

NONE = "(none)"
"""The label of runs that have no group, tag or setting."""


class Group(msgspec.Struct):
    """runs: their names. metrics: by key, of the figure that ``figures`` of :func:`by` names. speed: by quantity."""

    label: str
    runs: list[str]
    metrics: dict[str, Spread]
    speed: dict[str, Spread]


class Groups(msgspec.Struct):
    """by: as asked for. figures: which figure of each key was summed up. Runs with several tags are in each's group.
    goals: "min" or "max" by key, where one value is better than another.
    """

    by: str
    figures: dict[str, str]
    groups: list[Group]
    goals: dict[str, str] = {}


def by(runs: Sequence[RunStats], what: str, keys: Sequence[str], figure: str | None = None) -> Groups:
    """Sum up runs.

    Args:
        what: ``group``; ``tag``; ``config.KEY``: runs with the same value of that setting; ``seed``: runs whose
            configurations are equal but for seeds.
        figure: one of :data:`FIGURES`; None: :func:`headline`'s for each key.

    Raises:
        UsageError: ``what`` or ``figure`` isn't known, or no run has that setting.
    """
    if figure is not None and figure not in FIGURES:
        raise UsageError(f"unknown figure {figure!r}: known are {', '.join(FIGURES)}")
    members: dict[str, list[RunStats]] = {}
    for label, run in labelled(runs, what):
        members.setdefault(label, []).append(run)
    figures = {key: figure or headline(runs, key) for key in keys}
    groups = [
        Group(
            label,
            [run.name or run.id for run in group_runs],
            {key: spread([double(run.value(key, figures[key])) for run in group_runs]) for key in keys},
            {name: spread([getattr(run.speed, name) for run in group_runs]) for name in SPEEDS},
        )
        for label, group_runs in members.items()
    ]
    return Groups(what, figures, groups, goals_of(runs, keys))


def headline(runs: Sequence[RunStats], key: str) -> str:
    """The figure that says most of a metric: the result of its name where all runs have one, or it is a result alone
    (``final/NAME``), else the best, else (where no value is better than another) the last."""
    if plain_name(key) != key or all(run.value(key, "final") is not None for run in runs):
        return "final"
    return "best" if any(run.direction(key) for run in runs) else "last"


class Groupable(Protocol):
    """What says in which groups a run is. config: by flat name."""

    @property
    def group(self) -> str | None:
        """None, or "", for none."""

    @property
    def tags(self) -> Sequence[str]:
        """Its tags."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings."""


AnyRun = TypeVar("AnyRun", bound=Groupable)


def labelled(runs: Sequence[AnyRun], what: str) -> Iterable[tuple[str, AnyRun]]:
    """Each run with the label of its group, or of each of its groups; see :func:`by`.

    Raises:
        UsageError: ``what`` isn't known, or no run has that setting.
    """
    if what == "group":
        return [(run.group or NONE, run) for run in runs]
    if what == "tag":
        return [(tag, run) for run in runs for tag in run.tags or [NONE]]
    if what == "seed":
        return _without_seeds(runs)
    if what.startswith("config."):
        name = what.removeprefix("config.")
        if not any(name in run.config for run in runs):
            known = sorted({key for run in runs for key in run.config})
            near = did_you_mean(name, known, f"; there is {', '.join(known[:20]) or 'nothing'}")
            raise UsageError(f"no run has the setting {name!r}{near}")
        return [(f"{name}={format_value(run.config[name])}" if name in run.config else NONE, run) for run in runs]
    raise UsageError(f"--by {what!r} isn't known: seed, group, tag or config.KEY")


def _without_seeds(runs: Sequence[AnyRun]) -> list[tuple[str, AnyRun]]:
    configs = [
        {name: value for name, value in run.config.items() if name.rpartition(".")[2].lower() not in SEEDS}
        for run in runs
    ]
    differing = differing_settings(configs)
    labels = [
        ", ".join(f"{name}={format_value(config.get(name))}" for name in differing) or "all" for config in configs
    ]
    return list(zip(labels, runs, strict=True))


def by_group(groups: Groups, keys: Sequence[str], *, apart: bool = False, interval: bool = True) -> TextTable:
    """A row for each group.

    Args:
        apart: n, mean, standard deviation and both ends in columns of their own, as numbers. interval: show it.
    """
    speeds = [name for name in SPEEDS if any(group.speed[name].n for group in groups.groups)]
    titles = [titled(key, groups.figures[key]) for key in keys]
    titles += speeds if apart else [TITLES[name] for name in speeds]
    goals = [groups.goals.get(key) if is_ranked(groups.figures[key], groups.goals.get(key)) else None for key in keys]
    goals += ["max"] * len(speeds)
    tones: dict[tuple[int, int], str] = {}
    for index, goal in enumerate(goals):
        names = [*keys, *speeds]
        means = [(group.metrics if index < len(keys) else group.speed)[names[index]].mean for group in groups.groups]
        tones.update({(row, 2 + index): "best" for row in best_of(means, goal) if not apart})
    rows = []
    for group in groups.groups:
        spreads = [*(group.metrics[key] for key in keys), *(group.speed[name] for name in speeds)]
        cells: list[Any] = []
        for estimate in spreads:
            numbers = [estimate.n, estimate.mean, estimate.deviation, estimate.low, estimate.high]
            cells += numbers if apart else [_spread(estimate, interval)]
        rows.append([group.label, len(group.runs), *cells])
    if apart:
        titles = [f"{title} {part}" for title in titles for part in ("n", "mean", "std", "low", "high")]
    return TextTable([groups.by, "n", *titles], rows, tones=tones, whole=frozenset(range(2, 2 + len(titles))))


def _spread(spread: Spread, interval: bool) -> str:
    if spread.mean is None:
        return MISSING
    text = _to(spread.mean, spread)
    if spread.deviation is not None:
        text += f" ± {_to(spread.deviation, spread)}"
    if spread.low is not None and interval:
        text += f" [{_to(spread.low, spread)}, {_to(spread.high, spread)}]"
    return text + (f" ({spread.n} of {spread.of})" if spread.n != spread.of else "")


def _to(value: float | None, spread: Spread) -> str:
    """A figure of a spread as text, rounded to two digits of the standard deviation."""
    mean, deviation = spread.mean, spread.deviation
    if value is None or mean is None or not deviation or not math.isfinite(deviation) or not 1e-3 <= abs(mean) < 1e15:
        return format_value(value)
    digits = 1 - math.floor(math.log10(deviation))
    return f"{value:,.{digits}f}" if digits > 0 else format_value(round(value))
