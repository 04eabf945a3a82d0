"""Any source to any tracker, as often as one likes: both sides hold the same, and the report says so truly."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import trackers
from tests.analysis.support import write_run
from trackers import errors
from trackers.cli.app import app
from trackers.copying import CopyReport, copy, staging
from trackers.copying.verify import KEEPS, Capabilities, ContentDigest, SeriesDigest, differences, tally
from trackers.errors import MissingPackage, NotFound, TrackersError, UsageError
from trackers.readers.run_data import load, load_all
from trackers.records import ArtifactFile, ArtifactRecord, Finish, Media, MediaFile, Metrics, Record, Summary, encode
from trackers.support import plugins

OFFLINE: dict[str, Any] = {"mode": "offline", "options": {"TRACKER_RELAY": False}}


def logged(steps: int = 60, name: str = "baseline", finish: bool = True, media: bool = True) -> trackers.Run:
    """A run of ours with everything that a run can have; it failed."""
    run = trackers.init(
        "json", project="digits", name=name, config={"lr": 0.1, "model": {"depth": 4}, "entropy": [2**100, 2**63]},
        tags=["first", "größer"], group="ablation", notes="why", **OFFLINE,
    )  # fmt: skip
    for step in range(steps):
        run.log({"train_loss": 1 / (step + 1), "mean@1": float("nan") if step == 3 else step, "step": step}, step=step)
        if step % 7 == 0:
            run.log({"val_loss": float("inf"), "big": 2**53 + 1}, step=step)
    if media:
        table = trackers.Table(columns=["a", "picture"], data=[[1, trackers.Image(np.zeros((2, 2), np.uint8))]])
        run.log({"picture": trackers.Image(np.eye(4, dtype=np.float32)), "table": table, "text": "größer"}, step=steps)
        run.log({"weights": trackers.Histogram([1, 2, 2, 3])}, step=steps)
        Path("weights.bin").write_bytes(bytes(range(256)))
        run.log_artifact("weights.bin", name="weights", type="model")
    run.log({"final/best": 0.5})
    if finish:
        run.finish(exit_code=3)
    return run


def one(source: str, destination: str, **options: Any) -> CopyReport:
    """The report of a copy of one run."""
    (report,) = copy(source, destination, **options)
    return report


@pytest.mark.parametrize("destination", ["json:copies", "csv:copies", "tb:copies", "copies"])
def test_damaged_line_is_left_out_and_named(destination: str) -> None:
    """A line that still reads as a record, with another number, isn't copied as a true value; the report says so."""
    run = logged(media=False)
    stream = Path(run.dir, "streams", "rank-0.1.jsonl")
    content = bytearray(stream.read_bytes())
    at = content.index(b'"mean@1":50,')
    content[at + len(b'"mean@1":')] ^= 1  # 40
    stream.write_bytes(content)
    for _ in range(2):  # the second time it is there already
        report = one("latest", destination)
        assert report.agrees, report
        assert f"1 damaged line of the journal skipped; `trackers sync {run.dir} --verify` names it" in report.messages
        values = load(report.destination).metrics(["mean@1"])["mean@1"].to_pylist()
        assert [values.count(40), values.count(50), len(values)] == [1, 0, 59]


def test_what_stands_behind_nul_bytes_is_copied() -> None:
    """Blocks that a disk lost with its power hide nothing: what was written before and behind them arrives."""
    run = write_run("r", [(step, float(step), {"loss": 1 / step}) for step in range(1, 6)])
    stream = run / "streams/rank-0.1.jsonl"
    stream.write_bytes((b"\0" * 4096 + b"\n").join(stream.read_bytes().splitlines(keepends=True)))
    os.utime(stream, (1e9, 1e9))
    report = one("runs/digits/r", "out")
    assert report.agrees
    assert [line for line in report.messages if "damaged lines" in line], report.messages
    (copied,) = load_all("out")
    assert len(copied.metrics()) == 5


