"""The trackio tracker against trackio's local store, read back with plain SQL and trackio's own commands."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import sqlite3
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers import PRINTED, T0, Driver, printed, run_info, stream, training
from trackers.backends.trackio.store import TrackioRow, isos
from trackers.backends.trackio.tracker import TrackioTracker
from trackers.errors import ConfigError, Fatal, Rejected, Unavailable
from trackers.readers import registry
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Span,
    Start,
    Summary,
    Text,
)
from trackers.support import client_versions
from trackers.tracker import RunInfo, State, Status


@pytest.fixture
def info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunInfo:
    """A run, and trackio's directories, which it computes once at import, in this test's own."""
    import trackio.utils

    directory = Path(os.environ["TRACKIO_DIR"])
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "trackio"]:
        for name, path in (("TRACKIO_DIR", ""), ("MEDIA_DIR", "media"), ("ARTIFACTS_DIR", "artifacts")):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, directory / path)
    assert directory / "media" == trackio.utils.MEDIA_DIR
    return run_info(tmp_path / "run", group="ratio", user="ada", notes="try")


def query(sql: str, *values: Any) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(Path(os.environ["TRACKIO_DIR"], "digits.db"))
    try:
        return database.execute(sql, values).fetchall()
    finally:
        database.close()


def test_space_is_said_to_be_no_destination(
    info: RunInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A variable that trackio's own client obeys isn't passed over in silence: the command that copies it is named."""
    monkeypatch.setenv("TRACKIO_SPACE_ID", "ada/leaves")
    run = Driver(TrackioTracker, info)
    run.deliver(training(3))
    run.deliver(training(3))
    said = [record.getMessage() for record in caplog.records if "Space" in record.getMessage()]
    assert len(said) == 1
    assert said[0].endswith("`trackio sync --project digits --space-id ada/leaves`")
    assert len(query("SELECT * FROM metrics")) == 3


@pytest.mark.parametrize("kind", ["", "-journal", "-wal", "-shm", "lock", "pipe"])
def test_planted_files_beside_a_database_lead_nowhere(info: RunInfo, tmp_path: Path, kind: str) -> None:
    """Who shares trackio's directory plants a link or a pipe in the place of a database, a log or a lock of it: a
    delivery writes to nothing that it leads to, and doesn't wait for a pipe."""
    precious, directory = tmp_path / "precious", Path(os.environ["TRACKIO_DIR"])
    precious.write_text("" if not kind else "precious")
    directory.mkdir(parents=True, exist_ok=True)
    beside = directory / ("digits.lock" if kind in ("lock", "pipe") else f"digits.db{kind}")
    if kind == "pipe":
        os.mkfifo(beside)
    else:
        beside.symlink_to(precious)
    with pytest.raises(Fatal, match="remove it"):
        deliver(info, Metrics(step=1, time=T0, values={"loss": 1.0}))
    assert precious.read_text() == ("" if not kind else "precious")


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("place", ["media", "artifacts"])
def test_planted_folders_of_files_lead_nowhere(info: RunInfo, tmp_path: Path, place: str, kind: str) -> None:
    """Nor is a picture or an artifact's file written through a link among its folders, nor is a pipe waited for."""
    victim, directory = tmp_path / "victim", Path(os.environ["TRACKIO_DIR"])
    victim.mkdir()
    if kind == "pipe":
        directory.mkdir(parents=True, exist_ok=True)
        os.mkfifo(directory / place)
    else:
        (directory / place).mkdir(parents=True)
        (directory / place / "digits").symlink_to(victim)
    folder = Path(info.directory, "media")
    folder.mkdir(parents=True)
    (folder / "a.html").write_text("<p>")
    record = Media(step=1, time=T0, name="page", type="html", items=[MediaFile(format="html", file="media/a.html")])
    files = [ArtifactFile(path="a", file="media/a.html", size=3)]
    with pytest.raises(Fatal, match="remove it"):
        deliver(info, record if place == "media" else ArtifactRecord(time=T0, name="a", type="model", files=files))
    assert not list(victim.iterdir())


def rows() -> list[tuple[int, float, dict[str, Any]]]:
    """Step, Unix time and values of each row, as they were stored one after the other."""
    found = query("SELECT step, timestamp, metrics FROM metrics ORDER BY id")
    return [(step, datetime.fromisoformat(at).timestamp(), json.loads(values)) for step, at, values in found]


def config() -> dict[str, Any]:
    found = query("SELECT config FROM configs")
    assert len(found) == 1
    values: dict[str, Any] = json.loads(found[0][0])
    return values


def deliver(info: RunInfo, *records: Any, status: Status | None = None) -> Driver:
    driver = Driver(TrackioTracker, info)
    driver.deliver(stream(records), status=status)
    return driver


