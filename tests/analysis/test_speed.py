"""Speed, hardware use and the folds of metrics have known values, and those that pandas finds in the raw journal."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.support import T0, write_run
from trackers import records
from trackers.analysis.collect import gather, read_one
from trackers.analysis.run_stats import RunStats
from trackers.benchmark.speed import Meter, figures
from trackers.metrics import roles
from trackers.records import Define, Metrics, Start


def facts(*arguments: Any, **options: Any) -> RunStats:
    """A run written and folded."""
    found = read_one(write_run("run", *arguments, **options))
    assert isinstance(found, RunStats), found
    return found


values = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(-1000, 1000))
logged = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 20)),
        st.dictionaries(st.sampled_from(["loss", "val/acc", "a b"]), values, min_size=1),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(logged)
def test_folds_agree_with_pandas_on_the_raw_journal(rows: list[tuple[int | None, dict[str, Any]]]) -> None:
    """Count, last, smallest, largest and mean of every metric are what pandas finds in the journal's lines."""
    with tempfile.TemporaryDirectory() as place:
        run = write_run("run", [(step, at, row) for at, (step, row) in enumerate(rows)], root=place)
        lines = [json.loads(line) for line in (run / "streams/rank-0.1.jsonl").read_text().splitlines()]
        found = read_one(run)
    assert isinstance(found, RunStats)
    raw = [(name, line.get("step"), float(value)) for line in lines if line["kind"] == "metrics"
           for name, value in line["values"].items()]  # fmt: skip
    table = pd.DataFrame(raw, columns=["name", "step", "value"])
    assert set(found.folds) == set(table["name"])
    for name, group in table.groupby("name"):
        fold, series = found.folds[str(name)], group["value"]
        assert fold.count == len(series)
        assert fold.nans == series.isna().sum()
        assert fold.last == pytest.approx(series.iloc[-1], nan_ok=True)
        assert (fold.first_step, fold.last_step) == tuple(
            None if math.isnan(step) else step for step in (group["step"].min(), group["step"].max())
        )
        if fold.nans == fold.count:
            assert (fold.low, fold.high, fold.mean) == (None, None, None)
            continue
        assert (fold.low, fold.high) == (series.min(), series.max())
        for step, value in ((fold.low_step, fold.low), (fold.high_step, fold.high)):
            expected = group["step"][series.index[series == value][0]]  # idxmin of pandas 2 is wrong beside infinity
            assert step == (None if pd.isna(expected) else expected)
        with np.errstate(invalid="ignore"):
            assert fold.mean == pytest.approx(series.mean(), nan_ok=True, rel=1e-9, abs=1e-6)


def test_measured_step_time_counts_the_steps_it_speaks_for() -> None:
    """Each tenth step is logged: ten steps of 1 s and thirty of 2 s are 40 steps in 70 s; the first one warms up."""
    rows = [(1, 1, {"perf/iter_time_sec": 50.0}), (11, 2, {"perf/iter_time_sec": 1.0}),
            (41, 3, {"perf/iter_time_sec": 2.0})]  # fmt: skip
    speed = facts(rows).speed
    assert speed.steps_per_s == pytest.approx(40 / 70)
    assert speed.basis == "measured step time"


@pytest.mark.parametrize(
    ("name", "value"),
    [("perf/iter_ms", 500.0), ("time_ms", 500.0), ("iteration-time", 0.5), ("train/step_time", 0.5)],
)
def test_step_time_by_other_names(name: str, value: float) -> None:
    """Seconds and milliseconds, as Megatron, nanoGPT and others call them."""
    assert facts([(step, step, {name: value}) for step in range(3)]).speed.steps_per_s == 2.0


def test_steps_of_one_instant_count_in_their_order() -> None:
    """MLflow has milliseconds, and gives what shares one by value: each step counts once all the same."""
    seconds = {0: 9.0, 1: 0.3, 2: 0.1, 3: 0.4, 4: 0.2}
    rows = sorted(seconds.items(), key=lambda row: row[1])
    speed = facts([(step, 7, {"perf/iter_time_sec": value}) for step, value in rows]).speed
    assert speed.steps_per_s == pytest.approx(1 / 0.25)


