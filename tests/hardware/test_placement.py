"""Samples of the machine lie where each tracker shows the machine, and every reader finds them under their names."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import T0, begun_run
from tests.stores import wandb_files, wandb_records
from trackers.formats.vendor_system_names import is_job, placed
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.readers import registry as sources
from trackers.records import SYSTEM_PREFIX, Finish, Metrics, Record, encode
from trackers.relay.delivery.delivery import Delivery

TRACKERS = ("trackio", "mlflow", "tensorboard", "json", "wandb")
JOB = {"gpu/compute_util_avg": 75.0, "gpu/memory_used_total_gb": 20.0, "gpu/power_total_w": 250.0,
       "gpu/energy_total_j": 1024.0, "gpu/temp_max_c": 61.0}  # fmt: skip
RANGES = {"gpu/power_total_w.min": 200.0, "gpu/power_total_w.max": 300.0}
MACHINE = {"system.gpu.0.powerWatts": 125.0, "system.gpu.0.powerWatts.max": 150.0, "system.cpu": 12.5}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run whose sampler wrote at two of training's steps, and of the machine; for five trackers."""
    return _run(tmp_path, "machine")


def _run(tmp_path: Path, wish: str) -> RunDirectory:
    options = {
        "TRACKER_GPU_METRICS": wish, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        "WANDB_MODE": "offline", "TRACKER_SAMPLE": True,
    }  # fmt: skip
    run, writer = begun_run(tmp_path / "run", trackers=list(TRACKERS), options=options)
    for step in range(4):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"train_loss": 1.0 / (step + 1)})))
    sampler = StreamWriter(run.stream(StreamName("sampler", 0, 1)))
    for step in (2, 3):
        sampler.write(encode(Metrics(step=step, time=T0 + step + 0.25, values={**JOB, **RANGES})))
    sampler.write(encode(Metrics(time=T0 + 3.5, values=MACHINE)))
    sampler.release()
    writer.write(encode(Finish(time=T0 + 5, status="finished", exit_code=0)))
    writer.release()
    for tracker in TRACKERS:
        delivery = Delivery(run, tracker, say=print, alone=False)
        assert any(delivery.step() is None for _ in range(2000)), tracker
    return run


def _source(tracker: str, run: RunDirectory) -> str:
    info = run.read_info()
    if tracker == "json":
        (path,) = (path for path in run.path.glob("*.json") if "training_iterations" in path.read_text())
        return f"json:{path}"
    return {
        "trackio": f"trackio:{info.project}/{info.id}",
        "mlflow": f"mlflow:{info.options['MLFLOW_TRACKING_URI']}#{info.project}/{info.id}",
        "tensorboard": f"tb:{run.path / 'tensorboard'}",
        "wandb": f"wandb-file:{run.path / 'wandb'}",
    }[tracker]


def _series(source: str) -> dict[str, list[tuple[int | None, float]]]:
    """Step and value of each point, by name, as the source's reader tells them."""
    reader, (run,) = sources.open_source(source)
    found: dict[str, list[tuple[int | None, float]]] = {}
    for record in reader.read(run):
        if isinstance(record, Metrics):
            for name, value in record.values.items():
                found.setdefault(name, []).append((record.step, float(value)))
    return found


@pytest.mark.parametrize("tracker", TRACKERS)
def test_every_reader_finds_samples_under_their_names(tracker: str, run: RunDirectory) -> None:
    """The values are those that were recorded; trackers that show the machine have them at no step, the others at
    training's; training's own metrics are as they were."""
    found = _series(_source(tracker, run))
    assert [step for step, _ in found["train_loss"]] == [0, 1, 2, 3]
    for name, value in JOB.items():
        steps = [None, None] if tracker in ("trackio", "mlflow", "tensorboard") else [2, 3]
        assert found[name] == [(step, pytest.approx(value, rel=1e-6)) for step in steps], name
    has_ranges = tracker == "json"
    assert [name for name in found if name.endswith((".min", ".max"))] == (
        [*RANGES, "system.gpu.0.powerWatts.max"] if has_ranges else []
    )


