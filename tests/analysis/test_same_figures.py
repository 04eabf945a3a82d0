"""A run's figures don't depend on where they are read from: one run in six stores, and compared as one."""

from __future__ import annotations

import io
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.analysis.support import T0
from tests.helpers import Driver, run_info, stream
from trackers import records
from trackers.analysis import benchmark_results
from trackers.analysis.compare import compare_runs
from trackers.analysis.comparison import Comparison
from trackers.analysis.curves import open_runs
from trackers.analysis.report import measured_results
from trackers.analysis.sql import sql
from trackers.backends import registry
from trackers.backends.console.tracker import ConsoleTracker
from trackers.journal.run_directory import RunDirectory
from trackers.records import Config, Finish, Metrics, Record, Start
from trackers.tracker import Cursor, RunInfo, State, Status

STORES: dict[str, Callable[[RunInfo], str]] = {
    "journal": lambda info: info.id,
    "json": lambda info: f"json:{info.options['JSON_DIR']}/{info.name}_*.json",
    "tensorboard": lambda info: f"tb:{info.path('tensorboard')}",
    "mlflow": lambda info: f"mlflow:{info.options['MLFLOW_TRACKING_URI']}#{info.project}/{info.id}",
    "trackio": lambda info: f"trackio:{info.project}/{info.id}",
    "wandb": lambda info: str(next(path for path in Path(".").rglob(f"*/run-{info.id}.wandb") if path.is_file())),
}
FIGURES = ("final_loss", "best_val_loss", "avg_mfu", "total_iters", "steps", "steps_per_s", "speed_basis",
           "wall_steps_per_s", "samples_per_s", "samples_basis", "tokens_per_s", "tokens_basis")  # fmt: skip
CLOCKED = ("wall_steps_per_s", "steps_per_s", "samples_per_s", "tokens_per_s")
"""By the times of records: W&B has one row, and one time, for all records of a step."""
WANDB = ("nanogpt", "resumed", "nan", "rates")
"""Runs that W&B's offline mode gets, too: each takes seconds to begin, and it forgets nothing at a rewind."""
ONE_TIME = ("wandb", "wall_steps_per_s")
EVERY = ("count", "nans", "best", "last", "min", "max", "mean", "min_step", "max_step")


class Tool(NamedTuple):
    """A tracker of a plug-in that says speeds, too. option: that names its directory.

    exact, others: speeds by what says them, of what it wrote below that directory: to the last digit, and such as may
    be rounded or left out. near: whether a value is what one of the others may say.
    """

    option: str
    exact: Callable[[Path], dict[str, dict[str, float | None]]]
    others: Callable[[Path], dict[str, dict[str, float | None]]]
    near: Callable[[str, float | None, float | None], bool]


TOOLS: dict[str, Tool] = {}
"""By the tracker's name; a plug-in's tests add theirs."""
NAMES = ("steps_per_s", "samples_per_s", "tokens_per_s")


def places_below(place: Path) -> dict[str, str]:
    """A directory for each tracker that says speeds."""
    return {name: str(place / name) for name in ("BENCHMARK_DIR", "JSON_DIR", *(t.option for t in TOOLS.values()))}


def told(places: Mapping[str, str]) -> dict[str, dict[str, float | None]]:
    """What plug-ins' trackers say to the last digit, by what says it."""
    return {what: said for tool in TOOLS.values() for what, said in tool.exact(Path(places[tool.option])).items()}


Rows = list[tuple[int, float, Mapping[str, Any]]]
"""Step, seconds after the start, values."""


def metrics(rows: Rows, begin: float = 0.0) -> list[Record]:
    """Rows as records."""
    return [Metrics(step=step, time=T0 + begin + at, values=dict(values)) for step, at, values in rows]


