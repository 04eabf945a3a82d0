"""The contract between a run's records and one destination.

A tracker is constructed without arguments and does nothing until ``open``. One process calls it, from one
thread, in this order: ``open``, then ``write`` again and again with ``tick`` between, then ``close``. It is
killed without notice at any of these points, and opened again in a new process.

Exactly once. The delivery commits its cursor and the tracker's ``state`` together, after ``write`` returned.
So a batch can come again: after a kill between the two, after an error, after a lost cursor. A tracker makes
that harmless in one of three ways: the destination ignores what it has (an idempotent key made from
``record.id``), or ``open`` asks the destination what it holds and answers with that cursor, or the tracker
owns its files and cuts them back to the length in its state before it appends. Inside one process a batch may
also be repeated, whole or in halves; ``record.seq`` tells what was taken already.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import msgspec

from trackers.records import Record
from trackers.support.client_versions import ClientVersions

StatusName = Literal["running", "finished", "failed", "crashed", "preempted", "stopped"]


class Cursor(msgspec.Struct, frozen=True):
    """Progress of a delivery.

    seq: number of records, in the order that the delivery chose, that are safely delivered.
    """

    seq: int = 0


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """Status of a run.

    name: "running", "finished", "failed", "crashed" (killed), "preempted" or "stopped" (it was asked to).
    exit_code: of the process, 0 to 255; None while it runs, and where it isn't known.
    time: Unix seconds of the end, or of the last sign of life.
    reason: one line on why it ended so, such as the exception; "" for a run that finished.
    """

    name: StatusName
    exit_code: int | None = None
    time: float = 0.0
    reason: str = ""


class RunInfo(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Identity of a run: the content of ``run.json``.

    id: the same in every tracker, and the name of the run's directory.
    name, project, group, job_type, tags, notes: as ``init`` got them, or as they were changed last. A tracker gets the
        name that ``init`` got: what changed it comes as a record.
    trackers: names of the trackers that receive the run.
    mode: "online" or "offline".
    created: Unix seconds of the first attempt's start.
    program, argv, cwd, python: the script, its arguments (secrets masked), its working directory, its interpreter.
    host, boot_id, pid_namespace, pid, pid_start, user: the training process of the newest attempt, so that it can be
        found again.
    git: commit, branch, remote and root of the repository around the script; {} where there is none.
    attempts: a mapping for each start of the run, the oldest first.
    pauses: of a copy, begin and end of the times between attempts, in Unix seconds.
    version: of this format.
    options: every option's resolved value, by Kconfig symbol (``"MLFLOW_TRACKING_URI"``), and what ``init`` was
        given for one tracker only (``settings``).
    config: the configuration as ``init`` got it; later changes are Config records. Trackers take the
        configuration from the records, the first of which repeats this one.
    forked_from: "project/id@step" of the run whose history up to that step this one begins with; "": of none.
    edits: bytes of the stream of edits that tags, group and notes hold already.
    seal: proof that this user's own trackers wrote the options (:mod:`trackers.journal.signature`).
    directory: the run's directory, absolute; set by whoever reads the file, never stored.
    home: the directory that options' relative paths start from; never stored. foreign: somebody else's run, whose
        files and fields are data: its options are the reader's own where they name programs, addresses or
        directories; never stored.
    """

    id: str
    name: str
    project: str
    trackers: list[str] = []
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = []
    notes: str | None = None
    config: dict[str, Any] = {}
    mode: str = "online"
    options: dict[str, Any] = {}
    created: float = 0.0
    program: str = ""
    argv: list[str] = []
    cwd: str = ""
    python: str = ""
    host: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    pid_start: float = 0.0
    user: str = ""
    git: dict[str, Any] = {}
    attempts: list[dict[str, Any]] = []
    pauses: list[tuple[float, float]] = []
    version: int = 1
    forked_from: str = ""
    edits: int = 0
    seal: str = ""
    directory: str = ""
    home: str = ""
    foreign: bool = False

    @property
    def starts(self) -> int:
        """How often the run itself was begun: attempt 0 of a fork is its parent's."""
        return sum(entry.get("number") != 0 for entry in self.attempts)

    def path(self, *parts: str) -> Path:
        """A path inside the run's directory."""
        return Path(self.directory, *parts)

    def option(self, symbol: str, default: Any = None) -> Any:
        """An option's value; ``default`` where it is unset or empty."""
        value = self.options.get(symbol)
        return default if value is None or value == "" else value


