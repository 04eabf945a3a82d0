"""The streams of a run merged into one sequence of records, the same after every restart.

Several streams have no common order, so a delivery chooses one, and writes each change from one stream to another to a
file before using it: ``{"seq": 41, "stream": "node-0.1", "start": 0}`` says that record 41 is the first one of
``node-0.1`` from offset 0 on, and that all following records come from there until the next line. Record n is then
always the same record, whichever processes died meanwhile. The file's first line has the number of the last record that
was returned: up to it the order is settled, after it the choice is free. It also has the latest time that was returned.

A stream that was truncated or replaced continues with its first record that is later than the last one returned: what
came before is delivered or lost. Until there is such a record, the order waits. When a settled part is read again, a
record that is later than all returned ones isn't one of them, though it is at the offset of one.

A stream that was deleted while its process lives is restored by that process; until then, the order waits too.

Changes between streams take few bytes of memory each: a long run has hundreds of thousands.
"""

from __future__ import annotations

import bisect
import errno
import math
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import comes_back, outlived
from trackers.journal.stream import FinishSearch, StreamReader, decode_lines
from trackers.records import EDITS, Finish, Record, Start, offset_of
from trackers.support import confined
from trackers.support.failpoints import failpoint

NO_STREAM = -1
MOST = 2**63 - 1


class Switch(msgspec.Struct, frozen=True):
    """From record ``seq`` on, records come from ``stream``, starting at byte ``start``."""

    seq: Annotated[int, msgspec.Meta(ge=0, le=MOST)]
    stream: str
    start: Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class OrderLog:
    """A sequence of switches, by ascending ``seq``."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.clear()

    def clear(self) -> None:
        """Remove all switches."""
        self._seqs = array("q")
        self._starts = array("q")
        self._streams = array("q")
        self._next = array("q")  # of the same stream
        self._last: dict[int, int] = {}
        self._stepped_back: set[int] = set()

    def __len__(self) -> int:
        return len(self._seqs)

    def __getitem__(self, index: int) -> Switch:
        return Switch(self._seqs[index], self._names[self._streams[index]], self._starts[index])

    def __iter__(self) -> Iterator[Switch]:
        return (self[index] for index in range(len(self)))

    def append(self, switch: Switch) -> None:
        """Add a switch after all others."""
        number = self._numbers.get(switch.stream)
        if number is None:
            number = self._numbers[switch.stream] = len(self._names)
            self._names.append(switch.stream)
        previous = self._last.get(number, NO_STREAM)
        if previous != NO_STREAM:
            self._next[previous] = len(self)
            if switch.start < self._starts[previous]:
                self._stepped_back.add(number)
        self._last[number] = len(self)
        self._seqs.append(switch.seq)
        self._starts.append(switch.start)
        self._streams.append(number)
        self._next.append(NO_STREAM)

    def cut(self, seq: int) -> bool:
        """Remove switches after ``seq``; False if there are none."""
        count = bisect.bisect_right(self._seqs, seq)
        if count == len(self):
            return False
        switches = [self[index] for index in range(count)]
        self.clear()
        for switch in switches:
            self.append(switch)
        return True

    def streams(self) -> list[str]:
        """The streams that have switches."""
        return [self._names[number] for number in self._last]

    def at(self, seq: int) -> int:
        """The index of the switch that record ``seq`` belongs to; -1 if it comes before all of them."""
        return bisect.bisect_right(self._seqs, seq) - 1

    def next_start(self, index: int) -> int | None:
        """The offset at which the same stream continues later; None if it doesn't."""
        later = self._next[index]
        return None if later == NO_STREAM else self._starts[later]

    def bound(self, index: int) -> int | None:
        """The offset before which a switch's records end: those after it are numbered later. None: no limit."""
        if self._streams[index] not in self._stepped_back:
            return self.next_start(index)
        least, later = None, self._next[index]
        while later != NO_STREAM:
            start = self._starts[later]
            least = start if least is None or start < least else least
            later = self._next[later]
        return least

    def last_before(self, index: int) -> list[int]:
        """Indexes of each stream's last switch before an index."""
        last_indexes: dict[int, int] = {}
        for earlier in range(index - 1, -1, -1):
            if self._streams[earlier] not in last_indexes:
                last_indexes[self._streams[earlier]] = earlier
                if len(last_indexes) == len(self._names):
                    break
        return sorted(last_indexes.values())


