"""Small files that claim much: what a file says of sizes, counts and shapes is checked against what it has."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import trackers
from tests.analysis.support import T0, write_run
from tests.fuzz.mutate import wandb_file
from trackers.analysis.run_list import listing
from trackers.copying.transfer import copy
from trackers.errors import Damaged, NotFound, TrackersError, UsageError
from trackers.formats import foreign_sqlite
from trackers.formats.tensorboard_event import TFRecordFramer
from trackers.journal.integrity import check
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader, last_record
from trackers.readers import journal
from trackers.readers.trackio import reader as trackio_reader
from trackers.records import ArtifactFile, ArtifactRecord, Media, MediaFile
from trackers.retention.archive import put_back
from trackers.support.seekable_zstd import PackedFile, need_zstd, open_file

MEMORY_BYTES = 500_000_000
GIB = 1 << 30


def seekable(frames: list[tuple[bytes, int]], path: Path) -> None:
    """A packed file of frames, each with the length that the table claims for it."""
    table = b"".join(struct.pack("<II", len(frame), size) for frame, size in frames)
    foot = struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
    head = struct.pack("<II", 0x184D2A5E, len(table) + len(foot))
    path.write_bytes(b"".join(frame for frame, _ in frames) + head + table + foot)


def packed_bomb(path: Path) -> None:
    """A hundred kilobytes that hold three gigabytes, as the table says."""
    frame = need_zstd().compress(bytes(2 << 20), 3)
    seekable([(frame, 2 << 20)] * 1500, path)


def packed_frame(path: Path) -> None:
    """One frame of a gigabyte, honestly announced."""
    seekable([(need_zstd().compress(bytes(256 << 20), 1), 256 << 20)], path)


def packed_lie(path: Path) -> None:
    """One frame that unpacks to more than the table says."""
    seekable([(need_zstd().compress(bytes(256 << 20), 1), 1000)], path)


def sparse(path: Path) -> None:
    """Twelve terabytes of nothing."""
    with open(path, "wb") as file:
        file.truncate(12 << 40)


@pytest.mark.parametrize("make", [packed_bomb, packed_frame, packed_lie, sparse])
def test_packed_files_are_no_longer_than_they_claim(make: Callable[[Path], None]) -> None:
    """Neither the table's nor a frame's own claim is believed beyond what memory and a journal's packing allow."""
    make(Path("a.jsonl.zst"))
    with pytest.raises(Damaged, match=r"a\.jsonl\.zst is damaged"), PackedFile(Path("a.jsonl.zst")) as file:
        file.read(100)


def test_what_packs_well_is_read() -> None:
    """A journal of lines that are nearly the same is no bomb."""
    content = b'{"kind":"metrics","step":1,"time":1.0,"values":{"loss":0.5}}\n' * 400_000
    Path("a.jsonl").write_bytes(content)
    from trackers.support.seekable_zstd import pack, packed_path

    pack(Path("a.jsonl"), packed_path(Path("a.jsonl")))
    os.unlink("a.jsonl")
    assert open_file(Path("a.jsonl")).read() == content


def events(*tensors: str) -> bytes:
    """An event file whose tensors have such shapes, and one value each."""
    from tensorboard.compat.proto.event_pb2 import Event

    found = []
    for shape in tensors:
        event = Event(wall_time=1.0, step=1)
        value = event.summary.value.add(tag="x")
        value.tensor.dtype = 1
        value.tensor.float_val.append(1.0)
        for size in shape.split():
            value.tensor.tensor_shape.dim.add(size=int(size))
        found.append(event.SerializeToString())
    return b"".join(map(TFRecordFramer().frame, found))


def histogram_row() -> bytes:
    """A row of W&B's with a histogram of a million million bins."""
    from wandb.proto import wandb_internal_pb2 as protocol

    record = protocol.Record()
    packed = '{"_type": "histogram", "values": [1], "packedBins": {"min": 0, "size": 1, "count": 1000000000000}}'
    record.history.item.add(key="h", value_json=packed)
    record.history.item.add(key="loss", value_json="1.0")
    return wandb_file([record.SerializeToString()])