def nanogpt(iterations: int = 21, every: int = 10) -> Rows:
    """nanoGPT's two calls: an evaluation of 5 s is logged before its iteration's own values, at the same step."""
    rows: Rows = []
    at = 0.0
    for step in range(iterations):
        if step % every == 0:
            at += 5
            rows.append((step, at, {"train_loss": 6.91 + step, "val_loss": 7.0 - step / 100, "lr": 6e-4}))
        at += 4
        mfu = -100.0 if step < 5 else 30 + step / 10
        rows.append((step, at, {"loss": 11 - step / 5, "time_ms": 19130.8 if step == 0 else 4000.0, "mfu": mfu}))
    return rows


def by_the_clock(iterations: int = 30) -> Rows:
    """Without step times: 0.5 s a step, an evaluation of 7 s behind each tenth, in a record of its own."""
    rows: Rows = []
    at = 0.0
    for step in range(1, iterations + 1):
        at += 0.5
        rows.append((step, at, {"train_loss": 1 / step, "consumed_samples": 12 * step}))
        if step % 10 == 0:
            at += 7
            rows.append((step, at, {"val_loss": 2 / step}))
    return rows


RUNS: dict[str, list[Record]] = {
    "nanogpt": metrics(nanogpt()),
    "clock": metrics(by_the_clock()),
    "resumed": [*metrics(by_the_clock(20)), Start(time=T0 + 1000, attempt=2, rank=0),
                *metrics([(20 + step, at, row) for step, at, row in by_the_clock(10)], 1000)],
    "rewound": [*metrics(by_the_clock(20)), Start(time=T0 + 1000, attempt=2, rank=0, from_step=15),
                *metrics([(15 + step, at, row) for step, at, row in by_the_clock(10)], 1000)],
    "nan": metrics([(step, step, {"train_loss": math.nan if step > 3 else 1 / step, "val_loss": math.nan if step == 4
                                  else step, "mfu": math.nan if step == 2 else 40.0}) for step in range(1, 8)]),
    "both losses": metrics([(step, step, {"loss": 1.0 + step, "train_loss": 2.0 + step}) for step in range(8)]),
    "one step": metrics([(1, 1, {"train_loss": 1.0, "val_loss": 2.0, "mfu": -100.0})]),
    "no steps": [],
    "evaluations only": metrics([(step, step, {"val_loss": 9.0 - step}) for step in (10, 20, 30)]),
    "rates": metrics([(step, 10 * step, {"train_loss": 1.0, "perf/iter_time_sec": 50.0 if step == 1 else 2.0,
                                         "perf/tokens_per_sec": 100.0 * step}) for step in range(1, 6)]),
    "together": metrics([(step, 3.0 * step, {"train_loss": 1.0, **({"val_loss": 1.0} if step % 2 else {})})
                         for step in range(6)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of all runs: one MLflow database, which takes seconds to make."""
    place = tmp_path_factory.mktemp("stores")
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db", "JSON_DIR": str(place / "json"),
            "WANDB_MODE": "offline"}  # fmt: skip


def everywhere(name: str, found: list[Record], options: dict[str, str]) -> RunInfo:
    """A run in all stores, each of which gets it from the journal's records."""
    stores = [store for store in STORES if store != "journal" and (store != "wandb" or name in WANDB)]
    return written(name, found, options, stores)


def written(
    name: str, found: list[Record], options: dict[str, str], trackers: Iterable[str],
    settings: Mapping[str, Any] = MappingProxyType({"global_batch_size": 12, "block_size": 1024}), ranks: int = 0,
) -> RunInfo:  # fmt: skip
    """A run in the journal, and delivered from it."""
    run_id = uuid.uuid4().hex[:8]
    directory = RunDirectory(Path("runs/digits", run_id))
    directory.make()
    settings = dict(settings)
    info = run_info(directory.path, id=run_id, name=f"{name}-{run_id}", options=options, config=settings, created=T0)
    directory.write_info(info)
    head: list[Record] = [Start(time=T0, rank=0, pid=1, world_size=ranks), Config(time=T0, values=settings)]
    end = max((record.time for record in found), default=T0)
    whole = stream([*head, *found, Finish(time=end, status="finished", exit_code=0)])
    attempt = 0
    for record in whole:
        attempt = record.attempt if isinstance(record, Start) else attempt
        with (directory.streams / f"rank-0.{attempt}.jsonl").open("ab") as lines:
            lines.write(records.encode(record))
    for tracker in trackers:
        Driver(registry.load(tracker), info).deliver(whole, status=Status("finished", 0, end))
    return info


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RUNS)
def test_figures_are_the_same_from_every_store(name: str, options: dict[str, str]) -> None:
    """Losses, evaluations, MFU, iterations and speed of a run are those of its journal, whoever kept it."""
    info = everywhere(name, RUNS[name], options)
    found: dict[str, Comparison] = {}
    for store, source in STORES.items():
        if (RUNS[name] or store != "tensorboard") and (store != "wandb" or name in WANDB):
            found[store] = compare_runs([source(info)])
    journal = found["journal"]
    differing = {}
    for store, comparison in found.items():
        wall = store == "wandb" and journal.runs[0]["speed_basis"] != "measured step time"
        for figure in [name for name in FIGURES if not (wall and name in CLOCKED) and (store, name) != ONE_TIME]:
            _differ(differing, f"{store} {figure}", comparison.runs[0][figure], journal.runs[0][figure])
        for key in {*journal.keys, *comparison.keys}:
            one, other = (which.runs[0]["metrics"].get(key, {}) for which in (comparison, journal))
            for figure in EVERY:
                _differ(differing, f"{store} {key} {figure}", one.get(figure), other.get(figure))
    assert not differing, differing


def _differ(differing: dict[str, Any], what: str, one: Any, other: Any) -> None:
    near = isinstance(other, float) and isinstance(one, (int, float))
    if not (one == other or (near and one == pytest.approx(other, rel=1e-6, nan_ok=True))):
        differing[what] = (one, other)


@pytest.mark.slow
def test_figures_of_nanogpts_two_calls(options: dict[str, str]) -> None:
    """The iterations' loss and count, not the evaluations'; MFU without its markers; steps without evaluations."""
    info = everywhere("nanogpt", RUNS["nanogpt"], options)
    (run,) = compare_runs([info.id]).runs
    assert (run["final_loss"], run["total_iters"]) == (7.0, 21)
    assert run["avg_mfu"] == pytest.approx(sum(30 + step / 10 for step in range(5, 21)) / 16)
    assert (run["steps_per_s"], run["samples_per_s"], run["tokens_per_s"]) == (0.25, 3.0, 3072.0)
    assert run["wall_steps_per_s"] == pytest.approx(20 / 94)


def evaluated(step: int, at: float) -> Rows:
    """An evaluation of 7 s behind each tenth step, as a loop logs it; its end is in ``at``."""
    return [(step, at, {"val_loss": 2 / step}), (step, at, {"evaluation-time": 7.0})]


def trained(log: Callable[[int], Mapping[str, Any]], each: float = 0.5, steps: int = 40) -> list[Record]:
    """A training whose first step takes 30 s and all others 0.5 s, with evaluations, logged in one way or another."""
    rows: Rows = []
    at = 30.0 - each
    for step in range(1, steps + 1):
        at += each
        rows.append((step, at, {"train_loss": 1 / step, **log(step)}))
        if step % 10 == 0:
            at += 7
            rows += evaluated(step, at)
    return metrics(rows)


WAYS: dict[str, list[Record]] = {
    "plain": trained(lambda step: {}),
    "consumed samples": trained(lambda step: {"consumed-samples": 12 * step, "consumed-tokens": 12 * 1024 * step}),
    "step times": trained(lambda step: {"perf/iter_time_sec": 30.0 if step == 1 else 0.5}),
    "loop": trained(lambda step: {"first-step-time": 30.0} if step == 1 else
                    {"iteration-time": 0.5, "batch-size": 12, "consumed-samples": 12 * step,
                     "throughput/tokens_per_sec": 24576.0}),
    "rates": trained(lambda step: {"time_ms": 30000.0 if step == 1 else 500.0, "mfu": -100.0,
                                   "perf/tokens_per_sec": 409.6 if step == 1 else 24576.0}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_speed_is_the_same_by_every_tool_and_every_way_to_log(way: str, tmp_path: Path) -> None:
    """2 steps/s, 24 samples/s and 24,576 tokens/s, whoever asks: without the first step, without evaluations."""
    places = places_below(tmp_path)
    info = written(way.replace(" ", "-"), WAYS[way], places, ("benchmark", "json", *TOOLS))
    (row,) = compare_runs([info.id]).runs
    (document,) = (json.loads(path.read_text()) for path in Path(places["BENCHMARK_DIR"]).glob("*.json"))
    (log,) = (json.loads(path.read_text()) for path in Path(places["JSON_DIR"]).glob("*.json"))
    performance = document["performance_metrics"]
    found = {
        "compare": (row["steps_per_s"], row["samples_per_s"], row["tokens_per_s"]),
        "benchmark": (performance["steps_per_second"], None, performance["tokens_per_second"]),
        "json": (1000 / log["summary"]["avg_time_ms"], None, None),
        **{what: tuple(said.get(name) for name in NAMES) for what, said in told(places).items()},
    }
    for tool, values in found.items():
        for value, expected in zip(values, (2.0, 24.0, 24576.0), strict=True):
            assert value is None or value == pytest.approx(expected, rel=1e-6), (tool, values)
    assert row["wall_steps_per_s"] == pytest.approx(39 / (39 * 0.5 + 4 * 7), rel=1e-6)


@pytest.mark.parametrize("log", [{}, {"time_ms": 1.0}, {"perf/iter_time_sec": 0.001}], ids=["clock", "ms", "s"])
def test_speed_counts_no_step_that_a_rewind_superseded(log: dict[str, float], tmp_path: Path) -> None:
    """Steps above the one that an attempt went back to are in no tool's speed, also while they may still grow."""
    places = places_below(tmp_path)
    slow = [(step, 1.0 * step, {"train_loss": 1.0, **{name: 1000 * one for name, one in log.items()}})
            for step in range(1, 41)]  # fmt: skip
    slow.insert(10, (10, 10.1, {"val_loss": 1.0}))
    quick = [(30 + step, 0.5 * step, {"train_loss": 1.0, **{name: 500 * one for name, one in log.items()}})
             for step in range(1, 12)]  # fmt: skip
    found = [*metrics(slow), Start(time=T0 + 1000, attempt=2, rank=0, from_step=30), *metrics(quick, 1000.0)]
    info = written("rewound", found, places, ("benchmark", "json", *TOOLS))
    (row,) = compare_runs([info.id]).runs
    (document,) = (json.loads(path.read_text()) for path in Path(places["BENCHMARK_DIR"]).glob("*.json"))
    (written_log,) = (json.loads(path.read_text()) for path in Path(places["JSON_DIR"]).glob("*.json"))
    assert row["steps_per_s"] == pytest.approx((29 + 10) / (29 + 10 * 0.5), rel=0.03)
    for tool, value in {
        "json": 1000 / written_log["summary"]["avg_time_ms"],
        "benchmark": document["performance_metrics"]["steps_per_second"],
        **{what: said["steps_per_s"] for what, said in told(places).items()},
    }.items():
        assert value == pytest.approx(row["steps_per_s"], rel=1e-6), tool


def test_ways_to_log_make_no_speedup(tmp_path: Path) -> None:
    """Two trainings that differ in nothing but what they log are equally fast; unlike clocks are said."""
    ids = [written(way.replace(" ", "-"), WAYS[way], {}, ()).id for way in WAYS]
    found = compare_runs(ids, baseline=ids[0])
    assert [run["speedup"] for run in found.runs] == pytest.approx([1.0] * len(ids))
    assert any("by the wall clock" in text for text in found.warnings)
    measured = compare_runs(ids[2:])
    assert [run["speedup"] for run in measured.runs] == pytest.approx([1.0] * 3)
    assert not any("by the wall clock" in text for text in measured.warnings)


def test_lines_written_while_training_have_their_own_clocks(tmp_path: Path) -> None:
    """Of one training: the console's step times as measured, of their interval; the run's steps/s without the first
    step."""
    options = {"TRACKER_CONSOLE_STYLE": "full", "TRACKER_LOG_INTERVAL": 20}
    records = trained(lambda step: {"perf/iter_time_sec": 30.0 if step == 1 else 0.5}, steps=100)
    info = written("lines", records, options, ())
    out = io.StringIO()
    console = ConsoleTracker(out)
    console.open(info, State())
    console.write(stream(records), Cursor(1))
    console.close(Status("finished"))
    times = re.findall(r"iteration +(\d+) .*per iteration \(ms\): ([\d.]+)", out.getvalue())
    assert times[:2] == [("20", "1975.0"), ("40", "500.0")]  # the first interval has the first step
    assert compare_runs([info.id]).runs[0]["steps_per_s"] == 2.0


def test_json_log_says_on_how_many_ranks_it_trained(tmp_path: Path) -> None:
    """The world size in its metadata counts, and an iteration that a resumed run repeats counts once."""
    twice = [*metrics(by_the_clock(20)), Start(time=T0 + 1000, attempt=2, rank=0, world_size=8),
             *metrics([(10 + step, at, row) for step, at, row in by_the_clock(20)], 1000)]  # fmt: skip
    info = written("ranks", twice, {"JSON_DIR": str(tmp_path)}, ("json",))
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["summary"]["total_iterations"] == 30
    (log,), (run,) = compare_runs([f"json:{path}"]).runs, compare_runs([info.id]).runs
    assert (log["gpus"], log["total_iters"]) == (run["gpus"], run["total_iters"]) == (8, 30)


@st.composite
def trainings(draw: st.DrawFn) -> tuple[list[Record], dict[str, Any], int]:
    """Records of a training, its settings, and on how many ranks it began: its batch grows, it pauses and restarts on
    another number of ranks, and of what could be logged some is missing."""
    timed = draw(st.sampled_from([None, "perf/iter_time_sec", "time_ms", "iteration-time"]))
    logs = {name: draw(st.booleans()) for name in ("batch-size", "consumed_samples", "evaluation-time")}
    rate = draw(st.sampled_from(["", "perf/tokens_per_sec", "perf/tokens_per_sec_per_gpu"]))
    settings = {name: value for name, value in (("global_batch_size", 16), ("block_size", 1024), ("world_size", 4),
                                                ("per_device_train_batch_size", 8)) if draw(st.booleans())}  # fmt: skip
    began = ranks = draw(st.sampled_from([1, 4, 8]))
    found: list[Record] = []
    at, step, consumed = 0.0, 0, 0
    for attempt in range(1, draw(st.integers(1, 3)) + 1):
        if attempt > 1:
            at += draw(st.sampled_from([10.0, 900.0]))
            back = draw(st.integers(0, step))
            step -= draw(st.sampled_from([0, min(back, 5)]))
            ranks = draw(st.sampled_from([1, 4, 8]))
            found.append(Start(time=T0 + at, attempt=attempt, rank=0, world_size=ranks, from_step=step))
            consumed = min(consumed, 64 * step)
        for number in range(draw(st.integers(1, 15))):
            step += 1
            took = 20.0 if number == 0 else draw(st.sampled_from([0.5, 1.0, 4.0]))
            batch = 16 if step <= 5 else 32 if step <= 10 else 64
            at, consumed = at + took, consumed + batch
            row: dict[str, Any] = {"train_loss": 1 / step}
            if timed and draw(st.integers(0, 9)):
                row[timed] = took * 1000 if timed == "time_ms" else took
            row |= {"batch-size": batch} if logs["batch-size"] else {}
            row |= {"consumed_samples": consumed} if logs["consumed_samples"] else {}
            row |= {rate: batch * 1024 / took / (ranks or 1 if rate.endswith("gpu") else 1)} if rate else {}
            found.append(Metrics(step=step, time=T0 + at, values=row))
            if draw(st.integers(0, 5)) == 0:
                at += 7
                pause = {"evaluation-time": 7.0} if logs["evaluation-time"] else {}
                found.append(Metrics(step=step, time=T0 + at, values={"val_loss": 2 / step, **pause}))
            at += draw(st.sampled_from([0.0] * 9 + [500.0]))
    return found, settings, began


def by_every_tool(
    found: list[Record], settings: Mapping[str, Any], ranks: int, place: Path
) -> dict[str, dict[str, Any]]:
    """Speeds of a run as each tool says them."""
    places = places_below(place)
    info = written("generated", found, places, ("benchmark", "json", *TOOLS), settings, ranks)
    (run,) = compare_runs([info.id]).runs
    table = sql("select steps_per_s, samples_per_s, tokens_per_s from runs", [info.id]).to_pylist()[0]
    (document,) = (json.loads(path.read_text()) for path in Path(places["BENCHMARK_DIR"]).glob("*.json"))
    performance = document["performance_metrics"]
    (path,) = Path(places["JSON_DIR"]).glob("*.json")
    summary = json.loads(path.read_text())["summary"]
    (log,) = compare_runs([f"json:{path}"]).runs
    reported = measured_results(open_runs([info.id]))[0]
    average = summary["avg_time_ms"]
    return {
        "compare": {**{name: run[name] for name in NAMES}, "steps": run["total_iters"], "gpus": run["gpus"]},
        "sql": table,
        "report": {"steps_per_s": 1 / reported.step_s if reported.step_s else None, "gpus": reported.gpus,
                   "samples_per_s": reported.samples_per_s, "tokens_per_s": reported.tokens_per_s},
        "benchmark": {"steps_per_s": performance["steps_per_second"], "tokens_per_s": performance["tokens_per_second"]},
        "JSON log": {"steps_per_s": 1000 / average if average else None, "steps": summary["total_iterations"]},
        "JSON log, compared": {**{name: log[name] for name in NAMES}, "steps": log["total_iters"], "gpus": log["gpus"]},
        **{what: said for tool in TOOLS.values() for what, said in tool.others(Path(places[tool.option])).items()},
    }  # fmt: skip


def _differ_of_tool(differing: dict[str, Any], tool: str, figure: str, value: Any, expected: Any) -> None:
    """What a tool of a plug-in may leave out or round is said there."""
    if not any(one.near(tool, value, expected) for one in TOOLS.values()):
        _differ(differing, f"{tool} {figure}", value, expected)


@pytest.mark.heavy
@hypothesis.settings(max_examples=6, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(training=trainings())
def test_generated_trainings_have_one_speed_in_every_tool(
    training: tuple[list[Record], dict[str, Any], int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Extraction, compare, report, SQL and the JSON log say the same, or nothing, of any training."""
    tools = by_every_tool(*training, tmp_path_factory.mktemp("training"))
    differing: dict[str, Any] = {}
    for tool, figures in tools.items():
        for figure, value in figures.items():
            _differ_of_tool(differing, tool, figure, value, tools["compare"][figure])
    assert not differing, differing


@pytest.mark.parametrize(("average", "stated", "each"), [(4.38, 7480.7, 935.1), (4.3801, 7480.7, None)])
def test_speed_of_a_result_is_as_stated(average: float, stated: float, each: float | None, tmp_path: Path) -> None:
    """A foreign result rounds its figures: nothing that is recalculated from one of them stands beside another."""
    parts = {} if each is None else {"tokens_per_second_per_gpu": each}
    content = {
        "training_config": {"global_batch_size": 16, "sequence_length": 2048, "num_gpus": 8},
        "performance_metrics": {"avg_step_time_seconds": average, "tokens_per_second": stated, **parts},
    }
    path = tmp_path / "benchmark_a.json"
    path.write_text(json.dumps(content))
    found = benchmark_results.read(path)
    assert (found.tokens_per_s, found.tokens_per_s_per_gpu) == (stated, each or stated / 8)
    assert compare_runs([str(path)]).runs[0]["tokens_per_s"] == stated
    assert (found.remarks, compare_runs([str(path)]).warnings) == ([], [])
