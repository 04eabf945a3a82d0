"""A run on disk is what the page in ``trackers.journal`` says, whatever ends its writers or cuts its files."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import trackers.journal
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import EDITS_STREAM, RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter, find_finish
from trackers.records import Finish, Info, Metrics, Record, Start, Summary, encode
from trackers.tracker import RunInfo

T0 = 1_764_000_000.0


@dataclass
class AbstractStream:
    """What is in a stream: records whose lines are whole, and the piece of a line behind them."""

    lines: list[tuple[Record, bytes]] = field(default_factory=list)
    piece: bytes = b""
    open: bool = True

    @property
    def size(self) -> int:
        return sum(len(line) for _, line in self.lines) + len(self.piece)

    def append(self, record: Record) -> None:
        """A line behind a piece of another is found all the same, and the piece is no record."""
        self.lines.append((record, self.piece + encode(record)))
        self.piece = b""

    def cut(self, size: int) -> None:
        kept: list[tuple[Record, bytes]] = []
        for record, line in self.lines:
            if len(line) > size:
                self.piece = line[:size]
                break
            kept.append((record, line))
            size -= len(line)
        else:
            self.piece = self.piece[:size]
        self.lines = kept


@dataclass
class AbstractJournal:
    """A run as its records say, without a file: which of them count."""

    attempts: dict[int, AbstractStream] = field(default_factory=dict)
    edits: AbstractStream = field(default_factory=AbstractStream)

    def starts(self) -> dict[int, Start]:
        """The attempts that have begun: others know of one by its first record."""
        firsts = {number: stream.lines[0][0] for number, stream in self.attempts.items() if stream.lines}
        return {number: first for number, first in firsts.items() if isinstance(first, Start)}

    def counting(self) -> list[Record]:
        """Every record that counts, attempt by attempt, the edits last."""
        found: list[Record] = []
        for number, stream in self.attempts.items():
            later = {other: start for other, start in self.starts().items() if other > number}
            until = later[min(later)].time if later else float("inf")
            limit = min((start.from_step for start in later.values() if start.from_step is not None), default=1 << 60)
            found += [record for record, _ in stream.lines if record.time <= until and (record.step or 0) <= limit]
        return [*found, *(record for record, _ in self.edits.lines)]


def told(records: list[Record]) -> list[bytes]:
    """Records without their ids, which say where their lines lie."""
    return [encode(msgspec.structs.replace(record, id="")) for record in records]


class JournalMachine(RuleBasedStateMachine):
    """Attempts begin, log, die within a line, go on beside later ones; files are cut, deleted, put back."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.run = RunDirectory(Path(self.folder.name, "p", "run"))
        self.run.make()
        self.model = AbstractJournal()
        self.writers: dict[int, StreamWriter] = {}
        self.clock = T0
        self.begin(None)

    def teardown(self) -> None:
        for writer in self.writers.values():
            writer.release()
        self.folder.cleanup()

    def now(self) -> float:
        self.clock += 1.0
        return self.clock

    def path(self, number: int) -> Path:
        return self.run.stream(StreamName("rank", 0, number))

    def write(self, number: int, *records: Record) -> None:
        """Several records are one write."""
        self.writers[number].write(b"".join(map(encode, records)))
        for record in records:
            self.model.attempts[number].append(record)

    @precondition(lambda self: len(self.model.attempts) < 5)
    @rule(from_step=st.none() | st.integers(0, 6))
    def begin(self, from_step: int | None) -> None:
        """A further attempt, though the one before may live."""
        number = self.run.attempt() + 1
        assert number == len(self.model.attempts) + 1
        self.writers[number] = StreamWriter(self.path(number), exclusive=True)
        self.model.attempts[number] = AbstractStream()
        start = Start(time=self.now(), attempt=number, rank=0, world_size=1, from_step=from_step)
        self.write(number, start)

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), steps=st.lists(st.integers(0, 9), min_size=1, max_size=4))
    def log(self, data: st.DataObject, steps: list[int]) -> None:
        number = data.draw(st.sampled_from(sorted(self.writers)))
        rows: list[Record] = [Metrics(step=step, time=self.now(), values={"loss": step / 3}) for step in steps]
        self.write(number, *rows)

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), value=st.floats(allow_nan=False))
    def set_result(self, data: st.DataObject, value: float) -> None:
        number = data.draw(st.sampled_from(sorted(self.writers)))
        self.write(number, Summary(time=self.now(), values={"final/best": value}))

    @rule(tags=st.lists(st.sampled_from(["a", "b", "ö"]), max_size=2))
    def edit(self, tags: list[str]) -> None:
        """Each edit is a process of its own, which opens the stream, and cuts what another has left half written."""
        record = Info(time=self.now(), tags=tags)
        writer = StreamWriter(self.run.stream(EDITS_STREAM))
        self.model.edits.piece = b""
        writer.write(encode(record))
        writer.release()
        self.model.edits.append(record)

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A writer is killed within a line, or between two: nobody goes on with its stream."""
        number = data.draw(st.sampled_from(sorted(self.writers)))
        line = encode(Metrics(step=1, time=self.now(), values={"loss": 0.5, "näme": -1.0}))
        piece = line[: data.draw(st.integers(0, len(line) - 1))]
        os.write(self.writers[number].fd, piece)
        os.close(self.writers.pop(number).fd)
        self.model.attempts[number].piece += piece

    @rule(data=st.data())
    def die_editing(self, data: st.DataObject) -> None:
        if self.run.stream(EDITS_STREAM).exists():
            line = encode(Info(time=self.now(), name="x"))
            piece = line[: data.draw(st.integers(0, len(line) - 1))]
            with self.run.stream(EDITS_STREAM).open("ab") as file:
                file.write(piece)
            self.model.edits.piece += piece

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """Somebody cuts a stream at any of its bytes; a writer that lives writes on behind."""
        number = data.draw(st.sampled_from(sorted(self.model.attempts)))
        stream = self.model.attempts[number]
        size = data.draw(st.integers(0, stream.size))
        os.truncate(self.path(number), size)
        stream.cut(size)

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Somebody deletes a stream that is written: it is put back whole, but for a line that isn't."""
        number = data.draw(st.sampled_from(sorted(self.writers)))
        self.path(number).unlink()
        assert self.writers[number].mend(lambda: None) == "deleted"
        self.model.attempts[number].piece = b""

    @invariant()
    def what_counts_is_read(self) -> None:
        history = AttemptHistory(self.run)
        assert told(list(history.records())) == told(self.model.counting())
        assert {start.attempt for start in history.starts()} == set(self.model.starts())

    @invariant()
    def lines_stay_where_they_are(self) -> None:
        """A record's id is its stream and its line's offset; a second reading from there gives it again."""
        for number in self.model.attempts:
            reader = StreamReader(self.path(number))
            for record in reader.read():
                offset = int(record.id.rpartition(":")[2].partition("@")[0])
                (again,) = StreamReader(self.path(number), offset).read(1)
                assert (again.id, encode(again)) == (record.id, encode(record))


