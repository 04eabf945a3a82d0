"""The command line: what it prints, what it returns, and one line for whatever is wrong."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import trackers
from tests import forked
from trackers.cli.app import app
from trackers.training.run import Run


def program(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return forked.run([sys.executable, "-m", "trackers", *arguments], env={**os.environ, **environ})


def make_run(tracker: str = "json", name: str = "baseline", **more: object) -> Run:
    """A finished run whose records wait in the journal."""
    run = trackers.init(tracker, mode="offline", project="digits", name=name, config={"lr": 0.1, "m": {"d": 2}}, **more)
    assert isinstance(run, Run)
    for step in range(10):
        run.log({"train_loss": 1.0 / (step + 1), "nan": math.nan}, step=step)
    run.log({"final/best": 0.1})
    run.finish()
    return run


@pytest.fixture(autouse=True)
def _no_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_RELAY", "n")


def test_ls_shows_status_step_values_and_trackers() -> None:
    """One line a run, with what each tracker has."""
    run = make_run()
    done = program("ls")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if run.id in line]
    header = done.stdout.splitlines()[0].split()
    assert header == ["name", "id", "status", "steps", "age", "final/best", "train_loss", "nan", "trackers"]
    assert line.split()[:4] == ["baseline", run.id, "finished", "9"]
    assert line.split()[6:9] == ["0.1", "0.1", "NaN"]
    assert re.search(r"json not begun [4-6]\.\d KB", line)
    entries = json.loads(program("ls", "--json").stdout)
    assert entries[0]["status"]["name"] == "finished"
    assert entries[0]["step"] == 9
    assert entries[0]["last"]["nan"] == "NaN"
    assert program("ls", "--project", "other").stdout == ""


@pytest.mark.slow
def test_ls_shows_what_was_rejected_and_why_it_waits() -> None:
    """A tracker that is away, one that stopped, one that refused records: each says so, its reason cut to a line."""
    run = make_run("json,csv,mlflow")
    size = Path(run.dir, "streams/rank-0.1.jsonl").stat().st_size
    accounts = {
        "csv": {"offsets": {"rank-0.1": size}, "rejected": 2, "closed": "finished"},
        "json": {"offsets": {"rank-0.1": size - 7}, "error": "no answer from http://127.0.0.1:5000\nfor 30 s"},
        "mlflow": {"offsets": {"rank-0.1": size - 7}, "error": "too old " * 30, "stopped": True},
    }
    for name, account in accounts.items():
        Path(run.dir, "delivery", f"{name}.json").write_text(json.dumps({"time": 1.0, **account}))
    for _ in range(2):  # the second time from what is kept of the first
        (line,) = [line for line in program("ls").stdout.splitlines() if run.id in line]
        assert "csv ✓ 2 rejected" in line
        assert "json waiting 7 B (no answer from http://127.0.0.1:5000 for 30 s)" in line
        assert "mlflow stopped 7 B (too old too old" in line
        assert line.endswith("…)")
        assert len(line) < 400
        for path in (Path(run.dir), *Path(run.dir).rglob("*")):
            os.utime(path, (1e9, 1e9))
    status = json.loads(program("ls", "--json").stdout)[0]["trackers"]
    assert (status["csv"]["rejected"], status["mlflow"]["state"]) == (2, "stopped")


@pytest.mark.slow
def test_show_names_everything_of_a_run() -> None:
    """Identity, configuration, last values, results and trackers; by id, name, directory and latest."""
    run = make_run()
    for reference in (run.id, "baseline", run.dir, "latest", f"digits/{run.id}"):
        done = program("show", reference)
        assert done.returncode == 0, done.stderr
        for word in (run.id, "finished", "m.d", "train_loss", "final/best", "json"):
            assert word in done.stdout
    shown = json.loads(program("show", "latest", "--json").stdout)
    assert shown["results"] == {"final/best": 0.1}
    assert shown["info"]["config"] == {"lr": 0.1, "m": {"d": 2}}
    assert shown["records"] == 14


def test_show_gives_each_value_its_own_step() -> None:
    """The title's step is the highest of a last value; the others have theirs beside them."""
    run = trackers.init("json", project="digits", inline=True)
    for step, values in ((7, {"loss": 0.5, "val": 1.0}), (9, {"loss": 0.25}), (3, {"late": 2.0})):
        run.log(values, step=step)
    run.finish()
    shown = program("show", run.id).stdout
    for text in ("last values at step 9\n", "loss  0.25\n", "val   1 at step 7\n", "late  2 at step 3\n"):
        assert text in shown, shown


def test_sync_delivers_prints_a_line_and_is_repeatable() -> None:
    """Exit code 0 only when all is there; a tracker added later gets the whole history."""
    run = make_run()
    done = program("sync", "latest")
    assert done.returncode == 0, done.stderr
    assert f"digits/{run.id} json: delivered" in done.stdout
    (path,) = Path(run.dir).glob("baseline_*.json")
    before = path.read_bytes()
    assert len(json.loads(before)["training_iterations"]) == 10
    done = program("sync", run.id, "--to", "csv", "--json")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["tracker"], last["state"]) == ("csv", "delivered")
    assert len((Path(run.dir) / "metrics.csv").read_text().splitlines()) == 11
    assert program("sync").returncode == 0
    assert path.read_bytes() == before