@pytest.mark.parametrize("bit", range(8))
def test_staged_journal_lacks_the_damaged_line_only(bit: int) -> None:
    """Whichever of a line's bytes is damaged, its end included: all others are staged as they are."""
    run = logged(media=False)
    stream = Path(run.dir, "streams", "rank-0.1.jsonl")
    lines = stream.read_bytes().splitlines(keepends=True)
    hit = len(lines) // 2
    for at in (0, len(lines[hit]) // 2, -1):
        content = bytearray(lines[hit])
        content[at] ^= 1 << bit
        stream.write_bytes(b"".join([*lines[:hit], content, *lines[hit + 1 :]]))
        report = one("latest", f"copies{at}")
        assert Path(report.destination, "streams", stream.name).read_bytes() == b"".join(lines[:hit] + lines[hit + 1 :])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A place for MLflow's runs: its tables take seconds to make."""
    return str(tmp_path_factory.mktemp("mlflow") / "mlflow.db")


DESTINATIONS = ("", "tensorboard", "json", "csv", "trackio", "mlflow")
MORE: dict[str, str] = {}
"""Destinations that plug-ins bring, by tracker."""


def places(database: str) -> dict[str, str]:
    """A destination of each kind."""
    return {
        "": "out",
        "tensorboard": "tb:tb",
        "json": "json:json",
        "csv": "csv:csv",
        "trackio": "trackio:copies",
        "mlflow": f"mlflow:{database}#copies",
        **MORE,
    }


@pytest.mark.parametrize("tracker", DESTINATIONS)
def test_copy_agrees_and_is_idempotent(tracker: str, database: str) -> None:
    """All of a run arrives in each destination; a second copy adds nothing; names, tags and group are there."""
    run = logged()
    destination = places(database)[tracker]
    first = one(run.id, destination)
    assert first.agrees, str(first)
    assert first.expected.values == 60 * 3 + 9 * 2
    second = one(run.id, destination)
    assert second.agrees
    assert (second.destination, second.stored) == (first.destination, first.stored)
    data = load(second.destination)
    assert data.status == "failed"
    assert data.summary["best"] == 0.5
    if tracker != "csv":
        assert (data.run.group, data.run.notes, sorted(data.run.tags)) == ("ablation", "why", ["first", "größer"])
        assert data.config["model"] == {"depth": 4}
    if tracker not in ("tensorboard", "json", "csv"):
        assert (data.run.name, len(data.artifacts())) == ("baseline", 1)
    times = [load(source).metrics(["train_loss"])["time"].to_pylist() for source in (run.id, second.destination)]
    assert max(abs(one - other) for one, other in zip(*times, strict=True)) <= 0.0005


MACHINE = {
    "system.gpu.0.gpu": 75.5,
    "system.gpu.0.gpu.max": 90.0,
    "system.gpu.0.memoryAllocated": 42.7,
    "system.gpu.0.memoryAllocatedBytes": 85_899_345_921,
    "system.gpu.0.powerWatts": 123.456,
    "system.gpu.0.temp": 61,
    "system.gpu.process.0.memoryAllocatedBytes": 12_345_678_901,
    "system.node1.gpu.3.mig.2.memoryAllocatedBytes": 1 / 3,
    "system.cpu": 12.5,
    "system.memory_used_gb": 8.123456789012345,
    "system.disk./.usageGB": 22.1,
    "system.network.sent": 1_000_003,
    "system.proc.memory.rssMB": 512.25,
}
"""Samples by W&B's names, of which some destinations have names and units of their own."""


@pytest.mark.parametrize("tracker", DESTINATIONS)
def test_samples_of_the_machine_come_back(tracker: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a destination calls them and counts them in, samples have their names, times and values again."""
    monkeypatch.setenv("TRACKER_GPU_METRICS", "ranges")
    run = trackers.init("json", project="digits", name="sampled", **OFFLINE)
    for step in range(4):
        run.log({"train_loss": 1.0, "system/own": step, "system.mine": step}, step=step)
    stream = next(Path(run.dir, "streams").glob("rank-0*.jsonl"))
    rows = [Metrics(time=1e9 + number, values={**MACHINE, "system.cpu": number}) for number in range(3)]
    with stream.open("ab") as file:
        file.write(b"".join(map(encode, rows)))
    run.finish()
    report = one(run.id, places(database)[tracker])
    assert report.agrees, str(report)
    if tracker == "json":  # it has no place for what has no step
        return
    data = load(report.destination)
    there = data.system().to_pandas()
    assert there["time"].tolist() == [1e9, 1e9 + 1, 1e9 + 2]
    assert there["system.cpu"].tolist() == [0, 1, 2]
    assert set(there.columns) == {"time", *MACHINE}
    for name, value in MACHINE.items():
        wanted = np.float32(value) if tracker == "tensorboard" else value
        if name != "system.cpu":
            assert there[name].tolist() == pytest.approx([wanted] * 3, rel=1e-15, abs=0), name
    assert data.metrics(["system/own", "system.mine"])["step"].to_pylist() == [0, 1, 2, 3]


def trainer_state(rows: list[dict[str, Any]]) -> str:
    """A source whose points have one time: what a Trainer saved, with rows that repeat the epoch of a step."""
    state = {"epoch": 1.0, "global_step": 4, "max_steps": 4, "log_history": rows}
    Path("trainer_state.json").write_text(json.dumps(state))
    return "hf:trainer_state.json"


ROWS = [
    {"step": 2, "epoch": 0.5, "loss": 2.5, "learning_rate": 1e-4},
    {"step": 2, "epoch": 0.5, "eval_loss": 2.4, "eval_runtime": 1.5},
    {"step": 4, "epoch": 1.0, "loss": 2.0},
    {"step": 4, "epoch": 1.0, "eval_loss": 1.9},
    {"step": 4, "epoch": 1.0, "train_runtime": 9.5, "train_loss": 2.25},
]


@pytest.mark.parametrize("numbers_first", [True, False])
def test_numbers_and_texts_of_one_name_are_copied_to_tensorboard_and_back(numbers_first: bool) -> None:
    """The second kind has a tag with a suffix there: it came back as another metric, and the copy was said to differ.
    A name that has such a suffix of its own keeps it."""
    run = trackers.init("json", project="digits", name="both", **OFFLINE)
    for step in range(3):
        for value in (float(step), f"n{step}") if numbers_first else (f"n{step}", float(step)):
            run.log({"a": value}, step=step)
        run.log({"picture": trackers.Image(np.eye(4, dtype=np.float32)) if step == 1 else step}, step=step)
        run.log({"a/text": f"own {step}", "a/scalar": step + 0.5}, step=step)
    run.finish()
    for source, destination in ((run.id, "tb:events"), ("tb:events/digits/both", "back")):
        report = one(source, destination)
        assert report.agrees, str(report)
    (found,) = load_all("back")
    assert found.metrics(["a"])["a"].to_pylist() == [0.0, 1.0, 2.0]
    assert {record.values["a"] for record in found.texts() if "a" in record.values} == {"n0", "n1", "n2"}


@pytest.mark.parametrize("tracker", DESTINATIONS)
def test_equal_points_of_a_step_are_no_difference(tracker: str, database: str) -> None:
    """Where a destination makes one point of a step's equal ones, the copy agrees, and says of how many."""
    report = one(trainer_state(ROWS), places(database)[tracker])
    assert report.agrees, str(report)
    assert report.stored.values == (10 if tracker in ("json", "mlflow") else 13)
    assert ("3 values are one with others there" in str(report)) == (tracker in ("json", "mlflow"))


OF_DESTINATIONS = (
    test_copy_agrees_and_is_idempotent,
    test_samples_of_the_machine_come_back,
    test_equal_points_of_a_step_are_no_difference,
)
"""What each destination must stand, of plug-ins, too."""


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.dictionaries(
                st.sampled_from(["epoch", "loss", "train_loss", "eval_loss", "lr"]), st.sampled_from([0.5, 1.0, 2.0]),
                min_size=1,
            ),
        ),
        max_size=8,
    )
)  # fmt: skip
def test_values_of_a_step_that_differ_are_all_there(rows: list[tuple[int, dict[str, float]]]) -> None:
    """However rows share steps, names and values, the JSON log merges nothing but equal ones."""
    shutil.rmtree("json", ignore_errors=True)
    shutil.rmtree(Path.home() / ".cache/trackers/copies", ignore_errors=True)
    report = one(trainer_state([{"step": step, **values} for step, values in rows]), "json:json")
    assert report.agrees, str(report)
    points = {(step, name, value) for step, values in rows for name, value in values.items()}
    assert report.stored.values == len(points)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_tally_merges_equal_points_however_they_are_cut(data: st.DataObject) -> None:
    """Equal points count once in whatever records, chunks and order they come; others are all counted."""
    point = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([0.0, 0.0004, 0.002]), st.floats())
    wanted = data.draw(st.lists(point, max_size=20))
    doubled = data.draw(st.permutations([*wanted, *wanted[:7]]))
    records = [Metrics(step=step, time=1e9 + time, values={name: value}) for name, step, time, value in doubled]
    joined = [Metrics(step=step, time=1e9 + time, values={name: value, f"{name}'": value})
              for name, step, time, value in wanted[:3]]  # fmt: skip
    with mock.patch("trackers.copying.verify.CHUNK", data.draw(st.integers(1, 5))):
        cut = tally([*records, *joined], once="moment")
    whole = tally(
        [*joined, *records], KEEPS["mlflow"] if not any(map(math.isinf, _values(records))) else None, "moment"
    )
    assert (cut.checksum, cut.merged) == (whole.checksum, whole.merged)
    single = {(name, step, round(time * 1000), repr(value + 0.0 if value == value else value))
              for name, step, time, value in doubled}  # fmt: skip
    assert cut.metrics.get("a", SeriesDigest()).count + cut.metrics.get("b", SeriesDigest()).count == len(single)


