"""The run of a rank that isn't the main one, and what its machine needs where no relay is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackers.journal.run_directory import CONSOLE
from trackers.ranks import meeting
from trackers.support import confined, processes
from trackers.support.interruption import pass_on
from trackers.tracker import RunInfo
from trackers.training import console_capture, environment
from trackers.training.beginning import InitRequest
from trackers.training.exit_hooks import ending
from trackers.training.rank_run import RankRecorder, RankRun

OnFinish = Callable[[Any], None]
"""Called with a run when it has ended."""


def begin(request: InitRequest, on_finish: OnFinish) -> RankRun:
    """The run of one of several ranks that isn't the main one.

    Its id is known unless the main rank looks for an earlier run.

    Args:
        on_finish: called with the run when it has finished.
    """
    options, mode, transport = request.options, request.mode, request.transport
    project = str(options["TRACKER_PROJECT"] or "")
    info = RunInfo(id="", name="", project=project, mode=mode, options=options.to_dict())
    recorder = RankRecorder(info, transport.open(lambda text: recorder.problem(f"rank {transport.rank}: {text}")))
    if transport.folder is not None:
        environment.direct_nccl_log(request.trackers, transport.folder, transport.rank)
    new = transport.launch.run_id() if transport.launch is not None and request.resume in (None, "never") else ""
    run_id = str(options["TRACKER_RUN_ID"] or new)
    end = _serve_node(request, recorder, on_finish)
    capture = None
    if transport.folder is not None:
        capture = console_capture.begin(transport.folder / CONSOLE, transport.rank, None, options)
    run = RankRun(
        recorder, end, capture, transport.folder, run_id=run_id, config=request.config, project=project, mode=mode
    )
    ending.add(run)
    return run


def _serve_node(
    request: InitRequest, recorder: RankRecorder, on_finish: Callable[[Any], None]
) -> Callable[[Any], None]:
    """On a machine that has no relay, if this rank is the first one there: sample the hardware, and send what its
    ranks leave where no directory is shared.

    Returns:
        what to call when the rank's run ends.
    """
    options, transport = request.options, request.transport
    node = environment.node_position()
    relay = options["TRACKER_RELAY"] and not options["TRACKER_INLINE"]
    elsewhere = node.nodes > 1 and node.first and node.node != node.node_of(transport.main)
    carries = transport.network or (bool(transport.store) and request.mode == "online")
    if not (elsewhere and relay and (options["TRACKER_SAMPLE"] or carries) and transport.folder is not None):
        return on_finish
    from trackers.hardware.plan import SamplingPlan, planned

    pid = os.getpid()
    plan = planned(
        options, SamplingPlan(node=node.node, nodes=node.nodes, pid=pid, pid_start=processes.process_start(pid))
    )
    if carries:
        return _carry(request, transport.folder, plan, recorder, on_finish)
    from trackers.relay.sampling import child

    try:
        helper = child.start_agent(transport.folder, plan, int(options["TRACKER_NICE"]))
    except OSError as error:
        pass_on(error)
        recorder.problem(f"the hardware of node {node.node} isn't sampled: {error}")
        return on_finish

    def end(run: RankRun) -> None:
        child.stop_agent(helper)
        on_finish(run)

    return end


def _carry(request: InitRequest, folder: Path, plan: Any, recorder: RankRecorder, on_finish: OnFinish) -> OnFinish:
    """Send what this machine's ranks leave to the store, or to the main node. See :func:`_serve_node`."""
    from trackers.relay.nodes.carrier import CarryTask
    from trackers.relay.nodes.child import Carrying

    options, transport = request.options, request.transport
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
        return on_finish
    finding = meeting.Finding(folder, recorder.problem) if transport.network and known is None else None

    def look() -> None:
        carrying.poll()
        if finding is not None:
            finding.poll()

    recorder.on_look = look
    limit_s = float(options["TRACKER_FINISH_TIMEOUT"]) if options["TRACKER_FINISH"] == "wait" else 0.0

    def end(run: RankRun) -> None:
        if os.getpid() == pid:  # not as a forked child ends
            if problem := carrying.end(limit_s):
                recorder.problem(problem)
            if finding is not None:
                finding.end()
        on_finish(run)

    return end
