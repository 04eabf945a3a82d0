"""Somebody deletes, replaces or puts back what a tracker wrote, or what is known of its delivery: all comes once."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trackers
from tests import stores
from tests.helpers import T0, run_info
from trackers.backends.mlflow.client import PointComparison, StoredPoint
from trackers.journal.run_directory import RunDirectory, StreamName, replace_file
from trackers.journal.stream import StreamWriter
from trackers.records import Alert, Config, Finish, Media, MediaFile, Metrics, Start, Summary, Text, encode
from trackers.relay.delivery import delivery as module
from trackers.relay.delivery.cursor_file import read_account
from trackers.relay.delivery.delivery import Delivery
from trackers.support import failpoints
from trackers.support.machines import boot_id
from trackers.support.processes import process_start
from trackers.tracker import RunInfo

STEPS = 40
FILES = ("json", "csv", "tensorboard", "benchmark", "progress")
STORES = ("trackio", "mlflow")
OPTIONS: dict[str, dict[str, str]] = {}
"""Of trackers that plug-ins bring: options that name folders below the place of all stores."""
HELD: dict[str, Callable[[RunInfo, Path], Any]] = {}
"""Likewise: what a store below that place holds of a run."""
APPENDED = {"tensorboard"}
"""Trackers whose files are taken as they are where no digests of them are known."""


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "out/trackio"))
    with contextlib.suppress(ImportError):  # a plug-in's tests may run without it
        import trackio.utils  # noqa: F401

    for imported in [known for name, known in sys.modules.items() if name.partition(".")[0] == "trackio"]:
        for name, path in (("TRACKIO_DIR", ""), ("MEDIA_DIR", "media"), ("ARTIFACTS_DIR", "artifacts")):
            if hasattr(imported, name):
                monkeypatch.setattr(imported, name, tmp_path / "out/trackio" / path)


def a_run(home: Path, out: Path, run_id: str) -> RunDirectory:
    """A finished run of forty steps with samples, texts, a result, a checkpoint and an alert."""
    run = RunDirectory(home)
    run.make()
    out.mkdir(exist_ok=True)  # where training runs is there: what trackers make by default lies below it
    options = {
        f"{name}_DIR": str(out / name.lower()) for name in ("JSON", "CSV", "TENSORBOARD", "BENCHMARK", "PROGRESS")
    }
    for folders in OPTIONS.values():
        options |= {name: str(out / folder) for name, folder in folders.items()}
    options["MLFLOW_TRACKING_URI"] = f"sqlite:///{out}/mlflow/mlflow.db"
    run.write_info(
        run_info(home, id=run_id, options=options, cwd=str(out), tags=["first"], config={"lr": 0.5, "batch_size": 4})
    )
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    writer.write(encode(Start(time=T0)))
    writer.write(encode(Config(time=T0, values={"lr": 0.5, "batch_size": 4})))
    for step in range(STEPS):
        values = {"loss": step / 4, "perf/step_time": 0.5, "perf/tokens_per_sec": 100.0}
        writer.write(encode(Metrics(step=step, time=T0 + step, values=values)))
        if step % 8 == 3:
            writer.write(encode(Text(step=step, time=T0 + step + 0.1, values={"note": f"at {step}"})))
            saved = {"checkpoint/iteration": step}
            writer.write(encode(Metrics(step=step, time=T0 + step + 0.2, values=saved)))
    histogram = MediaFile(format="json", data={"counts": [1, 2], "edges": [0.0, 0.5, 1.0]})
    writer.write(encode(Media(step=9, time=T0 + STEPS, name="weights", type="histogram", items=[histogram])))
    writer.write(encode(Alert(time=T0 + STEPS, title="look")))
    writer.write(encode(Summary(time=T0 + STEPS, values={"final/best": 0.25})))
    writer.write(encode(Finish(time=T0 + STEPS + 1, status="finished", exit_code=0)))
    writer.release()
    samples = StreamWriter(run.stream(StreamName("sampler", 0, 1)))
    for step in range(0, STEPS, 4):
        samples.write(encode(Metrics(time=T0 + step + 0.5, values={"system.cpu": float(step)})))
    samples.release()
    return run


def deliver(run: RunDirectory, name: str, harm: Callable[[], object] = lambda: None, at: int = -1) -> None:
    """Deliver in batches; ``harm`` is done after so many steps."""
    work = Delivery(run, name, say=lambda text: None, alone=False)
    work._limit = 7 if name not in STORES else 20
    for number in range(400):
        if number == at:
            harm()
        if work.step() is None:
            work._order.close()
            return
    raise AssertionError(f"the delivery doesn't come to an end: {read_account(run, name).error}")


def held(run: RunDirectory, name: str, out: Path) -> Any:
    """Everything that a tracker's store holds of the run, as its own readers see it."""
    info: RunInfo = run.read_info()
    if name == "trackio":
        found = stores.read_trackio(info)
        return found, _counts(out / "trackio/digits.db", info.id)
    if name == "mlflow":
        return stores.read_mlflow(info)
    if name == "tensorboard":
        (folder,) = (out / "tensorboard/digits").iterdir()
        return stores.read_tensorboard(info, directory=folder)
    if name in HELD:
        return HELD[name](info, out)
    files = sorted(path for path in (out / name).rglob("*") if path.is_file())
    return {path.relative_to(out).as_posix(): _settled(path) for path in files}