LOOK_BACK_BYTES = 65536


def still_holds(path: Path, offset: int, time: float) -> bool:
    """Whether lines end at ``offset``, with a record of this time among them; True if the file can't be read."""
    try:
        with confined.open_file(path) as file:
            if os.fstat(file.fileno()).st_size < offset:
                return False
            start = max(0, offset - LOOK_BACK_BYTES)
            file.seek(start)
            block = file.read(offset - start)
    except OSError:
        return True
    decoded = decode_lines(block, whole=start == 0)
    return block.endswith(b"\n") and (not decoded or any(record.time == time for record in decoded))


HEAD = "%020d %018.7f\n"
"""The order's first line: seconds of this century to the last bit of a float, in a fixed length."""
HEAD_BYTES = 40  # 20 digits, a blank, 18 characters, the line's end
LINE_BYTES = 1000
"""Maximum length of a line."""
MOST_TIME = 9_999_999_999.0
"""Maximum time in the first line; later times are ignored."""


class Position(msgspec.Struct):
    """A position in the sequence: records read, the offset in each stream, and the time of its last record."""

    seq: int = 0
    offsets: dict[str, int] = {}
    times: dict[str, float] = {}

    def copy(self) -> Position:
        return Position(self.seq, dict(self.offsets), dict(self.times))


