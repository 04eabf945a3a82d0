"""Exclusive access to a run: the leases of its relay and of all deliveries, held together.

Why a run must stay as it is: it runs, somebody works on it, a tracker lacks something of it, or it is young.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from trackers.backends import registry
from trackers.errors import NotFound, UsageError
from trackers.journal.lease import Lease, living_holder
from trackers.journal.naming import runs_named
from trackers.journal.run_directory import RunDirectory, asked_for
from trackers.journal.status import observe
from trackers.records import Finish
from trackers.relay.aggregation.worker import attempts
from trackers.relay.delivery.cursor_file import delivery_report, read_account
from trackers.relay.sync import runs_below
from trackers.tracker import RunInfo

ALLOW_S = 3600.0
"""Maximum time between two signs of life, in seconds: packing or reading back a file takes less."""


class RunLock:
    """The leases, held. Each is given back as it was found: free."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._leases = [Lease(path) for path in leases(run)]

    def acquire(self) -> None:
        """Take all of them.

        Raises:
            UsageError: somebody has one, or its directory can't be written.
        """
        for lease in self._leases:
            if not lease.acquire():
                if not os.access(lease.path.parent, os.W_OK):
                    raise UsageError(f"{lease.path.parent} can't be written: nothing was changed")
                raise UsageError(f"{self._run.path}: {lease.holder() or 'somebody'} works on it; try again later")
        self.beat()

    def beat(self) -> None:
        """Give a sign of life.

        Raises:
            UsageError: a lease was lost.
        """
        for lease in self._leases:
            if not lease.beat(ALLOW_S):
                raise UsageError(f"{self._run.path}: {lease.holder() or 'somebody'} has taken it over; nothing is lost")

    def release(self) -> None:
        """Give all back."""
        for lease in self._leases:
            lease.release()


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[RunLock]:
    """Hold a run's leases for a block.

    Raises:
        UsageError: somebody else works on it.
    """
    hold = RunLock(run)
    try:
        hold.acquire()
        yield hold
    finally:
        hold.release()


DAY_S = 86400.0
_OFFLINE = "offline"


def choose_runs(references: Iterable[str], root: Path) -> list[RunDirectory]:
    """The runs that references name (:mod:`trackers.journal.naming`), each once; without any, all below ``root``.

    Raises:
        NotFound: a reference names none. UsageError: it is empty, or several runs have that name.
    """
    runs: dict[Path, RunDirectory] = {}
    for reference in asked_for(references, root):
        folder = Path(reference).expanduser()
        inside = list(runs_below(folder)) if folder.is_dir() else []
        for run in inside or runs_named(reference, root):
            runs.setdefault(run.path.resolve(), run)
    return list(runs.values())


GUARDED_RUNS = 10
"""Runs below a directory that isn't one of runs, from which on their number is asked for before they are deleted."""


def need_meant(references: Iterable[str], root: Path, count: int | None) -> None:
    """Raise a UsageError where a directory would have more runs deleted than its name says: ``/``, a home directory.

    A run's directory, a project's, and one of projects say what they are. Of any other one with more than
    ``GUARDED_RUNS`` runs, and of the root and home directories, the number of runs must be given.

    Args:
        root: the directory of all runs. count: the number of runs that were said to be meant; None: none was.
    """
    home, listed = Path.home(), list(references)
    asked_for(listed, root)
    for reference in listed:
        folder = Path(reference).expanduser()
        inside = [run.path.resolve() for run in runs_below(folder)] if folder.is_dir() else []
        here = folder.resolve()
        if not inside or inside == [here]:
            continue
        special = here == home.resolve() or here in home.resolve().parents or os.path.ismount(here)
        if here == root.resolve() and not special:
            continue
        if not special and (len(inside) <= GUARDED_RUNS or all(here in path.parents[:2] for path in inside)):
            continue
        if count is None or count != len(inside):
            where = len({path.parent for path in inside})
            stated = f", not {count:,}" if count is not None else ""
            raise UsageError(
                f"{here} is no directory of runs, and has {len(inside):,} runs in {where:,} projects below it{stated}: "
                f"name runs or projects, or confirm them all with --count {len(inside)}"
            )


