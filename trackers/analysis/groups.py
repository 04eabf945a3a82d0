"""Runs summed up by seed, group, tag or a setting: n, mean, standard deviation, bootstrap interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from trackers.analysis.comparison import FIGURES, differing_settings
from trackers.analysis.run_stats import RunStats
from trackers.analysis.statistics import Spread, spread
from trackers.analysis.tables import show
from trackers.errors import UsageError
from trackers.records import double

SEEDS = frozenset({"seed", "random_seed", "rng_seed", "manual_seed", "data_seed", "torch_seed", "np_seed"})
"""Settings, by the last part of their names, that are chance and nothing else."""
SPEEDS = ("steps_per_s", "samples_per_s", "tokens_per_s")
NONE = "(none)"
"""The label of runs that have no group, tag or setting."""


class Group(msgspec.Struct):
    """runs: their names. metrics: by key, of the figure that ``figures`` of :func:`by` names. speed: by quantity."""

    label: str
    runs: list[str]
    metrics: dict[str, Spread]
    speed: dict[str, Spread]


class Groups(msgspec.Struct):
    """by: as asked for. figures: which figure of each key was summed up. Runs with several tags are in each's group."""

    by: str
    figures: dict[str, str]
    groups: list[Group]


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
            [run.name or run.id for run in inside],
            {key: spread([double(run.value(key, figures[key])) for run in inside]) for key in keys},
            {name: spread([getattr(run.speed, name) for run in inside]) for name in SPEEDS},
        )
        for label, inside in members.items()
    ]
    return Groups(what, figures, groups)


def headline(runs: Sequence[RunStats], key: str) -> str:
    """The figure that says most of a metric: the result of its name where all runs have one, else the best, else
    (where no value is better than another) the last."""
    if all(run.value(key, "final") is not None for run in runs):
        return "final"
    return "best" if any(run.direction(key) for run in runs) else "last"


def labelled(runs: Sequence[RunStats], what: str) -> Iterable[tuple[str, RunStats]]:
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
            known = ", ".join(sorted({key for run in runs for key in run.config})[:20]) or "nothing"
            raise UsageError(f"no run has the setting {name!r}; there is {known}")
        return [(f"{name}={show(run.config[name])}" if name in run.config else NONE, run) for run in runs]
    raise UsageError(f"--by {what!r} isn't known: seed, group, tag or config.KEY")


def _without_seeds(runs: Sequence[RunStats]) -> list[tuple[str, RunStats]]:
    configs = [
        {name: value for name, value in run.config.items() if name.rpartition(".")[2].lower() not in SEEDS}
        for run in runs
    ]
    differing = differing_settings(configs)
    labels = [", ".join(f"{name}={show(config.get(name))}" for name in differing) or "all" for config in configs]
    return list(zip(labels, runs, strict=True))
