"""Alerts end to end: found beside training whatever becomes of it, in the journal once, and sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.fakes.receivers import webhook
from tests.helpers import wait_for
from trackers.errors import ConfigError
from trackers.journal.attempts import AttemptHistory
from trackers.journal.lease import read_holder
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
    words = [sys.executable, "-c", TRAINING + more]
    return forked.Program(words, preload=forked.HELPERS, env=env, stdout=subprocess.PIPE, text=True)


def program(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command line."""
    words = [sys.executable, "-m", "trackers", *arguments]
    return forked.run(words, preload=forked.HELPERS, env={**os.environ, **environ})


def the_run() -> RunDirectory:
    """The only one."""
    (run,) = find_runs(Path("runs"))
    return run


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["n", "y"])
def test_alerts_of_rules_and_of_the_script_are_recorded_and_sent_once(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN, a comparison, an end, and the script's own; nothing that was written has the address."""
    monkeypatch.chdir(tmp_path)
    with webhook() as place:
        secret = f"{place.url}/hooks/s3cr3t-path"
        process = train("run.finish()", TRACKER_ALERTS="nan(train_loss); val_loss > 10; finished; crashed",
                        TRACKER_ALERT_TO=secret, TRACKER_AGENT=agent, TRACKER_AGENT_IDLE="1")  # fmt: skip
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("where", ["alerts.record.after", "alerts.outbox.after", "relay.finish.before"])
def test_relay_that_is_killed_is_followed_by_one_that_goes_on(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any point: what rules raised is in the journal once, and everything is sent."""
    monkeypatch.chdir(tmp_path)
    more = """
os.environ.pop("TRACKERS_FAILPOINT")  # for the relay that follows
deadline = time.monotonic() + 100
while not os.path.exists("done") and time.monotonic() < deadline:
    run.log({"other": 1.0}); time.sleep(0.1)
run.finish()
"""
    with webhook() as place:
        process = train(more, TRACKER_ALERTS="nan(train_loss); val_loss > 10; finished", TRACKER_ALERT_TO=place.url,
                        TRACKER_AGENT="n", TRACKERS_FAILPOINT=f"{where}=kill")  # fmt: skip
        wait_for(lambda: len({body["id"] for body in place.bodies}) >= 3)
        Path("done").touch()
        process.communicate()
        wait_for(lambda: len({body["id"] for body in place.bodies}) >= 4)
    assert sorted(alert.rule for alert in alerts(the_run()) if alert.rule) == [
        "finished", "nan(train_loss)", "val_loss > 10",
    ]  # fmt: skip
    assert len({body["id"] for body in place.bodies}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["sender", "relay"])
def test_alert_whose_sender_was_killed_is_sent_again_and_says_so(
    whom: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server had it and hadn't answered: the second one has the same id, and is marked."""
    monkeypatch.chdir(tmp_path)
    more = """
deadline = time.monotonic() + 100
while not os.path.exists("done") and time.monotonic() < deadline:
    run.log({"other": 1.0}); time.sleep(0.1)
run.finish()
"""
    with webhook("hang") as place:
        process = train(more, TRACKER_ALERTS="nan(train_loss)", TRACKER_ALERT_TO=place.url, TRACKER_AGENT="n")
        wait_for(lambda: place.got)
        lease = the_run().path / ("alerts.lease" if whom == "sender" else "relay.lease")
        holder = read_holder(lease)
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        wait_for(lambda: len({body["id"] for body in place.bodies}) == 2 and len(place.got) >= 3)
        Path("done").touch()
        process.communicate()
    first, second = place.bodies[:2]
    assert (first["id"], first["repeat"]) == (second["id"], False)
    assert second["repeat"] is True
    assert [body["repeat"] for body in place.bodies[2:]] == [False] * len(place.bodies[2:])


def test_sync_raises_and_sends_what_no_relay_could(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a relay, whose process was killed; once, however often; only where it is known to whom."""
    monkeypatch.chdir(tmp_path)
    with webhook() as place:
        rules = "nan(train_loss); crashed; finished"
        process = train("os.kill(os.getpid(), 9)", TRACKER_ALERTS=rules, TRACKER_ALERT_TO=place.url, TRACKER_RELAY="n")
        process.communicate()
        run = the_run()
        assert [alert.title for alert in alerts(run)] == ["by hand"]
        done = program("sync", str(run.path))
        assert "TRACKER_ALERT_TO isn't set here" in done.stderr
        assert place.got == []
        (run.path / "alerts.sent.json").unlink(missing_ok=True)
        for _ in range(2):
            done = program("sync", str(run.path), TRACKER_ALERT_TO=place.url)
            assert done.returncode == 0, done.stderr
        assert sorted(body["title"] for body in place.bodies) == ["by hand", "nan(train_loss)", "run crashed"]
    assert sorted(alert.rule for alert in alerts(run)) == ["", "crashed", "nan(train_loss)"]
    written = json.loads(next(iter(run.path.glob("*_*.json"))).read_text())
    assert sorted(alert["title"] for alert in written["alerts"]) == ["by hand", "nan(train_loss)", "run crashed"]


def test_sync_that_follows_raises_alerts_while_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login node's, for compute nodes without a network: also when training is killed there."""
    monkeypatch.chdir(tmp_path)
    with webhook() as place:
        process = train("time.sleep(600)", TRACKER_ALERTS="nan(train_loss); crashed", TRACKER_RELAY="n")
        assert process.stdout is not None
        process.stdout.readline()
        env = {**os.environ, "TRACKER_ALERT_TO": place.url}
        words = [sys.executable, "-m", "trackers", "sync", "--follow", str(the_run().path)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with forked.Program(words, preload=forked.HELPERS, env=env, **quiet) as follower:
            try:
                wait_for(lambda: [body for body in place.bodies if body["title"] == "nan(train_loss)"])
                assert process.poll() is None
                process.kill()
                process.wait()
                wait_for(lambda: [body for body in place.bodies if body["title"] == "run crashed"])
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
                follower.terminate()
    assert sorted(body["title"] for body in place.bodies) == ["by hand", "nan(train_loss)", "run crashed"]


@pytest.mark.slow
def test_offline_run_sends_nothing_until_it_is_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules are looked at all the same."""
    monkeypatch.chdir(tmp_path)
    with webhook() as place:
        process = train(
            "run.finish()", TRACKER_ALERTS="nan(train_loss)", TRACKER_ALERT_TO=place.url, TRACKER_MODE="offline"
        )
        process.communicate()
        wait_for(lambda: [alert for alert in alerts(the_run()) if alert.rule])
        wait_for(lambda: not (the_run().path / "relay.lease").exists())
        assert place.got == []
        done = program("sync", str(the_run().path), TRACKER_ALERT_TO=place.url)
        assert done.returncode == 0, done.stderr
        assert sorted(body["title"] for body in place.bodies) == ["by hand", "nan(train_loss)"]


@pytest.mark.slow
def test_run_of_somebody_else_runs_no_program_and_calls_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its places are the reader's, whatever its ``run.json`` says."""
    monkeypatch.chdir(tmp_path)
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    process = train("run.finish()", TRACKER_ALERTS="finished", TRACKER_RELAY="n")
    process.communicate()
    run = the_run()
    with webhook() as place, webhook() as own:
        told = json.loads(run.identity.read_text())
        told["options"]["TRACKER_ALERT_TO"] = f"command:{evil}; {place.url}"
        run.identity.write_text(json.dumps(told))
        done = program("sync", str(run.path))
        assert done.returncode == 0, done.stderr
        assert "TRACKER_ALERT_TO comes from your configuration, not the run's" in done.stderr
        done = program("sync", str(run.path), TRACKER_ALERT_TO=own.url)
        assert done.returncode == 0, done.stderr
        assert place.got == []
        assert sorted(body["title"] for body in own.bodies) == ["by hand", "run finished"]
    assert not (tmp_path / "ran").exists()


def test_file_of_a_directory_names_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever clones a repository and trains in it doesn't tell its author, nor run his program."""
    from trackers import configuration

    monkeypatch.chdir(tmp_path)
    (tmp_path / ".config").write_text('CONFIG_TRACKER_ALERT_TO="command:/evil"\nCONFIG_TRACKER_ALERTS="crashed"\n')
    options = configuration.resolve()
    assert (options["TRACKER_ALERT_TO"], options["TRACKER_ALERTS"]) == ("", "crashed")


def test_places_on_a_command_line_are_masked_in_the_run() -> None:
    """As options of a script are recorded."""
    from trackers.support.redaction import hide, mask_argv

    assert mask_argv(["--tracker-alert-to", "desktop; https://x/s3cr3t"]) == ["--tracker-alert-to", "***"]
    assert mask_argv(["--tracker-alert-smtp=smtp://u:p@x"]) == ["--tracker-alert-smtp=***"]
    assert hide({"TRACKER_ALERT_TO": "desktop", "TRACKER_ALERT_SMTP": "smtp://h"}) == {
        "TRACKER_ALERT_TO": "***", "TRACKER_ALERT_SMTP": "***",
    }  # fmt: skip


@pytest.mark.slow
def test_run_without_rules_and_places_has_none_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, no process, nothing read."""
    monkeypatch.chdir(tmp_path)
    train("run.finish()").communicate()
    assert [
        path.name for path in (*the_run().path.iterdir(), *the_run().streams.iterdir()) if "alert" in path.name
    ] == []


def test_bad_rule_ends_init_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict at the beginning: nothing is made."""
    import trackers

    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"TRACKER_ALERTS": "val_loss > ten"}
    with pytest.raises(ConfigError, match="TRACKER_ALERTS: character 12: 'ten' is no number"):
        trackers.init("json", project="p", options=options)
    assert not (tmp_path / "runs").exists()