class Order:
    """Reads the sequence from a position on, and goes back to any earlier record.

    Args:
        run: the run whose streams are read.
        path: file of the changes between streams.
        position: as committed; if the file doesn't have it (the order was lost), reading starts again from 0.
        attempt: number of the newest attempt known to have begun; 0: none.
        held_from: the time, in Unix seconds, after which records of ranks wait for others.

    Attributes:
        position: after the last record that ``read`` returned.
        cut: truncated streams that continue with later records.
    """

    def __init__(
        self, run: RunDirectory, path: Path, position: Position | None = None, attempt: int = 0,
        held_from: Callable[[], float] = lambda: math.inf,
    ) -> None:  # fmt: skip
        self._run = run
        self._held_from = held_from
        self._attempt = attempt
        self._path = path
        self._switches = OrderLog()
        self._settled = 0
        self._latest = 0.0
        self._fd = confined.open_fd(path, os.O_RDWR | os.O_CREAT)
        self._load()
        self._readers: dict[str, StreamReader] = {}
        self._end_times: dict[str, float] = {}
        self._buffered: dict[str, list[Record]] = {}
        self._finished: dict[str, bool] = {}
        self._finish_searches: dict[str, FinishSearch] = {}
        self._unverified: dict[str, tuple[int, float]] = {}
        self._searched_sizes: dict[str, int] = {}
        self.cut: set[str] = set()
        self.position = position or Position()
        self.seek(self.position)

    def awaited(self) -> list[str]:
        """Streams that are missing and are going to be restored: known ones, or ones that records were read from."""
        names = self._run.stream_names()
        existing = {str(name) for name in names}
        self._attempt = max(self._attempt, *(name.attempt for name in names), 0)
        main = [str(StreamName("rank", 0, self._attempt))] if self._attempt else []
        missing = [name for name in dict.fromkeys([*main, *self._switches.streams()]) if name not in existing]
        parsed = [(name, StreamName.parse(name)) for name in missing]
        return [name for name, stream in parsed if stream is not None and comes_back(self._run, stream)]

    def damage(self) -> list[tuple[str, int]]:
        """Damaged lines skipped since the last call, as stream and offset."""
        damaged = [(name, offset) for name, reader in self._readers.items() for offset in reader.damage]
        for reader in self._readers.values():
            reader.damage.clear()
        return damaged

    @property
    def unknown(self) -> int:
        """Records of unknown kinds skipped so far."""
        return sum(reader.unknown for reader in self._readers.values())

    def seek(self, position: Position) -> None:
        """Continue reading at an earlier ``position`` of this order."""
        self.position = position.copy()
        self._buffered.clear()
        for name, reader in self._readers.items():
            self._position_reader(name, reader)

    def seek_seq(self, seq: int) -> None:
        """Go back so that the next record is ``seq + 1``.

        Raises:
            OSError: a stream is missing for now; nothing was changed.
        """
        index = self._switches.at(seq + 1)
        offsets: dict[str, int] = {}
        times: dict[str, float] = {}  # unknown for the other streams
        for last_index in self._switches.last_before(index):
            offsets[self._switches[last_index].stream] = self._switch_end(last_index)
        if index < 0:  # before the first switch in the file: the order starts anew
            os.ftruncate(self._fd, 0)
            self._switches.clear()
            self._settle(0, 0.0)
            self.seek(Position())
            return
        switch = self._switches[index]
        reader = StreamReader(self._run.streams / f"{switch.stream}.jsonl", switch.start)
        remaining = seq + 1 - switch.seq
        while remaining > 0:
            skipped = reader.read(min(remaining, 5000), end=self._switches.bound(index))
            if not skipped:
                self._raise_if_awaited(reader)
                break
            remaining -= len(skipped)
            times[switch.stream] = skipped[-1].time
        offsets[switch.stream] = reader.offset
        self.seek(Position(seq - remaining, offsets, times))

    def read(self, limit: int = 1000) -> list[Record]:
        """The next records with ``id`` and ``seq`` set; [] while there are no new ones.

        ``position`` is then after them. A change of stream is on disk before its first record is returned.

        Raises:
            OSError: the change can't be written to the file; nothing was read.
        """
        before = self.position.copy()
        try:
            return self._next(limit)
        except OSError:
            self.seek(before)
            self._forget_unsettled()
            raise

    def _next(self, limit: int) -> list[Record]:
        replayed = self._replay(limit)
        if replayed is not None:
            return replayed
        batch: list[Record] = []
        held_from = self._held_from()  # before the streams are read that this waits for
        self._find_streams()
        for name, reader in self._readers.items():
            if not self._buffered.get(name):
                self._buffered[name] = self._fetch(name, reader, limit)
        while len(batch) < limit:
            waiting = [(records[0].time, name) for name, records in self._buffered.items() if records]
            waiting = [entry for entry in waiting if entry[0] <= held_from or not entry[1].startswith("rank-")]
            if not waiting:
                break
            waiting.sort()
            name = waiting[0][1]
            until = waiting[1][0] if len(waiting) > 1 else None
            if held_from < math.inf:
                until = held_from if until is None else min(until, held_from)
            batch.extend(self._take_buffered(name, until, limit - len(batch)))
            if not self._buffered[name]:
                self._buffered[name] = self._fetch(name, self._readers[name], limit)
        if batch:
            self._settle(self.position.seq, max(self._latest, *(record.time for record in batch)))
        return batch

    def close(self) -> None:
        """Release the file."""
        os.close(self._fd)

    def ended(self) -> bool:
        """Whether all streams are read to their ends, and the newest attempt's last writer has written a finish record.

        If a relay wrote a stream for the attempt, its finish record is decisive; else the rank's. A finish record that
        the attempt outlived doesn't count.
        """
        names = self._run.stream_names()
        if not names:
            return False
        newest = max(name.attempt for name in names)
        current = [name for name in names if name.attempt == newest]
        final_writers = [name for name in current if name.writer == "node" and not outlived(self._run, name)]
        final_writers = final_writers or [name for name in current if name.writer == "rank"] or current
        for name in names:
            offset = self.position.offsets.get(str(name), 0)
            if str(name) not in self._end_times and self._size(name) > offset and self._has_more(name, offset):
                return False
        finds = self._finish_searches
        return any(
            self._finished.get(str(name)) or finds.setdefault(str(name), FinishSearch(self._run.stream(name))).read()
            for name in final_writers
        )

    def _size(self, name: StreamName) -> int:
        try:
            return os.stat(self._run.stream(name)).st_size
        except OSError:
            return 0

    def _has_more(self, name: StreamName, offset: int) -> bool:
        rest = StreamReader(self._run.stream(name), offset)
        return bool(self._buffered.get(str(name)) or rest.read(1) or rest.patience.waiting)

    def _replay(self, limit: int) -> list[Record] | None:
        # Up to the last record that was ever returned, the order is fixed.
        seq = self.position.seq
        if seq >= self._settled:
            return None
        index = self._switches.at(seq + 1)
        if index < 0:
            return None
        switch = self._switches[index]
        last = self._switches[index + 1].seq - 1 if index + 1 < len(self._switches) else self._settled
        reader, bound = self._reader(switch.stream), self._switches.bound(index)
        if seq + 1 == switch.seq:
            reader.offset = switch.start
        batch, skipped_cut = self._read(switch.stream, reader, min(limit, last - seq), bound)
        if skipped_cut or self._was_replaced(switch.stream, reader, batch):
            return self._next(limit)
        if not batch and self._is_awaited(reader):
            return []
        self._buffered.pop(switch.stream, None)
        if not batch:  # those records are lost; go on with the others
            if bound is not None:
                reader.offset = self.position.offsets[switch.stream] = bound
            self.position.seq = last
            return self._next(limit)
        self._number(switch.stream, batch)
        self.position.offsets[switch.stream] = reader.offset
        return batch

    def _was_replaced(self, name: str, reader: StreamReader, batch: list[Record]) -> bool:
        """Whether new records replaced ones that were returned; these then get the next free numbers."""
        newer = next((record for record in batch if record.time > self._latest), None)
        if newer is None or self._latest >= MOST_TIME:
            return False
        self._continue_at(name, offset_of(newer))
        reader.offset = offset_of(batch[0])
        return True

    def _take_buffered(self, name: str, until: float | None, limit: int) -> list[Record]:
        buffered = self._buffered[name]
        available = min(limit, len(buffered))
        count = available if until is None else 1
        while count < available and until is not None and buffered[count].time <= until:
            count += 1
        batch, self._buffered[name] = buffered[:count], buffered[count:]
        if not self._switches or self._switches[len(self._switches) - 1].stream != name:
            self._switch(Switch(self.position.seq + 1, name, self.position.offsets.get(name, 0)))
        self._number(name, batch)
        remaining = self._buffered[name]
        self.position.offsets[name] = offset_of(remaining[0]) if remaining else self._readers[name].offset
        if any(isinstance(record, Finish) for record in batch):
            self._finished[name] = True
        return batch

    def _number(self, name: str, records: list[Record]) -> None:
        for record_seq, record in enumerate(records, self.position.seq + 1):
            record.seq = record_seq
        self.position.seq += len(records)
        self.position.times[name] = records[-1].time

    def _fetch(self, name: str, reader: StreamReader, limit: int) -> list[Record]:
        batch, skipped_cut = self._read(name, reader, limit, None)
        if skipped_cut:
            batch = reader.read(limit)
        cut = self._end_times.get(name)
        if cut is not None and batch:
            batch = [record for record in batch if record.time <= cut]
        if not batch and reader.offset > self.position.offsets.get(name, 0):  # all are left out: damage, too
            self.position.offsets[name] = reader.offset
        return batch

    def _find_streams(self) -> None:
        names = self._run.stream_names()
        newest = max((name.attempt for name in names), default=0)
        for name in names:
            self._reader(str(name))
            if name.attempt < newest and name.writer != EDITS and str(name) not in self._end_times:
                # What a superseded attempt writes after the next one began doesn't belong to the run.
                began = self._next_attempt_start(name.attempt, names)
                if began is not None:
                    self._end_times[str(name)] = began
                    buffered = self._buffered.get(str(name), [])
                    self._buffered[str(name)] = [record for record in buffered if record.time <= began]
                    if buffered and not self._buffered[str(name)]:
                        self.position.offsets[str(name)] = self._readers[str(name)].offset

    def _next_attempt_start(self, attempt: int, names: list[StreamName]) -> float | None:
        for name in names:  # the earlier attempts come first
            if name.attempt > attempt and name.writer == "rank":
                first = StreamReader(self._run.stream(name)).read(1)
                if first and isinstance(first[0], Start):
                    return first[0].cut
        return None

    def _reader(self, name: str) -> StreamReader:
        if name not in self._readers:
            reader = self._readers[name] = StreamReader(self._run.streams / f"{name}.jsonl")
            self._position_reader(name, reader)
        return self._readers[name]

    def _position_reader(self, name: str, reader: StreamReader) -> None:
        """Move a reader to the current position; before it reads, it is checked that the stream wasn't replaced."""
        reader.offset = self.position.offsets.get(name, 0)
        self._unverified.pop(name, None)
        if reader.offset and name in self.position.times:
            self._unverified[name] = reader.offset, self.position.times[name]

    def _read(self, name: str, reader: StreamReader, limit: int, end: int | None) -> tuple[list[Record], bool]:
        """The next records of a stream; and True if the stream was cut and the reader moved to where it continues."""
        batch: list[Record] = []
        cut = (
            name in self._unverified
            and name not in self._end_times
            and not still_holds(reader.path, *self._unverified[name])
        )
        if not cut:
            self._unverified.pop(name, None)
            batch = reader.read(limit, end=end)
        return batch, (cut or reader.cut) and self._skip_cut(name, reader)

    def _skip_cut(self, name: str, reader: StreamReader) -> bool:
        """Find where a cut stream continues, and record the switch. False if it doesn't yet."""
        size = reader.size()
        if self._searched_sizes.get(name) == size:
            return False
        self._searched_sizes[name] = size
        last = self.position.times.get(name, -math.inf)
        search = StreamReader(reader.path)
        later: list[Record] = []
        while not later and (chunk := search.read(5000)):
            later = [record for record in chunk if record.time > last]
        if not later:
            return False
        reader.offset = offset_of(later[0])
        self._unverified.pop(name, None)
        self._continue_at(name, reader.offset)
        self.position.offsets[name] = reader.offset
        return True

    def _continue_at(self, name: str, offset: int) -> None:
        # After all numbered records, to distinguish it from records that were returned and are lost.
        self._switch(Switch(max(self._settled, self.position.seq) + 1, name, offset))
        self.cut.add(name)

    def _switch_end(self, index: int) -> int:
        """The offset in a stream after the records of a switch that others follow."""
        start = self._switches.next_start(index)
        if start is not None:
            return start
        switch = self._switches[index]
        reader = StreamReader(self._run.streams / f"{switch.stream}.jsonl", switch.start)
        remaining = self._switches[index + 1].seq - switch.seq
        while remaining > 0 and (chunk := reader.read(min(remaining, 5000))):
            remaining -= len(chunk)
        self._raise_if_awaited(reader)
        return reader.offset

    def _is_awaited(self, reader: StreamReader) -> bool:
        """Whether a reader's file was missing and is going to be restored, or already is."""
        return reader.missing and (reader.path.exists() or reader.name in self.awaited())

    def _raise_if_awaited(self, reader: StreamReader) -> None:
        if self._is_awaited(reader):
            raise FileNotFoundError(errno.ENOENT, "it was deleted, and is going to be put back", str(reader.path))

    def _load(self) -> None:
        decode = msgspec.json.Decoder(Switch).decode
        try:
            lines = self._lines()
            settled, latest = next(lines, b"").split()
            self._settled, self._latest = int(settled), float(latest)
            if not (0 <= self._settled <= MOST and 0.0 <= self._latest <= MOST_TIME):
                raise ValueError("no sequence is so long")
            for line in lines:
                switch = decode(line)
                if StreamName.parse(switch.stream) is None:  # a path, perhaps to another run's journal
                    raise ValueError(f"{switch.stream!r:.80} is no stream")
                self._switches.append(switch)
        except UNDECODABLE:  # empty or damaged: start anew
            os.ftruncate(self._fd, 0)
            self._switches.clear()
            self._settle(0, 0.0)
            return
        self._forget_unsettled()

    def _lines(self) -> Iterator[bytes]:
        """The file's lines; an incomplete last line is removed."""
        end = 0
        with os.fdopen(os.dup(self._fd), "rb") as file:
            file.seek(0)
            while (line := file.readline(LINE_BYTES)).endswith(b"\n"):
                end += len(line)
                yield line
        if line:
            os.ftruncate(self._fd, end)

    def _forget_unsettled(self) -> None:
        """Drop switches of records that were never returned: their order is chosen again."""
        if self._switches.cut(self._settled + 1):
            kept_bytes = sum(len(msgspec.json.encode(switch)) + 1 for switch in self._switches)
            os.ftruncate(self._fd, HEAD_BYTES + kept_bytes)

    def _settle(self, seq: int, latest: float) -> None:
        failpoint("order.settle.before")
        latest = min(max(latest, 0.0), MOST_TIME)
        os.lseek(self._fd, 0, os.SEEK_SET)
        os.write(self._fd, (HEAD % (seq, latest)).encode())
        self._settled, self._latest = seq, latest
        failpoint("order.settle.after")

    def _switch(self, switch: Switch) -> None:
        failpoint("order.switch.before")
        line, size = msgspec.json.encode(switch) + b"\n", os.lseek(self._fd, 0, os.SEEK_END)
        if os.write(self._fd, line) != len(line):  # a full disk: no error yet
            os.ftruncate(self._fd, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._switches.append(switch)
        failpoint("order.switch.after")