def why_kept(run: RunDirectory, older_than_s: float, *, held: bool = False) -> str:
    """Why a run must not be touched, in a few words; "" if it may be archived.

    Args:
        older_than_s: since when nothing of it may have changed.
        held: the caller has its leases.
    """
    try:
        info = run.read_info()
    except NotFound as error:
        return str(error)
    if observe(run).name == "running":
        return "it is running"
    holder = next((str(one) for path in leases(run) if (one := living_holder(path)) is not None), "")
    if holder and not held:
        return f"{holder} works on it"
    return _lacking(run, info) or _young(run, older_than_s)


def why_not_deleted(run: RunDirectory, older_than_s: float, *, held: bool = False, but: str = "") -> str:
    """As :func:`why_kept`, and: a complete copy of it lies outside of its directory.

    Args:
        but: a tracker whose copy doesn't count.
    """
    reason = why_kept(run, older_than_s, held=held)
    if reason or run.path.is_symlink():
        return reason or "it is a link to a directory: delete that one"
    info = run.read_info()
    entries = delivery_report(run, info.trackers)
    copies = [entry for name, entry in entries.items()
              if name != but and _is_stored_outside(run, info, name, entry["url"])]  # fmt: skip
    if not copies:
        return "no tracker has it outside of this directory"
    missing = set.intersection(*(set(entry["skipped"]) for entry in copies)) - {Finish.__name__.lower()}
    if missing:
        return f"no tracker outside of this directory takes its {', '.join(sorted(missing))} records"
    damaged = max(int(entry["damaged"]) for entry in copies)
    return f"{damaged} damaged lines of its journal were delivered to nobody" if damaged else ""


def leases(run: RunDirectory) -> list[Path]:
    """Where it is written who works on a run: its relay, each tracker's delivery, who edits it."""
    names: set[str] = set()
    with contextlib.suppress(NotFound):
        names = {*run.read_info().trackers, *run.deliveries()}
    return [
        run.path / "relay.lease",
        *(run.delivery / f"{name}.lease" for name in sorted(names)),
        run.path / "edits.lease",
    ]


def _lacking(run: RunDirectory, info: RunInfo) -> str:
    if any(entry.get("launch") for entry in info.attempts) and attempts(run, run.attempt()):
        return "values across its ranks aren't all recorded: `trackers sync` does that"
    names = [name for name in info.trackers if not registry.identity(name).inside]
    entries = {name: entry for name, entry in delivery_report(run, names).items() if not registry.identity(name).inside}
    if not entries:
        return "no tracker has it"
    for name, entry in entries.items():
        if entry["state"] != "delivered":
            waiting = f", {entry['waiting_bytes']:,} bytes wait" if entry["waiting_bytes"] else ""
            return f"{name} lacks some of it ({entry['state']}{waiting})"
        if entry["rejected"]:
            return f"{name} refused {entry['rejected']:,} records: they are here only"
    return ""


def _young(run: RunDirectory, older_than_s: float) -> str:
    newest = max((read_account(run, name).time for name in run.deliveries()), default=0.0)
    for entry in (run.path / "run.json", run.streams):
        for path in [entry, *(entry.iterdir() if entry.is_dir() else ())]:
            with contextlib.suppress(OSError):
                newest = max(newest, os.stat(path).st_mtime if path.is_file() else 0.0)
    age_s = time.time() - newest
    return f"{age_s / DAY_S:.1f} days old" if age_s < older_than_s else ""


def _is_stored_outside(run: RunDirectory, info: RunInfo, name: str, url: str) -> bool:
    """True if the tracker stores this run outside its directory; False if unknown."""
    if url.startswith(("http://", "https://")):
        return True
    location = ""
    with contextlib.suppress(UsageError, OSError):
        location = str(registry.precheck(name).place(info))
    if registry.identity(name).inside or location in ("", _OFFLINE):
        return False
    own = run.path.resolve()
    missing = any(os.path.isabs(text) and not os.path.exists(text) for text in (location, url))
    named = (Path(text).expanduser().resolve() for text in (location, url) if text)
    return not (missing or any(path.is_relative_to(own) for path in named))
