"""Rules over the values of all ranks, in a job of four: what they see, whom they stop, and the same when replayed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import forked
from trackers.cli.app import app
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.journal.status import last_status
from trackers.records import Alert

TRAIN = """
import os, torch.distributed, trackers
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
run = trackers.init("json", project="digits", name="ranks")
for step in range(100_000):
    slow = 1.0 if rank == 3 and step >= 20 else 0.0
    run.log({"step_time": trackers.All(0.1 + 0.01 * rank + slow)}, step=step)
    torch.distributed.barrier()
    if run.should_stop:
        break
open(f"ended.{rank}", "w").write(str(step))
run.finish(timeout=100)
"""
STOP = "quantile(step_time/rank_*, 0.9) > 2 * median(step_time/rank_*) -> stop"
OWN = "max(step_time/rank_*) > 1"


@pytest.mark.processes
def test_slow_rank_stops_all_ranks_at_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a rule of the project, beside the run's own; ``trackers alerts try`` says the same of the run that is over."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "runs/digits").mkdir(parents=True)
    (tmp_path / "runs/digits/alerts.txt").write_text(f"# the slowest tenth\n{STOP}\n")
    monkeypatch.setenv("TRACKER_ALERTS", OWN)
    done = forked.run([sys.executable, "train.py"], ranks=4, cwd=tmp_path, preload=forked.TORCH)
    assert done.returncode == 0, done.stderr
    steps = {int((tmp_path / f"ended.{rank}").read_text()) for rank in range(4)}
    assert len(steps) == 1
    assert 20 <= steps.pop() < 99_999
    (run,) = find_runs(tmp_path / "runs")
    status = last_status(RunDirectory(run.path))
    assert status.name == "stopped"
    assert "quantile(step_time/rank_*, 0.9) = 0.827, 2 * median(step_time/rank_*) = 0.23" in status.reason
    raised = [(one.step, one.rule) for one in AttemptHistory(run).records() if isinstance(one, Alert)]
    assert sorted(raised) == [(20, OWN), (20, STOP)]
    (log,) = run.path.glob("ranks_*.json")
    for source in (run.path.name, f"json:{log}"):
        tried = CliRunner().invoke(app, ["alerts", "try", f"{STOP}; {OWN}", source, "--json"])
        (told,) = json.loads(tried.stdout)
        assert sorted((one["step"], one["rule"]) for one in told["alerts"]) == [(20, OWN), (20, STOP)], source
