"""Damaged input is one line that names it, with what could be read; one bad run never hides the others."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trackers
from tests.analysis.support import write_run
from trackers.analysis import run_list
from trackers.analysis.run_list import listing
from trackers.errors import Damaged, NotFound, TrackersError, UsageError, examples
from trackers.formats.yaml_text import load_yaml
from trackers.journal.run_directory import RunDirectory
from trackers.readers import registry
from trackers.readers.boundary import TolerantReader, boundary, bounded, reason
from trackers.readers.helpers import merged
from trackers.readers.reader import SourceRun
from trackers.records import DEPTH, Config, Finish, Metrics, Record, Start, Text

DEEP = b'{"a":' * 3000 + b"1" + b"}" * 3000
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "no UTF-8": lambda content: content.replace(b'"name": "bad"', b'"name": "b\xffd"'),
    "deep nesting": lambda content: content.replace(b"{", b'{"config": {"x": ' + DEEP + b"},", 1),
    "too deep to be walked": lambda c: c.replace(b"{", b'{"config": {"x": ' + b"[" * 250 + b"]" * 250 + b"},", 1),
    "a list": lambda content: b"[1, 2]",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "a name that is a number": lambda content: content.replace(b'"name": "bad"', b'"name": {}'),
    "tags that are none": lambda content: content.replace(b"{", b'{"tags": 5,', 1),
}


def write(run_id: str) -> Path:
    """A finished run."""
    return write_run(run_id, [(1, 1, {"loss": 1.0})])


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_run_hides_no_other(damage: str) -> None:
    """``trackers ls`` shows the good runs, and says of the bad one in one line which file is damaged."""
    write("good")
    path = write("bad") / "run.json"
    content = path.read_bytes()
    path.write_bytes(DAMAGE[damage](content))
    assert path.read_bytes() != content
    shutil.rmtree(path.parent / "streams")  # else the journal says who the run is
    found = listing(Path("runs"))
    assert [line.id for line in found.lines] == ["good"]
    assert len(found.problems) == 1
    assert "bad" in found.problems[0]
    assert "run.json is damaged: " in found.problems[0]
    assert "\n" not in found.problems[0]
    assert [data.run.id for data in trackers.load_all("runs")] == ["good"]
    with pytest.raises(NotFound, match=r"run\.json is damaged"):
        trackers.load(str(path.parent))


def test_every_command_survives_a_damaged_run() -> None:
    """ls, compare, keys, best and sql over a directory show the good runs, as if the bad one weren't there."""
    write("good")
    bad = write("bad")
    (bad / "run.json").write_bytes(b'{"id": "\xff"')
    shutil.rmtree(bad / "streams")
    commands = [["ls", "--dir", "runs"], ["ls", "--dir", "runs", "--json"], ["compare", "runs"], ["keys", "runs"]]
    commands += [["best", "runs", "--metric", "loss"], ["sql", "select run from runs"]]
    code = (
        "import sys\nfrom trackers.cli.app import app\n"
        f"for arguments in {commands!r}:\n"
        "    app(arguments, standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("good") >= len(commands)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("is damaged") >= len(commands)


@pytest.mark.parametrize("depth", [480, 990])
def test_deep_configuration_in_a_journal_costs_itself_alone(depth: int) -> None:
    """Every way to read the run shows the rest of it; so does what a tracker is said to have refused."""
    from trackers.cli.app import app

    path = write("deep")
    stream = path / "streams/rank-0.1.jsonl"
    first, *rest = stream.read_bytes().splitlines(keepends=True)
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    line = b'{"kind":"config","time":1763688001.0,"values":' + deep + b"}\n"
    stream.write_bytes(b"".join([first, line, *rest]))
    refused = {"id": "x", "reason": "no", "record": deep.decode()}
    good = {**refused, "record": '{"a": 1}'}
    rejected = "".join(json.dumps(entry) + "\n" for entry in (refused, good, [1], {"record": 5}))
    (path / "delivery/json.rejected.jsonl").write_text(rejected)
    data = trackers.load(str(path))
    assert len(data.metrics()) == 1
    assert [type(record) for record in data.records()] == [Start, Finish]
    for words in (["show", "--json"], ["show"], ["diff", str(path)], ["keys"], ["compare"], ["show", "--rejected"]):
        app([*words, str(path)], standalone_mode=False)
    assert [entry["record"] for entry in run_list.rejected(RunDirectory(path), "json")] == [{"a": 1}]


def test_every_reader_has_the_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built-in readers as they stand, however they are made, whatever is installed."""
    monkeypatch.setattr(registry, "found_package", lambda name: True)
    for scheme in registry.BUILT_IN:
        assert all(hasattr(getattr(registry.load(scheme), name), "__bounded__") for name in ("runs", "read"))


class Failing:
    """A reader that yields what it is told, and raises what it is told."""

    scheme = "failing"
    found: tuple[Any, ...] = ()

    def runs(self, where: str) -> list[SourceRun]:
        """One run, with attributes as they may lie in a file."""
        return [SourceRun(source="failing:x", id=5, name=["n"], tags=[1], created=float("nan"))]  # type: ignore[arg-type]

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """What it is told."""
        for item in self.found:
            if isinstance(item, Exception):
                raise item
            yield item


def read(*found: Any) -> tuple[list[Record], str]:
    """What comes through the boundary, and the run's note."""
    reader = bounded(type("Told", (Failing,), {"found": found}))()
    (run,) = reader.runs("x")
    return list(reader.read(run)), run.note


@pytest.mark.parametrize(
    "error",
    [ValueError("bad\nvalue"), TypeError("int"), KeyError("name"), RecursionError(), MemoryError(),
     OverflowError("big"), IndexError(), AttributeError("x"), ZeroDivisionError(), EOFError(),
     sqlite3.DatabaseError("malformed"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), RuntimeError("vendor")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_any_error_is_one_line(error: Exception) -> None:
    """What fails before the first record is Damaged; what fails later leaves those before it, and a note."""
    with pytest.raises(Damaged, match=r"failing:x is damaged: .+") as caught:
        read(error)
    assert "\n" not in str(caught.value)
    found, note = read(Metrics(time=1.0, values={"a": 1.0}), error)
    assert len(found) == 1
    assert note.startswith("failing:x is damaged: ")
    assert "the 1 records before are read" in note


def test_errors_of_ours_pass() -> None:
    """A reader's own words, and a package that is missing, come as they are."""
    for error in (UsageError("no such thing"), ImportError("no module")):
        with pytest.raises(type(error), match=str(error)):
            read(error)


def test_run_attributes_are_what_they_must_be() -> None:
    """Whatever lies in a file in place of a name, an id, tags or a time, a run has texts and a time."""
    (run,) = bounded(type("Told", (Failing,), {}))().runs("x")
    assert (run.id, run.name, run.tags, run.created) == ("5", "['n']", ["1"], 0.0)


@pytest.mark.parametrize(
    "record",
    [Metrics(step="x", time=1.0, values={"a": 1}), Metrics(step=2**64, time=1.0, values={"a": 1}),  # type: ignore[arg-type]
     Metrics(step=1.5, time=1.0, values={"a": 1}), Metrics(time=1.0, values={"a": "text"}),  # type: ignore[arg-type, dict-item]
     Text(time=1.0, values={"a": 5}), Config(time=1.0, values=[1])],  # type: ignore[arg-type, dict-item]
)  # fmt: skip
def test_record_that_no_journal_holds_is_left_out(record: Record) -> None:
    """It is counted, and the others are there."""
    good = Metrics(step=1, time=1.0, values={"a": 1.0})
    found, note = read(good, record, good)
    assert found == [good, good]
    assert "1 records are left out" in note


def test_records_are_mended_where_they_can_be() -> None:
    """Steps that are whole, times that no clock shows, and texts that UTF-8 can't hold."""
    wanted = Metrics(step=2, time=7.0, values={"a\\ud800": 1})
    deep: Any = {}
    for _ in range(DEPTH + 50):
        deep = {"x": deep}
    found, note = read(
        Metrics(step=2.0, time=7, values={"a\ud800": 1}),  # type: ignore[arg-type]
        Metrics(step=2, time=float("nan"), values={"a\\ud800": 1}),
        Metrics(step=2, time=1e300, values={"a\\ud800": 1}),
        Text(time=7.0, values={"t": "x\udfff"}),
        Config(time=7.0, values=deep),
    )
    assert found == [wanted, wanted, wanted, Text(time=7.0, values={"t": "x\\udfff"})]
    assert "1 records are left out, the first: it is nested too deeply" in note


def test_parts_are_spared() -> None:
    """Of several parts those that are damaged are left out; a vendor's error isn't taken for damage."""
    run = SourceRun(source="x:y", id="1")
    spared = TolerantReader(run, "rows")
    parts = [iter([1]), (int(text) for text in ("2", "x", "3")), iter([4])]
    assert [item for part in parts for item in spared.read(part, "a row")] == [1, 2, 4]
    spared.add_note()
    assert run.note.startswith("x:y is damaged: 1 rows are left out, the first: a row: invalid literal")
    with pytest.raises(RuntimeError):
        list(spared.read(_ for _ in [1] if _raise(RuntimeError("vendor"))))


def _raise(error: Exception) -> bool:
    raise error


def test_operating_system_is_not_taken_for_damage() -> None:
    """A file that may not be read isn't damaged."""
    with pytest.raises(NotFound, match=r"a file can't be read: No such file"), boundary("a file"):
        Path("missing").read_bytes()
    assert len(reason(ValueError("x" * 5000))) <= 200


def test_streams_with_impossible_times_end() -> None:
    """A time that is no number doesn't keep the merging of streams from its end."""
    nan = Metrics(time=float("nan"), values={"a": 1.0})
    one = Metrics(time=1.0, values={"a": 1.0})
    assert len(list(merged([iter([[nan, nan, one]]), iter([[one, nan]])]))) == 5


def test_json_log_keeps_what_is_whole() -> None:
    """One bad entry of a list costs this entry; the log says so."""
    rows = [{"iter": step, "train_loss": 1.0, "time": "2026-01-01T00:00:00"} for step in range(3)]
    media = [{"iter": 1, "name": "m"}, {"iter": 2, "name": "m", "type": "table", "format": "json", "data": {}}]
    log = {"run_id": "a", "run_name": "r", "training_iterations": rows, "media": media, "tags": 7}
    Path("log.json").write_text(json.dumps(log))
    with pytest.raises(Damaged, match=r"log\.json is damaged"):
        trackers.load("json:log.json")
    Path("log.json").write_text(json.dumps({**log, "tags": ["a"]}))
    data = trackers.load("json:log.json")
    assert len(data.metrics()) == 3
    assert len(data.media()) == 1
    assert "1 records are left out, the first: 'type' is missing" in data.run.note


@pytest.mark.parametrize("change", ["view", "computed", "trigger", "virtual"])
def test_databases_with_more_than_tables_are_refused(change: str) -> None:
    """What has no bound, or does work of its own, isn't read: a few kilobytes would take all memory or all time."""
    from trackers.formats.foreign_sqlite import check

    path = Path("a.db")
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE other (a)")
    if change == "view":
        endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"
        database.execute(f"CREATE VIEW runs AS {endless}")
    elif change == "computed":
        database.execute("CREATE TABLE runs (a, b AS (zeroblob(900000000)))")
    elif change == "trigger":
        database.execute("CREATE TABLE runs (a)")
        database.execute("CREATE TRIGGER t BEFORE UPDATE ON runs BEGIN SELECT 1; END")
    else:
        database.execute("CREATE VIRTUAL TABLE runs USING fts5(a)")
    database.commit()
    database.close()
    check(path, {"other", "missing"})
    with pytest.raises(Damaged, match=r"a\.db is damaged: "):
        check(path, {"runs"})


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["older", "other", "empty", "no default", "today's"])
def test_reading_changes_no_database(kind: str, tmp_path: Path) -> None:
    """MLflow's client adds its tables to whatever database it opens, and brings old ones up to date: not by reading."""
    from mlflow.store.tracking.dbmodels.initial_models import Base

    release = int(importlib.metadata.version("mlflow").partition(".")[0])
    path, uri = tmp_path / "a.db", f"sqlite:///{tmp_path}/a.db"
    if kind == "older":
        from alembic import command
        from mlflow.store.db.utils import _get_alembic_config
        from sqlalchemy import create_engine

        engine = create_engine(uri)
        Base.metadata.create_all(engine)
        command.upgrade(_get_alembic_config(uri), "acf3f17fdcc7")  # of MLflow 2.11
        engine.dispose()
    elif kind == "other":
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE metrics (id INTEGER)")
    elif kind == "empty":
        path.touch()
    else:
        from mlflow import MlflowClient

        MlflowClient(tracking_uri=uri).create_experiment("digits")
        if kind == "no default":
            with contextlib.closing(sqlite3.connect(path)) as database:
                database.execute("DELETE FROM experiments WHERE experiment_id = 0")
                database.commit()
    with contextlib.closing(sqlite3.connect(path)) as database:
        before = list(database.iterdump())
    said = {
        "older": "another version of MLflow",
        "other": "no database of MLflow",
        "empty": "no database of MLflow",
        "no default": "lacks the experiment 'Default'" if release >= 3 else "has no runs",  # MLflow 2 adds none
    }
    beside = set(os.listdir())
    with pytest.raises(TrackersError, match=said.get(kind, "has no runs")):
        trackers.load_all(f"mlflow:{path}#digits")
    assert set(os.listdir()) - beside <= ({"mlruns"} if release < 3 else set()), "a directory was made"
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert list(database.iterdump()) == before


@pytest.mark.heavy
def test_damaged_run_of_a_database_is_named_in_one_line(tmp_path: Path) -> None:
    """The message names the run by its address, not by all that the client knows of it."""
    from mlflow import MlflowClient

    path = tmp_path / "a.db"
    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    run = client.create_run(client.create_experiment("digits")).info.run_id
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE runs SET start_time = 'yesterday'")
        database.execute("UPDATE runs SET status = 'FINISHED'")
        database.commit()
    with pytest.raises(Damaged) as raised:
        trackers.load_all(f"mlflow:{path}#digits")
    assert str(raised.value).startswith(f"mlflow:sqlite:///{path}#digits/{run} is damaged: ")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_database_that_cannot_be_decoded_is_named_in_one_line() -> None:
    """SQLite's own words quote the text with its line ends."""
    from trackers.formats.foreign_sqlite import check

    with contextlib.closing(sqlite3.connect("a.db")) as database:
        database.execute("CREATE TABLE runs (a)")
        database.execute("PRAGMA writable_schema=ON")
        text = "CAST(X'" + b"CREATE TABLE runs (a,\n\xff b)".hex() + "' AS TEXT)"
        database.execute(f"UPDATE sqlite_master SET sql = {text}")
        database.commit()
    with pytest.raises(Damaged) as raised:
        check(Path("a.db"), {"runs"})
    assert "\n" not in str(raised.value)


def test_handlers_know_all_that_decoding_raises() -> None:
    """Bytes that aren't UTF-8 raise no ``DecodeError`` of msgspec, nor does deep nesting: handlers name UNDECODABLE."""
    for path in sorted(Path(trackers.__file__).parent.rglob("*.py")):
        for line in path.read_text().splitlines():
            if "msgspec.DecodeError" in line and "import" not in line:
                whole = "UnicodeDecodeError" in line and "RecursionError" in line
                # Python's own parser reads that line next, and says what is wrong with it.
                plain = line.strip() == "except msgspec.DecodeError:  # NaN, which Python writes"
                assert whole or (plain and path.parts[-2:] == ("json", "lines.py")), f"{path}: {line.strip()}"


@pytest.mark.parametrize(
    "content", [b"\xff\n", DEEP + b"\n", b'{"id": {}}\n', b"[1]\n", b"\0" * 2000, b"9" * 5000 + b"\n"]
)
def test_bookkeeping_of_a_run_may_hold_anything(content: bytes) -> None:
    """What stands in a run's small files keeps it from being listed, delivered, archived or held by nobody."""
    from trackers.backends.wandb.system_metrics import SENT_NAME, SentSamples
    from trackers.journal import status
    from trackers.journal.lease import Lease, read_holder
    from trackers.journal.messages import MessageReader
    from trackers.ranks.launch import registrations
    from trackers.relay.delivery.delivery import Delivery
    from trackers.retention.archive import read_manifest

    run = RunDirectory(write("one"))
    names = (*(f"delivery/json.{end}" for end in ("json", "order", "rejected.jsonl", "lease")), "relay.lease",
             "messages.jsonl", "archive.json", SENT_NAME, "runs.jsonl", "heir.1", "forks.1")  # fmt: skip
    told = MessageReader(run.messages)
    for name in names:
        (run.path / name).write_bytes(content)
    assert len(listing(Path("runs")).lines) == 1
    assert read_holder(run.path / "relay.lease") is None
    assert not Lease(run.path / "relay.lease").acquire()
    assert told.read() == []
    assert registrations(run.path) == []
    assert status.named_child(run, 1) is None
    with contextlib.suppress(NotFound):
        assert read_manifest(run).files == []
    (run.path / "archive.json").unlink()
    assert SentSamples(run.read_info()).alerts == set()
    work = Delivery(run, "json", say=lambda text: None)
    while work.step() is not None:
        pass
    assert len(trackers.load("json:runs/digits/one/one_*.json").metrics()) == 1


def test_numbers_of_an_order_fit() -> None:
    """A number beyond 64 bits in a delivery's order counts as damage: the order is chosen anew."""
    from trackers.relay.delivery.delivery import Delivery
    from trackers.relay.delivery.merge_order import HEAD

    run = RunDirectory(write("one"))
    for line in ({"seq": 1, "start": 10**40}, {"seq": 10**40, "start": 0}, {"seq": -1, "start": 0}):
        switch = json.dumps({"stream": "rank-0.1", **line}).encode()
        (run.delivery / "json.order").write_bytes(HEAD.encode() % (3, 1e9) + switch + b"\n")
        Delivery(run, "json", say=lambda text: None).close()


def test_lease_names_no_other_file(tmp_path: Path) -> None:
    """A holder's token becomes part of a file's name: one with a slash in it is none."""
    from trackers.journal.lease import Holder, Lease

    path = tmp_path / "a" / "json.lease"
    path.parent.mkdir()
    for token in ("x/../../precious", "/etc/passwd", "", "x" * 5000):
        path.write_bytes(msgspec.json.encode(Holder(token=token, host="elsewhere", pid=1)))
        lease = Lease(path)
        assert lease.holder() is None
        assert not lease.acquire()
    assert {entry.name for entry in tmp_path.iterdir()} <= {"a", "home"}


def test_files_of_a_run_are_no_longer_than_can_be_read() -> None:
    """A file of holes costs nothing: what is read whole has a bound, and an order is read line by line."""
    from trackers.relay.delivery.delivery import Delivery
    from trackers.support import confined

    run = RunDirectory(write("one"))
    for name in ("delivery/json.order", "archive.json", "relay.lease"):
        with (run.path / name).open("wb") as file:
            file.truncate(12 << 40)
        with pytest.raises(OSError, match="longer than 1,000 bytes"):
            confined.read(run.path / name, most=1000)
    Delivery(run, "json", say=lambda text: None).close()
    assert (run.delivery / "json.order").stat().st_size < 1000


@pytest.mark.slow
def test_bytes_in_a_column_of_texts_are_text(tmp_path: Path) -> None:
    """A parameter or a tag that a damaged database has as bytes is one text among the others."""
    from mlflow import MlflowClient

    path = tmp_path / "a.db"
    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    run = client.create_run(client.create_experiment("digits")).info.run_id
    client.log_param(run, "lr", 0.1)
    client.log_param(run, "depth", 4)
    client.set_tag(run, "trackers.exit_code", "7")
    client.set_terminated(run, "FAILED")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE params SET value = CAST(x'30ff' AS BLOB) WHERE key = 'lr'")
        database.execute("UPDATE tags SET value = CAST('7' AS BLOB) WHERE key = 'trackers.exit_code'")
        database.commit()
    (data,) = trackers.load_all(f"mlflow:{path}#digits")
    assert data.config == {"lr": "0\ufffd", "depth": "4"}
    assert data.status == "failed"


@pytest.mark.slow
def test_names_of_others_in_a_message_are_few_and_short(tmp_path: Path) -> None:
    """What there is instead of what was asked for is a help, not a page: found by the fuzzer in a damaged database."""
    assert examples([]) == "none"
    assert examples(["a", "b"], 2) == "a, b"
    assert examples(f"run{number}" for number in range(1234)) == (
        "run0, run1, run2, run3, run4, run5, run6, run7, run8, run9 and 1,224 more"
    )
    assert examples(["x" * 5000, "a\n  b"]) == "x" * 80 + "…, a b"
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    database = tmp_path / "mlflow.db"
    store = SqlAlchemyStore(f"sqlite:///{database}", str(tmp_path / "mlruns"))
    for number in range(30):
        store.create_experiment(f"{number}" + "x" * 400)
    store.engine.dispose()
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("UPDATE experiments SET name = name || ?", ("y" * 5000,))
    for source in (f"mlflow:{database}#digits", f"mlflow:{database}"):
        with pytest.raises(TrackersError) as error:
            registry.open_source(source)
        assert len(str(error.value)) < 2000
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["pipe", "zero"])
@pytest.mark.parametrize(
    ("source", "name"),
    [("hf:there", "trainer_state.json"), ("json:there", "a.json"), ("csv:there", "metrics.csv"),
     ("csv:there/*", "metrics.csv"), ("tb:there", "events.out.tfevents.1.h")],
)  # fmt: skip
def test_pipe_or_device_in_a_directory_is_passed_over(source: str, name: str, kind: str, tmp_path: Path) -> None:
    """What somebody put into a directory holds no reader up, and isn't read for ever."""
    path = tmp_path / "there" / name
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    scheme, _, place = source.partition(":")
    with pytest.raises(NotFound, match=r"nothing to read|no file or directory|no runs|no event"):
        trackers.load(f"{scheme}:{tmp_path}/{place}")


def test_results_beside_a_table_are_a_file(tmp_path: Path) -> None:
    """A pipe in the place of ``summary.csv`` isn't waited for."""
    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n")
    os.mkfifo(tmp_path / "summary.csv")
    assert len(trackers.load(f"csv:{tmp_path}").metrics()) == 1


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 50_000 + "x", BOMB])
def test_yaml_of_others_is_plain(text: str) -> None:
    """Nested deeply, in which PyYAML takes the square of the depth, or with aliases that stand for much: refused."""
    with pytest.raises(ValueError, match=r"nested more than|nesting depth|aliases stand for more|parsing"):
        load_yaml(text)
    assert load_yaml("a: &x 1\nb: *x") == {"a": 1, "b": 1}
    assert load_yaml("lr:\n  value: 0.1\n  list: [[1, 2], {a: b}]") == {
        "lr": {"value": 0.1, "list": [[1, 2], {"a": "b"}]}
    }
