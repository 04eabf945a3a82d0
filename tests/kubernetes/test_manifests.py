"""What the manifests of the documentation name is there, and pods that start as they say continue their runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trackers
from tests.helpers import wait_for
from tests.kubernetes.manifests import PATHS, containers, environment, jobs, load
from trackers.backends import registry
from trackers.configuration.kconfig import Tree
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.journal.status import observe
from trackers.object_storage import addresses, mirror

JOBSET = {"failurePolicy": {"maxRestarts"}, "replicatedJobs": {"name", "replicas", "template"}}
"""The fields of a JobSet (v1alpha2) that are used; all validate against the resource's definition of version 0.10."""
TRAIN = """
import sys, time
import trackers
run = trackers.init(project="digits", config={"seed": sys.argv[2] if "--seed" in sys.argv else None})
for step in range(run.step + 1 if run.resumed else 0, 40):
    run.log({"loss": step / 7}, step=step)
    if step == 20 and not run.resumed:
        print("half", flush=True)
        time.sleep(600)
run.finish()
"""


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_names_are_options_and_trackers(path: Path) -> None:
    """A variable that nobody reads would be taken in silence."""
    known = set(Tree().declarations)
    for container in containers(load(path)):
        for name in environment(container):
            if name.startswith("TRACKER_"):
                assert name in known
        words = " ".join(container["command"]).split()
        if "--tracker" in words:
            registry.parse(words[words.index("--tracker") + 1])


def test_jobset_has_known_fields() -> None:
    (path,) = [path for path in PATHS if load(path)["kind"] == "JobSet"]
    spec = load(path)["spec"]
    assert spec.keys() == JOBSET.keys()
    assert spec["failurePolicy"].keys() == JOBSET["failurePolicy"]
    for replicated in spec["replicatedJobs"]:
        assert replicated.keys() == JOBSET["replicatedJobs"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_pod_has_time_to_deliver(path: Path) -> None:
    """A name that stays, and more seconds after SIGTERM than the relay takes."""
    for job in jobs(load(path)):
        assert job["spec"]["completionMode"] == "Indexed"
        assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 30


@pytest.mark.slow
@pytest.mark.processes
def test_evicted_pods_continue_their_runs(tmp_path: Path) -> None:
    """The sweep's command, two indexes, both evicted: each pod that comes again continues its own run."""
    manifest = load(next(path for path in PATHS if path.stem == "sweep"))
    (container,) = containers(manifest)
    (tmp_path / "train.py").write_text(TRAIN)
    store = f"file://{tmp_path}/bucket"
    found: dict[str, list[str]] = {}

    def pod(index: str, node: str) -> subprocess.Popen[str]:
        own = {
            **os.environ, **environment(container), "TRACKER_DIR": store, "TRACKER_STORE_DIR": str(tmp_path / node),
            "KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": index, "HOSTNAME": f"seeds-{index}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        pipe = subprocess.PIPE
        return subprocess.Popen(container["command"], env=own, cwd=tmp_path, text=True, stdout=pipe, stderr=pipe)

    def runs() -> list[RunDirectory]:
        return list(find_runs(mirror.update_copy(addresses.normalize(store), str(tmp_path / "reader"))))

    for index in "01":
        first = pod(index, "a")
        assert first.stdout is not None
        assert first.stdout.readline() == "half\n"
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=60)
        assert first.returncode == -signal.SIGTERM
    wait_for(lambda: [observe(run).name for run in runs()] == ["preempted"] * 2)
    for index in "01":
        again = pod(index, "b")
        _, said = again.communicate(timeout=60)
        assert again.returncode == 0, said
    wait_for(lambda: [observe(run).name for run in runs()] == ["finished"] * 2)
    for run in runs():
        loaded = trackers.load(str(run.path))
        found.setdefault(str(loaded.config["seed"]), []).append(loaded.status)
        assert loaded.metrics()["step"].to_pylist() == list(range(40))
    assert sorted(found) == ["0", "1"]
