"""The endpoint of a process's host agent: its key, socket and lock.

An agent's forks inherit what a new process would have inherited from training. A fork can be given training's
environment, umask and processors; everything else must be the same from the start, and is part of the agent's key. So
are the environment variables that vendors' packages read while they are imported, each by its name. They were
determined with mlflow 3.17, wandb 0.31, trackio 0.43 and tensorboard 2.21, by recording what they looked up, also in
C: all others are read when they are used, credentials and addresses too, and no client of AWS, Google or Azure is
imported. Variables that say who runs them (continuous integration and the like) are left out: they are read for
telemetry only.
"""

from __future__ import annotations

import contextlib
import errno
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
from trackers.support.redaction import mask_text
from trackers.support.runtime_directory import directory as directory
from trackers.support.runtime_directory import open_directory as open_directory
from trackers.support.secret_names import word_set

NAMES = word_set(
    # The system and the C library.
    "HOME PATH LANG LANGUAGE TZ TMPDIR TEMP TMP LC_ALL LC_CTYPE LC_COLLATE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME "
    "LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT LD_BIND_NOW LD_DEBUG LD_DEBUG_OUTPUT LD_DYNAMIC_WEAK LD_ORIGIN_PATH "
    "GLIBC_TUNABLES MALLOC_ARENA_MAX MALLOC_ARENA_TEST MALLOC_CHECK_ MALLOC_MMAP_MAX_ MALLOC_MMAP_THRESHOLD_ "
    "MALLOC_PERTURB_ MALLOC_TOP_PAD_ MALLOC_TRIM_THRESHOLD_ XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME "
    "XDG_STATE_HOME XDG_CONFIG_DIRS XDG_DATA_DIRS SLURM_JOB_ID SLURM_STEP_ID CUDA_VISIBLE_DEVICES "
    # Certificates, SQLite.
    "SSL_CERT_FILE SSL_CERT_DIR SSLKEYLOGFILE OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES OPENSSL_ia32cap "
    "CRYPTOGRAPHY_OPENSSL_NO_LEGACY SQLITE_TMPDIR "
    # Python.
    "PYTHONHOME PYTHONPATH PYTHONPLATLIBDIR PYTHONSAFEPATH PYTHONNOUSERSITE PYTHONUSERBASE PYTHONEXECUTABLE "
    "PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX PYTHONOPTIMIZE PYTHONHASHSEED PYTHONUTF8 PYTHONIOENCODING "
    "PYTHONCOERCECLOCALE PYTHONUNBUFFERED PYTHONWARNINGS PYTHONWARNDEFAULTENCODING PYTHONFAULTHANDLER PYTHONDEVMODE "
    "PYTHONMALLOC PYTHONMALLOCSTATS PYTHONTRACEMALLOC PYTHONPROFILEIMPORTTIME PYTHONASYNCIODEBUG PYTHONDEBUG "
    "PYTHONVERBOSE PYTHONINSPECT PYTHONBREAKPOINT PYTHONINTMAXSTRDIGITS PYTHONNODEBUGRANGES PYTHONPERFSUPPORT "
    "PYTHONDOCS PYTHONTZPATH PYTHON_GIL PYTHON_JIT PYTHON_CPU_COUNT PYTHON_FROZEN_MODULES PYTHON_COLORS "
    "_PYTHON_PROJECT_BASE _PYTHON_SYSCONFIGDATA_NAME _PYTHON_SYSCONFIGDATA_PATH PYTHON_ZSTANDARD_IMPORT_POLICY "
    # Numbers and tables.
    "OMP_NUM_THREADS OMP_ADAPTIVE OMP_PROC_BIND OMP_PLACES OMP_DYNAMIC OMP_WAIT_POLICY MKL_NUM_THREADS MKL_DYNAMIC "
    "KMP_AFFINITY KMP_BLOCKTIME GOTO_NUM_THREADS OPENBLAS_NUM_THREADS OPENBLAS_DEFAULT_NUM_THREADS "
    "OPENBLAS_MAIN_FREE GOTOBLAS_MAIN_FREE OPENBLAS_CORETYPE OPENBLAS_VERBOSE OPENBLAS_BLOCK_FACTOR OPENBLAS_L2_SIZE "
    "OPENBLAS_THREAD_TIMEOUT VECLIB_MAXIMUM_THREADS NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS NPY_DISABLE_CPU_FEATURES "
    "NPY_ENABLE_CPU_FEATURES NPY_PROMOTION_STATE NUMPY_MADVISE_HUGEPAGE NUMPY_WARN_IF_NO_MEM_POLICY SCIPY_ARRAY_API "
    "SCIPY_DEVICE PANDAS_COPY_ON_WRITE PANDAS_FUTURE PANDAS_FUTURE_DISTINGUISH_NAN_AND_NA "
    "PANDAS_FUTURE_INFER_FREQ_RETURNS_OFFSET PANDAS_FUTURE_INFER_STRING PANDAS_FUTURE_PYTHON_SCALARS "
    "PILLOW_ALIGNMENT PILLOW_BLOCKS_MAX PILLOW_BLOCK_SIZE ARROW_DEBUG_MEMORY_POOL ARROW_DEFAULT_MEMORY_POOL "
    "ARROW_USER_SIMD_LEVEL JE_ARROW_MALLOC_CONF PYDANTIC_DISABLE_PLUGINS PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION "
    "TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK FSSPEC_CONFIG_DIR "
    # Trackers' clients.
    "CI DO_NOT_TRACK DISABLE_TELEMETRY TRANSFORMERS_OFFLINE TOKENIZERS_PARALLELISM EAGER_IMPORT "
    "WANDB_DISABLE_CACHE WANDB_HTTP_TIMEOUT WANDB_INSECURE_DISABLE_SSL WANDB_LAUNCH_START_TIMEOUT WANDB_ONLY_INCLUDE "
    "MLFLOW_CONFIGURE_LOGGING MLFLOW_DISABLE_AGENT_HINT MLFLOW_DISABLE_TELEMETRY MLFLOW_HTTP_REQUEST_MAX_RETRIES "
    "MLFLOW_HTTP_REQUEST_TIMEOUT MLFLOW_LOGGING_CONFIGURE_LOGGING MLFLOW_LOGGING_LEVEL "
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT _MLFLOW_TELEMETRY_SESSION_ID _MLFLOW_TESTING_TELEMETRY "
    "DATABRICKS_ENV_VERSION DATABRICKS_RUNTIME_VERSION OTEL_PROPAGATORS OTEL_PYTHON_CONTEXT "
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT TRACKIO_DIR GRADIO_NUM_PORTS GRADIO_SERVER_NAME GRADIO_SERVER_PORT "
    "GRADIO_SHARE_SERVER_ADDRESS GRADIO_TEMP_DIR HF_HOME HF_ENDPOINT HF_INFERENCE_ENDPOINT HF_DEBUG HF_TOKEN_PATH "
    "HF_ASSETS_CACHE HF_HUB_CACHE HF_XET_CACHE HF_XET_HIGH_PERFORMANCE HF_DEVICE_CODE_OAUTH_CLIENT_ID "
    "HF_HUB_DISABLE_EXPERIMENTAL_WARNING HF_HUB_DISABLE_IMPLICIT_TOKEN HF_HUB_DISABLE_PROGRESS_BARS "
    "HF_HUB_DISABLE_SHARED_BLOBS HF_HUB_DISABLE_SYMLINKS HF_HUB_DISABLE_SYMLINKS_WARNING HF_HUB_DISABLE_TELEMETRY "
    "HF_HUB_DISABLE_UPDATE_CHECK HF_HUB_DISABLE_XET HF_HUB_DOWNLOAD_TIMEOUT HF_HUB_ENABLE_HF_TRANSFER "
    "HF_HUB_ETAG_TIMEOUT HF_HUB_LOCAL_DIR_AUTO_SYMLINK_THRESHOLD HF_HUB_OFFLINE HF_HUB_USER_AGENT_ORIGIN "
    "HF_HUB_VERBOSITY HUGGINGFACE_ASSETS_CACHE HUGGINGFACE_CO_STAGING HUGGINGFACE_HUB_CACHE"
)
"""Variables that an agent has: all that packages read while they are imported, of what deliveries use. A job of SLURM's
has agents of its own: what outlives it is killed."""
_STATUS = ("Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_CREDENTIALS = struct.Struct("3i")


def environment(helper: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment: the variables of a helper's that are read while packages are imported, and no others. It
    outlives a run, so it holds no credentials: a run's go to the forks."""
    return {name: value for name, value in helper.items() if name in NAMES}


def key(helper: Mapping[str, str], avoid: Iterable[str], python: str = "") -> str:
    """The key of the agent whose forks are like this process's helpers.

    Args:
        helper: the environment of the helpers.
        avoid: directories that aren't on their import path.
        python: their interpreter; default: this one.

    Raises:
        OSError: what they would inherit can't be determined, or has a credential.
    """
    import resource

    kept = environment(helper)
    if any(mask_text(value) != value for value in kept.values()):  # a login in an address: of this run alone
        raise PermissionError(errno.EPERM, "a variable that packages read as they are imported has a credential")
    own = () if python else sys.path[1:]
    path = {os.path.abspath(part) for part in (*helper.get("PYTHONPATH", "").split(os.pathsep), *own) if part}
    status = Path("/proc/self/status").read_text().splitlines()
    limits = [value for name, value in sorted(vars(resource).items()) if name.startswith("RLIMIT_")]
    root = os.stat(os.sep)
    content = [
        __version__,
        str(helper_process.HOME),
        (python, os.stat(python).st_mtime_ns) if python else (sys.executable, sys.prefix, sys.version),
        sorted(kept.items()),
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
