"""``trackers run``: real programs, killed, resumed, several at a time, and the table at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import forked
from tests.helpers import wait_for
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.journal.status import last_status

TRAIN = """
import argparse, os, sys, time, trackers
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
open(f"started-{arguments.lr}-{arguments.seed}-{os.getpid()}", "w").write(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
run = trackers.init("json", project="p", config=vars(arguments), mode="offline")
print("training with", arguments.lr)
while os.path.exists("wait") and arguments.lr == 0.01:
    time.sleep(0.02)
if os.path.exists("fail") and arguments.lr == 0.01:
    sys.exit("out of luck" if arguments.seed else 3)
run.log({"val_loss": arguments.lr + arguments.seed}, step=run.step + 1)
run.finish()
"""


def start(*words: str, program: Any = forked.Program, **more: Any) -> subprocess.Popen[str]:
    """``trackers run`` as its users start it, but for a fork's parents."""
    Path("train.py").write_text(TRAIN)
    env = {**os.environ, "TRACKER_RELAY": "n", **more}
    return program([sys.executable, "-m", "trackers", "run", *words, "--", sys.executable, "train.py"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)  # fmt: skip


def done(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """What it printed."""
    out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    return out, err


def started() -> list[str]:
    """Points that were begun so far."""
    return sorted(path.name.rpartition("-")[0].removeprefix("started-") for path in Path().glob("started-*"))


def test_grid_is_trained_and_ranked() -> None:
    """Each point once, in one group, with its values as flags; the best comes first; nothing is trained twice."""
    out, err = done(start("--grid", "lr=0.1,0.01", "--seeds", "2", "--name", "first"))
    assert started() == ["0.01-0", "0.01-1", "0.1-0", "0.1-1"]
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["run", "lr", "seed", "val_loss", "status"]
    assert [line[1:] for line in lines[1:]] == [
        ["0.01", "0", "0.01", "finished"], ["0.1", "0", "0.1", "finished"],
        ["0.01", "1", "1.01", "finished"], ["0.1", "1", "1.1", "finished"],
    ]  # fmt: skip
    assert "4/4 lr0.01-seed1: finished" in err
    infos = [run.read_info() for run in find_runs(Path("runs"))]
    assert {info.group for info in infos} == {"first"}
    assert sorted(info.id for info in infos) == sorted(line[0] for line in lines[1:])
    (log, *_) = sorted(Path("runs/.sweeps/first").glob("*.log"))
    assert "training with 0." in log.read_text()
    again, _ = done(start("--grid", "lr=0.1,0.01", "--seeds", "2", "--name", "first"))
    assert again == out
    assert len(started()) == 4


@pytest.mark.parametrize("goes_on", [False, True])
def test_killed_sweep_goes_on(goes_on: bool) -> None:
    """After kill -9 of everything the same command trains what hadn't finished: anew, or the run that there is."""
    Path("wait").touch()
    words = ["--grid", "lr=0.1,0.01", "--name", "s", *(["--continue"] if goes_on else [])]
    process = start(*words, program=subprocess.Popen)
    wait_for(lambda: started() == ["0.01-0", "0.1-0"] and len(list(find_runs(Path("runs")))) == 2)
    for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        child.kill()
    process.communicate()
    Path("wait").unlink()
    out, err = done(start(*words))
    assert started() == ["0.01-0", "0.01-0", "0.1-0"]
    assert "2/2 lr0.01: finished" in err
    assert [line.split()[1:] for line in out.splitlines()[1:]] == [
        ["0.01", "0.01", "finished"],
        ["0.1", "0.1", "finished"],
    ]
    runs = list(find_runs(Path("runs")))
    assert len(runs) == (2 if goes_on else 3)
    assert sorted(last_status(run).name for run in runs) == ["finished"] * 2 + ["running"] * (not goes_on)


def test_failed_run_is_named_with_its_log() -> None:
    """The others are trained; the exit code says that not all finished, and the same command trains the rest."""
    Path("fail").touch()
    out, err = done(start("--grid", "lr=0.01,0.1", "--name", "s"), 1)
    assert "1/2 lr0.01: failed, exit code 3: training with 0.01; see runs/.sweeps/s/" in err
    assert "1 of 2 runs didn't finish; the same command trains them" in err
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["finished", "failed"]
    Path("fail").unlink()
    out, _ = done(start("--grid", "lr=0.01,0.1", "--name", "s", "--json"))
    found = json.loads(out)
    assert (found["metric"], [run["status"] for run in found["runs"]]) == ("val_loss", ["finished", "there"])


def test_last_line_of_a_failed_run_is_shown() -> None:
    """The reason is where one looks first; what a terminal would obey isn't."""
    words = [sys.executable, "-m", "trackers", "run", "--grid", "a=1,2,3", "--", "sh", "-c"]
    said = {
        "echo why; printf '\\033[2Jred\\n\\n'; exit {a}": "\N{REPLACEMENT CHARACTER}[2Jred",
        "exit {a}": "it printed nothing",
    }
    for program, last in said.items():
        found = forked.run([*words, program])
        assert found.returncode == 1
        assert f"2/3 a2: failed, exit code 2: {last}; see runs/.sweeps/sh-sweep-" in found.stderr


def test_interrupt_ends_what_runs_and_starts_nothing_more() -> None:
    """The program gets Ctrl-C and ends as it does alone; a table shows what there is; nothing stays behind."""
    Path("wait").touch()
    process = start("--grid", "lr=0.1,0.01,0.5", "--name", "s")
    wait_for(lambda: "0.01-0" in started())
    wait_for(lambda: len(list(find_runs(Path("runs")))) == 2)
    process.send_signal(signal.SIGINT)
    out, err = done(process, 130)
    assert "0.5-0" not in started()
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["finished", "stopped", "waiting"]
    assert "2 of 3 runs didn't finish" in err


def test_gpus_and_jobs() -> None:
    """Two at a time, each with a GPU of its own, never the same one at the same time."""
    done(start("--grid", "lr=0.1,0.2,0.3,0.4", "--gpus", "4,5", "--name", "s"))
    given = [path.read_text() for path in Path().glob("started-*")]
    assert sorted(set(given)) == ["4", "5"]
    assert len(given) == 4
    _, err = done(start("--grid", "lr=0.1", "--gpus", "4,5", "--jobs", "3"), 2)
    assert err == "trackers: 3 runs at a time, and GPUs for 2: lower --jobs or --gpus-per-run, or --gpus none\n"


def test_dry_run_and_mistakes() -> None:
    """Commands are printed and not run; a program that isn't there is one line."""
    out, _ = done(start("--grid", "lr=0.1,0.01", "--dry-run"))
    assert [line.split()[1:] for line in out.splitlines()] == [["train.py", "--lr=0.1"], ["train.py", "--lr=0.01"]]
    assert not started()
    assert not Path("runs").exists()
    program = [sys.executable, "-m", "trackers", "run"]
    for words, said in (
        (["--seeds", "1", "--", "no-such-program"], "can't start no-such-program --seed=0: No such file or directory"),
        (["--seeds", "1"], "which program? Give it after --: trackers run --grid lr=0.1,0.01 -- python train.py"),
        (["--seeds", "1", "--mode", "up", "--", "p"], "unknown mode 'up': known are min, max"),
        (["--sweep", "x.yaml", "--grid", "a=1"], "--sweep has the parameters: leave --grid and --param out"),
    ):
        found = forked.run([*program, *words])
        assert (found.returncode, found.stderr) == (2, f"trackers: {said}\n")


def test_sweep_of_a_file_of_wandb() -> None:
    """Its program, its parameters and its metric."""
    Path("train.py").write_text(TRAIN)
    Path("sweep.yaml").write_text(
        "program: train.py\nmethod: grid\nmetric: {name: val_loss, goal: maximize}\nname: s\nentity: us\n"
        "parameters: {lr: {values: [0.1, 0.2]}, seed: {value: 3}}\n"
    )
    found = forked.run(
        [sys.executable, "-m", "trackers", "run", "--sweep", "sweep.yaml"], check=True,
        env={**os.environ, "TRACKER_RELAY": "n"},
    )  # fmt: skip
    assert [line.split()[1:3] for line in found.stdout.splitlines()] == [
        ["lr", "val_loss"],
        ["0.2", "3.2"],
        ["0.1", "3.1"],
    ]


def test_file_of_wandb_names_the_sweep_and_its_project() -> None:
    """``name`` is the group, ``project`` and ``entity`` are the runs', where the program says nothing else."""
    Path("sweep.json").write_text(json.dumps({
        "method": "grid", "name": "widths", "project": "nets", "entity": "us", "parameters": {"a": {"value": 1}},
        "command": ["${interpreter}", "-c", "import trackers; trackers.init('json', mode='offline').finish()"],
    }))  # fmt: skip
    env = {**os.environ, "TRACKER_RELAY": "n"}
    forked.run([sys.executable, "-m", "trackers", "run", "--sweep", "sweep.json"], check=True, env=env)
    (info,) = (run.read_info() for run in find_runs(Path("runs")))
    assert (info.group, info.project, info.option("WANDB_ENTITY")) == ("widths", "nets", "us")


def test_program_that_records_nothing_is_trained_once() -> None:
    """Its exit code tells."""
    command = [sys.executable, "-m", "trackers", "run", "--grid", "a=1,2", "--", "sh", "-c", "echo {a} >> done"]
    for _ in range(2):
        found = forked.run(command, check=True)
        assert Path("done").read_text().split() == ["1", "2"]
    assert [line.split()[1:] for line in found.stdout.splitlines()] == [
        ["a", "status"],
        ["1", "finished"],
        ["2", "finished"],
    ]
    assert not [run for run in find_runs(Path("runs")) if isinstance(run, RunDirectory)]
