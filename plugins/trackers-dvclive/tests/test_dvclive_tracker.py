"""DVCLive's folders, read as TSV, JSON and YAML; DVC itself reads them in ``test_client.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from trackers_dvclive import layout
from trackers_dvclive.tracker import DvcliveTracker

from tests import ROOT
from tests.helpers import T0, Driver, arrays, deliver_over_a_lost_rewind, run_info, stream
from trackers.records import ArtifactFile, ArtifactRecord, Media, MediaFile, Metrics, Record, Start, Summary, Text
from trackers.testing import check_confined
from trackers.testing.checks import metric_names, one_of_each

NAMES = st.text(st.sampled_from("_./aA0~\\:") | st.characters(codec="utf-8"), min_size=1, max_size=12)


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(DvcliveTracker, run_info(tmp_path / "run", **fields))


def rows(tmp_path: Path, name: str) -> list[list[str]]:
    text = (tmp_path / "run/dvclive" / f"{name}.tsv").read_text()
    return [line.split("\t") for line in text.splitlines()]


def document(tmp_path: Path, name: str) -> Any:
    text = (tmp_path / "run/dvclive" / name).read_text()
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


def everything(tmp_path: Path) -> list[Record]:
    (tmp_path / "run").mkdir(parents=True)
    return one_of_each(tmp_path / "run")


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_rewind_drops_superseded_values(tmp_path: Path) -> None:
    """An attempt from a checkpoint replaces later values, texts and images; the machine's samples stay."""
    first = everything(tmp_path)
    first += [Metrics(step=step, time=T0, values={"a": step}) for step in range(5)]
    first += [Metrics(step=4, time=T0, values={"gone": 1}), Metrics(time=T0, values={"system.cpu": 7.0})]
    second = [Start(time=T0, attempt=2, from_step=2), Metrics(step=3, time=T0, values={"a": 30.5})]
    driver(tmp_path).deliver(stream([*first, *second]))
    stamp = str(round(T0 * 1000))
    head = ["timestamp", "step", "a"]
    assert rows(tmp_path, "plots/metrics/a") == [
        head,
        *([stamp, str(n), str(n)] for n in range(3)),
        [stamp, "3", "30.5"],
    ]
    assert rows(tmp_path, "plots/system/system.cpu") == [["timestamp", "system.cpu"], [stamp, "7.0"]]
    wanted = {"step": 3, "a": 30.5, "final": {"best_loss": 0.5}}
    assert document(tmp_path, "metrics.json") == wanted
    assert files(tmp_path / "run/dvclive") == {
        ".trackers.jsonl", "dvc.yaml", "metrics.json", "params.yaml", "plots/metrics/a.tsv",
        "plots/system/system.cpu.tsv", "artifacts/checkpoint/weights.bin",
    }  # fmt: skip


def test_kill_between_a_rewind_and_the_commit(tmp_path: Path) -> None:
    """Series that were written anew, and grew beyond the committed length, aren't taken for the committed ones."""
    deliver_over_a_lost_rewind(lambda: driver(tmp_path))
    found = [int(row[2]) for row in rows(tmp_path, "plots/metrics/a")[1:]]
    assert found == [0, 1, *(-step for step in range(2, 40))]


def test_files_of_a_batch_that_was_not_committed_are_removed(tmp_path: Path) -> None:
    """Before a batch comes again, DVC sees nothing of it."""
    run = driver(tmp_path)
    records = stream([Metrics(step=0, time=T0, values={"a": 1}), *one_of_each(tmp_path / "run")])
    run.open()
    run.write(records[:1])
    run.write(records, commit=False)
    assert len(files(tmp_path / "run/dvclive")) > 5
    run.open()
    assert files(tmp_path / "run/dvclive") - {"dvc.yaml", "metrics.json"} == {".trackers.jsonl", "plots/metrics/a.tsv"}


