"""Runs side by side: ``trackers.compare_runs(["out/a.json", "out/b.json"])["runs"]``.

Rows of figures, the settings that differ, warnings where a comparison may mislead, and the layout as a table.
"""

from __future__ import annotations

import fnmatch
import html
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trackers import records
from trackers.analysis.run_stats import RunStats
from trackers.analysis.statistics import Spread, spread
from trackers.analysis.tables import MISSING, TextTable, format_value, html_table, plain
from trackers.benchmark.speed import WALL_SAMPLES, WALL_STEPS, comparable_speeds
from trackers.errors import NotFound, UsageError, did_you_mean, examples
from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.records import double

if TYPE_CHECKING:
    from trackers.readers.helpers import Sources

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
    return Groups(what, figures, groups, _goals(runs, keys))


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
            known = sorted({key for run in runs for key in run.config})
            near = did_you_mean(name, known, f"; there is {', '.join(known[:20]) or 'nothing'}")
            raise UsageError(f"no run has the setting {name!r}{near}")
        return [(f"{name}={format_value(run.config[name])}" if name in run.config else NONE, run) for run in runs]
    raise UsageError(f"--by {what!r} isn't known: seed, group, tag or config.KEY")


def _without_seeds(runs: Sequence[RunStats]) -> list[tuple[str, RunStats]]:
    configs = [
        {name: value for name, value in run.config.items() if name.rpartition(".")[2].lower() not in SEEDS}
        for run in runs
    ]
    differing = differing_settings(configs)
    labels = [
        ", ".join(f"{name}={format_value(config.get(name))}" for name in differing) or "all" for config in configs
    ]
    return list(zip(labels, runs, strict=True))


SHOWN = 5
"""Maximum number of different values named in a warning."""

SETTINGS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("batch size", (*roles.BATCHES, "batch_size", "per_device_train_batch_size"),
     "losses at the same step have seen different numbers of samples; steps/s can't be compared, samples/s can"),
    ("sequence length", roles.LENGTHS, "steps/s and samples/s can't be compared, tokens/s can"),
    ("model", ("model", "model_name", "model_type", "arch", "architecture"), "speed, memory and losses differ by it"),
    ("model size", ("n_layer", "num_layers", "n_embd", "hidden_size", "n_head", "depth", "width"),
     "speed, memory and losses differ by it"),
    ("data", ("dataset", "dataset_name", "data", "data_path", "train_data"), "losses can't be compared"),
    ("precision", ("dtype", "precision", "mixed_precision", "torch_dtype", "bf16", "fp16"),
     "speed and memory differ by it"),
)  # fmt: skip


WORK = tuple((what, names) for what, names, _ in SETTINGS if what != "data")
"""Settings that say how much work a step is: speeds of different work make no winner."""


SAME = (roles.BATCHES, roles.LENGTHS)
"""Names of one setting: whichever a program uses, the first stands for it."""


def work(config: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, str], ...] | None:
    """A configuration's settings of these names, at any depth, as one value; None where it has none.

    A step's whole batch says all that its parts say: ``batch_size`` beside ``global_batch_size`` isn't in it.
    """
    settings = {
        (end, format_value(value))
        for key, value in config.items()
        if value is not None and (end := key.rpartition(".")[2]) in names
    }
    for same in SAME:
        values = {shown for name, shown in settings if name in same}
        if len(values) == 1:
            settings -= {pair for pair in settings if pair[0] in same or same is roles.BATCHES}
            settings.add((same[0], values.pop()))
    return tuple(sorted(settings)) or None


def _remarks(run: RunStats) -> list[str]:
    return [*([run.note] if run.note else []), *run.speed.remarks]


def _memory_kind(run: RunStats) -> str | None:
    return None if run.use.memory_gb is None else run.use.memory_kind or "unknown"


