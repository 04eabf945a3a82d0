"""Rules of a project's runs: taken by each run that begins, changed without losing what people wrote around them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import trackers
from trackers.alerts import PROJECT_FILE, project_rules, rules
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.training.run import Run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's directory below ``runs``, where runs lie."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_RELAY", "n")
    folder = tmp_path / "runs/digits"
    folder.mkdir(parents=True)
    return folder


def rules_of_a_run(**options: str) -> str:
    """The rules that a run which begins now records."""
    run = trackers.init("json", project="digits", mode="offline", options=options)
    assert isinstance(run, Run)
    run.finish()
    return str(RunDirectory(Path(run.dir)).read_info().option("TRACKER_ALERTS", ""))


def test_run_takes_the_rules_of_its_project(project: Path) -> None:
    """Beside its own, each once; those that are added later hold for runs that begin later."""
    assert rules_of_a_run() == ""
    project_rules.change(project, "nan(train_loss) -> stop; val_loss > 10 for 60s")
    assert rules_of_a_run() == "nan(train_loss) -> stop; val_loss > 10 for 60s"
    own = rules_of_a_run(TRACKER_ALERTS="val_loss > 10 for 60s; crashed")
    assert own.startswith("val_loss > 10 for 60s; crashed; nan(train_loss) -> stop")
    assert [rule.text for rule in rules.parse(own)] == ["val_loss > 10 for 60s", "crashed", "nan(train_loss) -> stop"]


def test_lines_around_rules_stay(project: Path) -> None:
    """Words to people, empty lines and lines that can't be read; a line loses the rule that is taken out alone."""
    (project / PROJECT_FILE).write_text("# for all\n\nnan; crashed\nstall(never)\n  # slow\nstall(2h)\n")
    assert project_rules.read(project).texts == ["nan", "crashed", "stall(2h)"]
    assert project_rules.change(project, "loss > 3 * mean(loss[10])", "crashed; stall(2h)") == [
        "nan", "loss > 3 * mean(loss[10])",
    ]  # fmt: skip
    assert (project / PROJECT_FILE).read_text() == (
        "# for all\n\nnan\nstall(never)\n  # slow\nloss > 3 * mean(loss[10])\n"
    )
    assert project_rules.change(project, "nan") == ["nan", "loss > 3 * mean(loss[10])"]


def test_line_that_cannot_be_read_is_said_and_left_out(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training begins, with the other rules."""
    (project / PROJECT_FILE).write_text("nan\nstall(never)\n")
    assert rules_of_a_run() == "nan"
    said = capsys.readouterr().err
    assert f"{PROJECT_FILE}, line 2: character 7: 'never' is no duration" in said


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives a file to another account: root")
def test_rules_of_another_account_stop_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They raise alerts; what they would ask of training is said. The run's owner may take them over."""
    path = project / PROJECT_FILE
    path.write_text('loss > 5 for 60s -> checkpoint, stop; "a -> b" > 1; "a -> b" > 2 -> stop\n')
    os.chown(path, 65534, 65534)
    assert rules_of_a_run() == 'loss > 5 for 60s; "a -> b" > 1; "a -> b" > 2'
    assert "is another account's: its rules raise alerts, and stop nothing" in capsys.readouterr().err
    assert project_rules.change(project, remove='"a -> b" > 2 -> stop') == [
        "loss > 5 for 60s -> checkpoint, stop", '"a -> b" > 1',
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["link", "folder", "not text", "long", "pipe"])
def test_file_that_is_none_stops_no_run(project: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """A link to another file isn't followed, a pipe not waited for."""
    path = project / PROJECT_FILE
    other = project.parent / "other"
    other.write_text("crashed\n")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"\xff\xfe" if kind == "not text" else b"# long\n" * 20_000)
    assert rules_of_a_run(TRACKER_ALERTS="finished") == "finished"
    assert f"{PROJECT_FILE} can't be read" in capsys.readouterr().err
    with pytest.raises(UsageError, match="can't be read"):
        project_rules.change(project, "nan")


def test_more_rules_than_a_run_may_have_are_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first ones hold."""
    (project / PROJECT_FILE).write_text("".join(f"loss > {number}\n" for number in range(rules.MOST_RULES + 1)))
    assert len(rules.parse(rules_of_a_run())) == rules.MOST_RULES
    assert f"loss > {rules.MOST_RULES} isn't watched" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("add", "remove", "why"),
    [
        ("stall(never)", "", "is no duration"),
        ("", "crashed", "no rule 'crashed': there are nan"),
        ("", "(", "character"),
    ],
)
def test_change_that_cannot_be_made_changes_nothing(project: Path, add: str, remove: str, why: str) -> None:
    """The file is as it was."""
    (project / PROJECT_FILE).write_text("nan\n")
    with pytest.raises(UsageError, match=why):
        project_rules.change(project, add, remove)
    assert (project / PROJECT_FILE).read_text() == "nan\n"
