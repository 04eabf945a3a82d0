"""Helper processes: new interpreters with a safe import path, or forks of a process that has loaded what they need."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.journal import detached_helper, signature
from trackers.journal.run_directory import RunDirectory
from trackers.support import confined, environments
from trackers.support.launcher import LAUNCHER_VARIABLES
from trackers.support.redaction import carried
from trackers.tracker import RunInfo

_HURTFUL = LAUNCHER_VARIABLES | {
    "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE",
    "PYTHONTRACEMALLOC", "PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONFAULTHANDLER", "PYTHONDUMPREFS",
    "COVERAGE_PROCESS_START", "COV_CORE_SOURCE", "WANDB_SERVICE", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID",
    "WANDB_SWEEP_PARAM_PATH", "MLFLOW_RUN_ID", "TRACKER_CONFIG_FILE", "TRACKERS_AS_WANDB",
}  # fmt: skip
_ONE_THREAD = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
_STARTUP = os.path.join("trackers", "as_wandb", "startup")
"""End of a directory on PYTHONPATH with which ``import wandb`` gives this package: helpers import the real one."""
READER_DIRECTORY = "TRACKER_READER_DIRECTORY"
"""Environment variable that tells helpers where their user is: relative paths in the user's own options begin there."""
DONE, AGAIN, STOPPED = 0, 75, 70
"""Exit codes of a delivery process: all delivered; start me anew; going on makes no sense."""
SUPERSEDED = 76
"""Exit code of a relay that leaves its work to the relay of a newer attempt."""
JOB_GPUS = "TRACKER_JOB_"
"""Prefix under which the job's own choice of GPUs is passed on, while the helpers themselves see none."""
JOB_GPUS_PASSED = "TRACKER_JOB_PASSED"
"""Set once they were: a helper's own helpers must not take its empty choice for the job's."""
HELPER_NICE = "TRACKER_HELPER_NICE"
"""Environment variable with the niceness that a helper gives itself before it loads anything."""
COLLECT_AFTER = 50_000
HOME = Path(__file__).resolve().parent.parent
"""Directory of the package."""
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_forks: list[tuple[Callable[[Sequence[str]], int], frozenset[int]]] = []
"""What helpers that this process forks begin with, and descriptors of libraries; empty: it starts interpreters."""

# The package is loaded from its own place, whatever else is called `trackers`, `json` or `wandb` around training.
_BOOT = """
import os, sys
if (nice := int(os.environ.pop('TRACKER_HELPER_NICE', '0'))) and hasattr(os, 'nice'):
    os.nice(nice)
avoid = {'', os.getcwd(), *AVOID}
sys.path[:] = [p for p in sys.path if p not in avoid and os.path.isabs(p)]
import importlib.util
spec = importlib.util.spec_from_file_location('trackers', os.path.join(HOME, '__init__.py'),
                                              submodule_search_locations=[HOME])
module = importlib.util.module_from_spec(spec)
sys.modules['trackers'] = module
spec.loader.exec_module(module)
from trackers.relay.worker import main
sys.exit(main(sys.argv[1:]))
"""


def command(arguments: list[str], *, python: str = "", avoid: tuple[str, ...] = ()) -> list[str]:
    """The command line of a helper.

    Args:
        python: another interpreter (with msgspec and the tracker's client installed).
        avoid: directories that must not be on its import path (training's own).
    """
    boot = f"HOME = {str(HOME)!r}\nAVOID = {avoided(avoid)!r}\n{_BOOT}"
    return [python or sys.executable, "-c", boot, *arguments]


def avoided(directories: Iterable[str]) -> list[str]:
    """Directories that must not be on a helper's import path, absolute; the package's own may."""
    return [path for directory in directories if directory and (path := os.path.abspath(directory)) != str(HOME.parent)]


