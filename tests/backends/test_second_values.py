"""A second value of a name at a step is in each store once, also where steps leave no room and attempts end between."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.backends.test_results import STORES, deliver, offline_rows, written
from tests.backends.wandb.support import server
from tests.fakes.wandb_server import WandbServer
from tests.helpers import Driver, run_info, stream
from tests.stores import read_wandb_file
from trackers import init
from trackers.backends import registry
from trackers.journal.run_directory import RunDirectory
from trackers.records import Finish, Record

__all__ = ["server"]

EXPECTED = sorted([(step, step + part) for step in range(6) for part in (0.0, 0.5)] + [(2, 2.75)])


def trained(place: Path, killed: bool) -> list[Record]:
    """The records of two attempts with two values at each step; the second one goes on at the first one's last step."""
    for resume, steps in ((None, range(3)), ("must", range(3, 6))):
        run = init("json", project="p", id="r", dir=place, mode="offline", resume=resume)
        if resume:
            run.log({"loss": 2.75}, step=2)
        for step in steps:
            run.log({"loss": float(step)}, step=step)
            run.log({"loss": step + 0.5}, step=step)
        run.finish()
    records = written(RunDirectory(place / "p" / "r"))
    if killed:
        records = [record for record in records[:-1] if not isinstance(record, Finish)] + records[-1:]
    return stream(records)


@pytest.mark.heavy
@pytest.mark.parametrize("killed", [False, True], ids=["finished", "killed"])
@pytest.mark.parametrize("name", STORES)
def test_second_values_of_following_steps_are_stored_once(
    name: str, killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first attempt finished, or was killed and its delivery with it."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    records = trained(tmp_path, killed)
    info = run_info(tmp_path / "run", options={"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"})
    tracker = registry.load(name)
    deliver(
        lambda state, cursor: Driver(tracker, info, dict(state), cursor),
        records,
        ["killed" if killed else "paused"] * 9,
    )
    assert sorted((point.step, point.value) for point in STORES[name](info).metrics["loss"]) == EXPECTED


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["offline", "online"])
@pytest.mark.parametrize("border", ["", "paused", "killed", "lost", "finished"])
def test_second_values_of_following_steps_have_their_step_in_wandb(
    mode: str, border: str, server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the first ones the step's own row, but behind an attempt whose end was delivered: its second values lie
    there."""
    from trackers.backends.wandb import client

    monkeypatch.setenv("TRACKER_RELAY", "n")
    records = trained(tmp_path, border == "killed")
    info = run_info(tmp_path / "run", options={"WANDB_MODE": mode})

    def make(state: Mapping[str, Any], cursor: int) -> Driver:
        client.abandon()
        return Driver(registry.load("wandb"), info, dict(state), cursor)

    end = next((place for place, record in enumerate(records, 1) if isinstance(record, Finish)), 0)
    if border == "finished":
        run = make({}, 0)
        run.deliver(records[:end])
        make(copy.deepcopy(run.state), run.cursor).deliver(records)
    else:
        deliver(make, records, [border] * len(records))
    rows = server.runs[info.id].history if mode == "online" else offline_rows(info)
    assert sorted((row["global_step"], row["loss"]) for row in rows) == EXPECTED
    numbers = {row["loss"]: row["_step"] for row in rows}
    if border != "finished":
        assert [numbers[float(step)] for step in range(6)] == [*range(6)]


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["offline", "online"])
@pytest.mark.parametrize("border", ["", "batch", "paused", "killed", "lost"])
def test_second_values_lie_where_their_step_metric_was(
    mode: str, border: str, server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In W&B, whose rows of second values come later: they had the step metric's value of that time; its own result is
    its last value."""
    from trackers.backends.wandb import client

    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = init("json", project="p", id="r", dir=tmp_path, mode="offline")
    run.define_metric("loss", step_metric="epoch")
    expected = []
    for step in range(12):
        if step % 3 == 0:
            run.log({"epoch": step // 3}, step=step)
        for part in (0.0, 0.25, 0.5):
            run.log({"loss": step + part}, step=step)
            expected.append((step, step // 3, step + part))
    run.finish()
    records = stream(written(RunDirectory(tmp_path / "p" / "r")))
    info = run_info(tmp_path / "run", options={"WANDB_MODE": mode})

    def make(state: Mapping[str, Any], cursor: int) -> Driver:
        client.abandon()
        return Driver(registry.load("wandb"), info, dict(state), cursor)

    deliver(make, records, [border if place % 4 == 3 else "" for place in range(len(records))])
    rows = server.runs[info.id].history if mode == "online" else offline_rows(info)
    assert sorted((row["global_step"], row["epoch"], row["loss"]) for row in rows) == expected
    summary = server.runs[info.id].summary if mode == "online" else read_wandb_file(info).summary
    assert summary is not None
    assert (summary["epoch"], summary["loss"]) == (3, 11.5)
