"""Values across ranks come with the others of their step where a tracker can't change a row that it has."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.ranks.support import LOOP, job, the_run
from tests.stores import wandb_records

STEPS = 60


@pytest.mark.processes
@pytest.mark.parametrize("live", [True, False])
def test_rows_of_wandb_have_the_values_across_ranks_of_their_step(
    live: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivered while training runs, or afterwards: one row a step, whose number is the step."""
    monkeypatch.chdir(tmp_path)
    environ = {"WANDB_MODE": "offline", "TRACKER_AGENT": "n", "TRACKER_SAMPLE": "n", "TRACKER_FINISH_TIMEOUT": "120"}
    script = LOOP.replace('"json"', '"wandb"') if live else LOOP
    with job(script, [str(STEPS)], 2, **environ) as ranks:
        ranks.start(0, 1)
        ranks.wait()
    run = the_run()
    if not live:
        command = [sys.executable, "-m", "trackers", "sync", str(run), "--to", "wandb"]
        assert forked.run(command, preload=forked.PACKAGE, env={**os.environ, **environ}).returncode == 0
    rows = {}
    for path in run.rglob("*.wandb"):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "history":
                row = {item.key: json.loads(item.value_json) for item in record.history.item}
                rows[row["_step"]] = {name: row.get(name) for name in ("global_step", "loss", "who", "lr")}
    assert rows == {step: {"global_step": step, "loss": step / 2 + 0.25, "who": 3, "lr": 0.1} for step in range(STEPS)}