def test_wall_clock_leaves_pauses_between_attempts_out() -> None:
    """Ten steps in 10 s, a pause of an hour, ten more in 5 s: 20 steps in 15 s."""
    rows = [(step, step, {"loss": 1.0}) for step in range(11)]
    later = [Start(time=T0 + 3600, rank=0, attempt=2),
             *(Metrics(step=11 + k, time=T0 + 3600 + k / 2, values={"loss": 1.0}) for k in range(11))]  # fmt: skip
    found = facts(rows, more=later)
    assert found.speed.steps_per_s == pytest.approx(20 / 15)
    assert (found.speed.basis, found.speed.seconds, found.steps) == ("wall clock", 15.0, 21)


def test_tokens_per_second_are_all_tokens_over_all_seconds() -> None:
    """100 tokens/s for 1 s, then 10 for 9 s: 19, where a mean of rates would say 55."""
    rows = [(0, 0, {"perf/tokens_per_sec": 7e9}), (1, 1, {"perf/tokens_per_sec": 100.0}),
            (2, 10, {"perf/tokens_per_sec": 10.0})]  # fmt: skip
    assert facts(rows).speed.tokens_per_s == 19.0


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 1000), st.floats(0.1, 1e4)), min_size=3, max_size=20))
def test_speed_agrees_with_pandas_on_the_raw_journal(parts: list[tuple[int, int, float]]) -> None:
    """Steps/s by the wall clock and tokens/s by its time-weighted mean are what pandas makes of the journal's lines."""
    rows, step, at = [], 0, 0.0
    for steps, milliseconds, rate in parts:
        step, at = step + steps, at + milliseconds / 1000
        rows.append((step, at, {"loss": 1.0, "perf/tokens_per_sec": rate}))
    with tempfile.TemporaryDirectory() as place:
        run = write_run("run", rows, root=place)
        lines = [json.loads(line) for line in (run / "streams/rank-0.1.jsonl").read_text().splitlines()]
        found = read_one(run)
    assert isinstance(found, RunStats)
    raw = [(line["step"], line["time"], line["values"]["perf/tokens_per_sec"])
           for line in lines if line["kind"] == "metrics"]  # fmt: skip
    table = pd.DataFrame(raw, columns=["step", "time", "rate"])
    passed = table["time"].diff()
    assert found.speed.steps_per_s == pytest.approx(table["step"].diff().sum() / passed.sum(), rel=1e-6)
    assert found.speed.tokens_per_s == pytest.approx((table["rate"] * passed).sum() / passed.sum(), rel=1e-6)


def test_first_step_behind_an_evaluation_is_a_first_step() -> None:
    """A run that evaluates before it trains is as fast as one that doesn't: its first step compiles, too."""
    rows = [(0, 0, {"val_loss": 1.0}), *((step, 30 + step / 2, {"train_loss": 1.0}) for step in range(1, 11))]
    assert facts(rows).speed.steps_per_s == facts(rows[1:]).speed.steps_per_s == 2.0


def test_rates_per_gpu_count_every_gpu() -> None:
    """Tokens per second and GPU on eight ranks are eight times as many in all."""
    rows = [(step, step, {"perf/tokens_per_sec_per_gpu": 10.0}) for step in range(3)]
    found = facts(rows, world_size=8)
    assert (found.gpus, found.speed.tokens_per_s) == (8, 80.0)


def test_rates_per_gpu_count_those_of_their_time() -> None:
    """Where training goes on with twice the GPUs, each stretch's rate counts for its own."""
    seconds = "perf/iter_time_sec"
    rows = [(step, step, {"perf/tokens_per_sec_per_gpu": 10.0, seconds: 1.0}) for step in range(4)]
    again = [(step, 100 + step, {"perf/tokens_per_sec_per_gpu": 8.0, seconds: 1.0}) for step in range(4, 11)]
    run = write_run("run", rows, world_size=4)
    more = [Start(time=T0 + 100, attempt=2, rank=0, world_size=8),
            *(Metrics(step=step, time=T0 + at, values=row) for step, at, row in again)]  # fmt: skip
    (run / "streams/rank-0.2.jsonl").write_bytes(b"".join(records.encode(record) for record in more))
    found = read_one(run)
    assert isinstance(found, RunStats)
    assert found.speed.tokens_per_s == pytest.approx((3 * 4 * 10 + 6 * 8 * 8) / 9)
    assert found.speed.gpus == pytest.approx((3 * 4 + 6 * 8) / 9)
    assert found.gpus == 8


