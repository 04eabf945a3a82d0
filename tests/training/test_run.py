"""The run: whatever training passes in becomes whole lines, and nothing comes back out as an exception."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import logging
import math
import os
import random
import signal
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trackers
from tests import ROOT
from trackers import Mean, records
from trackers.backends.wandb.datastore_writer import history
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader
from trackers.ranks.contribution import LocalTransport
from trackers.records import Config, Finish, Media, Metrics, Record, Start, Summary, Text
from trackers.tracker import RunInfo
from trackers.training.rank_run import RankRecorder
from trackers.training.run import Run


def journal(run: Run) -> list[Record]:
    """All records of the rank's stream; fails if any line is damaged."""
    reader = StreamReader(journal_path(run))
    found = reader.read(10**6, max_bytes=1 << 30)
    assert reader.corrupt == 0
    assert reader.size() == reader.offset
    return found


def journal_path(run: Run) -> Path:
    return Path(run.dir, "streams", "rank-0.1.jsonl")


def metrics(run: Run) -> list[Metrics]:
    return [record for record in journal(run) if isinstance(record, Metrics)]


def test_log_writes_one_line_each_with_its_step_and_time(run: Run) -> None:
    """Each call is one line; times grow; steps are those given."""
    for step in range(50):
        run.log({"loss": 1.0 / (step + 1), "lr": 0.1}, step=step)
    found = metrics(run)
    assert [record.step for record in found] == list(range(50))
    assert [record.values["loss"] for record in found] == [1.0 / (step + 1) for step in range(50)]
    times = [record.time for record in found]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "samples",
    [
        [{"prompt": "2+2", "completion": "4", "reward": 1.0}, {"prompt": "3+3", "completion": "9"}],
        {"prompt": ["2+2", "3+3"], "completion": ["4", "9"], "reward": [1.0, None]},
        pandas.DataFrame({"prompt": ["2+2", "3+3"], "completion": ["4", "9"], "reward": [1.0, None]}).astype(object),
    ],
    ids=["mappings", "columns", "frame"],
)  # fmt: skip
def test_samples_are_a_table_at_the_step_of_the_last_call(run: Run, samples: Any) -> None:
    """In any form; the steps of calls without one go on as they would have."""
    run.log({"loss": 1.0})
    run.log_samples("rollouts", samples)
    run.log({"loss": 0.5})
    run.log_samples("rollouts", samples, step=1)
    run.log_samples("rollouts", samples, step=0)
    run.log({"loss": 0.25})
    assert [record.step for record in metrics(run)] == [0, 1, 2]
    tables = [record for record in journal(run) if isinstance(record, records.Media)]
    assert [(table.name, table.step, table.type) for table in tables] == [("rollouts", at, "table") for at in (0, 1, 0)]
    assert tables[0].items[0].data["columns"] == ["prompt", "completion", "reward"]
    assert tables[0].items[0].data["rows"][0] == ["2+2", "4", 1.0]
    assert tables[0].items[0].meta == {"samples": True}


