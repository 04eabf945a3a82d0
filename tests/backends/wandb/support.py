"""What tests of W&B share: the stand-in, ready for the real client, and what a run looks like when read back."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.fakes.wandb_server import WandbServer
from tests.helpers import T0, Driver, run_info, stream
from trackers.backends.wandb import client, datastore_writer
from trackers.backends.wandb import tracker as backend
from trackers.backends.wandb.precheck import VERSIONS
from trackers.backends.wandb.tracker import WandbTracker
from trackers.formats import wandb_datastore
from trackers.records import MediaFile, Metrics, Record
from trackers.support.client_versions import installed, number

ID = "abcd1234"
CLIENT = number(installed(VERSIONS))
"""The installed client's version: ``make test-wandb`` runs these tests with others than the newest."""
UPLOAD = ("wandb", "sync", "--yes") if CLIENT >= (0, 28) else ("wandb", "sync", "--append")
"""The installed client's command that uploads offline files."""


@contextlib.contextmanager
def online_at(home: Path) -> Iterator[WandbServer]:
    """A server, and an environment for processes that deliver to it and to trackio's and MLflow's files in ``home``.

    ``home`` is the working directory and HOME meanwhile.
    """
    with WandbServer() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "WANDB_MODE": "online", "WANDB_BASE_URL": running.url, "WANDB_API_KEY": "a" * 40, "HOME": str(home),
            "TRACKIO_DIR": str(home / "trackio"),
        }.items():  # fmt: skip
            patch.setenv(name, value)
        patch.delenv("WANDB_DIR", raising=False)  # files lie in the run's directory
        patch.chdir(home)
        yield running


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A server that the client in this process, and its children, talk to."""
    with WandbServer() as running:
        monkeypatch.delenv("WANDB_DIR", raising=False)  # files lie in the run's directory
        monkeypatch.setenv("WANDB_BASE_URL", running.url)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        monkeypatch.setenv("WANDB_MODE", "online")
        yield running
        running.fault = None
        client.abandon()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short patience, where the truth is that patience ends."""
    monkeypatch.setattr(client, "INIT_TIMEOUT_S", 3.0)
    monkeypatch.setattr(client, "ASK_TIMEOUT_S", 2.0)
    monkeypatch.setattr(client, "RETRIES", 1)
    monkeypatch.setattr(client, "FINISH_TIMEOUT_S", 5.0)
    monkeypatch.setattr(backend, "STALL_S", 2.0)


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(WandbTracker, run_info(tmp_path / "run", **fields))


def metrics(*rows: tuple[int | None, dict[str, Any]]) -> list[Record]:
    return stream([Metrics(step=step, time=T0 + place, values=row) for place, (step, row) in enumerate(rows)])


def user_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_") and name != "global_step"}


def offline_rows(tmp_path: Path) -> list[dict[str, Any]]:
    paths = datastore_writer.offline_files(tmp_path / "run/wandb", ID)
    return [row for path in paths for row in datastore_writer.history(path)]


def offline_events(tmp_path: Path) -> list[dict[str, Any]]:
    """Lines of the system tab in the run's offline files, as the server gives them."""
    return [
        {"_timestamp": record.stats.timestamp.ToNanoseconds() / 1e9,
         **{f"system.{item.key}": json.loads(item.value_json) for item in record.stats.item}}
        for path in datastore_writer.offline_files(tmp_path / "run/wandb", ID)
        for record in wandb_datastore.records(path) if record.WhichOneof("record_type") == "stats"
    ]  # fmt: skip


def assert_is_training(rows: list[dict[str, Any]], steps: int, values: int = 10) -> None:
    """Each of ``training(steps)``'s rows, once, in order, with its values and its time."""
    assert [row["_step"] for row in rows] == list(range(steps))
    for step, row in enumerate(rows):
        assert row["global_step"] == step
        assert row["_timestamp"] == T0 + step / 10
        assert user_row(row) == {f"metric_{k}": step + k / 10 for k in range(values)}


def sync(tmp_path: Path) -> None:
    paths = datastore_writer.offline_files(tmp_path / "run/wandb", ID)
    if CLIENT < (0, 28):  # it would append what it has uploaded already once more
        paths = [path for path in paths if not path.with_name(f"{path.name}.synced").exists()]
    forked.run(sync_command([str(path.parent) for path in paths]), preload=forked.HELPERS, check=True)


def sync_command(directories: list[str]) -> list[str]:
    """The command of W&B's client that uploads offline files."""
    return [sys.executable, "-m", *UPLOAD, *directories]


def picture(directory: Path) -> MediaFile:
    import numpy

    numpy.save(directory / "picture.npy", numpy.arange(48, dtype="uint8").reshape(4, 4, 3))
    return MediaFile(format="npy", file="picture.npy", caption="four by four")