def _values(records: list[Metrics]) -> list[float]:
    return [float(value) for record in records for value in record.values.values()]


@pytest.mark.slow
def test_copies_of_copies(database: str) -> None:
    """From ours through TensorBoard, MLflow and trackio back to a journal: each step agrees with the one before."""
    report = one(logged(media=False).id, "tb:tb")
    for destination in (f"mlflow:{database}#chain", "trackio:chain", "last"):
        report = one(report.destination, destination)
        assert report.agrees, str(report)
    table = load(report.destination).metrics(["train_loss"])
    assert table["train_loss"].to_pylist() == [float(np.float32(1 / (step + 1))) for step in range(60)]


@pytest.mark.slow
def test_whole_project_is_copied_oldest_first() -> None:
    """Each run of a project becomes one of its own, in the order in which they began."""
    ids = [logged(3, name, media=False).id for name in ("one", "two", "three")]
    reports = list(copy("digits", "trackio:all"))
    assert [report.name for report in reports] == ["one", "two", "three"]
    assert all(report.agrees for report in reports)
    assert len({report.destination for report in reports}) == len(ids) == len(load_all("trackio:all"))


KILLED = """
import sys
from trackers.support import failpoints
failpoints.arm(sys.argv[3])
from trackers.copying import copy
print(*copy(sys.argv[1], sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("destination", "point"),
    [
        ("tb:tb", "file.rename.after=kill:2"),
        ("trackio:copies", "trackio.log.after=kill:2"),
        ("json:json", "json.commit.before=kill:3"),
        ("out", "file.rename.before=kill:3"),
    ],
)
def test_interrupted_copy_goes_on(destination: str, point: str) -> None:
    """Killed while it reads or while it writes, a copy that is made again ends whole, with nothing doubled."""
    run = logged(2500, media=False)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, run.id, destination, point], capture_output=True, check=False
    )
    assert killed.returncode == -9, killed.stderr.decode()
    report = one(run.id, destination)
    assert report.agrees, str(report)
    assert report.stored.values == 2500 * 3 + 358 * 2


@pytest.mark.parametrize("destination", ["tb:tb", "trackio:copies", "json:json", "out"])
def test_run_that_goes_on_is_copied_on(destination: str) -> None:
    """A running run is copied as far as it has got, and its rest by the next copy."""
    run = logged(20, finish=False, media=False)
    first = one(run.id, destination)
    assert first.agrees, str(first)
    assert load(first.destination).status in ("running", "")
    for step in range(20, 40):
        run.log({"train_loss": 1 / (step + 1)}, step=step)
    run.finish()
    second = one(run.id, destination)
    assert second.agrees, str(second)
    assert load(second.destination).series()["train_loss"].count == 40
    assert second.stored.status == "finished"


@pytest.mark.parametrize("destination", ["tb:tb", "trackio:copies", "json:json", "out"])
def test_changed_source_supersedes_its_copy(destination: str) -> None:
    """A source that isn't what it was is copied anew, in the place of the old copy."""
    rows = ["step,loss", *(f"{step},{step / 2}" for step in range(50))]
    Path("run.csv").write_text("\n".join(rows))
    os.utime("run.csv", (1.7e9, 1.7e9))
    first = one("csv:run.csv", destination)
    assert first.agrees, str(first)
    rows[20] = "19,1000.0"
    Path("run.csv").write_text("\n".join(rows[:41]))
    os.utime("run.csv", (1.7e9, 1.7e9 + 5))
    second = one("csv:run.csv", destination)
    assert second.agrees, str(second)
    assert second.destination == first.destination
    assert load(second.destination).metrics()["loss"].to_pylist()[18:21] == [9.0, 1000.0, 10.0]


