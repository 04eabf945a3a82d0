"""Tables in W&B: as its own client sends those that change, or are logged in parts."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ROOT, forked
from tests.backends.wandb.support import driver, offline_rows
from tests.helpers import T0, stream
from tests.stores import wandb_records
from trackers.backends.wandb import client
from trackers.media import Histogram, Html, Image, RunMedia, Table
from trackers.records import Media, Metrics
from trackers.tracker import Status

SCRIPT = """
import sys
import numpy as np
if sys.argv[1] == "ours":
    import trackers
    trackers.install_as_wandb()
import wandb
run = wandb.init(project="tables", settings=wandb.Settings(x_disable_stats=True, console="off"))
parts = wandb.Table(columns=["a", "b"], log_mode="INCREMENTAL")
changing = wandb.Table(columns=["a"], data=[[0]], log_mode="MUTABLE")
for step in range(4):
    parts.add_data(step, "x")
    parts.add_data(step, "y")
    run.log({"parts": parts})
    changing.add_data(step)
    run.log({"changing": changing})
image, points = np.zeros((2, 3), np.uint8), np.zeros((2, 3))
run.summary["histogram"] = wandb.Histogram(np_histogram=([1, 2], [0, 1, 2]))
run.summary["image"] = wandb.Image(image, caption="c", masks={"m": {"mask_data": image, "class_labels": {0: "none"}}})
run.summary["images"] = [wandb.Image(image), wandb.Image(image + 1)]
run.summary["page"] = wandb.Html("<p>x</p>")
run.summary["points"] = wandb.Object3D(points)
for name in ("gone", "replaced"):
    run.summary[name] = wandb.Html("<p>y</p>")
    assert name in run.summary.keys()
del run.summary["gone"]
run.summary["replaced"] = 5
assert run.summary["replaced"] == 5 and "gone" not in run.summary.keys()
run.summary["none"] = run.summary["shown"] = run.summary["emptied"] = 5
run.summary["none"] = None
run.summary["shown"] = wandb.Html("<p>z</p>")
run.summary["emptied"] = {}
run.summary["nested"] = {"page": wandb.Html("<p>w</p>")}
run.summary["nested"] = 6
run.summary["table"] = wandb.Table(columns=["a"], data=[[1]])
run.log({"last": 1})
run.finish()
"""
FIELDS = ("_type", "ncols", "nrows", "log_mode", "increment_num")
RESULTS = (
    "histogram",
    "image",
    "images",
    "page",
    "points",
    "table",
    "gone",
    "replaced",
    "none",
    "shown",
    "emptied",
    "nested",
    "nested/page",
    "last",
)
PLACES = ("artifact_path", "_latest_artifact_path", "filenames", "path", "sha256", "size")
"""What a medium's description says of its file, which has another name each time."""


