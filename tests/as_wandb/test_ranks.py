"""Jobs of several processes in W&B's words: a run for each process that asks for one, or one run by its id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trackers.as_wandb.init import init
from trackers.training import wandb_arguments
from trackers.training.rank_run import RankRun

JOB = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29998"}


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**JOB, "TRACKER_INLINE": "y"}.items():
        monkeypatch.setenv(name, value)
    wandb_arguments.printed_messages.clear()


def logged(run: Any) -> list[float]:
    """The values of ``x``."""
    lines = map(json.loads, (Path(run.path) / "streams/rank-0.1.jsonl").read_text().splitlines())
    return [line["values"]["x"] for line in lines if line["kind"] == "metrics"]


@pytest.mark.parametrize("ranks", [(0, 1, 2), (3,)], ids=["all", "last"])
def test_each_process_that_begins_a_run_has_one(monkeypatch: pytest.MonkeyPatch, ranks: tuple[int, ...]) -> None:
    """W&B's documentation logs from all processes with a group; Megatron-LM from the last alone."""
    found = {}
    for rank in ranks:
        monkeypatch.setenv("RANK", str(rank))
        run: Any = init(project="p", group="job", name=f"rank-{rank}", resume="allow" if rank else None)
        for step in range(2):
            run.log({"x": rank + step})
        run.finish()
        found[run.id] = (run.name, run.group, logged(run))
    assert list(found.values()) == [(f"rank-{rank}", "job", [rank, rank + 1]) for rank in ranks]


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ({"id": "one"}, {}), ({}, {"WANDB_RUN_ID": "one"}), ({"settings": {"run_id": "one", "mode": "shared"}}, {}),
        ({"mode": "shared"}, {}), ({"resume": True}, {}), ({}, {"WANDB_RESUME": "auto"}), ({}, {"TRACKER_RANK": "0"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_run_that_all_processes_mean_is_the_main_ranks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, arguments: Any, environment: dict[str, str]
) -> None:
    """By an id, or found again: the others' values aren't recorded, and each says so once."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "1")
    run = init(project="p", **arguments)
    run.log({"x": 1})
    run.finish()
    assert isinstance(run, RankRun)
    assert caplog.text.count("isn't recorded") == 1
    assert not list(Path("runs").glob("*/*/run.json"))