@pytest.mark.parametrize("samples", [7, "text", [1, 2], [{"a": 1}, 2], None])
def test_samples_that_are_none_are_named_once(run: Run, samples: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on."""
    with caplog.at_level(logging.WARNING, "trackers"):
        run.log_samples("rollouts", samples)
        run.log_samples("rollouts", samples)
    assert caplog.text.count("log_samples") <= 1
    assert not [record for record in journal(run) if isinstance(record, records.Media)] or samples is None


def test_saved_files_of_one_name_are_told_apart(run: Run, tmp_path: Path) -> None:
    """As in W&B: relative paths whole, of others the last directory and the name; files of ``files_dir`` from there."""
    outside, own = tmp_path.parent / f"{tmp_path.name}-outside/best", Path(run.files_dir, "own")
    for folder in (Path("last/deep"), Path("first"), outside, own):
        folder.mkdir(parents=True)
        (folder / "model.pt").write_text(str(folder))
    for pattern, name in [
        ("last/**/model.pt", "last/deep/model.pt"), ("./first/../first/model.pt", "first/model.pt"),
        (str(outside / "*.pt"), "best/model.pt"), (os.path.relpath(outside / "model.pt", Path.cwd()), "best/model.pt"),
        (str(own / "model.pt"), "own/model.pt"),
    ]:  # fmt: skip
        assert len(run.save(pattern)) == 1
        assert [record.name for record in journal(run) if isinstance(record, records.ArtifactRecord)][-1] == name
    run.save("last/deep/model.pt", base_path="last")
    assert [record.name for record in journal(run) if isinstance(record, records.ArtifactRecord)][-1] == "deep/model.pt"


def test_log_without_step_counts_by_itself(run: Run) -> None:
    """None is one more than the last; commit=False keeps the step for the next call, as in W&B."""
    run.log({"a": 1})
    run.log({"a": 2})
    run.log({"a": 3}, step=10)
    run.log({"a": 4}, commit=False)
    run.log({"b": 5})
    run.log({"a": 6})
    assert [record.step for record in metrics(run)] == [0, 1, 10, 11, 11, 12]
    run.log(step=20, commit=True)
    run.log({"a": 7}, commit=False)
    run.log(commit=True)
    run.log({"a": 8})
    assert [(record.step, record.values) for record in metrics(run) if record.values][6:] == [
        (21, {"a": 7}), (22, {"a": 8}),
    ]  # fmt: skip


def test_step_that_is_not_committed_is_kept_by_the_next_call(run: Run) -> None:
    """commit=False keeps a given step, too, on the quick way and the slow one; ``run.step`` is the last record's."""
    steps = []
    for values, step, commit in [
        ({"a": 1}, 7, False), ({"b": 2}, None, None), ({"a": 1}, 20, False), ({"a": 2}, None, False),
        ({"t": "text"}, None, None), ({"a": 3}, None, None), ({"b": 1}, 30, True), ({"m": Mean(2.0)}, None, False),
        ({"m": Mean(2.0)}, 33, False), ({"a": 1}, None, None), ({"a": 1}, 32, None), ({"a": 1}, None, None),
    ]:  # fmt: skip
        run.log(values, step=step, commit=commit)
        steps.append(run.step)
    assert steps == [7, 7, 20, 20, 20, 21, 30, 31, 33, 33, 32, 33]
    assert [record.step for record in journal(run) if isinstance(record, (Metrics, Text))] == steps


def test_steps_of_every_rank_are_those_of_the_main_one(run: Run) -> None:
    """A rank that only adds to values counts calls as the main rank does, also where a step can't be taken."""
    rank = RankRecorder(RunInfo(id="", name="", project="p"), LocalTransport())
    for step, commit in [
        (3, None), (None, False), (None, None), (9, False), (None, None), (2**63, None), (None, None), (7, False),
        ("x", False), (None, None), (2**53 - 1, None), (None, None),
    ]:  # fmt: skip
        run.log({"a": 1.0}, step=step, commit=commit)  # type: ignore[arg-type]
        assert rank.count(step, commit) == run.step  # type: ignore[arg-type]


def in_four_threads(work: Callable[[int], None]) -> None:
    """Have threads work at once, each with its number, that take turns as often as can be."""
    begun = threading.Barrier(4)

    def together(number: int) -> None:
        begun.wait()
        work(number)

    threads = [threading.Thread(target=together, args=(number,)) for number in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_threads_of_a_rank_that_give_no_step_have_steps_of_their_own() -> None:
    """Also where calls are counted on a rank that only adds to values."""
    rank = RankRecorder(RunInfo(id="", name="", project="p"), LocalTransport())
    rank.count(0, None)
    steps: list[Any] = []

    def work(_: int) -> None:
        for _ in range(20_000):
            steps.append(rank.count(None, None))

    in_four_threads(work)
    assert sorted(steps) == list(range(1, 80_001))


@pytest.mark.processes
def test_steps_are_those_of_the_real_wandb(run: Run, tmp_path: Path) -> None:
    """Any sequence of steps and commits gives each value the ``_step`` that W&B's client gives it."""
    import wandb

    chance = random.Random(7)
    folder = tmp_path / "wandb-home"
    folder.mkdir()
    theirs = wandb.init(project="p", dir=folder, mode="offline", settings=wandb.Settings(x_disable_stats=True))
    for number in range(400):
        # A call that gives a step and doesn't say commit is the one that differs, see ``Run.log``.
        step = theirs.step + chance.choice((0, 1, 1, 5)) if chance.random() < 0.5 else None
        commit = chance.choice((True, False) if step is not None else (None, True, False))
        run.log({f"k{number}": number}, step=step, commit=commit)
        theirs.log({f"k{number}": number}, step=step, commit=commit)
    theirs.finish()
    wandb.teardown()
    (path,) = folder.rglob("*.wandb")
    there = {name: row["_step"] for row in history(path) for name in row if name.startswith("k")}
    here = {name: record.step for record in metrics(run) for name in record.values}
    assert len(there) > 390  # a row that is never committed may be missing at the end
    assert {name: here[name] for name in there} == there


BOUND = 2**53 - 1


@pytest.mark.parametrize(
    ("step", "taken"),
    [
        (BOUND, BOUND), (-BOUND, -BOUND), (BOUND + 1, 11), (2**63 - 1, 11), (2**63, 11), (2**64, 11), (-(2**63), 11),
        (10**5000, 11), (1e300, 11), (math.inf, 11), (-math.inf, 11), (math.nan, 11), (np.uint64(2**64 - 1), 11),
        (np.int64(5), 5), (np.float64(5.0), 5), (np.array(5), 5), (True, 1), (5.5, 5), ("5", 5),
        ("five", 11), (np.zeros(3), 11), (b"x", 11), ([5], 11), (1j, 11),
    ],
    ids=lambda value: f"{type(value).__name__}",
)  # fmt: skip
def test_step_is_bound_where_it_enters(run: Run, step: Any, taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A step that no tracker holds costs only itself: the values have the next one, and one line says so, once."""
    run.log({"a": 1.0}, step=10)
    for name in ("a", "b"):
        run.log({name: 1.0}, step=step, commit=False)
        run.log({name: "text"}, commit=False)
    assert [record.step for record in journal(run) if isinstance(record, (Metrics, Text))] == [10] + 4 * [taken]
    said = [line for line in capsys.readouterr().err.splitlines() if "log: step" in line]
    assert len(said) == (1 if taken == 11 or step in (5.5, "5") else 0), said


def test_steps_end_at_the_bound(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """At the largest step, calls without one stay there, said once."""
    run.log({"a": 1.0}, step=BOUND)
    for _ in range(3):
        run.log({"a": 1.0})
    assert [record.step for record in metrics(run)] == [BOUND] * 4
    assert capsys.readouterr().err.count("is beyond") == 1


def test_scalars_of_every_kind_become_numbers(run: Run) -> None:
    """Python and NumPy scalars, one-element arrays, bools, decimals and huge integers are numbers."""
    values = {
        "float": 1.5, "int": 3, "bool": True, "huge": 2**70,
        "f64": np.float64(1.5), "f32": np.float32(1.5), "i64": np.int64(3), "b": np.bool_(True), "0d": np.array(2.5),
        "1e": np.array([[2.5]]), "decimal": decimal.Decimal("0.125"),
    }  # fmt: skip
    run.log(values, step=1)
    run.log(values, step=2)
    for record in metrics(run):
        assert record.values == {
            "float": 1.5, "int": 3, "bool": True, "huge": 2**70, "f64": 1.5, "f32": 1.5, "i64": 3, "b": True,
            "0d": 2.5, "1e": 2.5, "decimal": 0.125,
        }  # fmt: skip
        assert type(record.values["bool"]) is bool


def test_nan_and_infinity_are_kept(run: Run) -> None:
    """Non-finite numbers survive, before and after their names are known to the quick way."""
    for step in range(3):
        run.log({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0}, step=step)
        run.log({"a": 1.0, "b": 1e308, "c": 1e308, "d": 1e308}, step=step)
    for record in metrics(run)[::2]:
        assert math.isnan(record.values["a"])
        assert (record.values["b"], record.values["c"], record.values["d"]) == (math.inf, -math.inf, 1.0)
    assert metrics(run)[1].values["d"] == 1e308


def test_nested_mappings_are_joined_and_text_is_text(run: Run) -> None:
    """Nested names are joined with "/", text goes into a record of its own, None is left out."""
    run.log({"val": {"loss": 1.0, "top": {"k": 5}}, "note": "hello", "nothing": None}, step=4)
    found = journal(run)
    assert [r.values for r in found if isinstance(r, Metrics)] == [{"val/loss": 1.0, "val/top/k": 5}]
    assert [(r.step, r.values) for r in found if isinstance(r, Text)] == [(4, {"note": "hello"})]


def test_final_names_are_results_never_points(run: Run) -> None:
    """``final/`` values and ``run.summary`` are summary records and appear in no metrics record."""
    run.log({"final/best": 0.5, "loss": 1.0}, step=3)
    run.log({"final": {"acc": 0.9, "word": "good"}})
    run.summary["best_epoch"] = 7
    run.summary.update({"nan": math.nan})
    found: dict[str, Any] = {}
    for record in journal(run):
        if isinstance(record, Summary):
            found.update(record.values)
    assert math.isnan(float(found.pop("nan")))
    assert found == {"final/best": 0.5, "final/acc": 0.9, "final/word": "good", "best_epoch": 7}
    assert all(not name.startswith("final/") for record in metrics(run) for name in record.values)
    assert run.summary["best"] == 0.5
    assert run.summary["final/best_epoch"] == 7
    assert run.summary["loss"] == 1.0
    for name in ("loss", "best"):
        del run.summary[name]
        assert name not in run.summary
    run.log({"loss": 2.0})
    assert run.summary["loss"] == 2.0
    with pytest.raises(KeyError):
        del run.summary["nothing"]


def test_result_that_is_added_to_a_mapping_goes_with_it(run: Run) -> None:
    """``summary["d"]["new"] = 1`` outlived what ``summary["d"]`` was set to later."""
    run.summary.update({"d": {"old": 3, "deep": {"x": 4}}, "d/flat": 5})
    run.summary["d"]["new"] = 1
    run.summary["d"]["deep"]["y"] = [1, 2]
    run.summary["d"]["deep"] = {"z": 6}
    results = {"d/old": 3, "d/flat": 5, "d/new": 1, "d/deep/z": 6}
    assert run.summary == results
    run.summary["d"] = {"last": 7}
    run.finish()
    assert run.summary == trackers.load(run.path).summary == {"d/flat": 5, "d/last": 7}


def test_result_that_is_the_text_of_a_number_that_json_lacks_is_it(run: Run) -> None:
    """As in W&B's files, which have no other way to write it; other texts stay."""
    run.summary.update({"a": "NaN", "b": "-Infinity", "c": "nan", "d": " NaN"})
    run.finish()
    results = trackers.load(run.path).summary
    assert math.isnan(results.pop("a"))
    assert results == {"b": -math.inf, "c": "nan", "d": " NaN"}


def test_where_definitions_and_values_differ_from_wandbs(run: Run) -> None:
    """As docs/wandb-scripts.md says: a literal dot and a mapping are covered, and truth values count."""
    run.define_metric("layer.0", summary="max")
    run.define_metric("c/*", summary="min")
    run.define_metric("ok", summary="mean")
    for value in (3, 1):
        run.log({"layer.0": value, "c": {"q": 4 - value}, "ok": value == 3, "d": Decimal("1.5"), "f": Fraction(1, 4)})
    assert {name: metrics(run)[-1].values[name] for name in ("d", "f")} == {"d": 1.5, "f": 0.25}
    assert dict(run.summary["layer.0"]) == {"max": 3}
    assert dict(run.summary["c/q"]) == {"min": 1}
    assert dict(run.summary["ok"]) == {"mean": 0.5}


def test_results_by_word_are_read_and_set(run: Run) -> None:
    """A word that is set leaves the others, a mapping replaces all; the metric's next value is the result then."""
    run.define_metric("acc", summary="min,max")
    for value in (0.3, 0.9, 0.5):
        run.log({"acc": value})
    assert dict(run.summary["acc"]) == {"min": 0.3, "max": 0.9}
    run.summary["acc"]["min"] = 42
    assert dict(run.summary["acc"]) == {"min": 42, "max": 0.9}
    run.summary.update({"acc": {"min": -1, "max": -2}})
    assert run.summary["acc"].max == -2
    del run.summary["acc"]["max"]
    assert dict(run.summary["acc"]) == {"min": -1}
    run.log({"acc": 0.1})
    assert run.summary["acc"] == 0.1
    run.finish()
    results: dict[str, Any] = {}
    for record in journal(run):
        if isinstance(record, Summary):
            records.take_results(results, record)
    assert results == {"acc": 0.1}


PICTURE = trackers.Image(np.zeros((2, 2), np.uint8))


@pytest.mark.parametrize(
    ("before", "after", "left", "read"),
    [
        (5, None, {}, None),
        (5, {}, {}, None),
        ({"a": 1, "b": 2}, {}, {}, None),
        ({"a": 1, "b": PICTURE}, {"a": 3}, {"x/a": 3}, {"a": 3}),
        ({"a": {"b": PICTURE}, "c": 1}, 5, {"x": 5}, 5),
        ({"a": 5}, {"a": PICTURE}, {}, {"a": PICTURE}),
        (5, PICTURE, {}, PICTURE),
        ("text", [PICTURE], {}, [PICTURE]),
        ({"a": 1}, PICTURE, {}, PICTURE),
        (PICTURE, {"a": 1}, {"x/a": 1}, {"a": 1}),
        (PICTURE, None, {}, None),
        (PICTURE, 5, {"x": 5}, 5),
        (5, object(), {"x": 5}, 5),
        ({"a": 1}, object(), {"x/a": 1}, {"a": 1}),
    ],
)
@pytest.mark.parametrize("logged", [False, True])
def test_result_takes_the_place_of_what_was_set(
    run: Run, logged: bool, before: Any, after: Any, left: dict[str, Any], read: Any
) -> None:
    """Of another kind too, media, None and empty mappings, in the records and as the script reads it."""
    run.log({"x": 0.5} if logged else {"y": 0.5}, step=0)
    run.summary["other"] = 1
    run.summary["x"] = before
    run.summary["x"] = after
    found = run.summary.get("x")
    assert (dict(found) if isinstance(read, dict) else found) == read
    run.finish()
    results: dict[str, Any] = {}
    shown: set[str] = set()
    for record in journal(run):
        if isinstance(record, Summary):
            records.take_results(results, record)
            shown -= {*record.removed, *record.values}
        elif isinstance(record, Media):
            shown.add(record.name)
    assert results == {"other": 1, **left}
    assert shown == {name for name in ("x", "x/a", "x/b") if run.summary.get(name) in (PICTURE, [PICTURE])}


def test_result_of_a_resumed_run_takes_the_place_of_earlier_media(tmp_path: Path) -> None:
    """What another attempt set is replaced as what this one set."""
    options: dict[str, Any] = {"trackers": "json", "project": "p", "id": "r", "resume": "allow", "dir": tmp_path}
    with trackers.init(**options) as run:
        run.summary["x"] = {"a": 1, "b": PICTURE}
    with trackers.init(**options) as run:
        run.summary["x"] = 5
    assert [record.removed for record in AttemptHistory(RunDirectory(run.dir)).summaries()] == [[], ["x/a", "x/b"]]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "gone"),
    [({"t": {"loss": Mean(2.0)}}, {"t": 3}, "t/loss"), ({"t": {"loss": 2.0}}, {"t": Mean(3.0)}, "t/loss"),
     ({"t": Mean(2.0)}, {"t": {"loss": 1.0}}, "t"), ({"t": Mean(2.0)}, {"t": {"loss": Mean(1.0)}}, "t")],
)  # fmt: skip
def test_value_across_ranks_takes_the_place_of_a_mapping_and_the_other_way_round(
    run: Run, monkeypatch: pytest.MonkeyPatch, first: dict[str, Any], second: dict[str, Any], gone: str, quick: bool
) -> None:
    """As any other value, also where it is sent the quick way."""
    run.log(first, step=0)
    monkeypatch.setattr(LocalTransport, "quick", lambda *row: quick)
    run.log(second, step=1)
    assert [name for record in journal(run) if isinstance(record, Summary) for name in record.removed] == [gone]


@pytest.mark.parametrize("word", ["min", "max", "mean", "last", "first"])
def test_define_metric_fills_the_result(run: Run, word: str) -> None:
    """A defined summary appears as a result at the end, over what was logged before the definition too."""
    run.log({"val/loss": 3.0, "other": 0.0}, step=0)
    run.define_metric("val/*", summary=word)
    for step, value in enumerate((5.0, math.nan, 1.0, 3.0), 1):
        run.log({"val/loss": value}, step=step)
    run.finish()
    results = [record.values for record in journal(run) if isinstance(record, Summary)]
    expected = {"min": 1.0, "max": 5.0, "mean": 3.0, "last": 3.0, "first": 3.0}[word]
    assert results == [{"final/val/loss": expected}]


def test_define_metric_best_follows_the_goal_and_the_users_word_wins(run: Run) -> None:
    """ "best" is the largest value when that is the goal; a result the user set himself is not replaced."""
    run.define_metric("acc", summary="best", goal="maximize")
    run.define_metric("loss", summary="min,max")
    run.log({"acc": 0.5, "loss": 2.0})
    run.log({"acc": 0.4, "loss": 1.0})
    run.log({"final/loss.max": 99.0})
    run.finish()
    results: dict[str, Any] = {}
    for record in journal(run):
        if isinstance(record, Summary):
            results.update(record.values)
    assert results == {"final/loss.max": 99.0, "final/acc": 0.5, "final/loss.min": 1.0}


def test_summary_lists_what_can_be_read(run: Run) -> None:
    """Not a metric without a result: its name was there, and reading it raised."""
    run.define_metric("none", summary="none")
    run.define_metric("low", summary="min")
    run.define_metric("high", summary="max")
    run.log({"none": 1, "low": math.nan, "high": 4, "plain": 2, "gone": 3})
    del run.summary["gone"]
    assert dict(run.summary) == {"high": {"max": 4}, "plain": 2}
    assert len(run.summary) == 2


def test_nested_config_is_read_by_the_keys_that_were_given(run: Run) -> None:
    """As W&B's: the record has texts."""
    run.config.update({"names": {0: "cat", (1, 2): [{None: 3}]}})
    run.config.setdefaults({"more": {1: {2.5: "x"}}})
    run.config.other = [{True: 1}]
    assert run.config["names"][0] == "cat"
    assert run.config.names[1, 2][0][None] == 3
    assert run.config.more[1][2.5] == "x"
    assert run.config.other[0][True] == 1
    written = {"names": {"0": "cat", "1,2": [{"None": 3}]}, "more": {"1": {"2.5": "x"}}, "other": [{"true": 1}]}
    merged: dict[str, Any] = {}
    for record in journal(run):
        if isinstance(record, Config):
            merged.update(record.values)
    assert merged == run.config.as_dict() == written
    assert trackers.init("json", project="other", config={"n": {0: "a"}}, reinit="create_new").config.n[0] == "a"


def test_config_changes_are_recorded_and_secrets_masked(run: Run) -> None:
    """Setting, updating and nesting all end in config records; a secret's value is nowhere on disk."""
    run.config.lr = 0.1
    run.config.update({"model": {"depth": 4}, "api_key": "abcdef123456"})

    @dataclasses.dataclass
    class More:
        width: int = 8
        max_tokens: int = 512

    run.config.update(More())
    merged: dict[str, Any] = {}
    for record in journal(run):
        if isinstance(record, Config):
            records.merge(merged, record.values)
    assert merged == {"lr": 0.1, "model": {"depth": 4}, "api_key": "***", "width": 8, "max_tokens": 512}
    assert run.config["lr"] == run.config.lr == 0.1
    for path in Path(run.dir).rglob("*"):
        if path.is_file():
            assert b"abcdef123456" not in path.read_bytes()


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


BAD_VALUES: list[Any] = [
    object(), Hostile(), b"bytes", 1j, np.zeros(5), {1, 2}, lambda: 0, np.array(["a"]), [[1, 2], [3]],
    [object()],
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda value: type(value).__name__)
def test_unrecordable_value_is_named_once_and_costs_only_itself(
    run: Run, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can't be recorded is one warning line with its name; the values beside it are there."""
    for step in range(3):
        run.log({"bad_one": value, "good": step}, step=step)
    assert [record.values for record in metrics(run)] == [{"good": step} for step in range(3)]
    lines = [line for line in capsys.readouterr().err.splitlines() if "bad_one" in line]
    assert len(lines) == 1


BAD_CALLS: list[tuple[Any, Any]] = [
    ({"": 1}, 0), ({" ": 1}, 0), ({"x" * 5000: 1}, 0), ({None: 1}, 0), ({1: 2}, 0), ({("a", 1): 2}, 0),
    ({"a": 1}, "seven"), ({"a": 1}, 2.5), ({"a": 1}, math.nan), ({"a": 1}, None), ({"a": 1}, -3), ({"a": 1}, 2**80),
    ({"\ud800": 1}, 0), ({"a\nb\x1b[31m": 1}, 0), (None, 0), (5, 0), ([1], 0), ("text", 0), ({}, 0),
    ({Hostile(): 1}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("values", "step"), BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_bad_call_raises_nothing_and_leaves_whole_lines(run: Run, values: Any, step: Any) -> None:
    """Empty, absurdly long or broken names and steps: no exception, no damaged line, and the next call works."""
    run.log(values, step=step)
    run.log({"after": 1.0}, step=1)
    assert metrics(run)[-1].values == {"after": 1.0}


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.dictionaries(
        st.text(max_size=20),
        st.recursive(
            st.one_of(st.floats(), st.integers(), st.booleans(), st.text(max_size=9), st.none(), st.binary(max_size=3)),
            lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=6,
    ),
    step=st.one_of(st.none(), st.integers()),
)
def test_any_mapping_leaves_whole_lines(run: Run, values: dict[str, Any], step: int | None) -> None:
    """Whatever mapping is logged, nothing is raised and every line can be read."""
    run.log(values, step=step)
    journal(run)


@pytest.mark.heavy
def test_mapping_that_changes_while_it_is_logged(run: Run) -> None:
    """Another thread that changes the mapping costs at worst that call's values, never a line or an exception."""
    values: dict[str, Any] = {f"m{k}": float(k) for k in range(50)}
    stop = threading.Event()

    def change() -> None:
        k = 0
        while not stop.is_set():
            values[f"n{k % 200}"] = np.float32(k)
            values.pop(f"n{(k + 100) % 200}", None)
            k += 1

    thread = threading.Thread(target=change)
    thread.start()
    for step in range(2000):
        run.log(values, step=step)
    stop.set()
    thread.join()
    assert len(metrics(run)) >= 1900


@pytest.mark.parametrize("steady", [True, False])
def test_threads_that_give_no_step_have_steps_of_their_own(run: Run, steady: bool) -> None:
    """Each call has its own, in which order they are written: numbers alone, and what only the slow way records."""
    run.log({"begin": 1})

    def work(number: int) -> None:
        for count in range(200):
            run.log({f"loss/{number}": float(count) if steady or count % 2 else math.nan})

    in_four_threads(work)
    run.log({"end": 1})
    found = metrics(run)
    assert [record.step for record in found] == list(range(802))
    for number in range(4):
        assert sum(f"loss/{number}" in record.values for record in found) == 200


def test_only_threads_that_share_a_run_take_turns(run: Run) -> None:
    """A thread that logs alone isn't slowed down, whichever it is; a call that has taken its step is waited for."""
    recorder = run._recorder
    with ThreadPoolExecutor(1) as pool:
        for value in range(3):
            pool.submit(run.log, {"loss": float(value)}).result()
        assert recorder.thread > 0
        recorder.following += 1  # as in the midst of a call of the pool's thread
        threading.Timer(0.05, lambda: setattr(recorder, "step", 3)).start()
        run.log({"loss": 3.0})
        assert recorder.thread == -1
        assert recorder.step == 4
        pool.submit(run.log, {"loss": 4.0}, commit=False).result()
        run.log({"accuracy": 0.5})
    assert [record.step for record in metrics(run)] == [0, 1, 2, 4, 5, 5]


@pytest.mark.slow
def test_threads_log_into_one_stream_without_mixing(run: Run) -> None:
    """Eight threads at once: every record is there, whole."""

    def work(number: int) -> None:
        for step in range(500):
            run.log({f"t{number}": float(step), "nan": math.nan if step % 7 == 0 else 1.0}, step=step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = metrics(run)
    assert len(found) == 8 * 500
    for number in range(8):
        mine = [r.values[f"t{number}"] for r in found if f"t{number}" in r.values]
        assert mine == [float(step) for step in range(500)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Linux: fork")
def test_forked_worker_logs_and_leaves_the_run_open(run: Run) -> None:
    """A forked child's records arrive whole; its end is not the run's end."""
    run.log({"parent": 0.0}, step=0)
    child = os.fork()
    if child == 0:
        try:
            for step in range(200):
                run.log({"child": float(step), "text": "x"}, step=step)
            run.finish()
        finally:
            os._exit(0)
    for step in range(200):
        run.log({"parent": float(step)}, step=step)
    os.waitpid(child, 0)
    found = metrics(run)
    assert sum("child" in record.values for record in found) == 200
    assert sum("parent" in record.values for record in found) == 201
    assert not any(isinstance(record, Finish) for record in journal(run))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Linux: fork")
def test_child_to_which_the_run_is_left_counts_what_its_parent_logged(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since the fork, too: a daemon ends the run."""
    run.define_metric("loss", summary="min,max")
    run.log({"loss": 5.0}, step=0)
    waits, goes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(waits, 1)
            monkeypatch.setattr(run._recorder, "_owner_alive", lambda: False)
            monkeypatch.setattr(run._recorder.relay, "inherit", lambda late: True)
            run.finish()
        finally:
            os._exit(0)
    run.log({"loss": 1.0}, step=1)
    os.write(goes, b"x")
    os.waitpid(child, 0)
    assert [record.values for record in journal(run) if isinstance(record, Summary)] == [
        {"final/loss.min": 1.0, "final/loss.max": 5.0}
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Linux: fork")
def test_result_that_a_forked_child_set_is_taken_back(run: Run) -> None:
    """By None, an empty mapping, a medium, another shape or ``del`` in the parent, and in another child."""

    def in_child(values: dict[str, Any]) -> None:
        child = os.fork()
        if child == 0:
            run.summary.update(values)
            os._exit(0)
        os.waitpid(child, 0)

    run.summary["stays"] = 1
    in_child({"none": 1, "empty": {"a": 1}, "shown": 1, "flat": {"a": 1}, "gone": 1, "theirs": 1})
    run.summary.update({"none": None, "empty": {}, "shown": trackers.Histogram([1.0]), "flat": 2})
    del run.summary["gone"]
    in_child({"theirs": None})
    results: dict[str, Any] = {}
    for record in journal(run):
        if isinstance(record, Summary):
            records.take_results(results, record)
    assert results == {"stays": 1, "flat": 2}
    run.finish()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Linux: fork")
@pytest.mark.parametrize("parent_logs", [True, False], ids=["parent logs", "parent waits"])
def test_forked_worker_follows_a_journal_that_was_put_back(run: Run, parent_logs: bool) -> None:
    """The journal is deleted while parent and child log: each row of both is there once, whoever looks first."""
    ours, theirs = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for step in range(300):
                if step in (100, 200):
                    os.write(theirs[1], b".")
                    os.read(ours[0], 1)
                    run._recorder.poll(run._recorder.poll_at + 1)
                run.log({"child": float(step), **({"text": "x"} if step % 10 == 0 else {})}, step=step)
        finally:
            os._exit(0)
    for step in range(300):
        if step in (100, 200):
            os.read(theirs[0], 1)
            journal_path(run).unlink(missing_ok=True)
            if parent_logs:
                run._recorder.poll(run._recorder.poll_at + 1)
            os.write(ours[1], b".")
        if parent_logs:
            run.log({"parent": float(step)}, step=step)
    os.waitpid(child, 0)
    for fd in ours + theirs:
        os.close(fd)
    run.finish()
    found = metrics(run)
    for who in ("child", "parent") if parent_logs else ("child",):
        assert [record.values[who] for record in found if who in record.values] == [float(n) for n in range(300)]


DESCRIPTORS = """
import os, sys, trackers
run = trackers.init("json", project="p", id="r", mode="offline")
for step in range(300):
    run.log({"loss": step / 7}, step=step)
os.closerange(3, int(sys.argv[1]))
files = [open(f"checkpoint{n}.bin", "wb+") for n in range(50)]
for step in range(300, 600):
    run.log({"loss": step / 7, **({"text": "x"} if step == 310 else {})}, step=step)
run._recorder.poll(run._recorder.poll_at + 1)
for step in range(600, 1000):
    run.log({"loss": step / 7}, step=step)
run.finish()
for file in files:
    file.write(b"weights")
    file.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("last", [256, 1 << 16])
def test_program_that_closes_all_descriptors_keeps_its_files_and_its_records(last: int, tmp_path: Path) -> None:
    """As daemons do it, then files of its own: none gets a line of the journal, which lacks nothing."""
    environment = {**os.environ, "TRACKER_RELAY": "n", "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "7"}
    done = subprocess.run(
        [sys.executable, "-c", DESCRIPTORS, str(last)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert {path.read_bytes() for path in tmp_path.glob("checkpoint*.bin")} == {b"weights"}
    reader = StreamReader(tmp_path / "runs/p/r/streams/rank-0.1.jsonl")
    found = reader.read(10_000)
    assert reader.corrupt == 0
    assert [record.step for record in found if isinstance(record, Metrics)] == list(range(1000))
    assert isinstance(found[-1], Finish)


@pytest.mark.slow
def test_signal_handler_may_log(run: Run) -> None:
    """A handler that logs while log is at work gets through, and both leave whole lines."""

    def handler(_number: int, _frame: object) -> None:
        run.log({"signal": 1.0, "late": math.nan}, step=1)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for step in range(20_000):
            run.log({"loss": math.nan if step % 3 == 0 else 1.0}, step=step)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    found = metrics(run)
    assert sum("loss" in record.values for record in found) == 20_000
    assert any("signal" in record.values for record in found)


def test_after_finish_calls_do_nothing_and_say_so_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """After finish nothing is recorded, nothing is raised, and one warning says it."""
    run.log({"a": 1}, step=0)
    run.finish()
    count = len(journal(run))
    for _ in range(3):
        run.log({"a": 2}, step=1)
        run.log({"image": np.zeros(4)}, step=1)
    run.config.lr = 1
    run.summary["x"] = 1
    run.alert("late")
    run.finish()
    assert len(journal(run)) == count
    assert capsys.readouterr().err.count("log after finish") == 1


def test_context_manager_marks_the_exception_and_lets_it_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception inside ``with`` propagates, and the run is failed with its reason."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    with pytest.raises(ValueError, match="boom"), trackers.init("json", mode="offline") as run:
        raise ValueError("boom")
    assert isinstance(run, Run)
    finish = journal(run)[-1]
    assert isinstance(finish, Finish)
    assert (finish.status, finish.exit_code, finish.reason) == ("failed", 1, "ValueError: boom")


ENDINGS = [
    ("pass", 0, "finished", 0),
    ("sys.exit(0)", 0, "finished", 0),
    ("sys.exit(7)", 7, "failed", 7),
    ("sys.exit('out of memory')", 1, "failed", 1),
    ("raise ValueError('boom')", 1, "failed", 1),
    ("raise KeyboardInterrupt", -signal.SIGINT, "failed", 130),
]


@pytest.mark.parametrize(("code", "returned", "status", "exit_code"), ENDINGS, ids=[e[0] for e in ENDINGS])
def test_script_without_finish_ends_with_its_true_status(
    tmp_path: Path, code: str, returned: int, status: str, exit_code: int
) -> None:
    """Exit code 0 is finished; an exception or another code is failed; the script's own ending is unchanged."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, trackers\nrun = trackers.init('json', mode='offline', id='r', project='p')\n"
        f"run.log({{'a': 1}})\n{code}\n"
    )
    env = {**os.environ, "TRACKER_RELAY": "n"}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == returned, done.stderr
    reader = StreamReader(tmp_path / "runs/p/r/streams/rank-0.1.jsonl")
    finish = reader.read(100)[-1]
    assert isinstance(finish, Finish)
    assert (finish.status, finish.exit_code) == (status, exit_code)


def test_first_record_says_who_writes(run: Run) -> None:
    """The stream begins with its attempt, host and pid, and run.json repeats the identity."""
    start = journal(run)[0]
    assert isinstance(start, Start)
    assert (start.attempt, start.pid) == (1, os.getpid())
    identity = json.loads(Path(run.dir, "run.json").read_text())
    assert identity["id"] == run.id
    assert identity["attempts"][0]["pid"] == os.getpid()
    assert identity["cwd"] == os.getcwd()


@pytest.mark.slow
def test_run_finish_leaves_no_descriptor_and_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many runs in one process leak no file descriptor and no temporary file."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    trackers.init("json", mode="offline").finish()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(50):
        with trackers.init("json", mode="offline") as run:
            run.log({"a": 1.0})
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
    assert not [path for path in Path("runs").rglob("*") if path.name.endswith(".tmp")]


def test_other_names_of_the_same_calls(run: Run) -> None:
    """log_metrics, log_hyperparams and close are Lightning's words for log, config and finish."""
    run.log_metrics({"a": 1.0}, step=3)
    run.log_hyperparams({"lr": 0.5}, depth=2)
    assert metrics(run)[-1].step == 3
    assert run.config.as_dict() == {"lr": 0.5, "depth": 2}
    run.close()
    assert isinstance(journal(run)[-1], Finish)


def test_alerts_of_a_title_wait_as_long_as_they_are_told(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """``wait_duration`` in seconds or as a timedelta; without it each one counts, and one that is no time is named."""
    for title, wait in (("a", 600), ("a", 600), ("b", datetime.timedelta(hours=1)), ("b", datetime.timedelta(hours=1)),
                        ("a", 0), ("c", None), ("c", None), ("d", "soon")):  # fmt: skip
        run.alert(title, wait_duration=wait)
    run.finish()
    found = [record.title for record in journal(run) if isinstance(record, records.Alert)]
    assert found == ["a", "b", "a", "c", "c", "d"]
    assert "alert: wait_duration='soon': give seconds or a timedelta" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "recorded"),
    [("warning", "WARN"), (logging.ERROR, "ERROR"), ("CRITICAL", "ERROR"), (None, "INFO"), ("banana", "INFO"),
     (types.SimpleNamespace(value="WARN"), "WARN"), ("", "INFO")],
    ids=str,
)  # fmt: skip
def test_levels_of_alerts_are_those_that_trackers_know(
    level: Any, recorded: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """W&B refuses others: what ``logging`` calls them is taken for the nearest, and what is none is named."""
    run.alert("slow", level=level)
    (alert,) = [record for record in journal(run) if isinstance(record, records.Alert)]
    assert alert.level == recorded
    assert ("INFO is taken" in capsys.readouterr().err) is (level in ("banana", ""))


def test_secrets_in_alerts_are_masked_in_the_journal(run: Run) -> None:
    """As in all that is printed."""
    run.alert("login with api_key=abcdefgh12345678", "TOKEN=abcdefgh12345678 at https://ada:hunter2hunter2@host/")
    (alert,) = [record for record in journal(run) if isinstance(record, records.Alert)]
    assert (alert.title, alert.text) == ("login with api_key=***", "TOKEN=*** at https://ada:***@host/")


def test_attributes_and_alerts_are_records(run: Run) -> None:
    """Renaming, tags, notes and alerts reach the journal, where every tracker finds them."""
    run.name, run.tags, run.notes = "renamed", ("a", "b"), "why"
    run.alert("diverged", "loss is NaN", level="WARN")
    found = journal(run)
    merged: dict[str, Any] = {}
    for record in found:
        if isinstance(record, records.Info):
            merged.update(
                {k: v for k, v in (("name", record.name), ("tags", record.tags), ("notes", record.notes)) if v}
            )
    assert merged == {"name": "renamed", "tags": ["a", "b"], "notes": "why"}
    (alert,) = [record for record in found if isinstance(record, records.Alert)]
    assert (alert.title, alert.text, alert.level) == ("diverged", "loss is NaN", "WARN")
    assert (run.name, run.tags, run.notes) == ("renamed", ("a", "b"), "why")


def test_log_artifact_keeps_the_file_as_it_was(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint overwritten in place later is kept as it was when it was logged; a missing one is one warning."""
    checkpoint = Path("ckpt.pt")
    checkpoint.write_bytes(b"first")
    run.log_artifact(checkpoint, name="model", type="model")
    checkpoint.write_bytes(b"second")
    run.log_artifact("nowhere.pt")
    (artifact,) = [record for record in journal(run) if isinstance(record, records.ArtifactRecord)]
    assert Path(run.dir, artifact.files[0].file).read_bytes() == b"first"
    assert capsys.readouterr().err.count("nowhere.pt") == 1


class Scalar:
    """A number of another library."""

    def item(self) -> float:
        return 0.5


class Nothing:
    """A value that can't be recorded."""


@pytest.mark.parametrize("values", [Scalar, Nothing])
def test_log_lets_go_of_what_it_was_given(run: Run, values: Any) -> None:
    """Nothing is kept of it, of known names and of new ones."""
    left = []
    for step in range(200):
        value = values()
        left.append(weakref.ref(value))
        run.log({"loss": value, f"new/{step}": value}, step=step)
        run.log({"loss": value}, step=step)
    del value
    assert [one for one in left if one() is not None] == []
