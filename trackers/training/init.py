"""``init``: what is asked for, checked before the first step, becomes a run."""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trackers import configuration, records
from trackers._version import __version__
from trackers.backends import registry
from trackers.errors import NotFound, UsageError, reason
from trackers.formats.json_values import mapping, text
from trackers.journal.attempts import AttemptHistory
from trackers.journal.messages import Message, show
from trackers.journal.run_directory import CONSOLE, RunDirectory, check_id, in_journal
from trackers.journal.status import watch
from trackers.object_storage.addresses import store_of
from trackers.provenance.paths import RERUN_OF
from trackers.ranks import launch, meeting
from trackers.ranks.transport import RankTransport, runs_root
from trackers.records import MAX_STEP, Config, Environment, Record, Start
from trackers.relay.client import RelayClient
from trackers.support import confined, name_clash, process_info, schedulers
from trackers.support.interruption import pass_on
from trackers.support.logging_setup import apply as apply_logging
from trackers.support.redaction import hide, mask, mask_argv, mask_source
from trackers.support.run_requests import AGREED
from trackers.tracker import RunInfo
from trackers.training import console_capture, environment, imported_code, notebook_cells, stores
from trackers.training import resume as resumption
from trackers.training.disabled import NullRun
from trackers.training.exit_hooks import ending
from trackers.training.rank_run import RankRecorder, RankRun
from trackers.training.recorder import Recorder
from trackers.training.run import Run, banner_line
from trackers.training.stopping import Board
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
    alive = sys._current_frames()
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
        NotFound: ``resume="must"``, and there is no such run.
    """
    given = {
        "TRACKER": ",".join(trackers) if trackers is not None and not isinstance(trackers, str) else trackers,
        "TRACKER_PROJECT": project,
        "TRACKER_RUN_NAME": name,
        "TRACKER_TAGS": ",".join(map(str, tags)) if tags is not None and not isinstance(tags, str) else tags,
        "TRACKER_GROUP": group,
        "TRACKER_JOB_TYPE": None if job_type is None else text(job_type),
        "TRACKER_NOTES": notes,
        "TRACKER_MODE": mode,
        "TRACKER_DIR": os.fspath(dir) if dir is not None else None,
        "TRACKER_RUN_ID": id,
        "TRACKER_INLINE": inline,
        "TRACKER_REDUCE": reduce,
    }
    tensorboard = False
    if wandb:
        extra = init_arguments(wandb)
        config = filtered(
            extra.get("config", config), extra.get("config_include_keys"), extra.get("config_exclude_keys")
        )
        for symbol, value in extra.items():  # what init was told in its own words is stronger than W&B's settings
            if symbol.isupper() and given.get(symbol) is None:
                given[symbol] = value
        reinit = extra.get("reinit", reinit)
        step = extra.get("step", step)
        if extra.get("job_type") is not None and job_type is None:
            given["TRACKER_JOB_TYPE"] = extra["job_type"]
        tensorboard = "sync_tensorboard" in extra
    given.update(options or {})
    chosen = os.environ.get("TRACKER_RUN_ID", "")
    if chosen in _taken and given.get("TRACKER_RUN_ID") is None and chosen == os.environ.get(configuration.SWEEP_RUN):
        given["TRACKER_RUN_ID"] = ""  # a sweep's id is that of the first run which its program begins
        given.setdefault("TRACKER_RESUME", "never")
    resolved = configuration.resolve(given, flags, defconfig=defconfig)
    apply_logging(resolved)
    mode = str(resolved["TRACKER_MODE"])
    names = registry.parse(str(resolved["TRACKER"]))
    store = store_of(resolved["TRACKER_DIR"])
    names = stores.with_tracker(names, store, resolved)
    if isinstance(config, (str, os.PathLike)):
        config = read_config(config)
    parameters = os.environ.get("WANDB_SWEEP_PARAM_PATH", "")
    swept: dict[str, Any] = {}
    if parameters and os.path.isfile(parameters):  # of ``trackers run --sweep`` or ``wandb agent``
        swept = read_config(parameters)
        config = {**mapping(config), **swept}
    settings = mask({**_assigned_before(), **mapping(config)})
    if resolved["BASELINE_RUN_ID"]:  # in the configuration, so that every tracker can filter and compare by it
        settings.setdefault("baseline_run_id", str(resolved["BASELINE_RUN_ID"]))
    with _lock:
        _finish_previous(reinit)
        if mode == "disabled" or not names:
            off = NullRun(config=settings, project=str(resolved["TRACKER_PROJECT"] or ""), on_finish=_leave)
            off.config.lock(swept)
            return _become(off)
        word = resumption.parse_resume(resume or resolved.get("TRACKER_RESUME"))
        transport = RankTransport(rank, resolved, asked=reduce is not None)
        if not transport.is_main:
            for tracker in names:
                registry.precheck(tracker)
            other = _other_rank_run(transport, resolved, settings, mode, word)
            other.config.lock(swept)
            return _become(other)
        said = _check(names, resolved, mode)
        run = _begin(names, resolved, settings, mode, word, _whole_step(step, word), transport)
        for note in said:
            show(Message(time.time(), note))
        _taken.add(run.id)
        run.config.lock(swept)
        if tensorboard or _patched():
            run.record_tensorboard()
        return _become(run)


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


def _begin(
    names: list[str],
    options: Any,
    config: dict[str, Any],
    mode: str,
    resume: str | None,
    step: int | None,
    transport: RankTransport,
) -> Run:
    program, argv = process_info.program()
    cwd = Path.cwd()
    clock = process_info.Clock()
    now = clock.now()
    project = str(options["TRACKER_PROJECT"] or configuration.project_name(config, program, cwd))
    requested_name = str(options["TRACKER_RUN_NAME"] or "")
    name = (
        configuration.fill_template(requested_name, config) if requested_name else configuration.run_name(program, now)
    )
    run_id = check_id(str(options["TRACKER_RUN_ID"])) if options["TRACKER_RUN_ID"] else ""
    root = runs_root(options)
    inline = bool(options["TRACKER_INLINE"])
    pid = os.getpid()
    info = RunInfo(
        id=run_id,
        name=mask_source(name),
        project=project,
        trackers=names,
        group=mask_source(str(options["TRACKER_GROUP"])) or None,
        job_type=str(options["TRACKER_JOB_TYPE"]) or None,
        tags=list(dict.fromkeys(filter(None, map(str.strip, mask_source(str(options["TRACKER_TAGS"])).split(","))))),
        notes=mask_source(str(options["TRACKER_NOTES"])) or None,
        config=config,
        mode=mode,
        options=hide(options.to_dict()),
        created=now,
        program=program,
        argv=mask_argv(argv),
        cwd=str(cwd),
        python=sys.executable,
        host=process_info.host(),
        boot_id=process_info.boot_id(),
        pid_namespace=process_info.pid_namespace(),
        pid=pid,
        pid_start=process_info.process_start(pid),
        user=process_info.user(),
        git=process_info.git(imported_code.program_directory(program, str(cwd))),
    )
    has_relay, node = bool(options["TRACKER_RELAY"]) and not inline, environment.node_position()
    listens = transport.network and has_relay and node.nodes > 1
    hint = transport.launch.run_id() if transport.launch is not None else ""
    store = store_of(options["TRACKER_DIR"]) if mode == "online" else ""
    brought = stores.fetch(store, root, project, run_id, resume) if store and (run_id or resume) else []
    again = bool(os.environ.get(RERUN_OF))

    def claimed(run: Path) -> tuple[int, str]:
        return stores.claimed(store, run) if store else (0, "")

    given_name = mask_source(name) if requested_name else ""

    def watching(run: RunDirectory) -> None:
        refresh = functools.partial(stores.fetch_lease, store, run.path) if store else None
        watch([run], lambda text: show(Message(time.time(), text)), refresh=refresh)

    opened = resumption.open_attempt(root, run_id, resume, given_name, info, hint, again, claimed, watching)
    run, writer = opened.run, opened.writer
    info.id, info.directory = run.path.name, str(run.path)
    first_step, changed, last_time = _continue(info, opened, step)
    last_step = first_step - 1 if first_step and step is None else None
    rewind = step if opened.before is not None else None
    history = AttemptHistory(opened.run)
    axis, results = (history.axis_at(rewind), history.summaries()) if rewind is not None else (None, [])
    info.attempts.append(_attempt(info, opened.attempt, now, changed, rewind, transport))
    start = Start(
        # Never before what is there already, though this machine's clock may be behind: see relay.order.
        time=max(now, last_time + 1e-6) if last_time else now,
        attempt=opened.attempt,
        rank=transport.rank,
        world_size=transport.ranks,
        host=info.host,
        pid=pid,
        from_step=rewind,
        until=resumption.noted_until(opened),
        axis=axis,
        run=in_journal(info),
    )
    lines: list[Record] = [start, *([Config(time=now, values=config)] if config else [])]
    if opened.before is not None:
        lines += resumption.told_anew(info, run, start.time)
    try:
        writer.write(b"".join(map(records.encode, lines)))
        if rewind is not None and writer.healthy:
            back = resumption.results_at(rewind, run, results, start.time)
            writer.write(b"".join(map(records.encode, back)))
        if not writer.healthy:
            raise writer.error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with resumption.alone(run) if run_id or resume else contextlib.nullcontext():
            stored = resumption.merge_attempts(info, run)
            if len(stored.attempts) > 1 and run_id and resume in (None, "never"):
                opened.discard()
                raise UsageError(resumption.TAKEN.format(run_id, run.path.parent))
            run.write_info(stored)
        if store and (run_id or opened.before is not None):
            stores.claim(store, run.path, opened.attempt, opened.discard)
        if transport.folder is not None:
            launch.register(transport.folder, run, opened.attempt, now)
            Board(transport.folder / AGREED).clear()
            if listens:
                meeting.listen(transport.folder, options, first=node.node_of(transport.main) == 0)
    except OSError as error:
        pass_on(error)
        opened.discard()
        raise UsageError(f"{run.path} can't be written ({error.strerror}): choose another TRACKER_DIR") from None
    environment.direct_nccl_log(names, transport.folder or run.path, transport.rank)
    if described := environment.describe(transport.ranks):
        writer.write(records.encode(Environment(time=start.time, values=described)))
    inside = [tracker for tracker in names if inline or registry.precheck(tracker).inside]
    beside = [tracker for tracker in names if tracker not in inside]
    delivered = beside if mode == "online" else []
    relay = RelayClient(run, info, delivered, start=has_relay)
    code = imported_code.begin(run, info, opened.attempt, options, has_relay)
    relay.start()
    fanout = _inline_delivery(run, info, inside, transport if inline else None) if inside else None
    across = transport.open(lambda text: recorder.problem(text))
    recorder = Recorder(info, run, writer, relay, clock=clock.now, first_step=first_step, inside=fanout, across=across)
    recorder.late = environment.later(transport.ranks, recorder.now)
    capture = console_capture.begin(run.console, transport.rank, opened.attempt, options, alone=transport.ranks <= 1)
    if capture is not None:
        recorder.pollers.append(capture.poll)
    if code is not None:
        recorder.pollers.append(code.poll)
        recorder.endings.append(code.end)
    cells = notebook_cells.begin(run, info, opened.attempt, options)
    if cells is not None:
        recorder.pollers.append(cells.poll)
        recorder.endings.append(cells.poll)
    if listens and transport.folder is not None and not meeting.own_secret():
        recorder.pollers.append(meeting.Announcing(transport.folder).poll)
    result = Run(recorder, _forget, capture)
    ending.add(result)
    show(Message(now, banner_line(info, names)))
    if requested_name and opened.before is not None and mask_source(name) != info.name:
        show(Message(now, f"run {info.id} keeps the name {info.name!r}: name={name!r} isn't taken for a resumed run"))
    if again and run_id and run_id != info.id:
        show(Message(now, f"run {run_id!r} stays as it is: this one, which runs it again, has another id"))
    if changed:
        show(Message(now, resumption.notice(changed)))
    if opened.before is not None and str(run.path) in brought:
        show(Message(now, stores.notice(opened.before.host, last_time, last_step, opened.before.options)))
    if opened.before is not None and opened.alive:
        older = f"process {opened.before.pid} on {opened.before.host}"
        show(Message(now, f"{older} seemed to be still at this run: from now on only this attempt's records count"))
    complaint = name_clash.complaint()
    if complaint:
        show(Message(now, complaint))
    return result


def _inline_delivery(run: RunDirectory, info: RunInfo, names: list[str], transport: RankTransport | None) -> Any:
    """Trackers in this process; with ``way``, values across ranks too."""
    from trackers.relay.aggregation.worker import InlineReducer
    from trackers.training.inline import InlineDelivery  # the deliveries' code is loaded only where they run here

    def say(text: str) -> None:
        show(Message(time.time(), text))

    if transport is None or transport.folder is None:
        return InlineDelivery(run, names, say)
    wait_s = float(info.option("TRACKER_REDUCE_WAIT", 10))
    return InlineDelivery(run, names, say, InlineReducer(run, int(info.attempts[-1]["number"]), wait_s, say))


def _other_rank_run(
    transport: RankTransport, options: Any, config: dict[str, Any], mode: str, resume: str | None
) -> NullRun:
    """The run of a rank that isn't the main one. Its id is known unless the main rank looks for an earlier run."""
    project = str(options["TRACKER_PROJECT"] or "")
    if transport.ranks <= 1:
        return NullRun(config=config, project=project, mode=mode, on_finish=_leave)
    info = RunInfo(id="", name="", project=project, mode=mode, options=options.to_dict())
    recorder = RankRecorder(info, transport.open(lambda text: recorder.problem(f"rank {transport.rank}: {text}")))
    if transport.folder is not None:
        environment.direct_nccl_log(registry.parse(str(options["TRACKER"])), transport.folder, transport.rank)
    new = transport.launch.run_id() if transport.launch is not None and resume in (None, "never") else ""
    run_id = str(options["TRACKER_RUN_ID"] or new)
    end = _serve_node(transport, options, mode, recorder)
    capture = None
    if transport.folder is not None:
        capture = console_capture.begin(transport.folder / CONSOLE, transport.rank, None, options)
    run = RankRun(recorder, end, capture, transport.folder, run_id=run_id, config=config, project=project, mode=mode)
    ending.add(run)
    return run