def forks_with(entry: Callable[[Sequence[str]], int], library_fds: Iterable[int]) -> None:
    """From now on this process forks its helpers: it is a fork itself, of one that has loaded what they need.

    Args:
        entry: what a helper begins with.
        library_fds: descriptors that loaded libraries hold.
    """
    _forks[:] = [(entry, frozenset(library_fds))]


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a helper inherits: credentials and proxies, but no rank, no GPU, one thread for maths."""
    base = os.environ if base is None else base
    env = {name: value for name, value in base.items() if name not in _HURTFUL and not name.startswith("_WANDB")}
    if JOB_GPUS_PASSED not in env:
        env.update({JOB_GPUS + name: env[name] for name in _GPU_VARIABLES if name in env})
        env[JOB_GPUS_PASSED] = str(os.getpid())
    env.update(carried())
    if "PYTHONPATH" in env:
        parts = [part for part in env["PYTHONPATH"].split(os.pathsep) if part and not part.endswith(_STARTUP)]
        env["PYTHONPATH"] = os.pathsep.join(parts)
    env["CUDA_VISIBLE_DEVICES"] = ""  # a context of theirs would take memory of training's GPUs
    env.update(dict.fromkeys(_ONE_THREAD, "1"))
    env["PYTHONSAFEPATH"] = "1"
    env["PYTHONUNBUFFERED"] = "1"  # what a killed helper printed is in relay.log
    env["PYTHONUTF8"] = "1"  # names of files are UTF-8, whatever the job's locale says
    env.setdefault("TOKENIZERS_PARALLELISM", "false")  # else tokenizers warns at forks
    return env


def environment_for(info: RunInfo | None, python: str = "") -> dict[str, str]:
    """What a helper for a run inherits; it follows the instructions in ``info`` (:func:`start`).

    Args:
        python: its interpreter, if it has another.
    """
    env = environment()
    if environments.is_made(python):
        env = environments.without_training(env)
    if info is not None:
        env[signature.CARRIER] = "" if info.foreign else signature.digest(info)
    env.setdefault(READER_DIRECTORY, os.getcwd())
    return env


def start(
    run: RunDirectory,
    arguments: list[str],
    *,
    python: str = "",
    avoid: tuple[str, ...] = (),
    new_session: bool = True,
    pass_fds: tuple[int, ...] = (),
    info: RunInfo | None = None,
    nice: int = 0,
    fresh: bool = False,
    detached: bool = False,
) -> Any:
    """Start a helper for a run. It inherits no standard stream: what it prints goes to ``relay.log``.

    Args:
        new_session: False: it joins this process's session. Linux shares the processors out by session
            (sched_autogroup), so helpers in one session count together once, not each as much as training.
        pass_fds: descriptors that it inherits.
        info: the run as its starter delivers it: the helper follows the same instructions
            (:mod:`trackers.journal.signature`).
        nice: its niceness, 0 to 19, on top of this process's.
        fresh: an interpreter of its own in any case.
        detached: it is no child of this process, has a session of its own, and may outlive it
            (:mod:`trackers.journal.detached_helper`): for what training starts.

    Returns:
        the ``subprocess.Popen``, or what has the same methods.

    Raises:
        OSError: it can't be started.
    """
    env = environment_for(info, python)
    with confined.open_file(run.relay_log, "ab") as log:
        if _forks and not python and not fresh:
            from trackers.journal import forked_helper

            if forked_helper.possible():
                entry, library_fds = _forks[0]
                how = forked_helper.ForkJob(
                    arguments=arguments, environment=env, avoid=avoided(avoid), session=new_session, nice=nice
                )
                return forked_helper.fork(
                    entry, how, log=log.fileno(), passed={fd: fd for fd in pass_fds}, library_fds=library_fds
                )
        if nice:
            env[HELPER_NICE] = str(nice)
        words = command(arguments, python=python, avoid=avoid)
        if detached:
            return detached_helper.start(words, log=log, environment=env, pass_fds=pass_fds)
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=os.sep,  # vendors read settings where they are (W&B: ./wandb/settings): a run's directory is data
            env=env,
            start_new_session=new_session,
            close_fds=True,
            pass_fds=pass_fds,
        )


def lower_priority(nice: int) -> None:
    """Give way to training: this process, which leads a session, and its session.

    On Linux: SCHED_BATCH, so that a helper that wakes up doesn't interrupt training, and the session's niceness, since
    processors are divided between sessions first (sched(7), "The autogroup feature"). Where they aren't (in a control
    group of its own), the niceness counts with which :func:`start` starts those that have work to do.
    """
    if nice <= 0:
        return
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    _set_session_nice(nice, os.getpid())


def usual_priority(others: Iterable[int]) -> None:
    """Undo :func:`lower_priority`, for this process and its helpers: what training waits for isn't beside it.

    A process's own niceness goes back to this one's only where the system lets its owner do that (root, RLIMIT_NICE).

    Args:
        others: pids; those that are gone are passed over.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in (os.getpid(), *others):
        with contextlib.suppress(OSError):
            _set_session_nice(0, pid)
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):  # Linux keeps both for each thread
                if os.sched_getscheduler(thread) == os.SCHED_BATCH:
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, thread, nice)


def _set_session_nice(nice: int, pid: int) -> None:
    if hasattr(os, "getsid") and os.getsid(pid) == pid:  # only its own: training's session is left alone
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice))


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the garbage collector look only after many new objects: a batch of records makes thousands, all of which go.

    With a vendor's client loaded each of its full looks takes 30 ms; delivering took a tenth longer with them.
    """
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def dump(value: Any) -> str:
    """Arguments as one command-line word."""
    return json.dumps(value, separators=(",", ":"))


def ignore_interrupts() -> None:
    """Ctrl-C, a hang-up and a warning to the whole job are meant for training; the relay ends when its work is done."""
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
