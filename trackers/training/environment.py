"""Environment of the training process: its rank, its machine's number, its visible GPUs, and NCCL's settings.

Only this process can tell. It does so in an Environment record behind its Start, where there is something to tell:
``distributed`` (local_rank, local_world_size, backend) and ``variables``. A process group that is made later than the
run is told of when it is there.

The machine's number within a job is as its launcher reports it: https://docs.pytorch.org/docs/stable/elastic/run.html
(GROUP_RANK counts agents, one a machine), https://slurm.schedmd.com/srun.html (output environment variables),
https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.backends import registry
from trackers.records import Environment
from trackers.support import confined, launcher
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask


class NodePosition(NamedTuple):
    """node: this machine's number among ``nodes``. first: no other rank of this machine has a lower local rank."""

    node: int = 0
    nodes: int = 1
    first: bool = True

    def node_of(self, rank: int) -> int:
        """The machine of the main rank: rank 0 is on the first, the last rank on the last."""
        return 0 if rank == 0 else self.nodes - 1


def node_position(environ: Mapping[str, str] | None = None) -> NodePosition:
    """This process's machine among those of the job; the only machine where no launcher says otherwise."""
    environ = os.environ if environ is None else environ
    for node, nodes, local in (
        ("GROUP_RANK", ("GROUP_WORLD_SIZE",), "LOCAL_RANK"),  # before Slurm's, which counts torchrun as one task
        ("SLURM_NODEID", ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), "SLURM_LOCALID"),
    ):
        count = next((_number(environ, name) for name in nodes if environ.get(name)), None)
        own = _number(environ, node)
        if own is not None and count is not None and count > 1 and own < count:  # else of another job
            return NodePosition(own, count, _number(environ, local) in (0, None))
    for rank, world, local_world, local in (
        ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ):
        own, ranks, here = _number(environ, rank), _number(environ, world), _number(environ, local_world)
        if own is not None and ranks and here and ranks > here and own < ranks:
            # Ranks fill one machine after the other, as torchrun and mpirun's default do.
            return NodePosition(own // here, -(-ranks // here), _number(environ, local) in (0, None))
    return NodePosition()


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """A variable that holds a whole number, 0 or more; None for anything else."""
    text = environ.get(name, "").strip()
    return int(text) if text.isdigit() and len(text) < 10 else None


VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
LOCAL = {
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "local_world_size": ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}
NCCL = "NCCL_"
DEBUG, DEBUG_FILE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
FOLDER = "nccl"
_LONGEST = 300


def describe(ranks: int, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The values of an Environment record about the ranks; {} without any.

    Args:
        ranks: how many train together.
    """
    environ = os.environ if environ is None else environ
    distributed: dict[str, Any] = {}
    if ranks > 1:
        for name, sources in LOCAL.items():
            rank = next((environ[variable] for variable in sources if environ.get(variable, "").isdigit()), None)
            if rank is not None:
                distributed[name] = int(rank)
        if backend():
            distributed["backend"] = backend()
    names = [name for name in environ if name in VISIBLE or name.startswith(NCCL)]
    masked = mask({name: environ[name] for name in sorted(names)})
    variables = {name: text[:_LONGEST] for name, text in masked.items()}
    parts = {"distributed": distributed, "variables": variables}
    return {name: part for name, part in parts.items() if part}


def backend() -> str:
    """torch.distributed's backend as it calls it, "nccl" or "cpu:gloo,cuda:nccl"; "" while there is no group."""
    distributed = launcher.torch_distributed()
    if distributed is None:
        return ""
    try:
        name = str(distributed.get_backend())
    except Exception as error:  # a group that this process isn't part of, or one that is being taken down
        pass_on(error)
        return ""
    return "" if name == "undefined" else name


def later(ranks: int, now: Callable[[], float]) -> Callable[[], Environment | None] | None:
    """What to ask now and then for a record of the process group, until there is one; None where that isn't needed.

    Args:
        ranks: how many train together. now: Unix seconds.
    """
    if ranks <= 1 or backend():
        return None

    def look() -> Environment | None:
        name = backend()
        return Environment(time=now(), values={"distributed": {"backend": name}}) if name else None

    return look


def direct_nccl_log(
    trackers: Sequence[str], folder: Path, rank: int, environ: MutableMapping[str, str] | None = None
) -> None:
    """Have NCCL write what ``NCCL_DEBUG`` asks for into a folder, if a tracker reads it there.

    Nothing is changed where the user named a file, and nothing for NCCL that has written already. A folder that can't
    be made leaves NCCL writing to the terminal.

    Args:
        folder: the run's directory, or its launch's. rank: this process's.
    """
    environ = os.environ if environ is None else environ
    if not environ.get(DEBUG) or environ.get(DEBUG_FILE):
        return
    if not any(registry.identity(name).gathers_nccl for name in trackers):
        return
    with suppress(OSError):
        confined.make_own(folder)
        confined.make_folder(folder / FOLDER)
        environ[DEBUG_FILE] = str((folder / FOLDER).absolute() / f"rank-{rank}.%h.%p.log")  # NCCL: host, pid
