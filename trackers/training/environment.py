"""Environment of the training process: its rank, its visible GPUs, and NCCL's settings.

Only this process can tell. It does so in an Environment record behind its Start, where there is something to tell:
``distributed`` (local_rank, local_world_size, backend) and ``variables``. A process group that is made later than the
run is told of when it is there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from trackers.records import Environment
from trackers.support import process_info

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
LOCAL = {
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "local_world_size": ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}
NCCL = "NCCL_"
DEBUG, DEBUG_FILE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
READER = "session"
"""The tracker that gathers what NCCL writes."""
FOLDER = "nccl"
_LONGEST = 300


def tell(ranks: int, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """An Environment record's values; {} where there is nothing to tell.

    Args:
        ranks: how many train together.
    """
    environ = os.environ if environ is None else environ
    distributed: dict[str, Any] = {}
    if ranks > 1:
        for name, sources in LOCAL.items():
            found = next((environ[variable] for variable in sources if environ.get(variable, "").isdigit()), None)
            if found is not None:
                distributed[name] = int(found)
        if backend():
            distributed["backend"] = backend()
    names = [name for name in environ if name in VISIBLE or name.startswith(NCCL)]
    variables = {name: environ[name][:_LONGEST] for name in sorted(names)}
    parts = {"distributed": distributed, "variables": variables}
    return {name: part for name, part in parts.items() if part}


def backend() -> str:
    """torch.distributed's backend as it calls it, "nccl" or "cpu:gloo,cuda:nccl"; "" while there is no group."""
    distributed = process_info.torch_distributed()
    if distributed is None:
        return ""
    try:
        name = str(distributed.get_backend())
    except Exception:  # a group that this process isn't part of, or one that is being taken down
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


def place_nccl(
    trackers: Sequence[str], folder: Path, rank: int, environ: MutableMapping[str, str] | None = None
) -> None:
    """Have NCCL write what ``NCCL_DEBUG`` asks for into a folder, if a tracker reads it there.

    Nothing is changed where the user named a file, and nothing for NCCL that has written already. A folder that can't
    be made leaves NCCL writing to the terminal.

    Args:
        folder: the run's directory, or its launch's. rank: this process's.
    """
    environ = os.environ if environ is None else environ
    if READER not in trackers or not environ.get(DEBUG) or environ.get(DEBUG_FILE):
        return
    with contextlib.suppress(OSError):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        environ[DEBUG_FILE] = str((folder / FOLDER).absolute() / f"rank-{rank}.%h.%p.log")
