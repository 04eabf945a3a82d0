"""Streams keep whole lines, whatever happens to the writer or the disk."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackers.journal import checksums, stream
from trackers.journal.stream import StreamReader, StreamWriter, last_record
from trackers.records import Metrics, encode, offset_of


def _line(step: int) -> bytes:
    return encode(Metrics(step=step, time=1.0 + step, values={"x": step}))


def _steps(path: Path) -> list[int | None]:
    return [record.step for record in StreamReader(path).read(100_000)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 6), cut=st.integers(0, 400))
def test_any_byte_prefix_reads_as_its_complete_lines(
    tmp_path_factory: pytest.TempPathFactory, count: int, cut: int
) -> None:
    """Of any prefix of a journal exactly the complete lines are read, and a writer that reopens it cuts the rest."""
    path = tmp_path_factory.mktemp("j") / "rank-0.1.jsonl"
    lines = [_line(step) for step in range(count)]
    whole = b"".join(lines)
    prefix = whole[:cut]
    path.write_bytes(prefix)
    complete = prefix.count(b"\n")
    assert _steps(path) == list(range(complete))
    writer = StreamWriter(path)
    writer.write(_line(77))
    writer.release()
    assert _steps(path) == [*range(complete), 77]


def test_reader_gives_ids_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """A record's id is its stream, byte offset and time, and reading in pieces gives the same as reading at once."""
    path = tmp_path / "rank-0.1.jsonl"
    path.write_bytes(b"".join(_line(step) for step in range(100)))
    records = StreamReader(path).read(1000)
    whole = [record.id for record in records]
    reader = StreamReader(path)
    pieces = []
    while found := reader.read(7, max_bytes=300):
        pieces += [record.id for record in found]
    assert pieces == whole
    assert whole[0] == f"rank-0.1:0@{records[0].time}"
    assert whole[1] == f"rank-0.1:{len(_line(0))}@{records[1].time}"
    assert offset_of(records[1]) == len(_line(0))


def test_reader_skips_and_counts_a_damaged_line(tmp_path: Path) -> None:
    """A damaged line in the middle costs itself only, and is counted."""
    path = tmp_path / "rank-0.1.jsonl"
    path.write_bytes(_line(0) + b'{"kind":"metrics","st\xff\xfe\n' + _line(1) + b"\n" + _line(2))
    reader = StreamReader(path)
    assert [record.step for record in reader.read(10)] == [0, 1, 2]
    assert reader.corrupt == 1


def test_reader_waits_for_nul_bytes_then_passes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole of NUL bytes is waited for, since its data may be on its way; after a while it counts as damage."""
    path = tmp_path / "rank-0.1.jsonl"
    path.write_bytes(_line(0) + b"\0" * 40 + _line(1) + _line(2))
    reader = StreamReader(path)
    assert [record.step for record in reader.read(10)] == [0]
    assert reader.read(10) == []
    monkeypatch.setattr(checksums, "NUL_PATIENCE_S", 0.0)
    assert [record.step for record in reader.read(10)] == [1, 2]


def test_nul_bytes_in_many_places_are_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file had when the wait began isn't waited for again; what comes later is."""
    path = tmp_path / "rank-0.1.jsonl"
    path.write_bytes(b"".join(b"\0" * 40 + _line(step) for step in range(5)))
    now = 1000.0
    monkeypatch.setattr(checksums, "monotonic", lambda: now)
    reader = StreamReader(path)
    assert (reader.read(10), reader.patience.waiting) == ([], True)
    now += checksums.NUL_PATIENCE_S
    assert [record.step for record in reader.read(10)] == [0, 1, 2, 3, 4]
    with path.open("ab") as file:
        file.write(b"\0" * 40 + _line(5))
    assert (reader.read(10), reader.patience.waiting) == ([], True)


def test_nul_bytes_of_a_file_that_nobody_writes_to_are_damage(tmp_path: Path) -> None:
    """A disk that lost its power leaves them: a reader of an old file doesn't wait, and reads what stands behind."""
    path = tmp_path / "rank-0.1.jsonl"
    path.write_bytes(_line(0) + b"\0" * 40 + b"\n" + _line(1))
    os.utime(path, (1e9, 1e9))
    reader = StreamReader(path)
    assert [record.step for record in reader.read(10)] == [0, 1]
    assert reader.corrupt == 1


