"""``trackers alerts``: a run's alerts with what became of them, and the test of places."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

import trackers
from tests.fakes.receivers import webhook
from trackers.cli.app import app
from trackers.errors import NotFound, TrackersError, UsageError
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.records import Alert
from trackers.relay.alerting.files import AlertOutcome, SentAlerts, alert_id, sent_path


def run_cli(*words: str) -> Result:
    """A command, as typer runs it."""
    return CliRunner().invoke(app, ["alerts", *words], catch_exceptions=True)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run with two alerts, one of which was sent and one refused."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", mode="offline", project="p", name="one", id="one")
    run.log({"loss": 1.0}, step=3)
    run.alert("first", "text of it", level="WARN")
    run.alert("second\n\x1b[2J")
    run.finish()
    (directory,) = find_runs(Path("runs"))
    ids = [alert_id("one", one) for one in AttemptHistory(directory).records() if isinstance(one, Alert)]
    sent = SentAlerts(
        places={
            "webhook-1": {
                ids[0]: AlertOutcome(state="sent"),
                ids[1]: AlertOutcome(state="refused", reason="HTTP 404"),
            }
        },
        shown={"webhook-1": "webhook (x.org)"},
    )
    sent_path(directory).write_bytes(msgspec.json.encode(sent))
    return directory


@pytest.mark.processes
def test_rules_of_a_project_are_listed_and_changed(made: RunDirectory) -> None:
    """What holds then is printed; a project that isn't there is named, and nothing outside of the runs is written."""
    assert "has no rules" in run_cli("rules", "p").stderr
    assert run_cli("rules", "p", "--add", "nan(loss) -> stop; crashed").stdout == "nan(loss) -> stop\ncrashed\n"
    assert run_cli("rules", "p", "--rm", "crashed").stdout == run_cli("rules", "p").stdout == "nan(loss) -> stop\n"
    Path("runs/p/alerts.txt").write_text("nan\nstall(never)\n")
    result = run_cli("rules", "p")
    assert (result.stdout, result.exit_code) == ("nan\n", 0)
    assert "line 2: character 7" in result.stderr
    for wrong in ("q", "..", "p/..", "p/one", "."):
        assert isinstance(run_cli("rules", wrong, "--add", "nan").exception, NotFound)
    assert [path.name for path in Path().rglob("alerts.txt")] == ["alerts.txt"]


@pytest.mark.processes
def test_alerts_of_a_run_are_listed(made: RunDirectory) -> None:
    """With time, step, level, text, and what became of each; no escape sequence of a text reaches the terminal."""
    for words in ((), ("latest",), ("ls", "one"), ("p/one",)):
        result = run_cli(*words)
        assert result.exit_code == 0, result.output
        head, first, second = result.stdout.splitlines()
        assert head.split() == ["time", "step", "level", "alert", "text", "sent"]
        assert first.split()[2:] == ["3", "WARN", "first", "text", "of", "it", "webhook", "(x.org)", "sent"]
        assert "webhook (x.org) refused: HTTP 404" in second
        assert "\x1b" not in result.stdout
    found = json.loads(run_cli("latest", "--json").stdout)
    assert [one["title"] for one in found] == ["first", "second\n\x1b[2J"]
    assert found[1]["sent"] == {"webhook (x.org)": "refused: HTTP 404"}


def test_alerts_of_a_run_without_a_journal_are_those_of_its_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source of another scheme is read; one that names several runs, or none, is one line."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        run = trackers.init("tensorboard", project="p", id=name, inline=True, options={"TENSORBOARD_DIR": name})
        run.log({"loss": 1.0}, step=3)
        run.alert(f"of {name}", "a text", level="WARN")
        run.finish()
    shutil.rmtree("runs")
    found = json.loads(run_cli("tb:a", "--json").stdout)
    assert [(one["step"], one["level"], one["title"], one["text"]) for one in found] == [(3, "WARN", "of a", "a text")]
    assert "of b" in run_cli("tb:b").stdout
    assert isinstance(run_cli("tb:nowhere").exception, TrackersError)
    assert "names 2 runs: name one" in str(run_cli("tb:.").exception)


@pytest.mark.processes
def test_show_lists_alerts(made: RunDirectory) -> None:
    """A line each."""
    lines = CliRunner().invoke(app, ["show", "latest"]).stdout.splitlines()
    place = lines.index("alerts")
    assert lines[place + 1].endswith("  WARN: first: text of it at step 3")
    assert "second" in lines[place + 2]
    shown = json.loads(CliRunner().invoke(app, ["show", "latest", "--json"]).stdout)
    assert [one["title"] for one in shown["alerts"]] == ["first", "second\n\x1b[2J"]


@pytest.mark.processes
def test_run_without_alerts_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr: a pipe gets nothing."""
    monkeypatch.chdir(tmp_path)
    trackers.init("json", mode="offline", project="p").finish()
    result = run_cli()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the run has no alerts" in result.stderr
    assert "alerts\n" not in CliRunner().invoke(app, ["show", "latest"]).stdout


def test_places_are_tried_and_what_happened_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each, without the address; exit code 1 if one didn't take it."""
    with webhook() as good, webhook(404) as bad:
        monkeypatch.setenv("TRACKER_ALERT_TO", f"slack:{good.url}/s3cr3t; {bad.url}/s3cr3t")
        result = run_cli("test")
        assert result.stdout.splitlines() == ["slack (127.0.0.1): sent", "webhook (127.0.0.1): refused: HTTP 404"]
        assert result.exit_code == 1
        assert "`trackers alerts test` sent this." in good.bodies[0]["text"]
        result = run_cli("test", "--to", f"{good.url}/other")
        assert (result.exit_code, result.stdout) == (0, "webhook (127.0.0.1): sent\n")
        assert good.got[-1][0] == "/other"


def test_no_place_is_an_error() -> None:
    """With the option to set."""
    result = run_cli("test")
    assert isinstance(result.exception, UsageError)
    assert "no place is named: set TRACKER_ALERT_TO, or --to" in str(result.exception)


def test_rule_is_tried_on_runs_that_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says when it would have spoken, of our runs and of other sources, and leaves nothing in either."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", mode="offline", project="p", name="one", id="one", options={"TRACKER_RELAY": False})
    for step in range(40):
        run.log({"loss": 9.0 if step == 30 else 1 / (step + 1)}, step=step)
    run.finish()
    rows = "\n".join(f"{step},{20 if step == 7 else 1}" for step in range(10))
    (tmp_path / "other.csv").write_text(f"step,loss\n{rows}\n")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    tried = run_cli("try", "loss > 3 * mean(loss[5]); crashed -> x", "one")
    assert isinstance(tried.exception, UsageError)
    found = run_cli("try", "loss > 3 * mean(loss[5]) -> stop; loss > 100", "one", "csv:other.csv", "--json")
    assert found.exit_code == 0, found.output
    told = {entry["run"]: [(one["step"], one["text"]) for one in entry["alerts"]] for entry in json.loads(found.stdout)}
    assert [[step for step, _ in alerts] for alerts in told.values()] == [[30], [7]]
    assert next(iter(told.values()))[0][1] == "loss = 9, 3 * mean(loss[5]) = 5.48434"
    assert "no alert in one" in run_cli("try", "loss > 100", "one").output
    counted = run_cli("try", "loss < 0.3 every 1h; loss < 0.03", "one", "--json")  # one is told at the end: 1 more time
    assert [one["step"] for one in json.loads(counted.stdout)[0]["alerts"]] == [3, 31, 33]
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
