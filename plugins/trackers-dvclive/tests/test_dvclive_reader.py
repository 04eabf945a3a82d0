"""DVCLive's directories, as this package and DVCLive's own client write them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

import trackers
from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry as registry_of_trackers
from trackers.errors import NotFound
from trackers.readers import registry
from trackers.records import Config, Media, MediaFile, Metrics, Record, Summary, Text

NAMES = ("loss", "train/loss", "odd~name", "a:b/c", "x/1.tsv/y", "Loss")


def written(place: Path) -> Path:
    """A directory that this package's tracker wrote."""
    records: list[Record] = [Config(time=T0, values={"lr": 0.1, "model": {"width": 3}, "none": math.inf})]
    for step in range(5):
        values = {name: step + number / 8 for number, name in enumerate(NAMES)}
        records.append(Metrics(step=step, time=T0 + step, values=values))
    records.append(Metrics(step=4, time=T0 + 5, values={"loss": math.nan, "big": 2**60}))
    records.append(Metrics(time=T0 + 6, values={"system.cpu": 7.5}))
    records.append(Text(step=2, time=T0 + 2, values={"note": "a\ttext\n"}))
    records.append(Summary(time=T0 + 7, values={"best": 0.25}))
    Driver(registry_of_trackers.load("dvclive"), run_info(place)).deliver(stream(records))
    return place / "dvclive"


def test_what_this_package_wrote_is_read_back(tmp_path: Path) -> None:
    """Every value at its step and time under its own name, whatever its path had to be."""
    place = written(tmp_path / "digits")
    data = trackers.load(f"dvclive:{place}")
    assert data.run.name == "digits"
    table = data.metrics(["loss", "train/loss", "odd~name", "a:b/c", "x/1.tsv/y", "Loss", "big"])
    assert table["step"].to_pylist() == [0, 1, 2, 3, 4, 4]
    assert table["time"].to_pylist() == [T0, T0 + 1, T0 + 2, T0 + 3, T0 + 4, T0 + 5]
    for number, name in enumerate(NAMES[1:], 1):
        assert table[name].to_pylist()[:5] == [step + number / 8 for step in range(5)]
    assert repr(table["loss"].to_pylist()[-1]) == "nan"
    assert [value for value in table["big"].to_pylist() if value] == [2**60]
    assert data.system()["system.cpu"].to_pylist() == [7.5]
    assert data.summary == {"best": 0.25}
    assert data.config == {"lr": 0.1, "model": {"width": 3}, "none": math.inf}
    assert [(text.step, text.values) for text in data.texts()] == [(2, {"note": "a\ttext\n"})]
    assert data.run.note == ""


def by_the_client(place: Path) -> Path:
    """As dvclive 3's client writes a run: series without times, last values, parameters, a picture."""
    series = place / "plots/metrics/train"
    series.mkdir(parents=True)
    (series / "loss.tsv").write_text("step\tloss\n0\t1.5\n1\t1.25\n2\tnan\n")
    (place / "plots/metrics/acc.tsv").write_text(
        "timestamp\tstep\tacc\n1700000000500\t0\t0.5\n1700000001500\t1\t0.75\n1700"
    )
    (place / "metrics.json").write_text(json.dumps({"train": {"loss": "NaN"}, "acc": 0.75, "f1": 0.875, "step": 2}))
    (place / "params.yaml").write_text("lr: 0.1\nlayers:\n- 1\n- 2\n")
    (place / "dvc.yaml").write_text("params:\n- params.yaml\n")
    pictures = place / "plots/images/samples"
    pictures.mkdir(parents=True)
    (pictures / "2.png").write_bytes(b"\x89PNG")
    for path in place.rglob("*"):
        os.utime(path, (T0, T0))
    return place


def test_what_the_client_wrote_is_read(tmp_path: Path) -> None:
    """Values without times have the directory's; of a row that is being written nothing is read."""
    place = by_the_client(tmp_path / "exp" / "dvclive")
    (run,) = registry.open_source(f"dvclive:{tmp_path}")[1]
    assert (run.name, run.created) == ("exp", T0)
    data = trackers.load(f"dvclive:{place}")
    assert data.metrics(["train/loss"])["train/loss"].to_pylist()[:2] == [1.5, 1.25]
    assert data.metrics(["acc"])["time"].to_pylist() == [1700000000.5, 1700000001.5]
    assert set(data.metrics(["train/loss"])["time"].to_pylist()) == {T0}
    assert (data.config, data.summary) == ({"lr": 0.1, "layers": [1, 2]}, {"f1": 0.875})
    (media,) = data.media()
    assert (media.name, media.step, media.items) == (
        "samples", 2, [MediaFile(format="png", file="plots/images/samples/2.png")],
    )  # fmt: skip
    assert isinstance(media, Media)


def test_damaged_part_leaves_the_others(tmp_path: Path) -> None:
    """A document that is no JSON is named; links out of the directory aren't followed; nothing at all is NotFound."""
    place = by_the_client(tmp_path / "exp")
    (place / "metrics.json").write_text("{")
    (tmp_path / "secret.tsv").write_text("step\tsecret\n0\t1\n")
    (place / "plots/metrics/link.tsv").symlink_to(tmp_path / "secret.tsv")
    data = trackers.load(f"dvclive:{place}")
    assert sorted(data.series()) == ["acc", "train/loss"]
    assert "1 files are left out, the first: metrics.json" in data.run.note
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="nothing to read"):
        trackers.load(f"dvclive:{tmp_path}/empty")


@pytest.mark.parametrize(("row", "said"), [
    ("1\t0.2x\n", "loss.tsv: row 3 is left out"), ("1\n", "loss.tsv: row 3 is left out"),
    ("1\t0.2\t3\n", "loss.tsv: row 3 is left out"), ("x\t0.2\n", "loss.tsv: row 3 is left out"), ("\n", ""),
])  # fmt: skip
def test_damaged_row_of_a_series_is_said(tmp_path: Path, row: str, said: str) -> None:
    """The rows around it are read; so is one that lacks its end, and that is said, too."""
    series = tmp_path / "dvclive/plots/metrics/loss.tsv"
    series.parent.mkdir(parents=True)
    series.write_text(f"step\tloss\n0\t0.5\n{row}2\t0.25\n")
    data = trackers.load(f"dvclive:{tmp_path}/dvclive")
    assert data.metrics()["step"].to_pylist() == [0, 2]
    assert data.run.note == (f"1 rows of series are damaged, the first: {said}" if said else "")
    series.write_text("step\tloss\n0\t0.5\n2\t0.2")
    data = trackers.load(f"dvclive:{tmp_path}/dvclive")
    assert data.metrics()["loss"].to_pylist() == [0.5, 0.2]
    assert "loss.tsv: the last value may be cut" in data.run.note
    series.write_text("step\tloss\n0\t0.5\n2")
    assert trackers.load(f"dvclive:{tmp_path}/dvclive").run.note == ""
