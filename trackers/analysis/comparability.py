"""Why a comparison of runs may mislead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trackers.analysis.run_stats import RunStats
from trackers.analysis.tables import format_value
from trackers.metrics import roles

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
    warnings = _differing(runs) if len(runs) > 1 else []
    if steps_per_s:
        which = "the baseline doesn't say its" if no_speedup else "no run says its"
        warnings.append(f"speed-up is from steps/s, as if batches were equal: {which} global_batch_size")
    if wall:
        warnings.append("a speed-up is by the wall clock, evaluations included: not all runs logged their step times")
    if base is not None:
        warnings += _speedless(base, no_speedup)
    return [*warnings, *_remarked(runs)]


def _differing(runs: Sequence[RunStats]) -> list[str]:
    """What isn't the same of several runs, and what can't be compared by that."""
    warnings = []
    for what, names, why in SETTINGS:
        if values := _different(runs, lambda run, names=names: work(run.config, names)):  # type: ignore[misc]
            warnings.append(f"{what} differs ({values}): {why}")
    for value_of, text in _MEASURED:
        if values := _different(runs, value_of):
            warnings.append(text.format(values))
    if unfinished := [run for run in runs if run.status not in ("finished", "")]:
        which = ", ".join(f"{run.name or run.id} {run.status}" for run in unfinished[:SHOWN])
        warnings.append(f"not finished: {which}{_and_more(len(unfinished))}")
    return warnings


_MEASURED: tuple[tuple[Callable[[RunStats], Any], str], ...] = (
    (lambda run: run.gpu_name or None, "GPUs differ ({}): speed says as much of them as of the runs"),
    (lambda run: None if run.use.memory_gb is None else run.use.memory_kind or "unknown",
     "memory was measured differently ({}): it can't be compared"),
    (lambda run: run.speed.basis or None,
     "step times come from different measurements ({}): a wall clock includes evaluation"),
    (lambda run: run.steps, "lengths differ (last step {}): last and best values are of different steps"),
)  # fmt: skip
"""What of two runs may differ beside their settings, and what that means."""


def _speedless(base: RunStats, no_speedup: Sequence[RunStats]) -> list[str]:
    """Why some runs have no speed-up against the baseline."""
    other = [run for run in no_speedup if run.speed.samples_per_s and base.speed.samples_per_s]
    clocks = ", ".join(dict.fromkeys(run.speed.samples_basis for run in [*other, base]))
    silent = [run for run in no_speedup if run not in other]
    return [
        *_without(silent, "samples/s need global_batch_size, which not all of these and the baseline say"),
        *_without(other, f"their samples/s and the baseline's are by different clocks ({clocks})"),
    ]


def _remarked(runs: Sequence[RunStats]) -> list[str]:
    """What readers and speeds remark on single runs, each once; the first ones where there are many."""
    remarks = list(dict.fromkeys(remark for run in runs for remark in _remarks(run)))
    if len(remarks) > SHOWN:
        return [*remarks[:SHOWN], f"and {len(remarks) - SHOWN} more remarks of this kind"]
    lines = []
    for remark in remarks:
        whose = [run.name or run.id for run in runs if remark in _remarks(run)]
        lines.append(f"{', '.join(whose[:SHOWN])}{_and_more(len(whose))}: {remark}")
    return lines


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