def command(*arguments: str) -> Any:
    """What trackio's own command line answers, as JSON."""
    script = Path(sys.executable).with_name("trackio")
    done = subprocess.run([script, *arguments, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_run_arrives_whole(info: RunInfo) -> None:
    """1,000 steps of ten values arrive with their steps, times and values; config, group, tags and notes too."""
    Driver(TrackioTracker, info).deliver(training(1000), batch=333)
    expected = [
        (step, pytest.approx(T0 + step / 10, abs=1e-5), {f"metric_{k}": step + k / 10 for k in range(10)})
        for step in range(1000)
    ]
    assert rows() == expected
    assert query("SELECT DISTINCT run_id, run_name FROM metrics") == [("abcd1234", "baseline")]
    stored = config()
    assert (stored["lr"], stored["model"]) == (1e-3, {"depth": 4})
    assert (stored["_Group"], stored["_Username"]) == ("ratio", "ada")
    assert (stored["trackers/tags"], stored["trackers/notes"]) == (["first"], "try")
    assert stored["_Created"].startswith("2025-11-21T01:20:00")


@pytest.mark.slow
def test_trackios_own_commands_see_the_run(info: RunInfo) -> None:
    """`trackio list` and `trackio get` show what was delivered, results among the configuration."""
    Driver(TrackioTracker, info).deliver([*training(5), *stream([Summary(time=T0, values={"best": 2.5})], first_seq=8)])
    assert command("list", "runs", "--project", "digits")["runs"] == ["baseline"]
    run = command("get", "run", "--project", "digits", "--run", "baseline")
    assert (run["num_logs"], run["last_step"], run["config"]["final/best"]) == (5, 4, 2.5)
    metric = command("get", "metric", "--project", "digits", "--run", "baseline", "--metric", "metric_3")
    assert [(point["step"], point["value"]) for point in metric["values"]] == [(k, k + 0.3) for k in range(5)]


def test_store_that_has_forgotten_the_run_gets_all_of_it(info: RunInfo) -> None:
    """A run's directory that goes on elsewhere, or a database that somebody deleted: nothing of the beginning lacks."""
    records = training(50, finish=False)
    driver = Driver(TrackioTracker, info)
    driver.deliver(records[:30])
    for path in Path(os.environ["TRACKIO_DIR"]).glob("digits.db*"):
        path.unlink()
    driver.deliver(records)
    assert [step for step, _, _ in rows()] == list(range(50))
    assert config()["lr"] == 1e-3
    driver.deliver(records)
    assert len(rows()) == 50


def test_redelivery_changes_nothing(info: RunInfo) -> None:
    """A kill between write and commit, and a lost cursor, double neither rows nor alerts nor versions nor files."""
    info.path("a.bin").write_bytes(b"a")
    info.path("a.png").write_bytes(b"png")
    records = [
        *training(50, finish=False),
        *stream(
            [
                Metrics(time=T0, values={"gpu": 1}),
                Alert(time=T0, title="slow"),
                ArtifactRecord(step=1, time=T0, name="m", files=[ArtifactFile(path="a.bin", file="a.bin")]),
                Media(step=1, time=T0, name="i", type="image", items=[MediaFile(format="png", file="a.png")]),
            ],
            first_seq=53,
        ),
    ]
    driver = Driver(TrackioTracker, info)
    driver.open()
    driver.write(records[:20])
    driver.write(records, batch=25, commit=False)
    driver.deliver(records)
    Driver(TrackioTracker, info).deliver(records)
    assert [step for step, _, _ in rows()] == [*range(50), 1]
    for table in ("system_metrics", "alerts", "artifact_versions"):
        assert query(f"SELECT COUNT(*) FROM {table}") == [(1,)]
    media = Path(os.environ["TRACKIO_DIR"], "media")
    assert len([path for path in media.rglob("*") if path.is_file()]) == 1


def test_resume_goes_on_in_the_same_run(info: RunInfo) -> None:
    """Another tracker object goes on with the run that is there, whose status is true at every moment."""
    records = training(20)
    driver = Driver(TrackioTracker, info)
    driver.deliver(records[:10], status=Status("preempted", time=T0))
    assert config()["trackers/status"] == "preempted"
    driver.open()
    driver.write(records[:15])
    assert config()["trackers/status"] == "running"
    driver.write(records)
    driver.close(Status("crashed", exit_code=-9, time=T0))
    assert (config()["trackers/status"], config()["trackers/exit_code"]) == ("crashed", -9)
    assert [step for step, _, _ in rows()] == list(range(20))


def test_runs_of_one_name_stay_apart(info: RunInfo, tmp_path: Path) -> None:
    """Two runs that share a name are two runs, whatever their order."""
    other = run_info(tmp_path / "other", id="other")
    for who in (info, other, info):
        Driver(TrackioTracker, who).deliver(training(3))
    assert query("SELECT run_id, COUNT(*) FROM metrics GROUP BY run_id ORDER BY run_id") == [
        ("abcd1234", 3),
        ("other", 3),
    ]


def test_steps_and_values_keep_as_trackio_can(info: RunInfo, caplog: pytest.LogCaptureFixture) -> None:
    """Steps repeat and go back, NaN and infinities keep their names, integers above 64 bits are doubles, as in W&B:
    they were left out."""
    with caplog.at_level(logging.WARNING, "trackers.trackio"):
        deliver(
            info,
            Metrics(step=5, time=T0, values={"x": float("nan"), "up": math.inf, "down": -math.inf}),
            Metrics(step=5, time=T0, values={"x": 2**64 - 1, "y": 2**64, "ok": True}),
            Metrics(step=2, time=T0, values={"x": 0.1}),
        )
    assert [(step, values) for step, _, values in rows()] == [
        (5, {"x": "NaN", "up": "Infinity", "down": "-Infinity"}),
        (5, {"x": 2**64 - 1, "y": 2.0**64, "ok": True}),
        (2, {"x": 0.1}),
    ]
    assert caplog.text == ""


def test_results_beyond_64_bits_are_doubles(info: RunInfo) -> None:
    """Also those that are logged with others; they were left out, or text."""
    deliver(
        info,
        Metrics(step=2, time=T0, values={"x": 0.1, "final/n": 2**64}),
        Summary(time=T0, values={"final/m": 2**70, "k": 2**63}),
    )
    assert (config()["final/n"], config()["final/m"], config()["final/k"]) == (2.0**64, 2.0**70, 2**63)


def test_odd_names_are_kept(info: RunInfo) -> None:
    """Every name is kept, but those that trackio reserves get its prefix; texts lie beside numbers."""
    names = ["mean@1", "a//b", "", "é\n", "step", "time", "__x", "_y"]
    deliver(
        info,
        Metrics(step=1, time=T0, values={name: 1 for name in names}),  # noqa: C420
        Text(step=2, time=T0, values={"metrics": "hello"}),
    )
    assert rows()[0][2] == dict.fromkeys(["mean@1", "a//b", "", "é\n", "__step", "__time", "____x", "_y"], 1)
    assert rows()[1][2] == {"__metrics": {"_type": "trackio.markdown", "_value": "hello"}}


def test_samples_without_step_are_system_metrics(info: RunInfo) -> None:
    """A hardware sample goes where trackio keeps those, with its time, and takes no step of the run."""
    deliver(info, Metrics(time=T0 + 5, values={"gpu/0/power_w": 300.0}))
    [(at, values)] = query("SELECT timestamp, metrics FROM system_metrics")
    assert datetime.fromisoformat(at).timestamp() == pytest.approx(T0 + 5, abs=1e-5)
    assert json.loads(values) == {"gpu/0/power_w": 300.0}


def test_results_and_late_changes_are_in_the_configuration(info: RunInfo) -> None:
    """Results are never rows; the last value counts, and what changes later replaces what was there."""
    deliver(
        info,
        Metrics(step=1, time=T0, values={"loss": 1.0}),
        Config(time=T0, values={"a": {"b": 1, "c": 2}, "_hidden": 1, "n": float("nan"), "big": 2**70}),
        Config(time=T0, values={"a": {"b": 3}}),
        Metrics(step=2, time=T0, values={"final/x": 1}),
        Summary(time=T0, values={"best": 3.0, "final/best": float("inf")}),
        Environment(time=T0, values={"gpu": "none"}),
        Info(time=T0, tags=["a", "b"], notes="new", group="g2"),
    )
    stored = config()
    assert stored["a"] == {"b": 3, "c": 2}
    assert (stored["__hidden"], stored["n"], stored["big"]) == (1, "NaN", str(2**70))
    assert (stored["final/best"], stored["final/x"]) == ("Infinity", 1)
    assert not {"_Environment", "_SystemNames"} & stored.keys()
    assert (stored["trackers/tags"], stored["trackers/notes"], stored["_Group"]) == (["a", "b"], "new", "g2")
    assert [values.keys() for _, _, values in rows()] == [{"loss", "trackers/results"}]


def test_name_changed_before_the_first_row_is_the_runs_name(info: RunInfo) -> None:
    """A name that a script gives its run right after the start is the one that trackio shows."""
    deliver(info, Info(time=T0, name="renamed"), Metrics(step=1, time=T0, values={"x": 1}))
    assert query("SELECT DISTINCT run_name FROM metrics") == [("renamed",)]


def test_later_name_is_kept_without_doubling_rows(info: RunInfo) -> None:
    """A run with rows keeps the name it has, for trackio's renaming drops the ids by which it knows rows."""
    records = [*training(3, finish=False), *stream([Info(time=T0, name="renamed")], first_seq=6)]
    driver = Driver(TrackioTracker, info)
    driver.deliver(records, batch=2)
    driver.cursor = 0
    driver.deliver(records, batch=2)
    assert query("SELECT run_name, COUNT(*) FROM metrics GROUP BY run_name") == [("baseline", 3)]
    assert config()["trackers/name"] == "renamed"


@pytest.mark.slow
def test_run_without_rows_is_there(info: RunInfo) -> None:
    """A run that logged nothing is listed with its configuration and status."""
    deliver(info, Config(time=T0, values={"lr": 1}), status=Status("failed", exit_code=1, time=T0 + 3))
    assert (config()["lr"], config()["trackers/status"]) == (1, "failed")
    assert command("list", "runs", "--project", "digits")["runs"] == ["baseline"]


def test_pictures_in_mappings_of_a_cell_are_files(info: RunInfo) -> None:
    """And beside other values in lists."""
    import numpy

    numpy.save(info.path("a.npy"), numpy.zeros((4, 4, 3)))
    cell = {"_type": "image", "format": "npy", "file": "a.npy"}
    table = {"columns": ["x"], "rows": [[{"before": cell, "n": [cell, 2**70]}]]}
    deliver(info, Media(step=3, time=T0, name="t", type="table", items=[MediaFile(format="json", data=table)]))
    ((_, _, row),) = rows()
    found = row["t"]["_value"][0]["x"]
    media = Path(os.environ["TRACKIO_DIR"], "media")
    assert found["n"][1] == str(2**70)
    assert all((media / one["file_path"]).is_file() for one in (found["before"], found["n"][0]))
    assert found["before"]["_type"] == "trackio.image"


def test_media_are_trackios_own_types(info: RunInfo) -> None:
    """Pictures, sounds, videos, pages, tables and histograms are what trackio's own classes would have stored."""
    import numpy
    from PIL import Image

    numpy.save(info.path("a.npy"), numpy.full((4, 6, 3), 0.5))
    numpy.save(info.path("s.npy"), numpy.zeros(100))
    numpy.save(info.path("v.npy"), numpy.zeros((2, 3, 8, 8), "uint8"))
    cell = {"_type": "image", "format": "npy", "file": "a.npy"}
    table = {"columns": ["x", "x", "i"], "rows": [[1, float("nan"), cell], ["two", 2**70, [cell, cell]]]}
    array = MediaFile(format="npy", file="a.npy", caption="grey")
    items: list[tuple[str, str, list[MediaFile]]] = [
        ("i", "image", [array]),
        ("many", "image", [array, array]),
        ("s", "audio", [MediaFile(format="npy", file="s.npy", sample_rate=100)]),
        ("v", "video", [MediaFile(format="npy", file="v.npy")]),
        ("p", "html", [MediaFile(format="html", data="<b>hi</b>")]),
        ("t", "table", [MediaFile(format="json", data=table)]),
        ("h", "histogram", [MediaFile(format="json", data={"counts": [1, 2], "edges": [0, 1, 2]})]),
    ]
    deliver(info, *(Media(step=3, time=T0, name=name, type=kind, items=found) for name, kind, found in items))
    values: dict[str, Any] = {}
    for step, _, row in rows():
        assert step == 3
        values.update(row)
    media = Path(os.environ["TRACKIO_DIR"], "media")
    assert {name: value["_type"] for name, value in values.items()} == {
        "i": "trackio.image",
        "many/0": "trackio.image",
        "many/1": "trackio.image",
        "s": "trackio.audio",
        "v": "trackio.video",
        "p": "trackio.html",
        "t": "trackio.table",
        "h": "trackio.histogram",
    }
    assert values["i"]["caption"] == "grey"
    assert values["i"]["file_path"].startswith("digits/baseline/3/")
    with Image.open(media / values["i"]["file_path"]) as picture:
        assert (picture.size, picture.getpixel((0, 0))) == ((6, 4), (128, 128, 128))
    assert (media / values["s"]["file_path"]).read_bytes().startswith(b"RIFF")
    assert (media / values["v"]["file_path"]).read_bytes().startswith(b"GIF8")
    assert (media / values["p"]["file_path"]).read_text() == "<b>hi</b>"
    first, second = values["t"]["_value"]
    assert (first["x"], first["x (2)"], second["x (2)"]) == (1, "NaN", str(2**70))
    assert (media / first["i"]["file_path"]).is_file()
    assert [image["_type"] for image in second["i"]] == ["trackio.image"] * 2
    assert values["h"] == {"_type": "trackio.histogram", "bins": [0.0, 1.0, 2.0], "values": [1.0, 2.0]}


def test_media_stay_in_the_projects_folder(info: RunInfo, tmp_path: Path) -> None:
    """A run's name that is a path leads nowhere else."""
    info.name = "../../escape"
    info.path("a.png").write_bytes(b"png")
    deliver(info, Media(step=1, time=T0, name="i", type="image", items=[MediaFile(format="png", file="a.png")]))
    assert rows()[0][2]["i"]["file_path"].startswith("digits/abcd1234/1/")


def test_artifacts_are_versions(info: RunInfo) -> None:
    """Each content of an artifact is a version that trackio gives back, with aliases, references and metadata."""
    import trackio.artifact
    from trackio.sqlite_storage import SQLiteStorage

    assert trackio.artifact.Artifact
    info.path("one").write_bytes(b"one")
    info.path("two").write_bytes(b"two")
    one = [ArtifactFile(path="sub/m.pt", file="one"), ArtifactFile(path="far", uri="s3://b/k", size=7)]
    deliver(
        info,
        ArtifactRecord(
            step=1, time=T0, name="my model", type="model", files=one, aliases=["v7"], metadata={"a": 2**70}
        ),
        ArtifactRecord(step=2, time=T0, name="my model", type="model", files=[ArtifactFile(path="m.pt", file="two")]),
    )
    first = SQLiteStorage.get_artifact_manifest("digits", "my_model", "v0")
    last = SQLiteStorage.get_artifact_manifest("digits", "my_model", "latest")
    assert first is not None
    assert last is not None
    assert (first["aliases"], first["metadata"]) == (["v7_"], {"a": str(2**70)})
    assert {entry["path"]: entry.get("ref") for entry in first["manifest"]} == {"sub/m.pt": None, "far": "s3://b/k"}
    assert [entry["path"] for entry in last["manifest"]] == ["m.pt"]
    blobs = Path(os.environ["TRACKIO_DIR"], "artifacts")
    assert sorted(path.read_bytes() for path in blobs.rglob("*") if path.is_file()) == [b"one", b"two"]


def test_alerts_keep_level_and_time(info: RunInfo) -> None:
    """An alert is trackio's own, with its level, step and time."""
    deliver(
        info, Alert(step=4, time=T0, title="slow", text="very", level="ERROR"), Alert(time=T0, title="?", level="odd")
    )
    found = query("SELECT title, text, level, step FROM alerts ORDER BY id")
    assert found == [("slow", "very", "error", 4), ("?", "", "warn", None)]


def test_locked_database_is_tried_again(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process holds the database, delivery is Unavailable; the same batch arrives afterwards."""
    from trackio.sqlite_storage import SQLiteStorage

    driver = Driver(TrackioTracker, info)
    driver.open()
    driver.write(training(5)[:5])
    connect = sqlite3.connect
    holder = connect(Path(os.environ["TRACKIO_DIR"], "digits.db"))
    holder.execute("BEGIN EXCLUSIVE")
    with monkeypatch.context() as patch:  # trackio would wait 30 s
        patch.setattr(sqlite3, "connect", lambda path, timeout: connect(path, timeout=0.1))
        with pytest.raises(Unavailable, match="locked"):
            driver.write(training(5))
    holder.rollback()
    holder.close()
    driver.write(training(5))
    assert [step for step, _, _ in rows()] == list(range(5))
    assert SQLiteStorage.get_log_count("digits", "baseline") == 5


def test_fragments_are_imported_by_trackio(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """In trackio's mode for network filesystems the run arrives as fragments, once after its own import."""
    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
    driver = Driver(TrackioTracker, info)
    driver.deliver(training(20))
    driver.cursor = 0
    driver.deliver(training(20))
    assert not Path(os.environ["TRACKIO_DIR"], "digits.db").exists()
    from trackio import fragments

    for file in sorted(fragments.local_inbox_dir().rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        fragments.import_records(fragments.parse_fragment_bytes(file.read_bytes()))
    assert [(step, values["metric_1"]) for step, _, values in rows()] == [(k, k + 0.1) for k in range(20)]
    assert config()["trackers/status"] == "finished"
    assert rows()[7][1] == pytest.approx(T0 + 0.7, abs=1e-5)


def test_what_trackio_cannot_hold_is_rejected(info: RunInfo) -> None:
    """A step beyond 64 bits and a picture without its file reject their record alone."""
    with pytest.raises(Rejected, match="64 bits"):
        deliver(info, Metrics(step=2**63, time=T0, values={"x": 1}))
    with pytest.raises(Rejected, match="is gone"):
        deliver(info, Media(step=1, time=T0, name="i", type="image", items=[MediaFile(format="png", file="gone.png")]))


@pytest.mark.parametrize("url", ["localhost:7860", "ftp://host", "http://"])
def test_unusable_address_is_refused_at_init(url: str) -> None:
    """What isn't an address of a server is an error before the first step."""
    with pytest.raises(ConfigError, match="TRACKIO_SERVER_URL"):
        TrackioTracker.check({"TRACKIO_SERVER_URL": url})


def test_shown_command_finds_the_run(info: RunInfo) -> None:
    """The command that users are shown names the project, the directory and a port of their own."""
    info.options = {"TRACKIO_PORT": 7999}
    driver = Driver(TrackioTracker, info)
    driver.open()
    where = os.environ["TRACKIO_DIR"]
    assert driver.state["url"] == f"TRACKIO_DIR={where} GRADIO_SERVER_PORT=7999 trackio show --project digits"


@pytest.mark.slow
@given(st.lists(st.floats(-1e9, 4e9), min_size=1, max_size=20))
@example([1700000000.9999998, 1700000000.9999999, 1700000001.0000001, 1.5, 1.0000005, -0.25])
def test_times_of_a_batch_are_datetimes(times: list[float]) -> None:
    """The texts made for a batch are to the character what datetime makes of each time."""
    assert isos([TrackioRow("", 0, time, {}) for time in times]) == [
        datetime.fromtimestamp(time, timezone.utc).isoformat() for time in times
    ]


def test_what_training_printed_is_a_file_of_the_project(info: RunInfo) -> None:
    """In a folder of the run among trackio's files, each line once, though a delivery was killed between."""
    records = printed()
    killed = Driver(TrackioTracker, info)
    killed.open()
    killed.write(records[:4])
    killed.write(records[:6], commit=False)
    again = Driver(TrackioTracker, info, killed.state, killed.cursor)
    again.deliver(records)
    path = Path(os.environ["TRACKIO_DIR"], f"media/digits/files/baseline-{info.id}/console.log")
    assert path.read_text() == PRINTED


def _logged_at_steps() -> list[Record]:
    """Steps at which a script called ``log`` several times, with all kinds of values; one name twice at step 3."""
    table = MediaFile(format="json", data={"columns": ["a"], "rows": [[1]]})
    records: list[Record] = []
    for step in range(6):
        records += [
            Metrics(step=step, time=T0 + step, values={"train_loss": 1.0 - step / 10}),
            Metrics(step=step, time=T0 + step + 0.1, values={"lr": 0.5, "epoch": step}),
            Metrics(time=T0 + step + 0.2, values={"system.cpu": 10.0 + step}),
            Text(step=step, time=T0 + step + 0.2, values={"answer": f"# {step}"}),
            Media(step=step, time=T0 + step + 0.3, name="mistakes", type="table", items=[table]),
        ]
        if step == 3:
            records.append(Metrics(step=step, time=T0 + step + 0.4, values={"train_loss": 9.0, "late": 1.0}))
    return stream(records)


def test_what_is_logged_at_one_step_is_one_row(info: RunInfo) -> None:
    """trackio says as many steps as there were; a name twice at a step makes a second row."""
    from trackio.sqlite_storage import SQLiteStorage

    Driver(TrackioTracker, info).deliver(_logged_at_steps())
    assert [step for step, _, _ in rows()] == [0, 1, 2, 3, 3, 4, 5]
    assert rows()[0][2].keys() == {"train_loss", "lr", "epoch", "answer", "mistakes", "trackers/times"}
    assert rows()[0][2]["trackers/times"] == {"lr": 0.1, "epoch": 0.1, "answer": 0.2, "mistakes": 0.3}
    assert rows()[4][2] == {"train_loss": 9.0, "late": 1.0}
    (run,) = SQLiteStorage.get_run_records("digits")
    logs = SQLiteStorage.get_logs("digits", run["name"], run_id=run["id"])
    assert len(logs) == 7
    assert max(log["step"] for log in logs) == 5


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_same_however_batches_are_cut(info: RunInfo, seed: int) -> None:
    """Batches of any size, kills before a commit at any place, and a lost cursor give the same rows."""
    draw = random.Random(seed)
    records = _logged_at_steps()
    driver = Driver(TrackioTracker, info)
    driver.open()
    while driver.cursor < len(records):
        if draw.random() < 0.4:  # killed after it was written
            upto = draw.randint(driver.cursor + 1, len(records))
            driver.write(records[:upto], batch=draw.randint(3, 20), commit=False)
            driver.open()
        upto = draw.randint(driver.cursor + 1, len(records))
        driver.write(records[:upto], batch=draw.randint(3, 20))
    if seed % 2:
        driver.state, driver.cursor = {}, 0
        driver.open()
        driver.write(records)
    driver.close(None)
    found = rows()
    assert sorted(step for step, _, _ in found) == [0, 1, 2, 3, 3, 4, 5]
    for step, time, values in found:
        if "late" in values:
            assert values == {"train_loss": 9.0, "late": 1.0}
            continue
        assert (time, values["train_loss"], values["epoch"]) == (T0 + step, 1.0 - step / 10, step)
        assert values["answer"]["_value"] == f"# {step}"
        assert values["mistakes"]["_value"] == [{"a": 1}]
    assert query("SELECT count(*) FROM system_metrics") == [(6,)]


def test_equal_values_of_one_step_are_kept_wherever_a_delivery_began_again(info: RunInfo) -> None:
    """What a second row of the step has in common with the first, logged 3 µs before, isn't taken for sent."""
    records = stream(
        [Metrics(step=7, time=T0 + n * 3e-6, values={"train_loss": n / 8, "epoch": 2, "lr": 0.5}) for n in range(4)]
    )
    for begins in range(1, len(records)):
        for again in range(begins + 1):
            driver = Driver(TrackioTracker, info)
            driver.open()
            driver.write(records[: begins - again], batch=1)
            driver.write(records[:begins], batch=1, commit=False)
            driver.open()
            driver.write(records)
            driver.close(None)
            assert [values for *_, values in rows()] == [record.values for record in records], (begins, again)
            with sqlite3.connect(Path(os.environ["TRACKIO_DIR"], "digits.db")) as database:
                database.execute("DELETE FROM metrics")


@pytest.mark.parametrize("batch", [4, 1000])
@pytest.mark.parametrize("verifies", [False, True], ids=["delivered", "verified"])
def test_line_that_cannot_be_read_for_a_while_doubles_nothing(info: RunInfo, batch: int, verifies: bool) -> None:
    """Whichever line of a delivered run is unreadable while all is sent again without a state, the rows stay as they
    were."""
    records = _logged_at_steps()
    driver = Driver(TrackioTracker, info)
    driver.deliver(records)
    whole = rows()
    for left_out in range(len(records)):
        for known in ([record for at, record in enumerate(records) if at != left_out], records):
            driver.state, driver.cursor = {}, 0
            driver.open()
            assert isinstance(driver.tracker, TrackioTracker)
            if verifies:
                comparison = driver.tracker.verify().comparison
                driver.state = dict(driver._live)
                driver.open()
                driver.tracker.comparison = comparison
            driver.write(known, batch=batch)
            driver.close(None)
            if known is records or not verifies:
                assert sorted(rows(), key=str) == sorted(whole, key=str), left_out


def test_run_that_an_earlier_release_began_goes_on(info: RunInfo) -> None:
    """Its rows of one record each stay; where they are delivered anew, nothing is doubled."""
    records = _logged_at_steps()
    old = Driver(TrackioTracker, info)
    old.open()
    assert isinstance(old.tracker, TrackioTracker)
    old.tracker._store.extends = False
    old.write(records[:12])
    old.close(Status("running"))
    before = len(rows())
    assert before > 6
    driver = Driver(TrackioTracker, info, old.state, old.cursor)
    driver.deliver(records)
    assert len(rows()) < before + 7
    driver.state, driver.cursor = {}, 0
    driver.deliver(records)
    values = [(step, name) for step, _, row in rows() for name in row if not name.startswith("trackers/")]
    assert len(values) == len(set(values)) + 1  # train_loss at step 3


def test_verify_repairs_rows_of_several_records(info: RunInfo) -> None:
    """A value that somebody changed, and a row that is gone, are counted and put back, wherever batches end."""
    records = [*_logged_at_steps(), *stream([Summary(time=T0, values={"best": 1.0})], first_seq=32)]
    driver = Driver(TrackioTracker, info)
    driver.deliver(records)
    whole = [row[2] for row in rows()]
    database = sqlite3.connect(Path(os.environ["TRACKIO_DIR"], "digits.db"))
    with database:
        database.execute("""UPDATE metrics SET metrics = replace(metrics, '"epoch":2', '"epoch":7') WHERE step = 2""")
        database.execute("DELETE FROM metrics WHERE step = 4")
    database.close()
    for batch in (3, 7, 100):
        driver.state["again"] = True
        driver.open()
        assert driver.tracker is not None
        verified = driver.tracker.verify()
        driver.state, driver.cursor = dict(driver._live), 0
        driver.open()
        comparison = driver.tracker.comparison = verified.comparison
        driver.write(records, batch=batch)
        driver.close(None)
        assert comparison is not None
        counts = comparison.changed, comparison.missing, comparison.restored
        assert counts == ((1, 5, 6) if batch == 3 else (0, 0, 0))
        assert sorted(map(str, (row[2] for row in rows()))) == sorted(map(str, whole))


def test_spans_are_traces(info: RunInfo) -> None:
    """A tree of spans is a trace, with the messages of its model's call; it makes no step, and comes back as it was."""
    from trackio.sqlite_storage import SQLiteStorage

    root, call = "a" * 16, "b" * 16
    spans = [
        Span(step=1, time=T0 + 2, name="chat", trace="c" * 32, span=call, parent=root, began=T0 + 1, type="llm",
             inputs=[{"role": "user", "content": "2+2"}], outputs="4",
             attributes={"gen_ai.request.model": "small-1", "gen_ai.usage.input_tokens": 40}),
        Metrics(step=2, time=T0 + 2, values={"loss": 1.0}),
        Span(step=2, time=T0 + 3, name="evaluate", trace="c" * 32, span=root, began=T0, type="chain", status="error",
             error="ValueError: no", inputs={"q": "2+2"}),
        Span(step=2, time=T0 + 4, name="orphan", trace="d" * 32, span="e" * 16, parent="f" * 16, began=T0),
    ]  # fmt: skip
    driver = Driver(TrackioTracker, info)
    records = stream([Metrics(step=1, time=T0, values={"loss": 1.0}), *spans])
    driver.deliver(records, batch=1)
    driver.deliver(records)
    assert len(rows()) == 2
    traces = {trace["key"]: trace for trace in SQLiteStorage.get_traces("digits", "baseline", run_id="abcd1234")}
    assert traces.keys() == {"evaluate", "orphan"}
    trace = traces["evaluate"]
    assert trace["messages"] == [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]
    if client_versions.number(metadata.version("trackio")) < (0, 37):
        assert "spans" not in trace
        return
    assert [span["kind"] for span in trace["spans"]] == ["span", "generation"]
    assert trace["spans"][1]["usage"] == {"input_tokens": 40, "output_tokens": 0}
    assert (trace["metadata"]["status"], trace["spans"][0]["error"]) == ("error", "ValueError: no")
    reader, (source,) = registry.open_source("trackio:digits")
    found = {span.name: span for span in reader.read(source) if isinstance(span, Span)}
    assert found == {span.name: span for span in (spans[0], spans[2], spans[3])}


def test_samples_are_traces_beside_their_table(info: RunInfo) -> None:
    """With messages and the other columns; once; those above a step go where training goes back."""
    from trackio.sqlite_storage import SQLiteStorage

    said = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]
    table = {"columns": ["messages", "reward"], "rows": [[said, 1.0], [said, float("-inf")]]}
    item = MediaFile(format="json", data=table, meta={"samples": True})
    records = stream(
        [
            Metrics(step=1, time=T0, values={"loss": 1.0}),
            Media(step=1, time=T0, name="rollouts", type="table", items=[item]),
            Media(step=2, time=T0 + 1, name="rollouts", type="table", items=[item]),
        ]
    )
    driver = Driver(TrackioTracker, info)
    driver.deliver(records, batch=1)
    driver.deliver(records)
    traces = SQLiteStorage.get_traces("digits", "baseline", run_id="abcd1234")
    assert [(trace["key"], trace["step"], trace["messages"]) for trace in traces].count(("rollouts", 1, said)) == 2
    assert sorted(str(trace["metadata"]["reward"]) for trace in traces) == ["-inf", "-inf", "1.0", "1.0"]
    assert [values["rollouts"]["_type"] for _, _, values in rows()] == ["trackio.table"] * 2
    back = [Start(time=T0 + 2, attempt=2, from_step=1), Metrics(step=2, time=T0 + 3, values={"loss": 0.5})]
    driver.deliver([*records, *stream(back, name="rank-0.2", first_seq=4)])
    assert {trace["step"] for trace in SQLiteStorage.get_traces("digits", "baseline", run_id="abcd1234")} == {1}
    reader, (source,) = registry.open_source("trackio:digits")
    read = list(reader.read(source))
    assert not [record for record in read if isinstance(record, Span)]
    assert [record.step for record in read if isinstance(record, Media)] == [1]


def test_machine_and_packages_are_files(info: RunInfo) -> None:
    """What is no setting stands among the project's files, and not where settings are compared; readers find it."""
    from trackio.utils import MEDIA_DIR

    environment = {"packages": {"torch": "2.13"}, "os": "Linux"}
    driver = deliver(info, Environment(time=T0, values=environment),
                     Metrics(step=1, time=T0, values={"loss": 1.0}),
                     Metrics(time=T0, values={"system.gpu.0.powerWatts": 100.0}))  # fmt: skip
    assert {name for name in config() if not name.startswith("trackers/")} <= {"_Username", "_Created", "_Group"}
    files = {
        path.name: json.loads(path.read_text()) for path in (MEDIA_DIR / "digits/files/baseline-abcd1234").iterdir()
    }
    assert files == {"environment.json": environment, "metric_names.json": {"gpu/0/power": "system.gpu.0.powerWatts"}}
    reader, (source,) = registry.open_source("trackio:digits")
    found = list(reader.read(source))
    assert [record.values for record in found if isinstance(record, Environment)] == [environment]
    assert {"system.gpu.0.powerWatts": 100.0} in [record.values for record in found if isinstance(record, Metrics)]
    (MEDIA_DIR / "digits/files/baseline-abcd1234/environment.json").unlink()
    driver.state, driver.cursor = {}, 0
    driver.deliver(stream([Environment(time=T0, values=environment)]))
    assert (MEDIA_DIR / "digits/files/baseline-abcd1234/environment.json").exists()


def test_run_that_is_removed_takes_its_files_along(info: RunInfo, tmp_path: Path) -> None:
    """What trackio leaves beside its database: the machine, pictures, also those of tables. Another run of that name
    keeps its own."""
    import numpy
    from trackio.utils import MEDIA_DIR

    def deliver_all(run: RunInfo) -> set[Path]:
        before = found()
        numpy.save(run.path("a.npy"), numpy.full((4, 6, 3), 0.5))
        cell = {"_type": "image", "format": "npy", "file": "a.npy"}
        table = MediaFile(format="json", data={"columns": ["x"], "rows": [[[cell]]]})
        image = MediaFile(format="npy", file="a.npy")
        deliver(run, Environment(time=T0, values={"os": "Linux"}),
                Media(step=1, time=T0, name="image", type="image", items=[image]),
                Media(step=1, time=T0, name="table", type="table", items=[table]))  # fmt: skip
        return found() - before

    def found() -> set[Path]:
        return {path for path in MEDIA_DIR.rglob("*") if path.is_file()}

    own = deliver_all(info)
    others = deliver_all(run_info(tmp_path / "other", id="other", name=info.name, project=info.project))
    assert (len(own), len(others)) == (3, 3)
    assert TrackioTracker.remove(info, State()) == "deleted in trackio"
    assert found() == others


def test_results_are_a_report_once_the_run_has_ended(info: RunInfo) -> None:
    """Reports have the results of ended runs, without those that nobody asked for; a run that goes on has none, and no
    step of its own."""
    driver = Driver(TrackioTracker, info)
    records = stream([
        Metrics(step=1, time=T0, values={"loss": 1.0}),
        Summary(time=T0, values={"accuracy": 0.5, "energy/total_kwh": 1.0}),
    ])  # fmt: skip
    driver.deliver(records, status=Status("finished", 0, T0 + 1))
    assert rows()[-1][2]["trackers/results"] == {
        "_type": "trackio.markdown", "_value": "# Results\n\n- final/accuracy: **0.5**",
    }  # fmt: skip
    more = [
        *records,
        *stream([Start(time=T0 + 2, attempt=2), Metrics(step=2, time=T0 + 3, values={"loss": 0.5})], first_seq=3),
    ]
    driver.deliver(more, status=Status("failed", 1, T0 + 4))
    assert [list(row[2]) for row in rows()] == [["loss"], ["loss", "trackers/results"]]
    reader, (source,) = registry.open_source("trackio:digits")
    found = list(reader.read(source))
    assert not [record for record in found if isinstance(record, Text)]
    results = [record.values for record in found if isinstance(record, Summary)]
    assert results == [{"final/accuracy": 0.5, "final/energy/total_kwh": 1.0}]
    assert config().keys() & {"final/energy/total_kwh", "trackers/energy/total_kwh"} == {"trackers/energy/total_kwh"}


def test_pictures_of_one_record_are_in_order(info: RunInfo) -> None:
    """trackio's page shows the newest first, and of one row the last: the first picture comes last."""
    for number in range(3):
        info.path(f"{number}.png").write_bytes(b"png")
    items = [MediaFile(format="png", file=f"{number}.png") for number in range(3)]
    deliver(info, Media(step=1, time=T0, name="samples", type="image", items=items))
    assert list(rows()[0][2]) == ["samples/2", "samples/1", "samples/0"]
