"""Number of this process's machine within a job, as its launcher reports it.

By the launchers' documentation: https://docs.pytorch.org/docs/stable/elastic/run.html (GROUP_RANK counts agents, one
a machine), https://slurm.schedmd.com/srun.html (output environment variables),
https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class NodePlace(NamedTuple):
    """node: this machine's number among ``nodes``. first: no other rank of this machine has a lower local rank."""

    node: int = 0
    nodes: int = 1
    first: bool = True

    def of(self, rank: int) -> int:
        """The machine of the main rank: rank 0 is on the first, the last rank on the last."""
        return 0 if rank == 0 else self.nodes - 1


def place(environ: Mapping[str, str] | None = None) -> NodePlace:
    """This process's place; the only machine where no launcher says otherwise."""
    environ = os.environ if environ is None else environ
    for node, nodes, local in (
        ("GROUP_RANK", ("GROUP_WORLD_SIZE",), "LOCAL_RANK"),
        ("SLURM_NODEID", ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), "SLURM_LOCALID"),
    ):
        count = next((number(environ, name) for name in nodes if environ.get(name)), None)
        own = number(environ, node)
        if own is not None and count is not None and count > 1 and own < count:
            return NodePlace(own, count, number(environ, local) in (0, None))
    for rank, world, local_world, local in (
        ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ):
        own, ranks, here = number(environ, rank), number(environ, world), number(environ, local_world)
        if own is not None and ranks and here and ranks > here and own < ranks:
            # Ranks fill one machine after the other, as torchrun and mpirun's default do.
            return NodePlace(own // here, -(-ranks // here), number(environ, local) in (0, None))
    return NodePlace()


def number(environ: Mapping[str, str], name: str) -> int | None:
    """A variable that holds a whole number, 0 or more; None for anything else."""
    text = environ.get(name, "").strip()
    return int(text) if text.isdigit() and len(text) < 10 else None
