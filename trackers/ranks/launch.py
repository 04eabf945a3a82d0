"""Name of a launch: all ranks of a job derive it from the environment, and so find the same run without a collective.

A *launch* is one start of the job's processes, named by environment variables that every rank gets alike. Ranks write
their part of values across ranks to the launch's folder, ``<TRACKER_DIR>/.ranks/<launch>/``; the main rank writes there
which run belongs to it. So the first rank waits for nobody. Sources, each by its documentation:
https://docs.pytorch.org/docs/stable/elastic/run.html (environment variables),
https://slurm.schedmd.com/srun.html (output environment variables),
https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, TrackersError
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import find_finish, last_record, tail
from trackers.records import RankRow
from trackers.support import confined, launcher, machines, processes
from trackers.support.interruption import suppress
from trackers.support.run_requests import AGREED
from trackers.tracker import RunInfo

FOLDER = confined.LAUNCHES
OTHERS = "others"
"""Folder in a launch's, for streams of ranks on other nodes."""
ARRIVALS = "arrivals.json"
"""File in a launch's folder with the times up to which those streams are complete."""
LISTEN, MEETING, LOST_MAIN = "listen.json", "meeting.json", "main-lost"
"""Files in a launch's folder for nodes that reach each other over the network."""
CERTIFICATE = "nodes.pem"
"""The main node's certificate for them, with its key."""
LOST = (
    "values across ranks: this rank can't tell which run it belongs to: set TRACKER_RUN_ID to the same id on every "
    "rank, or start them with torchrun, srun or mpirun"
)
"""Message if nothing names the launch."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_count = itertools.count()


class Registration(msgspec.Struct):
    """The main rank's entry in a launch's folder: the run and the attempt of the launch. run: path relative to it."""

    run: str
    attempt: int
    time: float


class Launch:
    """One start of a job's processes.

    Args:
        key: what names it, the same on every rank.

    Attributes:
        name: the key as a file name. ranks: number of ranks.
    """

    def __init__(self, key: str, ranks: int) -> None:
        self.name = hashlib.sha256(key.encode()).hexdigest()[:20]
        self.ranks = ranks

    def folder(self, root: Path) -> Path:
        """Folder that its ranks write to, below the directory of runs."""
        return root / FOLDER / self.name

    def run_id(self) -> str:
        """Id for a new run of the main rank, unless it resumes another run or the id exists."""
        number, text = int(self.name, 16), ""
        for _ in range(8):
            number, digit = divmod(number, len(_ALPHABET))
            text += _ALPHABET[digit]
        return text


def find(run_id: str, environ: Mapping[str, str] | None = None) -> Launch | None:
    """The launch that this process is part of; None where it is the only process, or nothing names the launch.

    Args:
        run_id: as the user gave it; "" if none was.

    Each call of ``init`` in one process has a launch of its own: every rank makes the same calls.
    """
    environ = os.environ if environ is None else environ
    ranks = world(environ)
    key = _key(run_id, environ) if ranks > 1 else ""
    if not key:
        return None
    return Launch(f"{key} {next(_count)}", ranks)


def world(environ: Mapping[str, str]) -> int:
    """Number of ranks that log together. A SLURM batch script is a single process, whatever was allocated: srun starts
    ranks."""
    launched = any(environ.get(name) for name in launcher.RANK_VARIABLES if name != "SLURM_PROCID")
    if not launched and environ.get("SLURM_PROCID") and not environ.get("SLURM_STEP_ID"):
        return 1
    return launcher.world_size(environ)


def _key(run_id: str, environ: Mapping[str, str]) -> str:
    port = environ.get("MASTER_PORT", "")
    address = f"{environ.get('MASTER_ADDR', '')}:{port}"
    elastic, restart = environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    requeued = environ.get("SLURM_RESTART_COUNT", "0")
    if run_id:
        return f"id {run_id} {elastic} {restart} {port if elastic else ''} {requeued}"
    if elastic:
        return f"torchrun {elastic} {restart} {address} {_agent(environ)}"
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return f"slurm {environ['SLURM_JOB_ID']} {environ['SLURM_STEP_ID']} {requeued}"
    namespace = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    if namespace:
        return f"mpi {namespace}"
    if environ.get("MASTER_ADDR") and port:
        return f"master {address} {_agent(environ)}"
    return _by_store()


def _agent(environ: Mapping[str, str]) -> str:
    """The process that started all ranks, if all are on this machine; unlike a port, it isn't used again."""
    local, ranks = environ.get("LOCAL_WORLD_SIZE"), environ.get("WORLD_SIZE")
    # Two agents may be on one machine (torchrun --nnodes=2, twice), though the address is the loopback's.
    if local == ranks if local and ranks else environ.get("MASTER_ADDR") in _LOOPBACK:
        parent = os.getppid()
        return f"{' '.join(machines.machine())} {parent} {processes.process_start(parent):.0f}"
    return ""