def claim(size: int) -> bytes:
    """The head of a record of an event file that is as long as this, with the right checksum, and a megabyte of it."""
    return TFRecordFramer().frame(bytes(8))[:0] + struct.pack("<Q", size) + _length_crc(size) + bytes(1 << 20)


def _length_crc(size: int) -> bytes:
    from trackers.formats.tensorboard_event import compiled_crc32c, crc32c, mask

    return struct.pack("<I", mask((compiled_crc32c() or crc32c)(size.to_bytes(8, "little"))))


def sources() -> dict[str, str]:
    """Files of each kind that claim much, and what is said of them: "" where they are read, without the claim."""
    run = Path("tb")
    run.mkdir()
    (run / "events.out.tfevents.1.one").write_bytes(events("", "600000000", "-1 5", "40000 40000 40000"))
    (run / "events.out.tfevents.2.two").write_bytes(events("") + claim(2 * GIB))
    Path("a.wandb").write_bytes(histogram_row())
    known = {"tb:tb": "", "a.wandb": ""}
    return known | of_nothing(
        json="s.json", csv="s.csv", hf="trainer_state.json",
        **{"wandb-file": "s.wandb"}, tb="s.tfevents.3",
    )  # fmt: skip


def of_nothing(**names: str) -> dict[str, str]:
    """Files of terabytes of nothing, by scheme, and what is said of them."""
    for name in names.values():
        sparse(Path(name))
    return {f"{scheme}:{name}": "is damaged: it claims" for scheme, name in names.items()}


READ = """
import resource, sys, time
import trackers
from trackers.errors import TrackersError
for line in sys.stdin.read().splitlines():
    began = time.process_time()
    try:
        data = trackers.load(line)
        print(line, "|", len(data.metrics()), "|", data.run.note, "|", time.process_time() - began)
    except TrackersError as error:
        print(line, "|", str(error), "|", "", "|", time.process_time() - began)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # of this program, not its parent
print(int(peak.split()[1]) * 1024)
"""


@pytest.mark.slow
def test_claims_cost_neither_memory_nor_time() -> None:
    """Each is read in little memory, with what it really has, or refused in one line."""
    check_claims(sources())