def test_killed_writer_loses_nothing_it_returned_from(tmp_path: Path) -> None:
    """After SIGKILL the file holds every line whose write returned."""
    path = tmp_path / "rank-0.1.jsonl"
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from trackers.journal.stream import StreamWriter\n"
        "from trackers.records import Metrics, encode\n"
        "w = StreamWriter(Path(sys.argv[1]))\n"
        "for step in range(10**9):\n"
        "    w.write(encode(Metrics(step=step, time=1.0, values={'x': step})))\n"
        "    if step % 500 == 0: print(step, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = 0
    for _ in range(5):
        said = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    steps = _steps(path)
    assert steps == list(range(len(steps)))
    assert len(steps) > said


def _full_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: list[int]) -> StreamWriter:
    """A writer whose file takes ``room[0]`` more bytes, short writes included, as a full disk does."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if fd != writer.fd:
            return real(fd, data)
        fits = min(len(data), room[0])
        if not fits:
            raise OSError(28, "No space left on device")
        room[0] -= fits
        return real(fd, data[:fits])

    monkeypatch.setattr(stream.os, "write", write)
    return writer


def test_full_disk_keeps_lines_and_writes_them_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that the disk refuses wait in memory, in order, and reach the file when there is space: none torn."""
    room = [len(_line(0)) * 3 + 10]
    writer = _full_device(tmp_path, monkeypatch, room)
    for step in range(10):
        writer.write(_line(step))
    assert not writer.healthy
    assert _steps(writer.path) == [0, 1, 2]
    assert writer.path.read_bytes().endswith(b"\n")
    room[0] = 10**6
    assert writer.retry(force=True)
    assert _steps(writer.path) == list(range(10))
    assert writer.healthy
    assert writer.lost == 0


