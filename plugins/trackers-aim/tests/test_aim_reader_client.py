"""Stores that Aim itself wrote: the reader finds what Aim's own code finds, leaves no trace, and survives damage."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import aim
import numpy as np
import PIL.Image
import pytest
from aim_stand_in import states

from tests.fuzz import mutate
from trackers.errors import TrackersError
from trackers.readers import registry
from trackers.records import Alert, ArtifactRecord, Config, Environment, Finish, Media, Metrics, Record, Text

LOSSES = [1 / (step + 1) for step in range(300)]


def written(place: Path, *, close: bool = True) -> aim.Run:
    """A run of Aim's with all that is read."""
    place.mkdir()
    run = aim.Run(
        repo=str(place), experiment="digits", system_tracking_interval=None, capture_terminal_logs=False,
        log_system_params=True,
    )  # fmt: skip
    run.name, run.description = "base", "why"
    run.add_tag("b")
    run.add_tag("a")
    run["hparams"] = {"lr": 0.1, "layers": [1, [2, {"a": None}]], "pair": (1, 2), "none": {}}
    run["amp"] = True
    for step, loss in enumerate(LOSSES):
        run.track(loss, name="loss", step=2 * step, epoch=step // 100, context={"subset": "train"})
        run.track({"count": step, "ratio": step / 2}, step=step)
    run.track(float("nan"), name="odd")
    run.track(float("-inf"), name="odd")
    run.track(50.0, name="__system__cpu")
    run.track(90.0, name="__system__gpu", context={"gpu": 0})
    run.track(aim.Text("größer"), name="words", step=3)
    pictures = [aim.Image(PIL.Image.new("RGB", (4, 3), color), caption=color) for color in ("red", "blue")]
    run.track(pictures, name="samples", step=2)
    run.track(pictures[0], name="sample", step=5)
    run.track(aim.Distribution(np.arange(100), bin_count=4), name="spread", step=1)
    (place / "weights.bin").write_bytes(b"weights")
    run.set_artifacts_uri(f"file://{place / 'artifacts'}")
    run.log_artifact(str(place / "weights.bin"), name="weights")
    run.log_warning("watch out")
    if close:
        run.close()
    return run


def read(place: Path, files: Path | None = None) -> tuple[Any, list[Record]]:
    """The one run of a store, and its records."""
    reader, (run,) = registry.open_source(f"aim:{place}")
    return run, list(reader.read(run, files=files))


def series(found: list[Record]) -> dict[str, list[tuple[Any, float, Any]]]:
    """Step, time and value of each point, by name."""
    points: dict[str, list[tuple[Any, float, Any]]] = {}
    for record in found:
        for name, value in record.values.items() if isinstance(record, Metrics) else ():
            points.setdefault(name, []).append((record.step, record.time, value))
    return points


def test_reader_finds_what_aim_finds(tmp_path: Path) -> None:
    """Every point of every metric with step, time and value, and all that describes the run."""
    mine = written(tmp_path / "it")
    run, found = read(tmp_path / "it")
    assert (run.id, run.name, run.project, run.notes, run.tags, run.status) == (
        mine.hash, "base", "digits", "why", ["a", "b"], "finished"
    )  # fmt: skip
    points = series(found)
    assert points.pop("epoch")[-1][2] == 2
    assert [(step, value) for step, _, value in points["train/loss"]] == [
        (2 * at, one) for at, one in enumerate(LOSSES)
    ]
    names = {"count", "ratio", "odd", "train/loss", "system.cpu", "system.gpu.0.gpu"}
    assert set(points) == names
    assert all(isinstance(value, int) for _, _, value in points["count"])
    assert [step for step, _, _ in points["system.cpu"] + points["system.gpu.0.gpu"]] == [None, None]
    theirs = aim.Run(mine.hash, repo=str(tmp_path / "it"), read_only=True)
    assert run.created == pytest.approx(theirs.creation_time, abs=1e-5)
    for metric in theirs.metrics():
        steps, (values, _, times) = metric.data.items_list()
        name = {"loss": "train/loss", "__system__cpu": "system.cpu", "__system__gpu": "system.gpu.0.gpu"}
        got = sorted(points[name.get(metric.name, metric.name)], key=lambda point: point[1])
        assert [time for _, time, _ in got] == sorted(times)
        assert repr([value for _, _, value in got]) == repr(
            [value for _, value in sorted(zip(times, values, strict=True))]
        )
        if not metric.name.startswith("__system__"):
            assert [step for step, _, _ in got] == steps
    (config,) = [record.values for record in found if isinstance(record, Config)]
    assert config == {
        "hparams": {"lr": 0.1, "layers": [1, [2, {"a": None}]], "pair": [1, 2], "none": {}}, "amp": True
    }  # fmt: skip
    (environment,) = [record.values for record in found if isinstance(record, Environment)]
    assert "packages" in environment
    assert "env_variables" not in environment
    assert isinstance(found[-1], Finish)
    assert found[-1].time > max(time for points in series(found).values() for _, time, _ in points)


def test_objects_of_aim_are_read(tmp_path: Path) -> None:
    """Texts, pictures, a distribution with its edges, an artifact's reference and a record of the log."""
    written(tmp_path / "it")
    files = tmp_path / "files"
    files.mkdir()
    run, found = read(tmp_path / "it", files)
    assert [(one.step, one.values) for one in found if isinstance(one, Text)] == [(3, {"words": "größer"})]
    media = {one.name: one for one in found if isinstance(one, Media)}
    assert [item.caption for item in media["samples"].items] == ["red", "blue"]
    assert PIL.Image.open(files / media["samples"].items[1].file).getpixel((0, 0)) == (0, 0, 255)
    assert media["sample"].step == 5
    assert media["spread"].items[0].data == {"counts": [25] * 4, "edges": [0.0, 24.75, 49.5, 74.25, 99.0]}
    (artifact,) = [one for one in found if isinstance(one, ArtifactRecord)]
    assert (artifact.name, artifact.files[0].path) == ("weights", "weights.bin")
    assert artifact.files[0].uri.startswith("file://")
    assert [(one.title, one.level) for one in found if isinstance(one, Alert)] == [("watch out", "WARN")]
    assert run.note == ""


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    """Not a file of Aim's is made, changed or touched, though RocksDB and SQLite would."""
    written(tmp_path / "it")
    before = states(tmp_path / "it")
    read(tmp_path / "it")
    assert states(tmp_path / "it") == before


def test_running_run_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    """While Aim holds the locks, and what it wrote last isn't in tables yet."""
    mine = written(tmp_path / "it", close=False)
    run, found = read(tmp_path / "it")
    assert run.status == "running"
    assert len(series(found)["train/loss"]) == len(LOSSES)
    mine.track(7.0, name="late")
    assert series(read(tmp_path / "it")[1])["late"][0][2] == 7.0
    mine.close()
    assert read(tmp_path / "it")[0].status == "finished"


READ = """
import sys
from trackers.errors import TrackersError
from trackers.readers import registry
for place in sys.argv[1:]:
    try:
        reader, runs = registry.open_source("aim:" + place)
        said = f"{sum(1 for run in runs for _ in reader.read(run))} records; {[run.note for run in runs]}"
    except TrackersError as error:
        said = str(error)
    print(place.rpartition("/")[2], said, sep="|")
assert "aimrocks" in sys.modules
assert "aim" not in sys.modules
"""


def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """A hundred stores with a damaged file of RocksDB: each is read or refused, without Aim's code."""
    written(tmp_path / "it")
    known = [path for path in sorted((tmp_path / "it/.aim").glob("*/chunks/*/*")) if path.stat().st_size]
    known = [path for path in known if path.name not in ("LOG", "LOCK")]
    places = []
    for number in range(100):
        dice = random.Random(number)
        place = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "it", place)
        path = place / dice.choice(known).relative_to(tmp_path / "it")
        path.write_bytes(mutate.blind(path.read_bytes(), dice))
        places.append(str(place))
    done = subprocess.run([sys.executable, "-c", READ, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert [line.partition("|")[0] for line in lines] == [Path(place).name for place in places]
    assert any("records; [''" in line for line in lines)
    assert any("is damaged" in line for line in lines)


def test_other_databases_are_refused(tmp_path: Path) -> None:
    """An empty directory in the place of a run, and RocksDB's file with nothing in it."""
    run = written(tmp_path / "it")
    place = tmp_path / "it/.aim/meta/chunks" / run.hash
    (place / "CURRENT").write_bytes(b"")
    with pytest.raises(TrackersError, match="is damaged"):
        read(tmp_path / "it")
