"""What is printed, from a process's spools into the journal: folded, masked, bounded, each line once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.helpers import T0, begun_run, made_run
from trackers.journal import console_spool
from trackers.journal.console_spool import ConsoleSpool, PrintedFile, note_files, segments
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader
from trackers.ranks import launch
from trackers.readers.console import RunConsole, lines_of
from trackers.records import Console
from trackers.relay import console_collector
from trackers.relay.console_collector import CUT, ConsoleCollector

MANY = 1 << 30


def collector(run: RunDirectory, attempt: int | None = 1) -> ConsoleCollector:
    """One that looks each time that it is asked."""
    return ConsoleCollector(run, run.read_info(), attempt)


def spool(run: RunDirectory, stream: str = "stdout", most_bytes: int = MANY) -> ConsoleSpool:
    """The main rank's."""
    return ConsoleSpool(run.console, 0, 1, stream, most_bytes)


def kept(run: RunDirectory, rank: int = 0) -> list[Console]:
    """The records of a rank's console."""
    found = StreamReader(run.stream(StreamName("console", rank, 1))).read(100_000)
    return [record for record in found if isinstance(record, Console)]


def lines(run: RunDirectory, rank: int = 0) -> list[str]:
    """Its lines that have ended."""
    return [line for record in kept(run, rank) if not record.partial for line in record.lines]


@pytest.fixture(autouse=True)
def _at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_collector, "LOOK_S", (0.0, 0.0))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that has begun."""
    directory, writer = begun_run(tmp_path / "runs/p/one")
    writer.release()
    return directory


def test_lines_are_in_the_journal_and_the_spools_are_gone(run: RunDirectory) -> None:
    """Both streams, each line with its time and stream; then nothing raw is left in the run's directory."""
    out, err = spool(run), spool(run, "stderr")
    out.add("one\ntwo\n")
    err.add("careful\n")
    collecting = collector(run)
    collecting.poll()
    out.add("thr")
    out.add("ee\n")
    out.add("no newline")
    out.close()
    assert collecting.end()
    assert lines(run) == ["one", "two", "careful", "three", "no newline"]
    assert [record.stream for record in kept(run)] == ["stdout", "stderr", "stdout"]
    assert not run.console.exists()