class ValueComparison:
    """How the values at a destination differ from those that are delivered to it again.

    missing: that it didn't have. changed: in whose place it had another. restored: of both, those that it has now.
    """

    missing = 0
    changed = 0
    restored = 0


class Verified(msgspec.Struct, frozen=True):
    """Result of reading back what a tracker had delivered.

    checked: what was looked at, in words ("3 files, 12,345 bytes"). damaged: what wasn't as it had been written.
    cursor: from where to deliver again, where that repairs something. unchecked: what couldn't be looked at, and why.
    comparison: where values are compared while they are delivered again: see :class:`Tracker`.
    """

    checked: str
    damaged: list[str] = []
    cursor: Cursor | None = None
    unchecked: str = ""
    comparison: ValueComparison | None = None


class State(MutableMapping[str, Any]):
    """A tracker's state that survives restarts: JSON values by name.

    It is stored with the cursor after each ``write``; ``save()`` stores it at once (a native run id, before the
    first record goes out). ``url`` (where people look) is shown to the user as soon as it is saved or committed.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, save: Callable[[], None] | None = None) -> None:
        self._values = dict(values or {})
        self._save = save

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State({json.dumps(self._values, default=str)})"

    def save(self) -> None:
        """Store the state now, with the cursor as last committed.

        Not in an ``open`` that is about to answer with an earlier cursor: both are stored together then, and whoever is
        killed in between must find the store as lost as this one did.
        """
        if self._save is not None:
            self._save()


class Tracker(ABC):
    """One destination: ``open``, ``write`` and ``close``, and defaults for all else. See the module's text for the
    promises on both sides.

    A class that has the three methods and doesn't derive from this one gets the defaults when it is loaded
    (:func:`trackers.backends.registry.load`).
    """

    # Identity: what ``init`` and commands ask, without the client's package.

    name: ClassVar[str] = ""
    """The name that users give, ``--tracker NAME``: that of the entry point."""
    needs: ClassVar[Sequence[str]] = ()
    """Import names of the packages that deliveries use; ``init`` refuses to begin without them."""
    versions: ClassVar[ClientVersions | None] = None
    """Versions of its client that it takes, which ``init``, ``trackers doctor`` and the delivery compare. None: any."""
    accepts: ClassVar[frozenset[type[Record]]] = frozenset()
    """Kinds of records that ``write`` gets; the others are skipped, with one warning a kind."""
    partial: ClassVar[bool] = False
    """True if it is made of some records only, so that nobody is told which kinds it leaves out."""
    common: ClassVar[bool] = False
    """True if it is a store that several users write to: its files follow the umask alone, where those of others are as
    private as the run's directory."""
    inside: ClassVar[bool] = False
    """True if it must run in the training process: it writes to the user's terminal."""
    gathers_nccl: ClassVar[bool] = False
    """True if it reads what NCCL writes (``NCCL_DEBUG``): ``init`` has each rank's go to the run's folder ``nccl``."""
    late_note: ClassVar[str] = ""
    """What it shows otherwise of a run that is delivered after training, in a few words for ``trackers sync``."""
    symbol: ClassVar[str] = ""
    """The option that names the directory of its files, where they lie in the run's own unless it is set."""

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See, in ``init``, whether it can work, as far as can be seen without a network.

        Args:
            options: every option's value, by Kconfig symbol.

        Raises:
            UsageError: it can't: a bad address, a missing login. Training doesn't begin.
        """

    @classmethod
    def is_offline(cls, options: Mapping[str, Any]) -> bool:
        """Whether a run with these options goes into files that the client's own command uploads later."""
        return False

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """Where the run will be found, in a word or an address; "" in the run's directory."""
        return ""

    # Delivery.

    deadline_s: ClassVar[float] = 300.0
    """How long one call may take, in seconds, before its process is killed and restarted."""
    batch_records: ClassVar[int] = 1000
    """The most records that one ``write`` gets."""
    processes: ClassVar[int] = 1
    """How many processes a delivery consists of, with those that its client starts."""
    single_axis: ClassVar[bool] = False
    """True if its one axis is the step: it gets the records of metrics that have a step metric (``define_metric``) at
    that metric's value, else at the step that they were logged at."""
    whole_steps: ClassVar[bool] = False
    """True if a step's values across ranks are to come with its others: rows can't be changed once they are sent."""
    machine: ClassVar[Literal["all", "training", "apart"]] = "all"
    """Where samples of the machine go: "all", as they are recorded; "training", ``gpu/*`` at training's steps, without
    smallest and largest values; "apart", all of them at no step, for a tracker that shows the machine by itself. The
    user's TRACKER_GPU_METRICS may say otherwise."""
    restart_after_error: ClassVar[bool] = False
    """True if it is opened in a new process after an error: its client keeps what it read at its start."""
    ended: Status | None = None
    """Set before ``open`` to how the run ended, if it has ended."""

    @staticmethod
    def preload() -> None:
        """Import what deliveries will need, in a process that forks them (the host agent; built-in trackers only)."""

    @abstractmethod
    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Create the native run or resume it.

        Returns:
            None to go on from the committed cursor, or an earlier cursor where the destination holds less
            than we believed.

        Raises:
            DeliveryError: see ``trackers.errors`` for what each kind leads to.
        """

    @abstractmethod
    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Deliver records (only of accepted kinds, in order, perhaps none); ``cursor`` is committed on return."""

    @abstractmethod
    def close(self, status: Status) -> None:
        """The run has ended so, or pauses ("running": the delivery ends, the run goes on). Nothing is called after it;
        the run may be opened again."""

    def tick(self) -> None:
        """Called between batches, at least once a second: timed flushes."""

    # Limits of a server.

    begin_refused: Callable[[], object] | None = None
    """Set before ``open``: to be called, from any thread, when the destination refuses a beginning for their number
    (429) and a client tries again by itself."""

    @classmethod
    def begin_apart_s(cls, info: RunInfo) -> float | None:
        """Seconds between beginnings of runs on one machine, for a server that takes few at once. None: they begin at
        once, unless ``place`` is a server's address."""
        return None

    def limited(self) -> bool:
        """Whether the destination has asked for fewer requests since the last call, where a client tries again by
        itself instead of raising ``Unavailable``. Asked after ``open``, a batch or a tick."""
        return False

    def refused(self) -> Iterable[tuple[Record, str]]:
        """Records that were taken before, and that the destination has refused for good since, each with the reason,
        where a client sends by itself: they are set aside. Asked after ``open``, a batch or a tick; after a kill some
        may come again, under the same ids."""
        return ()

    # Edits and removal. The static methods have a connection of their own: the run has ended, and isn't open.

    unedited: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What of an edit (name, tags, notes, group, results) it can't hold, each with why."""
    removes_for_good: ClassVar[bool] = False
    """True if nothing brings back what ``remove`` took out: it is called only for trackers named with ``--at``."""

    @staticmethod
    def remove(info: RunInfo, state: State) -> str | None:
        """Take a run that was removed out of the destination, as far as it can be brought back; twice is harmless.

        Returns:
            What was done, in words; None where it can't.
        """
        return None

    @staticmethod
    def restore(info: RunInfo, state: State) -> str | None:
        """Undo :meth:`remove`; None where the run is to be delivered again."""
        return None

    @staticmethod
    def own_files(info: RunInfo, state: State) -> Sequence[Path] | None:
        """Files and directories of this run alone outside of its directory, which are moved to the trash with it; None
        where it has no files of its own."""
        return None

    # Verification, of a run that has ended and is delivered (``trackers sync --verify``).

    compares: ClassVar[bool] = False
    """True if ``verify`` answers with a ``comparison``: what is missing is counted while it is delivered again."""
    comparison: ValueComparison | None = None
    """Set before ``open`` to what ``verify`` answered with, where all is delivered again: told after ``close``."""

    def verify(self) -> Verified:
        """Read back what the destination holds; called after ``open``."""
        return Verified("", unchecked="it has no way to be read back")

    def held(self) -> int | None:
        """How many rows the destination has of the run, of all that was written so far; None where it can't be asked.
        Asked while it is open, before and after a repair."""
        return None
