"""Result of a comparison of runs: a row of figures for each run, and the settings that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trackers import records
from trackers.analysis.tables import TextTable

FIGURES = ("final", "best", "last", "min", "max")
"""Figures of a metric. final: the result of its name. best: by ``define_metric``, else by its name."""

QUANTITIES = (
    ("steps/s", "steps_per_s"), ("clock", "speed_basis"), ("wall steps/s", "wall_steps_per_s"),
    ("samples/s", "samples_per_s"), ("tokens/s", "tokens_per_s"), ("GPUs", "gpus"),
    ("GPU", "gpu_name"), ("GPU utilisation %", "gpu_percent"), ("peak memory per GPU GB", "memory_gb"),
    ("memory kind", "memory_kind"), ("energy J", "energy_j"), ("speed-up", "speedup"),
    ("efficiency %", "efficiency_percent"),
)  # fmt: skip


class Comparison(msgspec.Struct):
    """Result of :func:`compare_runs`.

    runs: a mapping for each run, in the order asked for (below). keys: metrics compared. differing: settings that
    aren't the same everywhere, by flat name. baseline: source of the run that speed-ups refer to, "" where there is
    none. warnings: why the comparison may mislead.

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

    def __getitem__(self, name: str) -> Any:
        return msgspec.structs.asdict(self)[name]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; NaN and infinities as the journal writes them."""
        return dict(records.name_floats(msgspec.structs.asdict(self)))

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


def by_run(found: Comparison) -> TextTable:
    """Everything, a row for each run: for CSV and DataFrames."""
    fields = ("run_name", "source", "id", "project", "group", "status", "attempts", "steps", "gpus", "gpu_name")
    more = [name for _, name in QUANTITIES if name not in fields]
    figures = [(key, figure) for key in found.keys for figure in FIGURES
               if any(run["metrics"].get(key, {}).get(figure) is not None for run in found.runs)]  # fmt: skip
    headers = [*fields, *(f"config.{name}" for name in found.differing), *(f"{k}.{f}" for k, f in figures), *more]
    rows = [
        [*(run[name] for name in fields), *(run["config"].get(name) for name in found.differing),
         *(run["metrics"].get(key, {}).get(figure) for key, figure in figures), *(run[name] for name in more)]
        for run in found.runs
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
