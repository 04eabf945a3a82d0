"""``init``: what is asked for, checked before the first step, becomes a run."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from trackers import configuration
from trackers.backends import registry
from trackers.errors import NotFound, UsageError, reason
from trackers.formats.json_values import mapping, text
from trackers.formats.word_list import joined
from trackers.journal.messages import Message, show
from trackers.object_storage.addresses import store_of
from trackers.ranks.transport import RankTransport
from trackers.records import MAX_STEP
from trackers.support import threads
from trackers.support.interruption import pass_on
from trackers.support.logging_setup import apply as apply_logging
from trackers.support.redaction import mask
from trackers.training import beginning, other_ranks, stores
from trackers.training import resume as resumption
from trackers.training.beginning import InitRequest
from trackers.training.disabled import NullRun
from trackers.training.exit_hooks import ending
from trackers.training.rank_run import RankRun
from trackers.training.run import Run
from trackers.training.wandb_arguments import assigned, filtered, init_arguments, read_config

Made = TypeVar("Made", bound="Run | NullRun | None")

_current: dict[int, Run | NullRun] = {}
"""The run that each thread made last, by the thread's number; the latest last."""
_pid = os.getpid()
"""Of the process that made them."""
_lock = threading.RLock()
_taken: set[str] = set()
"""Ids of the runs that this process has begun."""


def current() -> Run | NullRun | None:
    """The run for the drop-in calls: what this thread made last and hasn't finished, else what any thread made last."""
    own = _current.get(threading.get_ident())
    return own if own is not None else next(reversed(list(_current.values())), None)


def current_here() -> Run | NullRun | None:
    """The same, but for a run that the parent of this forked process made."""
    return current() if _pid == os.getpid() else None


def previous() -> Run | NullRun | None:
    """The run that ``init`` here finishes first: this thread's, else the latest of a thread that has ended."""
    if _pid != os.getpid():  # a forked worker: the run that was open when it began is its parent's
        return None
    own = _current.get(threading.get_ident())
    if own is not None or not _current:
        return own
    alive = threads.frames()
    return next((run for thread, run in reversed(list(_current.items())) if thread not in alive), None)


def return_to(run: Run | NullRun | None) -> None:
    """Make a run that is still open the current one again, after another one that was begun beside it."""
    if run is not None and not run.finished:
        _become(run)


