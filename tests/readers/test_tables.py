"""Tables of other programs, as CSV and as JSON lines: what their columns mean is found out, and said."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.test_text_file import PACKINGS
from trackers.errors import Damaged, NotFound
from trackers.readers import registry
from trackers.readers.csv import judged
from trackers.readers.row_layout import plain_name
from trackers.records import Config, Metrics, Record, Text

WRITTEN = 1_790_000_000.0


def read(path: Path, scheme: str = "") -> tuple[list[Record], Any]:
    """A file's records, written at :data:`WRITTEN`, and its run."""
    os.utime(path, (WRITTEN, WRITTEN))
    reader, (run,) = registry.open_source(f"{scheme}:{path}" if scheme else str(path))
    return list(reader.read(run)), run


def rows(records: list[Record]) -> list[tuple[int | None, float, dict[str, Any]]]:
    return [(each.step, each.time, each.values) for each in records if isinstance(each, Metrics)]


def table(
    place: Path, text: str, name: str = "table.csv"
) -> tuple[list[tuple[int | None, float, dict[str, Any]]], str]:
    (place / name).write_text(text, encoding="utf-8")
    records, run = read(place / name)
    return rows(records), run.note


def steps(place: Path, text: str, name: str = "table.csv") -> list[tuple[int | None, dict[str, Any]]]:
    return [(step, values) for step, _, values in table(place, text, name)[0]]


def test_ultralytics_table(tmp_path: Path) -> None:
    """Its ``time`` counts from the start, its steps are epochs, heads may be padded, and its settings lie beside."""
    text = "     epoch,   time,   train/box_loss\n   1,  10.5,  1.5\n   2,  20.5,  1.25\n   3,  31.5,  1.0\n"
    (tmp_path / "results.csv").write_text(text)
    (tmp_path / "args.yaml").write_text("lr0: 0.01\nmodel: yolo.yaml\n")
    records, run = read(tmp_path / "results.csv")
    start = WRITTEN - 31.5
    assert rows(records) == [(epoch, start + at, {"epoch": epoch, "train/box_loss": loss})
                             for epoch, at, loss in ((1, 10.5, 1.5), (2, 20.5, 1.25), (3, 31.5, 1.0))]  # fmt: skip
    assert [each.values for each in records if isinstance(each, Config)] == [{"lr0": 0.01, "model": "yolo.yaml"}]
    assert (run.name, run.created) == (tmp_path.name, start + 10.5)
    assert run.note.startswith("steps are its 'epoch'; times are its 'time', counted from the start")


def test_monitor_of_stable_baselines(tmp_path: Path) -> None:
    """A comment of JSON says when it began; an episode stands at the timesteps so far."""
    text = '#{"t_start": 1770000000.25, "env_id": "Hopper-v5"}\nr,l,t\n10.5,20,1.5\n12.25,33,2.75\n'
    (tmp_path / "monitor.csv").write_text(text)
    records, run = read(tmp_path / "monitor.csv")
    assert rows(records) == [(20, 1770000001.75, {"r": 10.5, "l": 20, "t": 1.5}),
                             (53, 1770000003.0, {"r": 12.25, "l": 33, "t": 2.75})]  # fmt: skip
    (config,) = (each for each in records if isinstance(each, Config))
    assert config.values == {"t_start": 1770000000.25, "env_id": "Hopper-v5"}
    assert run.note == "steps are the sum of its 'l'"
    for plain, more in (("r,l,t\n", "r,l,t,is_success\n"), ("1.5\n", "1.5,False\n"), ("2.75\n", "2.75,True\n")):
        text = text.replace(plain, more)
    (tmp_path / "monitor.csv").write_text(text)  # with words of the environment's info
    assert rows(read(tmp_path / "monitor.csv")[0])[1] == (
        53, 1770000003.0, {"r": 12.25, "l": 33, "t": 2.75, "is_success": True}
    )  # fmt: skip


def test_lightnings_settings_beside_its_table(tmp_path: Path) -> None:
    """``hparams.yaml`` is the configuration; one that isn't plain YAML is named."""
    (tmp_path / "metrics.csv").write_text("epoch,step,loss\n0,9,0.5\n")
    (tmp_path / "hparams.yaml").write_text("lr: 0.1\nlayers: [1, 2]\n")
    records, run = read(tmp_path / "metrics.csv")
    assert next(each.values for each in records if isinstance(each, Config)) == {"lr": 0.1, "layers": [1, 2]}
    before = registry.load("csv")().version(run)
    (tmp_path / "hparams.yaml").write_text("lr: !!python/object:os.system 1\n")
    records, run = read(tmp_path / "metrics.csv")
    assert not any(isinstance(each, Config) for each in records)
    assert "hparams.yaml isn't read" in run.note
    assert registry.load("csv")().version(run) != before