def test_lines_of_one_look_are_few_records_with_the_times_of_lines(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change between the journal's streams costs every delivery a line: lines don't alternate with metrics."""
    now = [T0]
    monkeypatch.setattr(console_spool.time, "time", lambda: now[0])
    last: list[object] = [None]
    out = ConsoleSpool(run.console, 0, 1, "stdout", MANY, last)
    err = ConsoleSpool(run.console, 0, 1, "stderr", MANY, last)
    for number in range(20):
        now[0] = T0 + number
        (err if number == 10 else out).add(f"{number}\n")
    out.close()
    err.close()
    collector(run).end()
    assert [(record.time, len(record.lines)) for record in kept(run)] == [(T0, 10), (T0, 1), (T0, 9)]
    found = [(round(line.time - T0, 3), line.text) for line in lines_of(kept(run))]
    assert found == [(float(number), str(number)) for number in range(20)]


def test_raw_text_is_for_its_owner_alone(run: RunDirectory) -> None:
    """Until secrets are masked, nobody else can read it, in a run that is shared either."""
    for folder in (run.path, run.console):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    out = spool(run)
    out.add("token=hf_abcdefghijklmnopqrstuvwxyzabcdefgh\n")
    for path in run.console.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    out.close()
    collector(run).end()
    assert lines(run) == ["token=***"]


def test_secret_printed_in_pieces_and_key_over_lines_are_masked(run: RunDirectory) -> None:
    """A line is masked whole, and a private key to its end."""
    out = spool(run)
    out.add("key hf_abcdefghij")
    out.flush()
    collecting = collector(run)
    collecting.poll()
    out.add("klmnopqrstuvwxyzabcdefgh\n")
    out.add("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n")
    collecting.poll()
    out.add("MIIdef\n-----END RSA PRIVATE KEY-----\nafter\n")
    out.close()
    collecting.end()
    assert lines(run) == ["key ***", "***", "***", "***", "***", "after"]


KEY = ["-----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "", *("MIIEv0a/" * 8,) * 9, "Zm9v+A==",
       "-----END RSA PRIVATE KEY-----"]  # fmt: skip


@pytest.mark.parametrize("read", range(1, len(KEY)))
@pytest.mark.parametrize("uncollected", [False, True])
def test_key_is_masked_to_its_end_by_who_follows_a_collector_that_was_killed(
    read: int, uncollected: bool, run: RunDirectory
) -> None:
    """Wherever it was killed; also where what it hasn't collected is read from the spool. What follows stays."""
    out = spool(run)
    out.add("".join(f"{line}\n" for line in KEY[:read]))
    collector(run).poll()
    out.add("".join(f"{line}\n" for line in [*KEY[read:], "after", "MIIEv0a/" * 8]))
    out.close()
    if uncollected:
        reader = RunConsole(run)
        found = [line for record in [*reader.read(), *reader.waiting()] for line in record.lines]
    else:
        assert collector(run).end()
        found = lines(run)
    assert [line for line in found[: len(KEY)] if line not in ("***", "")] == []
    assert found[len(KEY) :] == ["after", "MIIEv0a/" * 8]


@pytest.mark.parametrize(
    ("before", "behind", "masked"),
    [
        ("password:", "    opensesame", "    ***"),
        ("| user | password |", "| ada | opensesame |", "| ada | *** |"),
        ("token=hf_abcdefghijklmnopqrstuvwxyzabcdefgh", "loss 0.5", "loss 0.5"),
        ("epoch 1", "MIIEv0a/" * 8, "MIIEv0a/" * 8),
    ],
)
def test_line_that_depends_on_the_one_before_is_masked_by_who_follows(
    before: str, behind: str, masked: str, run: RunDirectory
) -> None:
    """A value below its name, a table's row; and nothing else is."""
    out = spool(run)
    out.add(f"{before}\n")
    collector(run).poll()
    out.add(f"{behind}\n")
    out.close()
    assert collector(run).end()
    assert lines(run)[1] == masked


def test_part_of_a_line_of_a_key_is_masked(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is recorded before it ends, because it takes long."""
    monkeypatch.setattr(console_collector, "PARTIAL_S", (0.0, 0.0))
    out = spool(run)
    out.add("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\nMIIdef")
    out.flush()
    collecting = collector(run)
    for _ in range(3):
        collecting.poll()
    assert [record.lines for record in kept(run)] == [["***", "***"], ["***"]]
    out.close()
    collecting.end()


def test_tail_that_begins_in_a_key_is_masked(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit only the last lines are kept: the key's first line may not be one of them."""
    monkeypatch.setattr(console_collector, "TAIL_BYTES", 400)
    monkeypatch.setattr(console_collector, "MAX_MB", 0)
    out = spool(run)
    out.add("".join(f"{line}\n" for line in [*(("x " * 40,) * 20), *KEY, "after"]))
    out.close()
    assert collector(run).end()
    assert lines(run)[-2:] == ["***", "after"]
    assert not any("MIIEv0a/" in line for line in lines(run)[1:])


def test_stream_that_cannot_be_opened_is_said_once_and_tried_again(run: RunDirectory) -> None:
    """Nothing else of the relay stops, and nothing printed is lost."""
    said: list[str] = []
    path = run.stream(StreamName("console", 0, 1))
    path.mkdir()
    out = spool(run)
    out.add("one\n")
    collecting = ConsoleCollector(run, run.read_info(), 1, 0, said.append)
    collecting.poll()
    collecting.poll()
    assert len(said) == 1
    assert "what training prints can't be taken into the journal now" in said[0]
    path.rmdir()
    collecting.poll()
    assert lines(run) == ["one"]
    collecting.close()


@pytest.mark.parametrize("ends", [False, True])
def test_stream_that_somebody_deleted_is_put_back(run: RunDirectory, ends: bool) -> None:
    """Deliveries wait for it, also where nothing is printed any more."""
    out = spool(run)
    out.add("one\n")
    collecting = collector(run)
    collecting.poll()
    run.stream(StreamName("console", 0, 1)).unlink()
    if ends:
        out.close()
        collecting.end()
    else:
        collecting.poll()
    assert lines(run) == ["one"]
    collecting.close()


@pytest.mark.parametrize("torn", [False, True])
def test_collector_that_was_killed_is_followed_by_one_that_goes_on(run: RunDirectory, torn: bool) -> None:
    """Each line is there once, though the last record was written in part."""
    out = spool(run)
    first = collector(run)
    for number in range(5):
        out.add(f"{number}\n")
        first.poll()
    path = run.stream(StreamName("console", 0, 1))
    if torn:
        os.truncate(path, path.stat().st_size - 7)
    out.add("5\n6")
    out.close()
    collector(run).end()
    assert lines(run) == [str(number) for number in range(7)]


def test_progress_bar_is_recorded_now_and_then_and_ends_as_one_line(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar that goes on is recorded as it is, seldom; when its line ends, as a line."""
    now = 1000.0
    monkeypatch.setattr(console_collector.time, "monotonic", lambda: now)
    out = spool(run, "stderr")
    collecting = collector(run)
    for percent in range(100):
        now += 1.0
        out.add(f"\r{percent}%")
        collecting.poll()
    said = [record.lines for record in kept(run) if record.partial]
    assert said == [["5%"], ["15%"], ["35%"], ["75%"]]
    out.add("\r100%\n")
    out.close()
    collecting.end()
    assert lines(run) == ["100%"]


@pytest.mark.heavy
def test_beyond_the_limit_the_last_lines_are_kept(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning, a word on what is left out, and what was printed last."""
    monkeypatch.setattr(console_collector, "TAIL_BYTES", 1000)
    monkeypatch.setattr(console_collector, "BLOCK_BYTES", 10_000)
    info = run.read_info()
    info.options["TRACKER_CONSOLE_MAX_MB"] = 1
    out = spool(run)
    collecting = ConsoleCollector(run, info, 1)
    for number in range(60):
        out.add(f"{number:049d}\n" * 1000)
        collecting.poll()
    out.add("the end\n")
    out.close()
    collecting.end()
    found = lines(run)
    assert found[0] == "0" * 49
    assert found[-1] == "the end"
    assert 1_000_000 < sum(map(len, found)) < 1_100_000
    assert sum(record.left_out for record in kept(run)) == 60 * 50_000 + 8 - sum(len(line) + 1 for line in found)


def test_without_a_collector_a_spool_keeps_what_came_last(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is bounded, and who collects it later says how much is gone."""
    monkeypatch.setattr(console_spool, "SEGMENT_BYTES", 10_000)
    out = spool(run, most_bytes=30_000)
    for number in range(10_000):
        out.add(f"{number:09d}\n")
    out.close()
    assert sum(path.stat().st_size for path in run.console.iterdir()) < 40_000
    collector(run).end()
    found = lines(run)
    assert found[-1] == "000009999"
    assert kept(run)[0].left_out == 100_000 - 10 * len(found)


def test_each_file_of_a_spool_says_when_it_begins(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines would have the time at which they are read, else."""
    monkeypatch.setattr(console_spool, "SEGMENT_BYTES", 1000)
    now = [T0]
    monkeypatch.setattr(console_spool.time, "time", lambda: now[0])
    out = spool(run)
    for number in range(400):
        now[0] += 0.001
        out.add(f"{number:09d}\n")
    out.close()
    collector(run).end()
    times = [record.time for record in kept(run)]
    assert max(times) < T0 + 1
    assert lines(run) == [f"{number:09d}" for number in range(400)]


def test_forked_child_has_a_spool_of_its_own(run: RunDirectory) -> None:
    """What it prints neither tears its parent's lines nor repeats what those hadn't written yet."""
    out = spool(run)
    out.add("parent ")
    pid = os.fork()
    if not pid:
        out.after_fork()
        out.add("child\n")
        os._exit(0)
    os.waitpid(pid, 0)
    out.add("goes on\n")
    assert {name.source for name in segments(run.console)} == {"stdout", f"stdout-{pid}"}
    out.close()
    collector(run).end()
    assert sorted(lines(run)) == ["child", "parent goes on"]


def test_full_disk_costs_lines_and_nothing_else(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Printing goes on; what could not be written is gone."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    out = spool(run)
    out.add("before\n")
    with monkeypatch.context() as patch:
        patch.setattr(console_spool.os, "write", full)
        out.add("lost\n")
    out._tried = 0.0
    out.add("after\n")
    out.close()
    collector(run).end()
    assert lines(run) == ["before", "after"]


def test_descriptor_that_somebody_closed_is_not_written_to(run: RunDirectory, tmp_path: Path) -> None:
    """Its number may be another file's by then."""
    out = spool(run)
    out.add("before\n")
    fd = out._fd
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, fd)
    out._timed = out._tried = 0.0
    out.add("lost\n")
    out.add("after\n")
    out.close()
    assert os.fstat(other).st_size == 0
    os.close(fd)
    os.close(other)
    collector(run).end()
    assert lines(run) == ["before", "after"]


def test_other_ranks_have_streams_of_their_own(tmp_path: Path) -> None:
    """What they leave in the launch's folder is in the run's journal, with their numbers, when the main rank ends."""
    folder = tmp_path / "runs/.ranks/abc"
    attempts = [{"number": 1, "launch": "../../.ranks/abc", "ranks": 2, "rank": 0}]
    run = made_run(tmp_path / "runs/p/one", attempts=attempts)
    launch.register(folder, run, 1, 0.0)
    own, beside = spool(run), ConsoleSpool(folder / "console", 1, 1, "stdout", MANY)
    own.add("main\n")
    beside.add("second\n")
    collecting = collector(run)
    collecting.poll()
    own.close()
    assert not collecting.end()  # the other rank may still print
    beside.add("its last\n")
    beside.close()
    console_spool.say_ended(folder / "console", 1, 1)
    assert collecting.end()
    assert lines(run) == ["main"]
    assert [(record.rank, record.lines) for record in kept(run, 1)] == [(1, ["second"]), (1, ["its last"])]
    assert not folder.exists()


class Printed:
    """A file that this process prints into, as training would.

    Attributes:
        said: what training says of it.
    """

    def __init__(self, run: RunDirectory, path: Path) -> None:
        self._run = run
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(self._fd, b"before the run\n")
        status = os.fstat(self._fd)
        self.said = PrintedFile(self._fd, str(path), status.st_dev, status.st_ino, status.st_size)
        self.tell()

    def tell(self) -> None:
        note_files(self._run.console, 0, 1, {"output": self.said})

    def add(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self) -> None:
        self.said.end = os.fstat(self._fd).st_size
        self.tell()
        self.add("after the run\n")

    def close(self) -> None:
        os.close(self._fd)


def test_file_is_read_from_where_the_run_began_to_where_it_ended(run: RunDirectory, tmp_path: Path) -> None:
    """What was printed before and after is no part of the run; the file stays as it is."""
    path = tmp_path / "slurm-1.out"
    printed = Printed(run, path)
    collecting = ConsoleCollector(run, run.read_info(), 1, os.getpid())
    printed.add("one\ntoken=hf_abcdefghijklmnopqrstuvwxyzabcdefgh\n")
    collecting.poll()
    printed.add("three\nfo")
    collecting.poll()
    printed.add("ur")
    printed.end()
    collecting.end()
    printed.close()
    assert lines(run) == ["one", "token=***", "three", "four"]
    assert {record.stream for record in kept(run)} == {"output"}
    assert path.read_text().startswith("before the run\none\n")
    assert not run.console.exists()


@pytest.mark.parametrize("more", ["again\n", "as long as what was there before, and then some more of it\n"])
def test_file_that_was_truncated_is_read_from_its_begin(more: str, run: RunDirectory, tmp_path: Path) -> None:
    """As ``copytruncate`` of logrotate does it, also where it has grown again since. Where lines may miss is said."""
    printed = Printed(run, tmp_path / "out")
    collecting = ConsoleCollector(run, run.read_info(), 1, os.getpid())
    printed.add("a line that is longer than what follows\n")
    collecting.poll()
    printed.add("lost\n")
    os.truncate(tmp_path / "out", 0)
    printed.add(more)
    collecting.poll()
    collecting.end()
    printed.close()
    assert lines(run) == ["a line that is longer than what follows", CUT, more.strip()]


def test_hole_of_a_truncated_file_is_no_output(run: RunDirectory, tmp_path: Path) -> None:
    """Where training doesn't append, what it prints next comes at its old place: what is gone is counted."""
    path = tmp_path / "out"
    printed = Printed(run, path)
    collecting = ConsoleCollector(run, run.read_info(), 1, os.getpid())
    printed.add("one\n")
    collecting.poll()
    read = path.stat().st_size
    os.truncate(path, 0)
    with path.open("r+b") as file:
        file.seek(read + 100)
        file.write(b"two\nNUL \0 printed\n")
    collecting.poll()
    collecting.end()
    printed.close()
    assert lines(run)[:3] == ["one", CUT, "two"]
    assert [record.left_out for record in kept(run) if record.left_out] == [100]


def test_file_goes_on_after_a_collector_that_was_killed(run: RunDirectory, tmp_path: Path) -> None:
    """By what the journal has, and by its path where the process is gone."""
    printed = Printed(run, tmp_path / "out")
    printed.add("one\n")
    ConsoleCollector(run, run.read_info(), 1, os.getpid()).poll()
    printed.add("two\n")
    printed.close()
    ConsoleCollector(run, run.read_info(), 1, os.getpid()).end()
    assert lines(run) == ["one", "two"]


@pytest.mark.parametrize("watched", [True, False])
def test_file_that_a_run_names_is_not_read_unless_training_prints_there(
    run: RunDirectory, tmp_path: Path, watched: bool
) -> None:
    """Nor by a sync of whoever's run; else a run could have any file of its reader's published."""
    (tmp_path / "secret").write_text("mine\n")
    status = os.stat(tmp_path / "secret")
    inode = status.st_ino + 1 if watched else status.st_ino
    note_files(run.console, 0, 1, {"output": PrintedFile(1, str(tmp_path / "secret"), status.st_dev, inode, 0)})
    ConsoleCollector(run, run.read_info(), 1, os.getpid() if watched else 0).end()
    assert not run.stream(StreamName("console", 0, 1)).exists()
