"""What a script that was written for W&B logs is in each store, read back without our writers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from tests.as_wandb import test_wandb_files
from tests.frameworks.support import READ
from tests.stores import wandb_files, wandb_records
from trackers.as_wandb.init import init
from trackers.copying import copy
from trackers.journal.run_directory import RunDirectory
from trackers.readers.run_data import load
from trackers.records import name_floats
from trackers.values.coerce import MAX_TEXT


@pytest.mark.slow
@pytest.mark.processes  # W&B's client
def test_five_stores_hold_what_a_script_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in parts of a row, nested, at steps that go on by themselves; lists and long arrays; an axis; results."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').absolute()}")
    monkeypatch.setenv("TRACKER", "json,tensorboard,mlflow,trackio,wandb")
    monkeypatch.setenv("TRACKER_INLINE", "y")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run: Any = init(project="p", name="five", config={"lr": 0.5, "model": {"depth": 2}}, mode="offline")
    run.define_metric("val/*", step_metric=run.define_metric("epoch"))
    for epoch in range(3):
        run.log({"train": {"error": 1.0 / (epoch + 1)}}, commit=False)
        run.log({"rate": 0.5})
        run.log({"epoch": epoch * 10, "val/acc": epoch / 4})
    run.log({"per_class": [0.25, 0.5], "weights": np.arange(64.0)}, step=20)
    run.log({"train/error": 0.125})
    run.summary["best"] = 0.5
    run.finish(timeout=120)
    info = RunDirectory(Path(run.path)).read_info()
    rows = {"train/error": [1.0, 0.5, 1 / 3, 0.125], "rate": [0.5] * 3, "val/acc": [0.0, 0.25, 0.5]}
    steps = {"train/error": [0, 2, 4, 20], "rate": [0, 2, 4], "val/acc": [1, 3, 5]}
    for tracker, read in READ.items():
        stored = read(info)
        at = steps if tracker not in ("tensorboard", "mlflow") else {**steps, "val/acc": [0, 10, 20]}
        for name, values in rows.items():
            wanted = list(zip(at[name], map(pytest.approx, values), strict=True))
            assert [(one.step, one.value) for one in stored.metrics[name]] == wanted, (tracker, name)
        assert stored.status in ("finished", "FINISHED"), tracker
        if tracker == "wandb":
            (file,) = wandb_files(info)
            assert (20, [0.25, 0.5]) in [
                (step, row.get("per_class")) for step, row in test_wandb_files.read(file)[1].rows
            ]
        elif tracker != "mlflow":  # its texts are files
            assert stored.texts is not None
            assert stored.texts["per_class"] == [(20, "[0.25, 0.5]")], tracker


@pytest.mark.processes  # W&B's client
def test_result_beside_its_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """``final/acc`` and ``acc`` are two names in W&B's summary, and one result elsewhere: the one that was set last."""
    for name, value in {"TRACKER": "wandb,json", "TRACKER_INLINE": "y", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WANDB_DIR", raising=False)

    def results(*calls: Callable[[Any], object]) -> tuple[dict[str, Any], Any]:
        run: Any = init(project="p", mode="offline", reinit="create_new")
        for call in calls:
            call(run)
        run.finish(timeout=120)
        (file,) = Path(run.path).rglob("*.wandb")
        (log,) = Path(run.path).glob("*_*.json")
        updates = [update for record in wandb_records(file) for update in record.summary.update]
        theirs = {update.key: json.loads(update.value_json) for update in updates if update.key.endswith("acc")}
        return theirs, json.loads(log.read_text())["summary"].get("acc")

    def final(run: Any) -> object:
        return run.log({"final/acc": 0.75})

    def value(run: Any) -> object:
        return run.log({"acc": 0.5})

    def later(run: Any) -> object:
        return run.log({"acc": 0.25})

    def set_plain(run: Any) -> object:
        return run.summary.update({"acc": 9.0})

    def most(run: Any) -> object:
        return run.define_metric("acc", summary="max")

    assert results(value, final, later) == ({"acc": 0.25, "final/acc": 0.75}, 0.75)
    assert results(final, value) == ({"acc": 0.5, "final/acc": 0.75}, 0.75)
    assert results(final, value, set_plain) == ({"acc": 9.0, "final/acc": 9.0}, 9.0)
    assert results(value, set_plain) == ({"acc": 9.0}, 9.0)
    assert results(most, value, later) == ({"acc": {"max": 0.5}, "final/acc": 0.5}, 0.5)
    assert results(most, value, final) == ({"acc": {"max": 0.5}, "final/acc": 0.75}, 0.75)


@pytest.mark.processes  # W&B's client
def test_lists_are_lists_in_w_and_bs_file_and_texts_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN within them, too; the same list again at a step is no second value; texts that look like lists stay texts.

    Readers give the journal's texts, and a copy of W&B's file knows the lists.
    """
    for name, value in {"TRACKER": "wandb", "TRACKER_INLINE": "y", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    config = {"nan": math.nan, "bounds": [-math.inf, math.inf]}
    run: Any = init(project="p", name="lists", mode="offline", config=config)
    row = {"x": [0.25, math.nan], "deep": {"y": [[1], {"a": None}]}, "s": {3}, "e": (), "a": np.arange(2)}
    row["words"] = ["NaN", "of bread"]
    run.log({**row, "text": "[0.25, 0.5]", "huge": ["a" * MAX_TEXT]}, step=3)
    run.log({"x": [0.25, math.nan], "e": [0.5]}, step=3)
    run.summary["result"] = [[3, math.inf], [0, 4]]
    run.summary.update({"words": ["a", "NaN"], "told": "[1]"})
    run.log({"final/shape": [2, 3]})
    run.finish(timeout=120)
    lists = {"x": [0.25, math.nan], "deep/y": [[1], {"a": None}], "s": [3], "e": [], "a": [0, 1]}
    lists["words"] = ["NaN", "of bread"]
    results = {"result": [[3, math.inf], [0, 4]], "words": ["a", "NaN"]}
    (file,) = Path(run.path).rglob("*.wandb")
    _, left = test_wandb_files.read(file)
    (_, first), (_, second) = left.rows
    assert first.pop("huge").startswith('["aaaa')
    assert str(first) == str({**lists, "text": "[0.25, 0.5]"})
    assert second == {"e": [0.5]}
    assert {name: left.summary[name] for name in (*results, "told")} == {**results, "told": "[1]"}
    (report,) = copy(f"wandb-file:{file}", "copied")
    assert report.agrees, str(report)
    for source in (str(run.path), f"wandb-file:{file}", report.destination):
        found = load(source)
        texts = {name: text for record in found.texts() for name, text in record.values.items() if record.step == 3}
        known = {name for record in found.texts() for name in record.lists}
        assert known == set(lists)
        wanted = {name: json.dumps(name_floats(value)) for name, value in lists.items()}
        assert {**texts, "e": "[]"}.items() >= wanted.items()
        assert found.summary["result"] == '[[3, "Infinity"], [0, 4]]'
        assert str(found.config) == str(config)
        given = [found.summary[name] for name in ("words", "told", "shape")]
        assert given == ['["a", "NaN"]', "[1]", "[2, 3]"]


@pytest.mark.processes  # W&B's client
def test_copy_of_a_table_tells_texts_from_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of W&B's file, into a journal and from there into W&B's again."""
    for name, value in {"TRACKER": "wandb", "TRACKER_INLINE": "y", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    rows = [["NaN", 1.0, ["NaN", 2]], ["Infinity", math.nan, [-math.inf]]]
    run: Any = init(project="p", name="table", mode="offline")
    run.log({"t": trackers.Table(columns=["text", "number", "list"], data=rows)})
    run.finish(timeout=120)
    (file,) = Path(run.path).rglob("*.wandb")
    (report,) = copy(f"wandb-file:{file}", "copied")
    monkeypatch.setenv("WANDB_DIR", "again")
    monkeypatch.setenv("WANDB_MODE", "offline")
    list(copy(report.destination, "wandb:p"))
    files = [file, *Path("again").rglob("*.wandb")]
    assert len(files) == 2
    for one in files:
        (table,) = test_wandb_files.read(one)[1].media["t"]
        assert table == json.dumps([["text", "number", "list"], rows])