def comparability_warnings(
    runs: Sequence[RunStats],
    *,
    base: RunStats | None = None,
    steps_per_s: bool = False,
    wall: bool = False,
    no_speedup: Sequence[RunStats] = (),
) -> list[str]:
    """Warnings about what makes a comparison misleading.

    Args:
        steps_per_s: the speed-up had to be made from steps, since nothing says how many samples a step has.
        base: what speed-ups refer to. wall: some speed-up had to be made by the wall clock, since one run measured its
            steps and another did not.
        no_speedup: runs that have none: the baseline tells of other work, or by another clock.
    """
    warnings = []
    for what, names, why in SETTINGS:
        if len(runs) > 1 and (values := _different(runs, lambda run, names=names: work(run.config, names))):  # type: ignore[misc]
            warnings.append(f"{what} differs ({values}): {why}")
    if len(runs) > 1:
        if values := _different(runs, lambda run: run.gpu_name or None):
            warnings.append(f"GPUs differ ({values}): speed says as much of them as of the runs")
        if values := _different(runs, _memory_kind):
            warnings.append(f"memory was measured differently ({values}): it can't be compared")
        if values := _different(runs, lambda run: run.speed.basis or None):
            warnings.append(f"step times come from different measurements ({values}): a wall clock includes evaluation")
        if values := _different(runs, lambda run: run.steps):
            warnings.append(f"lengths differ (last step {values}): last and best values are of different steps")
    unfinished = [run for run in runs if run.status not in ("finished", "")]
    if unfinished and len(runs) > 1:
        which = ", ".join(f"{run.name or run.id} {run.status}" for run in unfinished[:SHOWN])
        warnings.append(f"not finished: {which}{_and_more(len(unfinished))}")
    if steps_per_s:
        which = "the baseline doesn't say its" if no_speedup else "no run says its"
        warnings.append(f"speed-up is from steps/s, as if batches were equal: {which} global_batch_size")
    if wall:
        warnings.append("a speed-up is by the wall clock, evaluations included: not all runs logged their step times")
    if base is not None:
        other = [run for run in no_speedup if run.speed.samples_per_s and base.speed.samples_per_s]
        clocks = ", ".join(dict.fromkeys(run.speed.samples_basis for run in [*other, base]))
        silent = [run for run in no_speedup if run not in other]
        warnings += _without(silent, "samples/s need global_batch_size, which not all of these and the baseline say")
        warnings += _without(other, f"their samples/s and the baseline's are by different clocks ({clocks})")
    remarks = dict.fromkeys(remark for run in runs for remark in _remarks(run))
    if len(remarks) > SHOWN:
        warnings += [*list(remarks)[:SHOWN], f"and {len(remarks) - SHOWN} more remarks of this kind"]
        return warnings
    for remark in remarks:
        whose = [run.name or run.id for run in runs if remark in _remarks(run)]
        warnings.append(f"{', '.join(whose[:SHOWN])}{_and_more(len(whose))}: {remark}")
    return warnings


def _without(runs: Sequence[RunStats], why: str) -> list[str]:
    which = ", ".join(run.name or run.id for run in runs[:SHOWN])
    chosen = "(--baseline NAME chooses another)"
    return [f"no speed-up of {which}{_and_more(len(runs))}: {why} {chosen}"] if runs else []


def _different(runs: Sequence[RunStats], value_of: Callable[[RunStats], Any]) -> str:
    """The values that runs have, in words, if they have more than one; what some don't say isn't compared."""
    values = list(dict.fromkeys(value for run in runs if (value := value_of(run)) is not None))
    if len(values) < 2:
        return ""
    words = [", ".join(f"{key} {shown}" for key, shown in value) if isinstance(value, tuple) else format_value(value)
             for value in values[:SHOWN]]  # fmt: skip
    return "; ".join(words) + _and_more(len(values))


def _and_more(count: int) -> str:
    return f" and {count - SHOWN} more" if count > SHOWN else ""


FIGURES = ("final", "best", "last", "min", "max")
"""Figures of a metric. final: the result of its name. best: by ``define_metric``, else by its name."""

