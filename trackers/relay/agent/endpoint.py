"""The endpoint of a process's host agent: its key, socket and lock.

An agent's forks inherit what a new process would have inherited from training. A fork can be given training's
environment, umask and processors; everything else must be the same from the start, and is part of the agent's key. So
are the environment variables that vendors' packages read while they are imported. This was determined with mlflow 3.17,
wandb 0.31, trackio 0.43 and tensorboard 2.21, by recording each variable that they looked up: all others are read when
they are used, credentials and addresses too, and no client of AWS, Google or Azure is imported. Variables that say who
runs them (continuous integration and the like) are left out: they are read for telemetry only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from trackers._version import __version__
from trackers.journal import helper_process
from trackers.support.runtime_directory import directory as directory
from trackers.support.runtime_directory import open_directory as open_directory

PREFIXES = (
    "PYTHON", "_PYTHON", "LC_", "LD_", "GLIBC_", "MALLOC_", "XDG_", "SSL", "OPENSSL_", "SQLITE_",
    "WANDB_", "MLFLOW_", "_MLFLOW", "DATABRICKS_", "TRACKIO_", "GRADIO_", "HF_", "HUGGINGFACE_", "FSSPEC_", "OTEL_",
    "OMP_", "MKL_", "OPENBLAS_", "GOTOBLAS_", "NUMEXPR_", "VECLIB_", "NUMPY_", "NPY_", "PANDAS_", "PILLOW_",
    "PYDANTIC_", "PROTOCOL_BUFFERS_", "ARROW_", "JE_",
)  # fmt: skip
NAMES = frozenset({
    "HOME", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "CI", "DO_NOT_TRACK", "DISABLE_TELEMETRY",
    "TRANSFORMERS_OFFLINE", "EAGER_IMPORT", "CUDA_VISIBLE_DEVICES", "TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK",
    "TOKENIZERS_PARALLELISM", "SLURM_JOB_ID", "SLURM_STEP_ID",
})  # fmt: skip
"""Variables that an agent has, with those that begin with :data:`PREFIXES`. A job of SLURM's has agents of its own:
what outlives it is killed."""
LATE = frozenset({
    "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_DIR", "WANDB_ENTITY", "WANDB_GROUP", "WANDB_JOB_TYPE", "WANDB_MODE",
    "WANDB_NAME", "WANDB_NOTES", "WANDB_OFFLINE", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_USERNAME",
    "MLFLOW_EXPERIMENT", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "MLFLOW_RUN_NAME",
    "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_REGISTRY_URI", "TRACKIO_PROJECT", "TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID", "HF_TOKEN",
    "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS", "XDG_SEAT", "XDG_VTNR",
})  # fmt: skip
"""Variables among them that aren't read before a run is delivered, and differ from run to run."""
_STATUS = ("Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_CREDENTIALS = struct.Struct("3i")


def environment(helper: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment: the variables of a helper's that are read while packages are imported."""
    return {
        name: value
        for name, value in helper.items()
        if (name in NAMES or name.startswith(PREFIXES)) and name not in LATE
    }


def key(helper: Mapping[str, str], avoid: Iterable[str]) -> str:
    """The key of the agent whose forks are like this process's helpers.

    Args:
        helper: the environment of the helpers.
        avoid: directories that aren't on their import path.

    Raises:
        OSError: what they would inherit can't be determined.
    """
    import resource

    path = {os.path.abspath(part) for part in (*helper.get("PYTHONPATH", "").split(os.pathsep), *sys.path[1:]) if part}
    status = Path("/proc/self/status").read_text().splitlines()
    limits = [value for name, value in sorted(vars(resource).items()) if name.startswith("RLIMIT_")]
    root = os.stat(os.sep)
    content = [
        __version__,
        str(helper_process.HOME),
        (sys.executable, sys.prefix, sys.version),
        sorted(environment(helper).items()),
        sorted(path.intersection(helper_process.avoided(avoid))),
        [resource.getrlimit(limit) for limit in limits],
        os.getpriority(os.PRIO_PROCESS, 0),
        [line for line in status if line.startswith(_STATUS)],
        *(Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "oom_score_adj")),
        [os.stat(f"/proc/self/ns/{name}").st_ino for name in _NAMESPACES],
        (root.st_dev, root.st_ino),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]


def address(folder: int, name: str) -> str:
    """The address of an agent's socket: short, and in the directory that was checked."""
    return f"/proc/self/fd/{folder}/{name}.sock"


def lock(folder: int, name: str) -> int:
    """A descriptor that holds an agent's lock; -1 while another process holds it.

    Raises:
        OSError: there can be no lock.
    """
    import fcntl

    while True:
        fd = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if holds_lock(folder, name, fd):
                return fd
        except BlockingIOError:
            os.close(fd)
            return -1
        os.close(fd)  # its holder removed it meanwhile


def holds_lock(folder: int, name: str, fd: int) -> bool:
    """Whether a descriptor of :func:`lock` still holds the lock: nobody has removed the file."""
    return os.fstat(fd).st_ino == _inode(folder, f"{name}.lock")


def is_alive(folder: int, name: str) -> bool:
    """Whether an agent of that name is running."""
    if _inode(folder, f"{name}.lock") < 0:
        return False
    fd = lock(folder, name)
    if fd >= 0:
        remove(folder, name)
        os.close(fd)
    return fd < 0


def remove(folder: int, name: str) -> None:
    """Remove an agent's files. The caller holds its lock, which is void afterwards."""
    for ending in ("sock", "lock"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{name}.{ending}", dir_fd=folder)


def remove_socket(folder: int, name: str, inode: int) -> None:
    """Remove an agent's socket, unless another agent has replaced it."""
    with contextlib.suppress(OSError):
        if _inode(folder, f"{name}.sock") == inode:
            os.unlink(f"{name}.sock", dir_fd=folder)


def living() -> list[str]:
    """Keys of this user's running agents on this machine.

    Raises:
        OSError: their directory can't be used.
    """
    try:
        folder = open_directory(directory())
    except FileNotFoundError:
        return []
    try:
        names = sorted(name.removesuffix(".lock") for name in os.listdir(folder) if name.endswith(".lock"))
        return [name for name in names if is_alive(folder, name)]
    finally:
        os.close(folder)


def peer(connection: socket.socket) -> int:
    """The user id of the other side."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(content)[1])


def peer_pid(connection: socket.socket) -> int:
    """The pid of the other side, or of the listening process; 0 if it is in another pid namespace."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(content)[0])


def _inode(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return -1
