"""Why a comparison may mislead: settings, hardware and endings that aren't the same, one line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trackers.analysis.facts import Facts
from trackers.analysis.tables import show
from trackers.naming import roles

SHOWN = 5
"""So many different values are named."""

_SETTINGS: tuple[tuple[str, tuple[str, ...], str], ...] = (
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


def _remarks(run: Facts) -> list[str]:
    return [*([run.note] if run.note else []), *run.speed.remarks]


def _memory_kind(run: Facts) -> str | None:
    return None if run.use.memory_gb is None else run.use.memory_kind or "unknown"


def unfair(runs: Sequence[Facts], *, steps_per_s: bool = False, no_speedup: Sequence[Facts] = ()) -> list[str]:
    """What a reader of the comparison must know.

    Args:
        steps_per_s: the speed-up had to be made from steps, since nothing says how many samples a step has.
        no_speedup: runs that have none because they, or the baseline, don't say how many samples a step has.
    """
    found = []
    for what, names, why in _SETTINGS:
        if len(runs) > 1 and (values := _different(runs, lambda run, names=names: _setting(run, names))):  # type: ignore[misc]
            found.append(f"{what} differs ({values}): {why}")
    if len(runs) > 1:
        if values := _different(runs, lambda run: run.gpu_name or None):
            found.append(f"GPUs differ ({values}): speed says as much of them as of the runs")
        if values := _different(runs, _memory_kind):
            found.append(f"memory was measured differently ({values}): it can't be compared")
        if values := _different(runs, lambda run: run.speed.basis or None):
            found.append(f"step times come from different measurements ({values}): a wall clock includes evaluation")
        if values := _different(runs, lambda run: run.steps):
            found.append(f"lengths differ (last step {values}): last and best values are of different steps")
    unfinished = [run for run in runs if run.status not in ("finished", "")]
    if unfinished and len(runs) > 1:
        which = ", ".join(f"{run.name or run.id} {run.status}" for run in unfinished[:SHOWN])
        found.append(f"not finished: {which}{_more(len(unfinished))}")
    if steps_per_s:
        which = "the baseline doesn't say its" if no_speedup else "no run says its"
        found.append(f"speed-up is from steps/s, as if batches were equal: {which} global_batch_size")
    if no_speedup:
        which = ", ".join(run.name or run.id for run in no_speedup[:SHOWN])
        found.append(
            f"no speed-up of {which}{_more(len(no_speedup))}: samples/s need global_batch_size, which not all of these "
            "and the baseline say (--baseline NAME chooses another)"
        )
    remarks = dict.fromkeys(remark for run in runs for remark in _remarks(run))
    if len(remarks) > SHOWN:
        found += [*list(remarks)[:SHOWN], f"and {len(remarks) - SHOWN} more remarks of this kind"]
        return found
    for remark in remarks:
        whose = [run.name or run.id for run in runs if remark in _remarks(run)]
        found.append(f"{', '.join(whose[:SHOWN])}{_more(len(whose))}: {remark}")
    return found


def _setting(run: Facts, names: tuple[str, ...]) -> Any:
    """A run's settings of these names, at any depth, as one value."""
    found = {
        (end, show(value))
        for key, value in run.config.items()
        if value is not None and (end := key.rpartition(".")[2]) in names
    }
    return tuple(sorted(found)) or None


def _different(runs: Sequence[Facts], of: Callable[[Facts], Any]) -> str:
    """The values that runs have, in words, if they have more than one; what some don't say isn't compared."""
    values = list(dict.fromkeys(value for run in runs if (value := of(run)) is not None))
    if len(values) < 2:
        return ""
    words = [", ".join(f"{key} {shown}" for key, shown in value) if isinstance(value, tuple) else show(value)
             for value in values[:SHOWN]]  # fmt: skip
    return "; ".join(words) + _more(len(values))


def _more(count: int) -> str:
    return f" and {count - SHOWN} more" if count > SHOWN else ""