def test_progress_counts_what_earlier_copies_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that has changed is written after its old copy's records: never more is done than there is."""
    monkeypatch.setattr("trackers.copying.transfer.SAY_S", -1.0)
    told: list[tuple[str, int, int]] = []
    for time_s, count in ((1.7e9, 50), (1.7e9 + 5, 40)):
        Path("run.csv").write_text("\n".join(["step,loss", *(f"{step},{step / count}" for step in range(count))]))
        os.utime("run.csv", (time_s, time_s))
        told.clear()
        list(copy("csv:run.csv", "json:json", say=lambda what, done, total: told.append((what, done, total))))
        writing = [(done, total) for what, done, total in told if what == "writing"]
        assert writing[-1][0] == writing[-1][1] > 0
        assert all(done <= total for done, total in writing)


@pytest.mark.slow
def test_report_tells_what_is_missing() -> None:
    """What somebody deleted from the destination is told, metric by metric, and the exit code isn't 0."""
    run = logged(media=False)
    report = one(run.id, "trackio:copies")
    with sqlite3.connect(Path(os.environ["TRACKIO_DIR"], "copies.db")) as connection:
        connection.execute("DELETE FROM metrics WHERE step = 10")
        connection.execute(
            """UPDATE metrics SET metrics = '{"step":11,"train_loss":9.5,"mean@1":11}' WHERE step = 11"""
        )
    report = one(run.id, "trackio:copies")
    assert not report.agrees
    assert "metric 'mean@1': 60 values, 59 there" in report.differences
    assert CliRunner().invoke(app, ["copy", run.id, "trackio:copies"]).exit_code == 1