def test_samples_from_a_counter() -> None:
    """Consumed samples over the seconds between them."""
    rows = [(step, 2.0 * step, {"consumed_samples": 64 * step}) for step in range(4)]
    assert facts(rows).speed.samples_per_s == 32.0


def test_samples_from_the_batch() -> None:
    """The global batch times steps/s; per-device batches times accumulation and GPUs."""
    rows = [(step, step / 2, {"loss": 1.0}) for step in range(3)]
    assert facts(rows, config={"global_batch_size": 12}).speed.samples_per_s == 24.0
    config = {"train": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}}
    assert facts(rows, config=config, world_size=2).speed.samples_per_s == 32.0
    tokens = facts(rows, config={"batch_size": 3, "block_size": 100}).speed
    assert (tokens.samples_per_s, tokens.tokens_per_s) == (6.0, 600.0)


def test_batch_that_may_be_of_one_gpu_gives_no_samples() -> None:
    """``batch_size`` on several GPUs may mean either: nothing is guessed, and it is said what to log."""
    speed = facts([(step, step, {"loss": 1.0}) for step in range(3)], config={"batch_size": 4}, world_size=2).speed
    assert speed.samples_per_s is None
    assert "global_batch_size" in speed.remarks[0]


@pytest.mark.parametrize(
    "rows", [[], [(None, 0, {"loss": 1.0})], [(3, 0, {"loss": 1.0})], [(5, 1, {"a": 1}), (5, 1, {"a": 1})]]
)
def test_run_without_two_steps_has_no_speed(rows: list[Any]) -> None:
    """Nothing, no step, one step, one step twice: no speed, and no division by zero."""
    speed = facts(rows).speed
    assert (speed.steps_per_s, speed.samples_per_s, speed.tokens_per_s) == (None, None, None)


def test_zero_and_nan_step_times_count_as_unknown() -> None:
    """A step time of 0, NaN or infinity says nothing."""
    rows = [(step, step, {"perf/iter_time_sec": value}) for step, value in enumerate([0.0, math.nan, math.inf])]
    speed = facts(rows).speed
    assert (speed.steps_per_s, speed.basis) == (1.0, "wall clock")


def test_gpu_use_is_weighted_by_time() -> None:
    """50 % for the 10 s before the first sample and 100 % for 30 s are 87.5 %; memory is the peak, energy the total."""
    rows = [(1, 10, {"gpu/compute_util_avg": 50.0, "gpu/memory_used_avg_gb": 3.0, "gpu/memory_used_avg_gb.max": 4.0,
                     "gpu/energy_total_j": 100.0}),
            (2, 40, {"gpu/compute_util_avg": 100.0, "gpu/memory_used_avg_gb": 2.0, "gpu/memory_used_avg_gb.max": 2.5,
                     "gpu/energy_total_j": 900.0})]  # fmt: skip
    use = facts(rows).use
    assert (use.gpu_percent, use.memory_gb, use.memory_kind, use.energy_j) == (87.5, 4.0, "device", 900.0)
    assert facts(rows, summary={"energy/total_kwh": 0.5}).use.energy_j == 1.8e6


def test_single_gpus_are_averaged_and_counted() -> None:
    """Without values of the job, W&B's names of single GPUs tell: their mean, the fullest one, how many."""
    rows = [(None, 10 * k, {"system.gpu.0.gpu": 100.0, "system.gpu.1.gpu": 50.0,
                            "system.gpu.0.memoryAllocatedBytes": 2e9, "system.gpu.1.memoryAllocatedBytes": 5e9})
            for k in range(1, 4)]  # fmt: skip
    found = facts(rows)
    assert (found.use.gpu_percent, found.use.memory_gb, found.gpus) == (75.0, 5.0, 2)


