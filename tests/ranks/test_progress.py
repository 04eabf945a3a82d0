"""Values across ranks come with the others of their step where a tracker can't change a row that it has."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.helpers import T0, run_info
from tests.ranks.support import LOOP, job, the_run
from tests.stores import wandb_records
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamWriter
from trackers.ranks.launch import folder_of
from trackers.ranks.progress import ReductionProgress
from trackers.records import RankRow, Start, encode

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


def test_row_that_no_reducer_takes_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """A row of the main rank is pending until the reducer has passed it on, has ended, or makes no progress."""
    launch = tmp_path / "runs" / "p" / ".ranks" / "one"
    info = run_info(tmp_path / "runs/p/r", attempts=[{"number": 1, "time": T0, "ranks": 2, "launch": str(launch)}])
    run = RunDirectory(Path(info.directory))
    folder = folder_of(run, info, 1)
    assert folder is not None
    folder.mkdir(parents=True)
    progress = ReductionProgress(run, info)
    assert progress.pending_since() == math.inf
    stream = StreamWriter(folder / "rank-0.1.jsonl")
    stream.write(encode(Start(time=T0, rank=0)))
    assert progress.pending_since() == math.inf
    stream.write(encode(RankRow(step=3, time=T0 + 3, columns=0, values=[1.0])))
    assert progress.pending_since() == T0 + 3
    (run.path / "reducer.1.json").write_text(json.dumps({"streams": {"rank-0.1": {"offset": stream_size(folder)}}}))
    assert progress.pending_since() == math.inf
    stream.write(encode(RankRow(step=4, time=T0 + 4, columns=0, values=[1.0])))
    assert progress.pending_since() == T0 + 4
    progress._patience_s = -1.0
    assert progress.pending_since() == math.inf
    stream.close()


def stream_size(folder: Path) -> int:
    """Bytes of the main rank's stream."""
    return (folder / "rank-0.1.jsonl").stat().st_size