def _serve_node(transport: RankTransport, options: Any, mode: str, recorder: RankRecorder) -> Callable[[Any], None]:
    """On a machine that has no relay, if this rank is the first one there: sample the hardware, and send what its
    ranks leave where no directory is shared.

    Returns:
        what to call when the rank's run ends.
    """
    node = environment.node_position()
    relay = options["TRACKER_RELAY"] and not options["TRACKER_INLINE"]
    elsewhere = node.nodes > 1 and node.first and node.node != node.node_of(transport.main)
    carries = transport.network or (bool(transport.store) and mode == "online")
    if not (elsewhere and relay and (options["TRACKER_SAMPLE"] or carries) and transport.folder is not None):
        return _forget
    from trackers.hardware.plan import SamplingPlan, planned

    pid = os.getpid()
    plan = planned(
        options, SamplingPlan(node=node.node, nodes=node.nodes, pid=pid, pid_start=process_info.process_start(pid))
    )
    if carries:
        return _carry(transport, transport.folder, options, plan, recorder)
    from trackers.relay.sampling import child

    try:
        helper = child.start_agent(transport.folder, plan, int(options["TRACKER_NICE"]))
    except OSError as error:
        pass_on(error)
        recorder.problem(f"the hardware of node {node.node} isn't sampled: {error}")
        return _forget

    def end(run: RankRun) -> None:
        child.stop_agent(helper)
        _forget(run)

    return end