@pytest.mark.parametrize(
    ("first", "second"),
    [("system.gpu.0.powerWatts", "system.gpu.1.powerWatts"), ("system/gpu_0_power_usage_watts", "gpu/1/power")],
)
def test_energy_of_single_gpus_is_added_up(first: str, second: str) -> None:
    """Where nobody logged the job's total, each GPU's power over time is; one that doesn't tell leaves it unknown."""
    rows = [(None, 10 * k, {first: 300.0, second: 200.0 + 100 * (k > 1)}) for k in range(1, 4)]
    assert facts(rows).use.energy_j == pytest.approx(300 * 20 + 275 * 20)
    assert facts([*rows, (None, 50, {"system.gpu.2.gpu": 80.0})]).use.energy_j is None


@pytest.mark.parametrize(
    ("name", "gb"),
    [("system/gpu_0_memory_usage_megabytes", 2.0), ("gpu/0/allocated_memory", 2000 * 1024**3 / 1e9)],
)
def test_memory_of_single_gpus_by_other_names(name: str, gb: float) -> None:
    """MLflow's and trackio's own samples say a GPU's memory, in their units."""
    use = facts([(None, k, {name: 1000.0 * k}) for k in (1, 2)]).use
    assert (use.memory_gb, use.memory_kind) == (pytest.approx(gb), "device")


@pytest.mark.parametrize(("unit", "gb"), [(None, 10.737418), ("GiB", 10.737418), ("GB", 10.0)])
def test_memory_that_a_result_states_is_in_one_unit(unit: str | None, gb: float) -> None:
    """What others' results call ``_gb`` is torch's bytes over 1024³: beside measured memory it is in GB, as that."""
    stated = {"peak_memory_allocated_gb": 10.0, "kind": "torch", **({"unit": unit} if unit else {})}
    use = facts([(1, 1, {"loss": 1.0})], summary=stated).use
    assert (use.memory_gb, use.memory_kind) == (pytest.approx(gb), "torch")


def test_energy_counter_of_single_gpus_begins_anew() -> None:
    """A restarted job counts each GPU's joules from 0 again: they add up, as in gpu-report."""
    rows = [(None, k, {"system.gpu.0.energyJoules": joules}) for k, joules in enumerate([10.0, 90.0, 5.0, 30.0])]
    assert facts(rows).use.energy_j == 120.0


def test_absent_hardware_is_absent() -> None:
    """A run without samples has no utilisation, memory or energy: not 0."""
    use = facts([(1, 1, {"loss": 1.0})]).use
    assert (use.gpu_percent, use.memory_gb, use.energy_j) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("eval_samples_per_second", None),
        ("train_samples_per_second", roles.SAMPLES),
        ("throughput/device/tokens_per_sec", roles.TOKENS_PER_GPU),
        ("gpu/node1/compute_util_avg", roles.GPU_UTILISATION),
        ("system.node1.gpu.3.gpu", roles.ONE_GPU_UTILISATION),
        ("system/gpu_0_utilization_percentage", roles.ONE_GPU_UTILISATION),
        ("system.cpu", None),
        ("loss", None),
    ],
)
def test_role_by_name(name: str, kind: str | None) -> None:
    """What a name says about speed or hardware; evaluation's speed isn't training's."""
    role = roles.role_of(name)
    assert (role.kind if role else None) == kind


@pytest.mark.parametrize(
    ("name", "best"),
    [("val_loss", "min"), ("eval/accuracy", "max"), ("valLoss", "min"), ("mAP", "max"), ("accuracy_loss", "min"),
     ("f1", "max"), ("learning_rate", None), ("lm loss validation", "min"), ("val_perplexity", "min")],
)  # fmt: skip
def test_direction_by_name(name: str, best: str | None) -> None:
    """Whether small or large is good, by the last word that says so; None where none does."""
    assert roles.direction(name) == best


def test_definition_beats_the_name() -> None:
    """``define_metric`` with a goal says which value is best, whatever the name suggests."""
    rows = [(1, 1, {"loss": 1.0}), (2, 2, {"loss": 5.0})]
    found = facts(rows, more=[Define(time=T0 + 1, name="lo*", goal="maximize")])
    assert found.value("loss", "best") == 5.0
    assert facts(rows).value("loss", "best") == 1.0


