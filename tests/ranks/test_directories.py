"""Ranks where launchers and machines put them: each job in real processes finds one run, and reads the GPUs it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.fakes.gpu_drivers.standin import Drivers
from tests.ranks.support import LOOP, expected, job, reduced, the_run, until

PLACES: dict[str, dict[str, str]] = {
    "slurm": {"SLURM_PROCID": "{rank}", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"},
    "openmpi": {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-n1-4711@1"},
}
"""What a launcher tells each rank, and nothing else."""


def ranks_of(place: str, script: str, *arguments: str) -> list[subprocess.Popen[str]]:
    """Two ranks as this launcher starts them."""
    found = []
    for rank in (0, 1):
        own = {name: value.format(rank=rank) for name, value in PLACES[place].items()}
        command = [sys.executable, "-c", script.replace('os.environ["RANK"]', f'"{rank}"'), *arguments]
        env = {**os.environ, **own}
        found.append(forked.Program(command, preload=forked.HELPERS, env=env, text=True, stderr=subprocess.PIPE))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_ranks_of_every_launcher_meet_in_one_run(place: str) -> None:
    """Started as SLURM or Open MPI does it: one run with the values of both."""
    processes = ranks_of(place, LOOP, "5")
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert reduced(the_run()) == [(step, expected(step, range(2))) for step in range(5)]


def test_nodes_meet_in_a_shared_directory() -> None:
    """A rank on another machine adds through the directory that both see; killed, which nobody here can know, it is
    named when it is late, and the run ends without it."""
    elsewhere = (
        "import os\nfrom trackers.support import machines\n"
        "if os.environ['RANK'] == '1': machines.host = lambda: 'node1'\n"
    )
    Path("hold").write_text("10")
    with job(elsewhere + LOOP, ["20"], 2, TRACKER_REDUCE_WAIT="1", TRACKER_RUN_ID="mine", TRACKER_SAMPLE="n") as ranks:
        ranks.start(0, 1)
        until(lambda: min(ranks.at(0), ranks.at(1)) == 10, "both ranks at step 10")
        ranks.kill(1)
        Path("hold").unlink()
        ranks.wait(0)
        assert f"rank 1 (process {ranks.ranks[1].pid} on node1) is late" in ranks.said[0]
    found = reduced(the_run())
    assert found[:11] == [(step, expected(step, range(2))) for step in range(11)]
    assert [(step, values["who"], values["stragglers/missing"]) for step, values in found[11:]] == [
        (step, 1.0, 1) for step in range(11, 20)
    ]


def test_killed_main_rank_stops_no_other() -> None:
    """The main rank is killed mid-run: the others go on to their end, and what they added is recorded without it."""
    Path("hold").write_text("10")
    with job(LOOP, ["20"], 3, TRACKER_REDUCE_WAIT="60", TRACKER_SAMPLE="n") as ranks:
        ranks.start(0, 1, 2)
        until(lambda: min(ranks.at(rank) for rank in range(3)) == 10, "the ranks at step 10")
        ranks.kill(0)
        Path("hold").unlink()
        ranks.wait(1, 2)
    run = the_run()
    command = [sys.executable, "-m", "trackers", "sync", str(run)]
    done = forked.run(command, preload=forked.HELPERS)
    assert done.returncode == 0, done.stderr
    found = reduced(run)
    assert found[:11] == [(step, expected(step, range(3))) for step in range(11)]
    assert [(step, values["who"], values["stragglers/missing"]) for step, values in found[11:]] == [
        (step, 6.0, 1) for step in range(11, 20)
    ]
    assert json.loads((run / "delivery/json.json").read_text())["closed"] == "crashed"


ENERGY = """
import os, time, trackers
options = {"TRACKER_LOG_ENERGY": True, "TRACKER_MEASURE_INTERVAL": 2, "TRACKER_TIMING_LEVEL": -1}
run = trackers.init("json", project="p", name="job", options=options)
loop = run.loop(12)
for step in range(12):
    loop.step()
    time.sleep(0.02)
run.finish()
"""


@pytest.mark.slow
def test_rank_without_nvml_holds_nobody_up(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one rank alone has a driver, energy is that of its GPU at every interval, and nobody waits."""
    drivers.set(count=1)
    for name, value in drivers.environment("new").items():
        monkeypatch.setenv(name, value)
    blind = "import os\nif os.environ['RANK'] == '1': os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n"
    with job(blind + ENERGY, [], 2, TRACKER_REDUCE_WAIT="1000", TRACKER_SAMPLE="n") as ranks:
        ranks.start(0, 1)
        ranks.wait()
    found: list[tuple[int, dict[str, Any]]] = reduced(the_run())
    assert [step for step, _ in found] == [2, 4, 6, 8, 10, 12]
    for _, values in found:
        assert set(values) == {"iter-energy/gpu", "power/gpu"}
        assert float(values["iter-energy/gpu"]) > 0
    assert "no GPU here reports its energy" in ranks.said[1]
    assert "no GPU here reports its energy" not in ranks.said[0]
    assert "stragglers" not in json.dumps(found)
