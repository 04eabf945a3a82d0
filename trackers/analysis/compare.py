"""Runs side by side: ``trackers.compare_runs(["out/a.json", "out/b.json"])["runs"]``."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers import records
from trackers.analysis.collect import gather
from trackers.analysis.comparability import comparability_warnings
from trackers.analysis.comparison import FIGURES, Comparison, differing_settings
from trackers.analysis.run_stats import RunStats
from trackers.benchmark.speed import WALL_SAMPLES, WALL_STEPS, alike
from trackers.errors import NotFound, UsageError
from trackers.metrics import roles
from trackers.metrics.groups import group_of


def compare_runs(
    sources: Iterable[str | Path],
    keys: Sequence[str] | None = None,
    *,
    baseline: str | None = None,
    root: Path | None = None,
) -> Comparison:
    """Compare runs of any sources.

    Args:
        sources: as for :func:`trackers.load`; one that names several runs stands for all of them.
        keys: metrics, or patterns as in ``val_*``; None: all of training and validation.
        baseline: id, name or source of the run that speed-up and efficiency refer to; None: of those with the fewest
            GPUs the first, where some know their samples/s of those.
        root: where our own runs lie; default what ``TRACKER_DIR`` says.

    Raises:
        NotFound: a source, or the baseline, isn't there. UsageError: a source can't be understood.
    """
    gathered = gather([str(source) for source in sources], root)
    found = compare(gathered.runs, keys, baseline=baseline)
    found.warnings[:0] = [f"left out: {reason}" for reason in gathered.lost]
    return found


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
    return Comparison(rows, chosen, differing, base.source if base is not None else "", warnings)


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
        wanted = [name for name in counts if _interesting(name, counts)]
        return sorted(wanted, key=lambda name: (-counts[name], roles.direction(name) is None))
    found: dict[str, None] = {}
    for key in keys:
        fits = [key] if key in counts else fnmatch.filter(counts, key)
        if not fits:
            raise NotFound(f"no run has a metric {key!r}; `trackers keys SOURCE` lists a run's")
        found.update(dict.fromkeys(fits))
    return list(found)


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


def speedup(samples_per_s: float | None, baseline: float | None) -> float | None:
    """How many times as fast; None where either is unknown or zero."""
    if not samples_per_s or not baseline or not math.isfinite(samples_per_s) or not math.isfinite(baseline):
        return None
    return samples_per_s / baseline


def efficiency(times: float | None, gpus: int | None, baseline_gpus: int | None = 1) -> float | None:
    """Speed-up ÷ GPUs × 100; with a baseline of several GPUs, by how many times as many there are."""
    if times is None or not gpus or not baseline_gpus:
        return None
    return times / (gpus / baseline_gpus) * 100


def named(runs: Sequence[RunStats], name: str) -> RunStats:
    """The run of this id, name or source.

    Raises:
        NotFound: none of them has it.
    """
    for run in runs:
        if name in (run.source, run.id, run.name, Path(run.source).name):
            return run
    known = ", ".join(run.name or run.id for run in runs[:20])
    raise NotFound(f"{name!r} isn't among the runs compared: {known}")


def _baseline(runs: Sequence[RunStats], name: str | None) -> RunStats | None:
    if name is not None:
        return named(runs, name)
    fast = [run for run in runs if run.speed.samples_per_s] or [run for run in runs if run.speed.steps_per_s]
    return min(fast, key=lambda run: run.gpus or 1) if len(runs) > 1 and fast else None


def _row(run: RunStats, keys: Sequence[str], differing: Sequence[str], base: RunStats | None) -> dict[str, Any]:
    times, basis = _speedup(run, base)
    return {
        "run_name": run.name or run.id,
        "final_loss": _nan(_first(run, (run.loss,), "last", ("final_train_loss", "final_loss"))),
        "best_val_loss": _nan(_first(run, roles.VALIDATION_LOSSES, "min", ("best_val_loss",))),
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
        "efficiency_percent": efficiency(times, run.gpus or 1, base.gpus or 1) if base is not None else None,
        "speedup_basis": basis,
    }


_SAME = ("source", "id", "project", "group", "tags", "status", "attempts", "steps", "gpus", "gpu_name")


def _speedup(run: RunStats, base: RunStats | None) -> tuple[float | None, str]:
    """By what both did over the same clock."""
    pair = alike(run.speed, base.speed) if base is not None else None
    return (speedup(*pair[1:]), pair[0]) if pair is not None else (None, "")


def _figures(run: RunStats, key: str) -> dict[str, Any]:
    fold = run.folds.get(key)
    found = {what: run.value(key, what) for what in FIGURES}
    if key.startswith(records.SUMMARY_PREFIX):
        found.update(dict.fromkeys(("best", "last", "min", "max")))
    if fold is not None:
        found.update(mean=fold.mean, count=fold.count, nans=fold.nans, min_step=fold.low_step, max_step=fold.high_step)
    return found


def _first(run: RunStats, names: Sequence[str], what: str, results: Sequence[str]) -> Any:
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