def left_by(which: str, place: Path) -> tuple[list[Any], Any]:
    """Of each table that was logged what its row says and which rows its file has; and the results."""
    folder = place / which
    folder.mkdir()
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKER": "wandb",
                   "TRACKER_INLINE": "y", "PYTHONPATH": str(ROOT)}  # fmt: skip
    done: subprocess.CompletedProcess[str] = forked.run(
        [sys.executable, "-c", SCRIPT, which], cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = folder.rglob("*.wandb")
    tables: list[Any] = []
    summary: dict[str, Any] = {}
    for record in wandb_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "summary":
            summary |= nested(record.summary.update)
            for item in record.summary.remove:
                summary.pop("/".join(item.nested_key) or item.key, None)
        for name, value in nested(record.history.item).items() if kind == "history" else ():
            assert name not in RESULTS[:-1]
            if isinstance(value, dict):
                content = json.loads((path.parent / "files" / value["path"]).read_text())
                before = len(value.get("previous_increments_paths", ()))
                tables.append((name, {field: value.get(field) for field in FIELDS}, before, content["data"]))
    return tables, {name: placeless(summary.get(name) or None) for name in RESULTS}


def placeless(value: Any) -> Any:
    """A medium's description but for where it lies."""
    if isinstance(value, dict):
        return {name: placeless(part) for name, part in value.items() if name not in PLACES}
    return list(map(placeless, value)) if isinstance(value, list) else value


def nested(items: Any) -> dict[str, Any]:
    """Values by name; W&B's client writes those of a mapping one by one."""
    found: dict[str, Any] = {}
    for item in items:
        *outer, name = [item.key] if item.key else item.nested_key
        place = found
        for part in outer:
            place = place.setdefault(part, {})
        place[name] = json.loads(item.value_json)
    return found


@pytest.mark.processes
def test_tables_that_grow_or_change_are_sent_as_by_wandbs_client(tmp_path: Path) -> None:
    """Parts with the rows that are new, each naming those before; a table that changed, anew."""
    (tables, result), (own_tables, own_result) = left_by("real", tmp_path), left_by("ours", tmp_path)
    assert len(tables) == 8
    assert own_tables == tables
    assert own_result == result


@pytest.mark.processes
def test_part_of_a_table_is_the_same_one_when_it_is_sent_again(tmp_path: Path) -> None:
    """After a kill a part keeps its number, those after it name it once, and each counts the rows up to its end."""
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    table, store = Table(["a"], log_mode="INCREMENTAL"), RunMedia(tmp_path / "run")
    records = []
    for step in range(4):
        table.add_data(step)
        records.append(Media(step=step, time=T0 + step, name="t", type="table", items=table.items(store)))
    records = stream(records)
    assert table.items(store) == []
    run.open()
    run.write(records[:2])
    run.write(records[:3], commit=False)
    client.abandon()
    again = driver(tmp_path, options={"WANDB_MODE": "offline"})
    again.state, again.cursor = run.state, run.cursor
    again.deliver(records, status=Status("finished", 0, T0 + 9))
    parts = {row["_step"]: (row["t"]["increment_num"], len(row["t"]["previous_increments_paths"]), row["t"]["nrows"])
             for row in offline_rows(tmp_path)}  # fmt: skip
    assert parts == {step: (step, step, step + 1) for step in range(4)}


@pytest.mark.parametrize(
    "cells",
    [
        [1, "a", None, 2.5, [1], {"a": 1}],
        [[1], ["a"], [], [[1]]],
        [{"a": 1}, {"a": "x"}, {"b": []}],
        [True, 1, "x"],
        [{"type": "image", "format": "jpeg", "width": 3}, {"type": "audio", "format": "wav", "file": "a.wav"}],
        [{"_type": "image", "format": "png"}, {"_type": "table", "format": "csv", "data": 3}, {"_type": ["image"]}],
    ],
)
def test_cells_may_differ_in_type_from_row_to_row(cells: list[Any], tmp_path: Path) -> None:
    """Also within lists and mappings, which may have keys like a medium's."""
    items = Table(["a"], [[cell] for cell in cells]).items(RunMedia(tmp_path / "run"))
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(
        stream([Media(step=0, time=T0, name="t", type="table", items=items)])
    )
    (row,) = offline_rows(tmp_path)
    (path,) = tmp_path.rglob("*.table.json")
    assert (row["t"]["nrows"], [row[0] for row in json.loads(path.read_text())["data"]]) == (len(cells), cells)


def test_media_within_a_cell_arrive(tmp_path: Path) -> None:
    """A list of pictures, or a mapping with one, was what the journal says of them, without the files."""
    picture, page = Image(np.zeros((2, 3), np.uint8), caption="c"), Html("<p>x</p>")
    cells = [[picture, picture], {"i": picture, "n": 1}, [1, page], [[picture]], [], ["NaN", "word"], picture]
    (tmp_path / "run").mkdir()
    items = Table(["a"], [[cell] for cell in cells]).items(RunMedia(tmp_path / "run"))
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(
        stream([Media(step=0, time=T0, name="t", type="table", items=items)])
    )
    (path,) = tmp_path.rglob("*.wandb")
    (artifact,) = [record.artifact for record in wandb_records(path) if record.HasField("artifact")]
    assert [Path(file.path).suffix for file in artifact.manifest.contents] == [".html", ".png", ".json"]
    found = json.loads(Path(artifact.manifest.contents[-1].local_path).read_text())["data"]
    shape = {"_type": "image-file", "caption": "c", "format": "png", "height": 2, "width": 3}
    kinds = [[shape, shape], {"i": shape, "n": 1}, [1, {"_type": "html-file"}], [[shape]], []]
    assert str(placeless([row[0] for row in found])) == str([*kinds, ["NaN", "word"], shape])


@pytest.mark.parametrize(
    "cells",
    [
        ["NaN", "word"], ["Infinity", None, "War"], ["-Infinity", {"a": 1}, "x"], [math.nan, 1.5, -math.inf],
        [[1.5, math.nan], []], [["NaN", "word"]], [{"a": math.nan}], [math.inf, None],
        [1, "a", math.nan, None, -math.inf], [["b", 0.5, math.nan]], ["NaN", True, "word"],
    ],
)  # fmt: skip
def test_word_that_names_a_number_stays_one_among_words(cells: list[Any], tmp_path: Path) -> None:
    """A column of films had Infinity, the number. NaN was a word in lists and mappings, and among texts and numbers."""
    items = Table(["a", "b"], [[cell, 1.0] for cell in cells]).items(RunMedia(tmp_path / "run"))
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(
        stream([Media(step=0, time=T0, name="t", type="table", items=items)])
    )
    (path,) = tmp_path.rglob("*.table.json")
    assert str([row[0] for row in json.loads(path.read_text())["data"]]) == str(cells)


def test_histogram_in_a_cell_is_its_counts(tmp_path: Path) -> None:
    """W&B's tables take none: the delivery ended there. Beside other cells, some None, and large enough for a file."""
    small, large = ([0.0, 1.0, 1.0], 2), (list(range(5000)), 512)
    rows = [[name, Histogram(values, num_bins=bins)] for name, (values, bins) in (("small", small), ("large", large))]
    items = Table(["name", "h"], [*rows, ["none", None]]).items(RunMedia(tmp_path / "run"))
    table = Media(step=0, time=T0, name="t", type="table", items=items)
    after = Metrics(step=1, time=T0 + 1, values={"after": 1.0})
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(stream([table, after]))
    first, second = offline_rows(tmp_path)
    assert (first["t"]["nrows"], second["after"]) == (3, 1.0)
    (path,) = tmp_path.rglob("*.table.json")
    (_, one), (_, other), none = json.loads(path.read_text())["data"]
    assert one == {"_type": "histogram", "values": [1, 2], "bins": [0.0, 0.5, 1.0]}
    assert sum(other["values"]) == 5000
    assert none == ["none", None]