QUANTITIES = (
    ("steps/s", "steps_per_s"), ("clock", "speed_basis"), ("wall steps/s", "wall_steps_per_s"),
    ("samples/s", "samples_per_s"), ("tokens/s", "tokens_per_s"), ("GPUs", "gpus"),
    ("GPU", "gpu_name"), ("GPU utilisation %", "gpu_percent"), ("peak memory per GPU GB", "memory_gb"),
    ("memory kind", "memory_kind"), ("energy J", "energy_j"), ("speed-up", "speedup"),
    ("efficiency %", "efficiency_percent"),
)  # fmt: skip


TITLES = {name: title for title, name in QUANTITIES}
"""Headers of quantities by their names in JSON, SQL and conditions."""
_MORE_IS_BETTER = (*SPEEDS, "wall_steps_per_s", "gpu_percent", "speedup", "efficiency_percent")


def better(quantity: str) -> str | None:
    """Whether small ("min") or large ("max") values of a quantity are better; None where neither are."""
    return "max" if quantity in _MORE_IS_BETTER else "min" if quantity == "energy_j" else None


def best_of(values: Sequence[Any], goal: str | None) -> set[int]:
    """Indices of the best values; empty if no value is better, or all are the same."""
    if goal is None:
        return set()
    numbers = {index: number for index, value in enumerate(values) if (number := records.finite(value)) is not None}
    if len(set(numbers.values())) < 2:
        return set()
    best = min(numbers.values()) if goal == "min" else max(numbers.values())
    return {index for index, number in numbers.items() if number == best}


class Comparison(msgspec.Struct):
    """Result of :func:`compare_runs`.

    runs: a mapping for each run, in the order asked for (below). keys: metrics compared. differing: settings that
    aren't the same everywhere, by flat name. baseline: source of the run that speed-ups refer to, "" where there is
    none. warnings: why the comparison may mislead. goals: "min" or "max" by key, where one value is better.

    Each run has ``run_name``, ``final_loss``, ``best_val_loss``, ``avg_mfu`` (NaN where unknown) and
    ``total_iters``, and ``source``, ``id``, ``project``, ``group``, ``tags``, ``status``, ``attempts``, ``steps``,
    ``gpus``, ``gpu_name``, ``config`` (what differs), ``metrics`` (by key: final, best, last, min, max, mean, count,
    nans, min_step, max_step), ``steps_per_s``, ``samples_per_s``, ``tokens_per_s`` (each with the clock it runs by:
    ``speed_basis``, ``samples_basis``, ``tokens_basis``), ``wall_steps_per_s``, ``gpu_percent``, ``memory_gb``,
    ``memory_kind``, ``energy_j``, ``speedup``, ``efficiency_percent``; None where a run has no value.
    """

    runs: list[dict[str, Any]]
    keys: list[str]
    differing: list[str]
    baseline: str = ""
    warnings: list[str] = []
    goals: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        return msgspec.structs.asdict(self)[name]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; NaN and infinities as the journal writes them."""
        return dict(records.name_floats(msgspec.structs.asdict(self)))

    def _repr_html_(self) -> str:
        """In a notebook: the table of `trackers compare`, and below it why it may mislead."""
        keys, settings = self.keys[:SHOWN_KEYS], chosen_settings(self, None)
        if len(self.runs) <= FEW_RUNS:
            table = side_by_side(self, keys, settings, FIGURES)
        else:
            table = a_line_each(self, keys, settings, {key: "best" if key in self.goals else "last" for key in keys})
        notes = [*self.warnings, *remarks(self, keys, settings)]
        return html_table(table) + "".join(f"<p>{html.escape(plain(note))}</p>" for note in notes)

    def to_pandas(self) -> Any:
        """A row for each run, a column for each figure: ``config.lr``, ``val_loss.best``, ``samples_per_s``.

        Raises:
            MissingPackage: pandas isn't installed.
        """
        from trackers.support.optional import need

        need("pandas", "to_pandas")
        import pandas

        table = by_run(self)
        return pandas.DataFrame(table.rows, columns=table.headers)


def by_run(comparison: Comparison) -> TextTable:
    """Everything, a row for each run: for CSV and DataFrames."""
    fields = ("run_name", "source", "id", "project", "group", "status", "attempts", "steps", "gpus", "gpu_name")
    more = [name for _, name in QUANTITIES if name not in fields]
    figures = [(key, figure) for key in comparison.keys for figure in FIGURES
               if any(run["metrics"].get(key, {}).get(figure) is not None for run in comparison.runs)]  # fmt: skip
    headers = [*fields, *(f"config.{name}" for name in comparison.differing), *(f"{k}.{f}" for k, f in figures), *more]
    rows = [
        [*(run[name] for name in fields), *(run["config"].get(name) for name in comparison.differing),
         *(run["metrics"].get(key, {}).get(figure) for key, figure in figures), *(run[name] for name in more)]
        for run in comparison.runs
    ]  # fmt: skip
    return TextTable(headers, rows)


def differing_settings(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that aren't the same in all configurations; one that is absent somewhere differs, but from None."""
    if len(configs) < 2:
        return []
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({_comparable(config.get(name)) for config in configs}) > 1]


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