@pytest.mark.slow
def test_sync_goes_on_with_a_copy_that_is_copied_anew(tmp_path: Path) -> None:
    """A directory that was copied while training ran, and again after its end, is delivered once, in order."""
    run = trackers.init("json,csv", mode="offline", project="digits", id="copied")
    assert isinstance(run, Run)
    for last in (10, 20):
        for step in range(last - 10, last):
            run.log({"train_loss": float(step)}, step=step)
        if last == 20:
            run.finish()
        for path in sorted(Path("runs").rglob("*")):  # as rsync does: a new file in the place of the old one
            there = tmp_path / "there" / path
            if path.is_file():
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, there.with_name(".new"))
                there.with_name(".new").replace(there)
        program("sync", str(tmp_path / "there/runs"))
    rows = (tmp_path / "there/runs/digits/copied/metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in rows[1:]] == [str(step) for step in range(20)]
    assert program("sync", str(tmp_path / "there/runs")).returncode == 0


@pytest.mark.slow
def test_sync_of_a_directory_takes_all_runs_in_it() -> None:
    """A directory of runs means every run below it."""
    first, second = make_run(name="one"), make_run(name="two")
    done = program("sync", "runs")
    assert done.returncode == 0
    assert f"{first.id} json: delivered" in done.stdout
    assert f"{second.id} json: delivered" in done.stdout


@pytest.mark.slow
def test_sync_of_many_serves_all_but_those_it_cannot() -> None:
    """A run whose only tracker isn't here, an unreadable run: each is named on a line, the others are delivered."""
    first, lost, last = make_run(), make_run(), make_run()
    identity = Path(first.dir, "run.json")
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "trackers": ["elsewhere"]}))
    Path(lost.dir, "run.json").write_text("{")
    shutil.rmtree(Path(lost.dir, "streams"))
    done = program("sync", "runs")
    assert done.returncode == 1
    assert f"{last.id} json: delivered" in done.stdout
    complaints = done.stderr.splitlines()
    assert len(complaints) == 2, complaints
    assert any(first.id in line and "unknown tracker 'elsewhere'" in line for line in complaints)
    assert any(lost.id in line and "run.json is damaged: " in line for line in complaints)
    alone = program("sync", str(first.dir))
    assert (alone.returncode, alone.stderr.count("\n")) == (2, 1)


def test_sync_of_a_run_with_rejected_records_is_not_all() -> None:
    """What a tracker refused is in the journal alone: exit code 1, and the line names the command that lists it."""
    run = make_run()
    assert program("sync", run.id).returncode == 0
    account = Path(run.dir, "delivery", "json.json")
    account.write_text(json.dumps({**json.loads(account.read_text()), "rejected": 2}))
    done = program("sync", run.id)
    assert done.returncode == 1, done.stdout
    assert f"2 rejected: trackers show {run.id} --rejected" in done.stdout
    reason = "media/a.npy isn't a regular file"
    rejection = {"id": "a", "reason": reason, "record": "{}"}
    account.with_name("json.rejected.jsonl").write_text(json.dumps(rejection) + "\n")
    assert f"--rejected (the first: {reason})" in program("sync", run.id).stdout


WRONG = [
    (("show", "nope"), 1, "no run 'nope'"),
    (("sync", "nope"), 1, "no run 'nope'"),
    (("sync", ""), 2, "a run's name is empty"),
    (("show", "--dir", "empty"), 1, "no runs in empty"),
    (("ls", "--project", "firs"), 1, "no runs of project 'firs' in runs"),
    (("sync", "latest", "--to", "wandbb"), 2, "did you mean 'wandb'"),
    (("frobnicate",), 2, "No such command"),
    (("show", "baseline"), 2, "2 runs are called 'baseline'"),
]


