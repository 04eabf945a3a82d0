"""Which job a process is part of, and what announces its end, by the variables that schedulers document."""

from __future__ import annotations

import signal

import pytest

from trackers.support import schedulers
from trackers.support.schedulers import BatchJob, grace_signals, job

SLURM = {"SLURM_JOB_ID": "123"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
INDEXED = {**KUBERNETES, "JOB_COMPLETION_INDEX": "3", "HOSTNAME": "train-3"}
SAGEMAKER = {"TRAINING_JOB_NAME": "digits-2026", "SM_CURRENT_HOST": "algo-1"}
VERTEX = {"CLOUD_ML_JOB_ID": "4711"}
HUGGING_FACE = {"JOB_ID": "687fb701029421ae5549d998", "ACCELERATOR": "", "CPU_CORES": "8", "MEMORY": "32Gi"}
ARRAY = {"SLURM_JOB_ID": "77", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "2"}


@pytest.fixture(autouse=True)
def first_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "_life", lambda: "boot 1")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        (SLURM, BatchJob("123")),
        (ARRAY, BatchJob("70_3", 2, task="3")),
        (KUBERNETES, None),
        (INDEXED, BatchJob("kubernetes train-3", life="boot 1", task="3")),
        ({**INDEXED, "HOSTNAME": "node-of-the-host-network"}, None),
        ({**INDEXED, "HOSTNAME": "set-workers-0-3"}, BatchJob("kubernetes set-workers-0-3", life="boot 1", task="3")),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "train-3"}, None),
        (SAGEMAKER, BatchJob("sagemaker digits-2026", life="boot 1")),
        ({"TRAINING_JOB_NAME": "somebody's own variable"}, None),
        (VERTEX, BatchJob("vertex 4711", life="boot 1")),
        (HUGGING_FACE, BatchJob("huggingface 687fb701029421ae5549d998", life="boot 1")),
        ({"JOB_ID": "31"}, None),
        ({**SLURM, "SLURM_RESTART_COUNT": "no number"}, BatchJob("123")),
    ],
)
def test_job_is_the_schedulers(environ: dict[str, str], expected: BatchJob | None) -> None:
    """A variable that others have as well (JOB_ID) isn't enough, and a pod is known only by a name that stays."""
    assert job(environ) == expected


def test_signals_follow_the_scheduler() -> None:
    """SLURM's users choose among three, others send one, elsewhere nothing is a warning."""
    assert grace_signals(SLURM) == [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
    for environ in (KUBERNETES, SAGEMAKER, VERTEX):
        assert grace_signals(environ) == [signal.SIGTERM]
    for environ in ({}, HUGGING_FACE, {"TRAINING_JOB_NAME": "x"}):
        assert grace_signals(environ) == []


def test_later_life_is_known_by_its_count_or_its_container() -> None:
    """Of what an attempt stored; nothing that is missing or damaged there counts as one."""
    slurm, pod = BatchJob("123", 1), BatchJob("kubernetes train-3", life="boot 2", task="3")
    assert slurm.later(BatchJob("123").to_entry())
    assert not slurm.later(slurm.to_entry())
    assert not slurm.later(BatchJob("124").to_entry())
    assert pod.later(BatchJob("kubernetes train-3", life="boot 1", task="3").to_entry())
    assert not pod.later(pod.to_entry())
    for damaged in ({}, {"job": pod.id}, {"job": pod.id, "restart": "0", "life": "boot 1"}, {"job": 3}):
        assert not pod.later(damaged)


def test_tasks_are_told_apart() -> None:
    """The same task of another array may be gone on with; another task may not."""
    third, fourth = BatchJob("70_3", task="3"), BatchJob("70_4", task="4")
    assert third.other_task(fourth.to_entry())
    assert not third.other_task(BatchJob("80_3", task="3").to_entry())
    assert not third.other_task(BatchJob("123").to_entry())
    assert not BatchJob("123").other_task(third.to_entry())


def test_life_names_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same within a container, and on this machine."""
    monkeypatch.undo()
    assert schedulers._life() == schedulers._life()
    boot, _, started = schedulers._life().rpartition(" ")
    assert boot
    assert started.isdigit()
