"""Alerts end to end: found beside training whatever becomes of it, in the journal once, and sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.receivers import webhook
from tests.helpers import wait_for
from trackers.errors import ConfigError
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.records import Alert

TRAINING = """
import math, os, sys, time, trackers
run = trackers.init("json", project="p", name="one", id="one", dir="runs")
for step in range(4):
    run.log({"train_loss": math.nan if step > 1 else 1.0, "val_loss": 9.0 + step}, step=step)
run.alert("by hand", "from the script")
print("logged", flush=True)
"""


def alerts(run: RunDirectory) -> list[Alert]:
    """Those in the journal."""
    return [record for record in AttemptHistory(run).records() if isinstance(record, Alert)]


def train(more: str, **options: str) -> subprocess.Popen[str]:
    """A script in the current directory."""
    env = {**os.environ, **options}
    return subprocess.Popen([sys.executable, "-c", TRAINING + more], env=env, stdout=subprocess.PIPE, text=True)


def the_run() -> RunDirectory:
    """The only one."""
    (run,) = find_runs(Path("runs"))
    return run


@pytest.mark.parametrize("agent", ["n", "y"])
def test_alerts_of_rules_and_of_the_script_are_recorded_and_sent_once(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN, a comparison, an end, and the script's own; nothing that was written has the address."""
    monkeypatch.chdir(tmp_path)
    with webhook() as place:
        secret = f"{place.url}/hooks/s3cr3t-path"
        process = train("run.finish()", TRACKER_ALERTS="nan(train_loss); val_loss > 10; finished; crashed",
                        TRACKER_ALERT_TO=secret, TRACKER_AGENT=agent)  # fmt: skip
        process.communicate()
        wait_for(lambda: len(place.got) >= 4)
        titles = ["by hand", "nan(train_loss)", "run finished", "val_loss > 10"]
        assert sorted(body["title"] for body in place.bodies) == titles
    found = alerts(the_run())
    assert sorted(alert.title for alert in found) == titles
    assert {alert.title: alert.step for alert in found}["val_loss > 10"] == 2
    assert {alert.level for alert in found if alert.rule.startswith("nan")} == {"ERROR"}
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"s3cr3t-path" not in path.read_bytes(), path


def test_killed_training_raises_crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay says it, when training can't."""
    monkeypatch.chdir(tmp_path)
    with webhook() as place:
        process = train("time.sleep(600)", TRACKER_ALERTS="crashed; finished; failed", TRACKER_ALERT_TO=place.url)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        wait_for(lambda: [body for body in place.bodies if body["title"] == "run crashed"])
    assert [alert.title for alert in alerts(the_run()) if alert.rule] == ["run crashed"]


def test_hung_training_raises_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped logs nothing: the alert is sent while it is, once."""
    monkeypatch.chdir(tmp_path)
    with webhook() as place:
        process = train("sys.stdin.read(); time.sleep(600)", TRACKER_ALERTS="stall(2s)", TRACKER_ALERT_TO=place.url)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        try:
            wait_for(lambda: [body for body in place.bodies if body["title"] == "stall(2s)"])
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        wait_for(lambda: (the_run().path / "relay.lease").exists() is False)
    (alert,) = [alert for alert in alerts(the_run()) if alert.rule]
    assert alert.text == "no training record for 2 s"
    assert alert.step == 3


def test_bad_rule_ends_init_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict at the beginning: nothing is made."""
    import trackers

    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"TRACKER_ALERTS": "val_loss > ten"}
    with pytest.raises(ConfigError, match="TRACKER_ALERTS: character 12: 'ten' is no number"):
        trackers.init("json", project="p", options=options)
    assert not (tmp_path / "runs").exists()
