"""Logged tables read back: by name and step, with typed columns, also where a file isn't what it should be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trackers
from tests.analysis.support import T0, write_run
from trackers.analysis import run_files
from trackers.errors import Damaged, NotFound
from trackers.readers.logged_tables import LoggedTable, media_cell
from trackers.readers.run_data import RunData
from trackers.records import Media, MediaFile


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs lie in the test's own directory."""
    monkeypatch.chdir(tmp_path)


def table(name: str, data: Any, step: int | None = None, **file: Any) -> Media:
    """A record of one table."""
    item = MediaFile(format="json", data=data, **file)
    return Media(name=name, type="table", items=[item], step=step, time=T0 + (step or 0))


def run_with(*more: Media) -> RunData:
    """A run that logged these."""
    return trackers.load(str(write_run("one", more=more)))


def column(*cells: Any) -> Any:
    """The Arrow column that cells become."""
    rows = [[cell] for cell in cells]
    found = LoggedTable(table("t", None), lambda: {"columns": ["c"], "rows": rows}).frame()
    return found.table.column("c")


@pytest.mark.processes
def test_tables_of_a_run_are_listed_and_read(tmp_path: Path) -> None:
    """What ``log`` was given, by name and step; the last without a step; an image is its file, which is there."""
    import numpy as np

    run = trackers.init("json", mode="offline", project="p", name="one", id="one")
    for step in (10, 20):
        image = trackers.Image(np.full((4, 4), step, np.uint8), caption="four")
        run.log({"predictions": trackers.Table(columns=["id", "image"], data=[[step, image]])}, step=step)
    run.log({"other": trackers.Table(columns=["a"], data=[[1.5]] * 5000)}, step=20)
    run.finish()
    data = trackers.load("one")
    assert [(one.name, one.step, one.columns, len(one)) for one in data.tables()] == [
        ("predictions", 10, ["id", "image"], 1),
        ("predictions", 20, ["id", "image"], 1),
        ("other", 20, ["a"], 5000),
    ]
    assert data.table("predictions")["id"].to_pylist() == [20]
    assert data.table("predictions", step=10)["id"].to_pylist() == [10]
    (image_cell,) = data.table("predictions")["image"].to_pylist()
    assert (image_cell["type"], image_cell["caption"]) == ("image", "four")
    assert Path(data.run.directory, image_cell["file"]).is_file()
    assert data.table("other").to_pandas()["a"].sum() == 7500
    every = data.table_over_steps("predictions")
    assert every.column_names == ["step", "id", "image"]
    assert every["step"].to_pylist() == every["id"].to_pylist() == [10, 20]


def test_columns_have_types() -> None:
    """Each of the kinds that the docstring names; null and NaN stay apart."""
    assert column(True, None, False).type == pa.bool_()
    assert column(1, None, -(2**63)).type == pa.int64()
    assert column(1, 2.5, None).to_pylist() == [1.0, 2.5, None]
    floats = column("NaN", "-Infinity", 1).to_pylist()
    assert math.isnan(floats[0])
    assert floats[1:] == [-math.inf, 1.0]
    assert column(2**64, 1.0).to_pylist() == [float(2**64), 1.0]
    assert column(10**400, 1.0).to_pylist() == [math.inf, 1.0]
    assert column("NaN", "cat").to_pylist() == ["NaN", "cat"]
    assert column(1, "a", True, None, {"b": [1]}).to_pylist() == ["1", "a", "true", None, '{"b": [1]}']
    assert column([1, 2], None, []).type == pa.list_(pa.int64())
    assert column([1, 2.5]).type == pa.list_(pa.float64())
    assert column([1, "a"], [[2]]).to_pylist() == ['[1, "a"]', "[[2]]"]
    assert column(None, None).type == pa.string()
    assert column("\ud800").to_pylist() == ["\\ud800"]


def test_media_cells_of_each_tracker_are_the_same() -> None:
    """Ours, W&B's, and those of MLflow's ``log_table``; anything else stays what it is."""
    ours = {"_type": "image", "format": "npy", "file": "media/0a.npy", "caption": "four"}
    assert media_cell(ours) == {"type": "image", "file": "media/0a.npy", "format": "npy", "caption": "four"}
    wandb = {"_type": "image-file", "path": "media/images/a.PNG", "sha256": "0"}
    assert media_cell(wandb) == {"type": "image", "file": "media/images/a.PNG", "format": "png", "caption": None}
    mlflow = {"type": "image", "filepath": "table_images/a.png"}
    assert media_cell(mlflow) == {"type": "image", "file": "table_images/a.png", "format": "png", "caption": None}
    assert media_cell({"type": "image"}) is media_cell("x") is media_cell({"_type": 3}) is None
    assert media_cell({"_type": "image", "file": 3, "format": [], "caption": {}}) == {
        "type": "image", "file": "", "format": "", "caption": None,
    }  # fmt: skip
    assert pa.types.is_struct(column(ours, None, wandb).type)
    assert column(ours, {"a": 1}).type == pa.string()


