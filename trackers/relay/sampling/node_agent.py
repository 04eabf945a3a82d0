"""Sampling on a machine of the job that has no relay: started by its first rank, ended by the run's end.

Its process finds the run as the ranks do, by what the main rank wrote in the launch's folder, and writes a stream of
its own there. The directory must be one that all machines see.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from trackers.hardware.plan import Plan
from trackers.journal import helper_process
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import find_finish
from trackers.ranks import launch
from trackers.support import confined, process_info

CLAIM_S = 0.5
"""Between looks for the main rank's word."""


def done(run: RunDirectory, node: int, attempt: int) -> Path:
    """A file that says: this machine's sampler has written its last."""
    return run.path / f"sampler-{node}.{attempt}.done"


def start(folder: Path, plan: Plan, nice: int) -> Any:
    """Start the process.

    Args:
        folder: the launch's. plan: with this rank's pid, whose end ends it.

    Returns:
        the ``subprocess.Popen``.

    Raises:
        OSError: it can't be started.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["outpost", str(folder), msgspec.json.encode(plan).decode(), str(nice)]
    return helper_process.start(RunDirectory(folder), arguments)


def stop(helper: Any) -> None:
    """Have it write its last now, and don't wait for it."""
    if helper.poll() is None:
        helper.terminate()
        helper.returncode = 0  # tells subprocess that nobody waits for it: no warning at its end


def serve(folder: Path, plan: Plan) -> int:
    """Sample for the run that the launch becomes, until it or the rank here ends. Returns the exit code."""
    from trackers.relay.sampling.worker import sample

    found = _find(folder, plan)
    if found is None:
        return 0
    run, attempt = found
    plan = msgspec.structs.replace(plan, attempt=attempt)
    stream = run.stream(StreamName("rank", 0, attempt))
    code = sample(run, Messages(run.messages), plan, over=lambda: not _lives(plan) or _ended(run, stream, attempt))
    confined.touch(done(run, plan.node, attempt))
    return code


def _find(folder: Path, plan: Plan) -> tuple[RunDirectory, int] | None:
    """The run, once its main rank has said which; None where the rank here ended before."""
    while _lives(plan):
        for claim in reversed(launch.claims(folder)):
            run = RunDirectory((folder / claim.run).resolve())
            if not _ended(run, run.stream(StreamName("rank", 0, claim.attempt)), claim.attempt):
                return run, claim.attempt
            break
        time.sleep(CLAIM_S)
    return None


def _lives(plan: Plan) -> bool:
    return process_info.alive(plan.pid, plan.pid_start)


def _ended(run: RunDirectory, stream: Path, attempt: int) -> bool:
    return find_finish(stream) is not None or run.attempt() > attempt
