"""Exports of Neptune: what describes a run, its points, texts, pictures and files; files that aren't what they say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import neptune_export
import PIL.Image
import pyarrow
import pytest
from neptune_export import SCHEMA, T0, described, export, row
from pyarrow import parquet
from trackers_neptune import reader as neptune
from trackers_neptune.reader import NeptuneReader
from typer.testing import CliRunner

import trackers
from trackers.cli.app import app
from trackers.errors import Damaged, NotFound
from trackers.readers import registry
from trackers.records import ArtifactRecord, Finish, Media, Metrics, Summary, Text
from trackers.testing import check_reader
from trackers.tracker import RunInfo


def points(path: str, values: list[float], every: float = 1.0) -> list[dict[str, Any]]:
    """A series, a value a second."""
    return [row(path, "float_series", value, step * every, T0 + step) for step, value in enumerate(values)]


def test_run_is_read_as_it_is(tmp_path: Path) -> None:
    """Settings, series in two files, of which one begins anew, and how the run ended."""
    losses, scores = [1 / (step + 1) for step in range(20)], [math.inf, -0.0, 1e300]
    first = export(tmp_path, [
        [*described(), row("parameters/lr", "float", 0.1), row("parameters/depth", "int", 2**60),
         row("parameters/names", "string_set", ["z", "y"]), row("parameters/amp", "bool", True),
         row("final/accuracy", "float", 0.75),
         *points("loss", losses)],
        points("val/score", scores),
    ])  # fmt: skip
    rows: list[Any] = [
        Metrics(step=step, time=T0 + step, values={"loss": loss, **({"val/score": scores[step]} if step < 3 else {})})
        for step, loss in enumerate(losses)
    ]
    info = RunInfo(id="RUN-1", name="base", project="me/digits", tags=["a", "b"], notes="why")
    config = {"parameters/lr": 0.1, "parameters/depth": 2**60, "parameters/names": ["y", "z"], "parameters/amp": True}
    ending = [Summary(time=T0 + 19, values={"accuracy": 0.75}), Finish(time=T0 + 19, status="finished", exit_code=0)]
    run = check_reader(NeptuneReader, str(tmp_path / "data"), info, [*rows, *ending])
    assert (run.project, run.notes, run.created, run.note) == ("me/digits", "why", T0, "")
    assert trackers.load(f"neptune:{first}").config == config
    assert trackers.load(str(first)).series()["loss"].count == 20


def test_decimal_steps_become_whole_ones(tmp_path: Path) -> None:
    """All steps of a run are multiplied alike, as little as need be, and the note says so."""
    export(tmp_path, [[*described(), *points("loss", [1.0, 2.0, 3.0], 0.25), row("note", "string_series", "x", 2, T0)]])
    reader, (run,) = registry.open_source(f"neptune:{tmp_path}")
    found = list(reader.read(run))
    assert [record.step for record in found if isinstance(record, (Metrics, Text))] == [0, 25, 50, 200]
    assert run.note == "steps are multiplied by 100: Neptune's are decimals"


def test_machine_texts_histograms_and_statuses(tmp_path: Path) -> None:
    """Samples have no step; texts, histograms; a failed and a running run."""
    export(tmp_path, [[
        *described(failed=True), *points("monitoring/1a2b/cpu", [50.0, 60.0]),
        row("log", "string_series", "größer\nas two lines", 3, T0 + 3),
        row("weights", "histogram_series", {"edges": [0.0, 1.0, 2.0], "values": [3.0, 4.0]}, 4, T0 + 4),
    ]])  # fmt: skip
    export(tmp_path, [described("other", state="active")], run="RUN-2")
    runs = registry.open_source(f"neptune:{tmp_path}/data")[1]
    assert {one.name: one.status for one in runs} == {"base": "failed", "other": "running"}
    reader, (run,) = registry.open_source(f"neptune:{tmp_path}/data/*/RUN-1-*")
    found = list(reader.read(run))
    samples = [(record.step, record.values) for record in found if isinstance(record, Metrics)]
    assert samples == [(None, {"system.1a2b/cpu": 50.0}), (None, {"system.1a2b/cpu": 60.0})]
    assert [record.values for record in found if isinstance(record, Text)] == [{"log": "größer\nas two lines"}]
    (histogram,) = [record for record in found if isinstance(record, Media)]
    assert (histogram.step, histogram.items[0].data) == (4, {"counts": [3.0, 4.0], "edges": [0.0, 1.0, 2.0]})
    assert isinstance(found[-1], Finish)
    assert found[-1].status == "failed"


def with_files(place: Path) -> Path:
    """A run with a file, a set of files and a series of pictures; its folder of files."""
    files = place / "files" / neptune_export.safe("me/digits")
    (files / "run/set/deep").mkdir(parents=True)
    (files / "run/model.bin").write_bytes(b"weights")
    (files / "run/set/deep/a.txt").write_text("a")
    PIL.Image.new("RGB", (4, 3), "red").save(files / "run/picture.png")
    export(place, [[
        *described(), row("model", "file", {"path": "run/model.bin"}), row("set", "file_set", {"path": "run/set"}),
        row("sample", "file_series", {"path": "run/picture.png"}, 2, T0 + 2),
        row("dump", "file_series", {"path": "run/model.bin"}, 3, T0 + 3),
        row("gone", "file", {"path": "run/nothing.bin"}),
    ]])  # fmt: skip
    return files


def test_files_come_along(tmp_path: Path) -> None:
    """A file, a set of them, pictures at their steps; what the exporter couldn't fetch is left out."""
    with_files(tmp_path)
    data = trackers.load(f"neptune:{tmp_path}")
    kept = {one.name: [(file.path, Path(data.run.directory, file.file).read_bytes()) for file in one.files]
            for one in data.artifacts()}  # fmt: skip
    assert kept == {
        "model": [("model.bin", b"weights")], "set": [("deep/a.txt", b"a")], "dump/3": [("model.bin", b"weights")]
    }  # fmt: skip
    (picture,) = data.media()
    assert (picture.name, picture.step, picture.items[0].format) == ("sample", 2, "png")
    assert PIL.Image.open(Path(data.run.directory, picture.items[0].file)).size == (4, 3)