def _counts(path: Path, run_id: str) -> list[int]:
    """Samples and alerts of a run in trackio's database."""

    database = sqlite3.connect(path)
    try:
        query = "SELECT count(*) FROM {} WHERE run_id = ?"
        return [database.execute(query.format(table), [run_id]).fetchone()[0] for table in ("system_metrics", "alerts")]
    finally:
        database.close()


def _settled(path: Path) -> Any:
    """A file's content without what says when it was written."""
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        document = json.loads(text)
        for part in (document, document.get("metadata", {}), document.get("session", {})):
            for name in ("timestamp", "generated", "created", "written"):
                part.pop(name, None) if isinstance(part, dict) else None
        return document
    return text


class Expected:
    """What a store holds after a delivery that nobody disturbed, and runs to compare with it."""

    def __init__(self, home: Path, name: str) -> None:
        self.home, self.out, self.name = home, home / "out", name
        run = self.run("whole")
        deliver(run, name)
        self.whole = self.held(run)

    def run(self, run_id: str) -> RunDirectory:
        """Another run of the same records. Files of earlier runs are removed; the stores of vendors hold many."""
        if self.name not in STORES:
            shutil.rmtree(self.out, ignore_errors=True)
        return a_run(self.home / run_id, self.out, run_id)

    def held(self, run: RunDirectory) -> Any:
        """What the store holds of a run, without its id."""
        found = held(run, self.name, self.out)
        return json.loads(json.dumps(found).replace(run.path.name, "ID")) if isinstance(found, dict) else found


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FILES, *STORES])
def test_store_that_is_lost_while_it_is_open_is_filled_anew(name: str, tmp_path: Path) -> None:
    """Deleted, replaced or overwritten by an older copy, early, in the middle or at the end: all is there, once."""
    expected = Expected(tmp_path, name)
    place = expected.out / name
    for harm in ("put back", "overwritten", "deleted"):
        for at in (2, 5, 8) if name not in STORES else (3,):
            run = expected.run(f"{harm.replace(' ', '-')}{at}")
            older = tmp_path / f"older-{run.path.name}"
            if harm != "deleted":
                deliver_some(run, name, 1 if name in STORES else 3)
                if not place.exists():
                    continue  # it writes at the end alone
                shutil.copytree(place, older)

            def lose(harm: str = harm, older: Path = older) -> None:
                if harm != "overwritten":
                    shutil.rmtree(place, ignore_errors=True)
                if older.exists():
                    shutil.copytree(older, place, dirs_exist_ok=True, copy_function=shutil.copyfile)

            deliver(run, name, lose, at)
            assert expected.held(run) == expected.whole, f"{harm} after {at} steps"