@pytest.mark.slow
def test_trackio_cli_reads_the_copy() -> None:
    """Trackio's own command line finds the run and its values."""
    report = one(logged(media=False).id, "trackio:copies")
    command = [str(Path(sys.executable).with_name("trackio")), "list", "runs", "--project", "copies", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "baseline" in done.stdout
    query = "SELECT COUNT(*) AS n FROM metrics WHERE json_extract(metrics, '$.train_loss') IS NOT NULL"
    command = [command[0], "query", "project", "--project", "copies", "--sql", query, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert '"n": 60' in done.stdout or '"n":60' in done.stdout, done.stdout + done.stderr
    assert report.agrees


def cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def test_copy_says_what_its_source_says(tmp_path: Path) -> None:
    """What somebody else recorded unmasked is copied so, as docs/security.md says: a copy agrees with its source."""
    run = logged(media=False)
    assert cli("copy", run.id, "json:json").exit_code == 0
    (log,) = (path for path in Path("json").rglob("*.json") if ".trackers" not in path.parts)
    log.write_text(log.read_text().replace('"config": {', '"config": {"db_password": "sesame11",', 1))
    assert cli("copy", f"json:{log}", str(tmp_path / "copies")).exit_code == 0
    streams = [path.read_text() for path in (tmp_path / "copies").rglob("*.jsonl")]
    assert any('"db_password":"sesame11"' in text for text in streams)


def test_command_prints_reports() -> None:
    """Counts and checksums of both sides, for people and as a line of JSON for each run."""
    run = logged(media=False)
    shown = cli("copy", run.id, "json:json")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert "198 values of 5 metrics, checksum " in lines[1]
    assert lines[1].split("checksum ")[1][:16] == lines[2].split("checksum ")[1][:16]
    assert lines[-1].strip() == "agrees"
    found = json.loads(cli("copy", run.id, "json:json", "--json").stdout)
    assert found["agrees"] is True
    assert found["sides"]["source"]["checksum"] == found["sides"]["destination"]["checksum"]
    assert "trackers copy tb:runs/baseline" in " ".join(cli("copy", "--help").stdout.split())


@pytest.mark.parametrize("name", plugins.ours("copies"))
def test_destination_of_a_distribution_that_isnt_installed_says_what_to_install(name: str) -> None:
    """One line with its command."""
    with pytest.raises(MissingPackage) as error:
        list(copy("latest", f"{name}:there"))
    says = f"destination '{name}' is a distribution of its own: pip install 'trackers-relay[{name}]'"
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("source", "destination", "error", "says"),
    [
        ("latest", "sheet:x", UsageError, "nothing can be copied to 'sheet'"),
        ("latest", "mlfow:x", UsageError, "did you mean 'mlflow'"),
        ("latest", "", UsageError, "needs a destination"),
        ("latest", "tb:", UsageError, "tb: needs a directory"),
        ("latest", "file.txt", UsageError, "file.txt is a file"),
        ("latest", "json:file.txt", UsageError, "is a file"),
        ("nothing", "out", NotFound, "no run 'nothing'"),
        ("csv:nothing.csv", "out", NotFound, "nothing.csv"),
    ],
)
def test_bad_input_is_one_error(source: str, destination: str, error: type[Exception], says: str) -> None:
    """A destination or source that can't be meant is refused before anything is written."""
    logged(2, media=False)
    Path("file.txt").write_text("x")
    with pytest.raises(error, match=says):
        list(copy(source, destination))


def test_wandb_needs_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a login nothing is tried."""
    logged(2, media=False)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(errors.CredentialsMissing):
        list(copy("latest", "wandb:team/digits"))


def test_files_outside_of_the_source_stay_there(tmp_path: Path) -> None:
    """A source that names a file outside of its own directory doesn't get it copied."""
    (tmp_path / "secret.txt").write_text("secret")
    run = trackers.init("json", project="digits", **OFFLINE)
    run.log({"loss": 1.0}, step=0)
    run.finish()
    stream = next(Path(run.dir, "streams").glob("rank-0*.jsonl"))
    evil = Media(name="x", type="html", items=[MediaFile(format="html", file="../../../secret.txt")], time=1.0)
    lines = stream.read_bytes().splitlines(keepends=True)
    stream.write_bytes(b"".join([*lines[:-1], encode(evil), lines[-1]]))
    report = one(run.id, "out")
    inside = [path for path in Path(report.destination).rglob("*") if path.is_file()]
    assert all(path.read_bytes() != b"secret" for path in inside)


ELSEWHERE = ("../../../secret.txt", "{top}/secret.txt", "link", "media/link", "folder/secret.txt", "pipe", "media/..",
             "media/../../../../secret.txt")  # fmt: skip


@pytest.mark.parametrize("kind", ["journal", "json"])
def test_source_gets_no_file_of_others_copied(kind: str, tmp_path: Path) -> None:
    """A journal or a log that names a file elsewhere, a link to one, or a pipe, doesn't get it copied, nor hangs."""
    (tmp_path / "secret.txt").write_text("secret")
    named = [name.format(top=tmp_path) for name in ELSEWHERE]
    if kind == "journal":
        evil = [Media(name=name, type="html", items=[MediaFile(format="html", file=name)], time=1.0) for name in named]
        evil += [
            ArtifactRecord(name="a", type="t", files=[ArtifactFile(path="x", file=name) for name in named], time=1.0)
        ]
        source = write_run("one", [(1, 1.0, {"loss": 1.0})], more=evil)
        place = source
    else:
        place = tmp_path / "logs"
        place.mkdir()
        (place / "secret.txt").write_text("secret")  # beside the log, but not in its media
        files = [{"path": "x", "file": name} for name in [*named, "secret.txt"]]
        media = [
            {"iter": 1, "name": "m", "type": "html", "format": "html", "file": name} for name in [*named, "secret.txt"]
        ]
        rows = [{"iter": 1, "loss": 1.0, "timestamp": "2026-01-01T00:00:00"}]
        artifacts = [{"iter": 1, "name": "a", "type": "t", "files": files}]
        log = {"run_name": "one", "start_time": "2026-01-01T00:00:00", "config": {}, "training_iterations": rows,
               "eval_steps": [], "media": media, "artifacts": artifacts}  # fmt: skip
        source = place / "one.json"
        source.write_text(json.dumps(log))
    (place / "media").mkdir(exist_ok=True)
    for name in ("link", "media/link"):
        (place / name).symlink_to(tmp_path / "secret.txt")
    (place / "folder").symlink_to(tmp_path)
    os.mkfifo(place / "pipe")
    list(copy(f"json:{source}" if kind == "json" else str(source), "out"))
    copied = [path for path in Path("out").rglob("*") if path.is_file()]
    assert copied
    assert all(path.read_bytes() != b"secret" for path in copied)
    assert not [path for path in Path("out").rglob("*") if path.is_symlink()]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name == "secret.txt") == ["secret.txt"]


