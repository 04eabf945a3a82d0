"""``trackers sync``: the relay's work done by hand, on any machine that sees the run's directory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from trackers import registry
from trackers.errors import NotFound, UsageError
from trackers.relay.account import read_account
from trackers.relay.lease import Lease
from trackers.relay.messages import Messages
from trackers.relay.report import report
from trackers.relay.status import observe
from trackers.relay.supervisor import Supervisor
from trackers.rundir import RunDirectory, find_runs, replace_file
from trackers.secret import reveal

TURN_S = 0.1
LOOK_S = 2.0
SEEN_S = 1.0
PATIENCE_S = 120.0


class RunSync:
    """Brings one run to its trackers.

    Args:
        to: trackers; default those of the run.
        follow: go on while the run goes on; else stop when what is there now is delivered.
        echo: what deliveries have to say is printed on stderr.
    """

    def __init__(self, run: RunDirectory, to: Sequence[str], *, follow: bool, echo: bool = True) -> None:
        self.run = run
        self.info = run.read_info()
        own = [name for name in self.info.trackers if not getattr(registry.front(name), "inside", False)]
        self.names = list(to) or own
        self.follow = follow
        self.done = False
        self.lacking: list[str] = []
        self._explicit = bool(to)
        self.held_by = ""
        self._messages = Messages(run.messages, echo=echo)
        self._lease = Lease(run.path / "relay.lease")
        self._sizes = run.sizes()
        self._settled_at = 0.0
        self._supervisor: Supervisor | None = None

    def begin(self) -> None:
        """Start the deliveries. What a tracker needs is checked first.

        Raises:
            UsageError: a tracker is unknown, or its package or login is missing.
        """
        run = self.run
        options = {**reveal(self.info.options), "TRACKER_MODE": "online"}
        for name in list(self.names):
            try:
                registry.check(name, options)
            except UsageError as error:
                if self._explicit or len(self.names) == 1:
                    raise
                self._messages.say(f"{error}; the other trackers are delivered", source=name)
                self.names.remove(name)
                self.lacking.append(name)
                continue
            _unstop(run, name)
        owner = self._lease.acquire()
        if not owner:
            holder = self._lease.holder()
            self.held_by = str(holder) if holder is not None else ""
        self._supervisor = Supervisor(
            run,
            self.names,
            watch=None,
            owner=owner,
            say=lambda text, name: self._messages.say(text, source=name),
        )
        self._supervisor.begin()

    def turn(self) -> bool:
        """One look at everything; False when there is nothing more to do."""
        if self._supervisor is None:
            return False
        self._lease.beat()
        going = self._supervisor.turn()
        status = self.report()
        self.done = all(entry["state"] == "delivered" or self._caught_up(entry) for entry in status.values())
        if not going:
            return False
        if all(entry["state"] == "stopped" for entry in status.values()):
            return False
        return self.follow or not self.done or observe(self.run).name != "running"

    def end(self) -> None:
        """Stop the deliveries and give everything back."""
        if self._supervisor is not None:
            self._supervisor.end()
            self._supervisor = None
        self._lease.release()

    def report(self) -> dict[str, dict[str, Any]]:
        """How each of the trackers stands."""
        return {name: entry for name, entry in report(self.run, self.names).items() if name in self.names}

    def progress(self) -> list[tuple[int, str]]:
        """How far each tracker has got: it changes as long as anything moves."""
        accounts = [read_account(self.run, name) for name in self.names]
        return [(account.seq, account.closed) for account in accounts]

    def _caught_up(self, entry: dict[str, Any]) -> bool:
        # A run that goes on is done, for a sync that doesn't follow, when it has what was there at the beginning.
        if entry["state"] == "stopped" or observe(self.run).name != "running":
            return False
        offsets = read_account(self.run, entry["tracker"]).offsets
        return all(offsets.get(stream, 0) >= size for stream, size in self._sizes.items())


def sync(
    runs: Iterable[RunDirectory],
    to: Sequence[str],
    show: Callable[[RunSync], None],
    *,
    stopping: Callable[[], bool] = lambda: False,
    patience_s: float = PATIENCE_S,
) -> bool:
    """Bring runs to their trackers, one after the other.

    Args:
        patience_s: give a run up when nothing moved for so long; 0: never.
        show: called now and then with the run at work, and once at its end.
        stopping: asked ten times a second.

    Returns:
        True if everything that there was is delivered.
    """
    complete = True
    for run in runs:
        work = RunSync(run, to, follow=False)
        work.begin()
        _serve(work, show, stopping, patience_s)
        complete = complete and work.done and not work.lacking
    return complete


def follow(
    roots: Sequence[Path],
    to: Sequence[str],
    show: Callable[[RunSync], None],
    *,
    stopping: Callable[[], bool] = lambda: False,
    jobs: int = 4,
) -> bool:
    """Deliver live for others: every run below ``roots``, those that come later too, until told to stop.

    Args:
        jobs: how many runs are served at once.
    """
    active: dict[Path, RunSync] = {}
    ended: set[Path] = set()
    look_at = 0.0
    complete = True
    while not stopping():
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + LOOK_S
            for run in (run for root in roots for run in find_runs(root)):
                path = run.path.resolve()
                if path in active or len(active) >= jobs or (path in ended and not _has_more(run, to)):
                    continue
                with contextlib.suppress(NotFound):
                    work = RunSync(run, to, follow=True)
                    if path not in ended or work.names:
                        work.begin()
                        active[path] = work
        for path, work in list(active.items()):
            if not work.turn():
                work.end()
                show(work)
                complete = complete and work.done
                ended.add(path)
                del active[path]
            elif time.monotonic() - work._settled_at > SEEN_S:
                work._settled_at = time.monotonic()
                show(work)
        time.sleep(TURN_S)
    for work in active.values():
        complete = work.turn() is False and work.done and complete
        work.end()
        show(work)
    return complete and not active


def _serve(work: RunSync, show: Callable[[RunSync], None], stopping: Callable[[], bool], patience_s: float) -> None:
    shown = 0.0
    moved_at, seen = time.monotonic(), work.progress()
    try:
        while work.turn() and not stopping():
            now = time.monotonic()
            if now - shown > SEEN_S:
                shown = now
                show(work)
                if work.progress() != seen:
                    moved_at, seen = now, work.progress()
                elif patience_s and now - moved_at > patience_s:
                    break
            time.sleep(TURN_S)
    finally:
        work.end()
    work.done = all(entry["state"] == "delivered" for entry in work.report().values()) or work.done
    show(work)


def _has_more(run: RunDirectory, to: Sequence[str]) -> bool:
    entries = report(run, to or run.read_info().trackers).values()
    return any(entry["state"] in ("waiting", "not begun") for entry in entries)


def _unstop(run: RunDirectory, name: str) -> None:
    """A delivery that stopped by itself is tried again when somebody asks for it."""
    import msgspec

    account = read_account(run, name)
    if account.stopped:
        account.stopped, account.error = False, ""
        replace_file(run.delivery_state(name), msgspec.json.encode(account))