def _by_store() -> str:
    """A name that the first rank sets in torch.distributed's store. No rank waits for another."""
    distributed = launcher.torch_distributed()
    if distributed is None:
        return ""
    with suppress(Exception):  # not a public interface: without it, TRACKER_RUN_ID names the launch
        store: Any = distributed.distributed_c10d._get_default_store()
        name = store.compare_set(f"trackers/launch/{next(_count)}", "", secrets.token_hex(8))
        return f"store {name.decode()}"
    return ""


def register(folder: Path, run: RunDirectory, attempt: int, time: float) -> None:
    """Write which attempt of which run the launch is. Whoever can read the run can read the launch's folder.

    Raises:
        OSError: it can't be written.
    """
    mode = stat.S_IMODE(run.path.stat().st_mode)
    confined.make_own(folder, mode)
    confined.set_mode(folder, mode)  # of a rank that came first, and didn't know
    line = msgspec.json.encode(Registration(os.path.relpath(run.path, folder), attempt, time)) + b"\n"
    fd = confined.open_fd(folder / "runs.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def registrations(folder: Path) -> list[Registration]:
    """Runs that have used the launch's folder, the earlier ones first."""
    entries = []
    with suppress(OSError):
        for line in confined.read(folder / "runs.jsonl").splitlines():
            with contextlib.suppress(*UNDECODABLE):  # a torn line
                entries.append(msgspec.json.decode(line, type=Registration))
    return entries


def folder_of(run: RunDirectory, info: RunInfo, attempt: int) -> Path | None:
    """Folder that the ranks of an attempt write to; None if it had one rank, or its ranks use no files."""
    for entry in info.attempts:
        if entry.get("number") == attempt and entry.get("launch"):
            return confined.launch_folder(run.path, str(entry["launch"]))
    return None


def is_of(folder: Path, run: RunDirectory, attempt: int) -> bool:
    """Whether the run's own metadata names the folder for an attempt: anybody may write an entry to the folder."""
    with suppress(OSError, ValueError, LookupError, TypeError, TrackersError):
        own_folder = folder_of(run, run.read_info(), attempt)
        return own_folder is not None and os.path.samefile(own_folder, folder)
    return False


def rank_streams(folder: Path) -> dict[StreamName, Path]:
    """The ranks' streams in a folder: ``rank-<rank>.<how many times that rank began here>.jsonl``; of a launch, also
    those copied from other nodes."""
    streams = {}
    for directory in (folder / OTHERS, folder):  # a stream written on this node replaces a copy
        with suppress(OSError):
            for entry in os.listdir(directory):
                name = StreamName.parse(entry.removesuffix(".jsonl")) if entry.endswith(".jsonl") else None
                if name is not None and name.writer == "rank":
                    streams[name] = directory / entry
    return dict(sorted(streams.items()))


def span(folder: Path, run: RunDirectory, attempt: int) -> tuple[float, float] | None:
    """Times between which the ranks of an attempt began, if a folder was used by several runs or attempts in turn.

    An attempt begins when the one before it has ended: launches may have the same name, by the same id or port.

    Returns:
        the times, excluded and included; None if no entry in the folder names the attempt.
    """
    low, is_found = -math.inf, False
    for entry in registrations(folder):
        other = RunDirectory(os.path.normpath(folder / entry.run))
        if is_found:
            return low, _main_end(run, attempt, -math.inf)
        if entry.attempt == attempt and _is_same(other.path, run.path):
            is_found = True
        else:
            low = _main_end(other, entry.attempt, entry.time)
    return (low, math.inf) if is_found else None


def _is_same(registered: Path, run: Path) -> bool:
    """Whether an entry names this run; a run that was moved is recognised by its id."""
    with suppress(OSError, ValueError):
        return os.path.samefile(registered, run)
    return registered.name == run.name


def _main_end(run: RunDirectory, attempt: int, default: float) -> float:
    # The relay records an end later than it happens, perhaps after the next launch.
    stream = run.stream(StreamName("rank", 0, attempt))
    last = find_finish(stream) or last_record(stream)
    return default if last is None else last.time


def end_of(run: RunDirectory, attempt: int, default: float = 0.0) -> float:
    """The time of the last record of an attempt's own streams."""
    ends = [last_record(run.stream(name)) for name in run.stream_names() if name.attempt == attempt]
    return max((record.time for record in ends if record is not None), default=default)


def remove_if_empty(folder: Path) -> None:
    """Remove a launch's folder if it has no rank's stream, and no log of a sampler's problems."""
    if not rank_streams(folder):
        with suppress(OSError):
            for name in (
                "runs.jsonl",
                ARRIVALS,
                LISTEN,
                MEETING,
                LOST_MAIN,
                CERTIFICATE,
                AGREED,
                *(path.name for path in folder.glob("step-*")),
            ):
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):
                (folder / OTHERS).rmdir()
            log = RunDirectory(folder).relay_log
            if log.exists() and not log.stat().st_size:
                log.unlink()
            folder.rmdir()
            folder.parent.rmdir()


def last_step(folder: Path, rank: int) -> int | None:
    """The step of the last row of a rank; None where it left none."""
    paths = [path for name, path in rank_streams(folder).items() if name.number == rank]
    steps = [record.step for path in paths for record in tail(path) if isinstance(record, RankRow)]
    return steps[-1] if steps else None
