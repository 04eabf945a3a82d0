"""Runs side by side: ``trackers.compare_runs(["out/a.json", "out/b.json"])["runs"]``."""

from __future__ import annotations

import fnmatch
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trackers import records
from trackers.analysis.comparability import comparability_warnings
from trackers.analysis.comparison import Comparison, differing_settings
from trackers.analysis.figures import FIGURES, efficiency, goals_of, speedup
from trackers.analysis.run_stats import RunStats
from trackers.benchmark.speed import WALL_SAMPLES, WALL_STEPS, comparable_speeds
from trackers.errors import NotFound, UsageError, did_you_mean, examples
from trackers.metrics import roles
from trackers.metrics.groups import group_of

if TYPE_CHECKING:
    from trackers.readers.helpers import Sources


def compare_runs(
    *sources: Sources, keys: str | Sequence[str] | None = None, baseline: str | None = None, root: Path | None = None
) -> Comparison:
    """Compare runs of any sources.

    Args:
        sources: as for :func:`trackers.load`, one by one or in a list; one that names several runs stands for all.
        keys: metrics, or patterns as in ``val_*``; None: all of training and validation. Also taken as a second list:
            ``compare_runs(["a", "b"], ["val_*"])``.
        baseline: id, name or source of the run that speed-up and efficiency refer to; None: of those with the fewest
            GPUs the first, where some know their samples/s of those.
        root: where our own runs lie; default what ``TRACKER_DIR`` says.

    Raises:
        NotFound: a source, or the baseline, isn't there. UsageError: a source can't be understood.
    """
    from trackers.analysis.collect import gather  # its readers: `ls` takes this module's words alone
    from trackers.readers.helpers import source_names

    if keys is None and len(sources) == 2:
        runs, second = sources
        if not isinstance(runs, (str, os.PathLike)) and not isinstance(second, (str, os.PathLike)):
            sources, keys = (runs,), None if second is None else source_names([second])
    gathered = gather(source_names(sources), root)
    comparison = compare(gathered.runs, [keys] if isinstance(keys, str) else keys, baseline=baseline)
    comparison.warnings[:0] = [f"left out: {reason}" for reason in gathered.problems]
    return comparison


def compare(runs: Sequence[RunStats], keys: Sequence[str] | None = None, *, baseline: str | None = None) -> Comparison:
    """Compare runs whose facts are known; otherwise as :func:`compare_runs`.

    Raises:
        NotFound: the baseline isn't among them. UsageError: there are none.
    """
    if not runs:
        raise UsageError("nothing to compare: name a run, or several")
    chosen = chosen_keys(runs, keys)
    differing = differing_settings([run.config for run in runs])
    base = _baseline(runs, baseline)
    rows = [_row(run, chosen, differing, base) for run in runs]
    basis = {row.pop("speedup_basis") for row in rows} - {""}
    without = [run for run, row in zip(runs, rows, strict=True) if row["speedup"] is None and run.speed.steps_per_s]
    warnings = comparability_warnings(runs, steps_per_s=bool(basis & {"steps/s", WALL_STEPS}), base=base,
                      wall=bool(basis & {WALL_SAMPLES, WALL_STEPS}), no_speedup=without)  # fmt: skip
    baseline = base.source if base is not None else ""
    return Comparison(rows, chosen, differing, baseline, warnings, goals_of(runs, chosen))


def chosen_keys(runs: Sequence[RunStats], keys: Sequence[str] | None = None) -> list[str]:
    """The metrics that are asked for and that some run has; those that more runs have come first.

    Raises:
        NotFound: no run has a metric that fits.
    """
    counts: dict[str, int] = {}
    for run in runs:
        names = dict.fromkeys([*run.folds, *(records.final_name(name) for name in run.summary)])
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    if keys is None:
        interesting = [name for name in counts if _interesting(name, counts)]
        return sorted(interesting, key=lambda name: (-counts[name], roles.direction(name) is None))
    chosen: dict[str, None] = {}
    for key in keys:
        fits = [key] if key in counts else fnmatch.filter(counts, key)
        if not fits:
            near = did_you_mean(key, counts, "; `trackers keys SOURCE` lists a run's")
            raise NotFound(f"no run has a metric {key!r}{near}")
        # a result is a figure of the metric of its name
        chosen.update((name, None) for name in fits if (plain := records.plain_name(name)) == name or plain not in fits)
    return list(chosen)