def check_claims(known: dict[str, str]) -> None:
    """Sources are read so, as :func:`sources` says of each."""
    limit = (4 * GIB, 4 * GIB)
    done = subprocess.run(
        [sys.executable, "-c", READ], input="\n".join(known), capture_output=True, text=True, timeout=150, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, peak = done.stdout.splitlines()
    for source, line in zip(known, lines, strict=True):
        asked, said, note, seconds = line.split(" | ")
        assert asked == source
        if known[source]:
            assert known[source] in said
        else:
            assert int(said) >= 1, line
            assert source == "a.wandb" or "damaged" in note, line
        assert float(seconds) < 20, line  # a bomb that goes off takes minutes, on any machine
    assert int(peak) < MEMORY_BYTES


def test_run_of_holes_is_listed() -> None:
    """A stream and an identity of terabytes of nothing: the one is empty, the other damaged; good runs are shown."""
    good = write_run("good", [(1, 1, {"loss": 1.0})])
    stream = good / "streams" / "rank-1.1.jsonl"
    sparse(stream)
    bad = write_run("bad")
    sparse(bad / "run.json")
    shutil.rmtree(bad / "streams")
    found = listing(Path("runs"))
    assert [line.id for line in found.lines] == ["good"]
    assert "run.json is damaged: it is longer than" in found.problems[0]
    assert last_record(stream) is None
    assert RunDirectory(good).sizes()["rank-1.1"] == 0
    assert StreamReader(stream).read() == []
    assert len(trackers.load(str(good)).metrics()) == 1


def test_hole_of_a_stream_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind it isn't read: whoever reads the run hears of it, each time, a copy's report and a check too."""
    monkeypatch.setattr(journal, "CACHED_BYTES", 1)
    path = write_run("bad", [(1, 1, {"loss": 1.0})])
    stream = path / "streams/rank-0.1.jsonl"
    size = stream.stat().st_size
    os.truncate(stream, 12 << 40)
    for _ in range(3):
        (run,) = journal.JournalReader().runs(str(path))
        journal.JournalReader().columns(run)
        assert run.note.startswith("1 damaged line of the journal skipped"), run.note
    assert {one.name: one.damaged for one in check(RunDirectory(path))}["rank-0.1"] == [size]
    (report,) = copy("runs/digits", "out")
    assert report.agrees
    assert [line for line in report.messages if "1 damaged line of the journal skipped" in line]


USED = """
import contextlib
from trackers.copying.transfer import copy
from trackers.editing import edits
from trackers.errors import TrackersError
from trackers.journal import span_table
from trackers.journal.attempts import AttemptHistory, checkpoint_record
from trackers.journal.integrity import check
from trackers.journal.run_directory import RunDirectory
import trackers
run = RunDirectory("runs/digits/bad")
edits.history(run)
checkpoint_record(run, 1)
AttemptHistory(run).axes_at(1)
span_table.of_killed(run, 1, 1.0, run.read_info())
check(run)
with contextlib.suppress(TrackersError):
    trackers.load(str(run.path)).metrics()
with contextlib.suppress(TrackersError):
    list(copy("runs/digits", "out"))
print(sum(len(data.metrics()) for data in trackers.load_all("out")))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", ["rank-0.1.jsonl", "node-0.1.jsonl", "console-0.1.jsonl", "rank-0.1.sums", "../media/ab/table.json"]
)
def test_run_of_holes_is_resumed_edited_and_copied(file: str) -> None:
    """Terabytes of nothing in any stream's place, in that of its checksums or of a medium cost neither memory nor time,
    nor disk: what was logged beside it is copied, and another run as well."""
    table = MediaFile(format="json", file="media/ab/table.json")
    stored = ArtifactFile(path="a", file="media/ab/table.json", size=3)
    for name in ("bad", "good"):
        more = [
            Media(name="t", type="table", items=[table], time=T0), ArtifactRecord(name="a", files=[stored], time=T0),
        ]  # fmt: skip
        run = write_run(name, [(1, 1, {"loss": 1.0})], more=more)
        (run / "media/ab").mkdir(parents=True)
        (run / "media/ab/table.json").write_text("{}\n")
    sparse(Path("runs/digits/bad/streams", file))
    done = subprocess.run(
        [sys.executable, "-c", USED], capture_output=True, text=True, timeout=100, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (1 if file == "rank-0.1.jsonl" else 2)
    assert sum(path.stat().st_size for path in Path("out").glob("**/*")) < GIB


def test_backup_with_a_sparse_file_is_refused() -> None:
    """A backup of a kilobyte that would fill every disk: no backup of ours has a sparse file."""
    head = tarfile.TarInfo("results/x.json")
    head.size = 0
    head.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "results/x.json",
                        "GNU.sparse.size": str(99 << 40), "GNU.sparse.map": f"{99 << 40},0"}  # fmt: skip
    with tarfile.open("b.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(head)
    with pytest.raises((UsageError, NotFound), match=r"x\.json"):
        put_back(Path("b.tar.gz"), Path("into"), yes=True)
    assert not list(Path().glob("into/**/*"))


def test_rows_of_a_database_that_share_their_pages_are_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of megabytes could have a terabyte of rows: those that are read as a whole are summed up before."""
    path = Path("a.db")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute('CREATE TABLE runs (id, "na""me")')
        database.execute("CREATE TABLE other (a)")
        database.execute("INSERT INTO other VALUES (zeroblob(20000))")
        database.executemany("INSERT INTO runs VALUES (zeroblob(2000), ?)", [("é" * 500,), (None,), (7,)])
        database.commit()
    monkeypatch.setattr(foreign_sqlite, "size", lambda _: 7001)
    foreign_sqlite.check(path, {"runs", "other"}, {"runs", "missing"})
    monkeypatch.setattr(foreign_sqlite, "size", lambda _: 7000)
    with pytest.raises(Damaged, match=r"a\.db is damaged: its tables of runs have more than 7,000 bytes"):
        foreign_sqlite.check(path, {"runs", "other"}, {"runs"})


def planted_trackio() -> Path:
    """The database of a project of trackio with a run of two steps."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    trackio.init(project="planted", name="one", embed=False, auto_log_cpu=False)
    trackio.log({"loss": 0.5})
    trackio.log({"loss": 0.4})
    trackio.finish()
    return Path(SQLiteStorage.get_project_db_path("planted"))


INTO_METRICS = (
    "INSERT INTO metrics (timestamp, run_id, run_name, step, metrics) "
    "SELECT timestamp, run_id, run_name, 7, ? FROM metrics LIMIT 1"
)


@pytest.mark.heavy
@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 sets no limits before")
def test_long_values_of_trackio_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a gigabyte, as a file of holes can have, is counted as lost, and the rows around it are read."""
    path = planted_trackio()
    monkeypatch.setattr(foreign_sqlite, "VALUE_BYTES", 1 << 20)
    monkeypatch.setattr(trackio_reader, "BATCH_BYTES", 100)
    with contextlib.closing(sqlite3.connect(path)) as database:
        for values in (json.dumps({"a": "x" * (2 << 20)}), json.dumps({"a": "x"}), bytes(2 << 20)):
            database.execute(INTO_METRICS, (values,))
        database.commit()
    data = trackers.load("trackio:planted")
    assert [text.values for text in data.texts()] == [{"a": "x"}]
    assert len(data.metrics()) == 2
    assert "2 rows are left out, the first: " in data.run.note
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE configs SET config = CAST(zeroblob(2000000) AS TEXT)")
        database.commit()
    with pytest.raises(Damaged, match="is damaged"):
        trackers.load("trackio:planted")


@pytest.mark.heavy
def test_rows_of_trackio_that_share_their_pages_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file can have is read, no more."""
    path = planted_trackio()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(INTO_METRICS, ('{"a":"' + "x" * 1000_000 + '"}',))
        database.commit()
    monkeypatch.setattr(foreign_sqlite, "size", lambda _: 1_000_000)
    data = trackers.load("trackio:planted")
    assert len(data.metrics()) == 2
    assert "is damaged: its rows have more than the file; the" in data.run.note


@pytest.mark.heavy
@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 sets no limits before")
@pytest.mark.parametrize(
    "change",
    ["INSERT INTO tags SELECT 'a', CAST(zeroblob(20000000) AS TEXT), run_uuid FROM runs",
     "UPDATE metrics SET value = CAST(zeroblob(20000000) AS TEXT)",
     "UPDATE metrics SET is_nan = CAST(zeroblob(20000) AS TEXT)"],
)  # fmt: skip
def test_long_values_of_mlflow_end_in_one_line(change: str, tmp_path: Path) -> None:
    """A page of a metric's points has 25,000 rows: each may be short only."""
    from mlflow import MlflowClient

    path = tmp_path / "a.db"
    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    run = client.create_run(client.create_experiment("digits")).info.run_id
    client.log_metric(run, "loss", 0.5, step=1)
    assert len(trackers.load(f"mlflow:{path}#digits").metrics()) == 1
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA ignore_check_constraints=ON")
        database.execute(change)
        database.commit()
    with pytest.raises(TrackersError, match="string or blob too big"):
        trackers.load(f"mlflow:{path}#digits").metrics()