def _carry(
    transport: RankTransport, folder: Path, options: Any, plan: Any, recorder: RankRecorder
) -> Callable[[Any], None]:
    """Send what this machine's ranks leave to the store, or to the main node. See :func:`_serve_node`."""
    from trackers.relay.nodes.carrier import CarryTask
    from trackers.relay.nodes.child import Carrying

    pid = os.getpid()
    task = CarryTask(
        store="" if transport.network else transport.store, every_s=float(options["TRACKER_STORE_EVERY"]),
        main=transport.main, ranks=transport.ranks, plan=plan,
        sample=bool(options["TRACKER_SAMPLE"]), nice=int(options["TRACKER_NICE"]),
        console_mb=int(options["TRACKER_CONSOLE_MAX_MB"]), tls=meeting.encrypts(options),
    )  # fmt: skip
    try:
        known = meeting.from_options(options) if transport.network else None
        if known is not None:
            confined.make_own(folder)
            meeting.write(folder, known)
        carrying = Carrying(folder, task)
    except OSError as error:
        pass_on(error)
        recorder.problem(f"what node {plan.node} logs isn't sent to {task.store or 'the main node'}: {error}")
        return _forget
    finding = meeting.Finding(folder, recorder.problem) if transport.network and known is None else None

    def look() -> None:
        carrying.poll()
        if finding is not None:
            finding.poll()

    recorder.on_look = look
    limit_s = float(options["TRACKER_FINISH_TIMEOUT"]) if options["TRACKER_FINISH"] == "wait" else 0.0

    def end(run: RankRun) -> None:
        if os.getpid() == pid:
            if problem := carrying.end(limit_s):
                recorder.problem(problem)
            if finding is not None:
                finding.end()
        _forget(run)

    return end