@pytest.mark.parametrize(("arguments", "code", "text"), WRONG, ids=[" ".join(entry[0]) for entry in WRONG])
def test_wrong_input_is_one_line_and_a_code(arguments: tuple[str, ...], code: int, text: str) -> None:
    """What is wrong is said on stderr without a traceback: 1 not found, 2 wrong usage."""
    make_run()
    make_run()
    done = program(*arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    if "Usage" not in done.stderr:
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_every_command_has_help_with_an_example() -> None:
    """--help works for each command, and those that work on runs show an example."""
    listed = program("--help").stdout
    for command in ("ls", "show", "sync", "doctor"):
        assert command in listed
        done = program(command, "--help")
        assert done.returncode == 0
        assert "Example: trackers" in done.stdout


@pytest.mark.slow
def test_help_is_broken_where_the_terminal_ends() -> None:
    """No paragraph of any command has line breaks of its own, which make ragged lines on a narrow terminal."""
    commands = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    commands.update({f"artifacts {name}": one for name, one in commands["artifacts"].commands.items()})
    assert {"ls", "sql", "prune", "doctor", "show-config", "artifacts rm"} <= commands.keys()
    for name, command in commands.items():
        first, *others = (command.help or "").split("\n\n")
        assert not [part for part in others if "\n" in part], name
        assert not first.endswith(":"), name


@pytest.mark.slow
def test_doctor_reports_versions_logins_libraries_and_places() -> None:
    """doctor names what works and what is missing; a directory that can't be written is a problem."""
    done = program("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert checks["tracker json"]["state"] == "ok"
    assert checks["runs directory"]["state"] == "ok"
    assert {"trackers", "python", "GPU metrics nvidia", "GPU metrics amd", "configuration"} <= set(checks)
    absent = program("doctor", "--json", WANDB_MODE="online")
    assert "wandb login" in absent.stdout
    Path("file").write_text("")
    broken = program("doctor", "--dir", "file/runs")
    assert broken.returncode == 1
    assert "not writable" in broken.stdout


def test_names_from_outside_reach_the_terminal_harmlessly() -> None:
    """Terminal escapes in names are shown as text, not executed."""
    run = make_run(name="\x1b[31mred\x07\n")
    for command in (("ls",), ("show", run.id)):
        out = program(*command).stdout
        assert "\x1b[31m" not in out
        assert "\x07" not in out


@pytest.mark.slow
def test_a_directory_from_outside_reaches_the_terminal_harmlessly() -> None:
    """What somebody else wrote into a run's directory, and how it is called: every command shows it as text."""
    run = make_run(name="\x1b[31mred\x07")
    evil = Path("runs/digits/\x1b[32mevil")
    Path(run.dir).rename(evil)
    info = json.loads((evil / "run.json").read_text())
    info |= {"id": "\x1b[33mid", "host": "\x1b[34mhost", "git": {"commit": "\x1b[35mcommit", "branch": "\x1b[36m"}}
    (evil / "run.json").write_text(json.dumps({**info, "trackers": ["json", "\x1b[37mtracker"]}))
    line = {"id": "\x1b[38m:5", "reason": "a bad\x1bname", "record": '{"kind":"metrics"}'}
    (evil / "delivery/\x1b[39mx.json").write_text("{}")
    (evil / "delivery/\x1b[39mx.rejected.jsonl").write_text(json.dumps(line) + "\n")
    for command in (
        ("ls",), ("show", "latest"), ("show", "latest", "--rejected"), ("show", "\x1b[31mno"), ("sync", "runs"),
        ("copy", "latest", "csv:copied"), ("keys", "latest"), ("best", "latest", "--metric", "\x1b[31mno"),
    ):  # fmt: skip
        done = program(*command)
        assert done.stdout + done.stderr, command
        assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr), (command, done.stdout, done.stderr)


def test_rejected_records_are_listed() -> None:
    """show --rejected lists each refused record with its reason."""
    run = make_run()
    line = {"id": "rank-0.1:5", "reason": "a bad name", "record": '{"kind":"metrics","time":1.0,"values":{"@":1}}'}
    Path(run.dir, "delivery", "json.json").write_text("{}")
    Path(run.dir, "delivery", "json.rejected.jsonl").write_text(json.dumps(line) + "\n")
    out = program("show", run.id, "--rejected").stdout
    assert "a bad name" in out
    assert "rank-0.1:5" in out
    assert json.loads(program("show", run.id, "--rejected", "--json").stdout)["json"][0]["record"]["values"] == {"@": 1}


@pytest.mark.slow
def test_broken_pipe_is_no_traceback() -> None:
    """``trackers ls | head -0`` ends quietly."""
    make_run()
    done = subprocess.run(
        f"{sys.executable} -m trackers show latest | true", shell=True, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr


def test_sync_gives_up_when_nothing_moves() -> None:
    """A server that is down costs --timeout, then exit code 1, with why in the line."""
    make_run("mlflow", options={"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"})
    done = program("sync", "latest", "--timeout", "4")
    assert done.returncode == 1
    assert "mlflow: " in done.stdout
    assert "bytes wait" in done.stdout


def test_sync_delivers_the_others_when_one_package_is_missing(tmp_path: Path) -> None:
    """One tracker that can't work here is named with the cure; the others are delivered; exit code 1."""
    run = make_run("json,mlflow")
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'mlflow' else real(name, package)\n"
    )
    done = program("sync", run.id, PYTHONPATH=str(hide))
    assert done.returncode == 1
    lacks = "pip install 'trackers-relay[mlflow]', or trackers setup mlflow; the other trackers are delivered"
    assert lacks in done.stderr
    assert f"{run.id} json: delivered" in done.stdout


@pytest.mark.slow
def test_huge_integers_are_shown_short() -> None:
    """A number of hundreds of digits neither wrecks the table nor raises."""
    run = trackers.init("json", mode="offline", project="digits", name="big")
    run.log({"big": 10**300, "small": -5})
    run.finish()
    for command in ("ls", "show"):
        done = program(command, *(["latest"] if command == "show" else []))
        assert done.returncode == 0, done.stderr
        assert "0" * 50 not in done.stdout
    assert "~2^996" in program("show", "latest").stdout
