"""The main job, through everything: a script logs once, the relay delivers, and every tracker's store holds the run."""

from __future__ import annotations

import math
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.backends.wandb.support import online_at
from tests.stores import (
    read_json,
    read_mlflow,
    read_tensorboard,
    read_trackio,
    read_wandb_file,
    read_wandb_server,
)
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.journal.stream import StreamReader
from trackers.records import Metrics
from trackers.testing import Stored
from trackers.tracker import RunInfo

STEPS, VALUES = 1000, 10

SCRIPT = """
import sys, trackers
run = trackers.init(
    "wandb,trackio,tensorboard,mlflow,json", project="digits", name="baseline", id="endtoend",
    config={"lr": 1e-3, "model": {"depth": 4}}, tags=["first", "second"], group="ablation", notes="a note",
)
for step in range(1000):
    run.log({f"metric/{k}": step + k / 10 for k in range(10)}, step=step)
run.log({"final/best_val_loss": 0.25})
run.finish(timeout=120)
"""


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunInfo, dict[str, Any], str]]:
    """One run, delivered to all five by its relay: W&B online against the stand-in."""
    home = tmp_path_factory.mktemp("online")
    with online_at(home) as server:
        info, error = _train(home)
        yield info, dict(server.runs), error


def _train(home: Path) -> tuple[RunInfo, str]:
    script = home / "train.py"
    script.write_text(SCRIPT)
    done = forked.run([sys.executable, str(script)], cwd=home)
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(home / "runs")
    deadline = time.monotonic() + 20
    while (run.path / "relay.lease").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return run.read_info(), done.stderr


def _journal(info: RunInfo) -> list[Metrics]:
    reader = StreamReader(Path(info.directory, "streams", "rank-0.1.jsonl"))
    return [record for record in reader.read(10**6, max_bytes=1 << 30) if isinstance(record, Metrics)]


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _same_run(stored: Stored, info: RunInfo, *, value: Callable[[float], float] = float, time_s: float = 1e-6) -> None:
    """Every one of the 1,000 steps x 10 values, in order, at its time; configuration, tags and results."""
    logged = _journal(info)
    assert len(logged) == STEPS
    for k in range(VALUES):
        name = f"metric/{k}"
        points = stored.metrics[name]
        assert [point.step for point in points] == list(range(STEPS))
        assert [point.value for point in points] == [value(record.values[name]) for record in logged]
        for point, record in zip(points, logged, strict=True):
            assert point.time is None or math.isclose(point.time, record.time, abs_tol=time_s)
    assert not any("best_val_loss" in name and len(points) > 1 for name, points in stored.metrics.items())
    assert stored.summary is not None
    results = {name.removeprefix("final/"): found for name, found in stored.summary.items()}
    assert float(results["best_val_loss"]) == 0.25
    if stored.config is not None:
        text = str(stored.config)
        assert "0.001" in text
        assert "depth" in text
    if stored.tags is not None:
        assert set(stored.tags) == {"first", "second"}
    if stored.name is not None:
        assert stored.name == "baseline"
    if stored.group is not None:
        assert stored.group == "ablation"


def test_wandb_server_holds_the_run(online: tuple[RunInfo, dict[str, Any], str]) -> None:
    """W&B, online: every row at its step, the config as it was given, and the run is finished."""
    info, runs, _ = online
    stored = read_wandb_server(runs)(info, {})
    _same_run(stored, info)
    (run,) = runs.values()
    assert run.values == {"lr": 1e-3, "model": {"depth": 4}}
    assert [row["_step"] for row in run.history] == list(range(STEPS))
    assert stored.status == "finished"


def test_trackio_holds_the_run(online: tuple[RunInfo, dict[str, Any], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """trackio's SQLite file."""
    info, _, _ = online
    monkeypatch.setenv("TRACKIO_DIR", str(Path(info.cwd, "trackio")))
    _same_run(read_trackio(info, {}), info)


def test_tensorboard_holds_the_run(online: tuple[RunInfo, dict[str, Any], str]) -> None:
    """TensorBoard's own loader, in single precision."""
    info, _, _ = online
    _same_run(read_tensorboard(info, {}), info, value=_float32)


def test_mlflow_holds_the_run(online: tuple[RunInfo, dict[str, Any], str]) -> None:
    """mlflow's own client, times to the millisecond, terminated as finished."""
    info, _, _ = online
    stored = read_mlflow(info, {}, uri=f"sqlite:///{info.cwd}/mlflow.db")
    _same_run(stored, info, time_s=0.0011)
    assert str(stored.status).lower() == "finished"


def test_json_log_holds_the_run(online: tuple[RunInfo, dict[str, Any], str]) -> None:
    """The JSON log, strictly parsed."""
    info, _, _ = online
    _same_run(read_json(info, {}), info)


def test_user_sees_the_run_and_its_links(online: tuple[RunInfo, dict[str, Any], str]) -> None:
    """One start line; W&B's link as a line of its own; at the end one more where that was waited for; nothing else."""
    info, _, error = online
    lines = error.splitlines()
    assert lines[0].startswith("trackers: run baseline (digits/endtoend)")
    assert any(line.startswith("trackers: wandb: http://127.0.0.1") and info.id in line for line in lines)
    assert len(lines) == 2 or (len(lines) == 3 and "delivered; to see the run: trackers show" in lines[2])


def test_account_of_each_delivery_is_complete(online: tuple[RunInfo, dict[str, Any], str]) -> None:
    """run.status() and trackers ls say of each tracker: delivered, nothing waits, nothing rejected."""
    from trackers.relay.delivery.cursor_file import delivery_report

    info, _, _ = online
    for name, entry in delivery_report(RunDirectory(info.directory), info.trackers).items():
        assert (entry["state"], entry["waiting_bytes"], entry["rejected"], entry["error"]) == ("delivered", 0, 0, ""), (
            name
        )


def test_offline_wandb_file_holds_the_run(tmp_path: Path) -> None:
    """W&B in its own offline mode: the .wandb file has every row."""
    info, _ = _train(tmp_path)
    _same_run(read_wandb_file(info, {}), info)