@pytest.mark.parametrize(
    ("text", "found", "said"),
    [
        ("step;loss\n0;0,5\n10;1.234,25\n", [(0, {"loss": 0.5}), (10, {"loss": 1234.25})],
         "cells are parted by semicolons; a comma is a number's point; thousands are grouped"),
        ('step,loss\n0,"0,5"\n1,"0,25"\n', [(0, {"loss": 0.5}), (1, {"loss": 0.25})], "a comma is a number's point"),
        ('step,tokens\n1,"1,000"\n2,"2,000,000.5"\n', [(1, {"tokens": 1000}), (2, {"tokens": 2000000.5})],
         "thousands are grouped"),
        (",step,loss\n0,10,1\n1,20,2\n", [(10, {"loss": 1}), (20, {"loss": 2})], ""),
        ("Unnamed: 0,epoch,loss\n0,1,0.5\n", [(1, {"epoch": 1, "loss": 0.5})], "steps are its 'epoch'"),
        (",step,loss\n7,10,1\n", [(10, {"column 1": 7, "loss": 1})], ""),
        ("  step ,  loss  , lr \n   1 ,  2.5 , 0.1\n  20 , 11.25 , 0.01\n",
         [(1, {"loss": 2.5, "lr": 0.1}), (20, {"loss": 11.25, "lr": 0.01})], ""),
        ("step;loss;tokens;lr\n1;2,5;1.024;0.001\n2;2,25;1.002.500;0,001\n",
         [(1, {"loss": 2.5, "tokens": 1024, "lr": 0.001}), (2, {"loss": 2.25, "tokens": 1002500, "lr": 0.001})],
         "cells are parted by semicolons; a comma is a number's point; thousands are grouped"),
        ("step,time,loss\n-,s,-\n1,0.5,2.5\n2,1.0,2.25\n", [(1, {"loss": 2.5}), (2, {"loss": 2.25})],
         "the row below the head has units: - s -; times are its 'time', counted from the start"),
        ("step,loss,note\n1,2.5,a\n2,2.25,b\n3,2.0,c\n", [(1, {"loss": 2.5}), (2, {"loss": 2.25}), (3, {"loss": 2.0})],
         ""),
        ("run_id,key,value,step\nab,loss,0.5,0\nab,acc,0.25,0\ncd,loss,0.75,0\n",
         [(0, {"loss": 0.5}), (0, {"acc": 0.25}), (0, {"cd/loss": 0.75})], ""),
        ("step,loss,,\n1,2,,\n3,4,5,\n", [(1, {"loss": 2}), (3, {"loss": 4, "column 3": 5})], ""),
        ("1,0.5\n2,0.25\n", [(0, {"column 1": 1, "column 2": 0.5}), (1, {"column 1": 2, "column 2": 0.25})],
         "it has no head: columns are numbered; it has no steps: rows are counted"),
        ("sep=;\nstep;loss\n1;2\n", [(1, {"loss": 2})], "cells are parted by semicolons"),
        ("step   loss  acc\n1  2.5  0.5\n  2  2.25  0.75\n", [(1, {"loss": 2.5, "acc": 0.5}),
         (2, {"loss": 2.25, "acc": 0.75})], "cells are parted by blanks"),
        ("# made by hand\n\nstep|loss\n1|2\n", [(1, {"loss": 2})], "cells are parted by vertical bars"),
        ("step,loss,acc\n1,NA,0.5\n2,0.5,None\n", [(1, {"acc": 0.5}), (2, {"loss": 0.5})], ""),
        ("step,loss\n1,2\nstep,loss\n3,4\n", [(1, {"loss": 2}), (3, {"loss": 4})], ""),
        ("step,loss\n1,2\n3,4,5\n", [(1, {"loss": 2}), (3, {"loss": 4})], "a row has more cells than the head"),
        ("Global_Step , Loss [nats]\n 4 , 1.5 \n", [(4, {"Loss [nats]": 1.5})], ""),
        ("time/total_timesteps,rollout/ep_rew_mean\n2048,21.5\n", [(2048, {"rollout/ep_rew_mean": 21.5})], ""),
        ("epoch,loss\n0.5,2\n1.0,1\n", [(0, {"epoch": 0.5, "loss": 2}), (1, {"epoch": 1.0, "loss": 1})],
         "it has no steps: rows are counted"),
        ("epoch,time,loss\n1,0.35,2\n2,0.34,1\n", [(1, {"epoch": 1, "time": 0.35, "loss": 2}),
         (2, {"epoch": 2, "time": 0.34, "loss": 1})], "steps are its 'epoch'"),
    ],
)  # fmt: skip
def test_dialects(text: str, found: list[Any], said: str, tmp_path: Path) -> None:
    """Delimiters, decimal commas, thousands, index columns, missing heads and cells, comments and padding."""
    assert steps(tmp_path, text) == found
    assert table(tmp_path, text)[1].startswith(said)
    assert (said == "") == (table(tmp_path, text)[1] == "")


