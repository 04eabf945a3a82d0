"""Settings of the real wandb client under which W&B shows the training script, and failures show soon."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any

from trackers.backends.wandb import system_metrics
from trackers.support import process_info
from trackers.tracker import RunInfo

INIT_TIMEOUT_S = 30.0
ASK_TIMEOUT_S = 20.0
RETRIES = 2
FLUSH_S = 1.0
"""Between writes of the offline file, and between requests of the file stream (W&B: 15 s each). The client takes
whole seconds only: less than one is its default again."""


def settings(info: RunInfo) -> dict[str, Any]:
    """Settings under which W&B shows the training script, and failures show soon."""
    lives = _lives(info)
    wanted: dict[str, Any] = {
        "console": "off",
        "silent": True,
        "disable_code": True,
        "save_code": False,
        "disable_git": not info.git or info.foreign,  # git runs what a repository's configuration names
        "git_remote_url": info.git.get("remote"),
        "git_commit": info.git.get("commit"),
        "git_root": None if info.foreign else info.git.get("root"),
        "program": info.program or None,
        "program_relpath": _relative(info) or None,
        "program_abspath": str(Path(info.cwd, info.program)) if info.program and info.cwd else None,
        "x_executable": info.python or None,
        "x_disable_meta": True,  # see environment
        "host": info.host or None,
        "username": info.user or None,
        **system_metrics.settings(info, lives),
        "x_disable_machine_info": not same_host(info),
        "x_save_requirements": lives,
        "x_transaction_log_flush_interval": FLUSH_S,
        "x_file_stream_transmit_interval": FLUSH_S,
        "x_file_stream_retry_max": RETRIES,
        "x_file_stream_retry_wait_min_seconds": 1.0,
        "x_file_stream_retry_wait_max_seconds": 5.0,
        "x_file_transfer_retry_max": RETRIES,
        "x_file_transfer_retry_wait_min_seconds": 1.0,
        "x_file_transfer_retry_wait_max_seconds": 5.0,
        "x_graphql_retry_max": RETRIES,
        "x_graphql_retry_wait_min_seconds": 1.0,
        "x_graphql_retry_wait_max_seconds": 2.0,
        "x_graphql_timeout_seconds": ASK_TIMEOUT_S,
        "init_timeout": INIT_TIMEOUT_S,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def same_host(info: RunInfo) -> bool:
    """Whether training ran, or runs, on this machine."""
    return not info.host or info.host == socket.gethostname()


def _lives(info: RunInfo) -> bool:
    """Whether training runs now, on this host, and is the reader's own."""
    if info.foreign or not info.pid or not info.host or not same_host(info):
        return False
    return process_info.alive(info.pid, info.pid_start)


def _relative(info: RunInfo) -> str:
    root = info.git.get("root") or info.cwd
    if not root or not info.program or info.program.startswith("-"):
        return info.program
    relative = os.path.relpath(os.path.join(info.cwd, info.program), root)
    return info.program if relative.startswith("..") else relative


def environment(info: RunInfo) -> Any:
    """What W&B shows of the process (``wandb-metadata.json``): that of the training, not this one."""
    import psutil
    from wandb.proto import wandb_internal_pb2 as protocol

    environment = protocol.EnvironmentRecord(
        program=info.program,
        code_path=_relative(info),
        code_path_local=_relative(info),
        args=list(info.argv),
        executable=info.python,
        host=info.host,
        username=info.user,
        root=info.cwd,
    )
    if info.created:
        environment.started_at.FromNanoseconds(int(info.created * 1e9))
    if info.git.get("remote"):
        environment.git.remote_url = info.git["remote"]
    if info.git.get("commit"):
        environment.git.commit = info.git["commit"]
    if same_host(info):
        environment.os = platform.platform()
        environment.python = f"{platform.python_implementation()} {platform.python_version()}"
        environment.cpu_count = psutil.cpu_count(logical=False) or 0
        environment.cpu_count_logical = psutil.cpu_count() or 0
        environment.memory.total = psutil.virtual_memory().total
    return environment
