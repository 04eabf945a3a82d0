"""A run in other processes: pickled, copied, found by its directory."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.as_wandb.init import init
from trackers.journal.attempts import AttemptHistory
from trackers.training.run import Run

WORKER = """
import pickle, sys
from pathlib import Path
run = pickle.loads(Path(sys.argv[1]).read_bytes())
run.log({"worker": 1.5}, step=100)
run.log({"next": 2.5})
run.summary["from_worker"] = 3
run.config.update({"late": True})
print(type(run).__name__, run.id, run.name, run.config["lr"])
run.finish()
"""


def begin(tmp_path: Path, **more: Any) -> Run:
    """A run whose relay isn't started."""
    options = {"TRACKER_RELAY": False}
    run = trackers.init("json", project="p", id="x", name="n", config={"lr": 0.1}, options=options, **more)
    assert isinstance(run, Run)
    return run


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    """The records of the run's stream."""
    return [json.loads(line) for line in (tmp_path / "runs/p/x/streams/rank-0.1.jsonl").read_text().splitlines()]


def elsewhere(tmp_path: Path, blob: bytes) -> subprocess.CompletedProcess[str]:
    """Another process, that got the run pickled."""
    (tmp_path / "blob").write_bytes(blob)
    command = [sys.executable, "-c", WORKER, str(tmp_path / "blob")]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_copies_are_the_run_itself(tmp_path: Path) -> None:
    """Copied or pickled in the process that made it; its configuration is copied by value."""
    run = begin(tmp_path)
    assert copy.deepcopy(run) is copy.copy(run) is pickle.loads(pickle.dumps(run)) is run
    config = copy.deepcopy(run.config)
    config["lr"] = 1
    assert run.config["lr"] == 0.1
    assert dict(pickle.loads(pickle.dumps(run.config))) == {"lr": 0.1}
    run.finish()


def test_other_process_logs_into_the_run(tmp_path: Path) -> None:
    """A spawned worker's values, results and configuration are the run's; its finish ends nothing."""
    run = begin(tmp_path)
    run.log({"a": 1.0}, step=1)
    done = elsewhere(tmp_path, pickle.dumps(run))
    assert (done.stdout, done.stderr) == ("Run x n 0.1\n", "")
    run.log({"a": 2.0}, step=2)
    run.finish()
    found = lines(tmp_path)
    assert [(line["step"], line["values"]) for line in found if line["kind"] == "metrics"] == [
        (1, {"a": 1.0}), (100, {"worker": 1.5}), (101, {"next": 2.5}), (2, {"a": 2.0}),
    ]  # fmt: skip
    assert {"from_worker": 3} in [line["values"] for line in found if line["kind"] == "summary"]
    assert {"late": True} in [line["values"] for line in found if line["kind"] == "config"]
    assert [line["kind"] for line in found].count("finish") == 1


def test_run_in_another_process_is_the_modules(tmp_path: Path) -> None:
    """A run of W&B's dialect is ``wandb.run`` where it was unpickled, goes on as there, and ``init`` gives it back."""
    options = {"TRACKER_RELAY": False}
    run: Any = init(project="p", id="x", trackers="json", options=options)
    run.log({"a": 1.0}, step=1)
    (tmp_path / "blob").write_bytes(pickle.dumps(run))
    script = """
import pickle, sys
from pathlib import Path
import trackers
trackers.install_as_wandb()
import wandb
assert wandb.run is None
run = pickle.loads(Path(sys.argv[1]).read_bytes())
assert wandb.run is run and wandb.init(project="other") is run
assert Path(run.dir).name == "files"
wandb.log({"b": 1}, step=7)
wandb.log({"c": 1})
wandb.log({"d": 1})
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "blob")], check=True)
    run.finish()
    found = [(line["step"], line["values"]) for line in lines(tmp_path) if line["kind"] == "metrics"]
    assert found[1:] == [(7, {"b": 1}), (7, {"c": 1}), (8, {"d": 1})]


def test_run_that_has_ended_says_so_once(tmp_path: Path) -> None:
    """The process that made it goes on, but the run is over: the other process writes nothing more."""
    run = begin(tmp_path)
    blob = pickle.dumps(run)
    run.finish()
    before = lines(tmp_path)
    done = elsewhere(tmp_path, blob)
    assert lines(tmp_path) == before
    assert done.stderr.count("isn't recorded") == 1


@pytest.mark.slow
def test_process_that_is_gone_leaves_nothing_to_log_into(tmp_path: Path) -> None:
    """What is unpickled after the end of the process that made the run records nothing, and says so once."""
    code = """
