"""Asking a run that goes on to stop, or to save a checkpoint: what `trackers stop`, the page and agents do."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from trackers.errors import DeliveryError, NotFound, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.journal.stream import find_finish
from trackers.object_storage import layout
from trackers.object_storage.store import Store
from trackers.support import machines, processes, run_requests
from trackers.support.run_requests import Request

POLL_S, STORE_POLL_S = 0.1, 2.0
"""Intervals of looking at what training says, in seconds: in its directory, and in a store."""


class Answer(msgspec.Struct, frozen=True):
    """What became of a request.

    state: "stopping" (training was told, and leaves its loop), "saving" (it was told to save), "heard" (training has
    read it, and hasn't looked at ``should_stop`` since), "unheard", or "ended". looks: the script looks for such
    requests. text: a sentence for the user.
    """

    state: str
    looks: bool
    text: str


def ask(
    run: RunDirectory, *, stop: bool = True, checkpoint: bool = False, reason: str = "", by: str = "", store: str = ""
) -> Request:
    """Ask a run to stop, to save a checkpoint, or both.

    Args:
        by: by what it is asked, in words. store: address of the store that the run's directory is a copy of; "" if it
            is the directory in which the run trains.

    Raises:
        UsageError: the run has ended, or it can't be asked; its directory is a link.
    """
    run.need_own_directory()
    status = observe(run)
    if status.name != "running":
        raise UsageError(f"run {run.quoted} isn't running (it {_ended(status.name)}): nobody is there to ask")
    asked = run_requests.new_request(run.attempt(), stop=stop, checkpoint=checkpoint, reason=reason, by=by)
    try:
        if store:
            _ask_in_store(run, asked, store)
        else:
            run_requests.ask(run.path, asked)
    except (OSError, DeliveryError) as error:
        raise UsageError(f"run {run.quoted} can't be asked: {error}") from None
    return asked


def _ended(status: str) -> str:
    return "was preempted" if status == "preempted" else "was stopped" if status == "stopped" else f"has {status}"


def _ask_in_store(run: RunDirectory, asked: Request, where: str) -> None:
    store, name = Store(where), f"{'/'.join(run.path.parts[-2:])}/{layout.REQUESTS}"
    try:
        before = store.get(name, run_requests.MOST_BYTES)
    except NotFound:
        before = b""
    store.put(name, before + msgspec.json.encode(asked) + b"\n")


def answer(run: RunDirectory, asked: Request) -> Answer:
    """What training has made of a request so far."""
    control = run_requests.read_control(run_requests.control_path(run.path, asked.attempt))
    looks = control.stop if asked.stop else control.checkpoint
    info = run.read_info()
    lives = machines.is_here(info) and processes.alive(info.pid, info.pid_start)  # told before the status: it may end
    status = observe(run)
    if status.name != "running":
        if lives and _is_leaving(run):
            return Answer("stopping", looks, "training has seen it, and its process ends")
        reason = f": {status.reason}" if status.reason else ""
        return Answer("ended", looks, f"it {_ended(status.name)}{reason}")
    if asked.stop and control.stopping:
        return Answer("stopping", looks, "training has seen it, and stops")
    if asked.id in control.saved and not asked.stop:
        return Answer("saving", looks, "training has seen it, and saves")
    if looks:
        text = "training looks for it now and then, and hasn't since: it does so at its next step"
        return Answer("heard" if asked.id in control.heard else "unheard", True, text)
    end = f"end process {info.pid} on {info.host}"
    if machines.is_here(info):
        end = f"kill -INT {info.pid}"
    what = "run.should_stop" if asked.stop else "run.should_checkpoint"
    return Answer(
        "heard" if asked.id in control.heard else "unheard", False,
        f"training has never looked at {what}, so it goes on; to end it: {end}",
    )  # fmt: skip


def _is_leaving(run: RunDirectory) -> bool:
    """Whether the run's end was last recorded by a process that was ending: its exit code decides."""
    names = [name for name in run.stream_names() if name.attempt == run.attempt() and name.writer in ("node", "rank")]
    ends = [find_finish(run.stream(name)) for name in sorted(names, key=lambda name: name.writer)]
    return next((end.leaving for end in ends if end is not None), False)


def wait(
    run: RunDirectory, asked: Request, timeout_s: float, *, ended: bool = False,
    refresh: Callable[[], None] | None = None,
) -> Answer:  # fmt: skip
    """Wait until training has taken a request, and for its end where ``ended``. Returns the last answer.

    Args:
        refresh: called before each look, where the directory is a copy.
    """
    until = time.monotonic() + timeout_s
    while True:
        if refresh is not None:
            refresh()
        known = answer(run, asked)
        if known.state == "ended" or (not ended and known.state in ("stopping", "saving")):
            return known
        if time.monotonic() >= until:
            return known
        time.sleep(POLL_S if refresh is None else STORE_POLL_S)