def test_journal_is_what_its_records_say() -> None:
    """An abstract journal and the real one have the same records that count, after every operation."""
    run_state_machine_as_test(JournalMachine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_journal_is_what_its_records_say_in_long_runs() -> None:
    """The same, longer."""
    run_state_machine_as_test(
        JournalMachine, settings=settings(max_examples=400, stateful_step_count=60, deadline=None)
    )


def whole_run(run: RunDirectory) -> list[tuple[Record, int]]:
    """A run of one attempt with every shape of line; its records, and where the line of each ends."""
    info = RunInfo(id="run", name="n", project="p", config={"lr": 1.0})
    records: list[Record] = [
        Start(time=T0, attempt=1, rank=0, world_size=1, run={"id": info.id, "name": info.name}),
        Metrics(step=0, time=T0 + 1, values={"loss": float("nan"), "größe": 1e300}),
        Summary(time=T0 + 2, values={"final/text": 'with "quotes", \\ and {"kind":'}),
        Metrics(step=1, time=T0 + 3, values={"loss": 0.5}),
        Finish(time=T0 + 4, status="finished", exit_code=0, reason=""),
    ]
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)), exclusive=True)
    ends = []
    for record in records:
        writer.write(encode(record))
        ends.append(os.fstat(writer.fd).st_size)
    writer.release()
    return list(zip(records, ends, strict=True))


def test_stream_that_ends_at_any_byte_has_its_whole_lines(tmp_path: Path) -> None:
    """Cut anywhere, it has the records whose lines end before; the next writer goes on behind the last of them."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    written = whole_run(run)
    path = run.stream(StreamName("rank", 0, 1))
    content = path.read_bytes()
    later = Metrics(step=2, time=T0 + 5, values={"loss": 0.25})
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        whole = [record for record, end in written if end <= size]
        reader = StreamReader(path)
        assert told(reader.read()) == told(whole)
        assert (reader.corrupt, find_finish(path) is not None) == (0, size == len(content))
        writer = StreamWriter(path)
        writer.write(encode(later))
        writer.release()
        reader = StreamReader(path)
        assert told(reader.read()) == told([*whole, later])
        assert reader.corrupt == 0  # the piece was cut off: it isn't damage


def test_line_behind_a_piece_of_another_is_found_at_any_byte(tmp_path: Path) -> None:
    """A stream that is cut while it is written loses the line that it is cut in, and none behind it."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    written = whole_run(run)
    path = run.stream(StreamName("rank", 0, 1))
    content = path.read_bytes()
    later = Metrics(step=2, time=T0 + 5, values={"loss": 0.25})
    for size in range(len(content) + 1):
        path.write_bytes(content[:size] + encode(later))
        whole = [record for record, end in written if end <= size]
        reader = StreamReader(path)
        assert told(reader.read()) == told([*whole, later])
        assert reader.corrupt == (size not in {0, *(end for _, end in written)})


def test_bytes_that_are_on_their_way_are_waited_for(tmp_path: Path) -> None:
    """A tail of NUL bytes isn't read as a line, nor counted as damage, while it may still come."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    written = whole_run(run)
    path = run.stream(StreamName("rank", 0, 1))
    with path.open("ab") as file:
        file.write(b"\0" * 100 + b"\n")
    reader = StreamReader(path)
    assert told(reader.read()) == told([record for record, _ in written])
    assert reader.corrupt == 0


def test_page_names_what_a_run_has(tmp_path: Path) -> None:
    """The page's paths are those of the directory's own names."""
    page = trackers.journal.__doc__ or ""
    run = RunDirectory(tmp_path)
    for path in (run.identity, run.streams, run.delivery, run.media, run.console, run.messages, run.relay_log):
        assert path.name in page
    for writer in ("rank", "node", "reducer", "console", "alerts", "edits"):
        assert f"{writer}-" in page
        assert StreamName.parse(f"{writer}-0.1") is not None
