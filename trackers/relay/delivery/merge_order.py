"""The streams of a run as one sequence of records, the same after every restart.

Several streams have no common order, so a delivery chooses one and writes down each change from one stream to
another before it uses it: ``{"seq": 41, "stream": "node-0.1", "start": 0}`` says that record 41 is the first one
of ``node-0.1`` from offset 0 on, and all that follow come from there until the next line. Record n is then the
same record for ever, whatever died in between. The file's first line is the number of the last record that was
ever given out: up to there the order is settled, behind it the choice is free. Beside it stands the latest time that
was given out.

A stream that somebody cut or replaced goes on with its first record that is later than the last one given out:
what came before is delivered or gone. Until there is such a record, nothing is concluded. Where a settled part comes
again, a record that is later than all that were given out isn't one of them, though it lies in the place of one.

A stream that was deleted while its process lives is put back by it: until then, nothing is concluded either.

The changes between streams that make up an order are held in few bytes each: a long run has hundreds of thousands.
"""

from __future__ import annotations

import bisect
import errno
import math
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import EDITS, RunDirectory, StreamName
from trackers.journal.status import comes_back, outlived
from trackers.journal.stream import FinishSearch, StreamReader, decode_lines
from trackers.records import Finish, Record, Start, offset_of
from trackers.support import confined
from trackers.support.failpoints import failpoint

NO_STREAM = -1
MOST = 2**63 - 1


class Switch(msgspec.Struct, frozen=True):
    """From record ``seq`` on, records come from ``stream``, beginning at byte ``start``."""

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
        """Forget all of them."""
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
        """Add one behind all others."""
        number = self._numbers.get(switch.stream)
        if number is None:
            number = self._numbers[switch.stream] = len(self._names)
            self._names.append(switch.stream)
        before = self._last.get(number, NO_STREAM)
        if before != NO_STREAM:
            self._next[before] = len(self)
            if switch.start < self._starts[before]:
                self._stepped_back.add(number)
        self._last[number] = len(self)
        self._seqs.append(switch.seq)
        self._starts.append(switch.start)
        self._streams.append(number)
        self._next.append(NO_STREAM)

    def cut(self, seq: int) -> bool:
        """Forget those behind ``seq``; False if there are none."""
        kept = bisect.bisect_right(self._seqs, seq)
        if kept == len(self):
            return False
        switches = [self[index] for index in range(kept)]
        self.clear()
        for switch in switches:
            self.append(switch)
        return True

    def streams(self) -> list[str]:
        """The streams that have any."""
        return [self._names[number] for number in self._last]

    def at(self, seq: int) -> int:
        """The index of the one that record ``seq`` belongs to; -1 if that is before all of them."""
        return bisect.bisect_right(self._seqs, seq) - 1

    def next_start(self, index: int) -> int | None:
        """Where the same stream goes on later; None if it doesn't."""
        later = self._next[index]
        return None if later == NO_STREAM else self._starts[later]

    def bound(self, index: int) -> int | None:
        """Where the records of a switch end at the latest: behind lies what was numbered later. None: nowhere."""
        if self._streams[index] not in self._stepped_back:
            return self.next_start(index)
        least, later = None, self._next[index]
        while later != NO_STREAM:
            start = self._starts[later]
            least = start if least is None or start < least else least
            later = self._next[later]
        return least

    def last_before(self, index: int) -> list[int]:
        """Of each stream that has one, the last switch before an index."""
        found: dict[int, int] = {}
        for place in range(index - 1, -1, -1):
            if self._streams[place] not in found:
                found[self._streams[place]] = place
                if len(found) == len(self._names):
                    break
        return sorted(found.values())


LOOK_BACK_BYTES = 65536


def still_holds(path: Path, offset: int, time: float) -> bool:
    """Whether the lines before ``offset`` end there, with a record of this time; True where that can't be seen."""
    try:
        with confined.open_file(path) as file:
            if os.fstat(file.fileno()).st_size < offset:
                return False
            start = max(0, offset - LOOK_BACK_BYTES)
            file.seek(start)
            block = file.read(offset - start)
    except OSError:
        return True
    found = decode_lines(block, whole=start == 0)
    return block.endswith(b"\n") and (not found or any(record.time == time for record in found))


HEAD = "%020d %018.7f\n"
"""The order's first line: seconds of this century to the last bit of a float, in a fixed length."""
HEAD_BYTES = 40
LINE_BYTES = 1000
"""Maximum length of a line."""
MOST_TIME = 9_999_999_999.0
"""Maximum time in the first line; later times are ignored."""


class Position(msgspec.Struct):
    """A place in the sequence: records passed, how far each stream is read, and the time of its last record."""

    seq: int = 0
    offsets: dict[str, int] = {}
    times: dict[str, float] = {}

    def copy(self) -> Position:
        return Position(self.seq, dict(self.offsets), dict(self.times))