def test_staging_is_kept_apart_from_runs() -> None:
    """What is staged for a tracker lies in the cache, where neither ls nor sync finds it."""
    run = logged(3, media=False)
    one(run.id, "trackio:copies")
    assert [path.name for path in Path("runs/digits").iterdir()] == [run.id]
    assert len(list(staging.root().glob("*/*/*/run.json"))) == 1
    shutil.rmtree(staging.root())
    again = one(run.id, "trackio:copies")  # the rows' own ids tell trackio that it has them
    assert again.agrees, str(again)


def points(*rows: tuple[int | None, dict[str, Any]]) -> list[Record]:
    """Metrics, one row a second."""
    return [Metrics(step=step, time=float(time), values=values) for time, (step, values) in enumerate(rows)]


def test_tally_sees_every_change() -> None:
    """Checksums are alike for another order, and differ for a changed value, step, name, or NaN in its place."""
    rows = points((0, {"a": 1.0, "b": 2.0}), (1, {"a": float("nan")}), (2, {"a": -0.0}))
    same = points((2, {"a": 0}), (0, {"b": 2}), (1, {"a": float("nan")}), (0, {"a": 1}))
    want = tally(rows)
    assert list(differences(want, tally(same), KEEPS[""])) == []
    assert want.checksum == tally(same).checksum
    for changed in (
        points((0, {"a": 1.0, "b": 2.0}), (1, {"a": 0.0}), (2, {"a": 0.0})),
        points((0, {"a": 1.0, "b": 2.0}), (1, {"a": float("nan")}), (3, {"a": 0.0})),
        points((0, {"a": 2.0, "b": 1.0}), (1, {"a": float("nan")}), (2, {"a": 0.0})),
        points((0, {"a": 1.0, "c": 2.0}), (1, {"a": float("nan")}), (2, {"a": 0.0})),
        rows[:2],
    ):
        assert list(differences(want, tally(changed), KEEPS[""]))
        assert tally(changed).checksum != want.checksum