import pickle, sys, trackers
run = trackers.init("json", project="p", id="x", name="n", config={"lr": 0.1}, options={"TRACKER_RELAY": False})
open(sys.argv[1], "wb").write(pickle.dumps(run))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "blob")], check=True, capture_output=True)
    done = elsewhere(tmp_path, (tmp_path / "blob").read_bytes())
    assert done.stdout == "NullRun x n 0.1\n"
    assert done.stderr.count("isn't recorded") == 1


@pytest.mark.parametrize("mode", ["disabled"])
def test_run_that_records_nothing_travels_too(mode: str, tmp_path: Path) -> None:
    """A disabled run is one elsewhere, too."""
    run = trackers.init("json", project="p", mode=mode, config={"lr": 0.1})
    again = pickle.loads(pickle.dumps(run))
    assert type(again) is trackers.NullRun
    assert (again.disabled, again.project, dict(again.config)) == (True, "p", {"lr": 0.1})


def test_run_is_found_by_its_directory(tmp_path: Path) -> None:
    """``wandb._attach``, as Lightning calls it in a spawned process."""
    run = begin(tmp_path)
    code = """
import sys, trackers
from trackers.as_wandb.names import lookup
run = lookup("_attach")(sys.argv[1])
assert lookup("run") is run
run.log({"attached": 1.0}, step=3)
try:
    lookup("_attach")("nowhere")
except trackers.UsageError as error:
    print(error)
"""
    command = [sys.executable, "-c", code, run._attach_id]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "no run in 'nowhere'" in done.stdout
    run.finish()
    assert {"attached": 1.0} in [line["values"] for line in lines(tmp_path) if line["kind"] == "metrics"]


def test_other_process_knows_what_was_defined_and_the_end_what_it_logged(tmp_path: Path) -> None:
    """Step metrics and results by word of its values, and the results of both processes together."""
    run = begin(tmp_path)
    run.define_metric("val/*", step_metric="epoch")
    run.define_metric("worker", summary="min,max")
    run.log({"worker": 2.0, "epoch": 1, "val/x": 1.0}, step=1)
    blob = pickle.dumps(run)
    script = WORKER.replace(
        "run.config.up", 'run.log({"epoch": 7, "val/x": 2.0}, step=9)\nprint(run.summary["worker"])\nrun.config.up'
    )
    (tmp_path / "blob").write_bytes(blob)
    command = [sys.executable, "-c", script, str(tmp_path / "blob")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "{'min': 1.5, 'max': 2.0}"
    assert run.summary["worker"] == {"min": 1.5, "max": 2.0}
    run.log({"worker": 1.75}, step=2)
    run.finish()
    found = lines(tmp_path)
    assert [line["axis"] for line in found if line.get("values") == {"epoch": 7, "val/x": 2.0}] == [7]
    assert found[-2]["values"] == {"final/worker.min": 1.5, "final/worker.max": 2.0}


def test_process_that_logs_alone_reads_no_journal_as_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results are known; a copy that another process got and that logged nothing changes nothing."""
    run = begin(tmp_path)
    run.define_metric("loss", summary="min")
    run.log({"loss": 2.0}, step=1)
    pickle.dumps(run)
    monkeypatch.setattr(AttemptHistory, "of", lambda *name: pytest.fail("the journal is read"))
    run.finish()
    assert lines(tmp_path)[-2]["values"] == {"final/loss": 2.0}