def test_no_link_leads_out(tmp_path: Path) -> None:
    """Neither a path with dots, nor a link in the place of a file or a folder."""
    files = with_files(tmp_path)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("secret")
    (files / "link").symlink_to(tmp_path / "secret")
    (files / "one").symlink_to(tmp_path / "secret/key")
    (files / "run/set/two").symlink_to(tmp_path / "secret/key")
    paths = ["../../secret/key", "/secret/key", "link/key", "link", "one", ""]
    export(tmp_path, [[*described(), *(row(f"f{number}", "file", {"path": path}) for number, path in enumerate(paths)),
                       row("set", "file_set", {"path": "run/set"})]])  # fmt: skip
    data = trackers.load(f"neptune:{tmp_path}")
    assert [(one.name, [file.path for file in one.files]) for one in data.artifacts()] == [("set", ["deep/a.txt"])]


def test_long_runs_are_read_in_the_order_of_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What doesn't fit into memory isn't ordered, and is complete."""
    export(tmp_path, [[*described(), *points("a", [1.0, 2.0])], points("b", [3.0, 4.0])])
    monkeypatch.setattr(neptune, "ORDERED_ROWS", 3)
    reader, (run,) = registry.open_source(f"neptune:{tmp_path}")
    found = [(record.step, record.values) for record in reader.read(run) if isinstance(record, Metrics)]
    assert found == [(0, {"a": 1.0}), (1, {"a": 2.0}), (0, {"b": 3.0}), (1, {"b": 4.0})]


def test_incomplete_exports_are_passed_over(tmp_path: Path) -> None:
    """A run without its first file, which the exporter renames last."""
    first = export(tmp_path, [described(), points("a", [1.0])])
    first.rename(first.with_suffix(".parquet.tmp"))
    with pytest.raises(NotFound, match="nothing to read"):
        registry.open_source(f"neptune:{tmp_path}")


@pytest.mark.heavy
def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    """A file that isn't Parquet, another table, one that claims what it can't hold, and odd values."""
    path = tmp_path / "x_part_0.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(Damaged, match=r"x_part_0.parquet is damaged: \S+"):
        registry.open_source(str(path))
    parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(Damaged, match="is no export of Neptune: it has no column project_id"):
        registry.open_source(str(path))
    nothing = {name: pyarrow.nulls(5_000_000, SCHEMA.field(name).type) for name in SCHEMA.names}
    parquet.write_table(pyarrow.table(nothing), path)
    with pytest.raises(Damaged, match="claims 5,000,000 rows"):
        registry.open_source(str(path))
    odd = row("h", "histogram_series", {"edges": [1.0], "values": [1.0]}, 1)
    export(tmp_path, [[*described(), odd, *points("a", [1.0])]])
    data = trackers.load(f"neptune:{tmp_path}/data")
    assert data.series()["a"].count == 1
    assert "1 records are left out, the first: h: a histogram of 1 values and 1 edges" in data.run.note


@pytest.mark.parametrize("column", ["attribute_path", "string_value", "string_set_value", "file_value"])
def test_texts_that_would_fill_the_memory_are_refused(column: str, tmp_path: Path) -> None:
    """A text that a file holds once and all rows have, in whatever column."""
    rows, long = 300, "x" * 1_000_000
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, pyarrow.int32()), pyarrow.array([long]))
    many = {
        "string_set_value": lambda: pyarrow.ListArray.from_arrays(
            pyarrow.array(range(rows + 1), pyarrow.int32()), texts
        ),
        "file_value": lambda: pyarrow.StructArray.from_arrays([texts], ["path"]),
    }.get(column, lambda: texts)()
    kind = "file" if column == "file_value" else column.removesuffix("_value")
    fixed = {"project_id": "p", "run_id": "r", "attribute_path": "a", "attribute_type": kind}
    columns = {
        name: many if name == column else pyarrow.array([fixed.get(name)] * rows, SCHEMA.field(name).type)
        for name in SCHEMA.names
    }
    path = tmp_path / "x_part_0.parquet"
    parquet.write_table(pyarrow.table(columns), path, store_schema=False)
    try:
        reader, (run,) = registry.open_source(str(path))
        assert len(list(reader.read(run))) == 1  # that it began
        said = run.note
    except Damaged as error:
        said = str(error)
    assert "is damaged: it claims texts of 300,00" in said


def test_copy_moves_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a directory of runs, with all that the destination keeps, and the copy agrees."""
    monkeypatch.chdir(tmp_path)
    with_files(tmp_path)
    export(tmp_path, [[*described("second"), *points("loss", [1.0, 0.5])]], run="RUN-2")
    result = CliRunner().invoke(app, ["copy", "neptune:.", "copies"])
    assert result.exit_code == 0, result.output
    assert result.output.count("agrees") == 2
    again = trackers.load_all("copies/*/*")
    assert {one.run.name for one in again} == {"base", "second"}


def test_artifact_records_are_whole(tmp_path: Path) -> None:
    """Sizes of files are theirs."""
    with_files(tmp_path)
    reader, (run,) = registry.open_source(f"neptune:{tmp_path}")
    found = [record for record in reader.read(run) if isinstance(record, ArtifactRecord)]
    assert {file.size for record in found for file in record.files} == {7, 1}
