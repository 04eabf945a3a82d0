"""Jobs of a real Slurm: tasks, arrays, signals, requeues and preemption, read back from the stores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import ROOT
from tests.slurm.conftest import Cluster
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.journal.status import last_status, observe

pytestmark = pytest.mark.timeout(600)

TRAIN = """
import os, sys, time, trackers
run = trackers.init("json,csv", project="digits", name=os.environ.get("NAME", "job"))
first = run.step + 1 if run.resumed else 0
for step in range(first, int(sys.argv[1])):
    run.log({"loss": trackers.Mean(step + int(os.environ.get("SLURM_PROCID", 0)), 1)}, step=step)
    if len(sys.argv) > 2:
        time.sleep(float(sys.argv[2]))
print("ends", flush=True)
run.finish()
"""


WITH_FLAGS = """
import argparse, trackers
parser = argparse.ArgumentParser()
trackers.add_arguments(parser)
run = trackers.init_from_args(parser.parse_args(), project="digits", name="job")
for step in range(10):
    run.log({"loss": trackers.Mean(step, 1)}, step=step)
run.finish()
"""


@pytest.fixture(autouse=True)
def _script(cluster: Cluster) -> None:
    Path("train.py").write_text(TRAIN)


def runs() -> list[RunDirectory]:
    return sorted(find_runs(Path("runs")), key=lambda run: run.read_info().name)


def steps(run: RunDirectory) -> list[int]:
    """Those that have been logged; none before the first."""
    data = trackers.load(str(run.path))
    if "loss" not in list(data.keys()):
        return []
    return [int(step) for step in data.metrics(["loss"])["step"].to_pylist()]


def logged(run: RunDirectory) -> list[Any]:
    """Steps in the JSON log, the delivered one."""
    (path,) = run.path.glob("job_*.json")
    return [entry["iter"] for entry in json.loads(path.read_text())["training_iterations"]]


def begun(cluster: Cluster, least: int = 3) -> RunDirectory:
    """Wait until the one run has some steps."""
    cluster.until(lambda: runs() and len(steps(runs()[0])) >= least)
    return runs()[0]


def test_tasks_of_a_job_are_one_run(cluster: Cluster) -> None:
    """Four tasks: the first logs, a mean is over all of them, all is delivered when the job has ended."""
    job = cluster.submit("#!/bin/bash\n#SBATCH --ntasks=4\nsrun python train.py 20\n")
    cluster.until(lambda: cluster.state(job) in ("COMPLETED", "FAILED"))
    assert cluster.state(job) == "COMPLETED", cluster.said(job)
    (run,) = runs()
    assert trackers.load(str(run.path)).metrics()["loss"].to_pylist() == [step + 1.5 for step in range(20)]
    assert logged(run) == list(range(20))
    assert last_status(run).name == "finished"


def test_tasks_of_an_array_are_runs_of_their_own(cluster: Cluster) -> None:
    """With ``resume="auto"``, which must not take another task's run for its own."""
    script = "#!/bin/bash\n#SBATCH --array=0-3\nexport TRACKER_RESUME=auto\npython train.py 10 0.1\n"
    job = cluster.submit(script)
    cluster.until(lambda: not cluster.command("squeue", "--noheader", f"--jobs={job}"))
    assert [steps(run) for run in runs()] == [list(range(10))] * 4


def test_requeued_job_goes_on_with_its_run(cluster: Cluster) -> None:
    """``scontrol requeue``: the same run, a second attempt, no step twice in what was delivered."""
    job = cluster.submit(
        "#!/bin/bash\n#SBATCH --requeue\nexport TRACKER_RESUME=auto\nsrun python train.py 60 0.1\n",
        "--open-mode=append",
    )
    run = begun(cluster)
    cluster.command("scontrol", "requeue", job)
    cluster.until(lambda: observe(run).name in ("preempted", "crashed"))  # it may be killed at once
    cluster.until(lambda: run.attempt() == 2, 240)  # Slurm waits for two minutes
    cluster.until(lambda: cluster.state(job) in ("COMPLETED", "FAILED"), 120)
    assert cluster.state(job) == "COMPLETED", cluster.said(job)
    (run,) = runs()
    assert run.attempt() == 2
    assert steps(run) == list(range(60))
    assert logged(run) == list(range(60))
    assert last_status(run).name == "finished"


