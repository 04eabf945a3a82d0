"""Damage that leaves a line readable is noticed, named and left out; whatever else happens to a stream, no line is."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.helpers import T0, begun_run
from trackers.journal import checksums
from trackers.journal.checksums import ChecksumReader, ChecksumWriter, path_of
from trackers.journal.integrity import JournalChecksums, check, named
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter, find_finish
from trackers.readers.journal import blocks
from trackers.records import Finish, Metrics, Record, encode


def line(step: int, value: float = 0.5) -> bytes:
    return encode(Metrics(step=step, time=T0 + step, values={"loss": value}))


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A stream's file, empty."""
    path = tmp_path / "streams" / "rank-0.1.jsonl"
    path.parent.mkdir()
    path.touch()
    return path


def cover(stream: Path) -> None:
    while ChecksumWriter(stream).poll(final=True):
        pass


def steps(stream: Path) -> list[int]:
    return [record.step for record in StreamReader(stream).read(10**6, 1 << 30) if isinstance(record, Metrics)]


def texts(found: list[Record]) -> list[bytes]:
    """The lines that these records were."""
    return [encode(msgspec.structs.replace(record, id="")) for record in found]


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("seed", range(4))
def test_each_flipped_bit_costs_its_line_only(seed: int, stream: Path) -> None:
    """Wherever it is, a newline included: that line is left out and named, all others are read as they were."""
    chance = random.Random(seed)
    lines = [line(step, chance.random()) for step in range(40)]
    content = b"".join(lines)
    stream.write_bytes(content)
    cover(stream)
    begins = [sum(map(len, lines[:n])) for n in range(40)]
    for bit in chance.sample(range(8 * len(content)), 300):
        flip(stream, bit)
        hit = max(n for n, begin in enumerate(begins) if begin <= bit // 8)
        reader = StreamReader(stream)
        found = reader.read(100)
        assert texts(found) == lines[:hit] + lines[hit + 1 :], bit
        assert (reader.corrupt, reader.damage, reader.offset) == (1, [begins[hit]], len(content)), bit
        assert [record.step for batch, _ in blocks(stream) for record in batch] == [s for s in range(40) if s != hit]
        flip(stream, bit)


def test_many_flipped_bits_cost_their_lines_only(stream: Path) -> None:
    """Forty at once, in a stream of several ranges."""
    chance = random.Random(5)
    lines = [line(step, chance.random()) for step in range(5000)]
    content = b"".join(lines)
    stream.write_bytes(content)
    cover(stream)
    assert ChecksumReader(stream).covered() == len(content)
    begins, hit = [0], set()
    for text in lines:
        begins.append(begins[-1] + len(text))
    for bit in chance.sample(range(8 * len(content)), 40):
        flip(stream, bit)
        hit.add(max(n for n, begin in enumerate(begins[:-1]) if begin <= bit // 8))
    assert steps(stream) == [step for step in range(5000) if step not in hit]


def test_damaged_checksums_damage_nothing(stream: Path) -> None:
    """A bit that is flipped in the checksums themselves, wherever: every line is read."""
    stream.write_bytes(b"".join(line(step) for step in range(20)))
    cover(stream)
    sums = path_of(stream)
    for bit in range(0, 8 * sums.stat().st_size, 3):
        flip(sums, bit)
        assert steps(stream) == list(range(20)), bit
        flip(sums, bit)


def test_older_journals_are_read(stream: Path) -> None:
    """Without checksums, with empty ones, and with something else in their place."""
    stream.write_bytes(b"".join(line(step) for step in range(20)))
    assert steps(stream) == list(range(20))
    path_of(stream).touch()
    assert steps(stream) == list(range(20))
    path_of(stream).write_bytes(b'\xff\n{}\n{"begin":-1}\n[1]\n' + b"x" * 3_000_000)
    assert steps(stream) == list(range(20))
    path_of(stream).unlink()
    path_of(stream).mkdir()
    assert steps(stream) == list(range(20))


def test_a_line_is_covered_a_second_after_it_came(stream: Path) -> None:
    """One that is cut off again meanwhile, as a full disk has it, never is."""
    writer = ChecksumWriter(stream)
    stream.write_bytes(line(0) + b'{"kind":"met\n')
    writer.poll()
    assert not path_of(stream).exists()
    stream.write_bytes(line(0) + line(1) + line(2))
    writer.poll()
    assert ChecksumReader(stream).covered() == len(line(0))
    writer.poll()
    assert ChecksumReader(stream).covered() == stream.stat().st_size
    assert steps(stream) == [0, 1, 2]


def test_line_longer_than_a_turn_is_covered(stream: Path) -> None:
    """Also where it is cut by the block in which it is read."""
    long = encode(Metrics(step=1, time=T0, values={f"value/{number}": 0.5 for number in range(5000)}))
    stream.write_bytes(line(0) + long + line(2))
    writer = ChecksumWriter(stream)
    while writer.poll(final=True, most_bytes=1000):
        pass
    assert ChecksumReader(stream).covered() == stream.stat().st_size
    flip(stream, 8 * (len(line(0)) + len(long) - 4))
    reader, found = StreamReader(stream), []
    for _ in range(1000):
        found += reader.read(10, 3000)
    assert [record.step for record in found] == [0, 2]
    assert reader.damage == [len(line(0))]


def test_bytes_on_their_way_are_not_covered(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NUL bytes that a network filesystem shows become what was written; those that stay are damage."""
    writer = ChecksumWriter(stream)
    content = b"".join(line(step) for step in range(10))
    stream.write_bytes(content[:500] + b"\0" * 200 + content[700:])
    writer.poll(final=True)
    assert ChecksumReader(stream).covered() <= 500
    stream.write_bytes(content)
    writer.poll(final=True)
    assert ChecksumReader(stream).covered() == len(content)
    assert steps(stream) == list(range(10))


def test_full_disk_leaves_checksums_for_later(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What couldn't be written is at the next call; a part that was is ended."""
    stream.write_bytes(b"".join(line(step) for step in range(10)))
    writer = ChecksumWriter(stream)
    write = os.write
    monkeypatch.setattr(checksums.os, "write", lambda fd, data: write(fd, data[:40]))
    assert not writer.poll(final=True)
    monkeypatch.setattr(checksums.os, "write", write)
    path_of(stream).write_bytes(b'{"begin":0,')  # a killed relay's
    writer.poll(final=True)
    assert ChecksumReader(stream).covered() == stream.stat().st_size


def test_end_that_was_damaged_does_not_count(stream: Path) -> None:
    """A finish record with another exit code than was written isn't one."""
    finish = encode(Finish(time=T0, status="failed", exit_code=1, reason=""))
    stream.write_bytes(line(0) + finish + line(1))
    cover(stream)
    assert find_finish(stream) is not None
    flip(stream, 8 * (len(line(0)) + finish.index(b'"exit_code":1') + len('"exit_code":')))
    assert find_finish(stream) is None


class Stream(RuleBasedStateMachine):
    """A stream, those who write it, its checksums and readers, whatever happens to them.

    ``lines`` is what the file has, by offset: content, and whether a bit of it was flipped since it was covered.
    """

    @initialize(seed=st.integers(0, 1 << 30))
    def begin(self, seed: int) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "streams", "rank-0.1.jsonl")
        self.path.parent.mkdir()
        self.writer = StreamWriter(self.path)
        self.chance = random.Random(seed)
        self.lines: list[tuple[bytes, bool]] = []
        self.sums = ChecksumWriter(self.path)
        self.step = 0
        self.torn = False

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.writer.release()
            self.folder.cleanup()

    @rule(count=st.integers(1, 30), values=st.integers(1, 3))
    def log(self, count: int, values: int) -> None:
        if self.torn:
            self.reopen()
        for _ in range(count):
            self.step += 1
            numbers = {f"v{number}": self.chance.random() for number in range(values)}
            made = encode(Metrics(step=self.step, time=T0 + self.step, values=numbers))
            self.writer.write(made)
            self.lines.append((made, False))

    @rule(length=st.integers(1, 60))
    def crash(self, length: int) -> None:
        """A writer dies within a line."""
        if not self.torn:
            os.write(self.writer.fd, line(self.step + 1)[:length].rstrip(b"\n"))
            self.torn = True

    @rule()
    def reopen(self) -> None:
        """A new writer cuts the torn tail off."""
        self.writer.release()
        self.writer = StreamWriter(self.path)
        self.torn = False

    @rule()
    def restore(self) -> None:
        """The file is deleted and put back."""
        if not self.torn:
            self.path.unlink()
            assert self.writer.restore()

    @rule(final=st.booleans())
    def poll(self, final: bool) -> None:
        self.sums.poll(final=final and not self.torn)

    @rule(cut=st.integers(0, 50))
    def kill_relay(self, cut: int) -> None:
        """The relay dies while it writes, and another one goes on."""
        if path_of(self.path).exists() and not any(flipped for _, flipped in self.lines):
            size = path_of(self.path).stat().st_size
            os.truncate(path_of(self.path), max(0, size - cut))
        self.sums = ChecksumWriter(self.path)

    @rule(count=st.integers(1, 40), more=st.integers(0, 40))
    def cut(self, count: int, more: int) -> None:
        """Somebody cuts the file at a line's end, and other lines take that place before anybody looks."""
        if any(flipped for _, flipped in self.lines):  # which lines count as damaged isn't known then
            return
        count = min(count, len(self.lines))
        self.lines = self.lines[: len(self.lines) - count]
        os.truncate(self.path, sum(len(content) for content, _ in self.lines))
        self.torn = False
        if more:
            self.log(more, 1)

    @rule()
    def rot(self) -> None:
        """A bit of a covered line is flipped."""
        self.sums.poll(final=not self.torn)
        reader = ChecksumReader(self.path)
        reader.damaged(0, 1)
        end, offset, candidates = reader._index.end, 0, []
        for number, (content, flipped) in enumerate(self.lines):
            if offset + len(content) <= end and not flipped:
                candidates.append((number, offset))
            offset += len(content)
        behind = len([one for one in self.lines if not one[1]]) - 1
        if candidates and behind:
            number, offset = self.chance.choice(candidates[:-1] or candidates)
            content, _ = self.lines[number]
            flip(self.path, 8 * offset + self.chance.randrange(8 * len(content)))
            self.lines[number] = (content, True)

    @invariant()
    def all_is_read(self) -> None:
        if not hasattr(self, "folder"):
            return
        reader = StreamReader(self.path)
        found = texts(reader.read(10**6, 1 << 30))
        right = [content for content, flipped in self.lines if not flipped]
        assert [text for text in found if text in set(right)] == right, "a line that is as it was is left out"
        wrong = [text for text in found if text not in set(right)]
        assert not wrong, "a line that isn't as it was is read"
        assert reader.corrupt >= sum(flipped for _, flipped in self.lines)


TestStream = Stream.TestCase
TestStream.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, phases=[Phase.explicit, Phase.generate]
)


@given(st.binary(max_size=2000))
@settings(max_examples=50, deadline=None)
def test_any_bytes_can_be_covered_and_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Neither the writer nor a reader fails of what a file holds, and nothing that is covered counts as damaged."""
    path = tmp_path_factory.mktemp("run") / "rank-0.1.jsonl"
    path.write_bytes(content)
    cover(path)
    assert ChecksumReader(path).damaged(0, len(content)) == []


def test_all_streams_but_edits_are_covered_and_checked(tmp_path: Path) -> None:
    """And what a check says names each damaged line."""
    run, writer = begun_run(tmp_path / "run")
    writer.write(b"".join(line(step) for step in range(10)))
    writer.release()
    for name in (StreamName("console", 0, 1), StreamName("edits", 0, 1)):
        run.stream(name).write_bytes(line(0))
    JournalChecksums(run).end()
    assert sorted(path.name for path in run.streams.glob("*.sums")) == ["console-0.1.sums", "rank-0.1.sums"]
    path = run.stream(StreamName("rank", 0, 1))
    assert "none damaged" in named(check(run))
    assert f"{len(line(0))} of" in named(check(run))
    begin = path.stat().st_size - 5 * len(line(9))
    flip(path, 8 * (begin + 20))
    found = {stream.name: stream for stream in check(RunDirectory(run.path))}
    assert found["rank-0.1"].damaged == [begin]
    assert "1 damaged line is left out (rank-0.1.jsonl at byte" in named(list(found.values()))


@pytest.mark.parametrize("left", [0, 3, 9, 10])
def test_end_of_a_stream_that_is_gone_is_named(left: int, tmp_path: Path) -> None:
    """As many bytes as the checksums cover and the file hasn't, also where the whole file is gone."""
    run, writer = begun_run(tmp_path / "run")
    before = writer.path.stat().st_size
    writer.write(b"".join(line(step) for step in range(10)))
    writer.release()
    JournalChecksums(run).end()
    path = run.stream(StreamName("rank", 0, 1))
    size = path.stat().st_size
    kept = before + left * len(line(0)) if left else 0
    os.truncate(path, kept)
    if not left:
        path.unlink()
    (found,) = [stream for stream in check(RunDirectory(run.path)) if stream.name == "rank-0.1"]
    assert (found.size, found.gone) == (kept, size - kept)
    text = f"; {size - kept:,} bytes are gone from the end of rank-0.1.jsonl"
    assert (text in named([found])) == (kept < size)
