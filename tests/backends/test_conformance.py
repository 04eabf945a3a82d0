"""Every built-in tracker passes the conformance kit, its store read back without our writers."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import forked, stores
from tests.fakes.wandb_server import WandbServer
from trackers.records import Number
from trackers.testing import Limits, Stored, check_tracker, checks, driver
from trackers.tracker import RunInfo

pytestmark = pytest.mark.usefixtures("_forked_deliveries")
every_check = pytest.mark.parametrize("check", checks())


@pytest.fixture
def _forked_deliveries(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The kit's deliveries that are killed are forks; :mod:`tests.testing` has them start as they do elsewhere."""
    vendor = request.function.__name__.split("_")[1]
    preload = (*forked.PACKAGE, *forked.VENDORS.get(vendor, ()))

    def start(words: list[str], *, stdin: int, **more: Any) -> forked.Program:
        assert stdin == subprocess.DEVNULL
        return forked.Program(words, preload=preload, **more)

    names = {**vars(subprocess), "Popen": start}
    monkeypatch.setattr(driver, "subprocess", types.SimpleNamespace(**names))


def trackio_name(name: str) -> str:
    """Trackio's reserved keys get "__" in front, and so do names that begin so."""
    reserved = {"project", "run", "timestamp", "step", "time", "metrics"}
    return f"__{name}" if name in reserved or name.startswith("__") else name


@every_check
def test_trackio_keeps_promise(check: str, tmp_path: Path) -> None:
    """The local trackio store holds every record once, with original times; integers above 64 bits are skipped."""
    limits = Limits(big_integers="float", rename=trackio_name)
    check_tracker("trackio", stores.read_trackio, directory=tmp_path / "runs", limits=limits, checks=[check])


@every_check
def test_json_keeps_promise(check: str, tmp_path: Path) -> None:
    """The JSON log is valid JSON and holds every record once, with original times, integers of any size and NaN."""
    # "iter" and "time" are the log's own columns.
    limits = Limits(rename=lambda name: f"{name}_" if name in ("iter", "time") else name)
    check_tracker("json", stores.read_json, directory=tmp_path / "runs", limits=limits, checks=[check])


@every_check
def test_csv_keeps_promise(check: str, tmp_path: Path) -> None:
    """The table holds every record once, as text that reads back exactly."""
    # "step" and "time" are the table's own columns.
    limits = Limits(rename=lambda name: f"{name}_" if name in ("step", "time") else name)
    check_tracker("csv", stores.read_csv, directory=tmp_path / "runs", limits=limits, checks=[check])


@every_check
def test_benchmark_keeps_promise(check: str, tmp_path: Path) -> None:
    """What a result needs is kept once, however often it comes; a run that ended has one result, with its status."""
    limits = Limits(keeps=lambda name: name in stores.BENCHMARK_KEEPS)
    options = {"BENCHMARK_DIR": str(tmp_path / "results")}
    directory = tmp_path / "runs"
    check_tracker(
        "benchmark", stores.read_benchmark, directory=directory, options=options, limits=limits, checks=[check]
    )


class Printed(Limits):
    """What is left of a number on a line for people: four decimals, or three digits and an exponent."""

    def number(self, value: Number) -> Number | None:
        """The number as it is printed."""
        if isinstance(value, int) or not math.isfinite(value):
            return float(value)
        return float(f"{value:.4f}" if value == 0 or 0.01 <= abs(value) < 1e6 else f"{value:.2e}")


@pytest.mark.parametrize("check", [check for check in checks() if check not in ("lost_cursor", "older_state")])
def test_console_keeps_promise(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is printed once. (A run whose cursor was lost is printed once more: what was seen can't be unseen.)"""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)

    def read(info: RunInfo, state: Mapping[str, Any]) -> Stored:
        stored = stores.read_console(screen.getvalue())
        screen.seek(0)
        screen.truncate()
        return stored

    limits = Printed(time_resolution_s=None, statuses=None)
    options = {"TRACKER_LOG_INTERVAL": 1, "TRACKER_CONSOLE_VALUES": 0}
    check_tracker("console", read, directory=tmp_path / "runs", options=options, limits=limits, checks=[check])


TENSORBOARD = Limits(float32=True, integers="float", big_integers="float")


@every_check
def test_tensorboard_keeps_promise(check: str, tmp_path: Path) -> None:
    """The event files hold every record once, in single precision, and TensorBoard's own loader finds them all."""
    check_tracker(
        "tensorboard", stores.read_tensorboard, directory=tmp_path / "runs", limits=TENSORBOARD, checks=[check]
    )


@pytest.fixture(scope="module")
def mlflow_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all checks: a new one takes seconds to create its tables."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


MLFLOW = Limits(
    integers="float",
    big_integers="float",
    infinity="max_float",
    time_resolution_s=0.0005,
    statuses={
        "running": "RUNNING",
        "finished": "FINISHED",
        "failed": "FAILED",
        "crashed": "KILLED",
        "preempted": "KILLED",
        "stopped": "KILLED",
    },
)


@every_check
def test_mlflow_keeps_promise(check: str, tmp_path: Path, mlflow_uri: str) -> None:
    """A SQLite store holds every record once, to the millisecond, infinities as the largest doubles."""
    options = {"MLFLOW_TRACKING_URI": mlflow_uri}
    directory = tmp_path / "runs"
    check_tracker("mlflow", stores.read_mlflow, directory=directory, options=options, limits=MLFLOW, checks=[check])


def wandb_name(name: str) -> str:
    """W&B's own columns and ours give way: a user's value of such a name is ``logged/<name>``."""
    return f"logged/{name}" if name in {"_step", "_runtime", "_timestamp", "_wandb", "trackers/step"} else name


WANDB = Limits(
    big_integers="float",
    repeated="once",
    rename=wandb_name,
    statuses={
        "running": "running",
        "finished": "finished",
        "failed": "failed",
        "crashed": "failed",
        "preempted": "preempted",
        "stopped": "finished",
    },
)


@every_check
def test_wandb_offline_keeps_promise(check: str, tmp_path: Path) -> None:
    """The .wandb files hold every record once, under its training step and with its own time."""
    directory = tmp_path / "runs"
    check_tracker("wandb", stores.read_wandb_file, directory=directory, limits=WANDB, checks=[check], mode="offline")


@every_check
def test_wandb_online_keeps_promise(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that W&B's own client talks to gets every record once, under its training step, with its own time."""
    with WandbServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        monkeypatch.setenv("WANDB_MODE", "online")
        read = stores.read_wandb_server(server.runs)
        check_tracker("wandb", read, directory=tmp_path / "runs", limits=WANDB, checks=[check])
