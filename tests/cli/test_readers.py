"""``trackers keys``: every metric of a run, in its group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import trackers
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def logged(**fields: Any) -> trackers.Run:
    """A finished run with a name in each group."""
    run = trackers.init("json", project="digits", name="baseline", mode="offline", options={"TRACKER_RELAY": False},
                        **fields)  # fmt: skip
    for step in range(3):
        run.log({"train_loss": 1.0 / (step + 1), "val_loss": float("nan"), "gpu/compute_util_avg": 50.0}, step=step)
    run.log({"system/cpu_utilization_percentage": 7.0, "n" * 300: 1.0}, step=9)
    run.log({"final/best": 0.5})
    run.finish()
    return run


def test_keys_shows_every_name_in_its_group() -> None:
    """Each name stands below one title with its count, steps and last value, the longest one whole."""
    logged()
    done = run_cli("keys", "latest")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("baseline  (")
    assert "finished, 6 metrics" in lines[1]
    titles = [line for line in lines if line and not line.startswith(" ")][1:]
    assert titles == ["Training: 2", "Validation: 1", "GPU: 1", "System: 1", "Final: 1"]
    shown = {line.split()[0]: line for line in lines[2:] if line.startswith("  ")}
    assert "n" * 300 in shown
    assert "3 values, steps 0 to 2, last 0.33333" in shown["train_loss"]
    assert "last NaN" in shown["val_loss"]
    assert shown["final/best"].split() == ["final/best", "0.5"]


def test_keys_shows_results_that_are_texts() -> None:
    """They are no metrics, and stand among the results."""
    with trackers.init("json", name="said", project="p", mode="offline", options={"TRACKER_RELAY": False}) as run:
        run.log({"loss": 1.0})
        run.summary.update({"verdict": "diverged\nat once", "acc": 0.5})
    done = run_cli("keys", "latest")
    assert "finished, 2 metrics" in done.stdout
    assert "Final: 2" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "verdict" in line]
    assert line.split()[0] == "final/verdict"
    assert "diverged" in line
    (found,) = json.loads(run_cli("keys", run.id, "--json").stdout)
    assert found["groups"]["final"]["final/verdict"]["last"] == "diverged\nat once"


def test_keys_as_json() -> None:
    """The same for machines: strict JSON, every name in one group."""
    run = logged()
    done = run_cli("keys", run.id, "--json")
    (found,) = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(name))
    assert (found["id"], found["status"]) == (run.id, "finished")
    assert found["groups"]["validation"] == {"val_loss": {"count": 3, "first_step": 0, "last_step": 2, "last": "NaN"}}
    assert sorted(found["groups"]) == ["final", "gpu", "system", "training", "validation"]


def test_keys_of_a_project(tmp_path: Path) -> None:
    """A source of several runs shows each."""
    logged(), logged()
    found = json.loads(run_cli("keys", "digits", "--dir", "runs", "--json").stdout)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("source", "error"), [("nothing", NotFound), ("sheet:x", UsageError), ("baseline", UsageError)]
)
def test_bad_source_is_one_error(source: str, error: type[Exception]) -> None:
    """What isn't there, what isn't known and what isn't one run is one error of ours."""
    logged(), logged()
    assert isinstance(run_cli("keys", source).exception, error)


def test_empty_run_has_no_metrics() -> None:
    """A run without a single metric is shown as one."""
    trackers.init("json", project="digits", mode="offline", options={"TRACKER_RELAY": False}).finish()
    done = run_cli("keys")
    assert done.exit_code == 0
    assert "0 metrics" in done.stdout


def test_help_has_an_example() -> None:
    """The command's help shows how it is called."""
    assert "trackers keys tb:runs/baseline" in " ".join(run_cli("keys", "--help").stdout.split())


@pytest.mark.parametrize(
    ("page", "meant"),
    [
        ("https://wandb.ai/team/gpt2/runs/4f9kq2ab?nw=nwuser", "wandb:team/gpt2/4f9kq2ab, or"),
        ("https://wandb.ai/team/gpt2", "wandb:team/gpt2, or"),
        ("http://10.0.0.1:5000", "mlflow:http://10.0.0.1:5000#EXPERIMENT, or"),
    ],
)
def test_address_of_a_page_is_told_as_a_source(page: str, meant: str) -> None:
    """Who copies an address from the browser is told what to write."""
    done = run_cli("keys", page)
    assert isinstance(done.exception, UsageError)
    assert meant in str(done.exception)