def test_preempted_job_goes_on_with_its_run(cluster: Cluster) -> None:
    """A job of higher priority takes the node: SIGTERM, ``preempted``, and later the rest."""
    job = cluster.submit(
        "#!/bin/bash\n#SBATCH --requeue --partition=low --exclusive\nexport TRACKER_RESUME=auto\n"
        "srun python train.py 60 0.1\n", "--open-mode=append",
    )  # fmt: skip
    run = begun(cluster)
    other = cluster.submit("#!/bin/bash\n#SBATCH --partition=high --exclusive\nsleep 3\n")
    cluster.until(lambda: cluster.state(other) in ("RUNNING", "COMPLETED"))
    cluster.until(lambda: observe(run).name != "running", 60)
    assert observe(run).name == "preempted"
    cluster.until(lambda: cluster.state(job) == "COMPLETED", 300)
    assert steps(run) == logged(run) == list(range(60))


def test_signal_before_the_time_limit_is_a_preemption(cluster: Cluster) -> None:
    """``--signal=SIGUSR1@50`` of two minutes: the run says so, and nothing that was logged is lost, though the step's
    end may take the relay along. Slurm sends it up to a minute early: ten seconds after the start at the earliest."""
    job = cluster.submit("#!/bin/bash\n#SBATCH --time=2 --signal=SIGUSR1@50\nsrun python train.py 100000 0.1\n")
    run = begun(cluster)
    cluster.until(lambda: cluster.state(job) not in ("RUNNING", "PENDING", "CONFIGURING"), 200)
    cluster.until(lambda: observe(run).name != "running", 60)
    assert observe(run).name == "preempted", cluster.said(job)
    cluster.command("trackers", "sync", "runs")
    found = steps(run)
    assert found == list(range(len(found)))
    assert logged(run) == found
    assert last_status(run).name == "preempted"


def test_cancelled_job_loses_nothing(cluster: Cluster) -> None:
    """``scancel``: what was logged is there, and delivered by hand where the job's end took the relay along."""
    job = cluster.submit("#!/bin/bash\nsrun python train.py 100000 0.05\n")
    run = begun(cluster)
    cluster.command("scancel", job)
    cluster.until(lambda: cluster.state(job) == "CANCELLED")
    cluster.command("trackers", "sync", "runs")
    found = steps(run)
    assert found == list(range(len(found)))
    assert logged(run) == found
    assert last_status(run).name in ("preempted", "failed", "crashed")


def test_node_local_disk_and_a_store(cluster: Cluster) -> None:
    """A job whose directory nobody shares: its run is read from the store."""
    store = f"file://{Path.cwd()}/store"
    job = cluster.submit(
        f"#!/bin/bash\nexport TRACKER_DIR={store} TRACKER_STORE_DIR=$PWD/local-$SLURM_JOB_ID\nsrun python train.py 10\n"
    )
    cluster.until(lambda: cluster.state(job) in ("COMPLETED", "FAILED"))
    assert cluster.state(job) == "COMPLETED", cluster.said(job)
    cluster.environment["TRACKER_STORE_DIR"] = str(Path.cwd() / "elsewhere")
    assert re.search(r"job .* finished .* storage ✓", cluster.command("trackers", "ls", "--dir", store))


def test_recipe_of_the_docs_runs_as_printed(cluster: Cluster) -> None:
    """But for the number of nodes and GPUs, which this one hasn't, and the login of W&B."""
    page = (ROOT / "docs/clusters.md").read_text()
    recipe = next(part for part in re.findall(r"```bash show\n(.*?)```", page, re.DOTALL) if "#SBATCH" in part)
    recipe = recipe.replace("--nodes=2 --ntasks-per-node=8 --gpus-per-node=8", "--ntasks=4")
    recipe = recipe.replace("/shared/runs", "$PWD/runs").replace("wandb,json", "json")
    Path("train.py").write_text(WITH_FLAGS)
    job = cluster.submit(recipe)
    cluster.until(lambda: cluster.state(job) in ("COMPLETED", "FAILED"))
    assert cluster.state(job) == "COMPLETED", cluster.said(job)
    (run,) = runs()
    assert steps(run) == list(range(10))