def compare_runs(
    *sources: Sources,
    keys: str | Sequence[str] | None = None,
    baseline: str | None = None,
    root: Path | None = None,
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
    return Comparison(rows, chosen, differing, baseline, warnings, _goals(runs, chosen))


def _goals(runs: Sequence[RunStats], keys: Sequence[str]) -> dict[str, str]:
    goals = {key: next((goal for run in runs if (goal := run.direction(records.plain_name(key)))), "") for key in keys}
    return {key: goal for key, goal in goals.items() if goal}


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
        "efficiency_percent": efficiency(times, run.gpus or 1, base.gpus or 1) if base is not None else None,
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


LABEL = 30
"""Minimum width of the rows' names on a narrow terminal, which are cut in their middle."""
FEW_RUNS = 6
"""Maximum number of runs shown as columns; more are shown as rows."""
SHOWN_KEYS, SHOWN_SETTINGS = 6, 8
"""Default numbers of metrics and of differing settings shown."""


def side_by_side(
    comparison: Comparison,
    keys: Sequence[str],
    settings: Sequence[str],
    figures: Sequence[str],
    *,
    quantities: bool = True,
) -> TextTable:
    """A column for each run.

    Args:
        quantities: speed and what was used, too.
    """
    rows: list[list[Any]] = [["status", *(run["status"] or None for run in comparison.runs)]]
    rows.append(["steps", *_column(comparison, "steps")])
    goals: dict[int, str] = {}
    rows += [[f"config.{name}", *(run["config"].get(name) for run in comparison.runs)] for name in settings]
    for key in keys:
        for figure in figures:
            values = [run["metrics"].get(key, {}).get(figure) for run in comparison.runs]
            if any(value is not None for value in values):
                if _is_ranked(figure, goal := comparison.goals.get(key)):
                    goals[len(rows)] = goal or ""
                rows.append([_titled(key, figure), *values])
    for title, name in _quantities(comparison) if quantities else ():
        if (goal := better(name)) is not None:
            goals[len(rows)] = goal
        rows.append([title, *_column(comparison, name)])
    tones = {(row, 1 + column): "best" for row, goal in goals.items() for column in best_of(rows[row][1:], goal)}
    return TextTable(["run", *_distinct(comparison)], rows, tones=tones, least={0: LABEL})


def a_line_each(
    comparison: Comparison,
    keys: Sequence[str],
    settings: Sequence[str],
    figures: dict[str, str],
    *,
    quantities: bool = True,
) -> TextTable:
    """A row for each run, with one figure of each metric; otherwise as :func:`side_by_side`."""
    extra = _quantities(comparison) if quantities else []
    about = ["run", "status", "steps", *(f"config.{name}" for name in settings)]
    headers = [*about, *(_titled(key, figures[key]) for key in keys), *(title for title, _ in extra)]
    rows = [
        [name, run["status"] or None, run["steps"], *(run["config"].get(setting) for setting in settings),
         *(run["metrics"].get(key, {}).get(figures[key]) for key in keys), *(run[name_] or None for _, name_ in extra)]
        for name, run in zip(_distinct(comparison), comparison.runs, strict=True)
    ]  # fmt: skip
    goals = [comparison.goals.get(key) if _is_ranked(figures[key], comparison.goals.get(key)) else None for key in keys]
    goals = [*[None] * len(about), *goals, *(better(name) for _, name in extra)]
    tones = {(row, column): "best" for column, goal in enumerate(goals)
             for row in best_of([cells[column] for cells in rows], goal)}  # fmt: skip
    return TextTable(headers, rows, texts=2, tones=tones)


def by_group(groups: Groups, keys: Sequence[str], *, apart: bool = False, interval: bool = True) -> TextTable:
    """A row for each group.

    Args:
        apart: n, mean, standard deviation and both ends in columns of their own, as numbers. interval: show it.
    """
    speeds = [name for name in SPEEDS if any(group.speed[name].n for group in groups.groups)]
    titles = [_titled(key, groups.figures[key]) for key in keys]
    titles += speeds if apart else [TITLES[name] for name in speeds]
    goals = [groups.goals.get(key) if _is_ranked(groups.figures[key], groups.goals.get(key)) else None for key in keys]
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
            cells += (
                [estimate.n, estimate.mean, estimate.deviation, estimate.low, estimate.high]
                if apart
                else [_spread(estimate, interval)]
            )
        rows.append([group.label, len(group.runs), *cells])
    if apart:
        titles = [f"{title} {part}" for title in titles for part in ("n", "mean", "std", "low", "high")]
    return TextTable([groups.by, "n", *titles], rows, tones=tones, whole=frozenset(range(2, 2 + len(titles))))


def chosen_settings(comparison: Comparison, patterns: Sequence[str] | None) -> list[str]:
    """The settings to show: those asked for among those that differ, else the first of them."""
    if patterns is None:
        return comparison.differing[:SHOWN_SETTINGS]
    return [name for name in comparison.differing if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def remarks(comparison: Comparison, keys: Sequence[str], settings: Sequence[str]) -> Iterator[str]:
    """What isn't shown, and how to see it."""
    if len(comparison.keys) > len(keys):
        yield f"{len(comparison.keys) - len(keys)} more metrics: --keys '*', or --format csv"
    if len(comparison.differing) > len(settings):
        yield f"{len(comparison.differing) - len(settings)} more settings differ: --config '*', or --format csv"


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


def _is_ranked(figure: str, goal: str | None) -> bool:
    """Whether the best of a metric's figures says which run is best: not the largest loss of each."""
    return goal is not None and figure in ("final", "best", "last", goal)


def _titled(key: str, figure: str) -> str:
    return key if key.startswith("final/") else f"{key} {figure}"


def _quantities(comparison: Comparison) -> list[tuple[str, str]]:
    """The quantities that some run has; the kind of memory only where kinds differ."""
    present = [
        (title, name) for title, name in QUANTITIES if any(run[name] not in (None, "") for run in comparison.runs)
    ]
    kinds = {run["memory_kind"] for run in comparison.runs if run["memory_gb"] is not None}
    return [pair for pair in present if pair[1] != "memory_kind" or len(kinds) > 1]


def _column(comparison: Comparison, name: str) -> list[Any]:
    return [run[name] if run[name] != "" else None for run in comparison.runs]


def _distinct(comparison: Comparison) -> list[str]:
    """Names of the runs; with their id where two share one, and their source where they share that, too."""
    names = Counter(run["run_name"] for run in comparison.runs)
    pairs = Counter((run["run_name"], run["id"]) for run in comparison.runs)
    return [
        run["run_name"] if names[run["run_name"]] == 1
        else f"{run['run_name']} ({run['id'] if pairs[run['run_name'], run['id']] == 1 else run['source']})"
        for run in comparison.runs
    ]  # fmt: skip