@pytest.mark.parametrize(
    ("head", "cells", "times"),
    [
        ("time", ["1700000000.5", "1700000001.5"], [1700000000.5, 1700000001.5]),
        ("timestamp", ["1700000000500", "1700000001500"], [1700000000.5, 1700000001.5]),
        ("ts", ["1700000000500000000"], [1700000000.5]),
        ("Timestamp", ["2026-01-02T10:00:00Z", "2026-01-02T10:00:10+00:00"], [1767348000.0, 1767348010.0]),
        ("date", ["2026-01-02_10-00-00", "2026/01/02 10:00:10"], [1767348000.0, 1767348010.0]),
        ("date", ["02.01.2026 10:00", "02.01.2026 10:01"], [1767348000.0, 1767348060.0]),
        ("time (min)", ["0.5", "1.0", "2.0"], [WRITTEN - 90, WRITTEN - 60, WRITTEN]),
        ("time [ms]", ["500", "1500"], [WRITTEN - 1, WRITTEN]),
        ("time", ["0.5", "0.4", "0.6"], [WRITTEN] * 3),
    ],
)
def test_times(
    head: str, cells: list[str], times: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamps in any unit, dates, seconds from the start by the end; what each row took is none of them."""
    monkeypatch.setenv("TZ", "UTC")
    text = "\n".join([f"step,{head},loss", *(f"{step},{cell},1" for step, cell in enumerate(cells))]) + "\n"
    (tmp_path / "table.csv").write_text(text)
    records, _ = read(tmp_path / "table.csv")
    assert [time for _, time, _ in rows(records)] == pytest.approx(times, abs=1e-6)


def test_wide_and_long_heads_are_read_in_one_pass(tmp_path: Path) -> None:
    """A hundred thousand columns of one name, and a name of as many blanks: neither is compared with all before it."""
    (found,) = steps(tmp_path, "step" + ",x" * 100_000 + "\n1" + ",2" * 100_000 + "\n")
    assert (found[0], len(found[1]), found[1]["x"], found[1]["x.99999"]) == (1, 100_000, 2, 2)
    assert plain_name("a" + " " * 100_000 + "b(") == "a" + " " * 100_000 + "b("
    assert (plain_name("Loss [nats] "), plain_name("(s)"), plain_name("time (min)")) == ("loss", "", "time")


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
NAME = st.text(st.sampled_from("abcdefgh /_()"), min_size=1, max_size=8).map(lambda name: "m" + name.strip())


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(NAME, min_size=1, max_size=5, unique=True),
    data=st.data(),
    form=st.sampled_from([(",", "."), (";", ","), ("\t", "."), ("|", ".")]),
)
def test_generated_tables_are_read_back(
    names: list[str], data: st.DataObject, form: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is written by Python's ``csv`` in a usual dialect has its values, steps and names again."""
    delimiter, point = form
    values = data.draw(st.lists(st.lists(FINITE, min_size=len(names), max_size=len(names)), min_size=1, max_size=6))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["step", *names])
    writer.writerows([number, *(repr(value).replace(".", point) for value in row)] for number, row in enumerate(values))
    found = steps(tmp_path_factory.mktemp("table"), text.getvalue())
    assert found == [(number, dict(zip(names, row, strict=True))) for number, row in enumerate(values)]


def lines(*objects: Any) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in objects)


