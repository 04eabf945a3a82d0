"""What a scheduler sends before it kills a job: the run is preempted, training and its own handlers notice nothing."""

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
from tests.backends.wandb.support import online_at
from tests.faults.attempts import FIVE, points, read
from tests.faults.driven import ROOT
from tests.helpers import wait_for
from trackers.journal.lease import read_holder
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import last_status, observe, preempting, signalled
from trackers.relay.delivery.cursor_file import read_account

SLURM = {"SLURM_JOB_ID": "123"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
ROWS = 100

HEAD = """
import os, signal, sys, time, trackers
"""
BODY = """
run = trackers.init({trackers!r}, project="p", id="r")
for step in range({rows}):
    run.log({{"loss": step / 7}}, step=step)
"""
WAIT = """
print("logged", flush=True)
while True:
    time.sleep(0.05)
"""


class Job:
    """A training process under a launcher."""

    def __init__(
        self,
        launcher: dict[str, str],
        before: str = "",
        after: str = "",
        *,
        trackers: str = "json",
        wait: str = WAIT,
    ) -> None:
        Path("train.py").write_text(HEAD + before + BODY.format(trackers=trackers, rows=ROWS) + after + wait)
        env = {**os.environ, "PYTHONPATH": str(ROOT), **launcher}
        words = [sys.executable, "train.py"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = forked.Program(words, preload=forked.HELPERS, env=env, **pipes)
        self.run = RunDirectory("runs/p/r")
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "logged\n", self.process.communicate()
        self.relay = psutil.Process(wait_for(lambda: read_holder(self.run.path / "relay.lease")).pid)
        for name in trackers.split(","):
            wait_for(lambda name=name: read_account(self.run, name).time)

    def signal(self, number: int, *, whole: bool = False) -> int:
        """Send a signal to training, or to every process of the job as SLURM does; training's exit code."""
        self.send(number, whole=whole)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def send(self, number: int, *, whole: bool) -> None:
        helpers = [self.relay, *self.relay.children(recursive=True)] if whole else []
        for process in helpers:
            process.send_signal(number)
        self.process.send_signal(number)

    def status(self) -> str:
        """As delivered by the relay; nobody acts."""
        wait_for(lambda: read_account(self.run, "json").closed)
        return last_status(self.run).name


def log() -> dict[str, Any]:
    (path,) = Path("runs/p/r").glob("*_*_*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize(
    ("launcher", "number", "whole", "status"),
    [
        (SLURM, signal.SIGTERM, True, "preempted"),
        (SLURM, signal.SIGTERM, False, "preempted"),
        (SLURM, signal.SIGUSR1, True, "preempted"),
        (SLURM, signal.SIGUSR2, False, "preempted"),
        (KUBERNETES, signal.SIGTERM, False, "preempted"),
        (KUBERNETES, signal.SIGUSR1, False, "crashed"),
        ({}, signal.SIGTERM, False, "crashed"),
        (SLURM, signal.SIGKILL, False, "crashed"),
    ],
)
def test_signal_decides_the_status(launcher: dict[str, str], number: int, whole: bool, status: str) -> None:
    """A grace signal ends training at once, as without us, and the run is preempted; others make it crashed."""
    job = Job(launcher)
    assert job.signal(number, whole=whole) == -number
    assert job.status() == status
    assert log()["summary"]["status"] == status
    assert [entry["iter"] for entry in log()["training_iterations"]] == list(range(ROWS))


def test_signal_after_another_run_has_ended() -> None:
    """Of two runs the one that is still open is preempted, although the other one was the newest."""
    beside = 'other = trackers.init("json", project="p", id="s", reinit="create_new", mode="offline")\nother.finish()\n'
    job = Job(SLURM, after=beside)
    assert job.signal(signal.SIGTERM) == -signal.SIGTERM
    assert job.status() == "preempted"


@pytest.mark.slow
def test_every_tracker_says_preempted(tmp_path: Path) -> None:
    """SIGTERM to a whole SLURM job: the relay stays to deliver, and all five trackers say how the run ended."""
    words = {"wandb": "preempted", "mlflow": "KILLED"}
    with online_at(tmp_path) as server:
        job = Job(SLURM, trackers=FIVE)
        assert job.signal(signal.SIGTERM, whole=True) == -signal.SIGTERM
        wait_for(lambda: not (job.run.path / "relay.lease").exists(), 90)
        if not all(read_account(job.run, name).closed for name in FIVE.split(",")):
            # Its 25 s may be too few on a busy machine, above all for W&B, whose own process was asked to end as well.
            sync = [sys.executable, "-m", "trackers", "sync", str(job.run.path)]
            done = forked.run(sync)
            assert done.returncode == 0, done.stdout + done.stderr
        for tracker in FIVE.split(","):
            stored = read(tracker, job.run.read_info(), dict(server.runs))
            assert [step for step, _ in points(stored)] == list(range(ROWS))
            assert stored.status == words.get(tracker, "preempted"), tracker


@pytest.mark.slow
def test_signal_is_seen_while_training_waits_in_c() -> None:
    """Training that holds the interpreter inside a library in C dies at once, and leaves its trace."""
    wait = "import ctypes\nprint('logged', flush=True)\nctypes.PyDLL(None).sleep(100)\n"
    job = Job(KUBERNETES, wait=wait)
    assert job.signal(signal.SIGTERM) == -signal.SIGTERM
    assert job.status() == "preempted"
    assert 'train.py", line' in signalled(job.run, 1).read_text()


def test_job_that_is_killed_whole_is_preempted_for_whoever_looks() -> None:
    """The relay dies with the job, as when a SLURM step or a container ends: ls and one sync say preempted."""
    job = Job(SLURM)
    job.relay.kill()
    assert job.signal(signal.SIGTERM) == -signal.SIGTERM
    assert observe(job.run).name == "preempted"
    command = [sys.executable, "-m", "trackers", "sync", str(job.run.path)]
    done = forked.run(command, preload=forked.HELPERS)
    assert done.returncode == 0, done.stderr
    assert log()["summary"]["status"] == "preempted"
    assert len(log()["training_iterations"]) == ROWS


OWN = """
def handler(number, frame):
    print("own", flush=True)
    {what}
signal.signal(signal.{name}, handler)
"""


@pytest.mark.slow
def test_handler_of_the_script_is_the_only_one() -> None:
    """A script that handles SIGUSR1 itself goes on after it and finishes; nothing of ours is in the way."""
    after = OWN.format(name="SIGUSR1", what="signal.own = True")
    wait = (
        "print('logged', flush=True)\nwhile not hasattr(signal, 'own'):\n    time.sleep(0.01)\n"
        "assert signal.getsignal(signal.SIGUSR1) is handler\nrun.finish(timeout=60)\n"
    )
    for before, later in ((after, ""), ("", after)):
        job = Job(SLURM, before, later, wait=wait)
        job.send(signal.SIGUSR1, whole=True)
        out, err = job.process.communicate(timeout=60)
        assert (out, job.process.returncode) == ("own\n", 0), err
        assert job.status() == "finished"
        for path in sorted(job.run.path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        job.run.path.rmdir()


@pytest.mark.slow
def test_handler_that_saves_and_exits_is_a_preemption() -> None:
    """SIGTERM to a whole SLURM job whose script saves a checkpoint and leaves with 0: preempted, for it isn't done."""
    mark = str(preempting(RunDirectory("runs/p/r"), 1))
    what = f"open('checkpoint', 'w').close()\n    while not os.path.exists({mark!r}):"
    job = Job(SLURM, OWN.format(name="SIGTERM", what=what + " time.sleep(0.01)\n    sys.exit(0)"))
    assert job.signal(signal.SIGTERM, whole=True) == 0
    assert Path("checkpoint").exists()
    assert job.status() == "preempted"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "when", "what", "status"),
    [
        (SLURM, "before", "sys.exit(0)", "preempted"),
        (KUBERNETES, "after", "sys.exit(0)", "preempted"),
        (
            KUBERNETES,
            "after",
            "run.log({'loss': 0.0}); time.sleep(1.1); run.log({'loss': 0.0}); os._exit(0)",
            "preempted",
        ),
        (KUBERNETES, "after", "run.finish(); sys.exit(0)", "finished"),
    ],
)
def test_handler_that_exits_says_enough_by_the_signal(
    launcher: dict[str, str], when: str, what: str, status: str
) -> None:
    """SIGTERM to training alone, handled before or after init, and no word: preempted, though the exit code be 0."""
    handler = OWN.format(name="SIGTERM", what=what)
    job = Job(launcher, handler if when == "before" else "", handler if when == "after" else "")
    job.signal(signal.SIGTERM)
    assert job.status() == status


def succeeds(code: str) -> None:
    """Run a program in a job of SLURM's, whose runs have no relay."""
    env = {**os.environ, "SLURM_JOB_ID": "1", "TRACKER_RELAY": "n"}
    done = forked.run([sys.executable, "-c", code], preload=forked.PACKAGE, env=env)
    assert done.returncode == 0, done.stderr


def test_note_of_a_signal_is_its_runs_own() -> None:
    """A SIGTERM that an earlier run of the process outlived says nothing of the next; nor does another signal."""
    code = (
        "import os, signal, sys, trackers\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "first = trackers.init('json', mode='offline', project='p', id='first')\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nfirst.finish()\n"
        "second = trackers.init('json', mode='offline', project='p', id='second')\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "child = os.fork()\n"
        "if not child:\n    os.kill(os.getpid(), signal.SIGTERM)\n    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    succeeds(code)
    for name in ("first", "second"):
        assert last_status(RunDirectory(f"runs/p/{name}")).name == "finished"


def test_somebody_elses_notes_stay() -> None:
    """Where the script, or asyncio, has Python note signals for it, that is left as it is, before and after a run."""
    code = (
        "import os, signal, trackers\n"
        "r, w = os.pipe()\nos.set_blocking(w, False)\n"
        "signal.set_wakeup_fd(w)\n"
        "run = trackers.init('json', mode='offline', project='p')\nrun.finish()\n"
        "assert signal.set_wakeup_fd(-1) == w\n"
        "run = trackers.init('json', mode='offline', project='p')\n"
        "assert signal.set_wakeup_fd(w) not in (-1, w)\nrun.finish()\n"
        "assert signal.set_wakeup_fd(-1) == w\n"
    )
    succeeds(code)


@pytest.mark.parametrize(
    ("what", "status"), [("sys.exit(0)", "preempted"), ("sys.exit(7)", "preempted"), ("run.finish()", "finished")]
)
def test_script_that_says_it_is_preempted_and_leaves(what: str, status: str) -> None:
    """``mark_preempting`` in a handler: leaving by any exit code is a preemption, ``finish`` is what it says."""
    handler = OWN.format(name="SIGTERM", what=f"run.mark_preempting(); {what}; os._exit(0)")
    job = Job({}, "", handler)
    job.signal(signal.SIGTERM)
    assert job.status() == status


@pytest.mark.slow
def test_worker_that_a_pool_ends_is_no_preemption() -> None:
    """Forked workers are ended by SIGTERM all the time: the run's end stays what it is."""
    after = (
        "import multiprocessing\n"
        "pool = multiprocessing.get_context('fork').Pool(2)\npool.map(abs, range(4))\npool.terminate()\npool.join()\n"
        "child = os.fork()\nif not child:\n    time.sleep(60)\nos.kill(child, signal.SIGTERM)\n"
        "assert os.waitpid(child, 0)[1] == signal.SIGTERM\n"
    )
    job = Job(SLURM, "", after)
    assert job.signal(signal.SIGKILL) == -signal.SIGKILL
    assert job.status() == "crashed"


@pytest.mark.slow
def test_faulthandler_of_the_script_stays(tmp_path: Path) -> None:
    """A script that has its tracebacks dumped by SIGUSR1 gets them where it wants them, and lives on."""
    dumps = "import faulthandler\nfaulthandler.register(signal.SIGUSR1, file=open('dump', 'w'))\n"
    job = Job(SLURM, dumps)
    job.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: Path("dump").read_text())
    assert job.process.poll() is None
    assert job.signal(signal.SIGKILL) == -signal.SIGKILL
    assert job.status() == "crashed"


def test_ended_run_watches_nothing() -> None:
    """After the last run of a process its signals are as they were, and no file stays open."""
    code = (
        "import os, signal, trackers\n"
        "def caught(): return [l for l in open('/proc/self/status') if l.startswith('SigCgt')]\n"
        "before, files = caught(), len(os.listdir('/proc/self/fd'))\n"
        "for n in range(20):\n"
        "    run = trackers.init('json', mode='offline', project='p')\n    run.log({'a': 1.0})\n"
        "    assert caught() != before\n    run.finish()\n    assert caught() == before\n"
        "assert len(os.listdir('/proc/self/fd')) <= files + 1\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
    )
    succeeds(code)