@pytest.mark.parametrize(
    ("tracker", "there"),
    [
        ("tensorboard", points((4, {"a": float(np.float32(0.1))}), (4, {"a": 1.0}))),
        ("mlflow", points((4, {"a": 0.1}), (0, {"a": 1.0}))),
        ("json", points((4, {"a": 0.1}), (4, {"a": 1.0}))),
        ("trackio", points((4, {"a": 0.1}), (None, {"a": 1.0}))),
    ],
)
def test_tally_knows_what_destinations_change(tracker: str, there: list[Record]) -> None:
    """Single precision and steps that were given to what has none are no difference, and nothing else is let pass."""
    want = tally(points((4, {"a": 0.1}), (None, {"a": 1.0})), KEEPS[tracker])
    assert list(differences(want, tally(there), KEEPS[tracker])) == []
    there[0].values["a"] += 1e-3  # type: ignore[attr-defined]
    assert list(differences(want, tally(there), KEEPS[tracker]))


def test_results_in_tensorboard_are_exact() -> None:
    """What is kept as text has all its digits, unlike its points; any other number differs."""
    want = tally([Summary(time=1.0, values={"best": 0.02}), Finish(time=1.0, status="finished")], KEEPS["tensorboard"])
    have = ContentDigest(results={"best": 0.02}, status="finished")
    assert list(differences(want, have, KEEPS["tensorboard"])) == []
    for other in (float(np.float32(0.02)), 0.02 + 2e-10):
        have.results["best"] = other
        assert len(list(differences(want, have, KEEPS["tensorboard"]))) == 1