def test_documents_name_what_lies_there(tmp_path: Path) -> None:
    """``dvc.yaml`` has the plots' axes, the parameters and the artifacts, each only where there is one."""
    driver(tmp_path).deliver(stream([Metrics(step=0, time=T0, values={"a": 1})]))
    assert document(tmp_path, "dvc.yaml") == {"metrics": ["metrics.json"], "plots": [{"plots/metrics": {"x": "step"}}]}
    run = driver(tmp_path / "all")
    run.deliver(stream([*one_of_each(tmp_path / "all/run"), Metrics(time=T0, values={"system.cpu": 7.0})]))
    found = document(tmp_path / "all", "dvc.yaml")
    assert found == {
        "params": ["params.yaml"],
        "metrics": ["metrics.json"],
        "plots": [
            {"plots/system": {"x": "timestamp"}},
            "plots/images",
            {"plots/histograms": {"x": "count", "y": "from", "template": "bar_horizontal"}},
        ],
        "artifacts": {
            "checkpoint": {
                "path": "artifacts/checkpoint", "type": "model", "labels": ["latest"], "meta": {"loss": 0.5},
            },
        },
    }  # fmt: skip
    made = files(tmp_path / "all/run/dvclive")
    assert {"plots/images/images/9.png", "plots/images/images~1/9.png", "tables/samples/9.csv"} <= made
    assert (tmp_path / "all/run/dvclive/tables/samples/9.csv").read_text() == "prompt,text\na,b\nc,d\n"


def test_directory_elsewhere_has_a_folder_for_each_run(tmp_path: Path) -> None:
    """``DVCLIVE_DIR`` holds the runs of a repository; what is of others there stays."""
    options = {"DVCLIVE_DIR": str(tmp_path / "repository/runs")}
    (tmp_path / "repository/runs").mkdir(parents=True)
    (tmp_path / "repository/runs/dvc.yaml").write_text("stages: {}\n")
    for number in ("a", "b"):
        info = run_info(tmp_path / number, id=number, options=options)
        Driver(DvcliveTracker, info).deliver(stream([Metrics(step=0, time=T0, values={"a": 1})]))
    made = files(tmp_path / "repository")
    folders = ("baseline-a", "baseline-b")
    assert made == {"runs/dvc.yaml"} | {
        f"runs/{folder}/{name}"
        for folder in folders
        for name in (".trackers.jsonl", "dvc.yaml", "metrics.json", "plots/metrics/a.tsv")
    }


def test_documents_of_an_ended_run_are_left_as_they_are(tmp_path: Path) -> None:
    """Opened again without anything new, nothing is written."""
    run = driver(tmp_path)
    records = stream([Metrics(step=0, time=T0, values={"a": float("nan")}), Summary(time=T0, values={"best": 3})])
    run.deliver(records)
    before = {path: path.stat() for path in (tmp_path / "run/dvclive").rglob("*") if path.is_file()}
    run.deliver(records)
    assert {path: path.stat() for path in before} == before


def test_repeated_images_at_one_step_are_all_kept(tmp_path: Path) -> None:
    """A name that is logged twice at a step, in one batch or two, has two files."""
    (tmp_path / "run/media").mkdir(parents=True)
    for number in range(3):
        (tmp_path / f"run/media/{number}.gif").write_bytes(b"GIF89a" + bytes([number]))
    items = [[MediaFile(format="gif", file=f"media/{number}.gif")] for number in range(3)]
    records = [Media(step=1, time=T0, name="x", type="image", items=item) for item in items]
    driver(tmp_path).deliver(stream(records), 2)
    images = tmp_path / "run/dvclive/plots/images"
    found = {path.relative_to(images).as_posix(): path.read_bytes()[-1] for path in images.rglob("*.gif")}
    assert found == {"x/1.gif": 0, "x~1/1.gif": 1, "x~2/1.gif": 2}


@pytest.mark.parametrize(("step", "number", "path"), [
    (3, 0, "a/b/3.png"), (3, 12, "a/b~12/3.png"), (None, 0, "a/b~none/0.png"), (None, 2, "a/b~none~2/0.png"),
])  # fmt: skip
def test_items_of_a_step_are_found_by_their_path(step: int | None, number: int, path: str) -> None:
    """Also those of earlier releases; a file that DVCLive's own client named otherwise is no such item."""
    assert layout.item_path("a/b", step, number, "png") == path
    folder, _, filename = path.removesuffix(".png").rpartition("/")
    assert layout.item_of(folder, filename) == ("a/b", step)
    assert layout.item_of("a/b", "3-1") == ("a/b", 3)
    assert layout.item_of("a/b", "none-1") == ("a/b", None)
    assert layout.item_of("a", "confusion") is None