def test_llama_factorys_log(tmp_path: Path) -> None:
    """Its steps are ``current_steps``, its times the elapsed ones; durations are seconds."""
    text = lines(
        {"current_steps": 10, "total_steps": 20, "loss": 2.5, "lr": 1e-4, "epoch": 0.5, "elapsed_time": "0:00:35",
         "remaining_time": "0:00:35"},
        {"current_steps": 10, "total_steps": 20, "eval_loss": 2.25, "epoch": 0.5, "elapsed_time": "0:00:40"},
        {"current_steps": 20, "total_steps": 20, "loss": 2.0, "elapsed_time": "1 day, 0:01:15"},
    )  # fmt: skip
    found, note = table(tmp_path, text, "trainer_log.jsonl")
    start = WRITTEN - 86_475
    assert [(step, time) for step, time, _ in found] == [(10, start + 35), (10, start + 40), (20, WRITTEN)]
    assert found[0][2] == {"total_steps": 20, "loss": 2.5, "lr": 1e-4, "epoch": 0.5, "elapsed_time": 35.0,
                           "remaining_time": 35.0}  # fmt: skip
    assert "times are its 'elapsed_time', counted from the start" in note


def test_mmengines_scalars(tmp_path: Path) -> None:
    """``time`` is what an iteration took; a validation's step is its epoch, and becomes the training's."""
    train = [
        {"lr": 0.1, "data_time": 0.01, "loss": 1.0, "time": 0.25, "epoch": 1, "iter": at, "step": at}
        for at in (50, 100)
    ]
    found = steps(
        tmp_path, lines(*train, {"coco/bbox_mAP": 0.25, "data_time": 0.1, "time": 0.5, "step": 1}), "scalars.json"
    )
    assert [step for step, _ in found] == [50, 100, 100]
    assert found[0][1]["time"] == 0.25
    assert found[2][1]["coco/bbox_mAP"] == 0.25


def test_detectrons_metrics(tmp_path: Path) -> None:
    """``iteration`` is the step, ``time`` what an iteration took, also where that only grows; an evaluation's rows
    follow."""
    train = [{"data_time": 0.01, "eta_seconds": 90.5, "iteration": at, "loss_cls": 1.5, "lr": 0.02, "time": took,
              "total_loss": 2.5} for at, took in ((19, 0.25), (39, 0.5), (59, 0.75))]  # fmt: skip
    found, note = table(tmp_path, lines(*train, {"bbox/AP": 37.5, "iteration": 59}), "metrics.json")
    assert [(step, time) for step, time, _ in found] == [(19, WRITTEN), (39, WRITTEN), (59, WRITTEN), (59, WRITTEN)]
    assert [values.get("time", values.get("bbox/AP")) for _, _, values in found] == [0.25, 0.5, 0.75, 37.5]
    assert note == ""


def test_rllibs_results(tmp_path: Path) -> None:
    """``result.json`` and ``progress.csv``: nested values by path, the step in the environment, the times as stamps."""
    row = {"env_runners": {"episode_return_mean": 21.5}, "num_env_steps_sampled_lifetime": 4000, "time_total_s": 9.5,
           "training_iteration": 1, "timestamp": 1770000000, "config": {"lr": 0.001}}  # fmt: skip
    later = {**row, "num_env_steps_sampled_lifetime": 8000, "training_iteration": 2, "timestamp": 1770000010}
    (tmp_path / "result.json").write_text(lines(row, later))
    records, _ = read(tmp_path / "result.json")
    assert [(step, time) for step, time, _ in rows(records)] == [(4000, 1770000000.0), (8000, 1770000010.0)]
    assert rows(records)[0][2]["env_runners/episode_return_mean"] == 21.5
    assert [each.values for each in records if isinstance(each, Config)] == [{"lr": 0.001}]
    head = "env_runners/episode_return_mean,num_env_steps_sampled_lifetime,timestamp,training_iteration"
    text = f"{head}\n21.5,4000,1770000000,1\n22.5,8000,1770000010,2\n"
    assert [(step, time) for step, time, _ in table(tmp_path, text, "progress.csv")[0]] == [
        (4000, 1770000000.0), (8000, 1770000010.0)]  # fmt: skip