class Order:
    """The sequence: reads ahead from a position, and goes back to any earlier record.

    Args:
        run: whose streams.
        path: where the changes between streams are written down.
        position: as committed; a position the file knows nothing of begins anew (its order was lost).
        attempt: the newest one that is known to have begun; 0: none.

    Attributes:
        position: after the last record that ``read`` gave.
        cut: streams that were found cut, and that go on.
    """

    def __init__(self, run: RunDirectory, path: Path, position: Position | None = None, attempt: int = 0) -> None:
        self._run = run
        self._attempt = attempt
        self._path = path
        self._switches = OrderLog()
        self._settled = 0
        self._latest = 0.0
        self._fd = confined.open_fd(path, os.O_RDWR | os.O_CREAT)
        self._load()
        self._readers: dict[str, StreamReader] = {}
        self._cuts: dict[str, float] = {}
        self._ahead: dict[str, list[Record]] = {}
        self._finished: dict[str, bool] = {}
        self._ends: dict[str, FinishSearch] = {}
        self._unsure: dict[str, tuple[int, float]] = {}
        self._sizes_cut: dict[str, int] = {}
        self.cut: set[str] = set()
        self.position = position or Position()
        self.seek(self.position)

    def awaited(self) -> list[str]:
        """Streams that are gone, though records were given of them or they are known to be, and are going to be put
        back."""
        names = self._run.stream_names()
        there = {str(name) for name in names}
        self._attempt = max(self._attempt, *(name.attempt for name in names), 0)
        main = [str(StreamName("rank", 0, self._attempt))] if self._attempt else []
        gone = [name for name in dict.fromkeys([*main, *self._switches.streams()]) if name not in there]
        parsed = [(name, StreamName.parse(name)) for name in gone]
        return [name for name, stream in parsed if stream is not None and comes_back(self._run, stream)]

    def damage(self) -> list[tuple[str, int]]:
        """Damaged lines skipped since this was last asked: stream and offset."""
        found = [(name, offset) for name, reader in self._readers.items() for offset in reader.damage]
        for reader in self._readers.values():
            reader.damage.clear()
        return found

    @property
    def unknown(self) -> int:
        """Records of unknown kinds skipped so far."""
        return sum(reader.unknown for reader in self._readers.values())

    def seek(self, position: Position) -> None:
        """Go on reading at a position that this order gave earlier."""
        self.position = position.copy()
        self._ahead.clear()
        for name, reader in self._readers.items():
            self._place(name, reader)

    def seek_seq(self, seq: int) -> None:
        """Go back so that the next record is ``seq + 1``.

        Raises:
            OSError: a stream isn't there for now; nothing was changed.
        """
        index = self._switches.at(seq + 1)
        offsets: dict[str, int] = {}
        times: dict[str, float] = {}  # of the other streams: not known here
        for before in self._switches.last_before(index):
            offsets[self._switches[before].stream] = self._end_of(before)
        if index < 0:  # further back than what was written down: the order begins anew
            os.ftruncate(self._fd, 0)
            self._switches.clear()
            self._settle(0, 0.0)
            self.seek(Position())
            return
        here = self._switches[index]
        reader = StreamReader(self._run.streams / f"{here.stream}.jsonl", here.start)
        left = seq + 1 - here.seq
        while left > 0:
            passed = reader.read(min(left, 5000), end=self._switches.bound(index))
            if not passed:
                self._see_there(reader)
                break
            left -= len(passed)
            times[here.stream] = passed[-1].time
        offsets[here.stream] = reader.offset
        self.seek(Position(seq - left, offsets, times))

    def read(self, limit: int = 1000) -> list[Record]:
        """The next records with ``id`` and ``seq`` set; [] while nothing new has come.

        ``position`` is then behind them. A change of stream is on disk before its first record is returned.

        Raises:
            OSError: the change can't be written down; nothing was read.
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
        found: list[Record] = []
        self._look_for_streams()
        for name, reader in self._readers.items():
            if not self._ahead.get(name):
                self._ahead[name] = self._fetch(name, reader, limit)
        while len(found) < limit:
            waiting = [(records[0].time, name) for name, records in self._ahead.items() if records]
            if not waiting:
                break
            waiting.sort()
            name = waiting[0][1]
            until = waiting[1][0] if len(waiting) > 1 else None
            found.extend(self._take(name, until, limit - len(found)))
            if not self._ahead[name]:
                self._ahead[name] = self._fetch(name, self._readers[name], limit)
        if found:
            self._settle(self.position.seq, max(self._latest, *(record.time for record in found)))
        return found

    def close(self) -> None:
        """Release the file."""
        os.close(self._fd)

    def ended(self) -> bool:
        """All streams are read to their ends, and the newest attempt's last writer has said that it is over.

        Where a relay wrote a stream for the attempt, its finish record is the last word; else the rank's. One that
        the attempt outlived is none.
        """
        names = self._run.stream_names()
        if not names:
            return False
        newest = max(name.attempt for name in names)
        current = [name for name in names if name.attempt == newest]
        said = [name for name in current if name.writer == "node" and not outlived(self._run, name)]
        said = said or [name for name in current if name.writer == "rank"] or current
        for name in names:
            offset = self.position.offsets.get(str(name), 0)
            if str(name) not in self._cuts and self._size(name) > offset and self._more(name, offset):
                return False
        return any(self._finished.get(str(name)) or self._has_finish(name) for name in said)

    def _has_finish(self, name: StreamName) -> bool:
        search = self._ends.setdefault(str(name), FinishSearch(self._run.stream(name)))
        return search.look() is not None

    def _size(self, name: StreamName) -> int:
        try:
            return os.stat(self._run.stream(name)).st_size
        except OSError:
            return 0

    def _more(self, name: StreamName, offset: int) -> bool:
        return bool(self._ahead.get(str(name)) or StreamReader(self._run.stream(name), offset).read(1))

    def _replay(self, limit: int) -> list[Record] | None:
        # Up to the last record that was ever given out there is only one way to go on.
        seq = self.position.seq
        if seq >= self._settled:
            return None
        index = self._switches.at(seq + 1)
        if index < 0:
            return None
        here = self._switches[index]
        last = self._switches[index + 1].seq - 1 if index + 1 < len(self._switches) else self._settled
        reader, bound = self._reader(here.stream), self._switches.bound(index)
        if seq + 1 == here.seq:
            reader.offset = here.start
        found, passed_cut = self._read(here.stream, reader, min(limit, last - seq), bound)
        if passed_cut or self._was_replaced(here.stream, reader, found):
            return self._next(limit)
        if not found and self._is_away(reader):
            return []
        self._ahead.pop(here.stream, None)
        if not found:  # those records are gone, the others must still come
            if bound is not None:
                reader.offset = self.position.offsets[here.stream] = bound
            self.position.seq = last
            return self._next(limit)
        self._number(here.stream, found)
        self.position.offsets[here.stream] = reader.offset
        return found

    def _was_replaced(self, name: str, reader: StreamReader, found: list[Record]) -> bool:
        """Whether records that were given out are gone and new ones lie in their places: these get numbers behind."""
        fresh = next((record for record in found if record.time > self._latest), None)
        if fresh is None or self._latest >= MOST_TIME:
            return False
        self._go_on_at(name, offset_of(fresh))
        reader.offset = offset_of(found[0])
        return True

    def _take(self, name: str, until: float | None, limit: int) -> list[Record]:
        ahead = self._ahead[name]
        most = min(limit, len(ahead))
        count = most if until is None else 1
        while count < most and until is not None and ahead[count].time <= until:
            count += 1
        taken, self._ahead[name] = ahead[:count], ahead[count:]
        if not self._switches or self._switches[len(self._switches) - 1].stream != name:
            self._switch(Switch(self.position.seq + 1, name, self.position.offsets.get(name, 0)))
        self._number(name, taken)
        rest = self._ahead[name]
        self.position.offsets[name] = offset_of(rest[0]) if rest else self._readers[name].offset
        if any(isinstance(record, Finish) for record in taken):
            self._finished[name] = True
        return taken

    def _number(self, name: str, records: list[Record]) -> None:
        for record_seq, record in enumerate(records, self.position.seq + 1):
            record.seq = record_seq
        self.position.seq += len(records)
        self.position.times[name] = records[-1].time

    def _fetch(self, name: str, reader: StreamReader, limit: int) -> list[Record]:
        found, passed_cut = self._read(name, reader, limit, None)
        if passed_cut:
            found = reader.read(limit)
        cut = self._cuts.get(name)
        if cut is not None and found:
            found = [record for record in found if record.time <= cut]
            if not found:  # passed over: nothing of it is waited for
                self.position.offsets[name] = reader.offset
        return found

    def _look_for_streams(self) -> None:
        names = self._run.stream_names()
        newest = max((name.attempt for name in names), default=0)
        for name in names:
            self._reader(str(name))
            if name.attempt < newest and name.writer != EDITS and str(name) not in self._cuts:
                # What a superseded attempt still writes after the next one began doesn't belong to the run.
                began = self._began_after(name.attempt, names)
                if began is not None:
                    self._cuts[str(name)] = began
                    ahead = self._ahead.get(str(name), [])
                    self._ahead[str(name)] = [record for record in ahead if record.time <= began]
                    if ahead and not self._ahead[str(name)]:
                        self.position.offsets[str(name)] = self._readers[str(name)].offset

    def _began_after(self, attempt: int, names: list[StreamName]) -> float | None:
        for name in names:  # the earlier attempts come first
            if name.attempt > attempt and name.writer == "rank":
                first = StreamReader(self._run.stream(name)).read(1)
                if first and isinstance(first[0], Start):
                    return first[0].time
        return None

    def _reader(self, name: str) -> StreamReader:
        if name not in self._readers:
            reader = self._readers[name] = StreamReader(self._run.streams / f"{name}.jsonl")
            self._place(name, reader)
        return self._readers[name]

    def _place(self, name: str, reader: StreamReader) -> None:
        """Put a reader where the position says. Whether that is still the same place is looked at before it reads."""
        reader.offset = self.position.offsets.get(name, 0)
        self._unsure.pop(name, None)
        if reader.offset and name in self.position.times:
            self._unsure[name] = reader.offset, self.position.times[name]

    def _read(self, name: str, reader: StreamReader, limit: int, end: int | None) -> tuple[list[Record], bool]:
        """What comes next in a stream; and True where the stream was cut and the reader is now where it goes on."""
        found: list[Record] = []
        cut = name in self._unsure and name not in self._cuts and not still_holds(reader.path, *self._unsure[name])
        if not cut:
            self._unsure.pop(name, None)
            found = reader.read(limit, end=end)
        return found, (cut or reader.cut) and self._pass_cut(name, reader)

    def _pass_cut(self, name: str, reader: StreamReader) -> bool:
        """Find where a stream that was cut goes on, and write it down. False: nowhere yet."""
        size = reader.size()
        if self._sizes_cut.get(name) == size:
            return False
        self._sizes_cut[name] = size
        last = self.position.times.get(name, -math.inf)
        search = StreamReader(reader.path)
        found: list[Record] = []
        while not found and (passed := search.read(5000)):
            found = [record for record in passed if record.time > last]
        if not found:
            return False
        reader.offset = offset_of(found[0])
        self._unsure.pop(name, None)
        self._go_on_at(name, reader.offset)
        self.position.offsets[name] = reader.offset
        return True

    def _go_on_at(self, name: str, offset: int) -> None:
        # Behind all that has a number, so that it is told from what had been given out and is gone.
        self._switch(Switch(max(self._settled, self.position.seq) + 1, name, offset))
        self.cut.add(name)

    def _end_of(self, index: int) -> int:
        """Where a stream stands when the records of a switch were given, and others follow."""
        start = self._switches.next_start(index)
        if start is not None:
            return start
        switch = self._switches[index]
        reader = StreamReader(self._run.streams / f"{switch.stream}.jsonl", switch.start)
        left = self._switches[index + 1].seq - switch.seq
        while left > 0 and (passed := reader.read(min(left, 5000))):
            left -= len(passed)
        self._see_there(reader)
        return reader.offset

    def _is_away(self, reader: StreamReader) -> bool:
        """Whether a reader found no file, but one comes back, or is back by now."""
        return reader.missing and (reader.path.exists() or reader.name in self.awaited())

    def _see_there(self, reader: StreamReader) -> None:
        if self._is_away(reader):
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
        except UNDECODABLE:  # none, or damaged: as if it were lost
            os.ftruncate(self._fd, 0)
            self._switches.clear()
            self._settle(0, 0.0)
            return
        self._forget_unsettled()

    def _lines(self) -> Iterator[bytes]:
        """The file's lines; what follows the last whole one is cut off."""
        end = 0
        with os.fdopen(os.dup(self._fd), "rb") as file:
            file.seek(0)
            while (line := file.readline(LINE_BYTES)).endswith(b"\n"):
                end += len(line)
                yield line
        if line:
            os.ftruncate(self._fd, end)

    def _forget_unsettled(self) -> None:
        """Drop changes for records that were never given out: their order is chosen anew, perhaps another one."""
        if self._switches.cut(self._settled + 1):
            kept = sum(len(msgspec.json.encode(switch)) + 1 for switch in self._switches)
            os.ftruncate(self._fd, HEAD_BYTES + kept)

    def _settle(self, seq: int, latest: float) -> None:
        failpoint("order.settle.before")
        latest = min(max(latest, 0.0), MOST_TIME)
        os.pwrite(self._fd, (HEAD % (seq, latest)).encode(), 0)
        self._settled, self._latest = seq, latest
        failpoint("order.settle.after")

    def _switch(self, switch: Switch) -> None:
        failpoint("order.switch.before")
        line, size = msgspec.json.encode(switch) + b"\n", os.fstat(self._fd).st_size
        if os.pwrite(self._fd, line, size) != len(line):
            os.ftruncate(self._fd, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._switches.append(switch)
        failpoint("order.switch.after")
