"""How a rank's values reach the main rank: directly in a single process, by files, or by a collective.

By files, a rank's contributions go to a stream of its own, opened at the first one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trackers.errors import MissingPackage, UsageError
from trackers.journal.run_directory import SHARES, StreamName
from trackers.journal.stream import StreamWriter
from trackers.object_storage import addresses
from trackers.ranks import launch, meeting
from trackers.ranks.contribution import NUMBERS, DisconnectedTransport, LocalTransport, ReductionRow, Transport
from trackers.ranks.meeting import NETWORK
from trackers.records import Finish, Number, RankColumns, RankRow, Record, Start, encode, encode_lines
from trackers.reductions import KINDS, Layout, Reduction
from trackers.support import confined, launcher, machines, processes
from trackers.support.clock import Clock
from trackers.support.confined import local
from trackers.support.interruption import pass_on
from trackers.values.device_copy import batched, hold

LOOK_S = 1.0
"""Time between checks whether the file still exists, in seconds."""

SETTLE_S = 10.0
"""Maximum wait at a rank's end for a full disk, in seconds."""


class RankStream:
    """Transport by files, see :class:`trackers.ranks.contribution.Transport`.

    Args:
        folder: the launch's.
        rank, ranks: this rank's number, and the number of ranks.
        say: called with one line for each failure.
        dated: number the stream by the time: its node may not see streams that this rank wrote on another one.
        share: who can read the folder, see :data:`SHARES`.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        ranks: int,
        say: Callable[[str], None],
        *,
        dated: bool = False,
        share: str = "owner",
    ) -> None:
        self._first = int(Clock().now()) if dated else 1
        self.move, self.batch = hold, batched
        self._folder = folder
        self._mode = SHARES.get(share, 0o700)
        self._rank = rank
        self._ranks = ranks
        self._say = say
        self._writer: StreamWriter | None = None
        self._lock = threading.RLock()  # a signal's handler may log, too
        self._numbers: dict[Layout, int] = {}
        self._quick_layouts: dict[tuple[str, ...], tuple[tuple[type[Reduction], ...], int, StreamWriter]] = {}
        self._early_records: list[Record] = []
        self._look_at = 0.0
        self._open_at = 0.0
        self._closed = False
        self._pid = os.getpid()

    def quick(self, step: int | None, time: float, values: Mapping[str, Any]) -> bool:
        """See :class:`trackers.ranks.contribution.Transport`. May raise where the values are no mapping of
        reductions."""
        known = self._quick_layouts.get(tuple(values))
        if known is None or time > self._look_at or os.getpid() != self._pid:
            return False
        kinds, number, writer = known
        if tuple(map(type, values.values())) != kinds or not writer.healthy or self._closed:
            return False
        parts = [part for reduction in values.values() for part in reduction.parts]
        if not NUMBERS.issuperset(map(type, parts)) or not math.isfinite(sum(parts)):  # NaN needs the long way's words
            return False
        line = encode_lines([RankRow(step=step, time=time, columns=number, values=parts)])
        try:
            written = os.write(writer.fd, line)
            if written != len(line):
                writer.repair(line, written)
        except BaseException:
            writer.broke_off(line)
            raise
        return True

    def begin(self, step: int | None, time: float, added: ReductionRow) -> dict[Any, Any]:
        """Wait for transfers from an accelerator only."""
        return added.waiting

    def end(self, step: int | None, time: float, added: ReductionRow, arrived: Mapping[Any, Any]) -> dict[str, Number]:
        """Append the row; the relay records the values."""
        self.add(step, time, added.layout, added.row(arrived))
        return {}

    def add(self, step: int | None, time: float, layout: Layout, row: list[Any]) -> None:
        """Append one call's row."""
        if self._closed or not layout.names:
            return
        if os.getpid() != self._pid:
            self._say("values across ranks: a forked process has none of its own; log them where init was called")
            return
        with self._lock:
            writer = self._writer or (self._open(time) if time >= self._open_at else None)
            if writer is None:
                return
            number = self._numbers.get(layout)
            lines = b""
            if number is None:
                number = self._numbers[layout] = len(self._numbers)
                columns = RankColumns(time=time, number=number, names=list(layout.names), kinds=list(layout.kinds))
                lines = encode(columns)
                self._quick_layouts[layout.names] = tuple(KINDS[kind] for kind in layout.kinds), number, writer
            try:
                line = encode(RankRow(step=step, time=time, columns=number, values=row))
            except OverflowError:  # an integer that JSON's readers don't take
                line = encode(RankRow(step=step, time=time, columns=number, values=[v and float(v) for v in row]))
            writer.write(lines + line)
            if time > self._look_at:
                self._look_at = time + LOOK_S
                writer.mend(lambda: confined.make_own(self._folder, self._mode))

    def note(self, record: Record) -> None:
        """Write a record that the reducer needs; kept in memory until the first row opens the stream."""
        with self._lock:
            if self._writer is not None:
                self._writer.write(encode(record))
            elif len(self._early_records) < 1000:
                self._early_records.append(record)

    def close(self, finish: Finish) -> None:
        """Write how this rank has ended."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        with self._lock:
            if self._writer is not None:
                self._writer.write(encode(finish))
                self._writer.flush(SETTLE_S)
                why = self._writer.why()
                self._writer.release()
                if self._writer.lost:
                    self._say(f"{self._writer.lost} rows of rank {self._rank} were lost. {why}")

    def _open(self, time: float) -> StreamWriter | None:
        pid = os.getpid()
        start = Start(
            time=time,
            rank=self._rank,
            world_size=self._ranks,
            host=machines.host(),
            pid=pid,
            pid_start=processes.process_start(pid),
            boot_id=machines.boot_id(),
            pid_namespace=machines.pid_namespace(),
        )
        try:
            confined.make_own(self._folder, self._mode)
            for number in itertools.count(self._first):
                path = self._folder / f"{StreamName('rank', self._rank, number)}.jsonl"
                with contextlib.suppress(FileExistsError):
                    self._writer = StreamWriter(path, exclusive=True)
                    break
        except OSError as error:
            pass_on(error)
            self._open_at = time + LOOK_S
            self._say(f"values across ranks can't be kept in {self._folder} ({error.strerror}): they are left out")
            return None
        assert self._writer is not None
        self._writer.write(b"".join(encode(record) for record in (start, *self._early_records)))
        return self._writer


class RankTransport:
    """A process among the ranks of its job.

    Args:
        rank: of this process. None: the launcher's. "own": it logs alone, whatever else the launcher started.
        options: resolved, by symbol.
        asked: the caller named a transport, so that an unavailable one is an error.

    Attributes:
        rank, ranks, main: this rank's number, the number of ranks, the rank that logs.
        folder: the folder of the ranks' files; None without files.
        launch: the launch that this process belongs to; None if it is alone or unknown.
        store: the address of the store that the run is sent to; "" for none.
        network: ranks on other nodes send their streams to the main node.

    Raises:
        UsageError: the transport that the caller named isn't available.
    """

    def __init__(self, rank: int | str | None, options: Mapping[str, Any], *, asked: bool) -> None:

        if rank == "own":
            self.rank = self.main = 0
            self.ranks = 1
        elif isinstance(rank, str):
            raise UsageError(f"rank={rank!r}: give this process's number, or 'own' for a run of its own")
        else:
            self.rank = launcher.rank() if rank is None else rank
            self.ranks = launch.world(os.environ)
            main_rank = str(options.get("TRACKER_RANK") or "0")
            self.main = self.ranks - 1 if main_rank == "last" else int(main_rank)
        self.folder: Path | None = None
        self.store = addresses.store_of(options.get("TRACKER_DIR"))
        self.launch: launch.Launch | None = None
        self.network = False
        self._torch = options.get("TRACKER_REDUCE") == "torch"
        self._share = str(options.get("TRACKER_SHARE") or "owner")
        if self.ranks <= 1:
            return
        if self._torch:
            if importlib.util.find_spec("torch") is None:
                raise MissingPackage("reduce='torch' needs PyTorch: pip install torch, or leave reduce out")
            return
        self.launch = launch.find(str(options.get("TRACKER_RUN_ID") or ""))
        if self.launch is not None:
            self.folder = self.launch.folder(runs_root(options))
            self.network = options.get("TRACKER_NODES") == NETWORK
            if self.network:
                meeting.check(options)
        elif asked:
            raise UsageError(launch.LOST)

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that logs."""
        return self.rank == self.main

    def open(self, say: Callable[[str], None]) -> Transport:
        """The transport. Creates nothing on disk before the first row."""
        if self.ranks <= 1:
            return LocalTransport()
        if self._torch:
            from trackers.ranks.collective_transport import Collective

            return Collective(self.main, say)
        if self.folder is None:
            return DisconnectedTransport(say, launch.LOST)
        dated = bool(self.store) or self.network
        return RankStream(self.folder, self.rank, self.ranks, say, dated=dated, share=self._share)


def runs_root(options: Mapping[str, Any]) -> Path:
    """Directory of runs on this machine, also of those that are sent to a store."""
    if store := addresses.store_of(options.get("TRACKER_DIR")):
        return addresses.local_directory(store, str(options.get("TRACKER_STORE_DIR") or ""))
    return Path(local(str(options.get("TRACKER_DIR") or "runs"))).expanduser().absolute()