_TIMES = re.compile(
    r".*_(seconds|per_second|per_sec|per_gpu|per_gpu_core|gb|ms|mfu)"
    r"|total_(steps|iterations|eval_steps|checkpoints)|warmup_steps|unit|kind|final_iter"
)
"""Results that are speed, memory and counts: the former are compared as such."""


def _interesting(name: str, counts: Mapping[str, int]) -> bool:
    plain = records.plain_name(name)
    if plain != name:  # a result without a curve of its name is compared on its own
        return plain not in counts and "/" not in plain and not _TIMES.fullmatch(plain)
    return group_of(name) in ("training", "validation") and roles.role_of(name) is None and not name.startswith("perf/")


def find_run(runs: Sequence[RunStats], name: str) -> RunStats:
    """The run of this id, name or source.

    Raises:
        NotFound: none of them has it.
    """
    for run in runs:
        if name in (run.source, run.id, run.name, Path(run.source).name):
            return run
    known = examples((run.name or run.id for run in runs), 20)
    raise NotFound(f"{name!r} isn't among the runs compared: {known}")


def _baseline(runs: Sequence[RunStats], name: str | None) -> RunStats | None:
    if name is not None:
        return find_run(runs, name)
    fast = [run for run in runs if run.speed.samples_per_s] or [run for run in runs if run.speed.steps_per_s]
    return min(fast, key=lambda run: run.gpus or 1) if len(runs) > 1 and fast else None


def _gpus(run: RunStats) -> float:
    """How many GPUs trained, on average where their number changed; 1 where nobody knows."""
    return run.speed.gpus or run.gpus or 1


def _row(run: RunStats, keys: Sequence[str], differing: Sequence[str], base: RunStats | None) -> dict[str, Any]:
    times, basis = _speedup(run, base)
    return {
        "run_name": run.name or run.id,
        "final_loss": _nan(_first_value(run, (run.loss,), "last", ("final_train_loss", "final_loss"))),
        "best_val_loss": _nan(_first_value(run, roles.VALIDATION_LOSSES, "min", ("best_val_loss",))),
        "avg_mfu": _nan(run.summary.get("avg_mfu") if run.avg_mfu is None else run.avg_mfu),
        "total_iters": _iterations(run),
        **{name: getattr(run, name) for name in _SAME},
        "config": {name: run.config[name] for name in differing if name in run.config},
        "metrics": {key: _figures(run, key) for key in keys if key in run.folds or run.value(key, "final") is not None},
        "steps_per_s": run.speed.steps_per_s,
        "speed_basis": run.speed.basis,
        "wall_steps_per_s": run.speed.wall_steps_per_s,
        "samples_per_s": run.speed.samples_per_s,
        "samples_basis": run.speed.samples_basis,
        "tokens_per_s": run.speed.tokens_per_s,
        "tokens_basis": run.speed.tokens_basis,
        **msgspec.structs.asdict(run.use),
        "speedup": times,
        "efficiency_percent": efficiency(times, _gpus(run), _gpus(base)) if base is not None else None,
        "speedup_basis": basis,
    }


_SAME = ("source", "id", "project", "group", "tags", "status", "attempts", "steps", "gpus", "gpu_name")


def _speedup(run: RunStats, base: RunStats | None) -> tuple[float | None, str]:
    """Speed-up by a quantity that both runs measured with the same clock."""
    pair = comparable_speeds(run.speed, base.speed) if base is not None else None
    return (speedup(*pair[1:]), pair[0]) if pair is not None else (None, "")


def _figures(run: RunStats, key: str) -> dict[str, Any]:
    fold = run.folds.get(key)
    figures = {what: run.value(key, what) for what in FIGURES}
    if key.startswith(records.SUMMARY_PREFIX):
        figures.update(dict.fromkeys(("best", "last", "min", "max")))
    if fold is not None:
        figures.update(
            mean=fold.mean, count=fold.count, nans=fold.nans, min_step=fold.low_step, max_step=fold.high_step
        )
    return figures


def _first_value(run: RunStats, names: Sequence[str], what: str, results: Sequence[str]) -> Any:
    for name in names:
        value = run.value(name, what)
        if value is not None:
            return value
    return next((run.summary[name] for name in results if name in run.summary), None)


def _iterations(run: RunStats) -> int:
    if run.iterations:
        return run.iterations
    stated = run.summary.get("total_iterations", run.summary.get("total_steps"))
    number = records.finite(stated)
    if number is not None:
        return int(number)
    return max((fold.count for name, fold in run.folds.items() if group_of(name) == "training"), default=0)


def _nan(value: Any) -> Any:
    """The value, or NaN if it is no number: callers format it as a number."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