def test_timms_summary(tmp_path: Path) -> None:
    """Its steps are epochs, its settings lie beside."""
    (tmp_path / "args.yaml").write_text("model: resnet50\nlr: 0.5\n")
    head = "epoch,train_loss,eval_loss,eval_top1,lr"
    (tmp_path / "summary.csv").write_text(f"{head}\n0,6.5,5.5,1.25,0.1\n1,6.0,5.0,2.5,0.2\n")
    records, _ = read(tmp_path / "summary.csv")
    assert [(step, values["eval_top1"]) for step, _, values in rows(records)] == [(0, 1.25), (1, 2.5)]
    assert [each.values for each in records if isinstance(each, Config)] == [{"model": "resnet50", "lr": 0.5}]


def test_wandbs_download(tmp_path: Path) -> None:
    """A chart's export: a column for each run, and for what of it was drawn."""
    text = '"Step","calm-sun-1 - loss","calm-sun-1 - loss__MIN","calm-sun-1 - loss__MAX"\n"0","2.5","2.5","2.5"\n'
    assert steps(tmp_path, text) == [
        (0, {"calm-sun-1 - loss": 2.5, "calm-sun-1 - loss__MIN": 2.5, "calm-sun-1 - loss__MAX": 2.5})]  # fmt: skip


STEPLESS = "a row has no step that can be read: the values are kept without one"
UNCLEAR = "a row has a number like 1.234, which beside decimal commas may be a thousand: it is kept as text"
OTHER = "a row has not as many cells as the head, and nothing says which: none of that is read"
ENDLESS = "a row has no line end: its last cell is read, and may be cut"
CUT = "a row has no line end: its last cell may be cut, and isn't read"
FALLS = "a row has a lower step than the row before: the values of both are kept"
LONGER = "a row has more cells than the head, which aren't read"


@pytest.mark.parametrize(("text", "values", "note"), [
    ("step,loss\n1,0.5\nx,0.4\n3,0.3\n", [(1, 0.5), (None, 0.4), (3, 0.3)], STEPLESS),
    ("step,loss\n1,0.5\n,0.4\n3,0.3\n", [(1, 0.5), (None, 0.4), (3, 0.3)], STEPLESS),
    ("step,loss\n1,0.5\n2.5,0.4\n3,0.3\n", [(1, 0.5), (None, 0.4), (3, 0.3)], STEPLESS),
    ("step,loss\n1,0.5\nx,\n3,0.3\n", [(1, 0.5), (3, 0.3)], STEPLESS),
    ("step,time,loss\n1,1700000000.0,0.5\nx,1700000001.0,0.4\n", [(1, 0.5), (None, 0.4)], STEPLESS),
    ("step,time,loss\n1,1700000000.0,0.5\n,1700000001.0,0.4\n", [(1, 0.5), (None, 0.4)], ""),
    ("step;loss\n1;0,5\n2;1.234\n", [(1, 0.5)], UNCLEAR),
    ("step;loss\n1;0,5\n2;-12.345\n", [(1, 0.5)], UNCLEAR),
    ("step;loss\n1;0,5\n2;0.234\n3;1.25\n4;1.2345\n", [(1, 0.5), (2, 0.234), (3, 1.25), (4, 1.2345)], ""),
    ("step;loss\n1;0,5\n2;1.234,5\n3;1.234\n", [(1, 0.5), (2, 1234.5), (3, 1234)], ""),
    ("step loss acc\n1 0.5 0.6\n2 0.4\n3 0.3 0.8\n", [(1, 0.5), (3, 0.3)], OTHER),
    ("step loss acc\n1 0.5 0.6\n2 0.4 0.7 9\n3 0.3 0.8\n", [(1, 0.5), (3, 0.3)], OTHER),
    ("step,loss\n1,0.5\n2,0.4,7\n3,0.3,,\n", [(1, 0.5), (2, 0.4), (3, 0.3)], LONGER),
    ("step,time,loss\n1,1700000000.0,0.5\n2,1700000001.0,0.4,9\n", [(1, 0.5), (2, 0.4)], LONGER),
    ("step,loss,acc\n10,2.5,0.1\n20,2.25,0.2\n30,1.9,0.", [(10, 2.5), (20, 2.25), (30, 1.9)], ENDLESS),
    ("step,loss\n1,2.5\n2,2.25", [(1, 2.5), (2, 2.25)], ENDLESS),
    ("step loss\n1 2.5\n2 2.25", [(1, 2.5), (2, 2.25)], ENDLESS),
    ("step,acc,loss\n1,0.5,2.5\n2,0.5,2.25", [(1, 2.5), (2, 2.25)], ENDLESS),
    ("step,loss,acc\n10,2.5,0.1\n20,2.25,0.2\n30,1.9e-0", [(10, 2.5), (20, 2.25)], CUT),
    ("step,loss,acc\r\n10,2.5,0.1\r\n20,2.25,0.2\r\n30,1.9,0.3\r\n", [(10, 2.5), (20, 2.25), (30, 1.9)], ""),
    ("step,loss\n10,2.5\n20,2.25\n30,", [(10, 2.5), (20, 2.25)], ""),
    ("step,time,loss\n1,1700000000.0,0.5\n2,1700000001.0,0.4", [(1, 0.5)], CUT),
    ("step,timestamp,loss\n1,2026-01-02 03:04:05,123,2.5\n2,2026-01-02 03:04:06,456,2.25\n", [(1, 2.5), (2, 2.25)], ""),
    ("step,loss\n1,7,2.5\n2,8,2.25\n", [], "2 rows have not as many cells as the head"),
    ("epoch,step,loss\n1,10,2.5\n1,20,2.25\n2,10,2.0\n2,20,1.75\n", [(10, 2.5), (20, 2.25), (10, 2.0), (20, 1.75)],
     FALLS),
    ("step,loss\n10,2.5\n20,2.25\n20,2.0\n30,1.75\n", [(10, 2.5), (20, 2.25), (20, 2.0), (30, 1.75)], ""),
])  # fmt: skip
def test_what_of_a_row_is_not_read_is_noted(
    text: str, values: list[tuple[int | None, float]], note: str, tmp_path: Path
) -> None:
    """A figure that can't be known is none; the note says of how many rows."""
    found, said = table(tmp_path, text)
    assert [(step, row["loss"]) for step, _, row in found] == values
    assert said.startswith(note) if note else "a row" not in said


