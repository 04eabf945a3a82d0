"""What a launcher (torchrun, srun, mpirun) told this process: its rank, and how many ranks there are."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from trackers.support.interruption import pass_on

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LAUNCHER_VARIABLES = frozenset(
    {*RANK_VARIABLES, *WORLD_SIZE_VARIABLES, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"}
    | {"MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "SLURM_NODEID"}
)
"""Variables that a launcher sets for each rank; helper processes must not inherit them."""


def rank(environ: Mapping[str, str] | None = None) -> int:
    """This process's rank: from the launcher's variables, else torch.distributed when initialised, else 0."""
    environ = os.environ if environ is None else environ
    for name in RANK_VARIABLES:
        if _is_number(environ.get(name)):
            # A plain `python` inside an sbatch allocation has SLURM_PROCID=0, which is right: one task.
            return int(environ[name])
    distributed = torch_distributed()
    return int(distributed.get_rank()) if distributed else 0


def world_size(environ: Mapping[str, str] | None = None) -> int:
    """How many ranks the launcher started; 1 if none did."""
    environ = os.environ if environ is None else environ
    if not any(_is_number(environ.get(name)) for name in RANK_VARIABLES):
        distributed = torch_distributed()
        return int(distributed.get_world_size()) if distributed else 1
    for name in WORLD_SIZE_VARIABLES:
        if _is_number(environ.get(name)):
            return max(1, int(environ[name]))
    return 1


def torch_distributed() -> Any:
    """The module ``torch.distributed`` where it is initialised; None else, without loading it."""
    module = sys.modules.get("torch.distributed")
    try:
        return module if module is not None and module.is_available() and module.is_initialized() else None
    except Exception as error:  # a half-imported torch: as if it weren't there
        pass_on(error)
        return None


def _is_number(text: str | None) -> bool:
    return text is not None and re.fullmatch(r"\d{1,9}", text.strip()) is not None