@pytest.mark.parametrize("several", [False, True], ids=["a line", "several lines"])
def test_short_writes_that_cannot_be_cut_off_leave_each_record_once(
    several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes parts of lines, whatever their length, and the file can't be cut (append-only): none is twice."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(stream.os, "ftruncate", refuse)
    lines = [_line(step) for step in range(4)]
    for fits in range(len(b"".join(lines)) + 1):
        folder = tmp_path / str(fits)
        folder.mkdir()
        room = [fits]
        with monkeypatch.context() as patch:
            writer = _full_device(folder, patch, room)
            for part in [b"".join(lines[:3]), lines[3]] if several else lines:
                writer.write(part)
            room[0] = 10**6
            assert writer.retry(force=True)
            writer.release()
        assert _steps(writer.path) == [0, 1, 2, 3], fits


def test_full_disk_buffer_is_bounded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What doesn't fit into the buffer either is counted as lost."""
    monkeypatch.setattr(stream, "BUFFER_BYTES", 5 * len(_line(0)))
    room = [0]
    writer = _full_device(tmp_path, monkeypatch, room)
    for step in range(9):
        writer.write(_line(step))
    assert writer.waiting == 5
    assert writer.lost == 4
    writer.close()
    assert writer.lost == 9


def test_deleted_file_is_put_back_whole(tmp_path: Path) -> None:
    """A journal deleted underneath is restored with everything that was written."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    writer.write(_line(0))
    writer.path.unlink()
    writer.write(_line(1))
    assert writer.missing()
    assert writer.restore()
    writer.write(_line(2))
    assert _steps(writer.path) == [0, 1, 2]
    assert not writer.missing()
    writer.release()


def test_closed_writer_never_writes_to_a_reused_descriptor(tmp_path: Path) -> None:
    """Between close and release, the descriptor's number belongs to nobody else."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    fd = writer.fd
    writer.close()
    other = open(tmp_path / "other", "wb")  # noqa: SIM115
    assert other.fileno() != fd
    os.write(fd, b"late line")
    other.close()
    assert (tmp_path / "other").read_bytes() == b""
    writer.release()
    assert writer.fd == -1


def test_last_record_is_found_behind_long_lines(tmp_path: Path) -> None:
    """The last record is found though its line is longer than what is read first."""
    path = tmp_path / "rank-0.1.jsonl"
    long = encode(Metrics(step=5, time=time.time(), values={f"name_{k}": k / 7 for k in range(5000)}))
    path.write_bytes(_line(1) + long + b'{"torn')
    found = last_record(path)
    assert found is not None
    assert found.step == 5
    assert last_record(tmp_path / "none") is None


def test_reader_notices_a_file_that_was_cut_or_replaced(tmp_path: Path) -> None:
    """What lies at the offset of a shorter or different file isn't taken for the next record; the old one back is."""
    path = tmp_path / "rank-0.1.jsonl"
    whole = b"".join(_line(step) for step in range(10))
    path.write_bytes(whole)
    reader = StreamReader(path)
    assert len(reader.read()) == 10
    for other in (b"", whole[:100], b"".join(_line(step) for step in range(50, 90))):
        path.write_bytes(other)
        assert reader.read() == []
        assert reader.cut
    path.write_bytes(whole + _line(10))
    assert [record.step for record in reader.read()] == [10]
    assert not reader.cut


def test_line_that_follows_a_torn_one_is_read(tmp_path: Path) -> None:
    """A file cut within a line while it is written: the next record, on the same line now, isn't lost."""
    path = tmp_path / "rank-0.1.jsonl"
    path.write_bytes(_line(0) + _line(1)[:-9] + _line(2) + _line(3))
    reader = StreamReader(path)
    assert [record.step for record in reader.read()] == [0, 2, 3]
    assert reader.damage == [len(_line(0))]


def test_restored_stream_is_whole_at_once(tmp_path: Path) -> None:
    """A stream put back after it was deleted, or replaced by an older copy, appears with all its lines in one step."""
    path = tmp_path / "rank-0.1.jsonl"
    writer = StreamWriter(path)
    for step in range(5):
        writer.write(_line(step))
    path.unlink()
    path.write_bytes(_line(0))
    assert writer.missing()
    writer.write(_line(5))
    assert writer.restore()
    writer.write(_line(6))
    assert _steps(path) == list(range(7))
    assert not list(tmp_path.glob(".rank*"))
    assert not writer.shrunk()
    os.truncate(path, 10)
    assert writer.shrunk()
    writer.release()


def test_descriptor_that_is_another_files_now_is_left_alone(tmp_path: Path) -> None:
    """A program that closed our descriptor and opened a file under its number keeps it: no line lands there after the
    look, nothing of it is copied, and it isn't closed."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    for step in range(5):
        writer.write(_line(step))
    theirs = (tmp_path / "checkpoint.bin").open("wb+")
    number = writer.fd
    os.dup2(theirs.fileno(), number)
    assert writer.mend() == "closed"
    assert writer.mend() == ""
    assert writer.fd != number
    writer.write(_line(5))
    os.write(number, b"theirs")
    writer.release()
    os.write(number, b", still")
    os.close(number)
    theirs.close()
    assert (tmp_path / "checkpoint.bin").read_bytes() == b"theirs, still"
    assert _steps(writer.path) == list(range(6))


@pytest.mark.parametrize("taken", [False, True], ids=["closed", "taken"])
def test_descriptor_lost_just_before_the_end_disturbs_nobody(taken: bool, tmp_path: Path) -> None:
    """Closed after the last look, or taken by a file that can only be read: the last line arrives all the same."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    writer.write(_line(0))
    number = writer.fd
    (tmp_path / "data").write_bytes(b"theirs")
    theirs = os.open(tmp_path / "data", os.O_RDONLY)
    if taken:
        os.dup2(theirs, number)
    else:
        os.close(number)
    os.close(theirs)
    writer.write(_line(1))
    writer.release()
    if taken:
        assert os.read(number, 10) == b"theirs"
        os.close(number)
    assert _steps(writer.path) == [0, 1]


def test_descriptor_closed_with_the_file_deleted_goes_on(tmp_path: Path) -> None:
    """Both at once, and the directory gone too: what is logged from then on is kept."""
    path = tmp_path / "run" / "rank-0.1.jsonl"
    path.parent.mkdir()
    writer = StreamWriter(path)
    writer.write(_line(0))
    os.close(writer.fd)
    path.unlink()
    path.parent.rmdir()
    writer.write(_line(1))
    assert writer.mend(path.parent.mkdir) == "closed"
    assert writer.retry(force=True)
    writer.write(_line(2))
    writer.release()
    assert _steps(path) == [1, 2]


def test_lines_written_to_a_file_that_was_put_back_are_taken_along(tmp_path: Path) -> None:
    """What forked processes still write to the old file, whole lines and torn ones, arrives once, also at the end."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    writer.write(_line(0))
    olds = []
    for turn in range(7):
        olds.append(os.dup(writer.fd))
        os.write(olds[-1], _line(100 + turn)[:-5])
        writer.path.unlink()
        assert writer.mend() == "deleted"
        writer.write(_line(turn + 1))
        os.write(olds[-1], _line(100 + turn)[-5:])
        if turn % 2:
            assert writer.mend() == ""
    os.write(olds[-1], _line(200))
    writer.release()
    for old in olds:
        os.close(old)
    found = [step or 0 for step in _steps(writer.path)]
    assert sorted(found) == [*range(8), *range(100, 107), 200]
    assert [step for step in found if step < 100] == list(range(8))


def test_stream_is_no_standard_descriptor(tmp_path: Path) -> None:
    """Started with its standard streams closed, training's journal isn't what C libraries print to."""
    saved = [os.dup(number) for number in (0, 1, 2)]
    try:
        for number in (0, 1, 2):
            os.close(number)
        writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
        free = [number for number in (0, 1, 2) if stream.identity(number) == (-1, -1)]
    finally:
        for number, fd in enumerate(saved):
            os.dup2(fd, number)
            os.close(fd)
    assert free == [0, 1, 2]
    assert writer.fd > 2
    writer.release()


@pytest.mark.parametrize("limit", [40, 64, 300])
def test_descriptor_is_high_within_any_limit(limit: int, tmp_path: Path) -> None:
    """The journal's number is one that programs rarely reach, also where few may be open."""
    code = (
        "import resource, sys; from pathlib import Path; from trackers.journal.stream import StreamWriter\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
        "print(StreamWriter(Path(sys.argv[1])).fd)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "rank-0.1.jsonl")], capture_output=True, text=True, check=False
    )
    assert int(done.stdout) >= min(limit * 3 // 4, 256), done.stderr


def test_limit_on_the_size_of_files_is_called_that(tmp_path: Path) -> None:
    """A file that may not grow is no full disk: the reason and what to do are its own, and no line is torn."""
    import resource

    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = 3 * len(_line(0)) + 10
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        for step in range(6):
            writer.write(_line(step))
        why = writer.why()
        steps = _steps(writer.path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert why == "File too large: raise the limit on the size of files, `ulimit -f`"
    assert steps == [0, 1, 2]
    writer.release()
    assert _steps(writer.path) == list(range(6))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device: free some space for"), (errno.EDQUOT, "Disk quota exceeded: free"),
        (errno.EROFS, "Read-only file system: make"), (errno.EIO, "Input/output error: see to"),
        (errno.EFBIG, "File too large: raise the limit"), (errno.ESTALE, "Stale file handle: see to"),
    ],
)  # fmt: skip
def test_reason_is_the_systems_own(number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the system answers, after a part of a line or at once, is said, with what to do about it."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    real, room = os.write, [10]

    def write(fd: int, data: bytes) -> int:
        fits, room[0] = min(room[0], len(data)), max(0, room[0] - len(data))
        if not fits:
            raise OSError(number, os.strerror(number))
        return real(fd, data[:fits])

    with monkeypatch.context() as patch:
        patch.setattr(stream.os, "write", write)
        writer.write(_line(0))
        assert words in writer.why()
        assert _steps(writer.path) == []
    writer.release()
    assert _steps(writer.path) == [0]


def test_file_that_cannot_be_put_back_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is no space for the deleted file, it is said so; all of it is there once there is some."""
    writer = StreamWriter(tmp_path / "rank-0.1.jsonl")
    writer.write(_line(0))
    writer.path.unlink()
    with monkeypatch.context() as patch:

        def refuse(*arguments: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(stream, "open_high", refuse)
        assert writer.mend() == "unmended"
        assert writer.why().startswith("No space left on device")
    writer.write(_line(1))
    assert writer.mend() == "deleted"
    assert _steps(writer.path) == [0, 1]
    writer.release()
