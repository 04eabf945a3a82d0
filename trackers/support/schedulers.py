"""The scheduler that a process runs under: its job, and the signals by which it announces an end.

Each by its documentation:
https://slurm.schedmd.com/sbatch.html (SLURM_RESTART_COUNT, "OUTPUT ENVIRONMENT VARIABLES", ``--signal``),
https://slurm.schedmd.com/preempt.html (GraceTime),
https://kubernetes.io/docs/concepts/workloads/controllers/job/ (completion mode "Indexed": JOB_COMPLETION_INDEX and the
pod's host name) and …/pods/pod-lifecycle/ (termination), which JobSet's pods have as well,
https://docs.aws.amazon.com/sagemaker/latest/dg/ (TRAINING_JOB_NAME, SM_CURRENT_HOST; SIGTERM and 120 s),
https://cloud.google.com/vertex-ai/docs/training/code-requirements (CLOUD_ML_JOB_ID),
https://huggingface.co/docs/huggingface_hub/guides/jobs (JOB_ID, ACCELERATOR, CPU_CORES, MEMORY).
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping

import msgspec

from trackers.support import machines, processes

_HUGGING_FACE = ("JOB_ID", "ACCELERATOR", "CPU_CORES", "MEMORY")
"""JOB_ID alone is many schedulers' variable."""


class BatchJob(msgspec.Struct, frozen=True):
    """A batch job as its scheduler counts it.

    Attributes:
        id: the same after a restart.
        restart: how often it was requeued, where the scheduler says so.
        life: names this start of its container where the scheduler counts none; "" elsewhere.
        task: its number in an array or an indexed job; "" where it is none of several.
    """

    id: str
    restart: int = 0
    life: str = ""
    task: str = ""

    def to_entry(self) -> dict[str, object]:
        """Its fields in an attempt's entry in ``run.json``."""
        more = {name: text for name, text in (("life", self.life), ("task", self.task)) if text}
        return {"job": self.id, "restart": self.restart, **more}

    def same(self, attempt: Mapping[str, object]) -> bool:
        """Whether an attempt was this job's."""
        return attempt.get("job") == self.id

    def later(self, attempt: Mapping[str, object]) -> bool:
        """Whether an attempt was an earlier life of this job, which has ended even if it seems to run."""
        before = attempt.get("restart", 0)
        if not self.same(attempt) or not isinstance(before, int):
            return False
        return self.restart > before or bool(self.life and attempt.get("life") and self.life != attempt["life"])

    def other_task(self, attempt: Mapping[str, object]) -> bool:
        """Whether an attempt was another task's: of several with one command line, each has its run."""
        return bool(self.task and attempt.get("task") and self.task != attempt["task"])


def job(environ: Mapping[str, str] | None = None) -> BatchJob | None:
    """The job that this process is part of, each task of an array one of its own; None outside of one."""
    environ = os.environ if environ is None else environ
    if environ.get("SLURM_JOB_ID"):
        array, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
        number = f"{array}_{task}" if array and task else environ["SLURM_JOB_ID"]
        restart = environ.get("SLURM_RESTART_COUNT", "0")
        return BatchJob(number, int(restart) if restart.isdigit() else 0, task=task if array else "")
    index = environ.get("JOB_COMPLETION_INDEX", "")
    if environ.get("KUBERNETES_SERVICE_HOST") and index.isdigit():
        host = environ.get("HOSTNAME") or socket.gethostname()
        return BatchJob(f"kubernetes {host}", life=_life(), task=index) if host.endswith(f"-{index}") else None
    if _sagemaker(environ):
        return BatchJob(f"sagemaker {environ['TRAINING_JOB_NAME']}", life=_life())
    if environ.get("CLOUD_ML_JOB_ID"):
        return BatchJob(f"vertex {environ['CLOUD_ML_JOB_ID']}", life=_life())
    if all(name in environ for name in _HUGGING_FACE):
        return BatchJob(f"huggingface {environ['JOB_ID']}", life=_life())
    return None


def grace_signals(environ: Mapping[str, str] | None = None) -> list[int]:
    """The signals that announce a preemption here; none where no scheduler is known that sends any."""
    environ = os.environ if environ is None else environ
    names: tuple[str, ...] = ()
    if "SLURM_JOB_ID" in environ:
        names = ("SIGTERM", "SIGUSR1", "SIGUSR2")
    elif "KUBERNETES_SERVICE_HOST" in environ or "CLOUD_ML_JOB_ID" in environ or _sagemaker(environ):
        names = ("SIGTERM",)
    return [int(getattr(signal, name)) for name in names if hasattr(signal, name)]


def _sagemaker(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("TRAINING_JOB_NAME")) and ("SM_CURRENT_HOST" in environ or os.path.isdir("/opt/ml/input"))


def _life() -> str:
    """This start of a container: its first process. That of a machine is the same for all that starts on it."""
    return f"{machines.boot_id()} {processes.process_start(1):.0f}"