MLFLOW = '"Run","Run ID","metric","step","timestamp","value"\n'


@pytest.mark.parametrize(("text", "found"), [
    (MLFLOW + '"bold","aaa1","loss","0","1767323045000","2.5"\n"bold","aaa1","loss","1","1767323046000","\'-0.25"\n'
     '"red","bbb2","loss","0","1767323045000","3.5"\n"red","bbb2","loss","1","1767323046000","3.25"\n'
     '"bold","aaa1","reward","0","1767323045000","\'-10"\n',
     [(0, {"loss": 2.5}), (1, {"loss": -0.25}), (0, {"red/loss": 3.5}), (1, {"red/loss": 3.25}), (0, {"reward": -10})]),
    (MLFLOW + "a,1,loss,0,1767323045000,2\na,2,loss,0,1767323045000,3\na,1,loss,1,1767323045000,4\n",
     [(0, {"loss": 2}), (0, {"2/loss": 3}), (1, {"loss": 4})]),
    ("Run,metric,step,value\nr1,loss,0,2.5\nr2,loss,0,3.5\nr1,loss,1,2\n",
     [(0, {"loss": 2.5}), (0, {"r2/loss": 3.5}), (1, {"loss": 2})]),
    ("Group,Metric,Step,Value\ng,loss,0,2.5\nh,loss,0,3.5\n", [(0, {"loss": 2.5}), (0, {"h/loss": 3.5})]),
    ("step,loss,a\n0,'-2.5,'+1\n1,-0.5,'-1e-05\n", [(0, {"loss": -2.5, "a": 1}), (1, {"loss": -0.5, "a": -1e-05})]),
    ("step;loss\n0;'-2,5\n1;'-0,5\n", [(0, {"loss": -2.5}), (1, {"loss": -0.5})]),
    ("step,loss,name\n0,2.5,'-a\n1,2,'2\n", [(0, {"loss": 2.5}), (1, {"loss": 2})]),
])  # fmt: skip
def test_downloads_of_several_runs_and_escaped_numbers(text: str, found: list[Any], tmp_path: Path) -> None:
    """Each run has its series, by a name that no other has; the apostrophe that keeps a spreadsheet off is none of a
    number's."""
    assert steps(tmp_path, text) == found


def test_times_with_a_comma_before_their_milliseconds_are_times(tmp_path: Path) -> None:
    """As Python's logging writes them, without quotes around."""
    text = "step,timestamp,loss\n1,2026-01-02 03:04:05,123,2.5\n2,2026-01-02 03:04:06,456,2.25\n"
    (first, second), _ = table(tmp_path, text)
    assert second[1] - first[1] == pytest.approx(1.333)


