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
from trackers_sweeps import program
from trackers_sweeps.plan import SweepPlan, tasks

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
if os.path.exists("code"):
    sys.exit(4)
"""
RUN = [sys.executable, "-m", "trackers", "run"]


def start(*words: str, starter: Any = forked.Program, **more: Any) -> subprocess.Popen[str]:
    """``trackers run`` as its users start it, but for a fork's parents."""
    Path("train.py").write_text(TRAIN)
    env = {**os.environ, "TRACKER_RELAY": "n", **more}
    process: subprocess.Popen[str] = starter([*RUN, *words, "--", sys.executable, "train.py"], env=env, text=True,
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    return process


def next_line(process: subprocess.Popen[str]) -> str:
    """What it says next."""
    assert process.stderr is not None
    return process.stderr.readline()


def done(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """What it printed."""
    out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    return out, err


def started() -> list[str]:
    """Points that were begun so far."""
    return sorted(path.name.rpartition("-")[0].removeprefix("started-") for path in Path().glob("started-*"))


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("goes_on", [False, True])
def test_killed_sweep_goes_on(goes_on: bool) -> None:
    """After kill -9 of everything the same command trains what hadn't finished: anew, or the run that there is."""
    Path("wait").touch()
    words = ["--grid", "lr=0.1,0.01", "--name", "s", *(["--continue"] if goes_on else [])]
    process = start(*words, starter=subprocess.Popen)
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


@pytest.mark.slow
def test_last_line_of_a_failed_run_is_shown() -> None:
    """The reason is where one looks first; what a terminal would obey isn't."""
    words = [sys.executable, "-m", "trackers", "run", "--grid", "a=1,2,3", "--", "sh", "-c"]
    said = {
        "echo why; printf '\\033[2Jred\\n\\n'; exit {a}": "\N{REPLACEMENT CHARACTER}[2Jred",
        "exit {a}": "it printed nothing",
    }
    for script, last in said.items():
        found = forked.run([*words, script])
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


@pytest.mark.slow
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


def sweep(*words: str, code: int = 0, **more: Any) -> tuple[str, str]:
    """What ``trackers run`` prints."""
    env = {**os.environ, "TRACKER_RELAY": "n", **more}
    found = forked.run([*RUN, *words], env=env)
    assert found.returncode == code, found.stderr
    return found.stdout, found.stderr


def statuses(out: str) -> list[str]:
    """The last column of the table."""
    return [line.split()[-1] for line in out.splitlines()[1:]]


def test_two_of_one_sweep_at_once() -> None:
    """The second one says who trains it, and trains nothing; the first one goes on."""
    Path("wait").touch()
    first = start("--grid", "lr=0.01", "--name", "s")
    wait_for(started)
    _, err = done(start("--grid", "lr=0.01", "--name", "s"), 2)
    assert err.startswith("trackers: sweep 's' is being trained by process ")
    assert err.endswith(": wait for it, end it, or give this one another --name\n")
    Path("wait").unlink()
    out, _ = done(first)
    assert statuses(out) == ["finished"]
    assert started() == ["0.01-0"]
    assert not list(Path("runs/.sweeps/s").glob("lease*"))


@pytest.mark.slow
def test_program_outlives_its_sweep() -> None:
    """After kill -9 of the sweep alone the same command waits for what is still trained, and trains the rest."""
    Path("wait").touch()
    words = ["--grid", "lr=0.01,0.1", "--name", "s", "--gpus", "4,5"]
    process = start(*words, "--jobs", "1", starter=subprocess.Popen)
    wait_for(lambda: len(list(find_runs(Path("runs")))) == 1)
    process.kill()
    process.communicate()
    second = start(*words)
    wait_for(lambda: "0.1-0" in started())
    Path("wait").unlink()
    out, err = done(second)
    assert "trackers: lr0.01: still trained, begun by a sweep that is gone: waiting for it\n" in err
    assert started() == ["0.01-0", "0.1-0"]
    assert statuses(out) == ["finished", "finished"]
    assert sorted(path.read_text() for path in Path().glob("started-*")) == ["4", "5"]
    assert [last_status(run).name for run in find_runs(Path("runs"))] == ["finished", "finished"]


def test_end_that_nobody_saw() -> None:
    """Of a program that records nothing and outlived its sweep it isn't known how it ended: it is trained again."""
    words = [
        "--grid",
        "a=1",
        "--name",
        "s",
        "--",
        "sh",
        "-c",
        "echo {a} >> begun; while test -e wait; do sleep 0.05; done",
    ]
    Path("wait").touch()
    process = subprocess.Popen([*RUN, *words], stderr=subprocess.DEVNULL)
    wait_for(lambda: Path("begun").exists() and list(Path("runs/.sweeps/s").glob("*.state")))
    process.kill()
    process.wait()
    second = forked.Program([*RUN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "still trained" in next_line(second)
    Path("wait").unlink()
    _, err = done(second, 1)
    assert "1/1 a1: failed, how it ended wasn't seen: its sweep was gone: it printed nothing; see " in err
    assert statuses(sweep(*words)[0]) == ["finished"]
    assert Path("begun").read_text() == "1\n1\n"


def test_run_that_goes_on_behind_its_program() -> None:
    """A program that trains in the background and ends has not trained yet: its run is waited for."""
    Path("wait").touch()
    Path("train.py").write_text(TRAIN)
    train = f"{sys.executable} train.py --lr {{lr}} > /dev/null 2>&1 & "
    train += "while ! ls runs/p/*/run.json 2> /dev/null; do sleep 0.05; done"
    process = forked.Program(
        [*RUN, "--grid", "lr=0.01", "--name", "s", "--", "sh", "-c", train],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TRACKER_RELAY": "n"},
    )  # fmt: skip
    assert next_line(process).startswith("trackers: sweep s: 1 run; what they print: ")
    assert next_line(process) == ("trackers: lr0.01: its program has ended, its run is still trained: waiting for it\n")
    Path("wait").unlink()
    out, _ = done(process)
    assert [line.split()[1:] for line in out.splitlines()[1:]] == [["0.01", "0.01", "finished"]]


@pytest.mark.slow
def test_exit_code_counts_after_a_run_has_finished() -> None:
    """A program that fails behind its run has failed, and the same command trains it again, as it says."""
    Path("code").touch()
    out, err = done(start("--grid", "lr=0.1", "--name", "s"), 1)
    assert statuses(out) == ["failed"]
    assert "1/1 lr0.1: failed, exit code 4: " in err
    Path("code").unlink()
    out, _ = done(start("--grid", "lr=0.1", "--name", "s"))
    assert (statuses(out), started()) == (["finished"], ["0.1-0", "0.1-0"])


def test_run_that_failed_in_a_program_that_didnt() -> None:
    """Exit code 0 doesn't hide it."""
    program = "import trackers; trackers.init('json', project='p').finish(exit_code=3)"
    for _ in range(2):
        out, err = sweep("--seeds", "1", "--name", "s", "--", sys.executable, "-c", program, code=1)
        assert statuses(out) == ["failed"]
        assert "1/1 seed0: failed, exit code 0, but its run is failed: " in err


def test_points_of_another_command_arent_taken_for_trained() -> None:
    """One line names that command; nothing is lost; where nothing was trained, the command may be changed."""
    sweep("--grid", "a=1", "--name", "s", "--", "sh", "-c", "exit 1", code=1)
    sweep("--grid", "a=1,2", "--name", "s", "--", "sh", "-c", "echo {a} >> done")
    for words in (["--grid", "a=1,2,3"], ["--grid", "a=2", "--jobs", "3"]):
        out, err = sweep(*words, "--name", "s", "--", "sh", "-c", "echo other", code=2)
        assert not out
        assert "of these points from another command (sh -c 'echo {a} >> done'): give another --name, or that" in err
    out, err = sweep("--grid", "a=1,2,3", "--name", "s", "--", "sh", "-c", "echo {a} >> done")
    assert Path("done").read_text().split() == ["1", "2", "3"]
    assert "trackers: sweep s: 3 runs, 2 finished before; what they print: runs/.sweeps/s\n" in err


@pytest.mark.slow
def test_names_of_sweeps_are_kept_apart() -> None:
    """Those that a file's name can't hold, and those that begin alike, have folders of their own."""
    names = ["a b", "a_b", "a/b", "学习", "机器", "x" * 300, "x" * 301]
    for name in names:
        out, _ = sweep("--grid", "a=1", "--name", name, "--", "sh", "-c", "echo {a} >> done")
        assert statuses(out) == ["finished"]
    assert len(list(Path("runs/.sweeps").iterdir())) == len(names)
    assert len(Path("done").read_text().split()) == len(names)


STUBBORN = """
import signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: open("asked", "a").write(str(number)))
open("ready", "w").close()
while True:
    time.sleep(0.05)
"""


def stubborn(*words: str, **more: Any) -> subprocess.Popen[str]:
    """A sweep of programs that note signals and go on, when the first has begun."""
    process = forked.Program(
        [*RUN, "--grid", "a=1,2", "--name", "s", *words, "--", sys.executable, "-c", STUBBORN],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip
    wait_for(Path("ready").exists)
    return process


def test_second_interrupt_kills() -> None:
    """The first is passed on, and a line says what happens next; the second ends what doesn't."""
    process = stubborn()
    process.send_signal(signal.SIGINT)
    wait_for(Path("asked").exists)
    process.send_signal(signal.SIGINT)
    out, err = done(process, 130)
    assert "trackers: SIGINT: nothing more is started; a1 has 30 s to end; once more kills at once\n" in err
    assert statuses(out) == ["stopped", "waiting"]
    assert Path("asked").read_text() == "2"


@pytest.mark.processes
def test_program_that_doesnt_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its time is over."""
    monkeypatch.setattr(program, "ASK_S", 0.5)
    script = STUBBORN.replace("while", "import os; os.kill(os.getppid(), signal.SIGTERM)\nwhile")
    plan = SweepPlan(name="s", tasks=tasks("s", [{"a": 1}, {"a": 2}]), command=[sys.executable, "-c", script])
    trained = program.Sweep(plan, root=Path("runs"), jobs=1)
    assert not trained.run()
    assert trained.signalled == signal.SIGTERM
    assert [task.status for task in trained.tasks] == ["stopped", "waiting"]
    assert Path("asked").read_text() == "15"


@pytest.mark.slow
def test_terminal_that_is_closed_ends_the_programs() -> None:
    """SIGHUP is passed on, but not where nohup has it ignored."""
    Path("wait").touch()
    process = start("--grid", "lr=0.01,0.1", "--name", "hup")
    wait_for(started)
    process.send_signal(signal.SIGHUP)
    out, _ = done(process, 129)
    assert statuses(out) == ["stopped", "waiting"]
    before = started()
    process = subprocess.Popen(
        ["nohup", *RUN, "--grid", "lr=0.01", "--name", "nohup", "--", sys.executable, "train.py"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TRACKER_RELAY": "n"},
    )  # fmt: skip
    wait_for(lambda: started() != before)
    process.send_signal(signal.SIGHUP)
    Path("wait").unlink()
    out, _ = done(process)
    assert statuses(out) == ["finished"]


@pytest.mark.slow
def test_end_in_good_order_on_request_isnt_finished() -> None:
    """A program that saves its state and exits with 0 because it was told to is trained on by the same command."""
    script = (
        "import os, signal, sys, time, trackers\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "run = trackers.init('json', project='p')\n"
        "while os.path.exists('wait'): time.sleep(0.05)\n"
    )
    Path("wait").touch()
    words = [*RUN, "--seeds", "1", "--name", "s", "--", sys.executable, "-c", script]
    env = {**os.environ, "TRACKER_RELAY": "n"}
    process = forked.Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    wait_for(lambda: list(find_runs(Path("runs"))))
    process.send_signal(signal.SIGTERM)
    out, _ = done(process, 143)
    assert statuses(out) == ["stopped"]
    Path("wait").unlink()
    assert statuses(forked.run(words, check=True, env=env).stdout) == ["finished"]
    assert len(list(find_runs(Path("runs")))) == 2


def test_program_that_cant_be_started_in_the_middle() -> None:
    """Of another point: that one has failed, what is trained beside it isn't disturbed."""
    out, err = sweep("--grid", "p=/bin/true,/no/program,/etc/passwd", "--name", "s", "--", "{p}", code=1)
    assert statuses(out) == ["finished", "failed", "failed"]
    assert "2/3 p_no_program: failed, can't start /no/program: No such file or directory\n" in err
    assert "3/3 p_etc_passwd: failed, can't start /etc/passwd: Permission denied\n" in err


def test_output_that_cant_be_written() -> None:
    """As on a full disk: nothing more is started, what is trained is waited for, and the table is shown."""
    second = tasks("s", [{"a": "2"}])[0].id
    script = f"mkdir runs/.sweeps/s/{second}.log; echo {{a}} >> done"
    out, err = sweep("--grid", "a=1,2,3", "--name", "s", "--", "sh", "-c", script, code=1)
    assert statuses(out) == ["finished", "waiting", "waiting"]
    assert f"trackers: can't write runs/.sweeps/s/{second}.log: " in err
    assert err.count(": nothing more is started\n") == 1
    assert Path("done").read_text() == "1\n"


def test_folder_of_a_sweep_that_is_removed() -> None:
    """Nothing more is started there, and a line says why."""
    script = "mv runs/.sweeps gone; while test -e wait; do sleep 0.05; done"
    Path("wait").touch()
    process = forked.Program([*RUN, "--grid", "a=1,2", "--name", "s", "--", "sh", "-c", script],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    said = [next_line(process) for _ in range(2)]
    assert said[1] == "trackers: runs/.sweeps/s is gone: nothing more is started here\n"
    Path("wait").unlink()
    out, _ = done(process, 1)
    assert statuses(out) == ["finished", "waiting"]


@pytest.mark.slow
def test_reader_of_its_lines_that_is_gone() -> None:
    """What a sweep says goes to a pipe that nobody reads any more: everything is trained."""
    command = f"{sys.executable} -m trackers run --grid a=1,2,3 --name s -- sh -c 'echo {{a}} >> done' 2>&1 | head -n 1"
    found = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert found.stdout == "trackers: sweep s: 3 runs; what they print: runs/.sweeps/s\n"
    assert Path("done").read_text().split() == ["1", "2", "3"]


def test_metric_that_no_run_has() -> None:
    """One line names those that there are; the table has one of them, and what was trained counts."""
    out, err = done(start("--grid", "lr=0.1,0.01", "--name", "s", "--metric", "val_los"))
    assert [line.split()[1:] for line in out.splitlines()] == [
        ["lr", "val_loss", "status"], ["0.01", "0.01", "finished"], ["0.1", "0.1", "finished"],
    ]  # fmt: skip
    assert "trackers: the table isn't sorted by 'val_los': no run of 2 has 'val_los'; there is val_loss\n" in err


@pytest.mark.slow
def test_value_that_is_no_number_is_last() -> None:
    """In both directions."""
    script = (
        "import trackers; run = trackers.init('json', project='p'); run.log({'val_loss': float('{a}')}); run.finish()"
    )
    for mode, order in (("min", ["1", "2", "nan"]), ("max", ["2", "1", "nan"])):
        words = ["--grid", "a=nan,2,1", "--name", "s", "--metric", "val_loss", "--mode", mode]
        out, _ = sweep(*words, "--", sys.executable, "-c", script)
        assert [line.split()[1] for line in out.splitlines()[1:]] == order


PARAMETERS = """
import json, sys
{init}
print(json.dumps([dict(config), sys.argv[1:]]))
"""


@pytest.mark.parametrize("init", [
    "import trackers; run = trackers.init('json', project='p', config={'lr': 5, 'own': 1}); config = run.config",
    "import trackers.as_wandb.init as wandb; run = wandb.init(project='p', config={'lr': 5, 'own': 1}, "
    "mode='offline'); config = run.config",
])  # fmt: skip
def test_parameters_of_a_wandb_sweep_are_the_configuration(init: str) -> None:
    """As ``wandb agent`` gives them: typed, nested, stronger than the script's own; beside the flags."""
    Path("train.py").write_text(PARAMETERS.format(init=init))
    Path("sweep.yaml").write_text(
        "program: train.py\nname: s\nmethod: grid\n"
        "parameters: {lr: {value: 0.1}, flag: {value: true}, optimizer: {parameters: {name: {value: adam}}}}\n"
    )
    sweep("--sweep", "sweep.yaml", TRACKER="json")
    (log,) = Path("runs/.sweeps/s").glob("*.log")
    config, words = json.loads(log.read_text().splitlines()[-1])
    assert {name: config[name] for name in ("lr", "flag", "optimizer", "own")} == {
        "lr": 0.1, "flag": True, "optimizer": {"name": "adam"}, "own": 1,
    }  # fmt: skip
    assert words == ["--lr=0.1", "--flag=True", "--optimizer.name=adam"]
    (run,) = find_runs(Path("runs"))
    assert run.read_info().config["lr"] == 0.1


def test_parameters_in_a_file() -> None:
    """``${args_json_file}`` is a file's path with the values, nested; it is found from any directory."""
    Path("sweep.json").write_text(json.dumps({
        "name": "s", "command": ["sh", "-c", "cd /; cat $0", "${args_json_file}"],
        "parameters": {"a": {"value": 1}, "b": {"parameters": {"c": {"value": None}}}},
    }))  # fmt: skip
    sweep("--sweep", "sweep.json")
    (log,) = Path("runs/.sweeps/s").glob("*.log")
    assert json.loads(log.read_text().splitlines()[-1]) == {"a": 1, "b": {"c": None}}


@pytest.mark.parametrize(("share", "shared"), [("owner", False), ("group", True), ("umask", True)])
def test_file_with_the_parameters_is_replaced_by_nobody(
    share: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write into the folder of a shared sweep could give the program any others before it reads them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("TRACKER_SHARE", share)
    Path("sweep.json").write_text(json.dumps({
        "name": "s", "command": ["sh", "-c", "echo $0; echo $WANDB_SWEEP_PARAM_PATH", "${args_json_file}"],
        "parameters": {"a": {"value": 1}},
    }))  # fmt: skip
    before = os.umask(0o002)
    try:
        sweep("--sweep", "sweep.json")
    finally:
        os.umask(before)
    (log,) = Path("runs/.sweeps/s").glob("*.log")
    for file in map(Path, log.read_text().splitlines()[-2:]):
        assert file.is_relative_to(tmp_path / "own") == shared
        assert file.stat().st_uid == os.geteuid()
        assert (
            not (file.stat().st_mode | file.parent.stat().st_mode | file.parents[1].stat().st_mode) & 0o022
            or not shared
        )


@pytest.mark.parametrize("words", [[], ["--continue"]])
def test_program_with_more_than_one_run(words: list[str]) -> None:
    """The first is the point's; the others are of the sweep's group, with ids of their own."""
    script = (
        "import trackers\n"
        "for value in (1, 2):\n"
        "    run = trackers.init('json', project='p')\n"
        "    run.log({'val_loss': value})\n"
        "    run.finish()\n"
    )
    out, _ = sweep("--seeds", "1", "--name", "s", *words, "--", sys.executable, "-c", script)
    (line,) = out.splitlines()[1:]
    assert line.split()[1:] == ["0", "1", "finished"]
    infos = [run.read_info() for run in find_runs(Path("runs"))]
    assert [info.group for info in infos] == ["s", "s"]
    assert line.split()[0] in [info.id for info in infos]


@pytest.mark.slow
@pytest.mark.processes
def test_sweep_in_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are sent there; the same command, on another machine too, trains only what isn't in the store."""
    monkeypatch.setenv("TRACKER_DIR", f"file://{Path('store').absolute()}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("here").absolute()))
    words = ["--name", "s", "--", sys.executable, "train.py"]
    Path("train.py").write_text(TRAIN.replace(', mode="offline"', ""))
    out, _ = sweep("--grid", "lr=0.1,0.01", *words, TRACKER_RELAY="y")
    assert [line.split()[1:] for line in out.splitlines()[1:]] == [
        ["0.01", "0.01", "finished"], ["0.1", "0.1", "finished"],
    ]  # fmt: skip
    assert len(list(Path("store/p").iterdir())) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("there").absolute()))
    out, err = sweep("--grid", "lr=0.1,0.01,0.2", *words, TRACKER_RELAY="y")
    assert statuses(out) == ["finished"] * 3
    assert "sweep s: 3 runs, 2 finished before" in err
    assert started() == ["0.01-0", "0.1-0", "0.2-0"]