@pytest.mark.parametrize("name", [*FILES, *STORES])
def test_store_that_is_lost_is_filled_anew_though_opening_it_again_fails(name: str, tmp_path: Path) -> None:
    """A delivery that fails, or dies, right after it saw that its store is lost: the next one sees it, too."""
    expected = Expected(tmp_path, name)
    for dies in (False, True):
        run = expected.run(f"dies-{dies}")

        def lose(run: RunDirectory = run, dies: bool = dies) -> None:
            shutil.rmtree(expected.out / name, ignore_errors=True)
            failpoints.arm(f"{name}.open.after=raise")
            if dies:
                work = Delivery(run, name, say=lambda text: None, alone=False)
                assert work.step() is not None
                work._order.close()

        if dies:
            deliver_some(run, name, 3)
            lose()
            deliver(run, name)
        else:
            deliver(run, name, lose, 3)
        failpoints.arm("")
        assert expected.held(run) == expected.whole, f"dies: {dies}"


def deliver_some(run: RunDirectory, name: str, steps: int) -> None:
    """A delivery that is killed after so many steps."""
    work = Delivery(run, name, say=lambda text: None, alone=False)
    work._limit = 7 if name not in STORES else 20
    for _ in range(steps):
        work.step()
    work._order.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FILES, *STORES])
def test_delivery_with_any_earlier_state_changes_nothing(name: str, tmp_path: Path) -> None:
    """State, order of the streams, or both, deleted or put back from any time: all is there, once."""
    expected = Expected(tmp_path, name)
    run = expected.run("harmed")
    copies = [tmp_path / "none"]
    copies[0].mkdir()
    for number in range(3):
        deliver_some(run, name, 2)
        copies.append(tmp_path / f"copy{number}")
        shutil.copytree(run.delivery, copies[-1])
    cases = [(files, copy) for files in (f"{name}.json", f"{name}.*") for copy in copies]
    for files, copy in cases if name not in STORES else (cases[2], cases[4], cases[7]):
        for path in run.delivery.glob(files):
            path.unlink()
        for path in copy.glob(files):
            shutil.copy(path, run.delivery)
        deliver(run, name)
        assert expected.held(run) == expected.whole, f"{files} of {copy.name}"


@pytest.mark.slow
def test_run_that_is_deleted_in_trackio_is_delivered_anew(tmp_path: Path) -> None:
    """By trackio's own means, while its delivery is open: the run is there again, whole."""
    from trackio.sqlite_storage import SQLiteStorage

    expected = Expected(tmp_path, "trackio")
    run = expected.run("deleted")
    deliver(run, "trackio", lambda: SQLiteStorage.delete_run("digits", "baseline", run_id="deleted"), at=2)
    assert expected.held(run) == expected.whole


def damage(path: Path, at: float) -> None:
    """Change one byte of a file, so that its length stays."""
    content = bytearray(path.read_bytes())
    place = min(len(content) - 2, int(at * len(content)))
    content[place] = ord("0") if content[place] != ord("0") else ord("1")
    path.write_bytes(content)


def verified(run: RunDirectory, name: str) -> dict[str, Any]:
    """What ``trackers sync --verify`` finds and mends, done in this process."""
    account = read_account(run, name)
    account.verify = True
    replace_file(run.delivery_state(name), msgspec.json.encode(account))
    deliver(run, name)
    return read_account(run, name).verified


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if name != "progress"])
def test_verify_finds_damage_of_equal_length_and_mends_it(name: str, tmp_path: Path) -> None:
    """One changed byte anywhere in any file of a tracker is found, named, and written anew from the journal; a second
    look, and one at files that nobody touched, finds nothing."""
    expected = Expected(tmp_path, name)
    run = expected.run("damaged")
    deliver(run, name)
    assert verified(run, name)["damaged"] == []
    own = [path for folder in (expected.out / name, run.path / name) if folder.exists() for path in folder.rglob("*")]
    files = [path for path in own if path.is_file() and path.stat().st_size > 1]
    assert files
    for path in files:
        for at in (0.0, 0.3, 0.999):
            damage(path, at)
            found = verified(run, name)["damaged"]
            assert any(str(path) in text or "held less" in text for text in found), f"{path.name} at {at}: {found}"
            assert expected.held(run) == expected.whole
            again = verified(run, name)
            assert again["damaged"] == []
            assert "bytes" in again["checked"]
    account = read_account(run, name)  # as an older version left it
    account.state.pop("digests", None)
    replace_file(run.delivery_state(name), msgspec.json.encode(account))
    assert bool(verified(run, name)["damaged"]) == (name not in APPENDED)
    assert expected.held(run) == expected.whole