@pytest.mark.parametrize("text", ["1_2", "2024_01", "1_000.5", "1e1_0"])
def test_digits_with_a_line_between_are_no_number(text: str, tmp_path: Path) -> None:
    """As they are names of versions and the like, which Python would read."""
    (tmp_path / "a.csv").write_text(f"step,loss,version\n1,2.5,{text}\n2,2.25,{text}\n")
    (tmp_path / "a.jsonl").write_text("".join(f'{{"step": {k}, "loss": 2.5, "version": "{text}"}}\n' for k in (1, 2)))
    for name in ("a.csv", "a.jsonl"):
        records, _ = read(tmp_path / name)
        assert [each.values for each in records if isinstance(each, Text)] == [{"version": text}] * 2


@pytest.mark.parametrize(("text", "value"), [
    ("nan", math.nan), ("NaN", math.nan), ("inf", math.inf), ("-inf", -math.inf), ("Infinity", math.inf),
    ("-Infinity", -math.inf), ("INF", math.inf), (" 2.5 ", 2.5), ("1e-05", 1e-05), ("nano", None), ("inf.", None),
    ("info", None), ("2,5", None),
])  # fmt: skip
def test_numbers_in_quotes_are_numbers_of_lines(text: str, value: float | None, tmp_path: Path) -> None:
    """Also those that are none, or too large, as Python's ``str`` writes them; other words are texts."""
    (tmp_path / "a.jsonl").write_text(lines({"step": 1, "loss": 2.5}, {"step": 2, "loss": text}))
    records, _ = read(tmp_path / "a.jsonl")
    found = [each.values["loss"] for each in records if isinstance(each, (Metrics, Text)) and each.step == 2]
    assert repr(found) == repr([text if value is None else value])


def test_rows_of_lines_without_a_step_are_noted(tmp_path: Path) -> None:
    """Their values are kept without one; a line of texts alone has none to keep."""
    text = lines({"step": 4, "loss": 2.5}, {"step": 5.5, "loss": 2.25}, {"step": None, "loss": 2.0}, {"loss": 1.75},
                 {"event": "saved"}, {"step": 6, "loss": 1.5})  # fmt: skip
    found, note = table(tmp_path, text, "a.jsonl")
    assert [step for step, _, _ in found] == [4, None, None, None, 6]
    assert "3 rows have no step that can be read: the values are kept without one" in note


def test_lines_whose_steps_fall_are_noted(tmp_path: Path) -> None:
    """Such as those of a counter that begins anew with each epoch."""
    lines = [f'{{"epoch": {epoch}, "step": {step}, "loss": 2.5}}\n' for epoch in (1, 2, 3) for step in (10, 20)]
    _, note = table(tmp_path, "".join(lines), "a.jsonl")
    assert "2 rows have a lower step than the row before: the values of both are kept" in note


def test_prose_of_as_many_words_is_no_table(tmp_path: Path) -> None:
    """Rows of blanks are cells where they are numbers."""
    found, said = table(tmp_path, "one two three\nfour five six\nseven eight\nnine ten eleven\n")
    assert (found, "blanks" in said) == ([], False)


def test_number_that_is_none_here_stays_a_text(tmp_path: Path) -> None:
    """What is too large for a float isn't infinite: it is kept as it is written. Infinity is."""
    (tmp_path / "a.csv").write_text("step,loss\n1,1e400\n2,-1e999\n3,0.5\n4,inf\n5,-Infinity\n")
    records, _ = read(tmp_path / "a.csv")
    assert [(step, values) for step, _, values in rows(records)] == [
        (3, {"loss": 0.5}), (4, {"loss": math.inf}), (5, {"loss": -math.inf})]  # fmt: skip
    assert [each.values for each in records if isinstance(each, Text)] == [{"loss": "1e400"}, {"loss": "-1e999"}]