def test_media_are_files_of_usual_formats(tmp_path: Path) -> None:
    """Arrays become PNG, WAV and GIF; a page stays as it is. DVC draws the image."""
    (tmp_path / "run").mkdir()
    driver(tmp_path).deliver(stream(arrays(tmp_path / "run")))
    made = {path: (tmp_path / "run/dvclive" / path).read_bytes()[:4] for path in files(tmp_path / "run/dvclive")}
    assert {path: start for path, start in made.items() if "/" in path} == {
        "plots/images/image/3.png": b"\x89PNG", "media/audio/3.wav": b"RIFF", "media/video/3.gif": b"GIF8",
        "media/html/3.html": b"<p>x",
    }  # fmt: skip


@pytest.mark.slow
@given(names=st.lists(NAMES, unique=True, max_size=8))
@settings(max_examples=200)
def test_names_have_paths_of_their_own(names: list[str]) -> None:
    """No two names share a file, whatever the file system makes of capitals, and no file is another one's folder."""
    taken: set[str] = set()
    for name in dict.fromkeys([*metric_names(), *names]):
        path = layout.path_of(name, taken)
        assert path.casefold() not in taken
        assert not path.startswith("/")
        assert not {"", ".", ".."} & set(path.split("/"))
        taken.add(path.casefold())
    assert not {f"{path}.tsv" for path in taken} & {
        "/".join(path.split("/")[:depth]) for path in taken for depth in range(1, path.count("/") + 1)
    }
    assert layout.path_of("train/loss") == "train/loss"
    assert f"`a//b` is `{layout.path_of('a//b')}`" in (ROOT / "docs/vendor-files.md").read_text("utf-8")


def test_name_below_another_value_stays_one_key(tmp_path: Path) -> None:
    """``metrics.json`` nests names at slashes, as DVCLive does, and loses none where two can't both be nested."""
    values = {"train": 1, "train/loss": 2, "val/loss": 3, "val/": 4, "d/" * 40 + "e": 5}
    driver(tmp_path).deliver(stream([Metrics(step=0, time=T0, values=values)]))
    found = document(tmp_path, "metrics.json")
    assert found == {
        "step": 0, "train": 1, "train/loss": 2, "val": {"loss": 3, "": 4}, "d/" * 40 + "e": 5,
    }  # fmt: skip


def test_texts_are_lines_of_json(tmp_path: Path) -> None:
    """DVC has no place for them; their lines hold time, step and text."""
    driver(tmp_path).deliver(stream([Text(step=2, time=T0, values={"note": "two\nlines"})]))
    line = json.loads((tmp_path / "run/dvclive/text/note.jsonl").read_text())
    assert line == {"timestamp": round(T0 * 1000), "step": 2, "text": "two\nlines"}


def test_references_alone_are_not_kept(tmp_path: Path) -> None:
    """DVC's artifacts are paths; a reference beside a file is in the artifact's metadata."""
    bucket = ArtifactFile(path="x", uri="s3://bucket/x")
    file = ArtifactFile(path="y", file="media/weights.bin")
    records: list[Record] = everything(tmp_path)
    records += [ArtifactRecord(time=T0, name="far", files=[bucket])]
    records += [ArtifactRecord(time=T0, name="Both Of", type="dataset", files=[bucket, file])]
    driver(tmp_path).deliver(stream(records))
    found = document(tmp_path, "dvc.yaml")["artifacts"]
    assert set(found) == {"checkpoint", "both-of"}
    assert found["both-of"]["meta"] == {"references": {"x": "s3://bucket/x"}}
    assert (tmp_path / "run/dvclive" / found["both-of"]["path"] / "y").read_bytes() == bytes(range(256))


def test_file_outside_the_run_is_no_artifact(tmp_path: Path) -> None:
    """What DVC would track must lie in the run's directory, through no link."""
    check_confined(DvcliveTracker, directory=tmp_path)


def test_artifact_that_is_cut_is_found(tmp_path: Path) -> None:
    """Of files of artifacts, which may be large, the length is compared; damage has all written anew."""
    run = driver(tmp_path)
    records = stream(one_of_each(tmp_path / "run"))
    run.deliver(records)
    run.open()
    assert run.tracker.verify().damaged == []  # type: ignore[union-attr]
    path = tmp_path / "run/dvclive/artifacts/checkpoint/weights.bin"
    path.unlink()
    path.write_bytes(b"short")
    assert run.tracker.verify().damaged == [str(path)]  # type: ignore[union-attr]
    run.deliver(records)
    assert path.read_bytes() == bytes(range(256))