def _attempt(
    info: RunInfo, number: int, now: float, changed: dict[str, Any], rewind: int | None, transport: RankTransport
) -> dict[str, Any]:
    """What ``run.json`` says of an attempt."""
    entry: dict[str, Any] = {
        "number": number,
        "time": now,
        "host": info.host,
        "pid": info.pid,
        "argv": info.argv,
        "version": __version__,
    }
    job = schedulers.job()
    if job is not None:
        entry |= job.to_entry()
    if changed:
        entry["changed"] = changed
    if rewind is not None:
        entry["from_step"] = rewind
    node = environment.node_position()
    if node.nodes > 1:
        entry |= {"node": node.node_of(transport.main), "nodes": node.nodes}
    if transport.folder is not None:
        entry |= {
            "launch": os.path.relpath(transport.folder, info.directory),
            "ranks": transport.ranks,
            "rank": transport.rank,
        }
    return entry


def _continue(info: RunInfo, opened: resumption.OpenedAttempt, step: int | None) -> tuple[int, dict[str, Any], float]:
    """Take over what a continued run keeps; the first step, how the config differs, and the last record's time."""
    if opened.before is None:
        return (0 if step is None else step + 1), {}, 0.0
    history = AttemptHistory(opened.run)
    changed = resumption.take_over(info, opened.before, history, opened.run.read_info())
    last = resumption.last_step(opened, history) if step is None else step
    return (0 if last is None else last + 1), changed, history.last_time()


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


def _patched() -> bool:
    """Whether ``wandb.tensorboard.patch`` was called before."""
    writers = sys.modules.get("trackers.training.tensorboard_writers")
    return writers is not None and writers.is_patched()


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