def test_tally_compares_what_isn_t_a_number() -> None:
    """Missing texts, files, results, tags and another end are told."""
    base: list[Record] = [Finish(time=1.0, status="failed")]
    more: list[Record] = [
        ArtifactRecord(name="w", files=[ArtifactFile(path="a", file="x")], time=1.0),
        Media(name="p", type="image", items=[MediaFile(format="png")], time=1.0),
    ]
    want = tally([*more, *base])
    want.tags = ["x"]
    told = list(differences(want, tally([Finish(time=1.0, status="finished")]), KEEPS[""]))
    assert told == ["artifact file 'w/a': 1, 0 there", "image: 1, 0 there", "tags: ['x'], [] there",
                    "status: failed, finished there"]  # fmt: skip


def test_results_that_repeat_a_curves_last_value_are_compared() -> None:
    """W&B's summary holds a result and a curve's last value in one place: what it has there counts, nothing else."""
    want = tally([Summary(time=1.0, values={"epoch": 1.0, "best": 2.0}), Finish(time=1.0, status="finished")])
    have = ContentDigest(results={"best": 2.0}, repeated={"epoch": 1.0}, status="finished")
    assert list(differences(want, have, KEEPS["wandb"])) == []
    have.repeated["epoch"] = 0.5  # a row that was sent later has taken its place
    assert list(differences(want, have, KEEPS["wandb"])) == ["result 'epoch': 1.0, 0.5 there"]
    have.repeated.clear()  # the summary was left out
    assert list(differences(want, have, KEEPS["wandb"])) == ["result 'epoch' isn't there"]


def test_last_value_of_a_step_counts_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a destination with one value at a step, as Aim, the last one is compared, however the records are read."""
    monkeypatch.setattr("trackers.copying.verify.CHUNK", 7)

    def record(step: int, **values: float) -> Metrics:
        return Metrics(step=step, time=1e9, values=values)

    early = [record(step, a=1.0, b=2.0) for step in range(10)]
    late = [record(step, a=3.0) for step in range(5, 15)]
    wanted = tally([*early, *late], Capabilities(last=True))
    there = tally(
        [*(record(step, a=1.0, b=2.0) for step in range(5)), *(record(step, b=2.0) for step in range(5, 10)), *late]
    )
    assert list(differences(wanted, there, Capabilities(last=True))) == []
    assert wanted.metrics["a"].count == 15
    assert list(differences(tally([*late, *early], Capabilities(last=True)), there, Capabilities(last=True))) == [
        "metric 'a': the checksums of 15 steps and values differ"
    ]


def test_folder_of_a_copy_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    """In a directory of copies that others can write to, nothing is made behind a link in the place of its media."""
    pixels = MediaFile(format="npy", file="media/ab/cd/abc.npy")
    source = write_run("one", [(1, 1.0, {"loss": 1.0})], more=[Media(name="m", type="image", items=[pixels], time=1.0)])
    (source / "media/ab/cd").mkdir(parents=True)
    (source / "media/ab/cd/abc.npy").write_bytes(b"content")
    (report,) = copy(str(source), "out")
    shutil.rmtree(Path(report.destination))
    (tmp_path / "victim").mkdir()
    Path(report.destination, "media").mkdir(parents=True)
    Path(report.destination, "media/ab").symlink_to(tmp_path / "victim")
    with contextlib.suppress(OSError, TrackersError):
        list(copy(str(source), "out"))
    assert list((tmp_path / "victim").iterdir()) == []