def test_changed_run_is_read_anew_and_unchanged_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts are kept while a run's files are as they were; one line more, and they are read again."""
    run = write_run("run", [(1, 1, {"loss": 1.0})])
    stream = run / "streams/rank-0.1.jsonl"
    _age(run)
    assert gather(["run"]).runs[0].folds["loss"].last == 1.0
    with monkeypatch.context() as patch:
        patch.setattr("trackers.analysis.collect.read_one", lambda path: pytest.fail("read again"))
        assert gather(["run"]).runs[0].folds["loss"].last == 1.0
    with stream.open("ab") as file:
        file.write(b'{"kind":"metrics","step":2,"time":1763688002.0,"values":{"loss":0.5}}\n')
    _age(run, 60)
    assert gather(["run"]).runs[0].folds["loss"].last == 0.5


def test_fresh_files_are_not_trusted() -> None:
    """A file of this moment may change within the filesystem's clock: it is read again each time."""
    run = write_run("run", [(1, 1, {"loss": 1.0})])
    stream = run / "streams/rank-0.1.jsonl"
    assert gather(["run"]).runs[0].folds["loss"].last == 1.0
    text, stat = stream.read_bytes(), stream.stat()
    stream.write_bytes(text.replace(b'"loss":1.0', b'"loss":3.0'))
    os.utime(stream, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as if within one tick
    assert gather(["run"]).runs[0].folds["loss"].last == 3.0


@pytest.mark.slow
@pytest.mark.processes
def test_helper_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs read by several processes are those read by one, in the same order; one that can't be read is named."""
    for number in range(5):
        write_run(f"run{number}", [(step, step, {"loss": float(number)}) for step in range(3)], created=T0 + number)
    Path("runs/digits/run3/run.json").unlink()
    Path("runs/digits/run3/run.json").mkdir()
    alone = gather(["digits"])
    monkeypatch.setattr("trackers.analysis.collect.SHARED_BYTES", 1)
    monkeypatch.setattr("trackers.support.machines.processors", lambda: 2)
    together = gather(["digits"])
    assert together == alone
    assert [run.id for run in together.runs] == ["run4", "run2", "run1", "run0"]
    assert len(together.problems) == 1
    assert "run3" in together.problems[0]


@pytest.mark.processes
def test_helper_processes_read_directories_of_any_name(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name that isn't UTF-8 stops no helper."""
    for number in range(4):
        path = write_run(f"run{number}", [(0, 0, {"loss": float(number)})], created=T0 + number)
        path.rename(os.fsdecode(b"runs/digits/\xff%d" % number))
    alone = gather(["runs"])
    monkeypatch.setattr("trackers.analysis.collect.SHARED_BYTES", 1)
    monkeypatch.setattr("trackers.support.machines.processors", lambda: 2)
    assert gather(["runs"]) == alone
    assert [run.id for run in alone.runs] == ["run3", "run2", "run1", "run0"]
    assert capfd.readouterr().err == ""


def _age(run: Path, seconds: float = 100.0) -> None:
    for path in (run / "run.json", run / "streams", *run.glob("streams/*")):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


@pytest.mark.parametrize(("unit", "known"), [(1e-3, True), (0.05, True), (1.0, False)])
def test_times_of_a_coarse_unit_give_the_same_speed_or_none(unit: float, known: bool) -> None:
    """Many steps at one time are all counted; where a unit is too long for what there is, there is no figure."""
    meter = Meter()
    for step in range(1000):
        meter.take(step, 1e9 + int(step / 400 / unit) * unit, {"train_loss": 1.0})
    found = figures(meter, {}, {}, None)
    assert (found.steps_per_s is not None) == (found.wall_steps_per_s is not None) == known
    if known:
        assert found.steps_per_s == pytest.approx(400, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.1, 1.0, 30.0]), st.integers(1, 3)), max_size=20))
def test_steps_while_stepping_are_never_slower_than_by_the_wall_clock(rows: list[tuple[int, float, int]]) -> None:
    """Whatever is logged, when and together with what."""
    meter, step, at = Meter(), 0, 1e9
    for more, passed, flags in rows:
        step, at = step + more, at + passed
        values = {**({"train_loss": 1.0} if flags & 1 else {}), **({"val_loss": 1.0} if flags & 2 else {})}
        meter.take(step, at, {**values, **({"step_time_s": 0.5} if more == 3 else {})})
    found = figures(meter, {}, {}, None)
    if found.steps_per_s is not None and found.wall_steps_per_s is not None:
        assert found.steps_per_s >= found.wall_steps_per_s * (1 - 1e-9)