def test_pages_begin_with_training(run: RunDirectory, tmp_path: Path) -> None:
    """No chart of the hardware stands among training's: they lie in the trackers' own views of the system, by the
    trackers' own names."""
    info = run.read_info()
    (database,) = Path(os.environ["TRACKIO_DIR"]).glob("*.db")
    with contextlib.closing(sqlite3.connect(database)) as trackio:
        rows = [json.loads(row) for (row,) in trackio.execute("SELECT metrics FROM metrics")]
        samples = [json.loads(row) for (row,) in trackio.execute("SELECT metrics FROM system_metrics")]
    assert {name for row in rows for name in row} == {"train_loss"}
    own = {
        "gpu/mean_utilization",
        "gpu/total_allocated_memory",
        "gpu/total_power",
        "gpu/max_temp",
        "gpu/energy_total_j",
    }
    assert {name for row in samples for name in row} == own | {"gpu/0/power", "cpu/utilization"}
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as mlflow:
        keys = {key for (key,) in mlflow.execute("SELECT DISTINCT key FROM metrics")}
    assert {key for key in keys if not key.startswith("system/")} == {"train_loss"}
    tags = {name for name in _tags(run.path / "tensorboard") if not name.startswith("trackers/")}
    assert {name for name in tags if not name.startswith("~system/")} == {"train_loss"}
    records = [record for path in wandb_files(info) for record in wandb_records(path)]
    names = {item.key or "/".join(item.nested_key) for record in records for item in record.history.item}
    assert {name for name in names if name.startswith(("gpu/", "system"))} == set(JOB)
    assert {name: name in JOB for name in {"train_loss", *JOB}} == _hidden(records)


def _hidden(records: list[Any]) -> dict[str, bool]:
    """Whether W&B's page leaves a metric out of the charts that it draws by itself."""
    shown = (record.metric for record in records if record.metric.name != "global_step")
    return {metric.name: metric.options.hidden for metric in shown if metric.name}


def _tags(folder: Path) -> set[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = {path.parent for path in folder.rglob("*tfevents*")}
    accumulator = EventAccumulator(str(events))
    accumulator.Reload()
    return set(accumulator.Tags()["scalars"])


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["ranges", "training"])
def test_users_wish_counts(wish: str, tmp_path: Path) -> None:
    """``ranges`` has smallest and largest values too, ``training`` the job's GPUs among training's metrics."""
    run = _run(tmp_path, wish)
    for tracker in TRACKERS:
        found = _series(_source(tracker, run))
        assert set(RANGES) <= found.keys(), tracker
        if tracker == "wandb":
            records = [record for path in wandb_files(run.read_info()) for record in wandb_records(path)]
            assert _hidden(records)["gpu/power_total_w"] == (wish == "ranges")
        apart = wish == "ranges" and tracker in ("trackio", "mlflow", "tensorboard")
        assert [step for step, _ in found["gpu/power_total_w"]] == ([None, None] if apart else [2, 3]), tracker


NAMES = st.sampled_from([*JOB, *RANGES, *MACHINE, "gpu/node1/temp_max_c", "gpu/mine", "gpu/power_total_w/x", "loss"])


@given(
    st.dictionaries(NAMES, st.floats(allow_nan=False), min_size=1),
    st.none() | st.integers(0, 5),
    st.sampled_from(["all", "training", "apart"]),
    st.sampled_from(["machine", "ranges", "training"]),
)
def test_nothing_is_lost_by_placing(values: dict[str, float], step: int | None, machine: Any, wish: str) -> None:
    """Each value is in one part: training's at the record's step, samples of the machine at none where a tracker shows
    them apart, ranges only where they are wanted."""
    record: Record = Metrics(step=step, time=1.0, values=values)
    parts = placed(record, machine, wish)
    samples = {name for name in values if is_job(name) or (step is None and name.startswith(SYSTEM_PREFIX))}
    left_out = set() if machine == "all" or wish != "machine" else {n for n in samples if n.endswith((".min", ".max"))}
    got = [(name, part.step) for part in parts if isinstance(part, Metrics) for name in part.values]
    apart = machine == "apart" and wish != "training"
    assert sorted(got, key=str) == sorted(
        ((name, None if apart and name in samples else step) for name in values if name not in left_out), key=str
    )