OF_FILES = (
    test_store_that_is_lost_while_it_is_open_is_filled_anew,
    test_store_that_is_lost_is_filled_anew_though_opening_it_again_fails,
    test_delivery_with_any_earlier_state_changes_nothing,
    test_verify_finds_damage_of_equal_length_and_mends_it,
)
"""What each tracker that writes files must stand, of plug-ins, too."""


def test_sync_verify_says_what_it_read_back_and_mended(tmp_path: Path) -> None:
    """The command names each tracker's files, what was damaged and what can't be read back; a run that goes on is
    refused. A run whose delivery/ was removed is delivered like any other."""
    run = a_run(tmp_path / "runs/digits/said", tmp_path / "out", "said")
    shutil.rmtree(run.delivery)

    def sync(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trackers", "sync", str(run.path), "--to", "json,progress", *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert sync().returncode == 0
    (log,) = (tmp_path / "out/json").iterdir()
    damage(log, 0.5)
    done = sync("--verify")
    assert done.returncode == 0, done.stderr
    assert "json: delivered" in done.stdout
    assert f"1 damaged and written anew: {log} (other content than was written)" in done.stdout
    assert "not verified: others write to" in done.stdout
    lines = [json.loads(line) for line in sync("--verify", "--json").stdout.splitlines()]
    (journal,) = [line["journal"] for line in lines if "journal" in line]
    assert [stream["damaged"] for stream in journal] == [[]] * len(journal)
    found = {line["tracker"]: line["verified"] for line in lines if line.get("state") == "delivered"}
    assert found["json"]["damaged"] == []
    assert found["json"]["checked"].endswith(" bytes")
    going_on = RunDirectory(tmp_path / "runs/digits/goes-on")
    going_on.make()
    here: dict[str, Any] = {"pid": os.getpid(), "pid_start": process_start(os.getpid()), "boot_id": boot_id(),
                            "host": socket.gethostname()}  # fmt: skip
    going_on.write_info(run_info(going_on.path, id="goes-on", trackers=["json"], **here))
    StreamWriter(going_on.stream(StreamName("rank", 0, 1))).write(encode(Start(time=T0, **here)))
    command = [sys.executable, "-m", "trackers", "sync", str(going_on.path), "--verify"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "goes on: verify it when it has ended" in refused.stderr


def test_verify_brings_back_what_a_store_lacks(tmp_path: Path) -> None:
    """Rows that somebody deleted in trackio, or put other values into, are there again, and counted by values."""
    expected = Expected(tmp_path, "trackio")
    run = expected.run("lacking")
    deliver(run, "trackio")
    nothing = {"missing": 0, "changed": 0, "restored": 0}
    assert counted(verified(run, "trackio")) == nothing
    with contextlib.closing(sqlite3.connect(tmp_path / "out/trackio/digits.db", isolation_level=None)) as database:
        database.execute("DELETE FROM metrics WHERE run_id = 'lacking' AND step BETWEEN 3 AND 9")
        database.execute("DELETE FROM system_metrics WHERE id = (SELECT max(id) FROM system_metrics)")
        (text,) = database.execute("SELECT metrics FROM metrics WHERE run_id = 'lacking' AND step = 20").fetchone()
        other = json.dumps({**json.loads(text), "loss": -1.0, "more": 1})
        database.execute("UPDATE metrics SET metrics = ? WHERE run_id = 'lacking' AND step = 20", [other])
        database.execute("UPDATE metrics SET timestamp = '2020' WHERE run_id = 'lacking' AND step = 21")
    lost = 7 * 3 + 3 + 1  # rows of training; a text, a checkpoint and a histogram; a sample
    assert counted(verified(run, "trackio")) == {"missing": lost, "changed": 2 + 3, "restored": lost + 5}
    (there, counts), (whole, wanted) = expected.held(run), expected.whole
    assert sorted(there.metrics["loss"]) == sorted(whole.metrics["loss"])
    assert "more" not in there.metrics
    assert (sorted(there.texts["note"]), counts) == (sorted(whole.texts["note"]), wanted)
    assert counted(verified(run, "trackio")) == nothing


def counted(outcome: dict[str, Any]) -> dict[str, int]:
    """What a verification says of values."""
    assert outcome["unit"] == "values"
    return {word: outcome[word] for word in ("missing", "changed", "restored")}


def test_verify_compares_values_in_mlflow(tmp_path: Path) -> None:
    """Points that somebody deleted are there again; beside one that was changed is the right one. A second look finds
    nothing more."""
    run = a_run(tmp_path / "lacking", tmp_path / "out", "lacking")
    deliver(run, "mlflow")
    whole = stores.read_mlflow(run.read_info())
    with contextlib.closing(sqlite3.connect(tmp_path / "out/mlflow/mlflow.db", isolation_level=None)) as database:
        (native,) = database.execute("SELECT run_uuid FROM tags WHERE value = 'lacking'").fetchone()
        mine = f"WHERE run_uuid = '{native}' AND key ="
        database.execute(f"DELETE FROM metrics {mine} 'loss' AND step > 3 AND step < 30")
        database.execute(f"UPDATE metrics SET value = -2 {mine} 'perf/tokens_per_sec' AND step = 8")
        database.execute(f"UPDATE metrics SET value = 9e9 {mine} 'perf/tokens_per_sec' AND step = {STEPS - 1}")
        database.execute(f"UPDATE metrics SET timestamp = 7 {mine} 'perf/step_time' AND step = 9")
        database.execute(f"DELETE FROM metrics {mine} 'final/best'")
    found = verified(run, "mlflow")
    assert counted(found) == {"missing": 26 + 1 + 1, "changed": 2, "restored": 30}
    held = stores.read_mlflow(run.read_info())
    assert held.summary is not None
    assert held.metrics["loss"] == whole.metrics["loss"]
    assert held.summary["final/best"] == 0.25
    speeds = held.metrics["perf/tokens_per_sec"]
    first, last = (whole.metrics["perf/tokens_per_sec"][step] for step in (8, -1))
    changed = [first._replace(value=-2.0), last._replace(value=9e9)]
    assert sorted(speeds) == sorted([*whole.metrics["perf/tokens_per_sec"], *changed])
    read = trackers.load(f"mlflow:{tmp_path / 'out/mlflow/mlflow.db'}#digits").metrics(["perf/tokens_per_sec"])
    assert read["perf/tokens_per_sec"].to_pylist() == [100.0] * STEPS  # by the tags that say which were changed
    assert counted(verified(run, "mlflow")) == {"missing": 0, "changed": 0, "restored": 0}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_points_that_are_compared_are_found(data: st.DataObject) -> None:
    """Whatever is deleted and changed, in whatever batches and however often they are sent, is counted once."""
    value = st.one_of(st.floats(), st.sampled_from([-1.0, -2.0, 0.0, -0.0]))
    wanted = data.draw(st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(-2, 3), st.integers(0, 2)), value))
    points = [StoredPoint(*place, value) for place, value in wanted.items()]
    fates = [data.draw(st.sampled_from(["there", "missing", "changed"])) for _ in points]
    other = st.sampled_from([0.125, 0.25])
    there = [_held(point if fate == "there" else point._replace(value=data.draw(other)))
             for point, fate in zip(points, fates, strict=True) if fate != "missing"]  # fmt: skip
    comparison = PointComparison(there)
    size = data.draw(st.integers(1, 4))
    for first in [*range(0, len(points), size), 0]:
        batch = points[first : first + size]
        comparison.send([SimpleNamespace(key=p.key, step=p.step, timestamp=p.time, value=p.value) for p in batch])
    back = [_held(point) for point in points[: data.draw(st.integers(0, len(points)))]]
    comparison.settle([*there, *back])
    held = {point[:3]: repr(point) for point in there}
    replaced = {repr(point) for point in comparison.replaced}
    assert replaced == {repr(point) for point in there if repr(point) not in map(repr, map(_held, points))}
    lost = [point for point in map(_held, points) if held.get(point[:3]) != repr(point)]
    assert comparison.missing == sum(point[:3] not in held for point in lost)
    assert comparison.changed == sum(point[:3] in held for point in lost)
    assert comparison.restored == sum(repr(point) in map(repr, back) for point in lost)


def _held(point: StoredPoint) -> StoredPoint:
    """A point as MLflow holds it: infinities are the largest double, there is one zero."""
    most = sys.float_info.max
    return point if math.isnan(point.value) else point._replace(value=max(-most, min(point.value, most)) + 0.0)