def init(
    trackers: str | Sequence[str] | None = None,
    project: str | None = None,
    name: str | None = None,
    config: Any = None,
    *,
    tags: Sequence[str] | str | None = None,
    group: str | None = None,
    notes: str | None = None,
    job_type: str | None = None,
    id: str | None = None,
    resume: str | bool | None = None,
    step: int | None = None,
    fork_from: str | None = None,
    mode: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    rank: int | str | None = None,
    reduce: str | None = None,
    inline: bool | None = None,
    defconfig: str | None = None,
    options: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    reinit: str | bool | None = None,
    **wandb: Any,
) -> Run | NullRun:
    """Begin a run, or continue one.

    Args:
        trackers: names, "wandb,json" or a list; "none" records nothing. Default: TRACKER, else "json".
        project: runs of one project are shown together. Default: the configuration's model, or the working directory.
        name: what lists show. A template is filled from the config: "{model}_{optimizer}". Default: script and time.
        config: nested mapping, dataclass or namespace; secrets in it are masked before anything is written.
        tags: a list, or "a,b".
        group: a name that runs of one ablation, or the seeds of one setting, share.
        notes: a sentence on what the run is for.
        job_type: what the run does within its group: "train", "eval".
        id: the run's id, which is its directory's name; default a random one.
        resume: what to do if the run exists: "allow" continues it, "must" insists that it exists, "never" forbids it,
            "auto" or True also finds an unfinished run without an id. None: it is an error if the run exists.
        step: with an earlier run, finished optimizer steps of the checkpoint that it goes back to: what was logged
            above is superseded.
        fork_from: "RUN@1200": a new run begins with the values, media, results and settings that an earlier one had up
            to that step; ``config`` says what is different. docs/resume.md.
        mode: online, offline (journal only, deliver later with ``trackers sync``) or disabled.
        dir: where runs lie; default TRACKER_DIR, else "runs".
        rank: this process's rank; default the launcher's. Only the main rank logs; the others add to values across
            ranks (``trackers.Mean`` …). "own": each process has a run of its own.
        reduce: how values across ranks come together, "relay" or "torch"; docs/ranks.md.
        inline: run the trackers inside this process, without a relay: for debugging.
        defconfig: a defconfig's name or path.
        options: any option by its Kconfig symbol.
        flags: options as ``add_arguments`` parsed them.
        reinit: "create_new" leaves a run of this thread that is still open as it is; else it is finished. Runs of other
            threads are left open in any case.
        **wandb: what else ``wandb.init`` takes; what has no meaning here is named in a warning.

    Returns:
        the run. In mode disabled, with the tracker "none", and on ranks that don't log, it ignores what it is given.

    Raises:
        UsageError: whatever can be seen before the first step: an unknown tracker or option, a missing package
            or login, a directory that can't be written, an id that can't be a file name.
        NotFound: ``resume="must"`` or ``fork_from``, and there is no such run.
    """
    given = {
        "TRACKER": joined(trackers),
        "TRACKER_PROJECT": project,
        "TRACKER_RUN_NAME": name,
        "TRACKER_TAGS": joined(tags),
        "TRACKER_GROUP": group,
        "TRACKER_JOB_TYPE": None if job_type is None else text(job_type),
        "TRACKER_NOTES": notes,
        "TRACKER_MODE": mode,
        "TRACKER_DIR": os.fspath(dir) if dir is not None else None,
        "TRACKER_RUN_ID": id,
        "TRACKER_FORK_FROM": fork_from,
        "TRACKER_INLINE": inline if hasattr(os, "fork") else True,  # on Windows nothing delivers beside training
        "TRACKER_REDUCE": reduce,
    }
    extra = init_arguments(wandb) if wandb else {}
    if extra:
        config = filtered(
            extra.get("config", config), extra.get("config_include_keys"), extra.get("config_exclude_keys")
        )
        _take_settings(given, extra)
        reinit = extra.get("reinit", reinit)
        step = extra.get("step", step)
    given.update(options or {})
    _leave_taken_id(given)
    resolved = configuration.resolve(given, flags, defconfig=defconfig)
    apply_logging(resolved)
    mode = str(resolved["TRACKER_MODE"])
    store = store_of(resolved["TRACKER_DIR"])
    names = stores.with_tracker(registry.parse(str(resolved["TRACKER"])), store, resolved)
    sweep = os.environ.get("WANDB_SWEEP_PARAM_PATH", "")  # by ``trackers run --sweep`` or ``wandb agent``
    swept = read_config(sweep) if sweep and os.path.isfile(sweep) else {}
    settings = _settings(config, swept, resolved)
    with _lock:
        _finish_previous(reinit)
        run: Run | NullRun
        if mode == "disabled" or not names:
            run = NullRun(config=settings, project=str(resolved["TRACKER_PROJECT"] or ""), on_finish=_leave)
        else:
            word = resumption.parse_resume(resume or resolved.get("TRACKER_RESUME"))
            transport = RankTransport(rank, resolved, asked=reduce is not None)
            run = _begun(InitRequest(names, resolved, settings, mode, word, step, transport))
        run.config.name_keys(config)
        run.config.lock(swept)
        writers = sys.modules.get("trackers.training.tensorboard_writers")
        if isinstance(run, Run) and ("sync_tensorboard" in extra or (writers is not None and writers.is_patched())):
            run.record_tensorboard()
        return _become(run)