def test_names_of_columns_are_each_there_once() -> None:
    """Also those that aren't texts; rows that are too short or too long lose and gain cells."""
    found = LoggedTable(table("t", None), lambda: {"columns": ["a", "a", 3], "data": [[1], [1, 2, 3, 4]]})
    assert found.columns == ["a", "a (2)", "3"]
    assert found.frame()["a (2)"].to_pylist() == [None, 2]


def test_tables_over_steps_have_all_columns() -> None:
    """A column that came later is null before; one of the table's own that is called step is step_."""
    found = run_with(
        table("t", {"columns": ["a"], "rows": [[1]]}, 1), table("t", {"columns": ["step", "a"], "rows": [[7, "x"]]}, 2)
    ).table_over_steps("t")
    assert found.column_names == ["step", "a", "step_"]
    assert found.table.to_pylist() == [{"step": 1, "a": "1", "step_": None}, {"step": 2, "a": "x", "step_": 7}]


def test_unknown_table_or_step_names_those_that_are_there() -> None:
    """The nearest name, or all; the steps."""
    data = run_with(table("predictions", {"columns": [], "rows": []}, 5))
    with pytest.raises(NotFound, match="has no table 'prediction': did you mean 'predictions'"):
        data.table("prediction")
    with pytest.raises(NotFound, match="no table 'x'; its tables: predictions"):
        data.table("x")
    with pytest.raises(NotFound, match="wasn't logged at step 6; its steps: 5"):
        data.table("predictions", step=6)
    with pytest.raises(NotFound, match="run 'two' has no tables"):
        trackers.load(str(write_run("two"))).table("x")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "holds no table"),
        ([1], "holds no table"),
        ({"columns": ["a"], "rows": [1]}, "holds no table"),
        ({"columns": "a", "rows": []}, "holds no table"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_one_error(data: Any, words: str) -> None:
    """Of our tree, naming the table."""
    with pytest.raises(Damaged, match=f"(table 't' is damaged: )?.*{words}"):
        run_with(table("t", data)).table("t")


def test_file_of_a_table_is_the_runs_own(tmp_path: Path) -> None:
    """A file outside, a link, or none at all is refused; a damaged one is named."""
    (tmp_path / "secret.json").write_text(json.dumps({"columns": ["a"], "rows": [[1]]}))
    place = write_run(
        "one",
        more=[table(name, None, file=file) for name, file in
              (("out", "../../../secret.json"), ("link", "media/link.json"), ("none", "media/0.json"),
               ("damaged", "media/1.json"), ("absolute", str(tmp_path / "secret.json")))],
    )  # fmt: skip
    (place / "media").mkdir(exist_ok=True)
    (place / "media/link.json").symlink_to(tmp_path / "secret.json")
    (place / "media/1.json").write_text('{"columns": [')
    data = trackers.load(str(place))
    for name in ("out", "link", "none", "absolute"):
        with pytest.raises(NotFound, match=r"can't be read|isn't on this disk"):
            data.table(name)
    with pytest.raises(Damaged, match="table 'damaged' is damaged"):
        data.table("damaged")


def test_parts_of_a_table_are_read_as_one() -> None:
    """``log_mode="INCREMENTAL"``: at each step the rows so far; over steps each row once; a CSV file has all."""
    parts = [
        table("t", {"columns": ["a", "b"], "rows": rows}, step, meta={"log_mode": "INCREMENTAL"})
        for step, rows in enumerate([[[1, "x"]], [[2, "y"], [3, "z"]], [[4, None]]])
    ]
    data = run_with(parts[0], table("other", {"columns": ["a"], "rows": [[9]]}, 1), *parts[1:])
    assert [(one.name, one.step, len(one)) for one in data.tables() if one.name == "t"] == [
        ("t", 0, 1), ("t", 1, 3), ("t", 2, 4),
    ]  # fmt: skip
    assert data.table("t").table.column("a").to_pylist() == [1, 2, 3, 4]
    assert data.table("t", step=1).table.column("b").to_pylist() == ["x", "y", "z"]
    over = data.table_over_steps("t").table
    assert (over.column("step").to_pylist(), over.column("a").to_pylist()) == ([0, 1, 1, 2], [1, 2, 3, 4])
    items = run_files.logged_items(data.media(), Path())
    (last,) = run_files.choose(items, "t")
    fetched, problems = run_files.fetch([last], Path(), Path("out"))
    assert problems == []
    assert fetched[0].path.read_text() == "a,b\n1,x\n2,y\n3,z\n4,\n"