def test_verls_and_other_lines(tmp_path: Path) -> None:
    """Nested objects, verl's ``data``, numbers in quotes, NaN, a configuration, stamps, mixed rows and a torn end."""
    verl = '{"step": 1, "data": {"actor/pg_loss": 0.5}}\n{"step": 2, "data": {"actor/pg_loss": NaN, "val-core/x": 1}}\n'
    (tmp_path / "verl.jsonl").write_text(verl)
    records, _ = read(tmp_path / "verl.jsonl")
    assert repr([values for _, _, values in rows(records)]) == repr(
        [{"actor/pg_loss": 0.5}, {"actor/pg_loss": math.nan, "val-core/x": 1}]
    )
    text = lines({"step": 1, "config": {"lr": 0.1}, "timestamp": 1700000000, "a": {"b": 1, "c": [1, 2]}, "s": "hi"})
    text += 'not JSON\n\n{"step": 2, "a": {"b": "0.5"}, "n": null}\n{"event": "saved"}\n{"step": 3, "a"'
    (tmp_path / "other.jsonl").write_text(text)
    records, run = read(tmp_path / "other.jsonl")
    assert rows(records) == [(1, 1700000000.0, {"a/b": 1}), (2, 1700000000.0, {"a/b": 0.5})]
    assert [each.values for each in records if isinstance(each, Text)] == [{"s": "hi"}, {"event": "saved"}]
    assert [each.values for each in records if isinstance(each, Config)] == [{"lr": 0.1}]
    assert run.note.startswith("a line is left out, the first: line 2")
    assert run.note.endswith(
        "its last line (6) is left out: it is cut off, or still being written; lists are left out: a/c"
    )


@pytest.mark.parametrize("text", ['{"a": 1}', "{}", '{"name": "x", "version": "1"}\n'])
def test_object_without_steps_is_no_log(text: str, tmp_path: Path) -> None:
    """One object on one line is a row only if it has a step."""
    (tmp_path / "package.json").write_text(text)
    with pytest.raises(NotFound, match="neither a training log"):
        read(tmp_path / "package.json")


ROWS = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
ITERATIONS = [{"iter": row["step"], "loss": row["loss"]} for row in ROWS]


def test_lines_without_numbers_are_no_log(tmp_path: Path) -> None:
    """A file of prompts and answers isn't taken for a training."""
    (tmp_path / "data.jsonl").write_text(lines({"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": "d"}))
    with pytest.raises(NotFound, match="no row with a number"):
        read(tmp_path / "data.jsonl")


TEXTS = {
    "table.csv": "step,loss\n1,0.5\n2,0.25\n",
    "rows.jsonl": '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n',
    "log.json": json.dumps({"run_name": "a", "training_iterations": ITERATIONS}),
    "trainer_state.json": json.dumps({"log_history": ROWS}),
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("packing", sorted(PACKINGS))
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_text_is_read_through_one_door(name: str, packing: str, encoding: str, tmp_path: Path) -> None:
    """Packed, with a byte-order mark, in UTF-16 or -32, each gives what the plain file gives, and needs no scheme."""
    (tmp_path / name).write_text(TEXTS[name])
    wanted = rows(read(tmp_path / name)[0])
    assert len(wanted) >= 2
    (tmp_path / f"{name}{packing}").write_bytes(PACKINGS[packing](TEXTS[name].encode(encoding)))
    assert rows(read(tmp_path / f"{name}{packing}")[0]) == wanted


@pytest.mark.parametrize("packing", [".gz", ".xz", ".bz2", ".zst"])
@pytest.mark.parametrize("name", ["table.csv", "rows.jsonl"])
def test_cut_packed_table_is_read_up_to_there(name: str, packing: str, tmp_path: Path) -> None:
    """The rows before count, and the note says the rest; a whole JSON file that is cut is refused."""
    row = "{0},0.{1}\n" if name == "table.csv" else '{{"step": {0}, "loss": 0.{1}}}\n'
    text = "step,loss\n" * (name == "table.csv") + "".join(row.format(n, n * 7919 % 10007) for n in range(100_000))
    packed = PACKINGS[packing](text.encode())
    (tmp_path / f"{name}{packing}").write_bytes(packed[: len(packed) * 3 // 4])
    records, run = read(tmp_path / f"{name}{packing}")
    assert 100 < len(records) < 100_000
    assert "the packed file is cut or damaged" in run.note
    (tmp_path / "trainer_state.json.gz").write_bytes(PACKINGS[packing](TEXTS["trainer_state.json"].encode())[:-12])
    with pytest.raises((NotFound, Damaged), match="cut or damaged"):
        read(tmp_path / "trainer_state.json.gz")


def test_table_without_rows_is_empty(tmp_path: Path) -> None:
    """Comments alone make none."""
    (tmp_path / "a.csv").write_text("# nothing\n\n")
    with pytest.raises(NotFound, match="is empty"):
        judged(tmp_path / "a.csv")