def _take_settings(given: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Take options from W&B's settings: what ``init`` was told in its own words is stronger."""
    for symbol, value in extra.items():
        if symbol.isupper() and given.get(symbol) is None:
            given[symbol] = value
    if extra.get("job_type") is not None and given["TRACKER_JOB_TYPE"] is None:
        given["TRACKER_JOB_TYPE"] = extra["job_type"]


def _leave_taken_id(given: dict[str, Any]) -> None:
    """Give a second run of a sweep's program an id of its own: the sweep's id is that of the first run it begins."""
    chosen = os.environ.get("TRACKER_RUN_ID", "")
    if chosen in _taken and given.get("TRACKER_RUN_ID") is None and chosen == os.environ.get(configuration.SWEEP_RUN):
        given["TRACKER_RUN_ID"] = ""
        given.setdefault("TRACKER_RESUME", "never")


def _settings(config: Any, swept: Mapping[str, Any], resolved: Any) -> dict[str, Any]:
    """The run's configuration: a file's, or what ``init`` was given; a sweep's parameters are stronger."""
    if isinstance(config, (str, os.PathLike)):
        config = read_config(config)
    settings: dict[str, Any] = mask({**_assigned_before(), **mapping(config), **swept})
    if resolved["BASELINE_RUN_ID"]:  # in the configuration, so that every tracker can filter and compare by it
        settings.setdefault("baseline_run_id", str(resolved["BASELINE_RUN_ID"]))
    return settings


def _begun(request: InitRequest) -> Run | NullRun:
    """The run of this process: the main rank's, another rank's, or one that records nothing where ranks aren't told."""
    if not request.transport.is_main:
        for tracker in request.trackers:  # each rank refuses a wrong name, else all but the main one would wait
            registry.precheck(tracker)
        if request.transport.ranks > 1:
            return other_ranks.begin(request, _forget)
        project = str(request.options["TRACKER_PROJECT"] or "")
        return NullRun(config=request.config, project=project, mode=request.mode, on_finish=_leave)
    notes = _check(request.trackers, request.options, request.mode)
    run = beginning.begin(replace(request, step=_whole_step(request.step, request.resume)), _forget)
    for note in notes:
        show(Message(time.time(), note))
    _taken.add(run.id)
    return run


def init_from_args(args: argparse.Namespace, **more: Any) -> Run | NullRun:
    """:func:`init` with what :func:`trackers.add_arguments` parsed; ``more`` as for ``init``, and stronger.

    Raises:
        SystemExit: as argparse does: what ``init`` finds wrong is one line on stderr, and exit code 2.
    """
    flags, defconfig = configuration.flags_from_args(args)
    more.setdefault("defconfig", defconfig)
    try:
        return init(flags=flags, **more)
    except (UsageError, NotFound) as error:
        print(f"{os.path.basename(sys.argv[0])}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _whole_step(step: Any, resume: str | None) -> int | None:
    if step is None:
        return None
    if isinstance(step, bool) or not hasattr(step, "__index__") or not 0 <= int(step) <= MAX_STEP:
        raise UsageError(f"step={step!r}: give the finished optimizer steps of the checkpoint, 0 to {MAX_STEP}")
    if resume in (None, "never"):
        raise UsageError(f"step={step!r} goes back in a run: say which, with id=… and resume='must' or 'allow'")
    return int(step)


def _check(names: list[str], options: Any, mode: str) -> list[str]:
    """See that each tracker can work. What is to be said of their clients' versions."""
    elsewhere = registry.other_pythons(names, options)
    notes = []
    for name in names:
        if mode == "offline" and not options["TRACKER_INLINE"]:
            registry.precheck(name)  # packages and logins matter where it will be delivered
        else:
            registry.check(name, options, elsewhere=name in elsewhere)
            if name not in elsewhere:
                notes += registry.notes(name, options)
    return notes


def _assigned_before() -> dict[str, Any]:
    """What a script assigned to ``wandb.config`` before it began a run: weaker than what ``init`` is given."""
    if current_here() is not None or "config" not in assigned:
        return {}
    try:
        return mapping(assigned["config"])
    except Exception as error:
        pass_on(error)
        show(Message(time.time(), f"what was assigned to config before init isn't recorded: {reason(error)}"))
        return {}


def _finish_previous(reinit: str | bool | None) -> None:
    before = None if reinit == "create_new" else previous()
    if before is None:
        return
    if not isinstance(before, NullRun):
        show(Message(time.time(), f"init: finishing run {before.name} first; reinit='create_new' leaves it open"))
    before.finish()


def become(run: Made) -> Made:
    """Make a run that another process began, or none, the one of the drop-in calls."""
    with _lock:
        return _become(run)


def _become(run: Made) -> Made:
    global _pid
    if _pid != os.getpid():
        _current.clear()
        _pid = os.getpid()
    _current.pop(threading.get_ident(), None)
    if run is not None:
        _current[threading.get_ident()] = run
    assigned.clear()
    return run


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have been in init


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _forget(run: Run | RankRun) -> None:
    ending.remove(run)
    _leave(run)


def _leave(run: Run | NullRun) -> None:
    for thread, made in list(_current.items()):
        if made is run:
            _current.pop(thread, None)
            assigned.clear()
